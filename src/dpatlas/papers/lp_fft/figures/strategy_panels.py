"""Panels of accuracies of lp_fft's strategies: their rows, grid, axes, titles and notes."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.lp_fft.figures.arms import CHOSEN_ON, NEIGHBOURS
from dpatlas.show.look import DOUBLE_COLUMN
from dpatlas.show.panels import accuracy_axis
from dpatlas.show.rows import Row, averaged, span

LINE_HEIGHT = 2.2


def panel_grid(count: int, most: int) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels with the same axes, at most `most` in a line."""
    lines = math.ceil(count / most)
    figure = Figure(figsize=(DOUBLE_COLUMN, LINE_HEIGHT * lines + 0.3))
    subplots = list(figure.subplots(lines, most, squeeze=False).flat)
    for axes in subplots[count:]:
        axes.set_axis_off()
    for axes in subplots[1:count]:
        axes.sharex(subplots[0])
        axes.sharey(subplots[0])
    for axes in subplots[::most]:
        axes.set_ylabel("test accuracy, %")
    return figure, subplots[:count]


def finish(subplots: Sequence[Axes]) -> None:
    """Set the axis of accuracy of all panels."""
    for axes in subplots:
        accuracy_axis(axes)


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
