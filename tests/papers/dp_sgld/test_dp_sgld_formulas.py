"""Formulas of dp_sgld against sums, definitions, numerical optima and moments that are exact."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld import theorems, utility

positive = st.floats(1e-3, 1e3)


@given(ratio=st.floats(0, 9), lam=positive, K=st.integers(0, 3000))
def test_sum_of_decreasing_steps_keeps_its_digits(ratio, lam, K):
    beta = lam * 10**ratio
    steps = [1 / (2 * beta + lam * k / 2) for k in range(K)]
    assert theorems.sum_of_steps(beta, lam, K) == pytest.approx(math.fsum(steps), rel=1e-11, abs=0)


@given(c=st.floats(0, 1e6), sigma2=st.floats(1e-3, 10), sum_eta=positive)
def test_theorem_3_1_falls_with_its_constant_and_has_theorem_3_2_as_a_case(c, sigma2, sum_eta):
    setting = {"alpha": 3.0, "L": 1.5, "n": 1000, "sigma2": sigma2, "sum_eta": sum_eta}
    most = theorems.claimed_rdp_lsi(c=0.0, **setting)
    # Twice the composition of full batches.
    assert most == pytest.approx(2 * 3.0 * 1.5**2 * sum_eta / (1000**2 * sigma2))
    claim = theorems.claimed_rdp_lsi(c=c, **setting)
    assert claim <= most * (1 + 1e-12)
    if c > 1e-9:
        claimed = theorems.claimed_rdp(lam=2 * sigma2 * c, **setting)
        assert claim == pytest.approx(claimed, rel=1e-9)


@given(sigma2=st.floats(1e-6, 1e3), sum_eta=positive, delta=st.floats(1e-12, 0.5))
def test_claimed_epsilon_is_the_least_over_all_orders(sigma2, sum_eta, delta):
    epsilon = theorems.claimed_epsilon_real(1.5, 0.1, 1000, sigma2, sum_eta, delta)
    assert epsilon <= theorems.claimed_epsilon(1.5, 0.1, 1000, sigma2, sum_eta, delta) * (1 + 1e-12)
    orders = 1 + np.geomspace(1e-6, 1e9, 3001)
    divergences = theorems.claimed_rdp(orders, 1.5, 0.1, 1000, sigma2, sum_eta)
    converted = divergences + math.log(1 / delta) / (orders - 1)
    assert epsilon <= converted.min() * (1 + 1e-12)
    assert epsilon == pytest.approx(converted.min(), rel=1e-4)


@given(eps=st.floats(0.05, 100), delta=st.floats(1e-12, 0.1), sum_eta=positive)
def test_claimed_noise_gives_the_claimed_epsilon(eps, delta, sum_eta):
    sigma2 = theorems.claimed_sigma2(eps, delta, 1.5, 0.1, 1000, sum_eta)
    assert theorems.claimed_epsilon(1.5, 0.1, 1000, sigma2, sum_eta, delta) == pytest.approx(
        eps, rel=1e-9
    )
    # Without any divergence the largest order, 1999, decides.
    least = theorems.claimed_epsilon(0, 0.1, 1000, sigma2, sum_eta, delta)
    assert least == pytest.approx(math.log(1 / delta) / 1998)


def test_steps_of_decreasing_schedules_follow_the_theorems():
    ratio = 50_000**2 / (4 * math.log(1e5) * 5120)
    found = theorems.steps_approximate(1.0, 1e-5, 55.0, 1e-3, 50_000, 5120, "decreasing")
    assert found == pytest.approx(55_000 * ratio)
    # Where r exceeds (beta / lam)^2 the other branch is the larger one.
    other = theorems.steps_rdp(2.0, 1.0, 1.0, 1.0, 1000, 5, schedule="decreasing")
    assert other == pytest.approx((1000**2 / 10) ** 2)


def test_noise_multiplier_is_that_of_a_step_at_half_the_inverse_smoothness():
    """Two conventions: over L / m as in DP-SGD's code, over the sensitivity 2 L / m here."""
    eps, delta, L, lam, beta, n, m = 1.0, 1e-5, 3.0, 0.01, 7.0, 4000, 64
    sigma2 = theorems.sigma2_approximate(eps, delta, L, lam, n)
    multiplier = theorems.step_noise_multiplier(1 / (2 * beta), sigma2, L, m)
    assert theorems.noise_multiplier(n, m, eps, delta, beta / lam) == pytest.approx(multiplier / 2)
    deviation_of_mean = math.sqrt(2 * sigma2 / (2 * beta)) * 2 * beta
    assert multiplier == pytest.approx(deviation_of_mean / (L / m))


