"""The exact law of DP-SGLD in one dimension, by quadrature, and what it reveals.

The loss of a record x in [-1, 1] is theta^2 / 2 - x theta on C = [-radius, radius]. It is
1-strongly convex, 1-smooth and (1 + radius)-Lipschitz. A step is

    theta <- Proj((1 - eta) theta + eta xbar + N(0, 2 eta sigma2))

with xbar the mean of a batch of m of n records, drawn without replacement, and theta_0 ~
Proj N(0, 2 sigma2).

The law of theta_k has an atom at each end of C, where the projection puts what fell outside, and a
density between, held at Gauss-Legendre nodes. A step is a matrix of transition probabilities; all
masses are logarithms, since divergences of high order rest on tails far below the least double.

Formulas raise `InputError` for what lies outside the declared domains.
"""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr

from dpatlas.accounting.gaussian_dp import amplified
from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, real
from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.theorems import check_batch

# lam and beta of the example.
CURVATURE = 1.0
# Least noise deviation of a step, in units of the radius: below it the grids become too large.
LEAST_NOISE = 0.03
# Gauss-Legendre nodes: of a panel, and per noise deviation of a step on the grids of the states
# and of the masses that divergences are computed from.
PANEL_NODES, STATE_NODES, READING_NODES = 16, 8, 24
# The dominant component of a mixture changes within a length of noise variance / shift: nodes
# per such length.
MIXTURE_NODES = 6

_POSITIVE = real(gt=0)
_COUNT = integer(ge=1)
_RECORD = real(ge=-1, le=1)
_STEP = real(gt=0, lt=1)


@checked(radius=_POSITIVE)
def lipschitz_constant(radius):
    """Lipschitz constant L (Sec. 3) of the loss of a record on C."""
    return 1 + radius


@checked(m=_COUNT)
def batch_means(records: Mapping[float, int], m: int) -> dict[float, float]:
    """Law of the mean of m of the records, drawn without replacement: value -> probability.

    The batches of Algorithm 1. `records`: how many records have each value. For two values the
    number of either in a batch is hypergeometric. Raises InputError for m above the number of
    records.
    """
    total = sum(records.values())
    check_batch(m, total)
    # Log number of ways to draw `taken` records of the values so far, by (taken, their sum).
    ways = {(0, 0.0): 0.0}
    left = total
    for value, count in records.items():
        left -= count
        extended: dict[tuple[int, float], float] = {}
        for (taken, subtotal), log_ways in ways.items():
            # The values that follow have to fill the batch.
            for more in range(max(0, m - taken - left), min(count, m - taken) + 1):
                key = (taken + more, round(subtotal + more * value, 12))
                log_product = log_ways + _log_choose(count, more)
                extended[key] = np.logaddexp(extended.get(key, -np.inf), log_product)
        ways = extended
    scale = _log_choose(total, m)
    return {
        subtotal / m: float(np.exp(log_ways - scale))
        for (_, subtotal), log_ways in sorted(ways.items())
    }


def _log_choose(n: int, k: int) -> float:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


@dataclass(frozen=True)
class Grid:
    """The two ends of C and Gauss-Legendre nodes between, with log weights of the latter."""

    points: np.ndarray
    log_weights: np.ndarray

    @classmethod
    def of(cls, radius: float, density: float) -> "Grid":
        """At least `density` nodes per unit length, in panels of equal width."""
        panels = int(np.ceil(2 * radius * density / PANEL_NODES))
        nodes, weights = np.polynomial.legendre.leggauss(PANEL_NODES)
        half = radius / panels
        centres = half * np.arange(1 - panels, panels, 2)
        inner = (centres[:, None] + half * nodes).ravel()
        points = np.concatenate(([-radius], inner, [radius]))
        return cls(points, np.tile(np.log(half * weights), panels))


def _log_projected(grid: Grid, centres: np.ndarray, deviation: float) -> np.ndarray:
    """Log masses on `grid` of Proj N(centre, deviation^2), shape (points, centres).

    At an end of C: the probability of falling beyond it. At a node: density times weight.
    """
    u = (grid.points[:, None] - centres) / deviation
    masses = -0.5 * np.square(u)
    masses[1:-1] += (grid.log_weights - np.log(deviation * np.sqrt(2 * np.pi)))[:, None]
    masses[0], masses[-1] = log_ndtr(u[0]), log_ndtr(-u[-1])
    return masses


