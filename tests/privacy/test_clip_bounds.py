"""Clipping by layer bounds, and by a bound that follows a quantile of the norms."""

import math

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.rdp import RdpAccountant
from reference_gradients import per_record_gradients
from scipy import stats
from small_training import SAMPLERS, N, data, flat, network, phase, sums_of, training, weights

from dpatlas.accounting.accountants import RDP_ORDERS
from dpatlas.accounting.clip_bounds import AdaptiveClip, LayerBounds
from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.accounting.samplers import FullBatch, Poisson
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.training import CLIP_COUNT

pytestmark = pytest.mark.usefixtures("device")

BOUNDS = LayerBounds({"head": 0.01, "": 0.03})
BY_LAYER = {"clipping": BOUNDS, "max_grad_norm": BOUNDS.total}
ADAPTIVE = {"clipping": AdaptiveClip(quantile=0.4, count_noise=1.2), "max_grad_norm": 2.0}


def noise_free(x, labels, model, **changes):
    """The clipped sum of one step on all records, by parameter."""
    settings = {"noise_multiplier": 0.0, "steps": 1, "lr": 1e-9, **changes}
    run = training([phase(FullBatch(len(x)), **settings)], model, records=(x, labels))
    return sums_of(run)[0]


def ran(**changes):
    run = training([phase(**changes)], noise=Noise())
    run.run()
    return run


@pytest.mark.parametrize("name", ["mlp", "small-cnn-t"])
def test_each_part_is_clipped_at_its_own_bound(name):
    x, labels = data()
    model = network(name)
    gradients = per_record_gradients(model, x, labels)
    found = noise_free(x, labels, model, **BY_LAYER)
    for prefix, bound in BOUNDS.by_prefix.items():
        part = [name for name in gradients if name.startswith("head") == (prefix == "head")]
        norms = sum(gradients[name].flatten(1).square().sum(1) for name in part).sqrt()
        assert (norms > bound).any()
        factors = (bound / norms).clamp_max(1)
        for name in part:
            expected = torch.tensordot(factors, gradients[name], 1)
            torch.testing.assert_close(found[name], expected, rtol=1e-3, atol=1e-6)


def test_a_record_moves_every_part_by_its_bound_at_most_and_the_whole_by_the_total():
    x, labels = data()
    both = noise_free(50 * x, labels, network(), **BY_LAYER)
    less = noise_free(50 * x[1:], labels[1:], network(), **BY_LAYER)
    moved = {name: (both[name] - less[name]).norm() ** 2 for name in both}
    head = sum(value for name, value in moved.items() if name.startswith("head"))
    body = sum(value for name, value in moved.items() if not name.startswith("head"))
    assert 0.9 * 0.01 < head.sqrt() <= 0.01 * (1 + 1e-3)
    assert 0.9 * 0.03 < body.sqrt() <= 0.03 * (1 + 1e-3)
    assert (head + body).sqrt() <= BOUNDS.total * (1 + 1e-3)


def test_one_bound_for_all_layers_is_flat_clipping():
    one = noise_free(*data(), network("mlp"), clipping=LayerBounds({"": 3.0}))
    flatly = noise_free(*data(), network("mlp"))
    torch.testing.assert_close(flat(one), flat(flatly))


def test_the_ledger_states_every_bound_and_their_total():
    run = ran(**BY_LAYER, steps=2)
    ledger = run.ledger()
    assert ledger["clip"]["total"] == pytest.approx(math.hypot(0.01, 0.03))
    assert ledger["clip"]["by_layer"] == pytest.approx(BOUNDS.by_prefix)
    assert "per-layer clipping" in ledger["mechanism"]
    assert run.guarantee() == ran(steps=2).guarantee()


