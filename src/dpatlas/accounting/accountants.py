"""The two accountants of the dp-accounting package, set up so that epsilon is an upper bound.

The same event means different things under REPLACE_ONE: the sensitivity doubles inside the
package's PLD, and does not inside its RDP, which therefore gets half the noise multiplier.

PLD rounds privacy losses to a grid, upward (connecting the dots, Doroshenko et al. 2022), and
convolves by FFT. The error of the FFT is not rounded upward: it is taken off delta first.
"""

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpatlas.accounting.fixed_size_pld import fixed_size_losses
from dpatlas.accounting.fixed_size_rdp import fixed_size_rdp
from dpatlas.accounting.gaussian_dp import log_mixture
from dpatlas.accounting.samplers import FixedSize, FullBatch, Poisson, Sampler, Shuffled

# Neighbouring orders a ratio r apart (in order - 1) cost at most (r^0.25 - r^-0.25)^2 / 2 of
# epsilon. The package's own list jumps from 63 to 128, 256, 512, 1024, where r = 2 costs up to 6 %
# (measured: 5.6 % at epsilon 0.15), and a small epsilon (< 0.03) wants orders above 1024.
RDP_ORDERS = (
    1.02,
    1.03,
    1.05,
    1.07,
    *(1 + tenth / 10 for tenth in range(1, 100)),
    *range(11, 64),
    *(round(64 * 1.25**power) for power in range(20)),
)
# Without replacement all orders take 30 milliseconds: one in so many is tried, then those between
# the best one's neighbours. Any set of orders gives a bound; in 279 of 280 settings it was
# the bound of the whole list (in the other 0.028 instead of 0.021, at one of two minima).
STRIDE = 12

# Rounding to a grid of width h adds h^2 / 6 to the variance of a step's loss and h^2 / 12 to its
# mean; h is chosen so that the first is this part of the variance.
ROUNDED_VARIANCE = 1e-4
COARSEST_INTERVAL, FINEST_INTERVAL = 0.05, 1e-7
# Upper bounds on the number of cells for the losses of one step, and for one standard deviation of
# the composed loss: about a second of computation.
CELLS_PER_STEP, CELLS_PER_DEVIATION = 1e5, 5e4
CELLS_ONE_BY_ONE = 2e4
# A grid that would have to be coarser than this belongs to an epsilon of millions.
HOPELESS_INTERVAL = 100.0
# So many convolutions with so large an expected privacy loss take minutes.
MANY_CONVOLUTIONS, HOPELESS_LOSS = 1_000_000, 2e4
# Below this log moment the package is inaccurate; the relative rounding error that ours covers.
LOST_MOMENT, ROUNDING_OF_MOMENTS = 1e-6, 1e-9
# Beyond it the moments of batches without replacement are not resolved; less noise costs more.
MOST_FIXED_SIZE_NOISE = 1e8
# The tails of a T-fold FFT convolution were off by up to 1e-17 T; this is a hundred times that.
FFT_ERROR = 1e-15


@dataclass(frozen=True)
class Mechanism:
    """`count` Gaussian releases of equal noise, each on a sample drawn by `sampler`."""

    sampler: Sampler
    noise_multiplier: float
    count: int

    @property
    def is_gaussian(self) -> bool:
        """Whether nothing is sampled, so that `count` releases equal one with a larger signal."""
        return isinstance(self.sampler, Shuffled | FullBatch)

    @property
    def convolutions(self) -> int:
        """Number of discretised losses that PLD convolves."""
        return 1 if self.is_gaussian else self.count


def sensitivity(relation: str) -> int:
    """How far one record moves a sum of clipped gradients, in clip bounds."""
    return 2 if relation == "replace_one" else 1


