"""Tables 1 and 2 of dp_sgld: the paper's protocol first, then tuned methods; a block per set."""

from collections.abc import Sequence
from typing import Any

from dpatlas.errors import InputError
from dpatlas_workflow.papers.dp_sgld.figures.arms import (
    IDENTITY,
    MEASURED,
    METHODS,
    PERCENT,
    SETTINGS,
    STATED,
    arm_row,
    cells_of,
    columns_of,
    headings,
    in_words,
)
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import arms
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Records, Row, mean_and_error, of_kind
from dpatlas_workflow.show.tables import Measured, Part

# Behind the name of a method whose weights are not decayed.
WITHOUT_L2: dict[float | None, str] = {0.0: ", no L2 term"}
COMPARISONS = {
    "published": "published: K = epochs",
    "theorem": "Thm 3.2: K = steps",
    "guaranteed": "equal guarantee",
}
COLUMNS = (
    "protocol",
    "data",
    "features",
    "backbone",
    "n_train",
    "n_test",
    "inputs",
    "classes",
    "feature_norm",
    "scaled_down",
    *IDENTITY,
    "reading",
    *MEASURED,
    "best_epoch_mean",
    "best_epoch_standard_error",
    *STATED,
    *SETTINGS,
    "weight_decay",
)
TUNED = headings(
    "comparison method epsilon accuracy claimed_epsilon guaranteed_epsilon guaranteed_by relation "
    "l2 lr batch epochs max_grad_norm sigma noise_multiplier",
    lr="step size",
)
PAPER = headings(
    "reading method accuracy best_epoch claimed_epsilon guaranteed_epsilon relation l2 lr sigma "
    "max_grad_norm noise_multiplier",
    lr="first step",
)


def accuracy_table(records: Records, schedule: str) -> ShownTable:
    """The arms of one schedule: of every `protocol` record, then of every `accuracy` record.

    InputError if there is none.
    """
    as_published = [protocol_rows(record, schedule) for record in of_kind(records, "protocol")]
    tuned = [
        accuracy_rows(record, schedule)
        for record in of_kind(records, "accuracy")
        if record.spec.schedule in (schedule, "both")
    ]
    as_published = [rows for rows in as_published if rows]
    if not as_published and not tuned:
        raise InputError("--records", f"none of kind accuracy, {schedule}", "at least one")
    parts = [*map(protocol_part, as_published), *map(accuracy_part, tuned)]
    return ShownTable(COLUMNS, [row for rows in (*as_published, *tuned) for row in rows], parts)


def protocol_rows(record: Record[Any], schedule: str) -> list[Row]:
    """One row per arm of the schedule, in the order of the record."""
    return [
        _row(record, arm)
        | mean_and_error("best_epoch", arm["best_epoch_accuracy"])
        | {"protocol": "paper"}
        for arm in arms(record)
        if arm["schedule"] == schedule
    ]


def _row(record: Record[Any], arm: Row) -> Row:
    return {
        **arm_row(record, arm),
        **columns_of(arm, ("reading", "weight_decay")),
        "features": record.spec.features,
        "feature_norm": record.spec.feature_norm,
        "inputs": record.facts["inputs"],
        "scaled_down": sum(row["scaled_down"] for row in record.tables["seen"]),
    }


def accuracy_rows(record: Record[Any], schedule: str) -> list[Row]:
    """One row per arm, sorted by epsilon, comparison and method.

    DP-SGD that accounts for add_remove stands for itself in both comparisons that let it.
    """
    rows = []
    for arm in arms(record):
        if arm["schedule"] in (schedule, None):
            in_both = arm["method"] == "dp-sgd" and arm["comparison"] == "published"
            for comparison in ("published", "theorem") if in_both else (arm["comparison"],):
                rows.append(_row(record, arm) | {"protocol": "tuned", "comparison": comparison})
    methods, comparisons = list(METHODS), [None, *COMPARISONS]
    return sorted(
        rows,
        key=lambda row: (
            row["epsilon"] or 0,
            comparisons.index(row["comparison"]),
            methods.index(row["method"]),
        ),
    )


def protocol_part(rows: Sequence[Row]) -> Part:
    """The paper's own comparison on one data set."""
    first = rows[0]
    lines = [
        {
            **cells_of(row),
            "method": METHODS[row["method"]] + WITHOUT_L2.get(row["weight_decay"], ""),
            "best_epoch": Measured.of(row, "best_epoch", PERCENT),
            "l2": _l2(row),
        }
        for row in rows
    ]
    caption = (
        f"The paper's protocol: {_in_words(first)} One step size, {first['epochs']:g} epochs, "
        f"expected batch {first['batch']} and lambda for all methods; DP-SGLD's noise by Thm 3.2 "
        f"with K = epochs; DP-SGD's clip bound chosen before, on records of no run "
        f"({first['tuned_by']}). The best epoch is chosen on the test records, as the authors' "
        "code does, which no guarantee covers"
    )
    return Part.of(caption, PAPER, lines)


def accuracy_part(rows: Sequence[Row]) -> Part:
    """What a reader compares, of one data set with tuned methods."""
    first = rows[0]
    lines = [
        {
            **cells_of(row),
            "comparison": COMPARISONS.get(row["comparison"]),
            "l2": _l2(row),
        }
        for row in rows
    ]
    caption = (
        f"Tuned methods, ours: {_in_words(first)} Settings: chosen for every method before, on "
        f"records of no run ({first['tuned_by']})"
    )
    return Part.of(caption, TUNED, lines)


def _l2(row: Row) -> float:
    return row["lambda"] if row["weight_decay"] is None else row["weight_decay"]


def _in_words(row: Row) -> str:
    """The data set of a block."""
    seen = in_words(row["features"], row["backbone"])
    return (
        f"{row['data']}, {seen}: n = {row['n_train']}, {row['inputs']} inputs of norm at most "
        f"{row['feature_norm']:g} ({row['scaled_down']} records scaled down in all runs), "
        f"{row['classes']} classes, delta = {row['delta']:g}. Accuracy in % on {row['n_test']} "
        f"test records, mean ± standard error of {row['runs_used']} runs."
    )
