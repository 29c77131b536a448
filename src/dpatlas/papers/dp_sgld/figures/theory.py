"""Figures and tables of dp_sgld's theory; here epsilon against steps, and the utility bounds.

A figure needs exactly one record of its kind, the tables take those of kind `accuracy` too; all
raise InputError otherwise. Settings are not used.
"""

from collections.abc import Iterable
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.core.statistics import mean_estimate
from dpatlas.papers.dp_sgld.figures.sgld_constants import sgld_constants
from dpatlas.papers.dp_sgld.figures.sgld_counterexample import sgld_counterexample
from dpatlas.papers.dp_sgld.figures.sgld_published import sgld_published
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import (
    columns,
    draw_band,
    label_decades,
    legend,
    select,
)
from dpatlas.show.series import BLUE, GREEN, ORANGE, PINK, RED, SERIES, handle, only

__all__ = [
    "sgld_constants",
    "sgld_counterexample",
    "sgld_privacy_loss",
    "sgld_published",
    "sgld_utility",
]

CONFIDENCE = 0.95
EPSILON_LABEL = r"$\epsilon$ at $\delta$"
# What a curve of a `privacy_loss` record is called and how it is drawn.
CURVES = {
    "claimed, steps": Look("claimed, K = steps", "black", "", "-"),
    "claimed, epochs": Look("claimed, K = epochs", "black", "", ":"),
    "every iterate": Look("all iterates, RDP", RED, "s", "-"),
    "given the batches": Look("last iterate, batches known", PINK, "D", "--"),
    "cyclic, hidden state": Look("last iterate, cyclic", ORANGE, "v", "-."),
    "full batch, hidden state": Look("last iterate, full batch", BLUE, "o", "-"),
    "full batch, every iterate": Look("all iterates, full batch, PLD", GREEN, "^", "-"),
    "full batch, every iterate, rdp": Look("the same, RDP", GREEN, "", ":"),
    "quadratic, fixed start": Look("exact: quadratic, fixed start", "black", "x", ""),
    "quadratic, random start": Look("exact: quadratic, start of Alg. 1", "0.45", "+", "--"),
    "exact": Look("exact: one-dimensional law", "0.45", "*", "-"),
}
BATCHES = (
    "claimed, steps",
    "claimed, epochs",
    "every iterate",
    "given the batches",
    "cyclic, hidden state",
    "full batch, hidden state",
)
FULL = (
    "claimed, steps",
    "full batch, every iterate",
    "full batch, every iterate, rdp",
    "full batch, hidden state",
    "quadratic, fixed start",
    "quadratic, random start",
)
SMALL = ("claimed, steps", "every iterate", "given the batches", "exact")
# Of order alpha, and of (epsilon, delta).
THEOREMS = {"Thm 4.1": "*", "Thm 4.2": "P", "Thm 4.3": "*", "Thm 4.4": "P"}
CALIBRATIONS = {"published": "epochs", "theorem": "steps"}