def softmax_loss(weights, x, labels, lam):
    logits = x @ weights.reshape(-1, x.shape[1]).T
    losses = -log_softmax(logits, axis=1)[np.arange(len(x)), labels]
    return losses.mean() + lam / 2 * weights @ weights


def softmax_hessian(weights, x, lam):
    """Hessian of the mean loss, (D(p) - p p^T) x x^T blocks."""
    p = softmax(x @ weights.reshape(-1, x.shape[1]).T, axis=1)
    blocks = np.einsum("nc,ce->nce", p, np.eye(p.shape[1])) - np.einsum("nc,ne->nce", p, p)
    size = p.shape[1] * x.shape[1]
    hessian = np.einsum("nce,ni,nj->ciej", blocks, x, x).reshape(size, size) / len(x)
    return hessian + lam * np.eye(size)


@pytest.mark.parametrize("seed", range(3))
def test_constants_of_softmax_regression_hold_on_random_data(seed):
    rng = np.random.default_rng(seed)
    n, p, classes, lam = 40, 4, 3, 0.05
    x = rng.normal(size=(n, p))
    norm = np.linalg.norm(x, axis=1).max()
    labels = rng.integers(0, classes, n)
    beta_mean, beta = theorems.smoothness_of_mean(x, lam), theorems.smoothness(norm, lam)
    assert beta_mean == pytest.approx(np.linalg.eigvalsh(x.T @ x / n)[-1] / 2 + lam)
    for scale in (0, 1, 10):
        weights = scale * rng.normal(size=classes * p)
        eigenvalues = np.linalg.eigvalsh(softmax_hessian(weights, x, lam))
        assert lam * (1 - 1e-9) <= eigenvalues[0] <= eigenvalues[-1] <= beta_mean <= beta
        gaps = softmax(x @ weights.reshape(classes, p).T, axis=1) - np.eye(classes)[labels]
        gradients = np.linalg.norm(gaps, axis=1) * np.linalg.norm(x, axis=1)
        assert gradients.max() <= theorems.lipschitz(norm)
    best = minimize(softmax_loss, np.zeros(classes * p), args=(x, labels, lam)).x
    assert np.linalg.norm(best) <= theorems.radius(norm, lam, classes)
    # The loss's gradient sqrt(2) ||x|| and lam ||W|| balance there; log C is out of reach.
    assert theorems.radius(0.1, 1.0, classes) == pytest.approx(math.sqrt(2) * 0.1)
    # Two equal logits reach the smoothness, as D(p) - p p^T has the eigenvalue 1/2, and far ones
    # of the wrong class the Lipschitz constant, as ||p - y|| = sqrt(2).
    largest = np.linalg.eigvalsh(softmax_hessian(np.zeros(4), np.array([[0.0, 2.0]]), lam))[-1]
    assert largest == pytest.approx(theorems.smoothness(2.0, lam))
    assert theorems.lipschitz(2.0) == pytest.approx(math.sqrt(2) * 2)


