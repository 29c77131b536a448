"""dp_sgld: measured excess risk against steps beside the utility bounds."""

from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.core.statistics import mean_estimate
from dpatlas.papers.dp_sgld.records import utility
from dpatlas.records import Record
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import columns, draw_band, legend, select
from dpatlas.show.series import SERIES, handle, only

CONFIDENCE = 0.95
# Of order alpha, and of (epsilon, delta).
THEOREMS = {"Thm 4.1": "*", "Thm 4.2": "P", "Thm 4.3": "*", "Thm 4.4": "P"}


def sgld_utility(records: Records, settings: Settings) -> ShownFigure:
    """Measured excess risk against steps beside the lemmas and theorems, both conventions."""
    record: Record[utility.Spec, utility.Metrics] = only(records, "utility")
    fields, metrics = record.spec, record.metrics
    schedules = dict.fromkeys(measured.schedule for measured in metrics.rows)
    figure = Figure(figsize=(DOUBLE_COLUMN, 3.3))
    panels = figure.subplots(1, len(schedules), squeeze=False, sharey=True)[0]
    rows: list[Row] = []
    beyond: list[str] = []
    for schedule, axes in zip(schedules, panels, strict=True):
        what = "last iterate" if schedule == "constant" else "mean of all iterates"
        axes.set(xscale="log", yscale="log", xlabel="steps", title=f"{schedule} steps: {what}")
        axes.axhline(metrics.excess_risk_at_zero, color=MUTED, linewidth=0.6, zorder=1)
        of_schedule = [measured for measured in metrics.rows if measured.schedule == schedule]
        for measured, look in zip(of_schedule, cycle(SERIES), strict=False):
            shown = utility_rows(record.id, measured)
            rows += shown
            beyond += _utility_panel(axes, shown, look, fields.steps)
    # An interval may reach below 0, which a log axis cannot show.
    panels[0].set_ylim(bottom=min(row["value"] for row in rows) / 3)
    panels[0].set_ylabel("excess risk")
    looks = [
        handle(Look(rf"$\epsilon$ = {epsilon:g}", look.color, look.marker, "-"))
        for epsilon, look in zip(fields.epsilons, cycle(SERIES), strict=False)
    ]
    kinds = [
        handle(Look("lemma, corrected", "black", "", "--")),
        handle(Look("lemma, as printed", "black", "", ":")),
        handle(Look("Thms 4.1, 4.3, corrected", "black", "*", "")),
        handle(Look("Thms 4.2, 4.4, corrected", "black", "P", "")),
    ]
    legend(figure, [*looks, *kinds], columns=3)
    notes = [
        f"n = {fields.n} generated records in the unit ball, batch {fields.batch}, "
        f"{metrics.parameters} parameters, lambda {fields.lam:g}, noise of Thm 4.2 at "
        f"delta {fields.delta:g}; {fields.runs} runs: mean and 95% t interval; Lemma 4.1 "
        "with Thms 4.1 and 4.2 (left), Lemma 4.3 with Thms 4.3 and 4.4 (right), each theorem at "
        "its own K, as printed in white; thin line: zero weights",
        *([f"beyond the axis: {'; '.join(beyond)}"] if beyond else []),
    ]
    names = ("schedule", "epsilon", "quantity", "step", "value", "low", "high", "runs_used")
    return ShownFigure(figure, names, rows, notes)


def utility_rows(record_id: str, measured: utility.Row) -> list[Row]:
    """Measured, lemmas and theorems of one schedule and epsilon."""
    keys = {"schedule": measured.schedule, "epsilon": measured.epsilon, "runs": [record_id]}
    rows: list[Row] = []
    for step, values in zip(
        measured.shown_steps, np.transpose(measured.excess_risk_runs), strict=True
    ):
        estimate = mean_estimate(values)
        row = {"quantity": "measured", "step": step, "value": estimate.value}
        if len(values) > 1:
            row["low"], row["high"] = estimate.interval(CONFIDENCE)
        rows.append({**keys, **row, "runs_used": len(values)})
    lemma = measured.lemma
    for convention, bounds in (("exact", lemma.exact), ("paper", lemma.paper)):
        quantity = f"{lemma.name}, {convention}"
        rows += [
            {**keys, "quantity": quantity, "step": step, "value": value}
            for step, value in zip(measured.shown_steps, bounds, strict=True)
        ]
        rows += [
            {
                **keys,
                "quantity": f"{theorem.name}, {convention}",
                "step": theorem.K,
                "value": theorem.exact if convention == "exact" else theorem.paper,
            }
            for theorem in measured.theorems
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
