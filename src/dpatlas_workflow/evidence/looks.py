"""The verdict on one statistical entry: planned looks at its runs, the first that decides stands.

At every look each comparison gets a two-sided Student t interval over the runs so far, at level
1 - `error`. The interval that counts is the intersection with those of earlier looks: the truth
lies in it unless one of them misses. So the chance of a wrong verdict is at most the sum of the
errors of all planned intervals that matter to it, whenever the runs stop, whoever decides that they
go on, and however runs, comparisons and entries depend on each other. docs/verdicts.md has the
proof and a simulation.
"""

import bisect
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dpatlas_workflow.evidence.comparisons import Evidence
from dpatlas_workflow.evidence.verdicts import OPPOSITE, SMALLER
from dpatlas_workflow.statistics import (
    FAILS,
    HOLDS,
    OPEN,
    POWER,
    Comparison,
    Judged,
    refutation,
    weigh,
)

# Numbers of runs at which verdicts are read.
LOOKS = (6, 12, 24, 48, 96)
# Level of each interval before the first look, where nothing is decided.
ALONE = 0.95
# Above this number of runs, `runs_to_decide` does not search.
MOST_RUNS = 1_000_000
EVERYTHING = (-math.inf, math.inf)
# Share of runs that may have one value; of more, the few others would decide alone.
MOST_EQUAL = 0.5
SEEN, AT_MOST = "the opposite was seen", "the effect is at most the margin"
OUTSIDE = f"{SEEN}: outside the range"
CLAIMED_SIDE = "estimate on the claimed side, at most the margin"
POSITIVE_AT_MOST = "positive, at most the margin"
SURELY = ", as its interval shows"


@dataclass(frozen=True)
class Decision:
    """What the looks at an entry gave.

    answer: HOLDS, FAILS or OPEN. because: in words, empty where the answer says it all. failure: of
    an answer that FAILS, OPPOSITE or SMALLER. decisive: the comparison that decides, with its
    interval at this `level`. look: runs of the look that decided, or of the last one; 0 if there
    are too few runs for the first. evidence: at that look. judged: all its comparisons with their
    intervals at this level, by alternative. to_hold, to_fail: the same with the intervals that
    could reproduce the entry, and that could refute it.
    """

    answer: str
    because: str
    decisive: Judged
    level: float
    look: int
    evidence: Evidence
    judged: Sequence[Sequence[Judged]]
    to_hold: Sequence[Sequence[Judged]]
    to_fail: Sequence[Sequence[Judged]]
    failure: str = ""

    def closest(self, count: int) -> list[tuple[Judged, bool, bool]]:
        """The comparison that decides, then those next closest to failing, or least clear of it.

        Each with whether it holds and whether it fails, by the interval that counts for either.
        """
        groups = (chain.from_iterable(of) for of in (self.judged, self.to_hold, self.to_fail))
        every = [(j, hold.holds, fail.fails) for j, hold, fail in zip(*groups, strict=True)]
        every.sort(key=lambda row: row[0].most if self.answer == FAILS else row[0].least)
        every.sort(key=lambda row: row[0] is not self.decisive)
        return every[:count]

    @property
    def without_interval(self) -> str:
        """Why the comparison that decides has no interval; empty if it has one, or no look yet."""
        if not self.look or (self.decisive.low, self.decisive.high) != EVERYTHING:
            return ""
        comparison = self.decisive.comparison
        if _no_spread(comparison):
            return f"{comparison.estimate.equal:.0%} of the runs are equal: no interval"
        return "the intervals of two looks exclude each other"


def decide(evidence_at: Callable[[int], Evidence], error: float) -> Decision:
    """The first look that decides, else the last one for which there are enough runs.

    evidence_at: the entry's comparisons over its first so many runs; what it raises comes through.
    error: chance to miss of each interval at one look, shared among alternatives (to hold) and
    among the comparisons of an alternative (to fail).
    """
    to_hold, to_fail = Intervals(), Intervals()
    last: Decision | None = None
    for look in LOOKS:
        evidence = evidence_at(look)
        if evidence.runs < look:
            return last or _without_look(evidence)
        last = _look(evidence, look, error, to_hold, to_fail)
        if last.answer != OPEN and not only_vetoes(evidence, last.answer):
            return last
    assert last is not None
    return last


