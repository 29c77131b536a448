"""What dp_sgld's tables and figures of accuracies say of an arm."""

from collections.abc import Iterable, Mapping
from typing import Any

from dpatlas_workflow.records import Record
from dpatlas_workflow.show.rows import Row, mean_and_error
from dpatlas_workflow.show.tables import Cell, Math, Measured

FEATURES = {"penultimate": "features", "softmax": "softmax outputs", "raw": "raw columns"}
METHODS = {
    "no-dp": "No DP",
    "dp-sgd": "DP-SGD",
    "dp-sgld": "DP-SGLD",
    "noisy-gd": "DP-SGLD, m = n",
    "repaired-full": "repaired DP-SGLD, full batch",
    "repaired-cyclic": "repaired DP-SGLD, cyclic",
}
PERCENT = 100
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
# Of columns that tables for people have, where that is not their name.
HEADINGS: dict[str, Cell] = {
    "epsilon": Math(r"\varepsilon"),
    "best_epoch": "best epoch on test",
    "claimed_epsilon": Math(r"\varepsilon \text{ claimed}"),
    "guaranteed_epsilon": Math(r"\varepsilon \text{ guaranteed}"),
    "guaranteed_by": "by",
    "relation": "neighbours",
    "comparison": "accounting",
    "unfreeze": "trained",
    "trained_parameters": "parameters",
    "l2": Math(r"\lambda"),
    "sigma": Math(r"\sigma"),
    "max_grad_norm": "clip",
    "noise_multiplier": "noise multiplier",
}


def headings(columns: str, lr: str) -> dict[str, Cell]:
    """The heading of each column, named with spaces between; lr: that of the step size."""
    return {name: HEADINGS.get(name, name) for name in columns.split()} | {"lr": lr}


def backbone_name(backbone: Mapping[str, str] | None) -> str | None:
    """The name in the config of the backbone behind a record; None for raw columns."""
    return None if backbone is None else backbone["id"].rpartition("-")[0]


def in_words(features: str, backbone: str | None) -> str:
    """What a regression sees of a record."""
    return f"{FEATURES[features]} of {backbone}" if backbone else FEATURES[features]


def seen_in(record: Record[Any]) -> str:
    """What the regressions of a record see, in words."""
    return in_words(record.spec.features, backbone_name(record.facts["backbone"]))


def arm_row(record: Record[Any], arm: Row) -> Row:
    """What all tables say of one of a record's `dpatlas_workflow.rows.arms`.

    tuned_by: the tuning that chose its settings.
    """
    facts = record.facts
    return {
        "data": record.spec.data.name,
        "backbone": backbone_name(facts["backbone"]),
        **{name: facts[name] for name in ("n_train", "n_test", "classes")},
        **columns_of(arm, (*IDENTITY, *STATED, *SETTINGS)),
        "delta": record.spec.delta,
        **mean_and_error("accuracy", arm["accuracy"]),
        "runs_used": len(arm["accuracy"]),
        "tuned_by": record.spec.tuning,
        "runs": list(record.ids),
    }


def columns_of(arm: Row, names: Iterable[str]) -> Row:
    """Those of the columns that this kind of arm has; they are named as in its record."""
    return {name: arm[name] for name in names if name in arm}


def cells_of(row: Row) -> dict[str, Any]:
    """A row with what people read: names, and accuracy in %."""
    return {
        **row,
        "method": METHODS[row["method"]],
        "accuracy": Measured.of(row, "accuracy", PERCENT),
        "relation": RELATIONS.get(row["relation"]),
    }
