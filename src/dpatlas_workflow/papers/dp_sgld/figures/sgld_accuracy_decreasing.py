"""Table 2 of dp_sgld."""

from dpatlas_workflow.papers.dp_sgld.figures.accuracy_tables import accuracy_table
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Records, Settings


def sgld_accuracy_decreasing(records: Records, settings: Settings) -> ShownTable:
    """Table 2: DP-SGLD with decreasing steps, DP-SGD and SGD."""
    return accuracy_table(records, "decreasing")