def decide_once(evidence: Evidence, error: float) -> Decision:
    """The verdict on all runs at once, for entries whose error is their own; look is 0.

    Equal runs count: what is computed without chance needs no spread.
    """
    return _look(evidence, 0, error, Intervals(spread=False), Intervals(spread=False))


def only_vetoes(evidence: Evidence, answer: str) -> bool:
    """Whether an entry that holds does so because vetoes alone did not refute it.

    A later look may still refute it.
    """
    alone = any(all(c.veto for c in group) for group in evidence.alternatives)
    return answer == HOLDS and alone


class Intervals:
    """The intervals of an entry's comparisons, each intersected with those of earlier looks.

    An interval belongs to the quantity that its label names: where a label depends on the runs, the
    intervals of another label do not count. Runs of which more than half are equal give no
    interval, and intervals of two looks that exclude each other are both dropped, with all later
    ones. spread: whether runs need a spread.
    """

    def __init__(self, *, spread: bool = True) -> None:
        self._spread = spread
        self._seen: dict[tuple[object, ...], tuple[float, float]] = {}

    def judge(
        self, alternatives: Sequence[Sequence[Comparison]], level: float
    ) -> list[list[Judged]]:
        """The comparisons of one look with their intervals at `level`."""
        groups: list[list[Judged]] = []
        for number, comparisons in enumerate(alternatives):
            repeated: Counter[object] = Counter()
            groups.append([])
            for comparison in comparisons:
                name = (comparison.label, comparison.above, comparison.below, comparison.veto)
                repeated[name] += 1
                ends = self._intersected((number, name, repeated[name]), comparison, level)
                groups[-1].append(Judged(comparison, *ends))
        return groups

    def _intersected(
        self, key: tuple[object, ...], comparison: Comparison, level: float
    ) -> tuple[float, float]:
        low, high = comparison.estimate.interval(level)
        if self._spread and _no_spread(comparison):
            low, high = EVERYTHING
        before = self._seen.get(key, EVERYTHING)
        if before[0] <= before[1]:
            before = self._seen[key] = max(low, before[0]), min(high, before[1])
        return before if before[0] <= before[1] else EVERYTHING


def with_margin(evidence: Evidence, margin: float) -> Evidence:
    """The evidence with this margin on every directional comparison."""
    alternatives = [
        [replace(c, margin=margin) if c.directional else c for c in group]
        for group in evidence.alternatives
    ]
    return replace(evidence, alternatives=alternatives)


def chance_to_decide(evidence: Evidence, error: float, runs: int) -> float:
    """Chance that a look at so many runs decides the entry, for the effect and the spread seen.

    Of that look alone, without the intersection with others; where several comparisons have to
    hold, of the one that is least likely to.
    """
    hold, fail = _levels(evidence, error)
    at = [[_scaled(c, runs) for c in group] for group in evidence.alternatives]

    def to_hold(comparison: Comparison) -> float:
        inside = min(_distances(comparison, comparison.estimate.value))
        return 1.0 if comparison.veto else comparison.estimate.power(hold, inside)

    def to_fail(comparison: Comparison) -> float:
        beyond = comparison.margin - min(_distances(comparison, comparison.estimate.value))
        return 0.0 if comparison.shows_only else comparison.estimate.power(fail, beyond)

    return max(max(min(map(to_hold, of)) for of in at), min(max(map(to_fail, of)) for of in at))


def runs_to_decide(evidence: Evidence, error: float, after: int) -> int | None:
    """The least number of runs whose `chance_to_decide` is `statistics.POWER` or more.

    A look after `after` if one suffices, else a number above the last look; None if there is none
    up to `MOST_RUNS`.
    """

    def decides(runs: int) -> bool:
        return chance_to_decide(evidence, error, runs) >= POWER

    for look in LOOKS:
        if look > after and decides(look):
            return look
    low, high = LOOKS[-1], 2 * LOOKS[-1]
    while not decides(high):
        low, high = high, 2 * high
        if low > MOST_RUNS:
            return None
    # Where some number of runs is likely to decide, more are.
    return bisect.bisect_left(range(high), True, low + 1, key=decides)


