"""Rows of a csv: which records are behind them, estimates over runs, and these in words."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpatlas.errors import InputError
from dpatlas_workflow.records import Record
from dpatlas_workflow.statistics import mean_estimate

if TYPE_CHECKING:
    # `dpatlas audit` prints its table without pandas.
    import pandas as pd

Row = dict[str, Any]
Records = Sequence[Record[Any]]
Settings = dict[str, Any]

CONFIDENCE = 0.95
# Of fewer runs a t interval says next to nothing: their values are shown without one.
LEAST_RUNS = 3


def only(records: Records, kind: str) -> Record[Any]:
    """The record of that kind; InputError unless there is exactly one."""
    matching = of_kind(records, kind)
    if len(matching) != 1:
        raise InputError("--records", f"{len(matching)} of kind {kind}", "exactly one")
    return matching[0]


def of_kind(records: Records, kind: str) -> list[Record[Any]]:
    """The records of that kind."""
    return [record for record in records if record.kind == kind]


def some(records: Records, kind: str) -> list[Record[Any]]:
    """The records of that kind; InputError where there is none."""
    matching = of_kind(records, kind)
    if not matching:
        raise InputError("--records", f"none of kind {kind}", "at least one")
    return matching


def where(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by their values in the columns `names`, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in names), []).append(row)
    return groups


def over_runs(values: Sequence[float] | np.ndarray) -> Row:
    """Mean of the runs, its standard error from 2 runs on, its t interval from LEAST_RUNS on."""
    estimate = mean_estimate(values)
    error = estimate.standard_error if estimate.runs > 1 else None
    ends = estimate.interval(CONFIDENCE) if estimate.runs >= LEAST_RUNS else (None, None)
    shown = {"value": estimate.value, "runs_used": estimate.runs, "standard_error": error}
    return shown | dict(zip(("low", "high"), ends, strict=True))


def mean_and_error(name: str, values: Sequence[float] | np.ndarray) -> Row:
    """Mean of the runs and its standard error, as columns whose names begin with `name`."""
    row = over_runs(values)
    return {f"{name}_mean": row["value"], f"{name}_standard_error": row["standard_error"]}


def mean_interval(values: Sequence[float] | np.ndarray) -> Row:
    """As `over_runs`, without the standard error."""
    row = over_runs(values)
    del row["standard_error"]
    return row


def positive_mean_interval(values: Sequence[float] | np.ndarray) -> Row:
    """As `mean_interval`, but the t interval is that of the mean's logarithm, by the delta method.

    So it stays above 0, as an axis of logarithms needs it.
    """
    row = mean_interval(values)
    if row["low"] is not None and row["value"] > 0:
        half = (row["high"] - row["value"]) / row["value"]
        row |= {"low": row["value"] * math.exp(-half), "high": row["value"] * math.exp(half)}
    return row


def summaries(
    data: "pd.DataFrame",
    by: Sequence[str],
    column: str,
    over: Callable[[np.ndarray], Row] = mean_interval,
    **keys: Any,
) -> list[Row]:
    """A row for each combination of the columns `by`, in order of first appearance.

    data: as of `rows.columns`, a row per run. over: what is shown of the runs' values of
    `column`; runs without a value diverged and take no part, and a row without any has none. keys:
    further entries of every row.
    """
    rows = []
    for at, runs in data.groupby(list(by), sort=False):
        values = runs[column].dropna().to_numpy(float)
        row = {name: getattr(v, "item", lambda v=v: v)() for name, v in zip(by, at, strict=True)}
        row |= {**keys, "runs": list(runs.ids.iloc[0])}
        row |= {"runs_used": len(values), "runs_diverged": len(runs) - len(values)}
        rows.append(row | over(values) if len(values) else row)
    return rows


def averaged(runs: Iterable[int]) -> str:
    """What a value of `over_runs` is, in words, by the numbers of runs behind the values."""
    counts = set(runs)
    if max(counts) == 1:
        return "one run"
    interval = f" and {CONFIDENCE:.0%} t interval" if max(counts) >= LEAST_RUNS else ""
    return f"mean{interval} of {span(counts)} runs"


def span(values: Iterable[float], digits: int = 6) -> str:
    """One number in words, or the least and the largest of several."""
    different = sorted(set(values))
    low, high = (f"{different[end]:.{digits}g}" for end in (0, -1))
    return low if low == high else f"{low} to {high}"
