"""The loop: what a step adds, what it divides by, what a resumed run repeats."""

import dataclasses
from functools import partial

import numpy as np
import places
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import put
from scipy import stats
from small_training import (
    OUTPUTS,
    SAMPLERS,
    Empty,
    N,
    data,
    flat,
    network,
    phase,
    sums_of,
    training,
    weights,
)
from torch import nn

from dpatlas.accounting.parameter_names import belongs
from dpatlas.accounting.samplers import FullBatch, Poisson, Shuffled
from dpatlas.base import seeds
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.models.build import build
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.training import PrivateTraining

pytestmark = pytest.mark.usefixtures("device")


def zero_gradients(output, labels):
    return 0 * output.sum(1)


@settings(max_examples=30, deadline=None)
@given(record=st.integers(0, N - 1), scale=st.floats(1e-3, 1e3), clip=st.floats(1e-3, 1e3))
@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_dropping_one_record_moves_the_noise_free_update_by_at_most_clip_over_expected_batch(
    name, record, scale, clip
):
    moved = []
    x, labels = data()
    settings = {"noise_multiplier": 0.0, "max_grad_norm": clip, "lr": 1.0, "steps": 1}
    for kept in (torch.arange(N), torch.arange(N)[torch.arange(N) != record]):
        model, noise = network(name), Noise("digest", "keyed")
        before = weights(model)
        # The expected batch is a public constant: the same for both neighbours.
        plan = [phase(PublicSize(len(kept)), **settings)]
        PrivateTraining(model, plan, scale * x[kept], labels[kept], noise=noise).run()
        moved.append(flat(weights(model)) - flat(before))
    assert (moved[0] - moved[1]).norm() <= clip / N * (1 + 1e-3)


class PublicSize(FullBatch):
    accounted_as = FullBatch.name
    expected_batch = float(N)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler.name)
