"""dp_sgld: measured excess risk against steps beside the utility bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.dp_sgld.records import utility
from dpatlas.records import Record
from dpatlas.show.draw import draw_curves, frame
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import legend
from dpatlas.show.rows import positive_mean_interval
from dpatlas.show.series import SERIES, handle, only

# Of order alpha, and of (epsilon, delta).
THEOREMS = {"Thm 4.1": "*", "Thm 4.2": "P", "Thm 4.3": "*", "Thm 4.4": "P"}


def sgld_utility(records: Records, settings: Settings) -> ShownFigure:
    """Measured excess risk against steps beside the lemmas and theorems, both conventions."""
    record: Record[utility.Spec, utility.Metrics] = only(records, "utility")
    fields, metrics = record.spec, record.metrics
    schedules = dict.fromkeys(measured.schedule for measured in metrics.rows)
    figure = Figure(figsize=(DOUBLE_COLUMN, 3.3))
    panels = figure.subplots(1, len(schedules), squeeze=False, sharey=True)[0]
    looks = {
        epsilon: replace(look, label=rf"$\epsilon$ = {epsilon:g}", linestyle="-")
        for epsilon, look in zip(fields.epsilons, cycle(SERIES), strict=False)
    }
    rows: list[Row] = []
    beyond: list[str] = []
    for schedule, axes in zip(schedules, panels, strict=True):
        what = "last iterate" if schedule == "constant" else "mean of all iterates"
        axes.set(xscale="log", yscale="log", xlabel="steps", title=f"{schedule} steps: {what}")
        axes.axhline(metrics.excess_risk_at_zero, color=MUTED, linewidth=0.6, zorder=1)
        shown = [
            row
            for measured in metrics.rows
            if measured.schedule == schedule
            for row in utility_rows(record.ids, measured)
        ]
        rows += shown
        beyond += _draw_panel(axes, frame(shown), looks, fields.steps)
    panels[0].set_ylim(bottom=min(row["value"] for row in rows) / 3)
    panels[0].set_ylabel("excess risk (nats)")
    kinds = [
        handle(Look("lemma, corrected", "black", "", "--")),
        handle(Look("lemma, as printed", "black", "", ":")),
        handle(Look("Thms 4.1, 4.3", "black", "*", "")),
        handle(Look("Thms 4.2, 4.4", "black", "P", "")),
        handle(Look("excess risk at zero weights", MUTED, "", "-")),
    ]
    legend(figure, [*map(handle, looks.values()), *kinds], columns=4)
    notes = [
        f"n = {fields.n} generated records in the unit ball, batch {fields.batch}, "
        f"{metrics.parameters} parameters, lambda = {fields.lam:g}, noise of Thm 4.2 at "
        f"delta = {fields.delta:g}; {fields.runs} runs: mean and 95% t interval of its logarithm; "
        "Lemma 4.1 with Thms 4.1 and 4.2 (left), Lemma 4.3 with Thms 4.3 and 4.4 (right), each "
        "theorem at its own K, corrected in the colour of its epsilon, as printed in white; what "
        "is printed is hidden where the correction changes nothing",
        *([f"beyond the axis: {'; '.join(beyond)}"] if beyond else []),
    ]
    names = ("schedule", "epsilon", "quantity", "step", "value", "low", "high", "runs_used")
    return ShownFigure(figure, names, rows, notes)


def utility_rows(runs: Sequence[str], measured: utility.Row) -> list[Row]:
    """Measured, lemmas and theorems of one schedule and epsilon."""
    keys = {"schedule": measured.schedule, "epsilon": measured.epsilon, "runs": runs}
    rows: list[Row] = []
    for step, values in zip(
        measured.shown_steps, np.transpose(measured.excess_risk_runs), strict=True
    ):
        rows.append(
            {**keys, "quantity": "measured", "step": step, **positive_mean_interval(values)}
        )
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


def _draw_panel(
    axes: Axes, data: pd.DataFrame, looks: Mapping[float, Look], last: int
) -> list[str]:
    """Draw one schedule; what lies beyond the last step, in words."""
    measured = data[data.quantity == "measured"]
    draw_curves(axes, measured, "step", looks, "epsilon", markevery=3, markersize=3)
    for convention, style in (("exact", "--"), ("paper", ":")):
        lemma = data[data.quantity.str.fullmatch(f"Lemma.*, {convention}")]
        lines = {
            epsilon: replace(look, marker="", linestyle=style) for epsilon, look in looks.items()
        }
        draw_curves(axes, lemma, "step", lines, "epsilon")
    beyond = []
    theorems = data[data.quantity.str.startswith("Thm")]
    # What is printed first, under the corrections.
    theorems = theorems.sort_values(
        "quantity", key=lambda names: ~names.str.endswith("paper"), kind="stable"
    )
    for row in theorems.itertuples():
        name, _, convention = row.quantity.partition(", ")
        printed = convention == "paper"
        if row.step <= last:
            color = "white" if printed else looks[row.epsilon].color
            mark: dict[str, Any] = {"markersize": 6, "mec": "black", "mew": 0.6}
            order = 2 if printed else 3
            axes.plot(row.step, row.value, THEOREMS[name], color=color, zorder=order, **mark)
        elif not printed:
            where = f"{name} at epsilon = {row.epsilon:g}"
            beyond.append(f"{where}: {row.value:.3g} at K = {row.step:.2g}")
    return beyond
