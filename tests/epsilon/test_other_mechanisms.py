"""Mechanisms beside the Gaussian sum, each against a closed form, a sum over outputs or a limit."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.integrate import quad
from scipy.optimize import brentq

from dpatlas.epsilon.check import check_epsilon
from dpatlas.epsilon.claim import read_claim
from dpatlas.errors import InputError

DELTA = 1e-5
POISSON = {"n": 1000, "batch": 100, "delta": DELTA}
FULL = {"sampler": "full", "delta": DELTA}
# No number may be below the exact one, nor above it by more than this share.
LOOSE = 2e-3
RATE = {"sample_rate": 0.1, "batch": None}
TRUNCATED = {"sampler": "truncated-poisson", "largest_batch": 9}


def numbers(relation="add_remove", **settings):
    report = check_epsilon(**settings, relation=relation)
    return {each.accountant: each.epsilon for each in report.readings}


def exact_epsilon(divergence, most):
    """The epsilon at which a falling divergence is delta."""
    return brentq(lambda epsilon: divergence(epsilon) - DELTA, 0, most, xtol=1e-12)


def of_outputs(first, second, repeats):
    """Epsilon of `repeats` outputs with probabilities `first` or `second`, either way around."""
    several = [
        np.array([math.prod(each) for each in itertools.product(law, repeat=repeats)])
        for law in (first, second)
    ]

    def divergence(epsilon):
        one, other = several
        return max(
            np.maximum(one - math.exp(epsilon) * other, 0).sum(),
            np.maximum(other - math.exp(epsilon) * one, 0).sum(),
        )

    return exact_epsilon(divergence, 200)


def bounds(found, exact):
    return exact <= found * (1 + 1e-9) <= exact * (1 + LOOSE)


@pytest.mark.parametrize(("relation", "moved"), [("add_remove", 1), ("replace_one", 2)])
@pytest.mark.parametrize("noise", [0.5, 1.0, 7.3])
def test_one_laplace_release_is_its_closed_form(relation, moved, noise):
    found = numbers(relation, **FULL, mechanism="laplace", noise=noise, steps=1)
    # delta(epsilon) = 1 - e^((epsilon - 1 / noise) / 2).
    assert bounds(found["pld"], moved / noise + 2 * math.log1p(-DELTA))
    assert found["pure"] == pytest.approx(moved / noise, rel=1e-14)


def test_a_sampled_laplace_release_is_its_integral():
    noise, q = 0.8, 0.1
    found = numbers(**POISSON, mechanism="laplace", noise=noise, steps=1)

    def density(x, mean=0.0):
        return math.exp(-abs(x - mean) / noise) / (2 * noise)

    def divergence(epsilon):
        def removed(x):
            mixture = (1 - q) * density(x) + q * density(x, 1)
            return max(mixture - math.exp(epsilon) * density(x), 0)

        return quad(removed, -30, 30, points=[0, 1], limit=500)[0]

    exact = exact_epsilon(divergence, math.log1p(q * math.expm1(1 / noise)))
    assert bounds(found["pld"], exact)
    assert found["pure"] == pytest.approx(math.log1p(q * math.expm1(1 / noise)), rel=1e-10)


@pytest.mark.parametrize(
    ("mechanism", "log_weight"),
    [
        ("discrete-laplace", lambda x: -abs(x) / 0.9),
        ("discrete-gaussian", lambda x: -(x**2) / (2 * 0.9**2)),
    ],
)
@pytest.mark.parametrize(("relation", "moved"), [("zero_out", 1), ("replace_one", 2)])
def test_two_discrete_releases_are_their_sum_over_outputs(mechanism, log_weight, relation, moved):
    x = np.arange(-45, 46)
    laws = [np.exp([log_weight(float(each - mean)) for each in x]) for mean in (0, moved)]
    exact = of_outputs(*(law / law.sum() for law in laws), 2)
    found = numbers(relation, **FULL, mechanism=mechanism, noise=0.9, steps=2)
    assert bounds(found["pld"], exact)
    assert ("pure" in found) is (mechanism == "discrete-laplace")


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(("buckets", "p"), [(2, 0.6), (4, 0.3)])
def test_randomised_response_is_its_sum_over_answers(steps, buckets, p):
    settings = {**FULL, "mechanism": "randomized-response", "noise": p, "buckets": buckets}
    laws = [np.full(buckets, p / buckets) for _ in range(2)]
    laws[0][0] += 1 - p
    laws[1][1] += 1 - p
    uniform = np.full(buckets, 1 / buckets)
    for relation, other in (("replace_one", laws[1]), ("zero_out", uniform)):
        found = numbers(relation, **settings, steps=steps)
        exact = of_outputs(laws[0], other, steps)
        assert bounds(found["pld"], exact)
        ratios = np.log(laws[0] / other)
        assert found["pure"] == pytest.approx(steps * np.abs(ratios).max(), rel=1e-9)
    assert numbers("add_remove", **settings, steps=steps) == {}


def test_pure_epsilons_hold_where_pld_does_not_resolve_delta():
    found = numbers(sampler="full", delta=1e-40, mechanism="laplace", noise=2, steps=6)
    assert found == {"pure": 3.0}


@pytest.mark.parametrize(("batch", "epochs"), [(100, 1), (100, 3), (125, 2), (1000, 4)])
def test_a_tree_is_the_largest_column_of_its_sums(batch, epochs):
    leaves = 1000 // batch
    nodes = []
    level = 1
    while level <= leaves:
        nodes += [range(start, start + level) for start in range(0, leaves - level + 1, level)]
        level *= 2
    height = max(sum(leaf in node for node in nodes) for leaf in range(leaves))
    settings = {**POISSON, "batch": batch, "mechanism": "tree", "noise": 5, "epochs": epochs}
    for sampler, (relation, moved) in itertools.product(
        ("shuffled", "cyclic"), (("zero_out", 1), ("replace_one", 2))
    ):
        found = numbers(relation, **settings, sampler=sampler)
        noise = 5 / (moved * math.sqrt(height * epochs))
        assert found["exact"] == pytest.approx(dp_accounting.get_epsilon_gaussian(noise, DELTA))
    accountant = dp_accounting.rdp.RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    )
    accountant.compose(dp_accounting.SingleEpochTreeAggregationDpEvent(5, leaves), epochs)
    found = numbers("zero_out", **settings, sampler="cyclic")
    assert found["rdp"] == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert numbers("add_remove", **settings, sampler="shuffled") == {}


def test_a_banded_matrix_on_samples_is_fewer_sums_of_a_larger_rate():
    settings = {**POISSON, "batch": 50, "mechanism": "banded", "bands": 4, "noise": 3}
    accountant = PLDAccountant()
    event = dp_accounting.PoissonSampledDpEvent(0.2, dp_accounting.GaussianDpEvent(3))
    accountant.compose(event, 8)
    found = numbers(**settings, steps=31)
    assert found["pld"] == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    one = numbers(**{**settings, "bands": 1}, steps=31)
    assert one == numbers(**POISSON | {"batch": 50}, noise=3, steps=31)


def test_a_banded_matrix_in_a_fixed_order_moves_orthogonal_columns():
    rng = np.random.default_rng(0)
    steps, bands, period = 30, 4, 10
    matrix = np.tril(rng.normal(size=(steps, steps)))
    matrix[np.subtract.outer(range(steps), range(steps)) >= bands] = 0
    matrix /= np.linalg.norm(matrix, axis=0)
    moved = max(
        np.linalg.norm(matrix[:, first::period] @ signs)
        for first in range(period)
        for signs in itertools.product((-1, 1), repeat=3)
    )
    settings = {**POISSON, "mechanism": "banded", "bands": bands, "noise": 3, "epochs": 3}
    found = numbers("zero_out", **settings, sampler="cyclic")
    exact = dp_accounting.get_epsilon_gaussian(3 / moved, DELTA)
    assert found["exact"] == pytest.approx(exact)


def test_truncated_samples_are_the_event_of_the_package_and_poisson_in_the_limit():
    settings = {**POISSON, "noise": 3, "steps": 30}
    for relation, neighbours in (
        ("add_remove", dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE),
        ("replace_one", dp_accounting.NeighboringRelation.REPLACE_ONE),
    ):
        accountant = PLDAccountant(neighbours)
        event = dp_accounting.dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.1, 110, 3)
        accountant.compose(event, 30)
        cut = {**settings, "sampler": "truncated-poisson"}
        at_110, at_1000 = (
            numbers(relation, **cut, largest_batch=most)["pld"] for most in (110, 1000)
        )
        poisson = numbers(relation, **settings)["pld"]
        assert at_110 == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
        assert at_1000 == pytest.approx(poisson, rel=1e-3)
        assert at_110 > 1.01 * poisson


def test_a_record_in_a_bin_is_one_gaussian_an_epoch_and_poisson_sampling_is_a_slip():
    settings = {**POISSON, "noise": 3, "epochs": 2}
    for relation, moved in (("add_remove", 1), ("zero_out", 1), ("replace_one", 2)):
        found = numbers(relation, **settings, sampler="balls-in-bins")
        noise = 3 / (moved * math.sqrt(2))
        assert found["exact"] == pytest.approx(dp_accounting.get_epsilon_gaussian(noise, DELTA))
    sampled = numbers(**settings)["pld"]
    report = check_epsilon(**settings, sampler="balls-in-bins", claimed=f"{sampled:.5f}")
    assert report.verdict == "not guaranteed"
    assert "accounted as Poisson samples" in report.searched.hits[0].changes[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": "tree", "sampler": "cyclic"},
        # The rate of a part is near one: slips that would lift it above are none.
        {"mechanism": "banded", "bands": 10},
    ],
)
def test_a_tree_or_bands_left_out_are_a_slip(settings):
    common = {**POISSON, "noise": 3, "epochs": 3, "relation": "zero_out"}
    plain = check_epsilon(**common, sampler=settings.get("sampler")).tightest.epsilon
    report = check_epsilon(**common, **settings, claimed=f"{plain:.6f}")
    words = "noisy sums accounted, without the tree or the bands"
    assert (words,) in [hit.changes for hit in report.searched.hits]


def test_disjoint_parts_cost_the_largest_epsilon_and_not_the_sum():
    parts = [{"n": 500, "noise": 1.5}, {"mechanism": "laplace", "noise": 50, "n": 300}]
    base = {**POISSON, "noise": 3, "steps": 30}
    whole = check_epsilon(**base, parts=parts, claimed="50")
    alone = [numbers(**{**base, **part})["pld"] for part in ({}, *parts)]
    found = {(each.relation, each.accountant): each.epsilon for each in whole.readings}
    assert found["add_remove", "pld"] == max(alone) == alone[1]
    # The last part has no accountant of replaced records on a sample.
    assert not [pair for pair in found if pair[0] == "replace_one"]
    assert whole.claim.n == 1800 and whole.least["add_remove"] > 0.98 * max(alone)
    assert "the largest epsilon counts" in str(whole) and "part 2, disjoint: " in str(whole)
    assert whole.searched is None and "slips are searched for Gaussian noise" in str(whole)


def test_a_rate_stands_for_batch_and_n():
    settings = {"noise": 2, "epochs": 3, "delta": DELTA}
    by_batch = check_epsilon(n=1050, batch=100, **settings)
    by_rate = check_epsilon(n=1050, sample_rate=100 / 1050, **settings)
    assert by_rate.claim == by_batch.claim
    alone = check_epsilon(sample_rate=0.04, **settings, claimed="1.2345")
    assert alone.claim.n is None and alone.claim.phases[0].steps == 75
    assert alone.readings == check_epsilon(n=25, batch=1, **settings).readings
    assert "Poisson batches (q = 0.04)" in str(alone)
    assert check_epsilon(n=1050, sample_rate=0.04321, **settings).claim.n is None
    phases = [{"sample_rate": 0.1}, {"sample_rate": 0.25}]
    assert check_epsilon(phases=phases, **settings).tightest.epsilon > 0
    # Nothing that the number of records decides.
    tiny = check_epsilon(sample_rate=0.00426667, **{**settings, "delta": 0.9})
    assert not [each for each in tiny.warnings if "1 / n" in each]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"mechanism": "randomized-response", "noise": 0.5}, "buckets: found nothing"),
        ({"mechanism": "randomized-response", "noise": 2, "buckets": 2}, "noise: found 2"),
        ({"mechanism": "banded"}, "bands: found nothing; allowed: a number with banded"),
        ({"mechanism": "banded", "bands": 11}, "bands: found 11; allowed: a whole number >= 1"),
        ({"bands": 2}, "bands: found 2; allowed: a number with banded, and with nothing else"),
        ({"mechanism": "discrete-gaussian", "noise": 0.01}, "noise: found 0.01"),
        ({**RATE, **TRUNCATED}, "sample_rate: found truncated-poisson batches"),
        ({**RATE, "sampler": "cyclic"}, "sample_rate: found cyclic batches"),
        ({"parts": [{"noise": 0}]}, "parts.0.noise: found 0"),
        ({"parts": [{}], "trials": 3}, "parts: found trials as well"),
    ],
)
def test_what_does_not_go_together_is_refused_by_its_key(settings, named):
    with pytest.raises(InputError, match=f"^{named}"):
        check_epsilon(**{**POISSON, "noise": 3, "steps": 10, **settings})


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"mechanism": "laplace"}, "mechanism"),
        ({"sampler": "balls-in-bins"}, "sampler"),
        ({"trials": [{"mechanism": "laplace"}]}, "mechanism"),
        ({"parts": [{}]}, "parts"),
    ],
)
def test_an_audit_takes_gaussian_sums_alone(settings, key):
    with pytest.raises(InputError, match=f"^{key}: "):
        read_claim({**POISSON, "noise": 3, "steps": 10, **settings})
