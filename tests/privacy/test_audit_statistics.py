"""Audits of mechanisms whose privacy is known exactly: bounds stay below it and come close."""

import functools
import itertools

import numpy as np
import pytest
import torch
from gaussian_profile import most_misses, noisy_canaries
from scipy import stats

from dpatlas.accounting.audit_statistics import (
    epsilon_lower_bound,
    one_run_lower_bound,
    one_run_p_value,
    profile_excess,
)
from dpatlas.accounting.error_rates import SHARES, joint_limits
from dpatlas.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon
from dpatlas.errors import InputError

DELTA = 1e-5
# N(0, 1) against N(MU, 1) is (1, 1e-5)-DP and no better.
MU = 0.2680511
EPSILONS = np.linspace(0, 2, 41)


@functools.cache
def profile(mu):
    return np.array([gaussian_delta(mu, epsilon) for epsilon in EPSILONS])


def gaussian(rng, mu, runs):
    return rng.normal(mu, 1, runs), rng.normal(0, 1, runs)


def randomised_response(rng, epsilon, runs):
    truth = 1 / (1 + np.exp(-epsilon))
    return (rng.random(runs) < truth).astype(float), (rng.random(runs) > truth).astype(float)


def answers(rng, m, epsilon):
    """Randomised response of every canary's bit."""
    included = rng.random(m) < 0.5
    true = rng.random(m) < 1 / (1 + np.exp(-epsilon))
    return np.where(true, included, ~included).astype(float), included


def masked(scores):
    return np.ma.masked_array(scores, mask=scores > 4)


@pytest.mark.parametrize(
    ("attack", "delta", "epsilon"),
    [
        (lambda rng: randomised_response(rng, 1.0, 200), 0.0, 1.0),
        (lambda rng: gaussian(rng, 2.0, 200), 0.2, gaussian_epsilon(2.0, 0.2)),
        (lambda rng: gaussian(rng, 0.5, 60), 0.05, gaussian_epsilon(0.5, 0.05)),
    ],
)
def test_a_bound_exceeds_the_true_epsilon_in_at_most_five_percent_of_audits(attack, delta, epsilon):
    rng, audits = np.random.default_rng(1), 800
    misses = sum(epsilon_lower_bound(*attack(rng), delta).epsilon > epsilon for _ in range(audits))
    assert misses <= most_misses(audits)


@pytest.mark.parametrize("share", SHARES)
def test_limits_of_both_rates_hold_together_for_every_pair_of_rates(share):
    without, with_ = 12, 17
    # The region below the staircase, for every pair of counts.
    limits = [
        [joint_limits(x, y, without, with_, share, 0.05) for y in range(with_ + 1)]
        for x in range(without + 1)
    ]
    for fpr in (0.01, 0.1, 0.3, 0.5, 0.9):
        for fnr in (0.005, 0.05, 0.2, 0.4, 0.7):
            chance = np.outer(
                stats.binom.pmf(np.arange(without + 1), without, fpr),
                stats.binom.pmf(np.arange(with_ + 1), with_, fnr),
            )
            covered = [[((p >= fpr) & (q >= fnr)).any() for p, q in row] for row in limits]
            assert chance[np.array(covered)].sum() >= 0.95


def test_half_the_noise_is_caught_at_a_promise_of_epsilon_1():
    rng, audits, runs = np.random.default_rng(2), 100, 2000
    promised = profile(MU)
    contradictions, larger_delta = 0, []
    for _ in range(audits):
        scores = gaussian(rng, 2 * MU, runs)
        contradictions += profile_excess(*scores, EPSILONS, promised).contradicted
        larger_delta.append(epsilon_lower_bound(*scores, 0.01).epsilon)
    assert contradictions >= 0.9 * audits
    assert np.mean(np.array(larger_delta) > gaussian_epsilon(MU, 0.01)) >= 0.8
    # At the small delta itself, one point does not show it.
    bound = epsilon_lower_bound(*gaussian(rng, 2 * MU, runs), DELTA)
    assert 0.2 < bound.epsilon < 1 < bound.ceiling


def test_an_honest_mechanism_contradicts_its_profile_in_at_most_five_percent_of_audits():
    rng, audits = np.random.default_rng(4), 400
    found = [
        profile_excess(*gaussian(rng, MU, 400), EPSILONS, profile(MU)).contradicted
        for _ in range(audits)
    ]
    assert sum(found) <= most_misses(audits)


def test_a_profile_of_one_point_is_the_bound_at_that_point():
    scores = gaussian(np.random.default_rng(5), 2.0, 500)
    test = profile_excess(*scores, [0.7], [0.01])
    bound = epsilon_lower_bound(*scores, 0.01)
    assert test.excess == pytest.approx(bound.epsilon - 0.7)
    assert test.ceiling == pytest.approx(bound.ceiling - 0.7)
    assert (test.epsilon, test.delta, test.runs) == (0.7, 0.01, 1000)


