"""lp_fft: distortion of features by the theorems and in simulation."""

import math
from collections.abc import Sequence

from dpatlas_workflow.papers.lp_fft.figures.theory_series import (
    MARKER_SIZE,
    Made,
    curve_rows,
    drawn,
    row_of,
    theory_figure,
)
from dpatlas_workflow.papers.lp_fft.records.distortion import DistortionSpec
from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import BLUE, RED, Look, ramp
from dpatlas_workflow.show.panel import Axis, Legend, Panel, ShownFigure, points
from dpatlas_workflow.show.rows import Records, Row, Settings, only, where


def lpfft_distortion(records: Records, settings: Settings) -> ShownFigure:
    """Thms 3.3 and 3.4 compared with simulation, a line for each.

    InputError unless there is exactly one record of kind distortion.
    """
    record: Record[DistortionSpec] = only(records, "distortion")
    tables, spec = record.tables, record.spec
    lines = {
        "Distortion of a feature by full fine-tuning, Thm 3.3": (
            _clusters(tables["clusters"]),
            _two_records(tables["two_records"]),
        ),
        "Cosines with the class mean after linear probing, Thm 3.4": (
            _after_probing(tables["after_probing"]),
            _counterexample(tables["counterexample"]),
        ),
    }
    clusters, two, after = spec.clusters, spec.two_records, spec.after_probing
    note = (
        "bars: 95% Clopper-Pearson intervals; Thm 3.3, two records: distorted by heads between "
        f"{-math.log(two.ratio) / two.spread:.3g} and 0; clusters have "
        f"{clusters.records} records within "
        f"{clusters.angle:g} degrees; Thm 3.4: {after.hidden} features within "
        f"{after.feature_angle:g} degrees, LP until $s$ = {after.lp_span:g}; $s$ is the integral "
        "of the loss over time, on which the states of gradient flow depend"
    )
    return theory_figure(record, lines, [note])


def _share_rows(panel: str, look: Look, by: str, shares: Sequence[Row]) -> list[Row]:
    """Rows of shares along a column of the record, with its intervals."""
    counted = ("low", "high", "count", "trials")
    return [
        row_of(panel, look, row[by], row["share"]) | {name: row[name] for name in counted}
        for row in shares
    ]


def _clusters(clusters: Sequence[Row]) -> Made:
    """Probability of distortion on random clusters against h, for every variance of the head."""
    name, claimed = "distortion, clusters", {row["h"]: row["claimed"] for row in clusters}
    look = Look(r"$1 - 2^{-h}$", "black")
    rows = curve_rows(name, look, claimed.keys(), claimed.values())
    variances = sorted({row["head_variance"] for row in clusters})
    labels = [rf"$\beta_h$ = {variance:g}" for variance in variances]
    marked = ramp(labels, linestyle="", size=MARKER_SIZE)
    for variance, series in zip(variances, marked, strict=True):
        rows += _share_rows(name, series, "h", where(clusters, head_variance=variance))
    panel = Panel(
        "Thm 3.3: random clusters",
        Axis("number of features $h$", ticks=sorted(claimed)),
        Axis("distortion probability", ends=(0.45, 1.02)),
        drawn(rows, [look]) + points(rows, "x", {series.label: series for series in marked}),
        legend=Legend("lower right"),
    )
    return panel, rows


def _two_records(variances: Sequence[Row]) -> Made:
    """Probability of distortion of one feature by two records, against the head's variance."""
    name, at = "distortion, two records", [row["head_variance"] for row in variances]
    claimed, exact = Look("Thm 3.3", RED, "", "--"), Look("exact", BLUE)
    look = Look("simulated", "black", "o", "")
    rows = [
        *curve_rows(name, claimed, at, [row["claimed"] for row in variances]),
        *curve_rows(name, exact, at, [row["exact"] for row in variances]),
        *_share_rows(name, look, "head_variance", variances),
    ]
    x = Axis(r"variance of the head $\beta_h$", log=True)
    y = Axis("distortion probability", ends=(0, 0.6))
    shown = drawn(rows, (claimed, exact, look))
    title = "Thm 3.3: two records, $h$ = 1"
    return Panel(title, x, y, shown, legend=Legend("lower left")), rows


def _after_probing(networks: Sequence[Row]) -> Made:
    """Share of networks without a falling cosine after LP, against the width of the clusters."""
    rows: list[Row] = []
    spans = sorted({row["fft_span"] for row in networks})
    looks = ramp([f"until $s$ = {span:g}" for span in spans])
    for span, look in zip(spans, looks, strict=True):
        rows += _share_rows("no fall after LP", look, "angle", where(networks, fft_span=span))
    at = sorted({row["x"] for row in rows})
    x = Axis("angle of the clusters (degrees)", log=True, ticks=at)
    y = Axis("share of networks", ends=(0, 1.05), ticks=(0, 0.25, 0.5, 0.75, 1))
    title = "Thm 3.4: no cosine falls after LP"
    return Panel(title, x, y, drawn(rows, looks), legend=Legend("lower left")), rows


def _counterexample(curves: Sequence[Row]) -> Made:
    """The cosine that Thm 3.4 says never falls, after LP of several spans."""
    rows: list[Row] = []
    looks = ramp([f"LP until $s$ = {curve['lp_span']:g}" for curve in curves], marker="")
    for curve, look in zip(curves, looks, strict=True):
        rows += curve_rows("counter-example", look, curve["s"], curve["cosine"])
    x, y = Axis(r"$s = \int L\, dt$ of FFT"), Axis(r"$\cos(w, \bar{x})$")
    shown = drawn(rows, looks)
    return Panel("Thm 3.4: counter-example", x, y, shown, legend=Legend("lower left")), rows
