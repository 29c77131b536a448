"""Error rates of the test that tells D from D', with limits that hold at finite samples.

A quarter of the runs chooses the test: threshold, direction, and which of the two rates the
evidence should bear on more. The other runs alone count its errors, so the choice costs nothing.
The limits come from both counts together: the two exact (Clopper-Pearson) p-values are combined by
a weighted product (Fisher; Good 1955). Where both rates matter this needs about half as many runs
as two limits at half the error each; where one does, as many.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from dpatlas.core.guard import Domain, real
from dpatlas.errors import InputError

# A quarter of the runs finds a threshold nearly as good as a half would, and leaves more to test.
CHOOSING = 4
# The choice is made for this error whatever the level, so that bounds are monotone in the level;
# a small one keeps it from tails where a few lucky runs look best.
CHOICE_ERROR = 0.01
# Weights of the evidence on FPR; the rest is the weight of FNR. Not 1/2, see `_staircase`.
SHARES = (0.1, 0.3, 0.45, 0.7, 0.9)
CELLS, CHOICE_CELLS = 256, 8
TAIL_THRESHOLDS = 32

SCORE = real(finite=False)
# From limits of FPR and FNR, arrays of one shape, to how much a test of these rates shows.
Shown = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ErrorRates:
    """A test of D against D' that was fixed before it saw the runs counted here.

    It says D where score >= threshold if `above`, else where score < threshold. `runs`: all runs,
    those that chose the test included. `fpr_limit`, `fnr_limit`: among the pairs of true rates that
    the counts leave possible at the level asked for, the one that shows least.
    """

    runs: int
    threshold: float
    above: bool
    false_positives: int
    tested_without: int
    false_negatives: int
    tested_with: int
    fpr_limit: float
    fnr_limit: float

    @property
    def fpr(self) -> float:
        """Observed rate of saying D under D'."""
        return self.false_positives / self.tested_without

    @property
    def fnr(self) -> float:
        """Observed rate of saying D' under D."""
        return self.false_negatives / self.tested_with


def rates_of_test(
    scores_with: ArrayLike, scores_without: ArrayLike, shown: Shown, level: float
) -> tuple[ErrorRates, float]:
    """A test chosen for what it shows, counted on other runs; and the ceiling of `shown`.

    scores_with (runs on D,), scores_without (runs on D',). `shown` must not grow with either rate.
    Its value at the two limits holds with confidence `level`; the ceiling is what the best of
    attacks would have reached with as many runs. Raises InputError for NaN and for fewer than two
    runs on either side.
    """
    choose_with, test_with = _split("scores_with", scores_with)
    choose_without, test_without = _split("scores_without", scores_without)
    threshold, above, share = _choice(choose_with, choose_without, shown)
    positives = int(((test_without >= threshold) == above).sum())
    negatives = int(((test_with >= threshold) != above).sum())
    sizes = len(test_without), len(test_with)
    fpr, fnr = joint_limits(positives, negatives, *sizes, share, 1 - level)
    worst = int(shown(fpr, fnr).argmin())
    rates = ErrorRates(
        runs=len(choose_without) + len(choose_with) + sum(sizes),
        threshold=threshold,
        above=above,
        false_positives=positives,
        tested_without=sizes[0],
        false_negatives=negatives,
        tested_with=sizes[1],
        fpr_limit=float(fpr[worst]),
        fnr_limit=float(fnr[worst]),
    )
    faultless = (shown(*joint_limits(0, 0, *sizes, share, 1 - level)).min() for share in SHARES)
    return rates, float(max(faultless))


def _choice(
    scores_with: np.ndarray, scores_without: np.ndarray, shown: Shown
) -> tuple[float, bool, float]:
    """Threshold, direction and share of the error that show most on these runs."""
    thresholds = _thresholds(np.concatenate([scores_with, scores_without]))
    below_without = np.searchsorted(np.sort(scores_without), thresholds)
    below_with = np.searchsorted(np.sort(scores_with), thresholds)
    sizes = len(scores_without), len(scores_with)
    best = (-np.inf, float(thresholds[0]), True, SHARES[0])
    for above in (True, False):
        positives = sizes[0] - below_without if above else below_without
        negatives = below_with if above else sizes[1] - below_with
        for share in SHARES:
            fpr, fnr = _choice_limits(*sizes, share)
            found = shown(fpr[positives], fnr[negatives]).min(-1)
            index = int(found.argmax())
            if found[index] > best[0]:
                best = (found[index], float(thresholds[index]), above, share)
    return best[1:]


