"""A lower limit on the epsilon of composed Gaussian mechanisms: below it a claim is refuted.

Computed apart from the dp-accounting package. The output of each release is replaced by the number
of the cell of the real line that it falls into. That is post-processing, so the coarser mechanism
is at most as easy to attack, and its privacy losses are exact ratios of two normal distributions.
Losses are then rounded DOWN to a grid, which lowers delta(epsilon), and summed by FFT; what the FFT
and its finite window may have added is taken off delta.

Cells end near the middle between two grid points, so that rounding loses O(width^2) of most cells.

The pair of distributions is attained: one record whose clipped gradient is the same vector of
length C at every step, and others whose sum is known (under replace_one the new record's gradient
is the opposite vector). Whoever sees every noisy sum therefore reaches this epsilon.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from dpatlas.accounting.accountants import (
    HOPELESS_INTERVAL,
    Mechanism,
    fft_error,
    loss_interval,
    sensitivity,
)
from dpatlas.accounting.gaussian_dp import LARGEST_MU, gaussian_epsilon, log_mixture

# Outputs further than this many standard deviations from both means share a cell.
REACH = 12.0
POINTS = 200_001
# Shares of the grid's width by which the ends of the cells are moved up: the best one is kept.
SHIFTS = (0.0, 1e-3, 0.03)
# Probability that the sum of the losses lies outside of the window of the FFT, on each side.
WINDOW_ERROR = 1e-14
MOST_CELLS = 2**22
# The grid is so many times finer than the one on which the package rounds upward.
FINER = 2
# Loss below the first end of a cell, where nothing bounds it.
FAR = 1e3
# The grid lies so far (in widths) below the loss that it should go through, which rounding to
# doubles would otherwise move a whole width down.
OFFSET_MARGIN = 1e-9
# Relative error of the tails of the normal distribution, and what counts as no mass at all.
TAIL_ERROR, UNDERFLOW = 1e-14, 1e-290
# Masses of sums below it are left out. Rounding of the FFT makes larger ones of either sign, which
# cancel in a sum: negative ones left out, they would add up to a delta that nobody reaches.
NEGLIGIBLE = 1e-22
# Exponents of Chernoff's bound, in standard deviations of the sum.
TILTS = np.geomspace(0.05, 20, 24)
# Part of delta that numerical errors may reach; beyond it there is no lower limit.
UNRESOLVED = 0.1
# Relative rounding error of the closed form for Gaussian mechanisms.
CLOSED_FORM_ERROR = 1e-9


@dataclass(frozen=True)
class Losses:
    """A distribution on offset + (first + i) * width, i = 0, 1, ...; masses of shape (cells,)."""

    first: int
    masses: np.ndarray
    offset: float

    @property
    def indices(self) -> np.ndarray:
        """first + i."""
        return self.first + np.arange(len(self.masses))

    def mean(self, width: float) -> float:
        """The mean loss."""
        return float(self.indices @ self.masses) * width + self.offset

    def variance(self) -> float:
        """Of the index."""
        return float((self.indices - self.indices @ self.masses) ** 2 @ self.masses)

    def log_moments(self, tilts: np.ndarray) -> np.ndarray:
        """log E[exp(tilt * index)], of the shape of `tilts`, (tilts,)."""
        present = self.masses > 0
        indices, logs = self.indices[present], np.log(self.masses[present])
        moments = np.empty(len(tilts))
        for number, tilt in enumerate(tilts):
            exponents = tilt * indices + logs
            largest = exponents.max()
            moments[number] = largest + math.log(np.exp(exponents - largest).sum())
        return moments


def gaussian_parameter(mechanisms: Sequence[Mechanism], relation: str) -> float:
    """mu of the composition of mechanisms that all are Gaussian, without sampling."""
    moved = sensitivity(relation)
    return math.sqrt(sum(each.count * (moved / each.noise_multiplier) ** 2 for each in mechanisms))


def least_epsilon(mechanisms: Sequence[Mechanism], delta: float, relation: str) -> float | None:
    """An epsilon that the composition certainly exceeds or equals; None where doubles fail.

    For noise multipliers > 0, and the samplers Poisson and full batch alone: of the others the
    mechanism is an upper bound.
    """
    if all(mechanism.is_gaussian for mechanism in mechanisms):
        mu = gaussian_parameter(mechanisms, relation)
        return None if mu > LARGEST_MU else gaussian_epsilon(mu, delta) * (1 - CLOSED_FORM_ERROR)
    error = 2 * WINDOW_ERROR + fft_error(mechanisms)
    width = loss_interval(mechanisms, relation) / FINER
    if error > UNRESOLVED * delta or width > HOPELESS_INTERVAL:
        return None
    parts = [(_losses(each, relation, width), each.convolutions) for each in mechanisms]
    composed = _compose(parts)
    if composed is None:
        return None
    indices, masses = composed
    losses = indices * width + sum(count * part.offset for part, count in parts)
    return _epsilon(losses, masses, delta + error)


def _losses(mechanism: Mechanism, relation: str, width: float) -> Losses:
    """Privacy losses of one convolved release, rounded down to a grid of that width."""
    rate, noise = mechanism.sampler.sample_rate, mechanism.noise_multiplier
    if mechanism.is_gaussian:
        rate, noise = 1.0, noise / math.sqrt(mechanism.count)
    low = -1.0 if relation == "replace_one" else 0.0
    x = np.linspace(low - REACH * noise, 1 + REACH * noise, POINTS)
    loss = _log_density(x, rate, 1.0, noise) - _log_density(x, rate, low, noise)
    first, last = math.floor(loss[0] / width), math.ceil(loss[-1] / width)
    middles = (np.arange(first, last) + 0.5) * width
    ends = (np.unique(np.interp(middles + shift * width, loss, x)) for shift in SHIFTS)
    candidates = (_cells(each, rate, low, noise, width) for each in ends)
    return max(candidates, key=lambda each: each.mean(width))


def _cells(ends: np.ndarray, rate: float, low: float, noise: float, width: float) -> Losses:
    """Losses of the cells between increasing `ends` and beyond them, rounded down."""
    near = _normal_masses(ends, 0.0, noise)
    upper, upper_error = _mixture(rate, near, _normal_masses(ends, 1.0, noise))
    lower, lower_error = _mixture(
        rate, near, near if low == 0 else _normal_masses(ends, low, noise)
    )
    at_ends = _log_density(ends, rate, 1.0, noise) - _log_density(ends, rate, low, noise)
    # The loss increases with the output: that of a cell is no less than at its lower end, which
    # stands where rounding leaves nothing of the masses.
    least = math.log1p(-rate) if low == 0 and rate < 1 else -math.inf
    below = np.append(max(least, at_ends[0] - FAR), at_ends)
    surely, perhaps = upper - upper_error, lower + lower_error
    known = (surely > UNDERFLOW) & (perhaps > UNDERFLOW)
    losses = below.copy()
    ratio = np.log(surely[known]) - np.log(perhaps[known])
    losses[known] = np.maximum(ratio, below[known])
    # All beyond the last end counts as that end's loss, which is less.
    losses[-1] = below[-1]
    offset = _best_offset(losses / width, upper) * width
    index = np.floor((losses - offset) / width).astype(int)
    first = int(index.min())
    return Losses(first, np.bincount(index - first, weights=upper), offset)


def _best_offset(values: np.ndarray, masses: np.ndarray) -> float:
    """Offset in [0, 1) of the whole numbers to which rounding `values` down loses least."""
    parts = values % 1.0
    order = np.argsort(parts)
    parts, masses = parts[order], masses[order]
    smaller = np.concatenate([[0.0], np.cumsum(masses)[:-1]])
    return float(parts[np.argmin(smaller - parts * masses.sum())]) - OFFSET_MARGIN


def _normal_masses(ends: np.ndarray, mean: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Masses of the cells around `ends` under N(mean, noise^2), and bounds on their rounding."""
    z = (ends - mean) / noise
    # Differences of the nearer tail keep their digits.
    below = np.concatenate([[0.0], ndtr(z), [1.0]])
    above = np.concatenate([[1.0], ndtr(-z), [0.0]])
    right = np.append(z, np.inf) > 0
    masses = np.where(right, -np.diff(above), np.diff(below))
    return masses, TAIL_ERROR * np.where(right, above[:-1], below[1:])


