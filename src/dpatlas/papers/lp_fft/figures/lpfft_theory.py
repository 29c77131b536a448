"""lp_fft: losses by the theorems and in simulation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes

from dpatlas.papers.lp_fft.figures.theory_series import (
    COLUMNS,
    EXACT,
    PRINTED,
    curve_rows,
    draw_guide,
    draw_parts,
    draw_series,
    legend_of,
    mean_rows,
    row_of,
)
from dpatlas.papers.lp_fft.records.dynamics import DynamicsSpec
from dpatlas.records import Record
from dpatlas.show.draw import draw_curves, frame
from dpatlas.show.look import BAND_ALPHA, BLUE, MUTED, NOTE_SIZE, RAMP, RED, Look, ramp
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import label_sparsely
from dpatlas.show.rows import Records, Row, Settings, only, where

Dynamics = Record[DynamicsSpec, Any]

OVER_BOUND = "loss over bound"
SIMULATED = Look("simulated", "black", "o", "")
ZEROTH = Look("zeroth order", BLUE, "", "-")
DIFFUSION = Look("diffusion", "black", "o", "")
BRACKET = Look("bounds", RED, "", "--")
BRACKET_LOOKS = (BRACKET, ZEROTH, DIFFUSION)
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
# Share of cases from which the text of a cell is white; width of a cell, of 1.
DARK, CELL = 0.5, 0.95


def lpfft_theory(records: Records, settings: Settings) -> DrawnFigure:
    """Eq. 161 and Thms 4.2 to 4.5 compared with simulation, a line for every kind of network.

    InputError unless there is exactly one record of kind dynamics.
    """
    record: Dynamics = only(records, "dynamics")
    panels = {
        "Linear networks: Eq. 161, Thms 4.4 and 4.5": (head_norm, probing_loss, tuning_loss),
        "ReLU networks: brackets of a class's loss, Thms 4.2 and 4.3": (
            lp_bracket,
            fft_bracket,
            violations,
        ),
    }
    figure, rows = draw_parts(record, panels)
    return DrawnFigure(figure, COLUMNS, rows, _notes(record.spec))


def _notes(spec: DynamicsSpec) -> list[str]:
    relu, probing, tuned = spec.relu, spec.probing, spec.fine_tuning
    return [
        "bars: 95% normal intervals over paths",
        rf"Eq. 161 and Thm 4.4: $h$ = {probing.hidden}, $\beta_h$ = {probing.head_variance:g}, "
        rf"$\sigma^2$ = {probing.sigma2:g}, {probing.paths} paths",
        rf"Thm 4.5: $\beta_h$ is {tuned.head_excess:g} times the smallest that Assumption E.7 "
        rf"allows, $\sigma^2$ is {tuned.noise_share:g} of the largest, {tuned.paths} paths",
        "cases outside the bracket: a case is one draw of data "
        f"({relu.records} records within {relu.angle:g} degrees) and network ({relu.hidden} "
        r"features) at one $\sigma$, counted if the loss of a class leaves the bracket at some "
        "time, the mean over the diffusion's paths by 5 standard errors; noise "
        r"$\sigma dQ$; aligned heads have the signs of their classes",
    ]


def head_norm(axes: Axes, record: Dynamics) -> list[Row]:
    """E ||v_t||^2 of linear probing."""
    probed, panel = record.facts["probing"], "head norm"
    times = probed["times"]
    rows = [
        *mean_rows(record, panel, SIMULATED, times, probed["norm"], probed["norm_standard_error"]),
        *curve_rows(record, panel, PRINTED, times, probed["norm_paper"]),
        *curve_rows(record, panel, EXACT, times, probed["norm_exact"]),
    ]
    axes.set(xlabel="time $t$ of LP", title="Eq. 161: norm of the head")
    axes.set_ylabel(r"$\mathbb{E}\,\Vert v_t\Vert^2$")
    draw_series(axes, rows, (PRINTED, EXACT, SIMULATED))
    axes.set_ylim(bottom=0)
    legend_of(axes, (PRINTED, EXACT, SIMULATED))
    return rows


def probing_loss(axes: Axes, record: Dynamics) -> list[Row]:
    """E L of linear probing over the bound of Thm 4.4, as printed and with half its rate."""
    probed = record.facts["probing"]
    looks = [
        Look(r"Thm 4.4, $\gamma$ printed", "black", "v", "-"),
        Look(r"Thm 4.4, $\gamma$ halved", MUTED, "P", "--"),
    ]
    rows: list[Row] = []
    for look, bound in zip(
        looks, (probed["loss_bound_paper"], probed["loss_bound_exact"]), strict=True
    ):
        ratios = _ratios(probed["loss"], probed["loss_standard_error"], bound)
        rows += mean_rows(record, OVER_BOUND, look, probed["times"], *ratios)
    axes.set(xlabel="time $t$ of LP", title="Thm 4.4: loss in LP")
    _draw_ratios(axes, rows, looks)
    # Room for the legend above the line at 1.
    axes.set_ylim(0, max(1.5, axes.get_ylim()[1]))
    return rows


def tuning_loss(axes: Axes, record: Dynamics) -> list[Row]:
    """E L of full fine-tuning over the bound of Thm 4.5, by size of the network."""
    sizes = record.tables["fine_tuning"]
    looks = ramp([f"Thm 4.5, $d$ = {tuned['d']}, $h$ = {tuned['h']}" for tuned in sizes])
    rows: list[Row] = []
    for tuned, look in zip(sizes, looks, strict=True):
        ratios = _ratios(tuned["loss"], tuned["standard_error"], tuned["bound"])
        rows += mean_rows(record, OVER_BOUND, look, tuned["times"], *ratios)
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
    counts, panel = record.tables["counts"], "outside the bracket"
    names = [COUNTED[count["phase"], count["heads"]] for count in counts]
    rows = [
        {
            **row_of(record, panel, look, name.replace("\n", ", "), outside / cases),
            "count": outside,
            "trials": cases,
        }
        for count, name in zip(counts, names, strict=True)
        for column, (series, _) in OUTSIDE.items()
        for look, outside, cases in [(Look(series, "", "", ""), count[column], count["cases"])]
    ]
    shade = mpl.colormaps[RAMP]
    for place, row in enumerate(rows):
        column, line = divmod(place, len(OUTSIDE))
        axes.barh(line, CELL, height=CELL, left=column - CELL / 2, color=shade(row["value"]))
        axes.text(
            column,
            line,
            f"{row['count']} of\n{row['trials']}",
            color="white" if row["value"] > DARK else "black",
            ha="center",
            va="center",
            fontsize=NOTE_SIZE,
        )
    axes.set_xticks(range(len(counts)), names)
    axes.set_yticks(range(len(OUTSIDE)), [words for _, words in OUTSIDE.values()])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.invert_yaxis()
    axes.set_title("Cases outside the bracket")
    return rows


def lp_bracket(axes: Axes, record: Dynamics) -> list[Row]:
    """Thm 4.2 for the first draw, at the last noise but one."""
    losses = _of_phase(record, "head", "random")
    sigmas = sorted({row["sigma"] for row in losses})
    sigma = sigmas[max(0, len(sigmas) - 2)]
    shown = next(row for row in losses if (row["sigma"], row["draw"]) == (sigma, 0))
    rows = _bracket(axes, record, shown, "LP bracket", "in LP")
    axes.set_title(rf"Thm 4.2: loss in LP, $\sigma$ = {sigma:g}")
    legend_of(axes, BRACKET_LOOKS, loc="best", labelspacing=0.2)
    return rows


def fft_bracket(axes: Axes, record: Dynamics) -> list[Row]:
    """Thm 4.3 for the draw of a random head whose zeroth-order loss is furthest above."""

    def excess(row: Row) -> float:
        return max(loss / bound for loss, bound in zip(row["zeroth"], row["upper"], strict=True))

    shown = max(_of_phase(record, "all", "random"), key=excess)
    rows = _bracket(axes, record, shown, "FFT bracket", "in FFT")
    axes.set_title(rf"Thm 4.3: FFT, $\sigma$ = {shown['sigma']:g}, worst draw")
    # Inside the bracket, below the losses.
    beside = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.08)}
    legend_of(axes, BRACKET_LOOKS, labelspacing=0.2, **beside)
    return rows


def _of_phase(record: Dynamics, phase: str, heads: str) -> list[Row]:
    return where(record.tables["relu"], phase=phase, heads=heads)


def _bracket(axes: Axes, record: Dynamics, losses: Row, panel: str, phase: str) -> list[Row]:
    """One class's loss between its bounds, from time 0; phase: in which, in words."""
    times = [0.0, *record.facts["times"]]
    curves = {
        "lower": [losses["start"], *losses["lower"]],
        "upper": [losses["start"], *losses["upper"]],
        "zeroth": [losses["start"], *losses["zeroth"]],
    }
    rows = [
        row
        for name, values in curves.items()
        for row in curve_rows(record, panel, Look(name, "", "", ""), times, values)
    ]
    axes.fill_between(times, curves["lower"], curves["upper"], color=RED, alpha=BAND_ALPHA, lw=0)
    axes.set(yscale="log", xlabel="time $t$", ylabel=f"loss of a class {phase}")
    draw_curves(axes, frame(rows), "x", {"lower": BRACKET, "upper": BRACKET, "zeroth": ZEROTH})
    errors = losses["standard_error"]
    points = mean_rows(record, panel, DIFFUSION, times[1:], losses["diffusion"], errors)
    draw_series(axes, points, (DIFFUSION,))
    label_sparsely(axes.yaxis)
    return rows + points
