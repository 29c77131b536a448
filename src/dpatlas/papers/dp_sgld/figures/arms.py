"""What dp_sgld's tables and figures of accuracies say of an arm."""

from collections.abc import Iterable, Sequence
from typing import Any

from dpatlas.papers.dp_sgld.figures.words import backbone_name
from dpatlas.papers.dp_sgld.records.trained import ArmRow
from dpatlas.records import Record
from dpatlas.show.output import Row
from dpatlas.show.rows import over_runs
from dpatlas.show.tables import Measured

METHODS = {
    "no-dp": "No DP",
    "dp-sgd": "DP-SGD",
    "dp-sgld": "DP-SGLD",
    "noisy-gd": "DP-SGLD, m = n",
    "repaired-full": "repaired DP-SGLD, full batch",
    "repaired-cyclic": "repaired DP-SGLD, cyclic",
}
RELATIONS = {"add_remove": "add/remove", "replace_one": "replace one"}
MEASURED = (
    "accuracy_mean",
    "accuracy_standard_error",
    "runs_used",
    "tuned_by",
)
STATED = (
    "delta",
    "claimed_epsilon",
    "ordinary_epsilon",
    "hidden_state_epsilon",
    "guaranteed_epsilon",
    "guaranteed_by",
    "relation",
)
SETTINGS = (
    "lambda",
    "beta",
    "lipschitz",
    "radius",
    "lr",
    "batch",
    "epochs",
    "steps",
    "sampler",
    "sigma",
    "max_grad_norm",
    "noise_multiplier",
)
IDENTITY = ("method", "comparison", "epsilon", "schedule")


def arm_row(record: Record[Any, Any], arm: ArmRow) -> Row:
    """What all tables say of one arm; tuned_by: the tuning that chose its settings."""
    metrics = record.metrics
    return {
        "data": record.spec.data.name,
        "backbone": backbone_name(metrics.backbone),
        "n_train": metrics.n_train,
        "n_test": metrics.n_test,
        "classes": metrics.classes,
        **columns_of(arm, (*IDENTITY, *STATED, *SETTINGS)),
        "delta": record.spec.delta,
        **measured(arm.accuracy),
        "tuned_by": record.spec.tuning,
        "runs": list(record.ids),
    }


def columns_of(arm: ArmRow, names: Iterable[str]) -> Row:
    """Those of the columns that this kind of arm has; they are named as in its record."""
    values = arm.model_dump()
    return {name: values[name] for name in names if name in values}


def measured(accuracies: Sequence[float]) -> dict[str, Any]:
    """Mean and standard error over runs, the latter None for a single run."""
    row = over_runs(accuracies)
    return {
        "accuracy_mean": row["value"],
        "accuracy_standard_error": row["standard_error"],
        "runs_used": row["runs_used"],
    }


def percent(row: Row) -> Measured:
    """Accuracy in %, with the standard error if there are several runs."""
    error = row["accuracy_standard_error"]
    return Measured(100 * row["accuracy_mean"], None if error is None else 100 * error)


def best_percent(row: Row) -> Measured:
    """Accuracy of the best epoch in %."""
    error = row["best_epoch_standard_error"]
    return Measured(100 * row["best_epoch_mean"], None if error is None else 100 * error)
