"""What a claim's test hands over, and what it is given: the records of one paper by group."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpatlas.core.statistics import Comparison, Estimate
from dpatlas.errors import InputError
from dpatlas.records import Record


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
        """The smallest number of runs behind any comparison."""
        return min(c.estimate.runs for group in self.alternatives for c in group)


def exact_comparison(
    label: str, value: float, *, above: float = -math.inf, below: float = math.inf
) -> Comparison:
    """The comparison of a computed number, which has no interval, with its limits."""
    return Comparison(label, Estimate(value, 0.0, math.inf, 1), above=above, below=below)


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
    groups: Mapping[str, Sequence[Record[Any, Any]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, settings: Mapping[str, Any], records: Mapping[str, Record[Any, Any]]
    ) -> "PaperRecords":
        """Look up the ids of `settings["groups"]` in `records` by id; InputError if one lacks."""
        groups = {}
        for name, ids in settings.get("groups", {}).items():
            missing = [run_id for run_id in ids if run_id not in records]
            if missing:
                raise InputError(f"records of group {name}", f"no {missing[0]}", "all its runs")
            groups[name] = [records[run_id] for run_id in ids]
        return cls(settings, groups)

    def group(self, name: str) -> Sequence[Record[Any, Any]]:
        """Records of a group; NotRun if the config has none."""
        if not self.groups.get(name):
            raise NotRun(f"the config has no runs of group {name}")
        return self.groups[name]