def pld_epsilon(mechanisms: Sequence[Mechanism], delta: float, relation: str) -> float:
    """Epsilon by privacy loss distributions; infinity where it would be in the millions.

    With more than a million steps on samples, also where it would be in the ten thousands. Of
    batches without replacement all mechanisms have to be such, under replace_one.
    """
    from dp_accounting.pld import PLDAccountant

    interval = loss_interval(mechanisms, relation)
    losses = (
        each.count * _loss_spread(each, relation)[2]
        for each in mechanisms
        if each.convolutions > MANY_CONVOLUTIONS
    )
    if interval > HOPELESS_INTERVAL or sum(losses) > HOPELESS_LOSS:
        return math.inf
    if any(isinstance(each.sampler, FixedSize) for each in mechanisms):
        # The package divides by e^-epsilon, which beyond epsilon 700 overflows to infinity.
        with np.errstate(over="ignore"):
            composed = _fixed_size_composition(tuple(mechanisms), interval)
            return float(composed.get_epsilon_for_delta(delta - fft_error(mechanisms)))
    accountant = PLDAccountant(_neighbours(relation), value_discretization_interval=interval)
    for mechanism in mechanisms:
        accountant.compose(_event(mechanism.sampler, mechanism.noise_multiplier), mechanism.count)
    return float(accountant.get_epsilon(delta - fft_error(mechanisms)))


# Every delta of a profile asks for the same one.
@functools.lru_cache(maxsize=16)
def _fixed_size_composition(mechanisms: tuple[Mechanism, ...], interval: float) -> Any:
    """The composed loss of batches without replacement, one record replaced."""
    steps = (
        fixed_size_losses(
            each.sampler.sample_rate, sensitivity("replace_one") / each.noise_multiplier, interval
        ).self_compose(each.count)
        for each in mechanisms
    )
    return functools.reduce(lambda first, second: first.compose(second), steps)


def rdp_epsilon(
    mechanisms: Sequence[Mechanism], delta: float, relation: str
) -> tuple[float, str | None]:
    """Epsilon by Renyi divergences, and a warning where the range of orders may be too short."""
    from dp_accounting.rdp import compute_epsilon

    def curve_at(orders: np.ndarray) -> np.ndarray:
        return rdp_curve(mechanisms, relation, orders)

    orders = np.array(RDP_ORDERS, dtype=float)
    if not any(isinstance(mechanism.sampler, FixedSize) for mechanism in mechanisms):
        return epsilon_of_curve(orders, curve_at(orders), delta)
    candidates = np.union1d(orders[::STRIDE], orders[-1])
    curve = _falling_part(candidates, curve_at, delta)
    tried = candidates[: len(curve)]
    best = int(np.searchsorted(tried, compute_epsilon(tried, curve, delta)[1]))
    low, high = tried[max(best - 1, 0)], tried[min(best + 1, len(tried) - 1)]
    finer = np.setdiff1d(orders[(orders > low) & (orders < high)], tried)
    return epsilon_of_curve(np.append(tried, finer), np.append(curve, curve_at(finer)), delta)


def epsilon_of_curve(
    orders: np.ndarray, curve: np.ndarray, delta: float
) -> tuple[float, str | None]:
    """Epsilon at delta from Renyi divergences `curve` at `orders`, with the same warning."""
    from dp_accounting.rdp import compute_epsilon

    epsilon, best = compute_epsilon(orders, curve, delta)
    # Divergences are infinite at orders whose series did not converge: there the range ends.
    usable = orders[np.isfinite(curve)]
    warning = None
    if epsilon > 0 and best in (usable.min(initial=best), usable.max(initial=best)):
        warning = f"RDP: the best order, {best:g}, ends the range; a wider range may give less"
    return float(epsilon), warning


def _falling_part(
    orders: np.ndarray, curve_at: Callable[[np.ndarray], np.ndarray], delta: float
) -> np.ndarray:
    """The curve at increasing `orders`, up to the one after which none can give a lower epsilon.

    Epsilon at an order is its divergence plus a term that depends on delta. Divergences do not fall
    with the order, so the current divergence plus the smallest remaining term is a lower limit.
    """
    from dp_accounting.rdp import compute_epsilon

    delta_terms = np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    least = math.inf
    curve: list[float] = []
    for index, order in enumerate(orders):
        curve.append(float(curve_at(np.array([order]))[0]))
        least = min(least, compute_epsilon([order], curve[-1:], delta)[0])
        if curve[-1] + np.min(delta_terms[index + 1 :], initial=math.inf) >= least:
            break
    return np.array(curve)


