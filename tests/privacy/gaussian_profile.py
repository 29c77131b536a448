"""Gaussian mechanisms apart from the engine: profiles, densities, scores of canaries."""

import math

import numpy as np
from scipy import stats

from dpatlas.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon


def gaussian_profile(mu, points=64):
    """(epsilons, deltas) of mu-GDP, both (points,): equal steps from 0 to epsilon(1e-9)."""
    epsilons = np.linspace(0, gaussian_epsilon(mu, 1e-9), points)
    return epsilons, np.array([gaussian_delta(mu, epsilon) for epsilon in epsilons.tolist()])


def step_densities(q, noise, relation):
    """Densities of one Poisson step on both neighbours, and the width of a cell."""
    x = np.linspace(-2 - 12 * noise, 2 + 12 * noise, 400_001)
    base, plus, minus = (stats.norm.pdf(x, mean, noise) for mean in (0, 1, -1))
    upper = (1 - q) * base + q * plus
    lower = (1 - q) * base + q * minus if relation == "replace_one" else base
    return upper, lower, x[1] - x[0]


def hockey_stick(upper, lower, epsilon, cell):
    return float(np.maximum(upper - math.exp(epsilon) * lower, 0).sum() * cell)


def noisy_canaries(rng, m, mu):
    """Scores with independent Gaussian noise, of a mechanism on orthogonal gradients; who is in."""
    included = rng.random(m) < 0.5
    return rng.normal(size=m) + mu * included, included


def most_misses(trials, error=0.05):
    """More misses than this have a chance of 1e-4 where each has probability `error` at most."""
    return stats.binom.ppf(1 - 1e-4, trials, error)
