"""The privacy loss of one batch without replacement where one record is replaced.

`batch` of n records are drawn, their clipped gradients summed and noise added; q = batch / n, and
replacing a record moves a sum by mu noise deviations at most. For eps >= 0 the hockey-stick
divergence of the two outputs at log(1 + q (e^eps - 1)) is at most q times that of N(mu, 1) and
N(0, 1) at eps (Balle, Barthe, Gaboardi 2018, on subsets of fixed size), whichever of the two data
sets comes first; below 0, H_a(P, Q) = 1 - a + a H_(1/a)(Q, P). This profile is convex, at 0
because 2 Phi(-mu / 2) + q (1 - 2 Phi(-mu / 2)) <= 1, so that a pair of distributions has it, whose
compositions dominate those of the steps, also of adaptive ones (Zhu, Dong, Wang 2022).
"""

from typing import Any

import numpy as np

from dpatlas.accounting.gaussian_dp import amplified, gaussian_delta


def fixed_size_losses(q: float, mu: float, interval: float) -> Any:
    """dp-accounting's distribution of a step's loss, on multiples of `interval`, rounded up.

    The pair is symmetric: a loss of -l has e^-l times the probability of l, so that only positive
    losses are computed, from divergences with small relative errors ("connect the dots":
    Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, Alg. 1), and 0 has what remains.
    """
    from dp_accounting.pld.pld_pmf import create_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    # Beyond this loss lies less than 1e-22 of the probability.
    widest = float(amplified(mu * (mu / 2 + 10), q))
    count = max(1, int(np.ceil(widest / interval)))
    losses = interval * np.arange(count + 1)
    # The inverse of `amplified`.
    large = losses + np.log1p(-(1 - q) * np.exp(-losses)) - np.log(q)
    small = np.log1p(np.expm1(np.minimum(losses, 1)) / q)
    eps = np.where(losses > 1, large, small)
    deltas = q * np.array([gaussian_delta(mu, each) for each in eps])
    falls = -np.diff(np.minimum.accumulate(deltas))
    # Of each loss > 0: what lies to its left and, but for the last, to its right.
    masses = falls / -np.expm1(-interval)
    masses[:-1] -= falls[1:] / np.expm1(interval)
    masses = np.maximum(masses, 0)
    mirrored = masses * np.exp(-losses[1:])
    rest = max(0.0, 1 - deltas[-1] - masses.sum() - mirrored.sum())
    probabilities = np.concatenate([mirrored[::-1], [rest], masses])
    pmf = create_pmf(
        loss_probs=dict(zip(range(-count, count + 1), probabilities.tolist(), strict=True)),
        discretization=interval,
        infinity_mass=float(deltas[-1]),
        pessimistic_estimate=True,
    )
    return PrivacyLossDistribution(pmf)
