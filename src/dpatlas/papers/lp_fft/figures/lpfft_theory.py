"""lp_fft: losses and distortion by the theorems and in simulation."""

import math
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import matplotlib as mpl
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
from dpatlas.show.series import BLUE, RED, SERIES, only

Dynamics = Record[dynamics.Spec, dynamics.Metrics]
Distortion = Record[distortion.Spec, distortion.Metrics]

SIMULATED = Look("simulated", "black", "o", "")
ZEROTH = Look("zeroth order", BLUE, "", "-")
BRACKET = Look("bounds", RED, "", "--")
COUNTED = {
    ("head", "random"): "LP, Thm 4.2",
    ("all", "random"): "FFT, Thm 4.3",
    ("all", "aligned"): "FFT, aligned\nheads",
}
# By column of the record; the labels name the series in the csv.
OUTSIDE = {
    "zeroth_below": Look("zeroth <", BLUE, "", ""),
    "zeroth_above": Look("zeroth >", "#56B4E9", "", ""),
    "diffusion_below": Look("diffusion <", RED, "", ""),
    "diffusion_above": Look("diffusion >", "#E69F00", "", ""),
}
HATCHES = ("", "///", "", "///")
IN_WORDS = ("zeroth, below", "zeroth, above", "diffusion, below", "diffusion, above")


def lpfft_theory(records: Records, settings: Settings) -> ShownFigure:
    """Eq. 161, Thms 4.2 to 4.5, 3.3 and 3.4 compared with simulation, in nine panels.

    InputError unless there is exactly one record of kind dynamics and one of kind distortion.
    """
    losses: Dynamics = only(records, "dynamics")
    cosines: Distortion = only(records, "distortion")
    figure = Figure(figsize=(DOUBLE_COLUMN, 6.9))
    panels: Sequence[tuple[Callable[[Axes, Any], list[Row]], Record[Any, Any]]] = (
        (head_norm, losses),
        (loss_ratios, losses),
        (violations, losses),
        (lp_bracket, losses),
        (fft_bracket, losses),
        (claimed_distortion, cosines),
        (two_records, cosines),
        (after_probing, cosines),
        (counterexample, cosines),
    )
    rows: list[Row] = []
    for axes, (draw, record) in zip(figure.subplots(3, 3).flat, panels, strict=True):
        rows += draw(axes, record)
    return ShownFigure(figure, COLUMNS, rows, _theory_notes(losses.spec, cosines.spec))