def counts(sampler, steps=300, **changes):
    """Counts as released and before noise, a parameter's noise over the bound, the training."""
    x, labels = data()
    settings = {"lr": 1e-8, "steps": steps, "noise_multiplier": 1.5, **ADAPTIVE, **changes}
    found, clean, other = [], [], []

    def see(step, sums):
        batch = sampler.batch_indices(run.noise, run.repetition, step)
        bound = bounds[-1]
        clipped = run.kernel.clipped_sum(x[batch], labels[batch], bound)
        assert sums[CLIP_COUNT].shape == (1,)
        found.append(float(sums[CLIP_COUNT]))
        clean.append(float((clipped.norms <= bound).sum()) - len(batch) / 2)
        other.append(float(sums["head.bias"][0] - clipped.gradients["head.bias"][0]) / bound)

    bounds = [settings["max_grad_norm"]]
    run = training(
        [phase(sampler, **settings)], network("linear"), Noise("counts", "keyed"), on_update=see
    )
    for _ in range(steps):
        run.step()
        bounds.append(run.state()[1]["max_grad_norm"])
    return *map(np.array, (found, clean, other)), bounds, run


@pytest.mark.parametrize("sampler", [SAMPLERS[0], SAMPLERS[3]], ids=lambda each: each.name)
def test_counts_and_sums_carry_the_noise_that_the_ledger_states_at_the_bound_of_each_step(sampler):
    found, clean, gradients, bounds, run = counts(sampler, max_physical_batch=12)
    stated = run.ledger()["clip"]
    noise = (found - clean) / stated["count_noise"]
    assert max(bounds) > 3 * min(bounds)
    for drawn in (noise, gradients / stated["gradient_noise_multiplier"]):
        assert stats.kstest(drawn, "norm").pvalue > 1e-3
        assert 1e-3 < stats.chi2.cdf(drawn @ drawn, len(drawn)) < 1 - 1e-3
    # Drawn for themselves: not those of the gradients, and not one number for all steps.
    assert abs(np.corrcoef(noise, gradients)[0, 1]) < 5 / math.sqrt(len(noise))
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 5 / math.sqrt(len(noise))
    # The bound follows from what was released and from nothing else.
    clip = ADAPTIVE["clipping"]
    again = [2.0]
    for count in found:
        again.append(clip.after(again[-1], count, sampler.expected_batch, 2.0))
    assert again == bounds


def test_the_bound_comes_to_the_quantile_of_the_norms():
    x, labels = data()
    quiet = AdaptiveClip(quantile=0.7, count_noise=0.05, lr=0.1)
    *_, bounds, run = counts(FullBatch(N), 200, clipping=quiet, max_grad_norm=500.0)
    norms = run.kernel.clipped_sum(x, labels, 1.0).norms
    low, high = np.quantile(norms.cpu(), [0.6, 0.8])
    assert low <= np.median(bounds[-50:]) <= high


def released(x, labels, persons=None):
    units = len(x) if persons is None else len(np.unique(persons))
    run = training(
        [phase(FullBatch(units), steps=1, **{**ADAPTIVE, "max_grad_norm": 3.0})],
        network("linear"),
        records=(x, labels),
        groups=persons,
        shared_noise="neighbours",
    )
    return float(sums_of(run)[0][CLIP_COUNT])


@pytest.mark.parametrize("persons", [None, np.maximum(np.arange(N), 2)], ids=["record", "person"])
def test_a_record_or_person_moves_the_count_by_one_half_and_replaced_by_one(persons):
    x, labels = data()
    theirs = 1 if persons is None else 3
    within, beyond = x.clone(), x.clone()
    within[:theirs] *= 1e-3
    beyond[:theirs] *= 1e3
    without = released(x[theirs:], labels[theirs:], None if persons is None else persons[theirs:])
    assert released(within, labels, persons) - without == pytest.approx(0.5)
    assert released(beyond, labels, persons) - without == pytest.approx(-0.5)


def test_gradients_and_count_compose_to_the_joint_noise_that_is_accounted():
    run = ran(sampler=FullBatch(N), **ADAPTIVE, steps=7)
    for relation, moved in (("add_remove", 1), ("replace_one", 2)):
        # Two Gaussian releases at every step: sensitivities C and 1/2, doubled for a replacement.
        signals = [moved / 1.5] * 7 + [moved * 0.5 / 1.2] * 7
        analytic = gaussian_epsilon(math.sqrt(sum(mu**2 for mu in signals)), 1e-5)
        assert run.guarantee(1e-5, relation).epsilon == pytest.approx(analytic, rel=1e-3)