def sgld_privacy_loss(records: Records, settings: Settings) -> ShownFigure:
    """Epsilon against steps: mini-batches at two calibrations, full batches, one dimension."""
    record = only(records, "privacy_loss")
    fields, small = record["spec"], record["metrics"]["small"]
    schedules = fields["schedules"]
    figure = Figure(figsize=(DOUBLE_COLUMN, 4.6))
    panels = figure.subplots(2, len(schedules) + 1, squeeze=False)
    rows = []
    for (calibration, counted), line in zip(CALIBRATIONS.items(), panels, strict=True):
        for schedule, axes in zip(schedules, line[:-1], strict=True):
            shown = curve_rows(record, "mini-batches", calibration, schedule, BATCHES)
            draw_curves(axes, shown, BATCHES)
            axes.set_title(f"{schedule} steps; noise by K = {counted}")
            rows += shown
        line[0].set_ylabel(EPSILON_LABEL)
    full = curve_rows(record, "full batch", "theorem", schedules[0], FULL)
    draw_curves(panels[0, -1], full, FULL)
    panels[0, -1].set_title(f"full batch, {schedules[0]} steps")
    law = curve_rows(record, "one dimension", "one dimension", "constant", SMALL)
    draw_curves(panels[1, -1], law, SMALL)
    panels[1, -1].set_title(f"one dimension: {small['batch']} of {small['n']}")
    for line in panels:
        for axes in line[1:-1]:
            axes.sharey(line[0])
    for axes in panels.flat:
        target = small["epsilon"] if axes is panels[1, -1] else fields["epsilon"]
        axes.axhline(target, color=MUTED, linewidth=0.6, zorder=1)
    for axes in panels[-1]:
        axes.set_xlabel("steps")
    legend(figure, [handle(look) for look in CURVES.values()], columns=4)
    notes = [
        f"n = {fields['n']}, batch {fields['batch']}, {fields['epochs']} epochs, record norm "
        f"{fields['feature_norm']:g}, lambda {fields['lambda']:g}, delta {fields['delta']:g}; "
        "records replaced; noise such that Thm 3.2 gives the thin line at the last step, K counted "
        "as each title says (full batch and one dimension: steps); all iterates: batches without "
        "replacement; one dimension: x = 1 against -1 among -1s, lambda = beta = 1, L = 2",
    ]
    names = ("panel", "calibration", "schedule", "curve", "sigma2", "step", "value")
    return ShownFigure(figure, names, [*rows, *full, *law], notes)


def curve_rows(
    record: dict[str, Any], panel: str, calibration: str, schedule: str, names: Iterable[str]
) -> list[Row]:
    """The points of the named curves of a `privacy_loss` record, those that it has."""
    found = select(record["metrics"]["curves"], calibration=calibration, schedule=schedule)
    return [
        {
            "panel": panel,
            **{name: curve[name] for name in ("calibration", "schedule", "curve", "sigma2")},
            "step": step,
            "value": value,
            "runs": [record["id"]],
        }
        for curve in found
        if curve["curve"] in names
        for step, value in zip(curve["steps"], curve["epsilon"], strict=True)
    ]


def draw_curves(axes: Axes, rows: list[Row], names: Iterable[str]) -> None:
    """Epsilon against steps, both on log axes."""
    axes.set(xscale="log", yscale="log")
    for name in names:
        look = CURVES[name]
        at, value = columns(select(rows, curve=name), "step", "value")
        axes.plot(at, value, marker=look.marker, markersize=3, **look.line)
    label_decades(axes.yaxis)


