"""lp_fft: gradient sensitivities of the layers of a linear network."""

import math
from collections.abc import Sequence
from typing import Any

from dpatlas_workflow.papers.lp_fft.figures.theory_series import (
    GUIDE,
    NOISES,
    Made,
    drawn,
    mean_rows,
    theory_figure,
)
from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import BLUE, GREEN, PINK, RED, Look
from dpatlas_workflow.show.panel import Axis, Legend, Panel, Series, ShownFigure
from dpatlas_workflow.show.rows import Records, Row, Settings, only, where

LAYERS = {
    "head": Look("head", BLUE, "o", "-"),
    "features": Look("features", RED, "s", "--"),
}
READINGS = {
    ("record", "variance"): Look(r"records, variance $h/\sqrt{d}$", BLUE, "o", "-"),
    ("record", "deviation"): Look(r"records, deviation $h/\sqrt{d}$", RED, "s", "--"),
    ("ball", "variance"): Look(r"unit ball, variance $h/\sqrt{d}$", GREEN, "^", "-."),
    ("ball", "deviation"): Look(r"unit ball, deviation $h/\sqrt{d}$", PINK, "D", ":"),
}


def lpfft_sensitivity(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 9: sensitivities of both layers, their ratio against d, and its drift in DP-GD.

    InputError unless there is exactly one record of kind sensitivity.
    """
    record: Record[Any] = only(records, "sensitivity")
    before, moving = record.spec.start, record.spec.drift
    seeds = record.tables["start"][0]["seeds"]
    notes = [
        f"$h$ = {before.hidden}, $n$ = {before.records_per_input}$d$ records with $X^T X = I$ and "
        rf"$\Vert Y\Vert$ = 1, mean over {seeds} heads and features with 95% normal intervals; "
        "sensitivity: largest gradient norm, over the records or over the unit ball (all records "
        "of norm and label at most 1); variance, deviation: two readings of the head's initial "
        r"$h/\sqrt{d}$; Prop. E.10 claims a ratio above 1 that grows like $\sqrt{d}$ (thin lines: "
        r"the ratio 1 and this slope); left: over the records, variance $h/\sqrt{d}$; "
        f"right: $d$ = {moving.d}, over the records, {moving.reading} "
        rf"$h/\sqrt{{d}}$, steps of {moving.step:g}, $\sigma^2$ = {moving.sigma2:g}, "
        f"{moving.seeds} paths",
    ]
    start, drift = record.tables["start"], record.tables["drift"]
    line = _layer_sizes(start), _start_ratios(start), _ratio_drift(drift)
    return theory_figure(record, {"": line}, notes, height=2.7)


def _inputs(rows: list[Row]) -> Axis:
    return Axis("number of inputs $d$", log=True, ticks=sorted({row["x"] for row in rows}))


def _layer_sizes(start: Sequence[Row]) -> Made:
    """Largest gradient norm of a record in either layer, h / sqrt(d) being the variance."""
    rows: list[Row] = []
    for name, look in LAYERS.items():
        rows += _start_rows(start, "sensitivity", look, "variance", f"record_{name}")
    norm = Axis("largest gradient norm of a record", log=True)
    shown = drawn(rows, LAYERS.values())
    return Panel("Sensitivity of each layer", _inputs(rows), norm, shown, legend=Legend()), rows


def _start_ratios(start: Sequence[Row]) -> Made:
    """Head over features before training, by definition of sensitivity and reading of E.10."""
    rows: list[Row] = []
    for (records, reading), look in READINGS.items():
        rows += _start_rows(start, "ratio at the start", look, reading, f"{records}_ratio")
    at = sorted({row["x"] for row in rows})
    low = min(row["value"] for row in rows)
    slope = Series(GUIDE, at, [low * math.sqrt(d / at[0]) for d in at])
    ratio = Axis("sensitivity of head over features", log=True, ends=(low / 1.3, 6))
    shown = [*drawn(rows, READINGS.values()), slope]
    legend = Legend("upper left")
    title = "Ratio before training"
    return Panel(title, _inputs(rows), ratio, shown, across=[1.0], legend=legend), rows


def _start_rows(start: Sequence[Row], panel: str, look: Look, reading: str, name: str) -> list[Row]:
    """Rows of one column of the record, for one reading, against d."""
    read = where(start, reading=reading)
    at, values, errors = ([row[column] for row in read] for column in ("d", name, f"{name}_error"))
    return mean_rows(panel, look, at, values, errors)


def _ratio_drift(drifts: Sequence[Row]) -> Made:
    """The ratio during noisy gradient descent."""
    rows: list[Row] = []
    for row in drifts:
        look = NOISES[row["noise"]]
        rows += mean_rows("ratio in DP-GD", look, row["steps"], row["ratio"], row["error"])
    x = Axis("steps of DP-GD")
    ratio = Axis("sensitivity of head over features", ends=(0, None))
    shown = drawn(rows, NOISES.values())
    return Panel("Ratio in private training", x, ratio, shown, legend=Legend("lower left")), rows
