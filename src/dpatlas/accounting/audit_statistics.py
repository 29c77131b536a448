"""What the scores of an audit prove: lower confidence bounds on epsilon, valid at finite samples.

Repeated runs. An attacker who tells D (canary in) from D' (canary out) by a threshold on a score
has error rates FPR = P[says D | D'] and FNR = P[says D' | D]. (epsilon, delta)-DP demands

    FPR + e^epsilon FNR >= 1 - delta   and   FNR + e^epsilon FPR >= 1 - delta

(Kairouz, Oh, Viswanath 2015, Theorem 2.1), and the same with D and D' exchanged, which is the test
in the other direction. `error_rates` selects the test on some runs and bounds its rates on others.

What this can show depends on delta. A Gaussian mechanism of epsilon 1 at delta 1e-5 passes 2000
runs even at half its noise, because at that delta its epsilon rests on events of probability 1e-5.
`profile_excess` therefore compares with every (epsilon, delta) that is claimed at once.

One run. Many canaries, each in or out by its own fair coin: `one_run_lower_bound`; `one_run` tests
a whole profile.
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpatlas.accounting.error_rates import SCORE, ErrorRates, rates_of_test, vector
from dpatlas.base.guard import checked, integer, real
from dpatlas.base.seeds import note_stream
from dpatlas.errors import InputError

Numbers = float | np.ndarray

TIE_SEED = 0
PRECISION = 1e-6

LEVEL = real(gt=0, lt=1)
DELTA = real(ge=0, lt=1)


@dataclass(frozen=True)
class Guesses:
    """How many canaries were guessed in or out, and how many of the guesses were right."""

    canaries: int
    guesses: int
    correct: int


@dataclass(frozen=True)
class LowerBound:
    """epsilon is at least `epsilon` at `delta`, with confidence `level`.

    `runs`: training runs behind it. `ceiling`: the largest bound that any mechanism could have
    shown with as many runs (or canaries and guesses). A bound near its ceiling calls for more of
    them; one far below it says something about the mechanism or the attack.
    """

    epsilon: float
    delta: float
    level: float
    runs: int
    ceiling: float
    method: str
    evidence: ErrorRates | Guesses


@dataclass(frozen=True)
class ProfileTest:
    """By how many nats error rates exceed a claimed privacy profile.

    At some point of the profile the true epsilon is above the claimed one by at least `excess`,
    with confidence `level`; `epsilon` and `delta` are the point at which the least favourable rates
    show it. `ceiling`: the largest excess that as many runs could have shown.
    """

    excess: float
    epsilon: float
    delta: float
    level: float
    runs: int
    ceiling: float
    evidence: ErrorRates

    @property
    def contradicted(self) -> bool:
        """Whether the claimed profile is refuted."""
        return self.excess > 0


@checked(delta=DELTA, level=LEVEL)
def epsilon_lower_bound(
    scores_with: ArrayLike, scores_without: ArrayLike, delta: float, level: float = 0.95
) -> LowerBound:
    """Lower bound on epsilon at `delta` from one score per independent run on D and on D'.

    scores_with (runs on D,), scores_without (runs on D',): any real statistic, infinite values
    included, in an order that does not depend on them. level: confidence of the bound. Kairouz, Oh
    and Viswanath 2015, Theorem 2.1, with joint Clopper-Pearson limits on the error rates; assumes
    nothing about the mechanism. Raises InputError for NaN and for fewer than two runs on either
    side.
    """

    def shown(fpr: Numbers, fnr: Numbers) -> np.ndarray:
        return _epsilon_beyond(fpr, fnr, delta)

    rates, ceiling = rates_of_test(scores_with, scores_without, shown, level)
    epsilon = max(0.0, float(shown(rates.fpr_limit, rates.fnr_limit)))
    return LowerBound(epsilon, delta, level, rates.runs, max(0.0, ceiling), "repeated runs", rates)


@checked(level=LEVEL)
def profile_excess(
    scores_with: ArrayLike,
    scores_without: ArrayLike,
    epsilons: ArrayLike,
    deltas: ArrayLike,
    level: float = 0.95,
) -> ProfileTest:
    """Test the claim of (epsilons[j], deltas[j])-DP for every j; both (points,).

    The same limits of the rates serve all points, so a longer profile costs no confidence. Assumes
    nothing about the mechanism. Raises InputError as `epsilon_lower_bound`, and for a profile
    without points, of unequal lengths or out of range.
    """
    epsilons, deltas = claimed_profile(epsilons, deltas)

    def excess(fpr: Numbers, fnr: Numbers) -> np.ndarray:
        positives, negatives = (np.asarray(limit)[..., None] for limit in (fpr, fnr))
        return _epsilon_beyond(positives, negatives, deltas) - epsilons

    rates, ceiling = rates_of_test(
        scores_with, scores_without, lambda fpr, fnr: excess(fpr, fnr).max(-1), level
    )
    by_point = excess(rates.fpr_limit, rates.fnr_limit)
    worst = int(by_point.argmax())
    return ProfileTest(
        excess=float(by_point[worst]),
        epsilon=float(epsilons[worst]),
        delta=float(deltas[worst]),
        level=level,
        runs=rates.runs,
        ceiling=ceiling,
        evidence=rates,
    )


@checked(delta=DELTA, level=LEVEL)
def one_run_lower_bound(
    scores: ArrayLike,
    included: ArrayLike,
    delta: float,
    level: float = 0.95,
    guesses: int | None = None,
) -> LowerBound:
    """Lower bound on the add-or-remove epsilon at `delta` from one run with many canaries.

    scores (m,): one per canary, larger for canaries that look included; included (m,) bool: each
    drawn by a fair coin of its own before the run. The `guesses` highest and lowest scores, half
    each, are guessed in and out (default m/2: a quarter each), the others are abstained from. Fix
    `guesses` before looking at the scores: the bound does not pay for a search over it.

    Steinke, Nasr, Jagielski 2023, Theorem 5.2. Raises InputError for NaN, fewer than two canaries,
    and delta above 1 / (2 m), where the theorem says next to nothing.
    """
    counted = count_guesses(scores, included, guesses)
    canaries, guesses, correct = counted.canaries, counted.guesses, counted.correct
    real(ge=0, le=1 / (2 * canaries)).check("delta", delta)
    return LowerBound(
        epsilon=_least_accepted(canaries, guesses, correct, delta, level),
        delta=delta,
        level=level,
        runs=1,
        ceiling=_least_accepted(canaries, guesses, guesses, delta, level),
        method="one run",
        evidence=counted,
    )


def count_guesses(scores: ArrayLike, included: ArrayLike, guesses: int | None = None) -> Guesses:
    """Guess the `guesses` highest scores in and lowest out, half each, and count what is right.

    scores (m,); included (m,) bool; guesses: default m/2. Of an odd number the highest scores have
    one more. Raises InputError for NaN, fewer than two canaries, and guesses beyond 1 to m.
    """
    scores = vector("scores", scores, SCORE, at_least=2)
    included = np.asarray(included)
    canaries = len(scores)
    if included.shape != scores.shape or included.dtype != bool:
        found = f"{included.dtype} of shape {included.shape}"
        raise InputError("included", found, f"bool of shape ({canaries},), as scores")
    guesses = canaries // 2 if guesses is None else guesses
    integer(ge=1, le=canaries).check("guesses", guesses)
    # Ties are broken by a fixed shuffle: the order in which canaries are listed must not help.
    note_stream("named", "ties (audit, a constant)")
    shuffled = np.random.default_rng(TIE_SEED).permutation(canaries)
    order = shuffled[np.argsort(scores[shuffled], kind="stable")]
    lowest, highest = order[: guesses // 2], order[canaries - (guesses - guesses // 2) :]
    correct = int(included[highest].sum() + (~included[lowest]).sum())
    return Guesses(canaries, guesses, correct)


@checked(
    canaries=integer(ge=1),
    guesses=integer(ge=1),
    correct=integer(ge=0),
    epsilon=real(ge=0),
    delta=DELTA,
)
def one_run_p_value(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
    """Bound on the chance of `correct` or more right guesses under (epsilon, delta)-DP.

    With W ~ Binomial(r, e^epsilon / (1 + e^epsilon)), r guesses, v right, m canaries:

        P[W >= v] + 2 m delta max_i P[v > W >= v - i] / i,    1 <= i <= v.

    Each canary's bit given the output and the bits before it is a coin no better than W's, except
    for a leak of expectation of order delta; i is how many guesses the leaks decide. The bound
    grows with epsilon where 2 m delta <= 1: it is then the largest of the sums
    (1 - w) P[W >= v] + w P[W >= v - i] with w = 2 m delta / i <= 1.
    """
    if not correct <= guesses <= canaries:
        found = f"{guesses}, {correct} of them right"
        raise InputError("guesses", found, f"right <= guesses <= {canaries}")
    if correct == 0:
        return 1.0
    accuracy = special.expit(epsilon)
    decided = np.arange(1, correct + 1)
    enough = float(special.bdtrc(correct - 1, guesses, accuracy))
    nearly = np.append(special.bdtrc(correct - 1 - decided[:-1], guesses, accuracy), 1.0)
    leak = 2 * canaries * delta * float(((nearly - enough) / decided).max())
    return min(1.0, enough + leak)


def claimed_profile(epsilons: ArrayLike, deltas: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64 vectors; InputError where they are no points of a privacy profile."""
    epsilons = vector("epsilons", epsilons, real(ge=0), at_least=1)
    deltas = vector("deltas", deltas, DELTA, at_least=1)
    if len(epsilons) != len(deltas):
        raise InputError("deltas", f"{len(deltas)} values", f"{len(epsilons)}, as epsilons")
    return epsilons, deltas


def _epsilon_beyond(fpr: Numbers, fnr: Numbers, delta: Numbers) -> np.ndarray:
    """The smallest epsilon at `delta` that allows a test of these rates > 0.

    Negative or -inf where every epsilon allows it.
    """
    with np.errstate(divide="ignore"):
        by_fpr = np.log(np.maximum(1 - delta - fnr, 0)) - np.log(fpr)
        by_fnr = np.log(np.maximum(1 - delta - fpr, 0)) - np.log(fnr)
    return np.maximum(by_fpr, by_fnr)


@functools.lru_cache(maxsize=1024)
def _least_accepted(canaries: int, guesses: int, correct: int, delta: float, level: float) -> float:
    """The smallest epsilon that `correct` right guesses do not reject, rounded down."""

    def rejected(epsilon: float) -> bool:
        return one_run_p_value(canaries, guesses, correct, epsilon, delta) <= 1 - level

    if not rejected(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while rejected(high):
        low, high = high, 2 * high
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low