def test_randomised_response_gives_back_nearly_its_epsilon():
    bound = epsilon_lower_bound(*randomised_response(np.random.default_rng(6), 2.0, 4000), 0.0)
    assert 1.8 < bound.epsilon < 2.0
    found = bound.evidence
    rates = (
        found.false_positives / found.tested_without,
        found.false_negatives / found.tested_with,
    )
    assert rates == pytest.approx([1 / (1 + np.exp(2))] * 2, abs=0.02)


def test_the_sign_of_the_score_and_the_names_of_the_data_sets_do_not_matter():
    first, second = gaussian(np.random.default_rng(7), 1.5, 1000)
    pairs = [(first, second), (-first, -second), (second, first), (-second, -first)]
    for delta in (0.0, 0.01):
        bounds = [epsilon_lower_bound(*pair, delta).epsilon for pair in pairs]
        assert min(bounds) > 1 and max(bounds) - min(bounds) < 0.3


def test_scores_that_say_nothing_give_zero():
    scores = np.random.default_rng(9).normal(size=999)
    for pair in ((scores, scores), (np.full(50, 3.0), np.full(70, 3.0)), ([1.0] * 2, [1.0] * 2)):
        assert epsilon_lower_bound(*pair, DELTA).epsilon == 0


def test_infinite_scores_that_tell_all_reach_the_ceiling():
    runs = 1000
    bound = epsilon_lower_bound(np.full(runs, np.inf), np.full(runs, -np.inf), DELTA)
    assert 0.95 * bound.ceiling < bound.epsilon <= bound.ceiling
    # Were both rates e^-epsilon, 1500 runs without an error would have a chance above 5 % beyond.
    assert bound.ceiling <= np.log(1 / (1 - 0.05 ** (1 / 1500)))
    assert (bound.evidence.false_positives, bound.evidence.tested_without) == (0, 750)
    half = epsilon_lower_bound([np.inf] * 500 + [0] * 500, [-np.inf] * 500 + [0] * 500, DELTA)
    assert 0 < half.epsilon < bound.epsilon
    few = epsilon_lower_bound([9.0, 9.0], [0.0, 0.0], DELTA)
    assert few.epsilon <= few.ceiling < 0.5


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda scores: epsilon_lower_bound(scores * np.nan, scores, DELTA), "scores_with"),
        (lambda scores: epsilon_lower_bound(scores, scores[:0], DELTA), "scores_without"),
        (lambda scores: epsilon_lower_bound(scores[:1], scores, DELTA), "scores_with"),
        (lambda scores: profile_excess(scores[None], scores, [1.0], [DELTA]), "scores_with"),
        (lambda scores: epsilon_lower_bound(["a", "b"], scores, DELTA), "scores_with"),
        (lambda scores: epsilon_lower_bound(scores, scores, 1.0), "delta"),
        (lambda scores: epsilon_lower_bound(scores, scores, DELTA, 1.0), "level"),
        (lambda scores: profile_excess(scores, scores, [], []), "epsilons"),
        (lambda scores: profile_excess(scores, scores, [1.0, 2.0], [DELTA]), "deltas"),
        (lambda scores: profile_excess(scores, scores, [-1.0], [DELTA]), "epsilons"),
        (lambda scores: profile_excess(scores, scores, [1.0], [1.0]), "deltas"),
        (lambda scores: epsilon_lower_bound(masked(scores), scores, DELTA), "scores_with"),
        (lambda scores: one_run_lower_bound(masked(scores), scores > 0, 0.0), "scores"),
        (lambda scores: one_run_lower_bound(scores, scores > 0, 0.1), "delta"),
        (lambda scores: one_run_lower_bound(scores, scores, 0.0), "included"),
        (lambda scores: one_run_lower_bound(scores, scores[1:] > 0, 0.0), "included"),
        (lambda scores: one_run_lower_bound(scores, scores > 0, 0.0, guesses=0), "guesses"),
        (lambda scores: one_run_lower_bound(scores * np.nan, scores > 0, 0.0), "scores"),
        (lambda scores: one_run_p_value(10, 5, 6, 1.0, 0.0), "guesses"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(call, named):
    with pytest.raises(InputError, match=f"^{named}: "):
        call(np.arange(8.0))


def test_scores_may_be_tensors_that_require_a_gradient():
    scores = np.arange(8.0)
    tensor = torch.arange(8.0, requires_grad=True)
    assert epsilon_lower_bound(tensor, scores, DELTA) == epsilon_lower_bound(scores, scores, DELTA)


def test_the_one_run_p_value_is_the_binomial_tail_and_a_leak_by_the_paper_s_formula():
    m, r, v, epsilon, delta = 60, 40, 31, 0.8, 1e-3
    law = stats.binom(r, np.exp(epsilon) / (1 + np.exp(epsilon)))
    tail = law.sf(v - 1)
    leaks = [sum(law.pmf(k) for k in range(v - i, v)) / i for i in range(1, v + 1)]
    assert one_run_p_value(m, r, v, epsilon, 0.0) == pytest.approx(tail)
    assert one_run_p_value(m, r, v, epsilon, delta) == pytest.approx(
        tail + 2 * m * delta * max(leaks)
    )
    assert one_run_p_value(m, r, 0, epsilon, delta) == 1.0


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_the_one_run_bound_is_rejected_at_its_level_and_no_more_is(level, delta):
    scores, included = noisy_canaries(np.random.default_rng(13), 500, 3.0)
    bound = one_run_lower_bound(scores, included, delta, level)
    counts = (bound.evidence.canaries, bound.evidence.guesses, bound.evidence.correct)
    assert one_run_p_value(*counts, bound.epsilon, delta) <= 1 - level
    assert one_run_p_value(*counts, bound.epsilon + 2e-6, delta) > 1 - level


def test_of_an_odd_number_of_guesses_the_highest_scores_have_one_more():
    included = np.array([False, False, False, True, True, True])
    found = one_run_lower_bound(np.arange(6.0), included, 0.0, guesses=5).evidence
    assert (found.guesses, found.correct) == (5, 5)


def test_the_one_run_p_value_grows_with_epsilon_up_to_the_largest_delta():
    for m, r, v in ((40, 20, 17), (40, 40, 40), (200, 50, 30)):
        values = [one_run_p_value(m, r, v, eps, 1 / (2 * m)) for eps in np.linspace(0, 8, 200)]
        assert (np.diff(values) >= -1e-12).all()


def test_the_order_in_which_canaries_are_listed_breaks_no_tie():
    m = 1000
    for included in (np.arange(m) < m // 2, np.arange(m) >= m // 2):
        assert one_run_lower_bound(np.zeros(m), included, DELTA).epsilon < 0.3


def one_run(delta, level):
    return one_run_lower_bound(*noisy_canaries(np.random.default_rng(13), 500, 2.0), delta, level)


def two_samples(delta, level):
    return epsilon_lower_bound(*gaussian(np.random.default_rng(8), 1.5, 300), delta, level)


@pytest.mark.parametrize("bound", [one_run, two_samples])
def test_bounds_and_ceilings_fall_with_the_level_and_with_delta(bound):
    by_level = [bound(1e-4, level) for level in (0.5, 0.8, 0.95, 0.99, 0.99999)]
    by_delta = [bound(delta, 0.95) for delta in (0.0, 1e-4, 1e-3)]
    for less, more in (*itertools.pairwise(by_level), *itertools.pairwise(by_delta)):
        assert more.epsilon <= less.epsilon and more.ceiling <= less.ceiling
    assert by_level[-1].epsilon < by_level[0].epsilon and by_delta[-1].epsilon < by_delta[0].epsilon
    assert two_samples(1e-4, 0.99999).epsilon > 0


def leaking(rng, m, epsilon, delta):
    """Randomised response of every bit, which is given away with probability delta."""
    scores, included = answers(rng, m, epsilon)
    leaked = rng.random(m) < delta
    scores[leaked] = np.where(included[leaked], 2.0, -1.0)
    return scores, included


# Guesses, delta, the true epsilon, and what the median shows at least.
@pytest.mark.parametrize(
    ("attack", "guesses", "delta", "epsilon", "shown"),
    [
        (lambda rng: answers(rng, 400, 1.0), None, 0.0, 1.0, 0.65),
        (lambda rng: answers(rng, 400, 1.0), 400, 0.0, 1.0, 0.65),
        (lambda rng: leaking(rng, 200, 1.0, 1 / 400), 20, 1 / 400, 1.0, 0.0),
        (lambda rng: noisy_canaries(rng, 1000, 1.0), None, DELTA, gaussian_epsilon(1, DELTA), 1.0),
    ],
)
def test_bounds_of_one_run_stay_below_the_true_epsilon(attack, guesses, delta, epsilon, shown):
    rng, audits = np.random.default_rng(10), 500
    bounds = [
        one_run_lower_bound(*attack(rng), delta, guesses=guesses).epsilon for _ in range(audits)
    ]
    assert sum(bound > epsilon for bound in bounds) <= most_misses(audits)
    assert np.median(bounds) >= shown


def test_one_run_without_noise_shows_more_than_the_gaussian_mechanism_guarantees():
    bound = one_run_lower_bound(*noisy_canaries(np.random.default_rng(12), 1000, 20.0), DELTA)
    assert bound.epsilon == bound.ceiling > gaussian_epsilon(1.0, DELTA)
