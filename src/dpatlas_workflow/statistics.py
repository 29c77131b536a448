"""Simultaneous intervals over runs, and what they say about a threshold.

Verdicts rest on Student t intervals. With five or six runs a percentile bootstrap cannot serve:
its interval never leaves the range of the runs, so it misses the mean of n symmetric runs with
probability at least 2^(1-n), 6 % at five runs, whatever level is asked for. A Bonferroni level
needs a law with tails.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from dpatlas.base.guard import checked, integer, real
from dpatlas.errors import InputError

HOLDS, FAILS, OPEN = "holds", "fails", "open"
POWER = 0.8
# Robust standard deviations from the median beyond which a run lies far from the others.
OUTLYING = 5.0


@dataclass(frozen=True)
class Estimate:
    """A value, its standard error, the degrees of freedom behind it and the number of runs.

    Infinite degrees of freedom stand for the normal law. equal: the largest share of runs that have
    one value; 0 where it is not known. outlying: how many lie far from the others (`_outlying`).
    samples: the values of the runs that it was made of, of which it is the mean, or the difference
    of the means of two; none where it was not made of runs.
    """

    value: float
    standard_error: float
    degrees: float
    runs: int
    equal: float = 0.0
    outlying: int = 0
    samples: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    @property
    def exact(self) -> bool:
        """Whether it is a computed number, without an error."""
        return self.standard_error == 0 and math.isinf(self.degrees)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Two-sided interval at level `confidence`, in (0, 1); a single run gives (-inf, inf)."""
        if math.isinf(self.standard_error):
            return -math.inf, math.inf
        half = _t_quantile((1 + confidence) / 2, self.degrees) * self.standard_error
        return self.value - float(half), self.value + float(half)

    def detectable(self, confidence: float) -> float:
        """How far from a threshold the truth has to lie for the interval to leave the threshold.

        With probability `POWER`, at this standard error, which counts as the true one; by the
        noncentral t law. Infinite for a single run.
        """
        if math.isinf(self.standard_error):
            return math.inf
        limit = _t_quantile((1 + confidence) / 2, self.degrees)
        if math.isinf(self.degrees):
            return float(limit + special.ndtri(POWER)) * self.standard_error
        shift = special.nctdtrinc(self.degrees, 1 - POWER, limit)
        return float(shift) * self.standard_error

    def power(self, confidence: float, distance: float) -> float:
        """Chance that the interval leaves a threshold at this distance on the truth's side.

        At this standard error, which counts as the true one; by the noncentral t law. 0 for a
        single run.
        """
        if math.isinf(self.standard_error) or distance <= 0:
            return 0.0
        if self.standard_error == 0:
            return 1.0
        limit = _t_quantile((1 + confidence) / 2, self.degrees)
        shift = distance / self.standard_error
        power = 1 - special.nctdtr(self.degrees, shift, limit)
        # For some shifts above 35 scipy gives nan, where the normal law gives the same.
        return float(special.ndtr(shift - limit) if math.isnan(power) else power)


@dataclass(frozen=True)
class Comparison:
    """The question whether an estimated quantity lies in the open interval (above, below).

    With `veto` it can refute and need not be shown: it fails if the whole interval lies outside,
    and holds otherwise. With `shows_only` it never fails: its failing would refute nothing. margin:
    of a directional comparison, the smallest distance to its limit that matters, in the unit of the
    quantity: it also fails if the whole interval lies closer to the limit than that.
    """

    label: str
    estimate: Estimate
    above: float = -math.inf
    below: float = math.inf
    veto: bool = False
    margin: float = 0.0
    shows_only: bool = False

    @property
    def directional(self) -> bool:
        """Whether it has one limit and can hold and fail, so that a margin means something."""
        if self.veto or self.shows_only:
            return False
        return math.isfinite(self.above) != math.isfinite(self.below)


@dataclass(frozen=True)
class Judged:
    """A comparison with its interval.

    `least` is the smallest distance, over the interval, to the nearer end of the allowed range,
    `most` the largest, less the margin; negative outside. So the comparison holds if least > 0 and
    fails if most < 0. With a margin it can do both: the effect is there and at most the margin.
    """

    comparison: Comparison
    low: float
    high: float

    @property
    def least(self) -> float:
        """Smallest distance to the nearer limit; for a veto `most`, which is all that counts."""
        return self.most if self.comparison.veto else self._distance(self.low, self.high)

    @property
    def most(self) -> float:
        """A distance, less the margin, that no point of the interval exceeds."""
        if self.comparison.shows_only:
            return math.inf
        return self._distance(self.high, self.low) - self.comparison.margin

    @property
    def holds(self) -> bool:
        """Whether the whole interval lies inside the limits; a veto holds if it does not fail."""
        return self.least > 0

    @property
    def fails(self) -> bool:
        """Whether no point of the interval lies inside the limits by the margin or more."""
        return self.most < 0

    @property
    def effect(self) -> float:
        """Distance of the estimate to the nearer end of the allowed range; negative outside."""
        value = self.comparison.estimate.value
        return self._distance(value, value)

    @property
    def opposite(self) -> bool:
        """Whether no point of the interval lies inside the limits at all."""
        return self._distance(self.high, self.low) < 0

    @property
    def answer(self) -> str:
        """HOLDS, FAILS, or OPEN if the interval holds both answers; HOLDS if it gives both."""
        return HOLDS if self.holds else FAILS if self.fails else OPEN

    def _distance(self, from_above: float, to_below: float) -> float:
        above, below = self.comparison.above, self.comparison.below
        # An infinite limit is none; subtracted from an infinite end it would give nan.
        return min(
            from_above - above if math.isfinite(above) else math.inf,
            below - to_below if math.isfinite(below) else math.inf,
        )


