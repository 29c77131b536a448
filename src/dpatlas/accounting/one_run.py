"""Test of a whole privacy profile from one run with many canaries: rejected or not, no epsilon.

Each of m canaries is in the data set by a fair coin of its own. From the output of one run an
attacker guesses the coins of exactly r of them, and C guesses are right. How large may C be if the
mechanism keeps a claimed profile?

The claim. (epsilon_j, delta_j)-DP for every j, between any two data sets that differ in a canary,
says that an event has probability at most f(P') under one of them if it has P' under the other:

    f(x) = min over j of  e^epsilon_j x + delta_j  and  1 - e^-epsilon_j (1 - delta_j - x),   (1)

an increasing concave function, one less the trade-off function (Dong, Roth, Su 2022).

One canary. Fix all coins but canary i's. "i is guessed in, and k of the guesses are right" is one
event of the output if i is in, and the event "i is guessed in, wrongly, and k - 1 are right" if i
is out. So f bounds the probability of a right guess of i with C = k by that of a wrong guess of i
with C = k - 1, and the same holds for guesses of out and for unions over k. Average over i and
the coins; f is concave, so for every set T of counts, with p_k = P[C = k] (Jensen),

    sum_{k in T} (k/m) p_k  <=  f( sum_{k in T} ((r - k + 1)/m) p_{k-1} ).                    (2)

The bound. Let R_k = sum_{l >= k} (l/m) p_l and H_k = sum_{l >= k} ((r - l)/m) p_l. By (2) with
T = {k, ..., r}, H_{k-1} >= f^-1(R_k), and R_0 + H_0 = r/m. Suppose that P[C >= v] >= t. From
R_v = t v/m and H_v = t (r - v)/m, the recursion for k = v - 1, ..., 0

    H_k = max(H_{k+1}, f^-1(R_{k+1})),    R_k = R_{k+1} + k/(r - k) (H_k - H_{k+1})           (3)

gives the least R_0 + H_0 that such a law can have. If it exceeds r/m, no such law exists, and
P[C >= v] < t. The least such t is the p-value. That (3) is least: write dR, dH for the differences
of any law's R_k, H_k to those of (3). Then dR >= max(0, k/(r - k) dH) and dR + dH >= 0 hold at
k = v, and each step of (3) preserves them, since k/(r - k) grows with k, and dH >= 0 after a
step that raises H.

So the test is exact at finite m and r: a mechanism that keeps the claim is rejected with
probability at most 1 - level, whatever the canaries' scores have in common, and for every rule
that selects which r to guess. What (3) gives away is little: against the largest P[C >= v] of any
law that satisfies (2) for all T, which a mechanism attains, it is up to a quarter too large where
it was compared. Such worst mechanisms leak all coins together, but rarely. One whose
canaries have independent noise is rejected far less often than 1 - level.

Source: Mahloujifar, Melis, Chaudhuri, "Auditing f-differential privacy in one run" (2025), for the
inequalities over T and the recursion; the derivation above is ours.
"""

import bisect
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from dpatlas.accounting.audit_statistics import LEVEL, claimed_profile, count_guesses
from dpatlas.accounting.gaussian_dp import gaussian_mu
from dpatlas.base.guard import checked

# Points of a profile from an accountant: with 60 of them instead, the number of right guesses that
# rejects a Gaussian mechanism's claim falls by at most one in 200.
PROFILE_DELTAS = (1e-7, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.2, 0.4)
# Candidates for the share of canaries to guess.
SHARES = (0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.0)
# Beyond this epsilon e^epsilon leaves the doubles, and no run can tell a claim from none.
LARGEST_EPSILON = 700.0
# Relative accuracy of a p-value, and how far rounding may move the sums of the recursion.
PRECISION, ROUNDING = 1e-3, 1e-9
LEAST_P_VALUE = 1e-12
# The point of a claim that decides how many canaries to guess.
PLANNING_DELTA = 1e-3


@dataclass(frozen=True)
class OneRunTest:
    """Whether one run's guesses contradict a claimed privacy profile.

    p_value: bound on the probability of so many right guesses, or more, under the claim.
    least_p_value: the p-value if all guesses had been right. needed: the smallest number of right
    guesses that rejects the claim; None if no number does.
    """

    canaries: int
    guesses: int
    correct: int
    needed: int | None
    p_value: float
    least_p_value: float
    level: float

    @property
    def rejected(self) -> bool:
        """Whether the claimed profile is refuted with confidence `level`."""
        return self.needed is not None and self.correct >= self.needed

    @property
    def could_reject(self) -> bool:
        """Whether any outcome of this run could have refuted the claim."""
        return self.needed is not None


