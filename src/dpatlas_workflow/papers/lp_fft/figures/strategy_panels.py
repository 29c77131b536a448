"""Panels of accuracies of lp_fft's strategies: their grid, titles and notes."""

from collections.abc import Sequence

from dpatlas_workflow.papers.lp_fft.figures.arms import CHOSEN_ON, NEIGHBOURS
from dpatlas_workflow.show.panel import Panel, PanelGrid
from dpatlas_workflow.show.rows import Row, averaged, span

LINE_HEIGHT = 2.2


def in_lines(
    panels: Sequence[Panel], most: int, heading: str = "", above: float = 0.3
) -> PanelGrid:
    """A grid of `most` columns; above: inches for what stands there."""
    lines: list[list[Panel | None]] = [
        [*panels[at : at + most]] for at in range(0, len(panels), most)
    ]
    lines[-1] += [None] * (most - len(lines[-1]))
    return PanelGrid(lines, LINE_HEIGHT * len(lines) + above, heading)


def panel_title(row: Row) -> str:
    """Scenario, rank of LoRA if it has one, private data and data of the pre-training."""
    lora = f", LoRA of rank {row['lora_rank']}" if row["lora_rank"] else ""
    told = f"{row['data']}, backbone {row['pretrained_on']}"
    if row["pretrained_on"] == row["data"]:
        told = f"{row['classes']} classes of {row['data']}, backbone: other classes"
    return f"{row['scenario']}{lora}\n{told}"


def common_note(rows: Sequence[Row]) -> str:
    """Numbers of runs and records, the guarantee, and how learning rates were tuned."""
    private = [row for row in rows if row["noise_multiplier"]]
    privacy = "no run is private"
    if private:
        neighbours = " or ".join(sorted({NEIGHBOURS[row["relation"]] for row in private}))
        privacy = (
            rf"$\varepsilon$ covers both phases, {neighbours}, $\delta$ = "
            f"{span(row['delta'] for row in private)}"
        )
    return (
        f"{averaged(row['runs_used'] for row in rows)} on {span(row['n_test'] for row in rows)} "
        f"test records, last iterate; n = {span(row['n_train'] for row in rows)}; {privacy}; "
        f"learning rates were chosen for every point on {CHOSEN_ON}; runs share records, head, "
        "batches and noise among strategies; a share in % is that of the steps in the first phase"
    )
