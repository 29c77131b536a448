"""Error rates of the test that tells D from D', with limits that hold at finite samples.

A quarter of the runs selects the test: its threshold, its direction, and the weight of the evidence
on each of the two rates. Its errors are counted on the other runs alone, so the selection costs no
confidence. The limits come from both counts jointly: the two exact (Clopper-Pearson) p-values are
combined by a weighted product (Fisher; Good 1955). Where both rates matter this needs about half as
many runs as two limits at half the error each; where one matters, as many.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from dpatlas.base.guard import Domain, real
from dpatlas.errors import InputError

# A quarter of the runs finds a threshold nearly as good as half of them would.
SELECTION_STRIDE = 4
# The test is selected for this error whatever the level, so that bounds are monotone in the level;
# a small error avoids tails in which a few lucky runs look best.
SELECTION_ERROR = 0.01
# Weights of the evidence on FPR; FNR has the complement. A weight of 1/2 would make `_staircase`
# divide by zero.
SHARES = (0.1, 0.3, 0.45, 0.7, 0.9)
CELLS, SELECTION_CELLS = 256, 8
TAIL_THRESHOLDS = 32

SCORE = real(finite=False)
# Maps limits of FPR and FNR, arrays of one shape, to what a test of these rates shows.
Shown = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ErrorRates:
    """Errors of a test of D against D' that was fixed before it saw the runs counted here.

    It says D where score >= threshold if `above`, else where score < threshold. `runs`: all runs,
    those that selected the test included. `fpr_limit`, `fnr_limit`: of the pairs of true rates that
    are possible at the confidence level, the least favourable one.
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


def rates_of_test(
    scores_with: ArrayLike, scores_without: ArrayLike, shown: Shown, level: float
) -> tuple[ErrorRates, float]:
    """The test selected on a quarter of the runs, counted on the others; the ceiling of `shown`.

    scores_with (runs on D,), scores_without (runs on D',). `shown` must not grow with either rate.
    Its value at the two limits holds with confidence `level`; the ceiling is what a perfect attack
    would have reached with as many runs. Raises InputError for NaN and for fewer than two runs on
    either side.
    """
    select_with, test_with = _split("scores_with", scores_with)
    select_without, test_without = _split("scores_without", scores_without)
    threshold, above, share = _selected_test(select_with, select_without, shown)
    positives = int(((test_without >= threshold) == above).sum())
    negatives = int(((test_with >= threshold) != above).sum())
    sizes = len(test_without), len(test_with)
    fpr, fnr = joint_limits(positives, negatives, *sizes, share, 1 - level)
    worst = int(shown(fpr, fnr).argmin())
    rates = ErrorRates(
        runs=len(select_without) + len(select_with) + sum(sizes),
        threshold=threshold,
        above=above,
        false_positives=positives,
        tested_without=sizes[0],
        false_negatives=negatives,
        tested_with=sizes[1],
        fpr_limit=float(fpr[worst]),
        fnr_limit=float(fnr[worst]),
    )
    without_errors = (
        shown(*joint_limits(0, 0, *sizes, share, 1 - level)).min() for share in SHARES
    )
    return rates, float(max(without_errors))


def _selected_test(
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
            fpr, fnr = _selection_limits(*sizes, share)
            by_threshold = shown(fpr[positives], fnr[negatives]).min(-1)
            index = int(by_threshold.argmax())
            if by_threshold[index] > best[0]:
                best = (by_threshold[index], float(thresholds[index]), above, share)
    return best[1:]


def _thresholds(scores: np.ndarray) -> np.ndarray:
    """Midpoints between neighbouring scores, dense in both tails and sparse between them."""
    values = np.unique(scores)
    if len(values) == 1:
        return values
    middles = values[1:] / 2 + values[:-1] / 2
    ranks = np.geomspace(1, len(middles), TAIL_THRESHOLDS).astype(int)
    return middles[np.unique(np.concatenate([ranks - 1, len(middles) - ranks]))]


def _split(name: str, scores: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Every fourth run selects the test, the rest count its errors; infinite scores are clipped."""
    scores = vector(name, scores, SCORE, at_least=2)
    largest = np.finfo(float).max
    scores = scores.clip(-largest, largest)
    selecting = np.arange(len(scores)) % SELECTION_STRIDE == 0
    return scores[selecting], scores[~selecting]


def joint_limits(
    positives: int, negatives: int, without: int, with_: int, share: float, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (CELLS,) of limits of FPR and FNR, of which one covers the true rates.

    A pair of rates is rejected where p^w q^(1 - w) is too small; p and q are the exact p-values of
    counts as low as the observed ones, w is the share. The pairs that are not rejected lie below
    the staircase of the returned pairs, so a bound is the least that any returned pair shows.
    """
    by_fpr, by_fnr = _staircase(share, error, CELLS)
    return _upper_limit(positives, without, by_fpr), _upper_limit(negatives, with_, by_fnr)


@functools.lru_cache(maxsize=64)
def _selection_limits(without: int, with_: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """`joint_limits` of every count, coarser: (without + 1, cells) and (with_ + 1, cells)."""
    by_fpr, by_fnr = _staircase(share, SELECTION_ERROR, SELECTION_CELLS)
    return (
        _upper_limit(np.arange(without + 1)[:, None], without, by_fpr),
        _upper_limit(np.arange(with_ + 1)[:, None], with_, by_fnr),
    )


@functools.lru_cache(maxsize=64)
def _staircase(share: float, error: float, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors (cells,) at which the two limits are taken: corners below the curve p^w q^(1 - w) = c.

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
    # Of the complement: 1 - error would lose the digits of small errors at a staircase's ends.
    limit = special.betainccinv(np.add(count, 1), rest, error)
    return np.where(np.equal(count, trials), 1.0, limit)


def vector(name: str, values: ArrayLike, domain: Domain, at_least: int) -> np.ndarray:
    """`values` as a float64 vector; InputError for another shape, length or values not allowed."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(name, "a masked array", "an array of the values that count alone")
    # A tensor that requires a gradient is no array before.
    values = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if values.ndim != 1 or len(values) < at_least:
        found = f"an array of shape {values.shape}"
        raise InputError(name, found, f"one axis, at least {at_least} values")
    domain.check(name, values)
    return values.astype(float)