def _look(
    evidence: Evidence, look: int, error: float, to_hold: Intervals, to_fail: Intervals
) -> Decision:
    hold_level, fail_level = _levels(evidence, error)
    # A claim whose effect is at most 0 has such a comparison in every alternative, and all of an
    # alternative have to hold: one wrong interval in each at most, so alternatives share the error.
    # A claim that is true by the margin has an alternative of which every comparison is, any of
    # which may fail wrongly: these share it.
    may_hold = to_hold.judge(evidence.alternatives, hold_level)
    answer, decisive = weigh(may_hold)
    may_fail = to_fail.judge(evidence.alternatives, fail_level)
    refuting = refutation(may_fail)
    judged, level, because, failure = may_hold, hold_level, "", ""
    if answer == HOLDS:
        surely = refuting is not None and not refuting.opposite
        because = how_held(refuting if refuting and surely else decisive, surely=surely)
    elif refuting:
        answer, decisive, judged, level = FAILS, refuting, may_fail, fail_level
        because = how_failed(refuting)
        failure = OPPOSITE if refuting.opposite else SMALLER
    elif answer == FAILS:
        # Only by intervals that are too narrow to refute one of so many comparisons.
        answer, decisive, judged, level = OPEN, weigh(may_fail)[1], may_fail, fail_level
    of_look = (look, evidence, judged, may_hold, may_fail)
    return Decision(answer, because, decisive, level, *of_look, failure=failure)


def _without_look(evidence: Evidence) -> Decision:
    judged = Intervals().judge(evidence.alternatives, ALONE)
    return Decision(OPEN, "", weigh(judged)[1], ALONE, 0, evidence, judged, judged, judged)


def _levels(evidence: Evidence, error: float) -> tuple[float, float]:
    """Of the intervals among which the error of a look is shared: to hold, and to fail."""
    groups = evidence.alternatives
    return 1 - error / len(groups), 1 - error / max(map(len, groups))


def how_held(decisive: Judged, *, surely: bool) -> str:
    """What the margin says of an entry that holds; empty where the estimate exceeds it.

    surely: whether the interval shows that the effect is at most the margin.
    """
    effect, margin = decisive.effect, decisive.comparison.margin
    if margin and effect < margin:
        below = f"estimated effect {effect:.2g} is below the margin {margin:.2g}"
        return below + SURELY * surely
    return POSITIVE_AT_MOST if surely else ""


def how_failed(decisive: Judged) -> str:
    """What the interval of the comparison shows that refutes an entry."""
    if not decisive.opposite:
        return CLAIMED_SIDE if decisive.effect > 0 else AT_MOST
    comparison = decisive.comparison
    two_sided = math.isfinite(comparison.above) and math.isfinite(comparison.below)
    return OUTSIDE if two_sided else SEEN


def _no_spread(comparison: Comparison) -> bool:
    """Whether too many equal runs, not a formula or draws without number, leave no known error."""
    estimate = comparison.estimate
    zero = estimate.standard_error == 0
    return math.isfinite(estimate.degrees) and (zero or estimate.equal > MOST_EQUAL)


def _scaled(comparison: Comparison, runs: int) -> Comparison:
    seen = comparison.estimate
    if _no_spread(comparison) or seen.runs < 2:
        unknown = replace(seen, standard_error=math.inf)
        return replace(comparison, estimate=unknown)
    error = seen.standard_error * math.sqrt(seen.runs / runs)
    degrees = seen.degrees * (runs - 1) / (seen.runs - 1)
    scaled = replace(seen, standard_error=error, degrees=degrees, runs=runs)
    return replace(comparison, estimate=scaled)


def _distances(comparison: Comparison, value: float) -> tuple[float, float]:
    return value - comparison.above, comparison.below - value
