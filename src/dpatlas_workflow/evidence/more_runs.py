"""Which conditions to give more runs, so that most inconclusive claims are decided per CPU time.

A condition is a set of settings whose runs are repeated; an entry of the claims reads some of them.
An entry is decided at looks, so its conditions are raised from look to look.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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

    chances: to be decided at each look to come, for the effect and the spread seen. conditions:
    that its test reads.
    """

    id: str
    chances: Mapping[int, float]
    conditions: tuple[str, ...]

    @property
    def next_look(self) -> int:
        """The first of the looks to come."""
        return min(self.chances)


@dataclass(frozen=True)
class Round:
    """What to do next: runs by condition, the entries for which, and the estimated CPU seconds."""

    runs: Mapping[str, int]
    entries: tuple[str, ...]
    cpu_s: float


@dataclass(frozen=True)
class Raises:
    """The raises so far: runs by condition, of those that get more than are there."""

    conditions: Mapping[str, Condition]
    runs: Mapping[str, int]

    def runs_of(self, name: str) -> int:
        """Runs of a condition once it is raised."""
        return max(self.conditions[name].runs, self.runs.get(name, 0))

    def needed(self, entry: OpenEntry, look: int) -> dict[str, int]:
        """The raises that a look at the entry needs beyond these."""
        short = (name for name in entry.conditions if self.runs_of(name) < look)
        return {name: self.conditions[name].raised(look) for name in short}

    def up_to(self, entry: OpenEntry, look: int) -> "Raises":
        """These raises and those that a look at the entry needs."""
        return Raises(self.conditions, {**self.runs, **self.needed(entry, look)})

    def cost(self, entry: OpenEntry, look: int) -> float:
        """CPU seconds from these raises to a look at the entry."""
        needed = self.needed(entry, look).items()
        return sum((to - self.runs_of(name)) * self.conditions[name].cpu_s for name, to in needed)

    def promise(self, entry: OpenEntry, waiting: Sequence[OpenEntry]) -> float:
        """The most decided entries per CPU second, over the looks to which it may be raised."""
        best = 0.0
        for look in entry.chances:
            after = self.up_to(entry, look)
            decided = sum(e.chances.get(look, 0.0) for e in waiting if not after.needed(e, look))
            # What has the runs already, but for another entry of this round, costs nothing more.
            best = max(best, decided / max(self.cost(entry, look), 1e-9))
        return best


def next_round(
    entries: Iterable[OpenEntry], conditions: Mapping[str, Condition], budget_s: float
) -> Round | None:
    """The raises that promise most decided entries per CPU second; None if none is affordable.

    Entries are taken one by one, each up to its next look: the one for which some later look
    promises most, counting all entries that this look would serve. A raise is affordable if it
    fits into `budget_s` with `SLACK`; the round ends at `SHARE` of that.
    """
    raises = Raises(conditions, {})
    open_entries = (entry for entry in entries if any(entry.chances.values()))
    waiting = [entry for entry in open_entries if raises.needed(entry, entry.next_look)]
    chosen: list[str] = []
    spent = 0.0
    while waiting and not (chosen and spent >= SHARE * budget_s):
        costs = {entry.id: raises.cost(entry, entry.next_look) for entry in waiting}
        affordable = [entry for entry in waiting if SLACK * (spent + costs[entry.id]) <= budget_s]
        if not affordable:
            break
        best = max(affordable, key=lambda entry: raises.promise(entry, waiting))
        spent += costs[best.id]
        raises = raises.up_to(best, best.next_look)
        still = [entry for entry in waiting if raises.needed(entry, entry.next_look)]
        chosen += [entry.id for entry in waiting if entry not in still]
        waiting = still
    return Round(raises.runs, tuple(chosen), spent) if raises.runs else None
