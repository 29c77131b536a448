"""Tables of dp_sgld that compare accuracies: Tables 1 and 2, and Table 3.

The csv has every arm with all its settings; the parts for people have one block per data set.
"""

from collections.abc import Sequence
from typing import Any

from dpatlas.core.statistics import mean_estimate
from dpatlas.errors import InputError
from dpatlas.papers.dp_sgld.figures.words import in_words
from dpatlas.show.output import Records, Row, Settings, ShownTable
from dpatlas.show.series import backbone_name, of_kind
from dpatlas.show.tables import Math, Measured, Part

TUNED_ON = "validation records"
METHODS = {
    "no-dp": "No DP",
    "dp-sgd": "DP-SGD",
    "dp-sgld": "DP-SGLD",
    "noisy-gd": "DP-SGLD, m = n",
    "repaired-full": "repaired DP-SGLD, full batch",
    "repaired-cyclic": "repaired DP-SGLD, cyclic",
}
COMPARISONS = {
    "published": "published: K = epochs",
    "theorem": "Thm 3.2: K = steps",
    "guaranteed": "equal guarantee",
}
RELATIONS = {"add_remove": "add/remove", "replace_one": "replace one"}
DATA_COLUMNS = (
    "data",
    "features",
    "backbone",
    "n_train",
    "n_validation",
    "n_test",
    "inputs",
    "classes",
    "feature_norm",
    "scaled_down",
)
# What choosing the setting and running it again cost together.
TUNING = ("trials", "with_tuning_epsilon", "all_runs_epsilon")
MEASURED = (
    "accuracy_mean",
    "accuracy_standard_error",
    "runs_used",
    "validation_accuracy",
    "settings_tried",
    *TUNING,
    "tuned_on",
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
ARM = ("method", "comparison", "epsilon", "schedule")
ACCURACY_COLUMNS = (*DATA_COLUMNS, *ARM, *MEASURED, *STATED, *SETTINGS)
FINETUNE_COLUMNS = (
    *(name for name in DATA_COLUMNS if name not in ("features", "inputs", "feature_norm")),
    "architecture",
    "unfreeze",
    "trained_parameters",
    "method",
    "epsilon",
    *MEASURED,
    *STATED,
    *SETTINGS[4:],
)


def sgld_accuracy_constant(records: Records, settings: Settings) -> ShownTable:
    """Table 1: DP-SGLD with constant steps, DP-SGD and SGD."""
    return accuracy_table(records, "constant")


def sgld_accuracy_decreasing(records: Records, settings: Settings) -> ShownTable:
    """Table 2: the same with decreasing steps."""
    return accuracy_table(records, "decreasing")


def accuracy_table(records: Records, schedule: str) -> ShownTable:
    """The arms of one schedule of every `accuracy` record that has it, and a block for each."""
    chosen = [
        record
        for record in of_kind(records, "accuracy")
        if record["spec"]["schedule"] in (schedule, "both")
    ]
    if not chosen:
        raise InputError("--records", f"none of kind accuracy, {schedule}", "at least one")
    blocks = [accuracy_rows(record, schedule) for record in chosen]
    parts = [accuracy_part(rows) for rows in blocks]
    return ShownTable(ACCURACY_COLUMNS, [row for rows in blocks for row in rows], parts)


def accuracy_rows(record: dict[str, Any], schedule: str) -> list[Row]:
    """One row per arm, sorted by epsilon, comparison and method.

    DP-SGD that accounts for add_remove stands for itself in both comparisons that let it.
    """
    fields = record["spec"]
    rows = []
    for found in record["metrics"]["rows"]:
        if found["schedule"] not in (schedule, None):
            continue
        shared = found["method"] == "dp-sgd" and found["comparison"] == "published"
        for comparison in ("published", "theorem") if shared else (found["comparison"],):
            given = {"features": fields["features"], "feature_norm": fields["feature_norm"]}
            rows.append(_row(record, found) | given | {"comparison": comparison})
    methods, comparisons = list(METHODS), [None, *COMPARISONS]
    return sorted(
        rows,
        key=lambda row: (
            row["epsilon"] or 0,
            comparisons.index(row["comparison"]),
            methods.index(row["method"]),
        ),
    )


def accuracy_part(rows: Sequence[Row]) -> Part:
    """What a reader compares, of one data set."""
    first = rows[0]
    seen = in_words(first["features"], first["backbone"])
    caption = (
        f"{first['data']}, {seen}: n = {first['n_train']}, "
        f"{first['inputs']} inputs of norm at most {first['feature_norm']:g} "
        f"({first['scaled_down']} records scaled down), {first['classes']} classes, "
        f"delta = {first['delta']:g}. Accuracy in % on {first['n_test']} test records, mean ± "
        f"standard error of {first['runs_used']} runs; settings: the best of those tried on "
        f"{first['n_validation']} validation records"
    )
    headings = (
        "accounting",
        "method",
        Math(r"\varepsilon"),
        "accuracy",
        Math(r"\varepsilon \text{ claimed}"),
        Math(r"\varepsilon \text{ guaranteed}"),
        "by",
        "neighbours",
        Math(r"\lambda"),
        Math(r"\beta"),
        "L",
        "radius",
        "step size",
        "batch",
        "epochs",
        Math(r"\sigma"),
        "noise multiplier",
        "tried",
    )
    return Part(caption, headings, [_accuracy_cells(row) for row in rows])


def sgld_finetune(records: Records, settings: Settings) -> ShownTable:
    """Table 3: SGD and DP-SGD with ever more of the backbone trained."""
    chosen = of_kind(records, "finetune")
    if not chosen:
        raise InputError("--records", "none of kind finetune", "at least one")
    blocks = [finetune_rows(record) for record in chosen]
    parts = [finetune_part(rows) for rows in blocks]
    return ShownTable(FINETUNE_COLUMNS, [row for rows in blocks for row in rows], parts)


def finetune_rows(record: dict[str, Any]) -> list[Row]:
    """One row per arm, in the order of the record."""
    architecture = record["metrics"]["backbone"]["architecture"]
    return [
        _row(record, found)
        | {"architecture": architecture}
        | {name: found[name] for name in ("unfreeze", "trained_parameters")}
        for found in record["metrics"]["rows"]
    ]


def finetune_part(rows: Sequence[Row]) -> Part:
    """A line per arm of one data set."""
    first = rows[0]
    caption = (
        f"{first['data']} from the backbone {first['backbone']} ({first['architecture']}) with a "
        f"new head: n = {first['n_train']}, {first['steps']} steps, expected batch "
        f"{first['batch']}, delta = {first['delta']:g}. Accuracy in % on {first['n_test']} test "
        f"records, mean ± standard error of {first['runs_used']} runs; learning rate: the best of "
        f"those tried on {first['n_validation']} validation records"
    )
    headings = (
        "trained",
        "parameters",
        "method",
        Math(r"\varepsilon"),
        "accuracy",
        Math(r"\varepsilon \text{ guaranteed}"),
        "by",
        "neighbours",
        "learning rate",
        "clip",
        "noise multiplier",
        "tried",
    )
    cells = [
        (
            row["unfreeze"],
            row["trained_parameters"],
            METHODS[row["method"]],
            row["epsilon"],
            _percent(row),
            row["guaranteed_epsilon"],
            row["guaranteed_by"],
            RELATIONS.get(row["relation"]),
            row["lr"],
            row["max_grad_norm"],
            row["noise_multiplier"],
            row["settings_tried"],
        )
        for row in rows
    ]
    return Part(caption, headings, cells)


def measured(accuracies: Sequence[float]) -> dict[str, Any]:
    """Mean and standard error over runs, the latter None for a single run."""
    found = mean_estimate(accuracies)
    error = found.standard_error if found.runs > 1 else None
    return {"accuracy_mean": found.value, "accuracy_standard_error": error, "runs_used": found.runs}


def _row(record: dict[str, Any], found: dict[str, Any]) -> Row:
    """What all tables say of one arm."""
    fields, metrics = record["spec"], record["metrics"]
    known = (*ARM, *STATED, *SETTINGS, "validation_accuracy", "settings_tried", *TUNING)
    return {
        "data": fields["data"]["name"],
        "backbone": backbone_name(record),
        **{name: metrics[name] for name in DATA_COLUMNS if name in metrics and name != "backbone"},
        **{name: found[name] for name in known if name in found},
        "delta": fields["delta"],
        **measured(found["accuracy"]),
        "tuned_on": TUNED_ON,
        "runs": [record["id"]],
    }


def _accuracy_cells(row: Row) -> tuple:
    return (
        COMPARISONS.get(row["comparison"]),
        METHODS[row["method"]],
        row["epsilon"],
        _percent(row),
        row["claimed_epsilon"],
        row["guaranteed_epsilon"],
        row["guaranteed_by"],
        RELATIONS.get(row["relation"]),
        row.get("lambda"),
        row.get("beta"),
        row.get("lipschitz"),
        row.get("radius"),
        row["lr"],
        row["batch"],
        row["epochs"],
        row.get("sigma"),
        row.get("noise_multiplier"),
        row["settings_tried"],
    )


def _percent(row: Row) -> Measured:
    error = row["accuracy_standard_error"]
    return Measured(100 * row["accuracy_mean"], None if error is None else 100 * error)
