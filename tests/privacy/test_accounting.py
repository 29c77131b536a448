import math
import re
from collections import Counter
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dpatlas.accounting import accountants
from dpatlas.accounting.guarantees import (
    ACCOUNTANTS,
    NO_CROSS_CHECK,
    RELATIONS,
    Phase,
    calibrate,
    guarantee,
    mechanisms_of,
    smallest_noise,
)
from dpatlas.accounting.samplers import SAMPLERS, FixedSize, FullBatch, Poisson, Shuffled, sampler
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError

LP = Phase(Poisson(1000, 100), 2.0, 40)
FFT = Phase(Poisson(1000, 50), 1.0, 30)
SHORT = Phase(Poisson(8, 8), 20.0, 1000)
FIXED, EPOCHS = Phase(FixedSize(1000, 50), 3.0, 40), Phase(Shuffled(1000, 50), 3.0, 40)


def of(name: str, n: int, batch: int):
    return sampler(name, n, None if name == FullBatch.name else batch)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_each_sampler_is_accounted_by_its_own_event_or_refused(name, relation):
    phases = [Phase(of(name, 1000, 50), 3.0, 40)]
    if (name, relation) not in ACCOUNTANTS:
        with pytest.raises(InputError, match=f"relation: found {relation} with the {name} sampl"):
            guarantee(phases, 1e-5, relation)
        return
    found = guarantee(phases, 1e-5, relation)
    assert found.relation == relation
    words = {
        "poisson": r"40 x Gaussian, noise multiplier 3, on a Poisson sample, q = 0.05 \(50/1000\)",
        "fixed-size": "40 x .* sensitivity 2 C, on 50 of 1000 records without replacement",
        "shuffled": "one per epoch, 2 x .* sensitivity 2 C, accounted without amplification",
        "cyclic": "one per epoch, 2 x .* sensitivity 2 C, accounted without amplification",
        "full-batch": f"40 x .* sensitivity {'2 C' if relation == 'replace_one' else 'C'}",
    }
    assert re.fullmatch(words[name], found.event)
    alone = len(ACCOUNTANTS[name, relation]) == 1
    assert (found.cross_check == NO_CROSS_CHECK) == alone


@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_no_record_is_used_more_often_than_shuffled_phases_are_charged_for(n, batch, lengths):
    kind = Shuffled(n, min(n, batch))
    # A phase of other batches stands for each of the earlier ones: it moves the start.
    start = 0
    for steps in lengths:
        phases = [Phase(FullBatch(n), 1.0, start), Phase(kind, 1.0, steps)]
        charged = [found.count for found in mechanisms_of(phases) if found.sampler == kind]
        uses = Counter()
        for step in range(start, start + steps):
            uses.update(kind.batch_indices(Noise("digest", "keyed"), 0, step).tolist())
        assert max(uses.values(), default=0) <= sum(charged)
        start += steps


def test_a_shuffled_phase_that_starts_inside_an_epoch_pays_for_both_epochs():
    kind = Shuffled(50, 10)
    aligned = guarantee([Phase(kind, 3.0, 5), Phase(kind, 3.0, 5)], 1e-5, "replace_one")
    shifted = guarantee([Phase(kind, 3.0, 3), Phase(kind, 3.0, 5)], 1e-5, "replace_one")
    assert shifted.epsilon > aligned.epsilon * 1.1


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_a_phase_cut_in_two_costs_the_same(accountant):
    cut = [Phase(LP.sampler, 2.0, 15), Phase(LP.sampler, 2.0, 0), Phase(LP.sampler, 2.0, 25)]
    whole = guarantee([LP], 1e-5, "add_remove", accountant).epsilon
    assert guarantee(cut, 1e-5, "add_remove", accountant).epsilon == pytest.approx(whole, rel=1e-6)


def test_phases_that_pld_cannot_compose_all_go_to_rdp():
    phases = [FIXED, EPOCHS]
    found = guarantee(phases, 1e-5, "replace_one")
    assert found.accountant == "rdp"
    assert found.cross_check == NO_CROSS_CHECK
    assert "; then " in found.event
    assert found.epsilon > guarantee(phases[:1], 1e-5, "replace_one").epsilon


def test_batches_of_fixed_size_have_the_smaller_epsilon_of_two_accountants():
    found = guarantee([FIXED], 1e-5, "replace_one")
    by_rdp = guarantee([FIXED], 1e-5, "replace_one", "rdp")
    assert (found.accountant, by_rdp.accountant) == ("pld", "rdp")
    assert found.cross_check == f"RDP: epsilon {by_rdp.epsilon:.6g}"
    assert by_rdp.cross_check == f"PLD: epsilon {found.epsilon:.6g}"
    assert found.epsilon < 0.6 * by_rdp.epsilon
    # A delta below the error of the convolutions is never left to PLD.
    assert guarantee([SHORT], 1e-12, "add_remove").accountant == "rdp"


