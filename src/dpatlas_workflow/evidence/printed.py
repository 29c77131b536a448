"""The papers' printed tables beside ours: value by value, with differences and intervals.

A paper that prints tables has a package `printed` beside its claims: the tables as csv, and
`TABLES`, which pairs the rows of a table of ours with what is printed. Outside the paper tier other
data and networks stand for the paper's. Numbers of other data are not subtracted: only signs and
orders can be compared.
"""

import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dpatlas_workflow.blocks import Block
from dpatlas_workflow.statistics import Estimate

Rows = Sequence[Mapping[str, str]]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class PrintedComparison:
    """A printed number and ours, in the same unit.

    printed_error: its printed spread, as a standard error; 0 where none is printed. ours: from the
    runs of the arm in `setting`. printed_degrees: degrees of freedom of `printed_error`. same_data:
    whether ours is of the paper's data set and its classes; else there is no difference.
    """

    what: str
    printed: float
    printed_error: float
    setting: str
    ours: Estimate
    printed_degrees: float = math.inf
    same_data: bool = field(kw_only=True)

    @property
    def interval(self) -> tuple[float, float]:
        """Of our value, at level `CONFIDENCE`."""
        return self.ours.interval(CONFIDENCE)

    @property
    def difference(self) -> float | None:
        """Ours minus printed; None across data sets."""
        return self.ours.value - self.printed if self.same_data else None

    @property
    def difference_interval(self) -> tuple[float, float] | None:
        """Of the difference, both errors taken together (Welch, 1947)."""
        if self.difference is None:
            return None
        ours, printed = self.ours.standard_error**2, self.printed_error**2
        error, degrees = math.sqrt(ours + printed), self.ours.degrees
        if printed and math.isfinite(ours):
            parts = ours**2 / self.ours.degrees + printed**2 / self.printed_degrees
            degrees = (ours + printed) ** 2 / parts if parts else math.inf
        together = Estimate(self.difference, error, degrees, self.ours.runs)
        return together.interval(CONFIDENCE)


Pairs = Callable[[Rows], Iterator[PrintedComparison]]


def printed_comparisons(block: Block, name: str, rows: Rows) -> list[PrintedComparison]:
    """Pairs for the table `name` of a block with these csv rows; none if the paper prints none."""
    if importlib.util.find_spec(f"{block.package}.printed") is None:
        return []
    tables: Mapping[str, Pairs] = block.load("printed").TABLES
    return list(tables[name](rows)) if name in tables else []


def is_same_data(theirs: Mapping[str, str], ours: Mapping[str, str]) -> bool:
    """Whether a row of ours is of the data set and classes of a row of a paper's `data.csv`."""
    name = ours["data"].partition("-")[0]
    return (name, ours["classes"]) == (theirs["data"], theirs["classes"])


def estimate(row: Mapping[str, str], mean: str, error: str, unit: float = 1.0) -> Estimate:
    """A mean over runs from a row of a csv, in `unit`. error: column of its standard error."""
    runs = int(row["runs_used"])
    spread = unit * float(row[error]) if row[error] and runs > 1 else math.inf
    return Estimate(unit * float(row[mean]), spread, max(runs - 1.0, 1.0), runs)
