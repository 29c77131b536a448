"""Table 3 of dp_sgld: SGD and DP-SGD with ever more of the backbone trained."""

from dpatlas_workflow.papers.dp_sgld.figures.arms import (
    MEASURED,
    SETTINGS,
    STATED,
    arm_row,
    cells_of,
    columns_of,
    headings,
)
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
    """A block for every data set, with a line per arm in the order of the record."""
    rows: list[Row] = []
    parts = []
    for record in some(records, "finetune"):
        architecture = {"architecture": record.facts["backbone"]["architecture"]}
        of_arms = ("unfreeze", "trained_parameters")
        block = [
            arm_row(record, arm) | architecture | columns_of(arm, of_arms) for arm in arms(record)
        ]
        first = block[0]
        caption = (
            f"{first['data']} from the backbone {first['backbone']} ({first['architecture']}) with "
            f"a new head: n = {first['n_train']}, {first['steps']} steps, expected batch "
            f"{first['batch']}, delta = {first['delta']:g}. Accuracy in % on {first['n_test']} "
            f"test records, mean ± standard error of {first['runs_used']} runs; learning rates: "
            f"chosen before, on records of no run ({first['tuned_by']})"
        )
        parts.append(Part.of(caption, HEADINGS, map(cells_of, block)))
        rows += block
    return ShownTable(COLUMNS, rows, parts)