def _theory_notes(losses: dynamics.Spec, cosines: distortion.Spec) -> list[str]:
    relu, probing, tuned = losses.relu, losses.probing, losses.fine_tuning
    clusters, two, after = cosines.clusters, cosines.two_records, cosines.after_probing
    return [
        "bars: 95% intervals",
        rf"Eq. 161 and Thm 4.4: $h$ = {probing.hidden}, $\beta_h$ = {probing.head_variance:g}, "
        rf"$\sigma^2$ = {probing.sigma2:g}, {probing.paths} paths",
        rf"Thm 4.5: $\beta_h$ is {tuned.head_excess:g} times the smallest that Assumption E.7 "
        rf"allows, $\sigma^2$ is {tuned.noise_share:g} of the largest, {tuned.paths} paths",
        "losses outside their brackets: a case is one draw of data "
        f"({relu.records} records within {relu.angle:g} degrees) and network ({relu.hidden} "
        r"features) at one $\sigma$, counted if the loss of a class leaves the bracket at some "
        "time, the mean over the diffusion's paths by 5 standard errors; no bar: no case; noise "
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


def loss_ratios(axes: Axes, record: Dynamics) -> list[Row]:
    """E L over the bounds of Thms 4.4 and 4.5."""
    probed, panel = record.metrics.probing, "loss over bound"
    looks = [
        Look(r"Thm 4.4, $\gamma$ printed", "black", "v", "-"),
        Look(r"Thm 4.4, $\gamma$ halved", MUTED, "P", "--"),
    ]
    rows: list[Row] = []
    for look, bound in zip(looks, (probed.loss_bound_paper, probed.loss_bound_exact), strict=True):
        ratios = _ratios(probed.loss, probed.loss_standard_error, bound)
        rows += mean_rows(record, panel, look, probed.times, *ratios)
    for tuned, style in zip(record.metrics.fine_tuning, cycle(SERIES), strict=False):
        label = f"Thm 4.5, $d$ = {tuned.d}, $h$ = {tuned.h}"
        looks.append(Look(label, style.color, style.marker, style.linestyle))
        ratios = _ratios(tuned.loss, tuned.standard_error, tuned.bound)
        rows += mean_rows(record, panel, looks[-1], tuned.times, *ratios)
    axes.set(yscale="log", xlabel="time ($t$; Thm 4.5: $At$)", ylabel="expected loss over bound")
    axes.set_title("Thms 4.4, 4.5: loss in linear nets")
    draw_series(axes, rows, looks)
    draw_guide(axes, 1.0)
    # Room for the legend above the curves.
    low, high = (choose(row["value"] for row in rows) for choose in (min, max))
    axes.set_ylim(low / 1.4, high * (high / low) ** 1.2)
    label_few(axes)
    legend_of(axes, looks, loc="upper left", handlelength=1.8, labelspacing=0.15, borderpad=0.1)
    return rows


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
    counts = record.metrics.counts
    names = [COUNTED[count.phase, count.heads] for count in counts]
    rows = [
        {
            **row_of(record, "outside the bracket", look, name.replace("\n", " "), outside / cases),
            "count": outside,
            "trials": cases,
        }
        for count, name in zip(counts, names, strict=True)
        for column, look in OUTSIDE.items()
        for outside, cases in [(getattr(count, column), count.cases)]
    ]
    height = 0.8 / len(OUTSIDE)
    by_series = dict(list(frame(rows).groupby("series")))
    for number, look in enumerate(OUTSIDE.values()):
        shown = by_series[look.label]
        at = [k + (number - 1.5) * height for k in range(len(counts))]
        bars = axes.barh(
            at,
            shown["value"],
            height,
            label=IN_WORDS[number],
            color=look.color,
            hatch=HATCHES[number],
            edgecolor="white",
            linewidth=0,
        )
        texts = [
            f"{count} of {trials}" if count else ""
            for count, trials in zip(shown["count"], shown["trials"], strict=True)
        ]
        axes.bar_label(bars, texts, padding=2, fontsize=NOTE_SIZE)
    axes.set_yticks(range(len(counts)), names)
    axes.set(xlim=(0, 1.5), ylim=(len(counts) + 1.4, -0.6), xlabel="share of cases")
    axes.set_xticks([0, 0.5, 1])
    axes.grid(axis="y", visible=False)
    axes.set_title("Losses outside their brackets")
    axes.legend(loc="lower right", handlelength=1, labelspacing=0.2)
    return rows


def lp_bracket(axes: Axes, record: Dynamics) -> list[Row]:
    """Thm 4.2 for the first draw, at the last noise but one."""
    losses = _of_phase(record, "head", "random")
    sigmas = sorted({row.sigma for row in losses})
    sigma = sigmas[max(0, len(sigmas) - 2)]
    shown = next(row for row in losses if (row.sigma, row.draw) == (sigma, 0))
    rows = _bracket(axes, record, shown, "LP bracket")
    axes.set_title(rf"Thm 4.2: loss in LP, $\sigma$ = {sigma:g}")
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
    look = Look("diffusion", "black", "o", "")
    points = mean_rows(record, panel, look, times[1:], losses.diffusion, losses.standard_error)
    draw_series(axes, points, (look,))
    label_few(axes)
    legend_of(axes, (BRACKET, ZEROTH, look), loc="upper right", labelspacing=0.2)
    return rows + points


def claimed_distortion(axes: Axes, record: Distortion) -> list[Row]:
    """Probability of distortion on random clusters against h, for every variance of the head."""
    clusters, panel = record.metrics.clusters, "distortion, clusters"
    claimed = {row.h: row.claimed for row in clusters}
    look = Look(r"$1 - 2^{-h}$", "black", "", "-")
    rows = curve_rows(record, panel, look, list(claimed), list(claimed.values()))
    draw_series(axes, rows, (look,))
    looks = {}
    variances = sorted({row.head_variance for row in clusters})
    for variance, style in zip(variances, cycle(SERIES), strict=False):
        series = Look(rf"$\beta_h$ = {variance:g}", style.color, style.marker, "")
        looks[series.label] = series
        shares = [row for row in clusters if row.head_variance == variance]
        rows += _share_rows(record, panel, series, [row.h for row in shares], shares)
    with mpl.rc_context({"lines.markersize": MARKER_SIZE}):
        draw_points(axes, frame(rows), "x", looks)
    axes.set(xlabel="number of features $h$", ylim=(0.45, 1.02), ylabel="distortion probability")
    axes.set_title("Thm 3.3: random clusters")
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
    axes.set(title="Thm 3.3: two records, $h$ = 1", ylabel="distortion probability")
    draw_series(axes, rows, (claimed, exact, look))
    legend_of(axes, (claimed, exact, look), loc="lower left")
    return rows


def after_probing(axes: Axes, record: Distortion) -> list[Row]:
    """Share of networks without a falling cosine after LP, against the width of the clusters."""
    networks, panel = record.metrics.after_probing, "no fall after LP"
    rows: list[Row] = []
    looks: list[Look] = []
    spans = sorted({row.fft_span for row in networks})
    for span, style in zip(spans, cycle(SERIES), strict=False):
        looks.append(Look(f"until $s$ = {span:g}", style.color, style.marker, style.linestyle))
        shares = [row for row in networks if row.fft_span == span]
        rows += _share_rows(record, panel, looks[-1], [row.angle for row in shares], shares)
    axes.set(xscale="log", ylim=(0, 1.4), xlabel="angle of the clusters (degrees)")
    axes.set(title="Thm 3.4: no cosine falls after LP", ylabel="share of networks")
    draw_series(axes, rows, looks)
    label_ticks(axes, {row["x"] for row in rows})
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    legend_of(axes, looks, loc="upper center", ncols=2, handlelength=1.8, columnspacing=0.8)
    return rows


def counterexample(axes: Axes, record: Distortion) -> list[Row]:
    """The cosine that Thm 3.4 says never falls, after LP of several spans."""
    panel = "counter-example"
    rows: list[Row] = []
    looks: list[Look] = []
    for curve, style in zip(record.metrics.counterexample, cycle(SERIES), strict=False):
        looks.append(Look(f"LP until $s$ = {curve.lp_span:g}", style.color, "", style.linestyle))
        rows += curve_rows(record, panel, looks[-1], curve.s, curve.cosine)
    axes.set(xlabel=r"$s = \int L\, dt$ of FFT", ylabel=r"$\cos(w, \bar{x})$")
    axes.set_title("Thm 3.4: counter-example")
    draw_series(axes, rows, looks)
    low, high = axes.get_ylim()
    axes.set_ylim(bottom=low - 0.4 * (high - low))
    legend_of(axes, looks, loc="lower left", labelspacing=0.2)
    return rows
