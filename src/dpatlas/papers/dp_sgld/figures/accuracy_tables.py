"""Tables 1 and 2 of dp_sgld: methods compared on frozen features, a block per data set."""

from collections.abc import Sequence

from dpatlas.errors import InputError
from dpatlas.papers.dp_sgld.figures.arms import (
    IDENTITY,
    MEASURED,
    METHODS,
    RELATIONS,
    SETTINGS,
    STATED,
    arm_row,
    percent,
)
from dpatlas.papers.dp_sgld.figures.words import in_words
from dpatlas.papers.dp_sgld.records.accuracy import Metrics, Spec
from dpatlas.records import Record
from dpatlas.show.output import Records, Row, ShownTable
from dpatlas.show.series import of_kind
from dpatlas.show.tables import Cell, Math, Part

COMPARISONS = {
    "published": "published: K = epochs",
    "theorem": "Thm 3.2: K = steps",
    "guaranteed": "equal guarantee",
}
COLUMNS = (
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
    *IDENTITY,
    *MEASURED,
    *STATED,
    *SETTINGS,
)
HEADINGS: dict[str, Cell] = {
    "comparison": "accounting",
    "method": "method",
    "epsilon": Math(r"\varepsilon"),
    "accuracy": "accuracy",
    "claimed_epsilon": Math(r"\varepsilon \text{ claimed}"),
    "guaranteed_epsilon": Math(r"\varepsilon \text{ guaranteed}"),
    "guaranteed_by": "by",
    "relation": "neighbours",
    "lambda": Math(r"\lambda"),
    "beta": Math(r"\beta"),
    "lipschitz": "L",
    "radius": "radius",
    "lr": "step size",
    "batch": "batch",
    "epochs": "epochs",
    "sigma": Math(r"\sigma"),
    "noise_multiplier": "noise multiplier",
    "settings_tried": "tried",
}


def accuracy_table(records: Records, schedule: str) -> ShownTable:
    """The arms of one schedule of every `accuracy` record that has it, and a block for each."""
    with_schedule = [
        record
        for record in of_kind(records, "accuracy")
        if record.spec.schedule in (schedule, "both")
    ]
    if not with_schedule:
        raise InputError("--records", f"none of kind accuracy, {schedule}", "at least one")
    blocks = [accuracy_rows(record, schedule) for record in with_schedule]
    parts = [accuracy_part(rows) for rows in blocks]
    return ShownTable(COLUMNS, [row for rows in blocks for row in rows], parts)


def accuracy_rows(record: Record[Spec, Metrics], schedule: str) -> list[Row]:
    """One row per arm, sorted by epsilon, comparison and method.

    DP-SGD that accounts for add_remove stands for itself in both comparisons that let it.
    """
    shared = {
        "features": record.spec.features,
        "feature_norm": record.spec.feature_norm,
        "inputs": record.metrics.inputs,
        "scaled_down": record.metrics.scaled_down,
    }
    rows = []
    for arm in record.metrics.rows:
        if arm.schedule not in (schedule, None):
            continue
        in_both = arm.method == "dp-sgd" and arm.comparison == "published"
        for comparison in ("published", "theorem") if in_both else (arm.comparison,):
            rows.append(arm_row(record, arm) | shared | {"comparison": comparison})
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
    lines = [
        {
            **row,
            "comparison": COMPARISONS.get(row["comparison"]),
            "method": METHODS[row["method"]],
            "accuracy": percent(row),
            "relation": RELATIONS.get(row["relation"]),
        }
        for row in rows
    ]
    return Part.of(caption, HEADINGS, lines)