def test_on_a_poisson_sample_the_package_s_own_composition_gives_the_same_epsilon():
    run = ran(sampler=Poisson(N, 6), **ADAPTIVE, steps=7)
    both = [dp_accounting.GaussianDpEvent(1.5), dp_accounting.GaussianDpEvent(2 * 1.2)]
    step = dp_accounting.PoissonSampledDpEvent(6 / N, dp_accounting.ComposedDpEvent(both))
    theirs = RdpAccountant(list(RDP_ORDERS)).compose(step, 7).get_epsilon(1e-5)
    assert run.guarantee(1e-5, "add_remove", "rdp").epsilon == pytest.approx(theirs, rel=1e-6)
    assert run.guarantee(1e-5, "add_remove", "pld").epsilon < theirs


def test_the_ledger_names_both_releases_and_their_noise():
    ledger = ran(**ADAPTIVE, steps=3).ledger()
    assert ledger["mechanism"].startswith("DP-SGD, adaptive clipping")
    clip = ledger["clip"]
    assert (clip["first"], clip["quantile"], clip["count_noise"]) == (2.0, 0.4, 1.2)
    assert clip["gradient_noise_multiplier"] == 1.5
    joint = 1 / math.sqrt(1 / 1.5**2 + 1 / 2.4**2)
    assert clip["joint_noise_multiplier"] == ledger["noise_multiplier"] == pytest.approx(joint)
    assert "one Gaussian release together" in clip["released_at_every_step"]


def test_no_noise_of_the_count_is_drawn_twice_or_from_that_of_the_gradients(monkeypatch):
    keys = []
    original = Noise.key
    monkeypatch.setattr(
        Noise, "key", lambda self, *axes: keys.append(axes) or original(self, *axes)
    )
    training([phase(**ADAPTIVE), phase(**ADAPTIVE)], noise=Noise()).run()
    counted = [axes for axes in keys if axes[2] == CLIP_COUNT]
    assert len(set(counted)) == len(counted) == 12
    assert not set(counted) & {axes for axes in keys if axes[2] != CLIP_COUNT}


def test_an_adaptive_bound_never_reaches_zero_or_infinity():
    clip = AdaptiveClip(quantile=0.5, count_noise=1.0, lr=10.0)
    low = high = 1.0
    for _ in range(1000):
        low, high = clip.after(low, 1e9, 6, 1.0), clip.after(high, -1e9, 6, 1.0)
    assert low == pytest.approx(1e-6) and high == pytest.approx(1e6)


def test_a_poisoned_record_counts_as_clipped():
    x, labels = data()
    x[4] = torch.nan
    found = released(x, labels)
    x[4] = 1e3
    assert found == released(x, labels)
    model = network("mlp")
    x[4] = torch.nan
    run = training([phase(**ADAPTIVE)], model, Noise(), records=(x, labels))
    run.run()
    assert all(torch.isfinite(value).all() for value in weights(model).values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LayerBounds({}), "LayerBounds: found no bound"),
        (lambda: LayerBounds({"head": 0.0}), "bound of 'head': found 0.0"),
        (lambda: AdaptiveClip(1.5, 1.0), "quantile: found 1.5"),
        (lambda: AdaptiveClip(0.5, 0.0), "count_noise: found 0.0"),
        (lambda: AdaptiveClip(0.5, 1.0, lr=0), "lr of the clip bound: found 0"),
        (
            lambda: training([phase(clipping=LayerBounds({"head": 1.0}))]),
            "layer .*: found no bound in LayerBounds; allowed: a layer under 'head'",
        ),
        (
            lambda: training([phase(clipping=LayerBounds({"head": 1.0, "": 1.0, "tail": 1.0}))]),
            "LayerBounds: found prefix 'tail'",
        ),
        (
            lambda: training([phase(clipping=LayerBounds({"": 1.0, "head.weight": 1.0}))]),
            "LayerBounds: found prefix 'head.weight'; allowed: prefixes of trained layers",
        ),
    ],
)
def test_bounds_that_do_not_fit_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