def rdp_curve(mechanisms: Sequence[Mechanism], relation: str, orders: np.ndarray) -> np.ndarray:
    """Renyi divergence of all mechanisms together at each order, for noise multipliers > 0."""
    total = np.zeros(len(orders))
    for mechanism in mechanisms:
        sigma = mechanism.noise_multiplier / sensitivity(relation)
        curve = mechanism.count * _release_rdp(mechanism.sampler, sigma, relation, tuple(orders))
        if isinstance(mechanism.sampler, FixedSize):
            # A sample reveals no more than all records would (divergences are quasi-convex:
            # condition on who is drawn); at rates near one half the bound alone exceeds that limit.
            curve = np.minimum(curve, mechanism.count * orders / (2 * sigma**2))
        total = total + curve
    return total


# Compositions over trials ask for the same curves as calibration.
@functools.lru_cache(maxsize=8192)
def _release_rdp(
    sampler: Sampler, sigma: float, relation: str, orders: tuple[float, ...]
) -> np.ndarray:
    """Renyi divergence of one release, cached because all orders take tens of milliseconds."""
    from dp_accounting.rdp import RdpAccountant

    if isinstance(sampler, FixedSize):
        curve = fixed_size_rdp(sampler.batch / sampler.n, min(sigma, MOST_FIXED_SIZE_NOISE), orders)
    else:
        with _quiet():
            event = _event(sampler, sigma)
            curve = RdpAccountant(list(orders), _neighbours(relation)).compose(event).rdp
        if isinstance(sampler, Poisson) and sampler.sample_rate < 1:
            curve = _without_cancellation(curve, sampler.sample_rate, sigma, np.array(orders))
    curve.flags.writeable = False
    return curve


def _without_cancellation(
    curve: np.ndarray, q: float, sigma: float, orders: np.ndarray
) -> np.ndarray:
    """The Renyi curve of a Poisson sample, recomputed where rounding errors dominate it.

    dp-accounting takes the logarithm of a moment, which is inaccurate where the moment is close to
    1. At integer orders the moment less 1 is a sum of positive terms (Mironov, Talwar, Zhang 2019,
    Sec. 3.3); between them the log moment is convex in the order, so that interpolation bounds it.
    """
    lost = np.flatnonzero((orders - 1) * curve < LOST_MOMENT)
    if not len(lost):
        return curve
    floors, ceilings = np.floor(orders[lost]), np.ceil(orders[lost])
    moments = {order: _log_moment(q, sigma, int(order)) for order in {*floors, *ceilings}}
    low, high = (np.array([moments[each] for each in ends]) for ends in (floors, ceilings))
    share = orders[lost] - floors
    corrected = np.array(curve)
    corrected[lost] = ((1 - share) * low + share * high) / (orders[lost] - 1)
    return corrected


def _log_moment(q: float, sigma: float, order: int) -> float:
    """(order - 1) R_order of N(0, sigma^2) and its mixture with N(1, sigma^2), rounded up.

    log(1 + sum over k >= 2 of C(order, k) (1 - q)^(order - k) q^k (e^(k (k - 1) / 2 sigma^2) - 1)).
    """
    from scipy.special import gammaln

    if order == 1:
        return 0.0
    k = np.arange(2, order + 1)
    choices = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    gains = k * (k - 1) / (2 * sigma**2)
    # From 30 on, e^x - 1 is e^x to the last digit.
    logs = np.where(gains > 30, gains, np.log(np.expm1(np.minimum(gains, 30))))
    terms = choices + (order - k) * math.log1p(-q) + k * math.log(q) + logs
    return float(np.logaddexp(0.0, np.logaddexp.reduce(terms))) * (1 + ROUNDING_OF_MOMENTS)


