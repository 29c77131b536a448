"""lp_fft: losses and distortion by the theorems and in simulation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dpatlas.papers.lp_fft.figures.theory_series import (
    COLUMNS,
    EXACT,
    MARKER_SIZE,
    PRINTED,
    curve_rows,
    draw_guide,
    draw_series,
    label_few,
    legend_of,
    mean_rows,
    row_of,
)
from dpatlas.papers.lp_fft.records import distortion, dynamics
from dpatlas.papers.lp_fft.records.distortion import Share
from dpatlas.papers.lp_fft.records.dynamics import BracketRow
from dpatlas.records import Record
from dpatlas.show.draw import draw_curves, draw_points, frame
from dpatlas.show.look import BAND_ALPHA, DOUBLE_COLUMN, MUTED, NOTE_SIZE, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import label_ticks
from dpatlas.show.series import BLUE, RAMP, RED, only, ramp

Dynamics = Record[dynamics.Spec, dynamics.Metrics]
Distortion = Record[distortion.Spec, distortion.Metrics]

OVER_BOUND = "loss over bound"
SIMULATED = Look("simulated", "black", "o", "")
ZEROTH = Look("zeroth order", BLUE, "", "-")
DIFFUSION = Look("diffusion", "black", "o", "")
BRACKET = Look("bounds", RED, "", "--")
COUNTED = {
    ("head", "random"): "LP\nThm 4.2",
    ("all", "random"): "FFT\nThm 4.3",
    ("all", "aligned"): "FFT\naligned",
}
# By column of the record: the series in the csv, and in words.
OUTSIDE = {
    "zeroth_below": ("zeroth <", "zeroth, below"),
    "zeroth_above": ("zeroth >", "zeroth, above"),
    "diffusion_below": ("diffusion <", "diffusion, below"),
    "diffusion_above": ("diffusion >", "diffusion, above"),
}
# Share of cases from which the text of a cell is white.
DARK = 0.5
# Height in inches of a line of panels under its heading.
PART_HEIGHT = 2.35

Draw = Callable[[Axes, Any], list[Row]]


def lpfft_theory(records: Records, settings: Settings) -> ShownFigure:
    """Eq. 161, Thms 4.2 to 4.5, 3.3 and 3.4 compared with simulation, a line for every subject.

    InputError unless there is exactly one record of kind dynamics and one of kind distortion.
    """
    losses: Dynamics = only(records, "dynamics")
    cosines: Distortion = only(records, "distortion")
    parts: dict[str, tuple[Record[Any, Any], Sequence[Draw]]] = {
        "Linear networks: Eq. 161, Thms 4.4 and 4.5": (
            losses,
            (head_norm, probing_loss, tuning_loss),
        ),
        "ReLU networks: brackets of a class's loss, Thms 4.2 and 4.3": (
            losses,
            (lp_bracket, fft_bracket, violations),
        ),
        "Distortion of a feature by full fine-tuning, Thm 3.3": (
            cosines,
            (claimed_distortion, two_records),
        ),
        "Cosines with the class mean after linear probing, Thm 3.4": (
            cosines,
            (after_probing, counterexample),
        ),
    }
    figure = Figure(figsize=(DOUBLE_COLUMN, PART_HEIGHT * len(parts)))
    rows: list[Row] = []
    framed = figure.subfigures(len(parts), 1, squeeze=False).flat
    for part, (heading, (record, panels)) in zip(framed, parts.items(), strict=True):
        part.suptitle(heading, weight="bold")
        for axes, draw in zip(part.subplots(1, len(panels)), panels, strict=True):
            rows += draw(axes, record)
    return ShownFigure(figure, COLUMNS, rows, _theory_notes(losses.spec, cosines.spec))


def _theory_notes(losses: dynamics.Spec, cosines: distortion.Spec) -> list[str]:
    relu, probing, tuned = losses.relu, losses.probing, losses.fine_tuning
    clusters, two, after = cosines.clusters, cosines.two_records, cosines.after_probing
    return [
        "bars: 95% intervals, normal for means over paths, Clopper-Pearson for shares",
        rf"Eq. 161 and Thm 4.4: $h$ = {probing.hidden}, $\beta_h$ = {probing.head_variance:g}, "
        rf"$\sigma^2$ = {probing.sigma2:g}, {probing.paths} paths",
        rf"Thm 4.5: $\beta_h$ is {tuned.head_excess:g} times the smallest that Assumption E.7 "
        rf"allows, $\sigma^2$ is {tuned.noise_share:g} of the largest, {tuned.paths} paths",
        "cases outside the bracket: a case is one draw of data "
        f"({relu.records} records within {relu.angle:g} degrees) and network ({relu.hidden} "
        r"features) at one $\sigma$, counted if the loss of a class leaves the bracket at some "
        "time, the mean over the diffusion's paths by 5 standard errors; noise "
        r"$\sigma dQ$; aligned heads have the signs of their classes",
        "Thm 3.3: on two records, log of their ratio over their spread is "
        f"{math.log(two.ratio) / two.spread:.3g}; clusters have {clusters.records} records within "
        f"{clusters.angle:g} degrees; Thm 3.4: {after.hidden} features within "
        f"{after.feature_angle:g} degrees, LP until $s$ = {after.lp_span:g}; $s$ is the integral "
        "of the loss over time, on which the states of gradient flow depend",
    ]


def head_norm(axes: Axes, record: Dynamics) -> list[Row]:
    """E ||v_t||^2 of linear probing."""
    probed, panel = record.metrics.probing, "head norm"
    times = probed.times
    rows = [
        *mean_rows(record, panel, SIMULATED, times, probed.norm, probed.norm_standard_error),
        *curve_rows(record, panel, PRINTED, times, probed.norm_paper),
        *curve_rows(record, panel, EXACT, times, probed.norm_exact),
    ]
    axes.set(xlabel="time $t$ of LP", title="Eq. 161: norm of the head")
    axes.set_ylabel(r"$\mathbb{E}\,\Vert v_t\Vert^2$")
    draw_series(axes, rows, (PRINTED, EXACT, SIMULATED))
    axes.set_ylim(bottom=0)
    legend_of(axes, (PRINTED, EXACT, SIMULATED))
    return rows


def probing_loss(axes: Axes, record: Dynamics) -> list[Row]:
    """E L of linear probing over the bound of Thm 4.4, as printed and with half its rate."""
    probed = record.metrics.probing
    looks = [
        Look(r"Thm 4.4, $\gamma$ printed", "black", "v", "-"),
        Look(r"Thm 4.4, $\gamma$ halved", MUTED, "P", "--"),
    ]
    rows: list[Row] = []
    for look, bound in zip(looks, (probed.loss_bound_paper, probed.loss_bound_exact), strict=True):
        ratios = _ratios(probed.loss, probed.loss_standard_error, bound)
        rows += mean_rows(record, OVER_BOUND, look, probed.times, *ratios)
    axes.set(xlabel="time $t$ of LP", title="Thm 4.4: loss in LP")
    _draw_ratios(axes, rows, looks)
    # Room for the legend above the line at 1.
    axes.set_ylim(0, max(1.5, axes.get_ylim()[1]))
    return rows


def tuning_loss(axes: Axes, record: Dynamics) -> list[Row]:
    """E L of full fine-tuning over the bound of Thm 4.5, by size of the network."""
    sizes = record.metrics.fine_tuning
    looks = ramp([f"Thm 4.5, $d$ = {tuned.d}, $h$ = {tuned.h}" for tuned in sizes])
    rows: list[Row] = []
    for tuned, look in zip(sizes, looks, strict=True):
        ratios = _ratios(tuned.loss, tuned.standard_error, tuned.bound)
        rows += mean_rows(record, OVER_BOUND, look, tuned.times, *ratios)
    axes.set(xlabel="time $At$ of FFT", title="Thm 4.5: loss in FFT")
    _draw_ratios(axes, rows, looks)
    axes.set_ylim(bottom=0)
    return rows


def _draw_ratios(axes: Axes, rows: Sequence[Row], looks: Sequence[Look]) -> None:
    axes.set_ylabel("expected loss over bound")
    draw_series(axes, rows, looks)
    draw_guide(axes, 1.0)
    brief = [replace(look, label=look.label.partition(", ")[2]) for look in looks]
    legend_of(axes, brief, loc="upper left", handlelength=1.8, labelspacing=0.2)


def _ratios(
    losses: Sequence[float], errors: Sequence[float], bounds: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Mean losses and their errors over a bound."""
    return (
        [loss / bound for loss, bound in zip(losses, bounds, strict=True)],
        [error / bound for error, bound in zip(errors, bounds, strict=True)],
    )


def violations(axes: Axes, record: Dynamics) -> list[Row]:
    """Shares of cases in which a loss leaves its bracket, below and above."""
    counts, panel = record.metrics.counts, "outside the bracket"
    names = [COUNTED[count.phase, count.heads] for count in counts]
    rows = [
        {
            **row_of(record, panel, look, name.replace("\n", ", "), outside / cases),
            "count": outside,
            "trials": cases,
        }
        for count, name in zip(counts, names, strict=True)
        for column, (series, _) in OUTSIDE.items()
        for look, outside, cases in [
            (Look(series, "", "", ""), getattr(count, column), count.cases)
        ]
    ]
    shares = np.reshape([row["value"] for row in rows], (len(counts), len(OUTSIDE))).T
    axes.pcolormesh(shares, cmap=RAMP, vmin=0, vmax=1, edgecolor="white")
    for place, row in enumerate(rows):
        column, line = divmod(place, len(OUTSIDE))
        axes.text(
            column + 0.5,
            line + 0.5,
            f"{row['count']} of\n{row['trials']}",
            color="white" if row["value"] > DARK else "black",
            ha="center",
            va="center",
            fontsize=NOTE_SIZE,
        )
    axes.set_xticks(np.arange(len(counts)) + 0.5, names)
    axes.set_yticks(np.arange(len(OUTSIDE)) + 0.5, [words for _, words in OUTSIDE.values()])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.invert_yaxis()
    axes.set_title("Cases outside the bracket")
    return rows


def lp_bracket(axes: Axes, record: Dynamics) -> list[Row]:
    """Thm 4.2 for the first draw, at the last noise but one."""
    losses = _of_phase(record, "head", "random")
    sigmas = sorted({row.sigma for row in losses})
    sigma = sigmas[max(0, len(sigmas) - 2)]
    shown = next(row for row in losses if (row.sigma, row.draw) == (sigma, 0))
    rows = _bracket(axes, record, shown, "LP bracket")
    axes.set_title(rf"Thm 4.2: loss in LP, $\sigma$ = {sigma:g}")
    # For the panel beside it too.
    legend_of(axes, (BRACKET, ZEROTH, DIFFUSION), loc="upper right", labelspacing=0.2)
    return rows


def fft_bracket(axes: Axes, record: Dynamics) -> list[Row]:
    """Thm 4.3 for the draw of a random head whose zeroth-order loss is furthest above."""

    def excess(row: BracketRow) -> float:
        return max(loss / bound for loss, bound in zip(row.zeroth, row.upper, strict=True))

    shown = max(_of_phase(record, "all", "random"), key=excess)
    rows = _bracket(axes, record, shown, "FFT bracket")
    axes.set_title(rf"Thm 4.3: FFT, $\sigma$ = {shown.sigma:g}, worst draw")
    return rows


def _of_phase(record: Dynamics, phase: str, heads: str) -> list[BracketRow]:
    return [row for row in record.metrics.relu if (row.phase, row.heads) == (phase, heads)]


def _bracket(axes: Axes, record: Dynamics, losses: BracketRow, panel: str) -> list[Row]:
    """One class's loss between its bounds, from time 0."""
    times = [0.0, *record.metrics.times]
    curves = {
        "lower": [losses.start, *losses.lower],
        "upper": [losses.start, *losses.upper],
        "zeroth": [losses.start, *losses.zeroth],
    }
    rows = [
        row
        for name, values in curves.items()
        for row in curve_rows(record, panel, Look(name, "", "", ""), times, values)
    ]
    axes.fill_between(times, curves["lower"], curves["upper"], color=RED, alpha=BAND_ALPHA, lw=0)
    axes.set(yscale="log", xlabel="time $t$", ylabel="loss of a class")
    draw_curves(axes, frame(rows), "x", {"lower": BRACKET, "upper": BRACKET, "zeroth": ZEROTH})
    errors = losses.standard_error
    points = mean_rows(record, panel, DIFFUSION, times[1:], losses.diffusion, errors)
    draw_series(axes, points, (DIFFUSION,))
    label_few(axes)
    return rows + points


def claimed_distortion(axes: Axes, record: Distortion) -> list[Row]:
    """Probability of distortion on random clusters against h, for every variance of the head."""
    clusters, panel = record.metrics.clusters, "distortion, clusters"
    claimed = {row.h: row.claimed for row in clusters}
    look = Look(r"$1 - 2^{-h}$", "black", "", "-")
    rows = curve_rows(record, panel, look, list(claimed), list(claimed.values()))
    draw_series(axes, rows, (look,))
    variances = sorted({row.head_variance for row in clusters})
    marked = [
        replace(style, linestyle="")
        for style in ramp([rf"$\beta_h$ = {variance:g}" for variance in variances])
    ]
    looks = {series.label: series for series in marked}
    for variance, series in zip(variances, marked, strict=True):
        shares = [row for row in clusters if row.head_variance == variance]
        rows += _share_rows(record, panel, series, [row.h for row in shares], shares)
    with mpl.rc_context({"lines.markersize": MARKER_SIZE}):
        draw_points(axes, frame(rows), "x", looks)
    axes.set(xlabel="number of features $h$", ylim=(0.45, 1.02), ylabel="distortion probability")
    axes.set_title("random clusters")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_of(axes, (look, *looks.values()), loc="lower right", handlelength=1.2, labelspacing=0.2)
    return rows


def _share_rows(
    record: Distortion, panel: str, look: Look, at: Sequence[float], shares: Sequence[Share]
) -> list[Row]:
    """Rows of shares with the intervals of the record."""
    return [
        {
            **row_of(record, panel, look, x, row.share),
            "low": row.low,
            "high": row.high,
            "count": row.count,
            "trials": row.trials,
        }
        for x, row in zip(at, shares, strict=True)
    ]


def two_records(axes: Axes, record: Distortion) -> list[Row]:
    """Probability of distortion of one feature by two records, against the head's variance."""
    variances, panel = record.metrics.two_records, "distortion, two records"
    at = [row.head_variance for row in variances]
    claimed, exact = Look("Thm 3.3", RED, "", "--"), Look("exact", BLUE, "", "-")
    look = Look("simulated", "black", "o", "")
    rows = [
        *curve_rows(record, panel, claimed, at, [row.claimed for row in variances]),
        *curve_rows(record, panel, exact, at, [row.exact for row in variances]),
        *_share_rows(record, panel, look, at, variances),
    ]
    axes.set(xscale="log", xlabel=r"variance of the head $\beta_h$", ylim=(0, 0.6))
    axes.set(title="two records, $h$ = 1", ylabel="distortion probability")
    draw_series(axes, rows, (claimed, exact, look))
    legend_of(axes, (claimed, exact, look), loc="lower left")
    return rows


def after_probing(axes: Axes, record: Distortion) -> list[Row]:
    """Share of networks without a falling cosine after LP, against the width of the clusters."""
    networks, panel = record.metrics.after_probing, "no fall after LP"
    rows: list[Row] = []
    spans = sorted({row.fft_span for row in networks})
    looks = ramp([f"until $s$ = {span:g}" for span in spans])
    for span, look in zip(spans, looks, strict=True):
        shares = [row for row in networks if row.fft_span == span]
        rows += _share_rows(record, panel, look, [row.angle for row in shares], shares)
    axes.set(xscale="log", ylim=(0, 1.05), xlabel="angle of the clusters (degrees)")
    axes.set(title="no cosine falls after LP", ylabel="share of networks")
    draw_series(axes, rows, looks)
    label_ticks(axes, {row["x"] for row in rows})
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    legend_of(axes, looks, loc="lower left", labelspacing=0.2)
    return rows


def counterexample(axes: Axes, record: Distortion) -> list[Row]:
    """The cosine that Thm 3.4 says never falls, after LP of several spans."""
    panel = "counter-example"
    rows: list[Row] = []
    curves = record.metrics.counterexample
    names = [f"LP until $s$ = {curve.lp_span:g}" for curve in curves]
    looks = [replace(look, marker="") for look in ramp(names)]
    for curve, look in zip(curves, looks, strict=True):
        rows += curve_rows(record, panel, look, curve.s, curve.cosine)
    axes.set(xlabel=r"$s = \int L\, dt$ of FFT", ylabel=r"$\cos(w, \bar{x})$")
    axes.set_title("counter-example")
    draw_series(axes, rows, looks)
    legend_of(axes, looks, loc="lower left", labelspacing=0.2)
    return rows