def _mixture(rate: float, *parts: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """(1 - rate) of the first part's masses and errors and `rate` of the second's."""
    return [(1 - rate) * first + rate * second for first, second in zip(*parts, strict=True)]


def _log_density(x: np.ndarray, rate: float, mean: float, noise: float) -> np.ndarray:
    """Log density of (1 - rate) N(0, noise^2) + rate N(mean, noise^2) relative to N(0, noise^2)."""
    if mean == 0:
        return np.zeros(len(x))
    return log_mixture((mean * x - 0.5) / noise**2, rate)


def _compose(parts: Sequence[tuple[Losses, int]]) -> tuple[np.ndarray, np.ndarray] | None:
    """Indices of the sum of `count` draws of each part, and their masses; None if too many."""
    low, high = _window(parts)
    size = 1 << max(1, math.ceil(math.log2(high - low + 1)))
    if size > MOST_CELLS:
        return None
    product: np.ndarray | complex = 1.0
    first = 0
    for part, count in parts:
        masses = part.masses
        folded = np.bincount(np.arange(len(masses)) % size, weights=masses, minlength=size)
        product = product * np.fft.rfft(folded) ** count
        first += part.first * count
    summed = np.fft.irfft(product, size)
    indices = np.arange(low, low + size)
    return indices, summed[(indices - first) % size]


def _window(parts: Sequence[tuple[Losses, int]]) -> tuple[int, int]:
    """Indices between which the sum lies but for WINDOW_ERROR on each side (Chernoff)."""
    variance = sum(count * part.variance() for part, count in parts)
    limits = []
    tilts = TILTS / math.sqrt(max(variance, 1e-300))
    for sign in (-1, 1):
        log_moments = sum(count * part.log_moments(sign * tilts) for part, count in parts)
        limits.append(sign * float(np.min((log_moments - math.log(WINDOW_ERROR)) / tilts)))
    return math.floor(limits[0]), math.ceil(limits[1])


def _epsilon(losses: np.ndarray, masses: np.ndarray, delta: float) -> float:
    """The largest epsilon >= 0 whose delta is at least `delta`, rounded down; 0 if none."""

    present = np.abs(masses) > NEGLIGIBLE
    losses, masses = losses[present], masses[present]

    def exceeds(epsilon: float) -> bool:
        above = losses > epsilon
        return float(-np.expm1(epsilon - losses[above]) @ masses[above]) > delta

    if not exceeds(0.0):
        return 0.0
    low, high = 0.0, float(losses[-1])
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return low
