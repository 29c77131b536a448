"""Records of lp_fft's strategies as rows: one strategy at one privacy level, and what it took.

`share` is the share of the steps in the first phase: 1 for LP, 0 for FFT and LoRA.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter

from dpatlas.core.statistics import mean_estimate
from dpatlas.errors import InputError
from dpatlas.show.look import Look
from dpatlas.show.output import Records, Row
from dpatlas.show.series import BLUE, GREEN, ORANGE, PINK, RED, of_kind

CONFIDENCE = 0.95
OUTSIDE = 0.02
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
NEIGHBOURS = {"add_remove": "one record added or removed", "replace_one": "one record replaced"}
CHOSEN_ON = "held-out validation records"
PLACE = ("group", "scenario", "data", "backbone")
SETTING = (
    *PLACE,
    "pretrained_on",
    "architecture",
    "classes",
    "n_train",
    "n_validation",
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
    "settings_tried",
    "trials",
    "with_tuning_epsilon",
    "all_runs_epsilon",
    "validation_accuracy",
    "rates_chosen_on",
)
OVER_RUNS = ("value", "low", "high", "standard_error", "runs_used")
ARM_COLUMNS = (*SETTING, "strategy", "share", *OVER_RUNS, *PRIVACY, *TRAINING)
# Which rows of one panel or block must differ in.
_ONCE = (*PLACE, "strategy", "share", "target_epsilon", "noise_multiplier", "max_grad_norm")


def arms(records: Records, *groups: str) -> list[Row]:
    """A row for every strategy, share and privacy level of the `strategies` records of `groups`.

    Raises InputError where two records have the same strategy at the same level.
    """
    rows = [
        row
        for record in of_kind(records, "strategies")
        if record["spec"]["group"] in groups
        for row in arm_rows(record)
    ]
    seen: dict[tuple, str] = {}
    for row in rows:
        key, (name,) = tuple(row[column] for column in _ONCE), row["runs"]
        if key in seen:
            what = f"{row['strategy']} at share {row['share']:g}, as in {seen[key]}"
            raise InputError(f"--records {name}", what, "each strategy once at each level")
        seen[key] = name
    return rows


def arm_rows(record: Mapping[str, Any]) -> list[Row]:
    """The rows of one record; `value` is the accuracy of the last iterate on test records."""
    fields, metrics = record["spec"], record["metrics"]
    shared = {
        **{name: fields[name] for name in ("group", "scenario", "head_scale", "lora_rank")},
        **{name: metrics[name] for name in ("classes", "n_train", "n_validation", "n_test")},
        "data": fields["data"]["name"],
        "backbone": backbone_of(record),
        "pretrained_on": metrics["backbone"]["source"],
        "architecture": metrics["backbone"]["architecture"],
        "delta": fields["delta"],
        "rates_chosen_on": CHOSEN_ON,
        "runs": [record["id"]],
    }
    return [
        {
            **shared,
            **{name: found[name] for name in ("strategy", "share", *PRIVACY) if name in found},
            **{name: found[name] for name in TRAINING if name in found},
            **_by_phase("lr", found["lrs"]),
            **_by_phase("steps", found["steps"]),
            **over_runs(found["accuracy"]),
        }
        for found in metrics["rows"]
    ]


def backbone_of(record: Mapping[str, Any]) -> str:
    """The name in the config of the backbone that a spec asks for."""
    return record["spec"]["backbone"].rpartition("-")[0]


def over_runs(values: Sequence[float], confidence: float = CONFIDENCE) -> dict[str, Any]:
    """Mean of the runs with its t interval and standard error; none for a single run."""
    estimate = mean_estimate(values)
    found = {"value": estimate.value, "runs_used": estimate.runs}
    if estimate.runs == 1:
        return found | dict.fromkeys(("low", "high", "standard_error"))
    low, high = estimate.interval(confidence)
    return found | {"low": low, "high": high, "standard_error": estimate.standard_error}


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple, list[Row]]:
    """Rows by their values in the columns `names`, in order of appearance."""
    found: dict[tuple, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def span(values: Iterable[float]) -> str:
    """One number in words, or the least and the largest of several."""
    found = sorted(set(values))
    return f"{found[0]:g}" if len(found) == 1 else f"{found[0]:g} to {found[-1]:g}"


def averaged(runs: Iterable[int]) -> str:
    """What a value of `over_runs` is, in words, by the numbers of runs behind the values."""
    found = list(runs)
    if max(found) == 1:
        return "one run"
    return f"mean and {CONFIDENCE:.0%} t interval of {span(found)} runs"


def percent_axis(axis: Axis) -> None:
    """Label fractions as percentages, without the sign."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}"))


def accuracy_axis(axes: Axes) -> None:
    """Percentages, and no room for what intervals of very few runs claim beyond 0 and 1.

    Call it when all is drawn.
    """
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, -OUTSIDE), min(high, 1 + OUTSIDE))
    percent_axis(axes.yaxis)


def level(row: Row) -> tuple[float, float]:
    """What sorts and tells apart privacy levels: noise, then the epsilon that it is meant for."""
    return row["noise_multiplier"], row["target_epsilon"] or 0.0


def chosen_share(rows: Iterable[Row]) -> list[Row]:
    """Of every strategy, level and clip the row whose share did best on validation records."""
    best: dict[tuple, Row] = {}
    for row in rows:
        key = (row["strategy"], level(row), row["max_grad_norm"])
        if key not in best or row["validation_accuracy"] > best[key]["validation_accuracy"]:
            best[key] = row
    return list(best.values())


def _by_phase(name: str, values: Sequence[float]) -> dict[str, float | None]:
    first, second = (*values, None)[:2]
    return {f"{name}_first": first, f"{name}_second": second}
