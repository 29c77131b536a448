"""lp_fft: losses by the theorems and in simulation."""

import math
from collections.abc import Sequence
from dataclasses import replace

import matplotlib as mpl
from matplotlib.colors import to_hex

from dpatlas_workflow.papers.lp_fft.figures.theory_series import (
    EXACT,
    PRINTED,
    curve_rows,
    drawn,
    mean_rows,
    row_of,
    theory_figure,
)
from dpatlas_workflow.papers.lp_fft.records.dynamics import DynamicsSpec
from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import BLUE, MUTED, RAMP, RED, Look, ramp
from dpatlas_workflow.show.panel import (
    Axis,
    Legend,
    Panel,
    Series,
    ShownFigure,
    Span,
    Words,
    names,
    series,
)
from dpatlas_workflow.show.rows import Records, Row, Settings, only

Dynamics = Record[DynamicsSpec]

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
# Share of cases from which the text of a cell is white; width of a cell, of 1.
DARK, CELL = 0.5, 0.95


def lpfft_theory(records: Records, settings: Settings) -> ShownFigure:
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
    return theory_figure(record, panels, _notes(record.spec))


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


def head_norm(record: Dynamics) -> tuple[Panel, list[Row]]:
    """E ||v_t||^2 of linear probing."""
    probed, name = record.facts["probing"], "head norm"
    times = probed["times"]
    rows = [
        *mean_rows(record, name, SIMULATED, times, probed["norm"], probed["norm_standard_error"]),
        *curve_rows(record, name, PRINTED, times, probed["norm_paper"]),
        *curve_rows(record, name, EXACT, times, probed["norm_exact"]),
    ]
    norm = Axis(r"$\mathbb{E}\,\Vert v_t\Vert^2$", ends=(0, None))
    shown = drawn(rows, (PRINTED, EXACT, SIMULATED))
    title = "Eq. 161: norm of the head"
    return Panel(title, Axis("time $t$ of LP"), norm, shown, legend=Legend()), rows


def probing_loss(record: Dynamics) -> tuple[Panel, list[Row]]:
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
    # Room for the legend above the line at 1.
    top = 1.5 if max(row["high"] for row in rows) < 1.4 else None
    return _over_bound("Thm 4.4: loss in LP", Axis("time $t$ of LP"), top, rows, looks)


def tuning_loss(record: Dynamics) -> tuple[Panel, list[Row]]:
    """E L of full fine-tuning over the bound of Thm 4.5, by size of the network."""
    sizes = record.tables["fine_tuning"]
    looks = ramp([f"Thm 4.5, $d$ = {tuned['d']}, $h$ = {tuned['h']}" for tuned in sizes])
    rows: list[Row] = []
    for tuned, look in zip(sizes, looks, strict=True):
        ratios = _ratios(tuned["loss"], tuned["standard_error"], tuned["bound"])
        rows += mean_rows(record, OVER_BOUND, look, tuned["times"], *ratios)
    return _over_bound("Thm 4.5: loss in FFT", Axis("time $At$ of FFT"), None, rows, looks)


def _over_bound(
    title: str, time: Axis, top: float | None, rows: list[Row], looks: Sequence[Look]
) -> tuple[Panel, list[Row]]:
    ratio = Axis("expected loss over bound", ends=(0, top), of=title)
    shown = [
        replace(each, look=replace(each.look, label=each.look.label.partition(", ")[2]))
        for each in drawn(rows, looks)
    ]
    return Panel(title, time, ratio, shown, across=[1.0], legend=Legend("upper left")), rows


def _ratios(
    losses: Sequence[float], errors: Sequence[float], bounds: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Mean losses and their errors over a bound."""
    return (
        [loss / bound for loss, bound in zip(losses, bounds, strict=True)],
        [error / bound for error, bound in zip(errors, bounds, strict=True)],
    )


def violations(record: Dynamics) -> tuple[Panel, list[Row]]:
    """Shares of cases in which a loss leaves its bracket, below and above."""
    counts, rows = record.tables["counts"], []
    spans, words = [], []
    named = [COUNTED[count["phase"], count["heads"]] for count in counts]
    shade = mpl.colormaps[RAMP]
    for column, (count, name) in enumerate(zip(counts, named, strict=True)):
        for line, (field, (label, _)) in enumerate(OUTSIDE.items()):
            outside, cases = count[field], count["cases"]
            share, look = outside / cases, Look(label, "")
            row = row_of(record, "outside the bracket", look, name.replace("\n", ", "), share)
            rows.append(row | {"count": outside, "trials": cases})
            (left, right), (top, bottom) = ((at - CELL / 2, at + CELL / 2) for at in (column, line))
            spans.append(Span(to_hex(shade(share)), (left, right), (top, bottom)))
            ink = "white" if share > DARK else "black"
            words.append(Words(f"{outside} of\n{cases}", (column, line), ink))
    lines = [text for _, text in OUTSIDE.values()]
    panel = Panel(
        "Cases outside the bracket",
        names(named),
        names(lines, ends=(len(lines) - 0.5, -0.5)),
        spans=spans,
        words=words,
        framed=False,
    )
    return panel, rows


def lp_bracket(record: Dynamics) -> tuple[Panel, list[Row]]:
    """Thm 4.2 for the first draw, at the last noise but one."""
    losses = _of_phase(record, "head", "random")
    sigmas = sorted({row["sigma"] for row in losses})
    sigma = sigmas[max(0, len(sigmas) - 2)]
    shown = next(row for row in losses if (row["sigma"], row["draw"]) == (sigma, 0))
    title = rf"Thm 4.2: loss in LP, $\sigma$ = {sigma:g}"
    return _bracket(title, record, shown, "LP")


def fft_bracket(record: Dynamics) -> tuple[Panel, list[Row]]:
    """Thm 4.3 for the draw of a random head whose zeroth-order loss is furthest above."""

    def excess(row: Row) -> float:
        return max(loss / bound for loss, bound in zip(row["zeroth"], row["upper"], strict=True))

    shown = max(_of_phase(record, "all", "random"), key=excess)
    title = rf"Thm 4.3: FFT, $\sigma$ = {shown['sigma']:g}, worst draw"
    return _bracket(title, record, shown, "FFT")


def _of_phase(record: Dynamics, phase: str, heads: str) -> list[Row]:
    return [row for row in record.tables["relu"] if (row["phase"], row["heads"]) == (phase, heads)]


def _bracket(title: str, record: Dynamics, losses: Row, phase: str) -> tuple[Panel, list[Row]]:
    """One class's loss between its bounds, from time 0."""
    name, times = f"{phase} bracket", [0.0, *record.facts["times"]]
    lower, upper, zeroth = (
        [losses["start"], *values]
        for values in (losses["lower"], losses["upper"], losses["zeroth"])
    )
    rows = [
        row
        for label, values in (("lower", lower), ("upper", upper), ("zeroth", zeroth))
        for row in curve_rows(record, name, Look(label, ""), times, values)
    ]
    errors = losses["standard_error"]
    points = mean_rows(record, name, DIFFUSION, times[1:], losses["diffusion"], errors)
    nothing = [math.nan] * len(times)
    between = Series(Look("", RED, "", ""), times, nothing, low=lower, high=upper, band=True)
    curves = {"lower": BRACKET, "upper": BRACKET, "zeroth": ZEROTH}
    shown = [between, *series(rows, "x", curves), *drawn(points, [DIFFUSION])]
    loss = Axis(f"loss of a class in {phase}", log=True)
    return Panel(title, Axis("time $t$"), loss, shown, legend=Legend()), rows + points
