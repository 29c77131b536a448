"""lp_fft: losses by the theorems and in simulation."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex

from dpatlas_workflow.papers.lp_fft.figures.theory_series import (
    EXACT,
    PRINTED,
    Made,
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
from dpatlas_workflow.show.rows import Records, Row, Settings, only, where

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
    record: Record[DynamicsSpec] = only(records, "dynamics")
    probed, losses = record.facts["probing"], record.tables["relu"]
    lines = {
        "Linear networks: Eq. 161, Thms 4.4 and 4.5": (
            _head_norm(probed),
            _probing_loss(probed),
            _tuning_loss(record.tables["fine_tuning"]),
        ),
        "ReLU networks: brackets of a class's loss, Thms 4.2 and 4.3": (
            _lp_bracket(where(losses, phase="head", heads="random"), record.facts["times"]),
            _fft_bracket(where(losses, phase="all", heads="random"), record.facts["times"]),
            _violations(record.tables["counts"]),
        ),
    }
    relu, probing, tuned = record.spec.relu, record.spec.probing, record.spec.fine_tuning
    notes = [
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
    return theory_figure(record, lines, notes)


def _head_norm(probed: Row) -> Made:
    """E ||v_t||^2 of linear probing."""
    name, times = "head norm", probed["times"]
    rows = [
        *mean_rows(name, SIMULATED, times, probed["norm"], probed["norm_standard_error"]),
        *curve_rows(name, PRINTED, times, probed["norm_paper"]),
        *curve_rows(name, EXACT, times, probed["norm_exact"]),
    ]
    norm = Axis(r"$\mathbb{E}\,\Vert v_t\Vert^2$", ends=(0, None))
    shown = drawn(rows, (PRINTED, EXACT, SIMULATED))
    title = "Eq. 161: norm of the head"
    return Panel(title, Axis("time $t$ of LP"), norm, shown, legend=Legend()), rows


def _probing_loss(probed: Row) -> Made:
    """E L of linear probing over the bound of Thm 4.4, as printed and with half its rate."""
    bounds = {
        Look(r"Thm 4.4, $\gamma$ printed", "black", "v", "-"): probed["loss_bound_paper"],
        Look(r"Thm 4.4, $\gamma$ halved", MUTED, "P", "--"): probed["loss_bound_exact"],
    }
    rows: list[Row] = []
    for look, bound in bounds.items():
        rows += _over(bound, look, probed["times"], probed["loss"], probed["loss_standard_error"])
    # Room for the legend above the line at 1.
    top = 1.5 if max(row["high"] for row in rows) < 1.4 else None
    return _over_bound("Thm 4.4: loss in LP", Axis("time $t$ of LP"), top, rows, bounds)


def _tuning_loss(sizes: Sequence[Row]) -> Made:
    """E L of full fine-tuning over the bound of Thm 4.5, by size of the network."""
    looks = ramp([f"Thm 4.5, $d$ = {tuned['d']}, $h$ = {tuned['h']}" for tuned in sizes])
    rows: list[Row] = []
    for tuned, look in zip(sizes, looks, strict=True):
        at = tuned["times"]
        rows += _over(tuned["bound"], look, at, tuned["loss"], tuned["standard_error"])
    return _over_bound("Thm 4.5: loss in FFT", Axis("time $At$ of FFT"), None, rows, looks)


def _over(
    bound: Sequence[float],
    look: Look,
    times: Sequence[float],
    losses: Sequence[float],
    errors: Sequence[float],
) -> list[Row]:
    """Rows of mean losses over a bound."""
    ratios, of_ratios = (np.divide(values, bound).tolist() for values in (losses, errors))
    return mean_rows("loss over bound", look, times, ratios, of_ratios)


def _over_bound(
    title: str, time: Axis, top: float | None, rows: list[Row], looks: Iterable[Look]
) -> Made:
    ratio = Axis("expected loss over bound", ends=(0, top), of=title)
    shown = [
        replace(each, look=replace(each.look, label=each.look.label.partition(", ")[2]))
        for each in drawn(rows, looks)
    ]
    return Panel(title, time, ratio, shown, across=[1.0], legend=Legend("upper left")), rows


def _violations(counts: Sequence[Row]) -> Made:
    """Shares of cases in which a loss leaves its bracket, below and above."""
    rows, spans, words = [], [], []
    named = [COUNTED[count["phase"], count["heads"]] for count in counts]
    shade = mpl.colormaps[RAMP]
    for column, (count, name) in enumerate(zip(counts, named, strict=True)):
        for line, (field, (label, _)) in enumerate(OUTSIDE.items()):
            outside, cases = count[field], count["cases"]
            share, look = outside / cases, Look(label, "")
            row = row_of("outside the bracket", look, name.replace("\n", ", "), share)
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


def _lp_bracket(losses: Sequence[Row], times: Sequence[float]) -> Made:
    """Thm 4.2 for the first draw, at the last noise but one."""
    sigma = sorted({row["sigma"] for row in losses})[-2:][0]
    shown = where(losses, sigma=sigma, draw=0)[0]
    return _bracket(rf"Thm 4.2: loss in LP, $\sigma$ = {sigma:g}", shown, times, "LP")


def _fft_bracket(losses: Sequence[Row], times: Sequence[float]) -> Made:
    """Thm 4.3 for the draw of a random head whose zeroth-order loss is furthest above."""
    shown = max(losses, key=lambda row: np.divide(row["zeroth"], row["upper"]).max())
    title = rf"Thm 4.3: FFT, $\sigma$ = {shown['sigma']:g}, worst draw"
    return _bracket(title, shown, times, "FFT")


def _bracket(title: str, losses: Row, times: Sequence[float], phase: str) -> Made:
    """One class's loss between its bounds, from time 0."""
    name, at = f"{phase} bracket", [0.0, *times]
    curves = {"lower": BRACKET, "upper": BRACKET, "zeroth": ZEROTH}
    values = {label: [losses["start"], *losses[label]] for label in curves}
    rows = [row for label in curves for row in curve_rows(name, Look(label, ""), at, values[label])]
    points = mean_rows(name, DIFFUSION, times, losses["diffusion"], losses["standard_error"])
    low, high, nothing = values["lower"], values["upper"], [math.nan] * len(at)
    between = Series(Look("", RED, "", ""), at, nothing, low=low, high=high, band=True)
    shown = [between, *series(rows, "x", curves), *drawn(points, [DIFFUSION])]
    loss = Axis(f"loss of a class in {phase}", log=True)
    return Panel(title, Axis("time $t$"), loss, shown, legend=Legend()), rows + points
