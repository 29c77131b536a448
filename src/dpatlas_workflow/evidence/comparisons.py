"""What a claim's test hands over, and what it is given: the records of one paper by group."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpatlas.errors import InputError
from dpatlas_workflow.records import Record
from dpatlas_workflow.registry import block_of
from dpatlas_workflow.statistics import Comparison

if TYPE_CHECKING:
    # The light core has no pandas, and it reads published comparisons.
    import pandas as pd


@dataclass(frozen=True)
class Evidence:
    """The comparisons of one entry.

    The entry holds if every comparison of some alternative holds; most entries have one alternative
    ("all of these").
    """

    alternatives: Sequence[Sequence[Comparison]]

    @property
    def comparisons(self) -> int:
        """How many intervals are drawn at once."""
        return sum(map(len, self.alternatives))

    @property
    def runs(self) -> int:
        """The smallest number of runs behind any comparison that has an interval, if one has."""
        estimates = [c.estimate for group in self.alternatives for c in group]
        with_interval = [each for each in estimates if not each.exact]
        return min(each.runs for each in with_interval or estimates)


class NotRun(Exception):
    """The config has no run that could test the entry; the message says what is missing."""


class Undecided(Exception):
    """Runs exist and give no interval (they diverged, say); the message says why."""

    def __init__(self, reason: str, runs: int = 0):
        self.runs = runs
        super().__init__(reason)


@dataclass(frozen=True)
class PaperRecords:
    """One paper's settings and records by group, as the config names them."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, Sequence[Record[Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, Any], records: Mapping[str, Record[Any]]) -> "PaperRecords":
        """Look up the ids of `settings["groups"]` in `records` by id; InputError if one lacks."""
        groups = {}
        for name, ids in settings.get("groups", {}).items():
            missing = [run_id for run_id in ids if run_id not in records]
            if missing:
                raise InputError(f"records of group {name}", f"no {missing[0]}", "all its runs")
            # Each condition once, whichever of its blocks of runs are named.
            groups[name] = list({records[each].id: records[each] for each in ids}.values())
        return cls(settings, groups)

    def computed(self, table: str) -> "Callable[[Sequence[Record[Any]]], pd.DataFrame] | None":
        """What makes a table of the paper's `claims.py`; None for a table of its records."""
        record = next(record for group in self.groups.values() for record in group)
        return block_of(record.key).load("claims").TABLES.get(table)

    def cut(self, runs: int) -> "PaperRecords":
        """The same conditions with their first `runs` runs, or all if they have fewer."""
        groups = {name: [each.cut(runs) for each in group] for name, group in self.groups.items()}
        return PaperRecords(self.settings, groups)

    def group(self, name: str) -> Sequence[Record[Any]]:
        """Records of a group; NotRun if the config has none."""
        if not self.groups.get(name):
            if (counts := self.settings.get("waiting", {}).get(name)) is not None:
                done, asked = counts
                raise NotRun(f"waits for runs: {done} of the {asked} jobs of group {name} are done")
            raise NotRun(f"the config has no runs of group {name}")
        return self.groups[name]