@checked(level=LEVEL)
def one_run_profile_test(
    scores: ArrayLike,
    included: ArrayLike,
    epsilons: ArrayLike,
    deltas: ArrayLike,
    level: float = 0.95,
    guesses: int | None = None,
) -> OneRunTest:
    """Test the claim of (epsilons[j], deltas[j])-DP for every j from one run with many canaries.

    scores (m,): one per canary, larger for canaries that look included, infinite values allowed;
    included (m,) bool: each drawn by a fair coin of its own before the run. The claim must be about
    the way in which a canary is left out: add or remove where it is dropped or a record without
    gradient takes its place, replace one where another record does.

    epsilons, deltas (points,): as of `profile_excess`; more points make the test sharper, at no
    cost in confidence. The `guesses` highest and lowest scores, half each, are guessed in and out,
    and the others are abstained from. Fix `guesses` before looking at the scores; the default,
    `ClaimedProfile.planned_guesses`, depends on the claim alone.

    Assumes nothing about the mechanism; see the module's docstring for the proof. Raises InputError
    as `count_guesses` does, and for a profile without points, of unequal lengths or out of range.
    """
    claim = ClaimedProfile(*claimed_profile(epsilons, deltas))
    if guesses is None and np.size(scores) > 1:
        guesses = claim.planned_guesses(np.size(scores), level)
    counted = count_guesses(scores, included, guesses)
    canaries, guesses = counted.canaries, counted.guesses
    return OneRunTest(
        canaries=canaries,
        guesses=guesses,
        correct=counted.correct,
        needed=claim.needed(canaries, guesses, level),
        p_value=claim.p_value(canaries, guesses, counted.correct),
        least_p_value=claim.p_value(canaries, guesses, guesses),
        level=level,
    )


class ClaimedProfile:
    """A claimed profile as the concave function f of the module's docstring."""

    def __init__(self, epsilons: np.ndarray, deltas: np.ndarray):
        finite = epsilons <= LARGEST_EPSILON
        # The last point, which claims nothing, keeps the arrays from being empty.
        self.epsilons = np.append(epsilons[finite], 0.0)
        self.deltas = np.append(deltas[finite], 1.0)
        self.ratios = np.exp(self.epsilons)

    def inverse(self, y: float) -> float:
        """f^-1(y): the least x >= 0 with f(x) >= y."""
        rising = (y - self.deltas) / self.ratios
        falling = (1 - self.deltas) - self.ratios * (1 - y)
        return max(0.0, float(rising.max()), float(falling.max()))

    def excludes(self, canaries: int, guesses: int, correct: int, probability: float) -> bool:
        """Whether `correct` or more right guesses have less than this probability."""
        right = probability * correct / canaries
        wrong = probability * (guesses - correct) / canaries
        limit = guesses / canaries * (1 + ROUNDING)
        for count in range(correct - 1, -1, -1):
            enough = max(wrong, self.inverse(right))
            right += count / (guesses - count) * (enough - wrong)
            wrong = enough
            if right + wrong > limit:
                return True
        return False

    def p_value(self, canaries: int, guesses: int, correct: int) -> float:
        """Bound on the probability of `correct` or more right guesses, rounded up."""
        low, high = LEAST_P_VALUE, 1.0
        if not self.excludes(canaries, guesses, correct, high):
            return 1.0
        if self.excludes(canaries, guesses, correct, low):
            return low
        while high > low * (1 + PRECISION):
            middle = math.sqrt(low * high)
            excluded = self.excludes(canaries, guesses, correct, middle)
            low, high = (low, middle) if excluded else (middle, high)
        return high

    def needed(self, canaries: int, guesses: int, level: float) -> int | None:
        """The smallest number of right guesses that rejects the claim; None if no number does."""
        if not self.excludes(canaries, guesses, guesses, 1 - level):
            return None
        # Fewer right guesses are more likely.
        return 1 + bisect.bisect_left(
            range(1, guesses),
            True,
            key=lambda count: self.excludes(canaries, guesses, count, 1 - level),
        )

    def planned_guesses(self, canaries: int, level: float) -> int:
        """How many guesses detect half the noise best, if the canaries' noise is independent.

        For each share of guesses in SHARES, the probability that a Gaussian mechanism of twice the
        claim's mu is rejected. Many guesses include uncertain ones; few cannot reject.
        """
        mu = 2 * self._gaussian_mu()
        counts = sorted({max(1, round(share * canaries)) for share in SHARES})
        # Where none can reject, all canaries come nearest.
        return max(counts, key=lambda guesses: (self._power(canaries, guesses, mu, level), guesses))

    def _power(self, canaries: int, guesses: int, mu: float, level: float) -> float:
        """Probability that independent scores N(+-mu/2, 1) reject the claim; 0 if none can."""
        needed = self.needed(canaries, guesses, level)
        if needed is None:
            return 0.0
        share, cut = guesses / canaries, 0.0
        if share < 1:
            # The size that this share of the scores exceeds.
            cut = optimize.brentq(
                lambda cut: float(special.ndtr([mu / 2 - cut, -mu / 2 - cut]).sum()) - share,
                0,
                mu / 2 - special.ndtri(share / 2),
            )
        right, wrong = special.ndtr([mu / 2 - cut, -mu / 2 - cut])
        return float(special.bdtrc(needed - 1, guesses, right / (right + wrong)))

    def _gaussian_mu(self) -> float:
        """The mu of the Gaussian mechanism through the claim's point nearest to PLANNING_DELTA."""
        epsilons, deltas = self.epsilons[:-1], np.maximum(self.deltas[:-1], LEAST_P_VALUE)
        if not len(epsilons):
            return 1.0
        nearest = int(np.abs(np.log(deltas / PLANNING_DELTA)).argmin())
        return gaussian_mu(float(epsilons[nearest]), float(deltas[nearest]))
