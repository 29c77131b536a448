"""dp_sgld: accuracy and privacy against the number of full-batch steps."""

from typing import Any

from dpatlas_workflow.papers.dp_sgld.figures.arms import columns_of, seen_in
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import arms
from dpatlas_workflow.show.look import BLUE, GREEN, RED, Look
from dpatlas_workflow.show.panel import (
    Axis,
    Panel,
    PanelGrid,
    ShownFigure,
    accuracy,
    points,
    series,
)
from dpatlas_workflow.show.rows import Records, Row, Settings, mean_interval, only, where

METHODS = {
    "repaired-full": Look("repaired DP-SGLD", BLUE, "o", "-"),
    "dp-sgd": Look("DP-SGD", RED, "s", "--"),
    "noisy-gd": Look("DP-SGLD, noise of Thm 3.2", GREEN, "^", "-."),
}
SETTINGS = (
    "comparison",
    "lambda",
    "lr",
    "sigma",
    "noise_multiplier",
    "claimed_epsilon",
    "ordinary_epsilon",
    "hidden_state_epsilon",
    "guaranteed_epsilon",
    "guaranteed_by",
    "relation",
)
COLUMNS = (
    "quantity",
    "method",
    "steps",
    "value",
    "low",
    "high",
    "runs_used",
    *SETTINGS,
    "tuned_by",
)


def sgld_long_training(records: Records, settings: Settings) -> ShownFigure:
    """Accuracy against steps at one guaranteed epsilon; what all iterates would cost."""
    record = only(records, "long_training")
    fields = record.spec
    rows: list[Row] = []
    for arm in arms(record):
        shared = {
            **columns_of(arm, ("method", "steps", *SETTINGS)),
            "tuned_by": fields.tuning,
            "runs": list(record.ids),
        }
        rows += [
            {"quantity": "accuracy", **mean_interval(arm["accuracy"]), **shared},
            {"quantity": "ordinary epsilon", "value": arm["ordinary_epsilon"], **shared},
        ]
    steps = Axis("full-batch steps $K$ (= epochs)", log=True, ticks=fields.steps)
    epsilon = Axis(r"$\varepsilon$ if all iterates were released", log=True)
    measured, spent = (where(rows, quantity=name) for name in ("accuracy", "ordinary epsilon"))
    panels = [
        Panel(
            "accuracy of the last iterate",
            steps,
            accuracy(),
            points(measured, "steps", METHODS, "method"),
        ),
        Panel(
            "privacy loss of all iterates",
            steps,
            epsilon,
            series(spent, "steps", METHODS, "method"),
            across=[fields.epsilon],
        ),
    ]
    return ShownFigure([PanelGrid([panels], 2.6)], COLUMNS, rows, _notes(record))


def _notes(record: Record[Any]) -> list[str]:
    fields, facts = record.spec, record.facts
    guaranteed = [
        arm["guaranteed_epsilon"]
        for arm in where(record.tables["arms"], method="noisy-gd")
        if arm["guaranteed_epsilon"] is not None
    ]
    return [
        f"{fields.data.name}, {seen_in(record)}, n = "
        f"{facts['n_train']}, one record replaced, $\\delta$ = {fields.delta:g}; mean and 95% "
        f"t interval of {fields.runs} runs on {facts['n_test']} test records; every point has "
        "its own noise and its own setting, chosen before (csv: tuned_by)",
        f"repaired DP-SGLD and DP-SGD guarantee $\\varepsilon$ = {fields.epsilon:g}, the former "
        "for the last iterate, the latter for all; the noise of Thm 3.2 claims as much and "
        f"guarantees {min(guaranteed):.2f} to {max(guaranteed):.2f}; thin line: this budget",
    ]