def test_without_noise_epsilon_is_infinite_and_without_steps_zero():
    silent = Phase(Poisson(LP.sampler.n, 2), 0.0, 3)
    assert guarantee([LP, silent], 1e-5, "add_remove").epsilon == math.inf
    assert guarantee([LP, silent], 1e-5, "add_remove", "rdp").epsilon == math.inf
    for phases in ([], [Phase(Poisson(10, 2), 0.0, 0)]):
        found = guarantee(phases, 1e-5, "add_remove")
        assert (found.epsilon, found.event) == (0.0, "no steps")


@given(
    name=st.sampled_from(["poisson", "shuffled", "full-batch"]),
    relation=st.sampled_from(RELATIONS),
    batch=st.sampled_from([1, 5, 20, 40]),
    steps=st.integers(1, 400),
    noise=st.floats(0.6, 30),
    more=st.floats(1.1, 3),
)
@settings(max_examples=20, deadline=None)
def test_epsilon_falls_with_noise_and_rises_with_steps_and_rate(
    name, relation, batch, steps, noise, more
):
    if (name, relation) not in ACCOUNTANTS:
        relation = "replace_one"

    def epsilon(batch, noise, steps):
        return guarantee([Phase(of(name, 100, batch), noise, steps)], 1e-5, relation).epsilon

    base = epsilon(batch, noise, steps)
    # The grid differs from case to case by a fraction of a percent.
    assert epsilon(batch, noise * more, steps) <= base * 1.005
    assert epsilon(batch, noise, math.ceil(steps * more)) >= base * 0.995
    if name == "poisson":
        assert epsilon(math.ceil(batch * more / 2 + batch / 2), noise, steps) >= base * 0.995


def test_calibration_meets_a_guarantee_that_jumps_from_the_safe_side():
    # The search ends on the side that is closer to the target: here the one that misses it.
    target = 0.95 * guarantee([Phase(FullBatch(10), 9.1, 100)], 1e-5, "add_remove").epsilon
    for jump in np.linspace(9.0, 9.03, 31) + 0.00049:

        def phases_at(noise, jump=jump):
            return [Phase(FullBatch(10), noise, 1 if noise >= jump else 100)]

        noise = calibrate(phases_at, target, 1e-5, "add_remove")
        assert jump <= noise <= jump + 2e-3


def test_calibration_counts_the_phase_that_is_already_paid_for():
    def calibrated(epsilon, *before):
        phases_at = lambda noise: [*before, replace(FFT, noise_multiplier=noise)]  # noqa: E731
        return calibrate(phases_at, epsilon, 1e-5, "add_remove")

    spent = guarantee([LP], 1e-5, "add_remove").epsilon
    assert 0 < calibrated(spent + 1, LP) < calibrated(1)
    with pytest.raises(InputError, match=r"epsilon: found .* at least .*the other phases spend it"):
        calibrated(spent * 0.99, LP)


@pytest.mark.parametrize(("n", "batch"), [(1200, 50), (300, 100), (60000, 256)])
@pytest.mark.parametrize("noise_multiplier", [0.5, 2.0, 20.0])
def test_orders_that_are_not_tried_would_not_have_given_less(
    n, batch, noise_multiplier, monkeypatch
):
    def epsilon(steps, delta):
        mechanisms = mechanisms_of([Phase(FixedSize(n, batch), noise_multiplier, steps)])
        return accountants.rdp_epsilon(mechanisms, delta, "replace_one")

    settings = [(1, 1e-3), (30, 1e-5), (1000, 1e-8)]
    found = [epsilon(*setting) for setting in settings]
    tried = []

    def all_orders(orders, curve_at, delta):
        tried.append(len(orders))
        return curve_at(orders)

    monkeypatch.setattr(accountants, "_falling_part", all_orders)
    assert [epsilon(*setting) for setting in settings] == found
    assert len(tried) == len(settings)


