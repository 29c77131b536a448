"""Records of lp_fft's strategies as rows of a csv: one strategy at one share and privacy level.

With the looks, grid, titles and notes that panels of their accuracies share.

`share` is the share of the steps in the first phase: 1 for LP, 0 for FFT and LoRA.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.colors import to_hex, to_rgb

from dpatlas.errors import InputError
from dpatlas_workflow import rows
from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import BLUE, GREEN, ORANGE, PINK, RED, Look
from dpatlas_workflow.show.panel import Panel, PanelGrid
from dpatlas_workflow.show.rows import Records, Row, averaged, grouped, of_kind, over_runs, span

SKY = "#56B4E9"
STRATEGIES = {
    "lp": Look("LP", GREEN, "^", "-."),
    "lp-fft": Look("LP-FFT", BLUE, "o", "-"),
    "fft": Look("FFT", RED, "s", "--"),
    "lp-lp": Look("LP-LP (control)", PINK, "<", ":"),
    "fft-fft": Look("FFT-FFT (control)", ORANGE, ">", ":"),
    "lp-lora": Look("LP-LoRA", SKY, "P", "-"),
    "lora": Look("LoRA", "black", "D", "--"),
}
# Height in inches of a line of panels.
LINE_HEIGHT = 2.2
# Of the steps in the first phase: 5 of 20 epochs, as in Table 1.
PAPER_SHARE = 0.25
# Each further share of a strategy's first phase has another marker and a darker colour.
SHARE_MARKERS, DARKER = ("p", "d", "X", "*"), 0.6
NEIGHBOURS = {"add_remove": "one record added or removed", "replace_one": "one record replaced"}
CHOSEN_ON = "a fixed part of the records, which is in no run"
PLACE = ("group", "scenario", "data", "backbone")
SETTING = (
    *PLACE,
    "pretrained_on",
    "architecture",
    "classes",
    "n_train",
    "n_test",
    "head_scale",
    "lora_rank",
)
PRIVACY = (
    "noise_multiplier",
    "target_epsilon",
    "epsilon",
    "delta",
    "relation",
    "guaranteed_by",
)
TRAINING = (
    "lr_first",
    "lr_second",
    "steps_first",
    "steps_second",
    "batch",
    "sampler",
    "max_grad_norm",
    "trained_parameters",
    "tuned_by",
    "rates_chosen_on",
)
OVER_RUNS = ("value", "low", "high", "standard_error", "runs_used")
ARM_COLUMNS = (*SETTING, "strategy", "share", *OVER_RUNS, *PRIVACY, *TRAINING)
# Columns that are fields of specs.
OF_SPEC = (
    "group",
    "scenario",
    "head_scale",
    "lora_rank",
    "delta",
    "relation",
    "max_grad_norm",
    "batch",
)
# Columns that tell the rows of all records apart.
_UNIQUE = (*PLACE, "strategy", "share", "target_epsilon", "noise_multiplier", "max_grad_norm")


def backbone_of(record: Record[Any]) -> str:
    """Name in the config of the backbone that a private training starts from."""
    return str(record.spec.backbone.rpartition("-")[0])


def arms(records: Records, *groups: str) -> list[Row]:
    """A row for every strategy, share and privacy level of the `strategies` records of `groups`.

    Raises InputError where two records have the same strategy at the same level.
    """
    found = [
        row
        for record in of_kind(records, "strategies")
        if record.spec.group in groups
        for row in arm_rows(record)
    ]
    for first, *others in grouped(found, *_UNIQUE).values():
        if others:
            repeated = f"{first['strategy']} at share {first['share']:g}, as in {first['runs'][0]}"
            name = f"--records {others[0]['runs'][0]}"
            raise InputError(name, repeated, "each strategy once at each level")
    return found


def arm_rows(record: Record[Any]) -> list[Row]:
    """The rows of one record; `value` is the accuracy on test records."""
    spec, facts = record.spec, record.facts
    shared = {name: getattr(spec, name) for name in OF_SPEC} | {
        **{name: facts[name] for name in ("n_train", "n_test", "classes")},
        "data": spec.data.name,
        "backbone": backbone_of(record),
        "pretrained_on": facts["backbone"]["source"],
        "architecture": facts["backbone"]["architecture"],
        "tuned_by": spec.tuning,
        "rates_chosen_on": CHOSEN_ON,
        "runs": list(record.ids),
    }
    return [
        {
            **shared,
            **{name: value for name, value in arm.items() if name in ARM_COLUMNS},
            **_by_phase("lr", arm["lrs"]),
            **_by_phase("steps", arm["steps"]),
            **over_runs(arm["accuracy"]),
        }
        for arm in rows.arms(record)
    ]


def level(row: Row) -> tuple[float, float]:
    """A key that sorts privacy levels: noise, then the epsilon that it was calibrated to."""
    return row["noise_multiplier"], row["target_epsilon"] or 0.0


def series_name(row: Row) -> tuple[str, float]:
    """One setting of the training: a strategy at its share of the first phase."""
    return row["strategy"], row["share"]


def series_looks(rows: Sequence[Row]) -> dict[tuple[str, float], Look]:
    """A look by name of every series in `rows`; a name of two phases says its share."""
    found = {series_name(row) for row in rows}
    looks = {}
    for strategy, look in STRATEGIES.items():
        shares = sorted(share for name, share in found if name == strategy)
        for place, share in enumerate(shares):
            first = " LP" if strategy in ("lp-fft", "lp-lora") else ""
            label = f"{look.label}, {100 * share:g} %{first}" if 0 < share < 1 else look.label
            marker = (look.marker, *SHARE_MARKERS)[place]
            red, green, blue = (DARKER**place * part for part in to_rgb(look.color))
            color = to_hex((red, green, blue))
            looks[strategy, share] = replace(look, label=label, color=color, marker=marker)
    return looks


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


def reported_weights(records: Records) -> str:
    """The weights whose accuracy the records have, in words."""
    return " or ".join(
        sorted({each.spec.reported_weights for each in of_kind(records, "strategies")})
    )


def common_note(rows: Sequence[Row], records: Records) -> str:
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
        f"test records, {reported_weights(records)}; "
        f"n = {span(row['n_train'] for row in rows)}; {privacy}; "
        f"learning rates were chosen for every point on {CHOSEN_ON}; runs share records, head, "
        "batches and noise among strategies; a share in % is that of the steps in the first phase"
    )


def _by_phase(name: str, values: Sequence[float]) -> dict[str, float | None]:
    first, second = (*values, None)[:2]
    return {f"{name}_first": first, f"{name}_second": second}
