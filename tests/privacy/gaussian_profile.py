"""The privacy profile of a Gaussian mechanism, as a claim to test."""

import numpy as np

from dpatlas.privacy.gaussian_dp import gaussian_delta, gaussian_epsilon


def gaussian_profile(mu, points=64):
    """(epsilons, deltas) of mu-GDP, both (points,): equal steps from 0 to epsilon(1e-9)."""
    epsilons = np.linspace(0, gaussian_epsilon(mu, 1e-9), points)
    return epsilons, np.array([gaussian_delta(mu, epsilon) for epsilon in epsilons.tolist()])
