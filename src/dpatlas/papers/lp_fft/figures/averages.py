"""What figures and tables of lp_fft's training share: means over runs, groups of rows, axes."""

from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter

from dpatlas.core.statistics import mean_estimate
from dpatlas.records import Record
from dpatlas.show.output import Row

CONFIDENCE = 0.95
OUTSIDE = 0.02
SKY = "#56B4E9"


def backbone_of(record: Record[Any, Any]) -> str:
    """The name in the config of the backbone that a private training's spec asks for."""
    return record.spec.backbone.rpartition("-")[0]


def over_runs(values: Sequence[float], confidence: float = CONFIDENCE) -> dict[str, Any]:
    """Mean of the runs with its t interval and standard error; none for a single run."""
    estimate = mean_estimate(values)
    mean = {"value": estimate.value, "runs_used": estimate.runs}
    if estimate.runs == 1:
        return mean | dict.fromkeys(("low", "high", "standard_error"))
    low, high = estimate.interval(confidence)
    return mean | {"low": low, "high": high, "standard_error": estimate.standard_error}


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by their values in the columns `names`, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def span(values: Iterable[float]) -> str:
    """One number in words, or the least and the largest of several."""
    different = sorted(set(values))
    least, largest = different[0], different[-1]
    return f"{least:g}" if len(different) == 1 else f"{least:g} to {largest:g}"


def averaged(runs: Iterable[int]) -> str:
    """What a value of `over_runs` is, in words, by the numbers of runs behind the values."""
    counts = list(runs)
    if max(counts) == 1:
        return "one run"
    return f"mean and {CONFIDENCE:.0%} t interval of {span(counts)} runs"


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
