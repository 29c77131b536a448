"""lp_fft: distortion of features by the theorems and in simulation."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from dpatlas.papers.lp_fft.figures.theory_series import (
    COLUMNS,
    MARKER_SIZE,
    curve_rows,
    draw_parts,
    draw_series,
    legend_of,
    row_of,
)
from dpatlas.papers.lp_fft.records.distortion import DistortionSpec
from dpatlas.records import Record
from dpatlas.show.draw import draw_points, frame
from dpatlas.show.look import BLUE, RED, Look, ramp
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import label_ticks
from dpatlas.show.rows import Records, Row, Settings, only

Distortion = Record[DistortionSpec, Any]


def lpfft_distortion(records: Records, settings: Settings) -> DrawnFigure:
    """Thms 3.3 and 3.4 compared with simulation, a line for each.

    InputError unless there is exactly one record of kind distortion.
    """
    record: Distortion = only(records, "distortion")
    panels = {
        "Distortion of a feature by full fine-tuning, Thm 3.3": (claimed_distortion, two_records),
        "Cosines with the class mean after linear probing, Thm 3.4": (
            after_probing,
            counterexample,
        ),
    }
    figure, rows = draw_parts(record, panels)
    return DrawnFigure(figure, COLUMNS, rows, [_note(record.spec)])


def _note(spec: DistortionSpec) -> str:
    clusters, two, after = spec.clusters, spec.two_records, spec.after_probing
    return (
        "bars: 95% Clopper-Pearson intervals; Thm 3.3, two records: distorted by heads between "
        f"{-math.log(two.ratio) / two.spread:.3g} and 0; clusters have "
        f"{clusters.records} records within "
        f"{clusters.angle:g} degrees; Thm 3.4: {after.hidden} features within "
        f"{after.feature_angle:g} degrees, LP until $s$ = {after.lp_span:g}; $s$ is the integral "
        "of the loss over time, on which the states of gradient flow depend"
    )


def claimed_distortion(axes: Axes, record: Distortion) -> list[Row]:
    """Probability of distortion on random clusters against h, for every variance of the head."""
    clusters, panel = record.tables["clusters"], "distortion, clusters"
    claimed = {row["h"]: row["claimed"] for row in clusters}
    look = Look(r"$1 - 2^{-h}$", "black", "", "-")
    rows = curve_rows(record, panel, look, list(claimed), list(claimed.values()))
    draw_series(axes, rows, (look,))
    variances = sorted({row["head_variance"] for row in clusters})
    marked = [
        replace(style, linestyle="")
        for style in ramp([rf"$\beta_h$ = {variance:g}" for variance in variances])
    ]
    looks = {series.label: series for series in marked}
    for variance, series in zip(variances, marked, strict=True):
        shares = [row for row in clusters if row["head_variance"] == variance]
        rows += _share_rows(record, panel, series, [row["h"] for row in shares], shares)
    with mpl.rc_context({"lines.markersize": MARKER_SIZE}):
        draw_points(axes, frame(rows), "x", looks)
    axes.set(xlabel="number of features $h$", ylim=(0.45, 1.02), ylabel="distortion probability")
    axes.set_title("Thm 3.3: random clusters")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_of(axes, (look, *looks.values()), loc="lower right", handlelength=1.2, labelspacing=0.2)
    return rows


def _share_rows(
    record: Distortion, panel: str, look: Look, at: Sequence[float], shares: Sequence[Row]
) -> list[Row]:
    """Rows of shares with the intervals of the record."""
    return [
        {
            **row_of(record, panel, look, x, row["share"]),
            **{name: row[name] for name in ("low", "high", "count", "trials")},
        }
        for x, row in zip(at, shares, strict=True)
    ]


def two_records(axes: Axes, record: Distortion) -> list[Row]:
    """Probability of distortion of one feature by two records, against the head's variance."""
    variances, panel = record.tables["two_records"], "distortion, two records"
    at = [row["head_variance"] for row in variances]
    claimed, exact = Look("Thm 3.3", RED, "", "--"), Look("exact", BLUE, "", "-")
    look = Look("simulated", "black", "o", "")
    rows = [
        *curve_rows(record, panel, claimed, at, [row["claimed"] for row in variances]),
        *curve_rows(record, panel, exact, at, [row["exact"] for row in variances]),
        *_share_rows(record, panel, look, at, variances),
    ]
    axes.set(xscale="log", xlabel=r"variance of the head $\beta_h$", ylim=(0, 0.6))
    axes.set(title="Thm 3.3: two records, $h$ = 1", ylabel="distortion probability")
    draw_series(axes, rows, (claimed, exact, look))
    legend_of(axes, (claimed, exact, look), loc="lower left")
    return rows


def after_probing(axes: Axes, record: Distortion) -> list[Row]:
    """Share of networks without a falling cosine after LP, against the width of the clusters."""
    networks, panel = record.tables["after_probing"], "no fall after LP"
    rows: list[Row] = []
    spans = sorted({row["fft_span"] for row in networks})
    looks = ramp([f"until $s$ = {span:g}" for span in spans])
    for span, look in zip(spans, looks, strict=True):
        shares = [row for row in networks if row["fft_span"] == span]
        rows += _share_rows(record, panel, look, [row["angle"] for row in shares], shares)
    axes.set(xscale="log", ylim=(0, 1.05), xlabel="angle of the clusters (degrees)")
    axes.set(title="Thm 3.4: no cosine falls after LP", ylabel="share of networks")
    draw_series(axes, rows, looks)
    label_ticks(axes, {row["x"] for row in rows})
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    legend_of(axes, looks, loc="lower left", labelspacing=0.2)
    return rows


def counterexample(axes: Axes, record: Distortion) -> list[Row]:
    """The cosine that Thm 3.4 says never falls, after LP of several spans."""
    panel = "counter-example"
    rows: list[Row] = []
    curves = record.tables["counterexample"]
    names = [f"LP until $s$ = {curve['lp_span']:g}" for curve in curves]
    looks = [replace(look, marker="") for look in ramp(names)]
    for curve, look in zip(curves, looks, strict=True):
        rows += curve_rows(record, panel, look, curve["s"], curve["cosine"])
    axes.set(xlabel=r"$s = \int L\, dt$ of FFT", ylabel=r"$\cos(w, \bar{x})$")
    axes.set_title("Thm 3.4: counter-example")
    draw_series(axes, rows, looks)
    legend_of(axes, looks, loc="lower left", labelspacing=0.2)
    return rows
