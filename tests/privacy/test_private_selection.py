"""The law of the number of trials, and what releasing the best of them guarantees."""

import math
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from scipy.special import gammaln, ndtr
from scipy.stats import chisquare, geom, logser, norm, poisson

from dpatlas.accounting.accountants import RDP_ORDERS
from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.samplers import Cyclic, FixedSize, FullBatch, Poisson, Shuffled
from dpatlas.accounting.selection import (
    LAWS,
    PoissonTrials,
    Score,
    TruncatedNegativeBinomial,
    calibrate_selected,
    selected_guarantee,
    trials_law,
)
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError

DELTA = 1e-5
GENERAL = [
    TruncatedNegativeBinomial(2.5, 0.3),
    TruncatedNegativeBinomial(-0.5, 0.05),
    TruncatedNegativeBinomial(10.0, 0.02),
]


def probability(law, counts):
    """P(K = k), from scipy's laws or from the definition by gamma functions."""
    if isinstance(law, PoissonTrials):
        return poisson.pmf(counts, law.mean)
    eta, gamma = law.eta, law.gamma
    if eta == 1:
        return geom.pmf(counts, gamma)
    if eta == 0:
        return logser.pmf(counts, 1 - gamma)
    rising = np.exp(gammaln(counts + eta) - gammaln(1 + eta) - gammaln(counts + 1)) * eta
    return rising * (1 - gamma) ** counts / (gamma**-eta - 1)


def all_laws(mean=10.0):
    return [trials_law(name, mean) for name in LAWS] + GENERAL


@pytest.mark.parametrize("law", all_laws(), ids=lambda law: law.describe())
def test_the_number_of_trials_follows_its_law_and_has_its_mean(law):
    draws = np.array([law.draw(Noise(f"selection {number}", "keyed")) for number in range(20_000)])
    first = 0 if isinstance(law, PoissonTrials) else 1
    assert draws.min() >= first
    edges = np.unique(np.quantile(draws, np.linspace(0, 1, 40)).round())[1:-1]
    counts = np.arange(first, 100_000)
    assert law.mean == pytest.approx(float(counts @ probability(law, counts)), rel=1e-9)
    cells = np.searchsorted(edges, counts)
    expected = np.bincount(cells, probability(law, counts), minlength=len(edges) + 1)
    observed = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
    assert expected.sum() == pytest.approx(1, abs=1e-9)
    assert chisquare(observed, expected / expected.sum() * len(draws)).pvalue > 1e-3


def test_a_law_whose_first_probabilities_are_tiny_is_not_cut_short():
    law = TruncatedNegativeBinomial(10.0, 0.01)
    assert probability(law, np.array([1]))[0] < 1e-18
    draws = [law.draw(Noise(f"late {number}", "keyed")) for number in range(300)]
    # Its deviation is the mean by sqrt(eta).
    assert np.mean(draws) == pytest.approx(law.mean, abs=4 * law.mean / math.sqrt(10 * 300))


def least_epsilon(bound_at, delta):
    """Epsilon at delta from a Renyi bound at each order (Canonne et al. 2020, Prop. 12)."""
    return min(
        bound_at(a) + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1)
        for a in RDP_ORDERS
    )


def by_theorem_2(renyi, eta, gamma, delta):
    """Epsilon by the printed formula, every pair of orders tried."""
    mean = (
        eta * (1 - gamma) / (gamma * (1 - gamma**eta))
        if eta
        else (1 / gamma - 1) / -math.log(gamma)
    )

    def bound(a):
        return min(
            renyi(a)
            + (1 + eta) * (1 - 1 / b) * renyi(b)
            + (1 + eta) * math.log(1 / gamma) / b
            + math.log(mean) / (a - 1)
            for b in RDP_ORDERS
        )

    return least_epsilon(bound, delta)


def by_theorem_6(renyi, mean, delta):
    def bound(a):
        hat = math.log(1 + 1 / (a - 1))
        spent = min(
            math.exp(min((b - 1) * (renyi(b) - hat) + (b - 1) * math.log(1 - 1 / b), 700)) / b
            for b in RDP_ORDERS
        )
        # delta <= total variation <= sqrt(1 - exp(-KL)).
        spent = min(1.0, spent, *(math.sqrt(1 - math.exp(-renyi(b))) for b in RDP_ORDERS))
        return renyi(a) + mean * spent + math.log(mean) / (a - 1)

    return least_epsilon(bound, delta)


