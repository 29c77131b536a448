"""The proven statements, on simulated data: moments of sums, information of runs, coverage."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom, norm

from dpatlas.formulas.max_information import kappa
from dpatlas.formulas.max_information.certificates import certificate, monte_carlo_risk
from dpatlas.formulas.max_information.mechanisms import max_information_gaussian


def norms_of_sums(name, rng, m, draws):
    """||G - mu||^2 / nu for sums G of m independent vectors of norm at most 1, nu = m."""
    if name == "signs":
        vectors = rng.choice([-1.0, 1.0], (draws, m, 1))
    elif name == "sphere":
        vectors = rng.normal(size=(draws, m, 3))
        vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    elif name == "axes":
        vectors = np.eye(4)[rng.choice(4, (draws, m), p=[0.7, 0.1, 0.1, 0.1])]
    else:
        rare = rng.random((draws, m, 1)) < 0.1
        vectors = np.where(rare, [[[1.0, 0.0]]], [[[0.0, -0.1]]])
    mean = {"axes": [0.7, 0.1, 0.1, 0.1], "rare": [0.1, -0.09]}.get(name, 0.0)
    return np.sum((vectors.sum(axis=1) - m * np.asarray(mean)) ** 2, axis=-1) / m


@pytest.mark.parametrize("m", [1, 4, 20])
@pytest.mark.parametrize("name", ["signs", "sphere", "axes", "rare"])
def test_moment_bounds_hold_for_sums_of_bounded_vectors(name, m):
    squares = norms_of_sums(name, np.random.default_rng(m), m, 100_000)
    for y in (0.02, 0.05, 0.1, 0.2):
        powers = np.exp(y * squares)
        error = powers.std() / math.sqrt(len(powers))
        for moment in kappa.MOMENTS:
            bound = math.exp(kappa.batch_moment_exponent(y, moment))
            assert powers.mean() - 4 * error <= bound


@pytest.mark.parametrize("m", [1, 2, 7, 60])
def test_moment_bounds_hold_for_sums_of_signs_exactly_and_need_more_than_the_variance(m):
    heads = np.arange(m + 1)
    y = np.linspace(0.001, 0.499, 60)[:, None]
    exact = logsumexp(binom.logpmf(heads, m, 0.5) + y * (2 * heads - m) ** 2 / m, axis=1)
    for moment in kappa.MOMENTS:
        assert np.all(exact <= kappa.batch_moment_exponent(y[:, 0], moment))
    if m > 1:
        assert np.all(exact > y[:, 0]), "E D <= nu alone would give e^y"


class SignSum:
    """DP-SGD on fair signs: u = size zeta sum(x) + sigma z, batches of m, disjoint.

    The size of the next step, 1 or 1/2, depends on the sign of this step's output.
    """

    def __init__(self, m, nu):
        self.heads = np.arange(m + 1)
        self.sums = (2 * self.heads - m) * math.sqrt(nu / m)
        self.log_masses = binom.logpmf(self.heads, m, 0.5)
        self.m = m

    def information(self, rng, T, draws, epochs=1):
        """log p(Y | S) / p(Y) for `draws` data sets and runs; each batch is met once an epoch."""
        sums = self.sums[rng.binomial(self.m, 0.5, (draws, T))]
        size = np.ones(draws)
        given_data = np.zeros((draws, T))
        given_sum = np.zeros((draws, T, len(self.sums)))
        for _ in range(epochs):
            for t in range(T):
                y = size * sums[:, t] + rng.normal(size=draws)
                given_data[:, t] += norm.logpdf(y, size * sums[:, t])
                given_sum[:, t] += norm.logpdf(y[:, None], size[:, None] * self.sums)
                size = np.where(y > 0, 1.0, 0.5)
        return np.sum(given_data - logsumexp(given_sum + self.log_masses, axis=-1), axis=1)


@pytest.mark.parametrize("nu, T", [(0.05, 3), (0.5, 4), (2.0, 2)])
def test_information_of_simulated_runs_stays_below_the_tight_kappa(nu, T):
    m, beta, draws = 10, 0.05, 40_000
    information = SignSum(m, nu).information(np.random.default_rng(T), T, draws)
    setting = (m, math.sqrt(nu / m), 1.0, T, 1, beta)
    assert np.mean(information >= kappa.kappa_tight(*setting)) <= beta
    # What is bounded is no small number: the mean is no bound.
    assert np.mean(information >= T * nu / 2) > beta


def test_composition_as_printed_is_not_refuted_by_epochs_on_the_same_batches():
    m, nu, T, E, beta = 10, 0.5, 3, 3, 0.05
    information = SignSum(m, nu).information(np.random.default_rng(0), T, 20_000, epochs=E)
    assert np.mean(information >= kappa.kappa_tight(m, math.sqrt(nu / m), 1.0, T, E, beta)) <= beta


def test_information_of_one_gaussian_mechanism_stays_below_its_bound():
    """Sensitivity of a sum of signs: 2 zeta."""
    m, nu, beta = 10, 1.0, 0.05
    information = SignSum(m, nu).information(np.random.default_rng(7), 1, 100_000)
    assert np.mean(information >= max_information_gaussian(2 * math.sqrt(nu), beta)) <= beta


@pytest.mark.parametrize("interval", ["paper", "chernoff"])
@pytest.mark.parametrize("shape", [(0.5, 0.5), (0.2, 3.0), (5.0, 1.0)])
def test_monte_carlo_step_covers_the_mean_of_bounded_losses(interval, shape):
    rng = np.random.default_rng(3)
    delta_mc, draws, repetitions = 0.2, 60, 20_000
    averages = rng.beta(*shape, (repetitions, draws)).mean(axis=1)
    missed = np.mean(monte_carlo_risk(averages, draws, delta_mc, interval) < shape[0] / sum(shape))
    assert missed <= delta_mc + 4 * math.sqrt(delta_mc * (1 - delta_mc) / repetitions)


def gibbs_runs(rng, rates, n, repetitions, inverse_temperature):
    """Risk, risk on the records and KL to the uniform prior of posteriors e^(-t errors)."""
    averages = rng.binomial(n, rates, (repetitions, len(rates))) / n
    weights = np.exp(-inverse_temperature * averages)
    weights /= weights.sum(axis=1, keepdims=True)
    kl = np.sum(weights * np.log(weights * len(rates)), axis=1)
    return weights @ rates, np.sum(weights * averages, axis=1), kl


def test_certificate_covers_posteriors_that_were_fitted_to_the_records():
    """Twenty predictors, independent errors; the average posterior is far from the prior."""
    rng = np.random.default_rng(5)
    budget = dict(K1=1, K2=1, delta=0.3, delta_mc=0.0, beta=0.0)
    true, seen, kl = gibbs_runs(rng, np.linspace(0.2, 0.6, 20), 50, 20_000, 100.0)
    assert kl.mean() > 1
    missed = np.mean(certificate(seen, kl, 0.0, 50, **budget) < true)
    assert missed <= 0.3 + 4 * math.sqrt(0.3 * 0.7 / 20_000)
    # Without the KL the bound would not cover.
    assert np.mean(certificate(seen, 0.0, 0.0, 50, **{**budget, "delta": 0.9999}) < true) > 0
