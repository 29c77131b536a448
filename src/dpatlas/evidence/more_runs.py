"""Which conditions to give more runs, so that most inconclusive claims are decided per CPU time.

A condition is a set of settings whose runs are repeated; an entry of the claims reads some of them.
An entry is decided at looks, so its conditions are raised from look to look.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpatlas.evidence.looks import LOOKS

# A round is filled up to this share of the time that is left: what it shows directs the next one.
SHARE = 0.5
# A round is only begun if it may take so many times its estimate, the mean over the runs so far.
SLACK = 1.1


@dataclass(frozen=True)
class Condition:
    """runs: that are there. block: runs of a job. cpu_s: of a run, measured or estimated."""

    runs: int
    block: int
    cpu_s: float

    def raised(self, runs: int) -> int:
        """The runs that it has once it has at least so many: whole blocks."""
        return max(self.runs, math.ceil(runs / self.block) * self.block)


@dataclass(frozen=True)
class OpenEntry:
    """An inconclusive entry that more runs may decide.

    look: at which it stands, 0 before the first. chances: to be decided at each later look, for the
    effect and the spread seen. conditions: that its test reads.
    """

    id: str
    look: int
    chances: Mapping[int, float]
    conditions: tuple[str, ...]

    @property
    def next_look(self) -> int | None:
        """The first look after the last one; None after the last of all."""
        return next((look for look in LOOKS if look > self.look), None)


@dataclass(frozen=True)
class Round:
    """What to do next: runs by condition, the entries for which, and the estimated CPU seconds."""

    runs: Mapping[str, int]
    entries: tuple[str, ...]
    cpu_s: float


def next_round(
    entries: Iterable[OpenEntry], conditions: Mapping[str, Condition], budget_s: float
) -> Round | None:
    """The raises that promise most decided entries per CPU second; None if none is affordable.

    Entries are taken one by one, each up to its next look: the one for which some later look
    promises most, counting all entries that this look would serve. A raise is affordable if it
    fits into `budget_s` with `SLACK`; the round ends at `SHARE` of that.
    """
    waiting = [
        each
        for each in entries
        if each.next_look and any(each.chances.values()) and not _served(each, conditions, {})
    ]
    runs: dict[str, int] = {}
    chosen: list[str] = []
    spent = 0.0
    while waiting and not (chosen and spent >= SHARE * budget_s):
        costs = {each.id: _cost(each, each.next_look, conditions, runs) for each in waiting}
        affordable = [each for each in waiting if SLACK * (spent + costs[each.id]) <= budget_s]
        if not affordable:
            break
        best = max(affordable, key=lambda entry: _promise(entry, waiting, conditions, runs))
        spent += costs[best.id]
        runs = _after(best, best.next_look, conditions, runs)
        served = [each.id for each in waiting if _served(each, conditions, runs)]
        chosen += served
        waiting = [each for each in waiting if each.id not in served]
    return Round(runs, tuple(chosen), spent) if runs else None


def _promise(
    entry: OpenEntry,
    waiting: Sequence[OpenEntry],
    conditions: Mapping[str, Condition],
    runs: Mapping[str, int],
) -> float:
    """The most decided entries per CPU second, over the looks to which it may come to be raised."""
    best = 0.0
    for look in (look for look in LOOKS if look > entry.look):
        after = _after(entry, look, conditions, runs)
        decided = sum(
            each.chances.get(look, 0.0) for each in waiting if _has(each, look, conditions, after)
        )
        # What has the runs already, but for another entry of this round, costs nothing more.
        spent = max(_cost(entry, look, conditions, runs), 1e-9)
        best = max(best, decided / spent)
    return best


def _cost(
    entry: OpenEntry,
    look: int | None,
    conditions: Mapping[str, Condition],
    runs: Mapping[str, int],
) -> float:
    """CPU seconds from the raises so far to a look at the entry."""
    after = _after(entry, look, conditions, runs)
    return sum(
        (number - max(runs.get(name, 0), conditions[name].runs)) * conditions[name].cpu_s
        for name, number in after.items()
    )


def _after(
    entry: OpenEntry,
    look: int | None,
    conditions: Mapping[str, Condition],
    runs: Mapping[str, int],
) -> dict[str, int]:
    """The raises so far and those that a look at the entry needs."""
    needed = {
        name: conditions[name].raised(look or 0)
        for name in entry.conditions
        if max(conditions[name].runs, runs.get(name, 0)) < (look or 0)
    }
    return {**runs, **needed}


def _served(entry: OpenEntry, conditions: Mapping[str, Condition], runs: Mapping[str, int]) -> bool:
    """Whether the entry has the runs of its next look."""
    return _has(entry, entry.next_look or 0, conditions, runs)


def _has(
    entry: OpenEntry, look: int, conditions: Mapping[str, Condition], runs: Mapping[str, int]
) -> bool:
    return all(max(conditions[name].runs, runs.get(name, 0)) >= look for name in entry.conditions)