def _thresholds(scores: np.ndarray) -> np.ndarray:
    """Middles between neighbouring scores, ever fewer of them away from both tails."""
    values = np.unique(scores)
    if len(values) == 1:
        return values
    middles = values[1:] / 2 + values[:-1] / 2
    ranks = np.geomspace(1, len(middles), TAIL_THRESHOLDS).astype(int)
    return middles[np.unique(np.concatenate([ranks - 1, len(middles) - ranks]))]


def _split(name: str, scores: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Runs that choose, every fourth, and runs that test; infinite scores as the largest number."""
    scores = vector(name, scores, SCORE, at_least=2)
    largest = np.finfo(float).max
    scores = scores.clip(-largest, largest)
    choosing = np.arange(len(scores)) % CHOOSING == 0
    return scores[choosing], scores[~choosing]


def joint_limits(
    positives: int, negatives: int, without: int, with_: int, share: float, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (CELLS,) of limits of FPR and FNR: one of them covers the true rates.

    A pair of rates is rejected where p^w q^(1 - w) is too small, p and q being the exact p-values
    of counts as low as the observed, w the share. What is left lies below the staircase of these
    pairs, rounded up to it, so a bound is the least that any of them shows.
    """
    by_fpr, by_fnr = _staircase(share, error, CELLS)
    return _upper_limit(positives, without, by_fpr), _upper_limit(negatives, with_, by_fnr)


@functools.lru_cache(maxsize=64)
def _choice_limits(without: int, with_: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """`joint_limits` of every count, coarser: (without + 1, cells) and (with_ + 1, cells)."""
    by_fpr, by_fnr = _staircase(share, CHOICE_ERROR, CHOICE_CELLS)
    return (
        _upper_limit(np.arange(without + 1)[:, None], without, by_fpr),
        _upper_limit(np.arange(with_ + 1)[:, None], with_, by_fnr),
    )


@functools.lru_cache(maxsize=64)
def _staircase(share: float, error: float, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors (cells,) at which to take the two limits, the corners below p^w q^(1 - w) = c.

    -w log p - (1 - w) log q is the sum of two exponential variables of means w and 1 - w (or less:
    the p-values of counts are not smaller than uniform), which gives c (Good 1955). Neighbouring
    cells share an end; each takes the smaller p and the smaller q.
    """
    rest = 1 - share

    def chance(x: float) -> float:
        return (share * np.exp(-x / share) - rest * np.exp(-x / rest)) / (share - rest) - error

    x = optimize.brentq(chance, 0, -10 * np.log(error) + 10)
    ends = np.linspace(0, 1, cells + 1)
    return np.exp(-x / share * ends[1:]), np.exp(-x / rest * (1 - ends[:-1]))


def _upper_limit(count: ArrayLike, trials: int, error: np.ndarray) -> np.ndarray:
    """One-sided Clopper-Pearson upper limit of a rate; 1 where every trial counted."""
    rest = np.maximum(np.subtract(trials, count), 1)
    # By the complement: 1 - error would lose the small errors of a staircase's ends.
    limit = special.betainccinv(np.add(count, 1), rest, error)
    return np.where(np.equal(count, trials), 1.0, limit)


def vector(name: str, values: ArrayLike, domain: Domain, at_least: int) -> np.ndarray:
    """`values` as a float64 vector; InputError for another shape, length or values not allowed."""
    values = np.asarray(values)
    if values.ndim != 1 or len(values) < at_least:
        found = f"an array of shape {values.shape}"
        raise InputError(name, found, f"one axis, at least {at_least} values")
    domain.check(name, values)
    return values.astype(float)