@pytest.mark.parametrize(
    ("sampler", "steps", "delta", "accountant", "tolerance", "known"),
    [
        (Poisson(1300, 256), 60, 1e-5, "rdp", 0.025, {1: 12.2, 2: 4.2, 4: 1.7, 6: 1.1, 8: 0.78}),
        (Poisson(1300, 256), 60, 1e-5, "pld", 0.025, {1: 10.9, 2: 3.8, 4: 1.6, 6: 0.98, 8: 0.71}),
        (Poisson(5000, 1000), 100, 2e-4, "pld", 2e-3, {1: 12.07, 5: 1.28, 10: 0.568, 20: 0.256}),
    ],
)
def test_known_poisson_epsilons(sampler, steps, delta, accountant, tolerance, known):
    for noise, expected in known.items():
        found = guarantee([Phase(sampler, noise, steps)], delta, "add_remove", accountant)
        assert found.epsilon == pytest.approx(expected, rel=tolerance)
        assert found.accountant == accountant


def test_phases_compose_in_one_accountant():
    both = guarantee([LP, FFT], 1e-5, "add_remove")
    first, second = (guarantee([phase], 1e-5, "add_remove").epsilon for phase in (LP, FFT))
    assert max(first, second) * 1.05 < both.epsilon < first + second
    cross_check = float(both.cross_check.removeprefix("RDP: epsilon "))
    assert both.accountant == "pld" and both.epsilon < cross_check < 1.3 * both.epsilon
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for phase in (LP, FFT):
        event = dp_accounting.PoissonSampledDpEvent(
            phase.sampler.sample_rate, dp_accounting.GaussianDpEvent(phase.noise_multiplier)
        )
        accountant.compose(event, phase.steps)
    assert both.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)


@given(
    pair=st.sampled_from(sorted(ACCOUNTANTS)),
    batch=st.sampled_from([5, 20, 40]),
    steps=st.integers(1, 400),
    epsilon=st.floats(0.1, 15),
)
@settings(max_examples=12, deadline=None)
@example(pair=("fixed-size", "replace_one"), batch=20, steps=30, epsilon=3.0)
def test_calibrated_noise_meets_the_target_and_wastes_less_than_one_percent(
    pair, batch, steps, epsilon
):
    name, relation = pair
    # Without replacement the accountant takes seconds: one example will do.
    assume(name != "fixed-size" or steps == 30)

    def phases_at(noise):
        return [Phase(of(name, 100, batch), noise, steps)]

    noise = calibrate(phases_at, epsilon, 1e-5, relation)
    assert 0.99 * epsilon < guarantee(phases_at(noise), 1e-5, relation).epsilon <= epsilon
    assert guarantee(phases_at(noise * 0.998), 1e-5, relation).epsilon > epsilon
    assert float(f"{noise:.4g}") == noise


def full_batch(steps):
    return lambda noise: [Phase(FullBatch(10), noise, steps)]


BAD_INPUT = [
    (
        lambda: guarantee([FIXED, EPOCHS], 1e-5, "replace_one", "pld"),
        "accountant: found pld for fixed-size.* and shuffled.*; allowed: rdp",
    ),
    (lambda: guarantee([LP], 1e-5, "replace_one", "rdp"), "accountant: found rdp for poisson"),
    (
        lambda: guarantee([LP, FIXED], 1e-5, "replace_one"),
        r"phases: found poisson \(pld\) and fixed",
    ),
    # There the package's PLD alone falls below the exact value.
    (lambda: guarantee([SHORT], 1e-12, "replace_one"), "delta: found 1e-12 for pois.* >= 1.0e-11"),
    (lambda: guarantee([LP], 0, "add_remove"), "delta: found 0; allowed: a number > 0 and < 1"),
    (lambda: calibrate(full_batch(9), 1, math.nan, "add_remove"), "delta: found nan"),
    (lambda: calibrate(full_batch(9), 0, 1e-5, "add_remove"), "epsilon: found 0; allowed: .* > 0"),
    (lambda: calibrate(full_batch(0), 1, 1e-5, "add_remove"), "epsilon: .*nothing to calibrate"),
    (lambda: calibrate(full_batch(1), 1e6, 1e-5, "add_remove"), "epsilon: .*nothing to calibrate"),
    (lambda: guarantee([LP], 1e-5, "both"), "relation: found 'both'; allowed: one of add_remove"),
    (lambda: Phase(LP.sampler, -1.0, 5), "noise_multiplier: found -1"),
    (lambda: Phase(LP.sampler, 1.0, 2.5), "steps: found 2.5"),
]


@pytest.mark.parametrize(("call", "message"), BAD_INPUT, ids=[text for _, text in BAD_INPUT])
def test_what_cannot_be_accounted_for_is_refused_by_name(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_noise_for_the_least_epsilon_that_may_be_asked_for_is_found():
    assert smallest_noise(lambda noise: noise**-2.0, 1e-9, 1e-5) == 31630