@checked(family=real(gt=0, lt=1), entries=integer(ge=1), comparisons=integer(ge=1))
def simultaneous_confidence(family: float, entries: int, comparisons: int) -> float:
    """Bonferroni level of one interval: 1 - family / entries / comparisons.

    family: chance that any interval of the whole study misses; entries: planned statistical
    claims; comparisons: intervals inside this one.
    """
    return 1 - family / entries / comparisons


def mean_estimate(values: Sequence[float] | np.ndarray, size: float = 0.0) -> Estimate:
    """Mean of `values` (runs,) with its t standard error; infinite for a single run.

    size: magnitude of the numbers that `values` are differences of. Differences that agree to 12
    digits of it count as equal; 0: only equal values do.

    Raises InputError for no value and for values that are not finite.
    """
    values = _finite(values)
    runs, samples = len(values), (tuple(values.tolist()),)
    if runs == 1:
        return Estimate(float(values[0]), math.inf, 1.0, 1, samples=samples)
    error = values.std(ddof=1) / math.sqrt(runs)
    equal = _equal((values / size).round(12) if size else values)
    seen = equal, _outlying(values), samples
    return Estimate(float(values.mean()), float(error), runs - 1.0, runs, *seen)


def difference_estimate(
    first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray, *, paired: bool
) -> Estimate:
    """Mean of `first` (runs,) minus mean of `second` (runs,).

    paired: entries of equal index share a run's random numbers, and the mean of their differences
    is estimated; otherwise Welch's unequal-variance interval. `runs` is the smaller count, `equal`
    that of the side with the larger error, `outlying` that of both.

    Raises InputError for pairs of unequal number, and as `mean_estimate`.
    """
    first, second = _finite(first), _finite(second)
    if paired:
        if len(first) != len(second):
            raise InputError("pairs", f"{len(first)} and {len(second)} runs", "equal numbers")
        size = max(np.abs(first).max(), np.abs(second).max())
        return mean_estimate(first - second, size=float(size))
    sides = mean_estimate(first), mean_estimate(second)
    value, runs = sides[0].value - sides[1].value, min(side.runs for side in sides)
    samples = sides[0].samples + sides[1].samples
    if runs == 1:
        return Estimate(value, math.inf, 1.0, 1, samples=samples)
    variances = np.array([side.standard_error**2 for side in sides])
    total, equal = float(variances.sum()), sides[int(variances.argmax())].equal
    outlying = sum(side.outlying for side in sides)
    if total == 0:
        return Estimate(value, 0.0, runs - 1.0, runs, equal, samples=samples)
    counts = np.array([side.runs for side in sides])
    degrees = total**2 / float((variances**2 / (counts - 1)).sum())
    return Estimate(value, math.sqrt(total), degrees, runs, equal, outlying, samples)


def judge(comparison: Comparison, confidence: float) -> Judged:
    """`comparison` with its interval at level `confidence`."""
    return Judged(comparison, *comparison.estimate.interval(confidence))


def weigh(alternatives: Sequence[Sequence[Judged]]) -> tuple[str, Judged]:
    """The answer to "does every comparison of some alternative hold?", and what decides it.

    HOLDS if all comparisons of one alternative hold, FAILS if each alternative has one that fails,
    else OPEN. What decides is the comparison closest to failing (or, for FAILS, the one that fails
    most clearly), in the alternative that comes closest to holding; its own answer is the answer
    returned.

    Raises InputError if there is no alternative, or one without comparisons.
    """
    if not alternatives or not all(alternatives):
        raise InputError("alternatives", "nothing to compare", "at least one comparison in each")
    weakest = [min(group, key=lambda judged: judged.least) for group in alternatives]
    best = max(weakest, key=lambda judged: judged.least)
    if best.holds:
        return HOLDS, best
    if refuting := refutation(alternatives):
        return FAILS, refuting
    failing = [min(group, key=lambda judged: judged.most) for group in alternatives]
    undecided = [weak for weak, fail in zip(weakest, failing, strict=True) if not fail.fails]
    return OPEN, max(undecided, key=lambda judged: judged.least)


def refutation(alternatives: Sequence[Sequence[Judged]]) -> Judged | None:
    """The comparison that decides that each alternative has one that fails; None if it is not so.

    Of those that fail most clearly in their alternative, the least clear one. The opposite, as a
    veto shows it, is clearer than an effect below its margin.
    """
    failing = [
        min(group, key=lambda judged: (not (judged.fails and judged.opposite), judged.most))
        for group in alternatives
    ]
    if all(judged.fails for judged in failing):
        return max(failing, key=lambda judged: judged.most)
    return None


def _t_quantile(probability: float, degrees: float) -> float:
    """Student t quantile, from scipy.special: scipy.stats takes ten times as long to load."""
    if math.isinf(degrees):
        return float(special.ndtri(probability))
    return float(special.stdtrit(degrees, probability))


def _equal(values: np.ndarray) -> float:
    return float(np.unique(values, return_counts=True)[1].max() / len(values))


def _outlying(values: np.ndarray) -> int:
    """How many values (runs,) lie far from the others: 5 standard deviations from the median.

    The deviation is the median absolute one, times 1.4826 as for a normal law; 0 if it is 0.
    """
    away = np.abs(values - np.median(values))
    return int((away > OUTLYING * 1.4826 * np.median(away)).sum()) if np.median(away) else 0


def _finite(values: Sequence[float] | np.ndarray) -> np.ndarray:
    values = np.asarray(values, float)
    if values.ndim != 1 or not len(values):
        raise InputError("runs", f"an array of shape {values.shape}", "one value per run")
    if not np.isfinite(values).all():
        raise InputError("runs", "a value that is not finite", "finite values")
    return values