def repeat_and_select_epsilon(
    mechanisms: Sequence[Mechanism], mean: float, shape: float, delta: float, relation: str
) -> float:
    """Epsilon of the best of a random number of runs of all mechanisms, with noise, together.

    mean, shape: of that number, as dp-accounting's `RepeatAndSelectDpEvent` has them.
    """
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    # The package's RDP does not double the sensitivity under replace_one.
    scale = 1 / sensitivity(relation)
    steps = [
        dp_event.SelfComposedDpEvent(
            _event(each.sampler, each.noise_multiplier * scale), each.count
        )
        for each in mechanisms
    ]
    run = dp_event.ComposedDpEvent(steps)
    with _quiet():
        accountant = RdpAccountant(list(RDP_ORDERS), _neighbours(relation))
        accountant.compose(dp_event.RepeatAndSelectDpEvent(run, mean, shape))
    return float(accountant.get_epsilon(delta))


def fft_error(mechanisms: Sequence[Mechanism]) -> float:
    """Upper bound on what the convolutions may have lost of delta."""
    return FFT_ERROR * sum(each.convolutions for each in mechanisms)


def loss_interval(mechanisms: Sequence[Mechanism], relation: str) -> float:
    """Width of the grid of privacy losses: the coarsest that keeps the accuracy."""
    variance, widest = 0.0, 0.0
    for mechanism in mechanisms:
        step_variance, spread, _ = _loss_spread(mechanism, relation)
        variance += mechanism.convolutions * step_variance
        widest = max(widest, spread)
    convolutions = sum(mechanism.convolutions for mechanism in mechanisms)
    accurate = math.sqrt(6 * ROUNDED_VARIANCE * variance / convolutions)
    # Divergences of batches without replacement are computed one by one.
    one_by_one = any(isinstance(mechanism.sampler, FixedSize) for mechanism in mechanisms)
    cells = CELLS_ONE_BY_ONE if one_by_one else CELLS_PER_STEP
    affordable = max(widest / cells, math.sqrt(variance) / CELLS_PER_DEVIATION)
    return max(min(accurate, COARSEST_INTERVAL), affordable, FINEST_INTERVAL)


def _loss_spread(mechanism: Mechanism, relation: str) -> tuple[float, float, float]:
    """Variance, largest absolute value and mean of the privacy loss of one convolved release."""
    sigma = mechanism.noise_multiplier
    if mechanism.is_gaussian:
        mu = sensitivity(relation) * math.sqrt(mechanism.count) / sigma
        return mu**2, mu * (mu / 2 + 10), mu**2 / 2
    q = mechanism.sampler.sample_rate
    if isinstance(mechanism.sampler, FixedSize):
        # The pair whose positive losses are those of the bound.
        sigma, relation = sigma / sensitivity("replace_one"), "add_remove"
    x = np.linspace(-1 - 10 * sigma, 1 + 10 * sigma, 2001)
    upper = log_mixture((x - 0.5) / sigma**2, q)
    lower = log_mixture((-x - 0.5) / sigma**2, q) if relation == "replace_one" else 0.0
    loss = upper - lower
    weight = np.exp(upper - x**2 / (2 * sigma**2))
    weight /= weight.sum()
    mean = float(weight @ loss)
    return float(weight @ (loss - mean) ** 2), float(np.abs(loss).max()), mean


def _event(sampler: Sampler, noise_multiplier: float) -> Any:
    """The package's event of one release."""
    import dp_accounting

    gaussian = dp_accounting.GaussianDpEvent(noise_multiplier)
    if isinstance(sampler, Poisson):
        return dp_accounting.PoissonSampledDpEvent(sampler.sample_rate, gaussian)
    if isinstance(sampler, FixedSize):
        return dp_accounting.SampledWithoutReplacementDpEvent(sampler.n, sampler.batch, gaussian)
    return gaussian


def _neighbours(relation: str) -> Any:
    from dp_accounting import NeighboringRelation as Relation

    return Relation.REPLACE_ONE if relation == "replace_one" else Relation.ADD_OR_REMOVE_ONE


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the package's log lines about orders that it leaves out."""
    logger = logging.getLogger("absl")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled
