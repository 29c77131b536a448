"""lp_fft: gradient sensitivities of the layers of a linear network."""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.lp_fft.figures.theory_series import (
    COLUMNS,
    NOISES,
    draw_guide,
    draw_series,
    legend_of,
    mean_rows,
)
from dpatlas.records import Record
from dpatlas.show.look import BLUE, DOUBLE_COLUMN, GREEN, MUTED, PINK, RED, THIN, Look
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import label_sparsely, label_ticks
from dpatlas.show.rows import Records, Row, Settings, only, where

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


def lpfft_sensitivity(records: Records, settings: Settings) -> DrawnFigure:
    """Fig. 9: sensitivities of both layers, their ratio against d, and its drift in DP-GD.

    InputError unless there is exactly one record of kind sensitivity.
    """
    record = only(records, "sensitivity")
    figure = Figure(figsize=(DOUBLE_COLUMN, 2.7))
    sizes, start, drift = figure.subplots(1, 3)
    rows = [
        *_layer_sizes(sizes, record),
        *_start_ratios(start, record),
        *_ratio_drift(drift, record),
    ]
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
    return DrawnFigure(figure, COLUMNS, rows, notes)


def _layer_sizes(axes: Axes, record: Record[Any, Any]) -> list[Row]:
    """Largest gradient norm of a record in either layer, h / sqrt(d) being the variance."""
    rows: list[Row] = []
    for name, look in LAYERS.items():
        rows += _start_rows(record, "sensitivity", look, "variance", f"record_{name}")
    axes.set(xscale="log", yscale="log", xlabel="number of inputs $d$")
    axes.set_title("Sensitivity of each layer")
    axes.set_ylabel("largest gradient norm of a record")
    draw_series(axes, rows, LAYERS.values())
    label_sparsely(axes.yaxis)
    label_ticks(axes, {row["x"] for row in rows})
    legend_of(axes, LAYERS.values())
    return rows


def _start_ratios(axes: Axes, record: Record[Any, Any]) -> list[Row]:
    """Head over features before training, by definition of sensitivity and reading of E.10."""
    rows: list[Row] = []
    for (records, reading), look in READINGS.items():
        rows += _start_rows(record, "ratio at the start", look, reading, f"{records}_ratio")
    axes.set(xscale="log", yscale="log", xlabel="number of inputs $d$")
    axes.set(title="Ratio before training", ylabel="sensitivity of head over features")
    draw_series(axes, rows, READINGS.values())
    draw_guide(axes, 1.0)
    at = sorted({row["x"] for row in rows})
    low = min(row["value"] for row in rows)
    axes.plot(at, [low * math.sqrt(d / at[0]) for d in at], color=MUTED, linewidth=THIN)
    axes.set_ylim(low / 1.3, 6)
    label_sparsely(axes.yaxis)
    label_ticks(axes, at)
    legend_of(axes, READINGS.values(), loc="upper left", labelspacing=0.2, handlelength=1.8)
    return rows


def _start_rows(
    record: Record[Any, Any], panel: str, look: Look, reading: str, name: str
) -> list[Row]:
    """Rows of one column of the record, for one reading, against d."""
    rows = where(record.tables["start"], reading=reading)
    values, errors = ([row[column] for row in rows] for column in (name, f"{name}_error"))
    return mean_rows(record, panel, look, [row["d"] for row in rows], values, errors)


def _ratio_drift(axes: Axes, record: Record[Any, Any]) -> list[Row]:
    """The ratio during noisy gradient descent."""
    rows: list[Row] = []
    for row in record.tables["drift"]:
        look = NOISES[row["noise"]]
        rows += mean_rows(record, "ratio in DP-GD", look, row["steps"], row["ratio"], row["error"])
    axes.set(xlabel="steps of DP-GD", ylabel="sensitivity of head over features")
    axes.set_title("Ratio in private training")
    draw_series(axes, rows, NOISES.values())
    axes.set_ylim(bottom=0)
    legend_of(axes, NOISES.values(), loc="lower left")
    return rows
