"""Table 3 of dp_sgld: SGD and DP-SGD with ever more of the backbone trained."""

from collections.abc import Sequence
from typing import Any

from dpatlas_workflow.papers.dp_sgld.figures.arms import (
    MEASURED,
    SETTINGS,
    STATED,
    arm_row,
    cells_of,
    headings,
)
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import arms
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Records, Row, Settings, some
from dpatlas_workflow.show.tables import Part

COLUMNS = (
    "data",
    "backbone",
    "n_train",
    "n_test",
    "classes",
    "scaled_down",
    "architecture",
    "unfreeze",
    "trained_parameters",
    "method",
    "epsilon",
    *MEASURED,
    *STATED,
    *SETTINGS[4:],
)
HEADINGS = headings(
    "unfreeze trained_parameters method epsilon accuracy guaranteed_epsilon guaranteed_by relation "
    "lr max_grad_norm noise_multiplier",
    lr="learning rate",
)


def sgld_finetune(records: Records, settings: Settings) -> ShownTable:
    """A block for every data set."""
    blocks = [finetune_rows(record) for record in some(records, "finetune")]
    parts = [finetune_part(rows) for rows in blocks]
    return ShownTable(COLUMNS, [row for rows in blocks for row in rows], parts)


def finetune_rows(record: Record[Any]) -> list[Row]:
    """One row per arm, in the order of the record."""
    return [
        arm_row(record, arm)
        | {
            "architecture": record.facts["backbone"]["architecture"],
            "unfreeze": arm["unfreeze"],
            "trained_parameters": arm["trained_parameters"],
        }
        for arm in arms(record)
    ]


def finetune_part(rows: Sequence[Row]) -> Part:
    """A line per arm of one data set."""
    first = rows[0]
    caption = (
        f"{first['data']} from the backbone {first['backbone']} ({first['architecture']}) with a "
        f"new head: n = {first['n_train']}, {first['steps']} steps, expected batch "
        f"{first['batch']}, delta = {first['delta']:g}. Accuracy in % on {first['n_test']} test "
        f"records, mean ± standard error of {first['runs_used']} runs; learning rates: chosen "
        f"before, on records of no run ({first['tuned_by']})"
    )
    return Part.of(caption, HEADINGS, map(cells_of, rows))