def sgld_utility(records: Records, settings: Settings) -> ShownFigure:
    """Measured excess risk against steps beside the lemmas and theorems, both conventions."""
    record = only(records, "utility")
    fields, metrics = record["spec"], record["metrics"]
    schedules = [row["schedule"] for row in metrics["rows"]]
    figure = Figure(figsize=(DOUBLE_COLUMN, 3.3))
    panels = figure.subplots(1, len(set(schedules)), squeeze=False, sharey=True)[0]
    rows, beyond = [], []
    for schedule, axes in zip(dict.fromkeys(schedules), panels, strict=True):
        what = "last iterate" if schedule == "constant" else "mean of all iterates"
        axes.set(xscale="log", yscale="log", xlabel="steps", title=f"{schedule} steps: {what}")
        axes.axhline(metrics["excess_risk_at_zero"], color=MUTED, linewidth=0.6, zorder=1)
        for found, look in zip(
            select(metrics["rows"], schedule=schedule), cycle(SERIES), strict=False
        ):
            shown = utility_rows(record, found)
            rows += shown
            beyond += _utility_panel(axes, shown, look, fields["steps"])
    # An interval may reach below 0, which a log axis cannot show.
    panels[0].set_ylim(bottom=min(row["value"] for row in rows) / 3)
    panels[0].set_ylabel("excess risk")
    looks = [
        handle(Look(rf"$\epsilon$ = {epsilon:g}", look.color, look.marker, "-"))
        for epsilon, look in zip(fields["epsilons"], cycle(SERIES), strict=False)
    ]
    kinds = [
        handle(Look("lemma, corrected", "black", "", "--")),
        handle(Look("lemma, as printed", "black", "", ":")),
        handle(Look("Thms 4.1, 4.3, corrected", "black", "*", "")),
        handle(Look("Thms 4.2, 4.4, corrected", "black", "P", "")),
    ]
    legend(figure, [*looks, *kinds], columns=3)
    notes = [
        f"n = {fields['n']} generated records in the unit ball, batch {fields['batch']}, "
        f"{metrics['parameters']} parameters, lambda {fields['lambda']:g}, noise of Thm 4.2 at "
        f"delta {fields['delta']:g}; {fields['runs']} runs: mean and 95% t interval; Lemma 4.1 "
        "with Thms 4.1 and 4.2 (left), Lemma 4.3 with Thms 4.3 and 4.4 (right), each theorem at "
        "its own K, as printed in white; thin line: zero weights",
        *([f"beyond the axis: {'; '.join(beyond)}"] if beyond else []),
    ]
    names = ("schedule", "epsilon", "quantity", "step", "value", "low", "high", "runs_used")
    return ShownFigure(figure, names, rows, notes)


def utility_rows(record: dict[str, Any], found: dict[str, Any]) -> list[Row]:
    """Measured, lemmas and theorems of one schedule and epsilon."""
    keys = {"schedule": found["schedule"], "epsilon": found["epsilon"], "runs": [record["id"]]}
    rows = []
    for step, values in zip(
        found["shown_steps"], np.transpose(found["excess_risk_runs"]), strict=True
    ):
        estimate = mean_estimate(values)
        row = {"quantity": "measured", "step": step, "value": estimate.value}
        if len(values) > 1:
            row["low"], row["high"] = estimate.interval(CONFIDENCE)
        rows.append({**keys, **row, "runs_used": len(values)})
    for convention in ("exact", "paper"):
        quantity = f"{found['lemma']['name']}, {convention}"
        rows += [
            {**keys, "quantity": quantity, "step": step, "value": value}
            for step, value in zip(found["shown_steps"], found["lemma"][convention], strict=True)
        ]
        rows += [
            {
                **keys,
                "quantity": f"{theorem['name']}, {convention}",
                "step": theorem["K"],
                "value": theorem[convention],
            }
            for theorem in found["theorems"]
        ]
    return rows


def _utility_panel(axes: Axes, rows: list[Row], look: Look, last: int) -> list[str]:
    """Draw one epsilon; what lies beyond the last step, in words."""
    measured = select(rows, quantity="measured")
    at, value = columns(measured, "step", "value")
    axes.plot(at, value, color=look.color, marker=look.marker, markevery=3, markersize=3)
    draw_band(axes, "step", measured, look.color)
    beyond = []
    for quantity in dict.fromkeys(row["quantity"] for row in rows):
        points = select(rows, quantity=quantity)
        printed = quantity.endswith("paper")
        if quantity.startswith("Lemma"):
            style = ":" if printed else "--"
            axes.plot(*columns(points, "step", "value"), linestyle=style, color=look.color)
        elif quantity.startswith("Thm"):
            name = quantity.partition(",")[0]
            near = [row for row in points if row["step"] <= last]
            axes.plot(
                *columns(near, "step", "value"),
                THEOREMS[name],
                color="white" if printed else look.color,
                markersize=6,
                mec="black",
                mew=0.6,
                zorder=2 if printed else 3,
            )
            beyond += [
                f"{name} at epsilon {row['epsilon']:g}: {row['value']:.3g} at K = {row['step']:.2g}"
                for row in points
                if row["step"] > last and not printed
            ]
    return beyond