@pytest.mark.parametrize("noise", [4.0, 10.0, 60.0])
@pytest.mark.parametrize("law", all_laws(), ids=lambda law: law.describe())
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_guarantee_is_the_theorem_s(law, noise, relation):
    steps, moved = 6, 2 if relation == "replace_one" else 1

    def renyi(order):
        return order * steps * moved**2 / (2 * noise**2)

    if isinstance(law, PoissonTrials):
        expected = by_theorem_6(renyi, law.mean, DELTA)
    else:
        expected = by_theorem_2(renyi, law.eta, law.gamma, DELTA)
    found = selected_guarantee([Phase(FullBatch(50), noise, steps)], law, DELTA, relation)
    # Divergences do not fall with the order, which can only lower the bound further.
    assert expected * (1 - 0.01) <= found.selected.epsilon <= expected * (1 + 1e-9)
    assert found.training == found.selected.epsilon and found.validation is None


@pytest.mark.parametrize("name", LAWS)
def test_dp_accounting_finds_the_same(name):
    law = trials_law(name, 8.0)
    phases = [Phase(Poisson(1000, 50), 1.5, 40), Phase(FullBatch(1000), 30.0, 3)]
    events = [
        SelfComposedDpEvent(PoissonSampledDpEvent(0.05, GaussianDpEvent(1.5)), 40),
        SelfComposedDpEvent(GaussianDpEvent(30.0), 3),
    ]
    accountant = RdpAccountant(list(RDP_ORDERS))
    accountant.compose(RepeatAndSelectDpEvent(ComposedDpEvent(events), 8.0, law.shape))
    other = accountant.get_epsilon(DELTA)
    found = selected_guarantee(phases, law, DELTA, "add_remove").selected
    assert found.epsilon == pytest.approx(other, rel=1e-6)
    assert found.cross_check.endswith(f"epsilon {other:.6g}")
    assert found.accountant == "rdp"


@pytest.mark.slow
@pytest.mark.parametrize(
    "law",
    [
        *(trials_law(name, mean) for name in LAWS for mean in (1.5, 10.0)),
        TruncatedNegativeBinomial(-0.5, 0.05),
    ],
    ids=lambda law: law.describe(),
)
@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_no_selection_of_gaussian_outputs_leaks_more_than_is_guaranteed(law, noise):
    """Exactly, where one trial's output is its own score and neighbours are 1 apart."""
    x = np.linspace(-12 * noise, 1 + 12 * noise, 100_001)
    counts = np.arange(0, 4000)
    weights = probability(law, counts[1:])
    # The density of the best: f(F(x)) times that of one trial, f(t) = sum_k P(K = k) k t^(k - 1).
    powers = np.polynomial.Polynomial(weights * counts[1:])
    both = [powers(ndtr((x - mean) / noise)) * norm.pdf(x, mean, noise) for mean in (0.0, 1.0)]
    for delta in (1e-2, 1e-5):
        epsilon = selected_guarantee(
            [Phase(FullBatch(9), noise, 1)], law, delta, "add_remove"
        ).selected.epsilon
        for upper, lower in (both, both[::-1]):
            leak = np.maximum(upper - math.exp(epsilon) * lower, 0).sum() * (x[1] - x[0])
            assert leak <= delta * (1 + 1e-6)
        # And the selection does leak more than one trial.
        alone = guarantee([Phase(FullBatch(9), noise, 1)], delta, "add_remove").epsilon
        assert epsilon > alone


def test_a_record_pays_for_its_own_part_and_the_worse_is_stated():
    phases, law = [Phase(Poisson(1000, 50), 2.0, 40)], trials_law("geometric", 10.0)
    public = selected_guarantee(phases, law, DELTA, "add_remove")
    quiet = selected_guarantee(phases, law, DELTA, "add_remove", Score(300, 100.0))
    loud = selected_guarantee(phases, law, DELTA, "add_remove", Score(300, 0.5))
    assert quiet.selected.epsilon == quiet.training == public.training > quiet.validation
    assert quiet.single == public.single
    assert loud.selected.epsilon == loud.validation > loud.training == public.training
    # The score: a Gaussian of sensitivity 1, selected and alone.
    of_score = selected_guarantee([Phase(FullBatch(300), 0.5, 1)], law, DELTA, "add_remove")
    assert loud.validation == of_score.training
    assert loud.single.epsilon == pytest.approx(
        guarantee([Phase(FullBatch(300), 0.5, 1)], DELTA, "add_remove").epsilon
    )


def test_a_count_moves_by_one_also_when_a_record_is_replaced():
    law, score = trials_law("geometric", 10.0), Score(300, 4.0)
    added = selected_guarantee([Phase(FullBatch(50), 9.0, 1)], law, DELTA, "add_remove", score)
    replaced = selected_guarantee([Phase(FullBatch(50), 9.0, 1)], law, DELTA, "replace_one", score)
    assert replaced.validation == added.validation
    assert replaced.training > added.training
    assert replaced.single.relation == "replace_one"