def test_the_divisor_is_the_expected_batch_and_not_the_drawn_one(sampler):
    model = network("linear")
    before = weights(model)
    sums = sums_of(training([phase(sampler, noise_multiplier=0.0, lr=1.0, steps=8)], model))
    drawn = {len(sampler.batch_indices(Noise("digest", "keyed"), 0, step)) for step in range(8)}
    assert (len(drawn) > 2) == (sampler.name == "poisson")
    expected = flat(before) - torch.stack(list(map(flat, sums))).sum(0) / sampler.expected_batch
    torch.testing.assert_close(flat(weights(model)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("name", ["linear", "small-cnn-t"])
def test_chunks_of_any_size_give_the_same_update_and_one_draw_of_noise(name, size):
    found = []
    for limit in (None, size):
        model = network(name)
        plan = [phase(FullBatch(N), steps=2, max_physical_batch=limit)]
        sums = sums_of(training(plan, model, shared_noise="chunks"))
        found.append((torch.stack([flat(each) for each in sums]), flat(weights(model))))
    # A GPU's convolutions choose their algorithm, and so their rounding, by the size of a batch:
    # 2e-5 was seen.
    atol = 1e-5 if places.device == "cpu" else 1e-4
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=atol)


@pytest.mark.parametrize("clipping", ["flat", "per-layer"])
@pytest.mark.parametrize("name", ["linear", "small-cnn-t"])
def test_a_poisoned_record_never_stops_training_or_reaches_the_weights(name, clipping):
    x, labels = data()
    x[4], x[9, 3] = torch.nan, torch.inf
    plan = [phase(FullBatch(N), clipping=clipping, max_physical_batch=5)]
    run, resumed = (training(plan, network(name), records=(x, labels)) for _ in range(2))
    run.run()
    resumed.restore(*run.state())
    assert run.steps_done == 6
    assert run.skipped_records == resumed.skipped_records == 12
    assert all(torch.isfinite(value).all() for value in run.model.parameters())


def test_weight_decay_stays_outside_of_the_clip():
    updates = {}
    for decay in (0.0, 0.1):
        model = network("linear")
        with torch.no_grad():
            for value in model.parameters():
                value.mul_(1e4)
        before = weights(model)
        settings = {"noise_multiplier": 0.0, "lr": 1.0, "steps": 1, "weight_decay": decay}
        training([phase(FullBatch(N), **settings)], model).run()
        updates[decay] = flat(weights(model)) - (1 - decay) * flat(before)
    torch.testing.assert_close(updates[0.0], updates[0.1], rtol=1e-3, atol=1e-3)
    assert updates[0.1].norm() <= 0.5 * (1 + 1e-2)


TWO_PHASES = [
    phase(Poisson(N, 6), steps=3, trainable=("head",), momentum=0.9),
    phase(Shuffled(N, 4), steps=8, momentum=0.9, max_physical_batch=3),
]


def moved(model, before):
    return {name for name, value in weights(model).items() if not torch.equal(value, before[name])}


def test_frozen_parameters_stay_bit_identical():
    model = network()
    before = weights(model)
    run = training(TWO_PHASES, model)
    for _ in range(3):
        run.step()
    assert moved(model, before) == {name for name in before if name.startswith("head")}
    run.run()
    assert moved(model, before) == set(before)


def test_what_requires_no_gradient_is_trained_only_if_a_phase_names_it():
    model = network("mlp")
    before = weights(model)
    head = {name for name in before if name.startswith("head")}
    for name, value in model.named_parameters():
        value.requires_grad_(name in head)
    run = training([phase(steps=2)], model, ema_decay=0.5)
    run.run()
    assert moved(model, before) == head == set(run.trained)
    sizes = {name: value.numel() for name, value in before.items()}
    words = f"the {sum(sizes[name] for name in head):,} not frozen of {sum(sizes.values()):,}"
    assert words in run.ledger()["mechanism"]
    body = tuple(sorted(set(before) - head))
    training([phase(steps=1, trainable=body)], model, Noise("body", "keyed")).run()
    assert moved(model, before) == set(before)
    # Neither training changed what the next one takes as frozen.
    assert {name for name, value in model.named_parameters() if value.requires_grad} == head


def test_all_noise_keys_of_a_run_are_distinct(monkeypatch):
    keys = []
    original = Noise.key
    monkeypatch.setattr(
        Noise, "key", lambda self, *axes: keys.append(axes) or original(self, *axes)
    )
    for repetition in range(2):
        training(TWO_PHASES, repetition=repetition).run()
    noise = [axes for axes in keys if axes[2] == "noise"]
    # Of every repetition and step: one for each parameter that is trained.
    assert len(noise) == len(set(noise))
    assert len({axes[:2] for axes in noise}) == 2 * 11


def test_the_average_of_the_weights_is_what_its_definition_says():
    model = network("linear")
    expected = flat(weights(model))
    run = training([phase()], model, ema_decay=0.2)
    for decay in (1 / 10, 2 / 11, 0.2, 0.2):
        run.step()
        expected = decay * expected + (1 - decay) * flat(weights(model))
    torch.testing.assert_close(flat(run.ema), expected)


NADAM = partial(torch.optim.NAdam, betas=(0.8, 0.9), eps=1e-6)


def test_a_plan_and_a_ledger_name_the_optimizer_with_its_settings():
    def grouped(groups):
        return torch.optim.NAdam([{**group, "eps": 1e-3} for group in groups])

    run = training([phase(optimizer=NADAM, steps=1)], network("linear"))
    run.run()
    assert run.ledger()["mechanism"].startswith("DP-NAdam, flat clipping")
    words = run.state()[1]["plan"]["phases"][0]["optimizer"]
    assert words.startswith("NAdam(betas=(0.8, 0.9)") and "eps=1e-06" in words
    # Options that a factory gives its groups are part of the plan.
    other = training([phase(optimizer=grouped, steps=1)], network("linear"))
    assert "eps=0.001" in other.state()[1]["plan"]["phases"][0]["optimizer"]
    with pytest.raises(InputError, match=r"a state of another plan: optimizer of phase 1 'NAdam"):
        other.restore(*run.state())


def test_an_optimizer_whose_state_no_checkpoint_holds_is_refused_there():
    class Counting(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                group["k"] = group.get("k", 0) + 1
            super().step()

    class Apart(torch.optim.SGD):
        def step(self, closure=None):
            self.state["all"]["steps"] = torch.ones(1)
            super().step()

    for optimizer in (Counting, Apart):
        run = training([phase(optimizer=optimizer)], network("linear"), noise=Noise())
        run.step()
        with pytest.raises(InputError, match=f"{optimizer.__name__}, which keeps state elsewhere"):
            run.state()


def test_gradients_that_a_script_left_move_nothing():
    def everything(groups):
        return torch.optim.SGD(model.parameters(), lr=1.0)

    model = network()
    for value in model.parameters():
        value.grad = torch.ones_like(value)
    before = weights(model)
    with pytest.raises(InputError, match="SGD of other parameters or groups; allowed: one of the"):
        phase(optimizer=everything)
    run = training([phase(FullBatch(N), optimizer=torch.optim.SGD, trainable=("head",))], model)
    run.step()
    assert moved(model, before) == set(run.trained)


def test_rates_may_follow_public_values_and_go_on_after_a_resume():
    plan = [phase(FullBatch(N), steps=4, lr=0.2)]
    run = training(plan, network("linear"), shared_noise="scaled")
    for step in range(4):
        if step == 2:
            state = run.state()
            run = training(plan, network("linear"), shared_noise="scaled")
            run.restore(*state)
            assert run.lr_scale == 0.5
        run.lr_scale = 0.5**step
        run.step()
    by_hand = [phase(FullBatch(N), steps=1, lr=0.2 / 2**step) for step in range(4)]
    planned = training(by_hand, network("linear"), shared_noise="scaled")
    planned.run()
    torch.testing.assert_close(flat(weights(run.model)), flat(weights(planned.model)))


def test_steps_beyond_the_plan_count_and_are_said():
    plan = [phase(Poisson(N, 6), steps=3, momentum=0.9)]
    run = training(plan, network("linear"), shared_noise="longer")
    run.run()
    spent = run.guarantee().epsilon
    run.add_steps(2)
    run.run()
    whole = training(
        [dataclasses.replace(plan[0], steps=5)], network("linear"), shared_noise="longer"
    )
    whole.restore(*run.state())
    for each in (run, whole):
        assert each.steps_done == 5 and each.ran.phases[0].steps == 5
        assert each.guarantee().epsilon > spent
        (said,) = each.guarantee().warnings
        assert said.startswith("went on after the 3 steps planned")
    fresh = training(whole.phases, network("linear"), shared_noise="longer")
    fresh.run()
    assert torch.equal(flat(weights(fresh.model)), flat(weights(run.model)))
    assert not fresh.guarantee().warnings and fresh.guarantee().epsilon == run.guarantee().epsilon
    run.add_steps(2)
    run.step()
    stopped, longer = run.guarantee().warnings
    assert stopped.startswith("stopped after 6 of 7") and longer.startswith("went on after the 3 s")


@pytest.mark.parametrize(
    ("sampler", "loss", "views"),
    [
        (Poisson(N, 6), zero_gradients, None),
        (Empty(N, 6), cross_entropy, None),
        (Empty(N, 6), cross_entropy, 2),
    ],
)
@pytest.mark.parametrize("name", ["linear", "bench-cnn"])
def test_zero_gradients_and_empty_batches_give_noise_of_the_right_scale(name, sampler, loss, views):
    shape = (3, 32, 32) if name == "bench-cnn" else (1, 8, 8)
    model = put(build(name, shape, OUTPUTS, key="test", run=0, base_seed=0))
    before = weights(model)
    x, labels = put(torch.ones(N, int(np.prod(shape)))), data()[1]
    options = {"noise": Noise("digest", "keyed"), "loss": loss}
    options["augmentation"] = views and ShiftAndFlip(shape, views, padding=2, flip=True)
    run = PrivateTraining(model, [phase(sampler, steps=1, lr=1.0)], x, labels, **options)
    run.run()
    moved = (flat(weights(model)) - flat(before)).double().numpy() / (1.5 * 0.5 / 6)
    assert stats.kstest(moved, "norm").pvalue > 1e-3
    assert 1e-3 < stats.chi2.cdf(moved @ moved, len(moved)) < 1 - 1e-3
    assert run.steps_done == 1


def test_a_prefix_selects_whole_parts_of_names():
    assert belongs("head.weight", "head") and belongs("head.weight", "head.weight")
    assert belongs("head.weight", "") and not belongs("header.weight", "head")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_grad_norm": 0}, "max_grad_norm: found 0; allowed: a number >= 1e-30"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm: found nan"),
        # A record of norm 1 then adds 1.67 times the bound to a sum in float32.
        ({"max_grad_norm": 1e-42}, "max_grad_norm: found 1e-42; allowed: a number >= 1e-30"),
        ({"max_grad_norm": 1e39}, "max_grad_norm: found 1e.39; allowed: .* <= 1e.30"),
        ({"noise_multiplier": -1.0}, "noise_multiplier: found -1.0; allowed: a number >= 0"),
        ({"trainable": "head"}, "trainable: found 'head'; allowed: a tuple of texts"),
        ({"trainable": (0,)}, r"trainable: found \(0,\); allowed: a tuple of texts"),
        ({"steps": 1.5}, "steps: found 1.5; allowed: a whole number"),
        ({"lr": 0}, "lr: found 0"),
        # Beyond float32, in which the weights are.
        ({"lr": 1e39}, r"lr: found 1e\+39; allowed: a number > 0 and <= 1e\+30"),
        ({"weight_decay": 1e39}, r"weight_decay: found 1e\+39; allowed: .* <= 1e\+30"),
        ({"momentum": 1.0}, "momentum: found 1.0"),
        ({"optimizer": "rmsprop"}, "optimizer: found 'rmsprop'; allowed: one of sgd, adam"),
        ({"optimizer": 7}, "optimizer: found 7; allowed: sgd, adam, adamw, or a function"),
        ({"optimizer": lambda groups: groups}, "optimizer: found list; allowed: sgd"),
        ({"optimizer": torch.optim.LBFGS}, "LBFGS, which fails: .*closure.* gradients alone"),
        ({"optimizer": torch.optim.SparseAdam}, "SparseAdam, which fails: .*dense"),
        ({"optimizer": NADAM, "momentum": 0.5}, r"momentum: found 0.5; allowed: 0 with NAdam,"),
        ({"clipping": "none"}, "clipping: found 'none'"),
        ({"max_physical_batch": 0}, "max_physical_batch: found 0"),
        ({"optimizer": "adam", "momentum": 0.5}, "momentum: found 0.5; allowed: 0 with adam"),
    ],
)
def test_a_bad_setting_of_a_phase_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        phase(**changes)