def quadratic_risks(h, g, eta, sigma2, start):
    """E[L(theta_k)] - min L for k = 0 .. K, from exact moments, after steps of sizes `eta` (K,).

    The losses are h_i t^2 / 2 + g_i t with the g_i adding up to 0; batches are single records.
    """
    mean, square = start, start**2
    risks = [h.mean() / 2 * square]
    for step in eta:
        keep, push = 1 - step * h, step * g
        square = np.mean(keep**2) * square - 2 * np.mean(keep * push) * mean + np.mean(push**2)
        square += 2 * step * sigma2
        mean = np.mean(keep) * mean - np.mean(push)
        risks.append(h.mean() / 2 * square)
    return np.array(risks)


@given(
    curvatures=st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6),
    shifts=st.lists(st.floats(-2, 2), min_size=6, max_size=6),
    start=st.floats(-3, 3),
    sigma2=st.floats(0, 1),
    K=st.integers(1, 40),
)
def test_utility_bounds_hold_on_quadratics(curvatures, shifts, start, sigma2, K):
    h = np.array(curvatures)
    g = np.array(shifts[: len(h)])
    g = g - g.mean()
    lam, beta, xi2 = h.min(), h.max(), np.mean(g**2)
    arguments = dict(xi2=xi2, d=1, sigma2=sigma2, distance2=start**2)
    constant = quadratic_risks(h, g, np.full(K, 1 / (2 * beta)), sigma2, start)
    bound = utility.excess_risk(beta, lam, 1 / (2 * beta), K, **arguments)
    assert constant[-1] <= bound * (1 + 1e-9)
    steps = 1 / (2 * beta + lam * np.arange(K) / 2)
    decreasing = quadratic_risks(h, g, steps, sigma2, start)
    assert decreasing[:-1].mean() <= utility.average_risk(beta, lam, K, **arguments) * (1 + 1e-9)


def test_theorems_on_utility_are_the_lemmas_at_the_papers_noise_and_steps():
    """At the stated sigma2 and K, and distance 2 L / lam, the lemmas are below the theorems."""
    eps, delta, L, lam, beta, n, d = 1.0, 1e-5, 1.5, 0.1, 1.0, 5000, 20
    xi2, distance2 = 0.3, (2 * L / lam) ** 2
    sigma2 = theorems.sigma2_approximate(eps, delta, L, lam, n)
    K = math.ceil(theorems.steps_approximate(eps, delta, beta, lam, n, d))
    for convention in ("exact", "paper"):
        arguments = dict(d=d, sigma2=sigma2, distance2=distance2, convention=convention)
        lemma = utility.excess_risk(beta, lam, 1 / (2 * beta), K, xi2, **arguments)
        theorem = utility.utility_approximate(eps, delta, L, lam, beta, n, d, xi2, convention)
        assert 0.9 * theorem < lemma <= theorem
    K = math.ceil(theorems.steps_approximate(eps, delta, beta, lam, n, d, "decreasing"))
    lemma = utility.average_risk(beta, lam, K, L**2, d, sigma2, distance2)
    decreasing = utility.utility_approximate_decreasing(eps, delta, L, lam, beta, n, d)
    assert 0.2 * decreasing < lemma <= decreasing
    # alpha / eps of the Renyi form, with half of eps, is at most 8 log(1/delta) / eps^2.
    renyi, shared = (1 + 2 / eps * math.log(1 / delta), eps / 2), (L, lam, beta, n, d)
    theorem = utility.utility_approximate(eps, delta, *shared, xi2=0.0)
    assert 0.5 < utility.utility_rdp(*renyi, *shared, xi2=0.0) / theorem < 1
    assert 0.5 < utility.utility_rdp_decreasing(*renyi, *shared) / decreasing < 1


def test_step_sizes_that_only_the_utility_results_leave_out_are_told_apart():
    assert [utility.warns_about_utility(eta, 1.0) for eta in (0.5, 0.51)] == [False, True]
    assert theorems.claimed_rdp_constant(2.0, 1.5, 0.1, 1.0, 1000, 0.01, 0.51, 3) > 0
    with pytest.raises(InputError, match=r"eta: found 0.51; .*<= 1/\(2 beta\) = 0.5"):
        utility.excess_risk(1.0, 0.1, 0.51, 3, 1.0, 1, 0.1, 1.0)
