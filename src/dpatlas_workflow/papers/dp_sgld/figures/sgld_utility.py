"""dp_sgld: measured excess risk against steps beside the utility bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, product
from typing import Any

from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns
from dpatlas_workflow.show.look import MUTED, SERIES, THIN, Look
from dpatlas_workflow.show.panel import Axis, Panel, PanelGrid, Series, ShownFigure, series
from dpatlas_workflow.show.rows import Records, Row, Settings, only, positive_mean_interval, where

STEPS = Axis("steps", log=True)
LEMMAS = {
    "exact": Look("lemma, corrected", "black", "", "--"),
    "paper": Look("lemma, as printed", "black", "", ":"),
}
# Of order alpha, and of (epsilon, delta).
THEOREMS = (Look("Thms 4.1, 4.3", "black", "*", ""), Look("Thms 4.2, 4.4", "black", "P", ""))
OF_THEOREM = dict(zip(("Thm 4.1", "Thm 4.2", "Thm 4.3", "Thm 4.4"), THEOREMS * 2, strict=True))
AT_ZERO = Look("excess risk at zero weights", MUTED, width=THIN)


def sgld_utility(records: Records, settings: Settings) -> ShownFigure:
    """Measured excess risk against steps beside the lemmas and theorems, both conventions."""
    record = only(records, "utility")
    fields, facts = record.spec, record.facts
    schedules = fields.schedules
    looks = {
        epsilon: replace(look, label=rf"$\epsilon$ = {epsilon:g}", linestyle="-", size=3)
        for epsilon, look in zip(fields.epsilons, cycle(SERIES), strict=False)
    }
    arms = product(schedules, fields.epsilons)
    rows = [row for schedule, epsilon in arms for row in utility_rows(record, schedule, epsilon)]
    risk = Axis("excess risk (nats)", log=True, ends=(min(row["value"] for row in rows) / 3, None))
    panels = []
    for schedule in schedules:
        what = "last iterate" if schedule == "constant" else "mean of all iterates"
        drawn = _curves(where(rows, schedule=schedule), looks, fields.steps)
        title = f"{schedule} steps: {what}"
        panels.append(Panel(title, STEPS, risk, drawn, across=[facts["excess_risk_at_zero"]]))
    beyond = [
        f"{row['quantity'].partition(',')[0]} at epsilon = {row['epsilon']:g}: {row['value']:.3g} "
        f"at K = {row['step']:.2g}"
        for row in rows
        if row["step"] > fields.steps and row["quantity"].endswith(", exact")
    ]
    notes = [
        f"n = {fields.n} generated records in the unit ball, batch {fields.batch}, "
        f"{facts['parameters']} parameters, lambda = {fields.lam:g}, noise of Thm 4.2 at "
        f"delta = {fields.delta:g}; {fields.runs} runs: mean and 95% t interval of its logarithm; "
        "Lemma 4.1 with Thms 4.1 and 4.2 (left), Lemma 4.3 with Thms 4.3 and 4.4 (right), each "
        "theorem at its own K, corrected in the colour of its epsilon, as printed in white; what "
        "is printed is hidden where the correction changes nothing",
        *([f"beyond the axis: {'; '.join(beyond)}"] if beyond else []),
    ]
    names = ("schedule", "epsilon", "quantity", "step", "value", "low", "high", "runs_used")
    legend = [*looks.values(), *LEMMAS.values(), *THEOREMS, AT_ZERO]
    return ShownFigure([PanelGrid([panels], 3.3)], names, rows, notes, legend)


def utility_rows(record: Record[Any], schedule: str, epsilon: float) -> list[Row]:
    """Measured, lemmas and theorems of one schedule and epsilon."""
    keys = {"schedule": schedule, "epsilon": epsilon, "runs": record.ids}
    risks = columns([record], "risks", schedule=schedule, epsilon=epsilon)
    rows: list[Row] = [
        {**keys, "quantity": "measured", "step": step}
        | positive_mean_interval(runs.excess_risk.to_numpy())
        for step, runs in risks.groupby("step")
    ]
    bounds = where(record.tables["bounds"], schedule=schedule, epsilon=epsilon)
    for convention in ("exact", "paper"):
        rows += [
            {
                **keys,
                "quantity": f"{bound['bound']}, {convention}",
                "step": bound["step"],
                "value": bound[convention],
            }
            for bound in bounds
        ]
    return rows


def _curves(rows: Sequence[Row], looks: Mapping[float, Look], last: int) -> list[Series]:
    """Measured risk, lemmas, and the theorems up to the last step, corrected ones on top."""
    drawn = series(
        where(rows, quantity="measured"), "step", looks, "epsilon", band=True, every=(3, 0)
    )
    for name, lemma in LEMMAS.items():
        of_lemma = [
            row
            for row in rows
            if row["quantity"].startswith("Lemma") and row["quantity"].endswith(name)
        ]
        lines = {
            epsilon: replace(look, marker="", linestyle=lemma.linestyle)
            for epsilon, look in looks.items()
        }
        drawn += series(of_lemma, "step", lines, "epsilon", told=(lemma.label,))
    for fill, convention in (("none", "paper"), ("full", "exact")):
        for name, mark in OF_THEOREM.items():
            at = [
                row for row in where(rows, quantity=f"{name}, {convention}") if row["step"] <= last
            ]
            marks = {
                epsilon: replace(
                    mark, label=look.label, color=look.color, size=6, fill=fill, edge="black"
                )
                for epsilon, look in looks.items()
            }
            drawn += series(at, "step", marks, "epsilon", told=(mark.label,))
    return drawn
