"""lp_fft: losses by the theorems and in simulation."""

from collections.abc import Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.lp_fft.figures.theory_series import (
    COLUMNS,
    EXACT,
    PRINTED,
    curve_rows,
    draw_guide,
    draw_series,
    label_few,
    legend_of,
    mean_rows,
    row_of,
)
from dpatlas.papers.lp_fft.records import dynamics
from dpatlas.papers.lp_fft.records.dynamics import BracketRow
from dpatlas.records import Record
from dpatlas.show.draw import draw_curves, frame
from dpatlas.show.look import BAND_ALPHA, DOUBLE_COLUMN, MUTED, NOTE_SIZE, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.series import BLUE, RED, SERIES, only

Dynamics = Record[dynamics.Spec, dynamics.Metrics]

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
    """Eq. 161 and Thms 4.2 to 4.5 compared with simulation, in five panels.

    InputError unless there is exactly one record of kind dynamics.
    """
    record: Dynamics = only(records, "dynamics")
    figure = Figure(figsize=(DOUBLE_COLUMN, 5.0))
    grid = figure.add_gridspec(2, 6)
    places = (grid[0, 0:3], grid[0, 3:6], grid[1, 0:2], grid[1, 2:4], grid[1, 4:6])
    panels = (head_norm, loss_ratios, lp_bracket, fft_bracket, violations)
    rows: list[Row] = []
    for place, draw in zip(places, panels, strict=True):
        rows += draw(figure.add_subplot(place), record)
    return ShownFigure(figure, COLUMNS, rows, _notes(record.spec))


def _notes(spec: dynamics.Spec) -> list[str]:
    relu, probing, tuned = spec.relu, spec.probing, spec.fine_tuning
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
