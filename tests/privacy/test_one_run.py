"""The test of a privacy profile from one run: no mechanism that keeps the claim beats its bound."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from gaussian_profile import gaussian_profile, most_misses, noisy_canaries
from scipy import sparse, stats
from scipy.optimize import linprog

from dpatlas.accounting.audit_statistics import count_guesses
from dpatlas.accounting.one_run import ClaimedProfile, one_run_profile_test
from dpatlas.errors import InputError

MU = 1.0
PROFILE = gaussian_profile(MU)
# Epsilon of the answers that `leaking` gives where it leaks, and the chance that it leaks.
LEAKED_EPSILON, LEAK = 4.0, 0.08


def leak_profile(leaked_share):
    """The claim that `leaking` keeps with equality, with a leak of this share of the canaries."""
    return (
        np.array([0.0, LEAKED_EPSILON]),
        np.array([LEAK * leaked_share * np.tanh(LEAKED_EPSILON / 2), 0.0]),
    )


def leaking(rng, m, leaked):
    """With chance LEAK, randomised answers about `leaked` canaries drawn anew; else nothing."""
    included = rng.random(m) < 0.5
    about = rng.permutation(m)[: leaked if rng.random() < LEAK else 0]
    honest = rng.random(m) < 1 / (1 + np.exp(-LEAKED_EPSILON))
    scores = np.zeros(m)
    scores[about] = np.where(honest == included, 1.0, -1.0)[about]
    return scores, included


def rejections(attack, trials, profile, m, level, guesses=None):
    rng, claim = np.random.default_rng(3), ClaimedProfile(*profile)
    guesses = guesses or claim.planned_guesses(m, level)
    needed = claim.needed(m, guesses, level)
    assert needed is not None
    return sum(count_guesses(*attack(rng), guesses).correct >= needed for _ in range(trials))


def largest(objective, differences, budgets, equal, total):
    """max objective x over x >= 0 with sum of max(0, D x) <= budget for each (D, budget)."""
    blocks, limits, variables = [], [], len(objective)
    slacks = sum(matrix.shape[0] for matrix in differences)
    first = variables
    for matrix, budget in zip(differences, budgets, strict=True):
        rows = matrix.shape[0]
        own = sparse.csr_matrix(
            (np.ones(rows), (range(rows), range(first - variables, first - variables + rows))),
            shape=(rows, slacks),
        )
        blocks += [
            sparse.hstack([matrix, -own]),
            sparse.hstack([sparse.csr_matrix((1, variables)), own.sum(0)]),
        ]
        limits += [np.zeros(rows), [budget]]
        first += rows
    solution = linprog(
        -np.concatenate([objective, np.zeros(slacks)]),
        A_ub=sparse.vstack(blocks),
        b_ub=np.concatenate(limits),
        A_eq=sparse.hstack([equal, sparse.csr_matrix((equal.shape[0], slacks))]),
        b_eq=total,
    )
    assert solution.success
    return -solution.fun


def most_probable(m, guesses, correct, profile):
    """The largest P[C >= correct] of a law of C that satisfies inequality (2) for all T."""
    counts = np.arange(1, guesses + 1)
    differences, budgets = [], []
    for epsilon, delta in zip(*profile, strict=True):
        values = np.concatenate([counts, -np.exp(epsilon) * (guesses - counts + 1)])
        places = np.tile(counts - 1, 2), np.concatenate([counts, counts - 1])
        differences.append(sparse.csr_matrix((values, places), shape=(guesses, guesses + 1)))
        budgets.append(m * delta)
    objective = (np.arange(guesses + 1) >= correct).astype(float)
    return largest(objective, differences, budgets, np.ones((1, guesses + 1)), [1.0])


def best_of_all_mechanisms(m, guesses, correct, profile):
    """The largest P[C >= correct] over all mechanisms that keep the claim, without symmetry.

    Variables are P[output | coins]; an output is a set of guesses, which is all that counts.
    """
    coins = list(itertools.product((0, 1), repeat=m))
    outputs = [
        dict(zip(guessed, values, strict=True))
        for guessed in itertools.combinations(range(m), guesses)
        for values in itertools.product((0, 1), repeat=guesses)
    ]
    size = len(outputs)
    right = [
        sum(world[canary] == value for canary, value in output.items()) >= correct
        for world in coins
        for output in outputs
    ]
    differences, budgets = [], []
    identity = sparse.identity(size, format="csr")
    for here, there in itertools.permutations(range(len(coins)), 2):
        if sum(a != b for a, b in zip(coins[here], coins[there], strict=True)) != 1:
            continue
        for epsilon, delta in zip(*profile, strict=True):
            row = [sparse.csr_matrix((size, size))] * len(coins)
            row[here], row[there] = identity, -np.exp(epsilon) * identity
            differences.append(sparse.hstack(row, format="csr"))
            budgets.append(delta)
    equal = sparse.kron(sparse.identity(len(coins)), np.ones((1, size)))
    objective = np.array(right) / len(coins)
    return largest(objective, differences, budgets, equal, np.ones(len(coins)))


@pytest.mark.parametrize(
    ("m", "guesses", "correct"), [(2, 1, 1), (2, 2, 2), (3, 2, 2), (3, 3, 2), (3, 3, 3), (4, 2, 2)]
)
@pytest.mark.parametrize("profile", [gaussian_profile(0.7, 5), leak_profile(1)])
def test_no_mechanism_and_no_guesser_beat_the_bound(m, guesses, correct, profile):
    best = best_of_all_mechanisms(m, guesses, correct, profile)
    assert best == pytest.approx(most_probable(m, guesses, correct, profile), rel=1e-6)
    bound = ClaimedProfile(*profile).p_value(m, guesses, correct)
    assert best <= bound * (1 + 1e-7)
    assert bound <= 1.25 * best


@pytest.mark.parametrize(
    ("m", "mu", "guesses", "correct"),
    [(400, 1, 80, 78), (1000, 1, 100, 99), (1000, 1, 200, 196), (1000, 0.5, 100, 90)],
)
def test_the_bound_is_little_above_what_the_worst_mechanism_attains(m, mu, guesses, correct):
    profile = gaussian_profile(mu, 24)
    attained = most_probable(m, guesses, correct, profile)
    bound = ClaimedProfile(*profile).p_value(m, guesses, correct)
    assert attained <= bound <= 1.25 * attained


def test_without_delta_the_bound_is_binomial():
    claim, accuracy = ClaimedProfile(np.array([1.5]), np.array([0.0])), 1 / (1 + np.exp(-1.5))
    for correct in (42, 45, 50):
        exact = stats.binom.sf(correct - 1, 50, accuracy)
        # What is given away: `right guesses >= correct` counts as exactly `correct`.
        assert exact <= claim.p_value(100, 50, correct) <= 3 * exact


@pytest.mark.parametrize("m", [400, 1000])
def test_a_gaussian_mechanism_at_its_claim_is_not_rejected(m):
    found = rejections(lambda rng: noisy_canaries(rng, m, MU), 400, PROFILE, m, 0.95)
    assert found <= most_misses(400, 0.05)


@pytest.mark.parametrize("leaked", [40, 100, 200])
@pytest.mark.parametrize("guesses", [20, 40, 100, 200])
def test_a_rare_leak_of_many_canaries_is_rejected_at_most_at_the_nominal_rate(leaked, guesses):
    rng, claim = np.random.default_rng(3), ClaimedProfile(*leak_profile(leaked / 200))
    needed = claim.needed(200, guesses, 0.9) or 201
    found = sum(
        count_guesses(*leaking(rng, 200, leaked), guesses).correct >= needed for _ in range(600)
    )
    assert found <= most_misses(600, 0.1)


def test_a_rare_leak_of_all_that_is_guessed_comes_close_to_the_nominal_rate():
    found = rejections(lambda rng: leaking(rng, 200, 200), 600, leak_profile(1), 200, 0.9, 200)
    # Both answers are as frequent as guesses of them only up to chance, which costs a little.
    assert 600 * 0.05 < found <= most_misses(600, 0.1)


@pytest.mark.parametrize(
    ("m", "level", "factor", "detected"),
    [(1000, 0.95, 2, 0.95), (400, 0.95, 2, 0.8), (1000, 0.99, 2, 0.65), (400, 0.99, 4, 0.98)],
)
def test_too_little_noise_is_rejected(m, level, factor, detected):
    found = rejections(lambda rng: noisy_canaries(rng, m, factor * MU), 300, PROFILE, m, level)
    assert found >= 300 * detected


def test_the_verdict_is_the_p_value_s():
    rng = np.random.default_rng(4)
    test = one_run_profile_test(*noisy_canaries(rng, 1000, 2 * MU), *PROFILE)
    assert test.rejected
    assert test.could_reject
    assert test.least_p_value <= test.p_value <= 0.05
    claim = ClaimedProfile(*PROFILE)
    p_values = [claim.p_value(1000, test.guesses, test.needed - less) for less in (0, 1)]
    assert p_values[0] <= 0.05 * 1.001
    assert p_values[1] > 0.05
    assert test.p_value == claim.p_value(1000, test.guesses, test.correct)
    verdicts = [replace(test, correct=test.needed - less).rejected for less in (0, 1)]
    assert verdicts == [True, False]


def test_guesses_depend_on_the_claim_alone_and_scores_that_say_nothing_reject_in_no_order():
    planned, included = ClaimedProfile(*PROFILE).planned_guesses(400, 0.95), np.arange(400) < 200
    for order in (included, ~included):
        for scores, says in ((order * 1.0, True), (np.zeros(400), False)):
            test = one_run_profile_test(scores, order, *PROFILE)
            assert test.guesses == planned and (test.p_value < 1) == says


@pytest.mark.parametrize(
    ("canaries", "profile"),
    [
        (100, ([800.0], [0.0])),
        (100, ([0.0], [0.999])),
        (100, ([30.0, 50.0], [1e-5, 0.0])),
        # Too few for a claim that says more.
        (20, gaussian_profile(2.0)),
    ],
)
def test_a_claim_that_no_scores_can_reject_says_so(canaries, profile):
    included = np.arange(canaries) % 2 == 0
    test = one_run_profile_test(included * 1.0, included, *profile, guesses=20)
    assert (test.correct, test.needed, test.could_reject, test.rejected) == (20, None, False, False)
    assert test.p_value == test.least_p_value > 0.05


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"scores": np.full(4, np.nan)}, "scores"),
        ({"scores": np.zeros(1)}, "scores"),
        ({"included": np.zeros(4)}, "included"),
        ({"guesses": 5}, "guesses"),
        ({"guesses": 0}, "guesses"),
        ({"epsilons": []}, "epsilons"),
        ({"epsilons": [-1.0]}, "epsilons"),
        ({"deltas": [0.1, 0.2]}, "deltas"),
        ({"level": 1.0}, "level"),
    ],
)
def test_bad_input_is_named(changes, where):
    good = {
        "scores": np.arange(4.0),
        "included": np.arange(4) > 1,
        "epsilons": [1.0],
        "deltas": [0.0],
    }
    with pytest.raises(InputError, match=where):
        one_run_profile_test(**{**good, **changes})