def test_a_score_is_the_noised_share_of_right_answers():
    score = Score(200, 8.0)
    shares = np.array([score.released(150, Noise("x", "keyed"), trial) for trial in range(4000)])
    assert shares.mean() == pytest.approx(0.75, abs=4 * 0.04 / math.sqrt(4000))
    assert shares.std() == pytest.approx(0.04, rel=0.05)
    assert score.released(150, Noise("x", "keyed"), 3) == shares[3]


def test_noise_is_calibrated_to_the_guarantee_of_the_selection():
    law, sampler = trials_law("logarithmic", 10.0), Poisson(1000, 50)

    def phases(noise):
        return [Phase(sampler, noise, 40)]

    noise = calibrate_selected(phases, 3.0, DELTA, "add_remove", law=law, score=Score(300, 5.0))
    epsilon = selected_guarantee(phases(noise), law, DELTA, "add_remove").training
    assert 2.99 < epsilon <= 3.0
    with pytest.raises(InputError, match=r"noise of the score: found 1, .* epsilon 3"):
        calibrate_selected(phases, 3.0, DELTA, "add_remove", law=law, score=Score(300, 1.0))


def test_the_table_of_costs_of_the_page_is_right():
    text = (Path(__file__).parents[2] / "docs/private_training.md").read_text(encoding="utf-8")
    sampler = Poisson(1200, 600)
    for trials in (3, 10, 30):
        phases = [Phase(sampler, 11.95, 40)]
        costs = [
            selected_guarantee(phases, trials_law(name, trials), DELTA, "add_remove").training
            for name in LAWS
        ]
        costs.append(guarantee([Phase(sampler, 11.95, 40 * trials)], DELTA, "add_remove").epsilon)
        assert f"| {trials} | {' | '.join(f'{cost:.2f}' for cost in costs)} |" in text


def test_a_law_is_found_by_its_mean_and_draws_by_its_noise():
    for eta in (-0.7, 0.0, 0.01, 1.0, 8.0):
        for mean in (1.001, 3.0, 500.0):
            found = TruncatedNegativeBinomial.with_mean(eta, mean)
            assert found.mean == pytest.approx(mean, rel=1e-9)
    law = trials_law("geometric", 10.0)
    assert len({law.draw(Noise("one", "keyed")) for _ in range(5)}) == 1
    assert len({law.draw(Noise("one", "os")) for _ in range(40)}) > 1


@pytest.mark.parametrize("name", LAWS)
def test_selecting_costs_less_with_more_noise_and_more_with_more_trials(name):
    def epsilon(noise, mean):
        phases = [Phase(FullBatch(1000), noise, 40)]
        return selected_guarantee(phases, trials_law(name, mean), DELTA, "add_remove").training

    assert epsilon(1e-80, 10.0) == math.inf
    by_noise = [epsilon(noise, 10.0) for noise in (0.0, 1e-9, 8.0, 10.0, 50.0, 1e7)]
    by_mean = [epsilon(10.0, mean) for mean in (1.5, 3.0, 10.0, 100.0)]
    assert by_noise == sorted(by_noise, reverse=True) and len(set(by_noise[1:])) == 5
    assert by_noise[1] > 1e6 and by_noise[-1] < 0.02
    assert by_mean == sorted(by_mean) and len(set(by_mean)) == 4


def of_pair(sampler, relation):
    law = trials_law("geometric", 5.0)
    return selected_guarantee([Phase(sampler, 8.0, 9)], law, DELTA, relation)


@pytest.mark.parametrize("sampler", [FixedSize(50, 7), Shuffled(50, 7), Cyclic(50, 7)])
def test_samplers_with_renyi_divergences_under_replace_one_are_taken(sampler):
    found = of_pair(sampler, "replace_one")
    assert found.single.epsilon < found.selected.epsilon < 40


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: of_pair(Poisson(50, 7), "replace_one"), "poisson with replace_one.*with add_rem"),
        (lambda: of_pair(FixedSize(50, 7), "add_remove"), "relation"),
        (lambda: trials_law("grid", 5.0), "name: found 'grid'"),
        (lambda: trials_law("geometric", 1.0), "expected number of trials: found 1"),
        (lambda: trials_law("geometric", 1 + 1e-13), "expected number of trials: found 1.0"),
        (lambda: trials_law("logarithmic", math.inf), "expected number of trials: found inf"),
        (lambda: trials_law("poisson", 0.5), "expected number of trials: found 0.5"),
        (lambda: TruncatedNegativeBinomial(-1.0, 0.5), "eta: found -1"),
        (lambda: TruncatedNegativeBinomial(1.0, 1.0), "gamma: found 1"),
        (lambda: Score(0, 1.0), "validation records: found 0"),
        (lambda: Score(10, 0.0), "noise of the score: found 0"),
    ],
)
def test_a_pair_without_divergences_and_what_is_no_law_or_score_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