def _log_sum(terms: np.ndarray) -> np.ndarray:
    top = terms.max(axis=-1)
    return top + np.log(np.exp(terms - top[..., None]).sum(axis=-1))


def _log_difference(larger: np.ndarray, smaller: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return larger + np.log(-np.expm1(np.minimum(smaller - larger, 0.0)))


class Law:
    """The laws of theta_1, theta_2, ... on one data set, as log masses on the grid `reading`.

    The states between steps are held on a coarser grid, which is just fine enough for the noise.
    """

    def __init__(
        self,
        means: Mapping[float, float],
        *,
        sigma2: float,
        eta: float,
        radius: float,
        reading: Grid,
    ):
        self._deviation = np.sqrt(2 * eta * sigma2)
        states = Grid.of(radius, STATE_NODES / self._deviation)
        self._log_probabilities = np.log(list(means.values()))
        self._centres = [(1 - eta) * states.points + eta * mean for mean in means]
        self._step = self._transition(lambda at: _log_projected(states, at, self._deviation))
        self._read = self._transition(lambda at: _log_projected(reading, at, self._deviation))
        start = _log_projected(states, np.zeros(1), np.sqrt(2 * sigma2))
        self._states = [start[:, 0]]

    def log_masses(self, k: int) -> np.ndarray:
        """Log masses of theta_k, k >= 1, at the points of the reading grid."""
        return _log_sum(self._read + self._state(k - 1))

    def log_between(self, k: int, edges: np.ndarray) -> np.ndarray:
        """Log probabilities that theta_k lies between neighbouring `edges`, before projection."""

        def tails(sign: int) -> np.ndarray:
            step = self._transition(
                lambda centres: log_ndtr(sign * (edges[:, None] - centres) / self._deviation)
            )
            return _log_sum(step + self._state(k - 1))

        below, above = tails(1), tails(-1)
        return np.where(
            below[:-1] < above[1:],
            _log_difference(below[1:], below[:-1]),
            _log_difference(above[:-1], above[1:]),
        )

    def _state(self, k: int) -> np.ndarray:
        while len(self._states) <= k:
            self._states.append(_log_sum(self._step + self._states[-1]))
        return self._states[k]

    def _transition(self, kernel: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """The kernel averaged over batches: log probabilities, shape (to, points of a state)."""
        total = np.array(-np.inf)
        for log_probability, centres in zip(self._log_probabilities, self._centres, strict=True):
            total = np.logaddexp(total, log_probability + kernel(centres))
        return total


class Neighbours:
    """DP-SGLD on two data sets that differ in one record: x, or x_prime in its place.

    The other n - 1 records are `rest`. Divergences are of the law under x from that under x_prime.
    """

    def __init__(
        self,
        n: int,
        m: int,
        sigma2: float,
        eta: float,
        radius: float = 1.0,
        x: float = 1.0,
        x_prime: float = 0.0,
        rest: float = 0.0,
    ):
        deviation = np.sqrt(2 * eta * sigma2)
        if deviation < LEAST_NOISE * radius:
            least = np.square(LEAST_NOISE * radius) / (2 * eta)
            raise InputError("sigma2", f"{sigma2:g}", f"a number >= {least:g} at this radius, eta")
        others = Counter({rest: n - 1})
        means = [batch_means(others + Counter([record]), m) for record in (x, x_prime)]
        shift = eta * (max(map(max, means)) - min(map(min, means)))
        density = max(READING_NODES / deviation, MIXTURE_NODES * shift / deviation**2)
        self._grid = Grid.of(radius, density)
        self._laws = [
            Law(law, sigma2=sigma2, eta=eta, radius=radius, reading=self._grid) for law in means
        ]
        self._log_masses = functools.lru_cache(maxsize=4)(
            lambda k: [law.log_masses(k) for law in self._laws]
        )

    def renyi(self, k: int, alpha: float) -> float:
        """Renyi divergence of order alpha after k steps."""
        p, q = self._log_masses(k)
        return max(float(_log_sum(alpha * p + (1 - alpha) * q)) / (alpha - 1), 0.0)

    def delta(self, k: int, eps: float) -> float:
        """Hockey-stick divergence at eps after k steps: sum of (p - e^eps q) where positive."""
        p, q = self._log_masses(k)
        excess = p - q - eps
        ends = [0, -1]
        log_p, log_q = [p[ends]], [q[ends]]
        edges = self._sign_changes(excess)
        for law, parts in zip(self._laws, (log_p, log_q), strict=True):
            parts.append(law.log_between(k, edges))
        p, q = np.concatenate(log_p), np.concatenate(log_q)
        gained = p > q + eps
        # Subtracted from 0, so that an empty sum gives 0.0 and not -0.0.
        return 0.0 - float((np.exp(p[gained]) * np.expm1(q[gained] + eps - p[gained])).sum())

    def _sign_changes(self, excess: np.ndarray) -> np.ndarray:
        """The ends of C and the roots of the excess, interpolated between the nodes.

        An error in a root enters delta by its square only: the integrand is zero there.
        """
        nodes, values = self._grid.points[1:-1], excess[1:-1]
        before = np.flatnonzero((values[:-1] > 0) != (values[1:] > 0))
        part = values[before] / (values[before] - values[before + 1])
        roots = nodes[before] + part * (nodes[before + 1] - nodes[before])
        return np.concatenate((self._grid.points[:1], roots, self._grid.points[-1:]))

    def epsilon(self, k: int, delta: float) -> float:
        """The least eps >= 0 whose hockey-stick divergence after k steps is at most delta."""
        if self.delta(k, 0.0) <= delta:
            return 0.0
        p, q = self._log_masses(k)
        return float(brentq(lambda eps: self.delta(k, eps) - delta, 0.0, np.max(p - q)))


# A scan over K and orders evaluates the same pair many times.
_neighbours = functools.lru_cache(maxsize=2)(Neighbours)

_SETTING = dict(
    n=integer(ge=2),
    m=_COUNT,
    sigma2=_POSITIVE,
    eta=_STEP,
    K=integer(ge=1, le=10_000),
    radius=_POSITIVE,
    x_prime=_RECORD,
    x=_RECORD,
    rest=_RECORD,
)


@bound("dp-sgld-exact-renyi", source="dp_sgld Algorithm 1, exact law in one dimension")
@checked(alpha=real(gt=1), **_SETTING)
def exact_renyi(n, m, sigma2, eta, K, radius, alpha, x_prime, x=1.0, rest=0.0):
    """Exact Renyi divergence of theta_K with a record x from theta_K with x_prime in its place.

    The other n - 1 records are `rest`. Raises InputError for m > n, and for noise that is too small
    for the quadrature.
    """
    return _neighbours(n, m, sigma2, eta, radius, x, x_prime, rest).renyi(K, alpha)


@bound("dp-sgld-exact-delta", source="dp_sgld Algorithm 1, exact hockey-stick divergence")
@checked(eps=real(ge=0), **_SETTING)
def exact_delta(n, m, sigma2, eta, K, radius, eps, x_prime, x=1.0, rest=0.0):
    """Exact delta(eps) of theta_K with a record x against x_prime, as in `exact_renyi`."""
    return _neighbours(n, m, sigma2, eta, radius, x, x_prime, rest).delta(K, eps)


@bound("dp-sgld-exact-epsilon", source="dp_sgld Algorithm 1, exact hockey-stick divergence")
@checked(delta=real(gt=0, lt=1), **_SETTING)
def exact_epsilon(n, m, sigma2, eta, K, radius, delta, x_prime, x=1.0, rest=0.0):
    """The least eps >= 0 with `exact_delta` at most delta."""
    return _neighbours(n, m, sigma2, eta, radius, x, x_prime, rest).epsilon(K, delta)


@bound("dp-sgld-one-step-renyi2", source="dp_sgld Algorithm 1, one step without projection")
@checked(n=integer(ge=2), m=_COUNT, sigma2=_POSITIVE, eta=_STEP)
def one_step_renyi2(n, m, sigma2, eta):
    """R_2 after one step on the whole line, x = 1 against 0, the other records 0.

    log(1 + q^2 (e^(D^2 / s^2) - 1)) with q = m / n, D = eta / m and
    s^2 = 2 sigma2 ((1 - eta)^2 + eta).
    """
    check_batch(m, n)
    variance = 2 * sigma2 * ((1 - eta) ** 2 + eta)
    distance = (eta / m) ** 2 / variance
    return amplified(distance, (m / n) ** 2)[()]