def attempt(change=lambda x, labels: (x, labels), sampler=SAMPLERS[0], name="linear", **changes):
    model = network("linear").to("meta") if name == "meta" else network(name)
    PrivateTraining(
        model, [phase(sampler, **changes)], *change(*data()), noise=Noise("digest", "keyed")
    )


def labelled(value):
    return lambda x, labels: (x, torch.where(torch.arange(N, device=x.device) == 3, value, labels))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attempt(lambda x, labels: (x[:0], labels[:0])), "data: found 0 records"),
        (lambda: attempt(lambda x, labels: (x, labels.float())), "labels: found torch.float32"),
        (lambda: attempt(lambda x, labels: (x, labels[1:])), "labels: found 22 records; allowed:"),
        (lambda: attempt(labelled(-1)), "labels: found -1; .* from 0 to 4"),
        (lambda: attempt(labelled(OUTPUTS), name="mlp"), "labels: found 5; .* from 0 to 4"),
        (lambda: attempt(sampler=Poisson(50, 6)), "sampler: found batches of 50 records"),
        (lambda: attempt(trainable=("body",)), "trainable: found .*'body'.* prefixes among head"),
        (lambda: training([phase()], nn.Flatten()), "model: found no parameters; allowed: a"),
        (
            lambda: training([phase()], network().requires_grad_(False)),
            "requires_grad=False in all",
        ),
        (lambda: attempt(name="meta"), "parameter head.weight: found on meta; allowed: c"),
        (lambda: training([phase(steps=0)]).step(), "step: found 0; allowed: fewer than 0"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_first_step(call, message):
    with pytest.raises(InputError, match=message):
        call()


def wide():
    """A network with enough weights for the noise that is drawn in blocks."""
    torch.manual_seed(0)
    return put(nn.Sequential(nn.Flatten(), nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, OUTPUTS)))


@pytest.mark.parametrize("make", [network, wide])
@pytest.mark.parametrize("records", [data, lambda: tuple(part.cpu().numpy() for part in data())])
def test_a_device_that_a_script_sets_for_new_tensors_is_not_used(make, records, monkeypatch):
    """With "cuda" each tensor that is made anew would meet others on the CPU; "meta" shows it."""
    expected, found = make(), make()
    training([phase()], expected, Noise("device", "keyed"), records()).run()
    monkeypatch.setattr(seeds, "_claims", {})
    given = records()
    torch.set_default_device("meta")
    try:
        run = training([phase()], found, Noise("device", "keyed"), given)
        run.run()
        run.restore(*run.state())
    finally:
        torch.set_default_device(None)
    assert torch.equal(flat(weights(expected)), flat(weights(found)))
