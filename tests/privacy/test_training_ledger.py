"""Guarantee and ledger of a training come from the steps that it took, checkpoints included."""

import copy
import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from small_training import N, network, phase, training
from torch import nn

from dpatlas.accounting.clip_bounds import AdaptiveClip, LayerBounds
from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.accounting.guarantees import default_delta, guarantee
from dpatlas.accounting.ledger import UNTOLD
from dpatlas.accounting.samplers import FixedSize, FullBatch, Poisson, Shuffled
from dpatlas.accounting.schedules import InverseTime, StepDecay
from dpatlas.base.canonical import canonical_json
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy import PrivateTraining, saved
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.optimizers import ParameterGroup
from dpatlas.privacy.saved import load_weights
from dpatlas.privacy.training import FOLLOWED

HEAD = phase(noise_multiplier=2.0, steps=4, trainable=("head",))
ALL = phase(noise_multiplier=3.0, steps=6, max_grad_norm=0.25)


def stopped_after(steps: int, phases=(HEAD, ALL), **options) -> PrivateTraining:
    run = training(phases, **options)
    for _ in range(steps):
        run.step()
    return run


def through_json(state):
    arrays, facts = state
    return arrays, json.loads(canonical_json(facts))


@pytest.mark.parametrize(
    ("steps", "taken", "clip"),
    [
        (0, [], []),
        (3, 3, 0.5),
        (4, 4, 0.5),
        (5, [4, 1], [0.5, 0.25]),
        (10, [4, 6], [0.5, 0.25]),
    ],
)
def test_guarantee_and_ledger_speak_of_the_steps_that_were_taken(steps, taken, clip):
    run = stopped_after(steps)
    found, ledger = run.guarantee(1e-3, "add_remove"), run.ledger(1e-3, "add_remove")
    accounted = [each.accounted for each in run.phases_run]
    assert replace(found, warnings=()) == guarantee(accounted, 1e-3, "add_remove")
    assert (ledger["epsilon"], ledger["steps"], ledger["clip"]) == (found.epsilon, taken, clip)
    # Stopped by its noisy sums, a training may leak more than the steps that it took.
    stopped = [f"stopped after {steps} of 10 steps" in told for told in ledger["warnings"]]
    assert stopped == [True] * (0 < steps < 10) and ledger["warnings"] == list(found.warnings)


def test_words_clip_sampler_and_noise_source_come_from_the_training():
    run = stopped_after(5, noise=Noise("digest", "os"))
    ledger = run.ledger()
    count = sum(value.numel() for value in run.model.parameters())
    assert ledger["mechanism"] == (
        "DP-SGD, flat clipping, on head; then DP-SGD, flat clipping, on all "
        f"{count:,} parameters of Network"
    )
    assert ledger["noise_multiplier"] == [2.0, 3.0] and ledger["clip"] == [0.5, 0.25]
    assert [each["name"] for each in ledger["sampler"]] == ["poisson"] * 2
    assert "secret of the operating system" in ledger["holds_for"]
    run.shared_noise = "arms of a comparison"
    assert "arms of a comparison" in run.ledger()["holds_for"]
    with pytest.raises(AttributeError):
        run.phases = (ALL,)
    other = stopped_after(1, [phase(optimizer="adam", clipping="per-layer", noise_multiplier=0.0)])
    assert other.ledger()["mechanism"].startswith("Adam without noise, per-layer clipping")
    assert other.ledger()["guaranteed"] == "nothing: no noise"
    assert other.guarantee().epsilon == math.inf


def test_without_arguments_a_ledger_has_a_small_delta_a_fitting_relation_and_owns_up():
    ledger = stopped_after(2).ledger()
    assert ledger["delta"] == 1e-5 and "add or remove" in ledger["neighbour_relation"]
    assert ledger["chosen_on_private_data"] == [UNTOLD]
    assert stopped_after(2).ledger(chosen_on_private_data=None)["chosen_on_private_data"] == (
        "nothing"
    )
    phases = [phase(FixedSize(N, 6)), phase(FullBatch(N))]
    fixed = stopped_after(2, phases, noise=Noise("fixed size", "keyed"))
    assert fixed.guarantee().relation == "replace_one"
    assert default_delta(100) == 1e-5 and default_delta(10**6) == pytest.approx(1e-7)


@pytest.mark.parametrize(
    "follows", ["kept", "loaded", "wrapped", "copied", "filled", "averaged", "reset"]
)
def test_a_training_of_weights_that_another_left_says_that_it_counts_its_own_steps(
    tmp_path, follows
):
    model, warned = network("mlp"), int(follows != "reset")
    fresh = copy.deepcopy(model.state_dict())
    first = training([ALL], model, Noise(), ema_decay=0.9)
    first.run()
    if follows == "loaded":
        first.save(tmp_path / "model")
        load_weights(tmp_path / "model", model := network("mlp", run=1))
    elif follows == "wrapped":
        model = nn.Sequential(model, nn.Linear(5, 5))
    elif follows == "copied":
        model = pickle.loads(pickle.dumps(copy.deepcopy(model)))  # noqa: S301
    elif follows in ("filled", "averaged"):
        left = model.state_dict() if follows == "filled" else first.ema
        (model := network("mlp", run=1)).load_state_dict(left)
    elif follows == "reset":
        model.load_state_dict(fresh)
    whole = replace(ALL, trainable=("",))
    second = training([whole], model, Noise())
    assert second.guarantee(1e-3).warnings == (FOLLOWED,) * warned
    second.run()
    assert second.guarantee(1e-3).epsilon == first.guarantee(1e-3).epsilon
    for warnings in (second.guarantee(1e-3).warnings, second.ledger(1e-3)["warnings"]):
        assert [FOLLOWED] * warned == list(warnings)
    # So does one that is restored elsewhere, and the first one never did.
    again = training([whole], copy.deepcopy(model), Noise())
    again.restore(*through_json(second.state()))
    assert list(again.guarantee(1e-3).warnings) == [FOLLOWED] * warned
    assert first.guarantee(1e-3).warnings == ()


def warnings_of_a_training_of(model):
    run = training([ALL], model, Noise())
    run.run()
    return run.guarantee(1e-3).warnings


def test_weights_are_known_from_a_state_in_another_process_and_by_a_copy_of_some_that_are_gone(
    monkeypatch,
):
    def left():
        first = training([ALL], model := network("mlp"), Noise())
        first.run()
        return through_json(first.state()), copy.deepcopy(model)

    state, copied = left()
    assert warnings_of_a_training_of(copied) == (FOLLOWED,)
    monkeypatch.setattr(saved, "_left", set())
    again = training([ALL], model := network("mlp"), Noise())
    again.restore(*state)
    assert warnings_of_a_training_of(model) == (FOLLOWED,)


@pytest.mark.parametrize("left_by", ["run", "state", "save"])
def test_copies_of_all_that_any_phase_trained_are_known_and_nothing_else(left_by, tmp_path):
    model = network("mlp")
    fresh = copy.deepcopy(model.state_dict())
    phases = [phase(steps=1, trainable=("linear1",)), phase(steps=2, trainable=("head",))]
    first = training(phases, model, Noise())
    first.run() if left_by == "run" else first.step()
    first.state() if left_by == "state" else first.save(tmp_path / "m")
    left = copy.deepcopy(model.state_dict())
    model.load_state_dict(fresh)
    for name, warned in (("linear1.weight", 1), ("head.weight", left_by == "run"), ("", 0)):
        other = network("mlp")
        assert all(torch.equal(value, fresh[each]) for each, value in other.named_parameters())
        other.load_state_dict({**fresh, **({name: left[name]} if name else {})})
        assert warnings_of_a_training_of(other) == (FOLLOWED,) * warned


def test_a_branch_that_counts_the_training_before_it_does_not_warn():
    model = network("mlp")
    first = training([ALL], model, noise := Noise(), shared_noise="branches")
    first.run()
    branch = training([ALL], copy.deepcopy(model), noise, shared_noise="branches", after=first.ran)
    branch.run()
    assert branch.guarantee(1e-3).warnings == () and len(branch.ran.phases) == 2


class Interrupted(Exception):
    pass


def test_a_step_counts_from_the_moment_its_noisy_sum_exists_and_after_a_restore():
    def attacker(step, sums):
        if step == 2:
            raise Interrupted

    run, again = training([HEAD, ALL], on_update=attacker), training([HEAD, ALL])
    with pytest.raises(Interrupted):
        run.run()
    again.restore(*through_json(run.state()))
    for either in (run, again):
        assert either.steps_done == 2
        assert either.phases_run[0].steps == either.ran.phases[0].steps == 3


CHANGES = [
    {"noise_multiplier": 50.0},
    {"max_grad_norm": 0.7},
    {"steps": 9},
    {"lr": 0.1},
    {"optimizer": "adam"},
    {"momentum": 0.5},
    {"weight_decay": 0.1},
    {"trainable": ("head",)},
    {"lr_decay": 0.5},
    {"lr_schedule": InverseTime(0.5)},
    {"noise_schedule": StepDecay(2, 2.0)},
    {"parameter_groups": (ParameterGroup("head", lr=0.05),)},
    {"clipping": "per-layer"},
    {"clipping": LayerBounds({"head": 0.01, "": 0.03})},
    {"clipping": AdaptiveClip(0.5, 1.0)},
    {"sampler": Poisson(N, 7)},
    {"sampler": Shuffled(N, 6)},
]


@pytest.fixture(scope="module")
def state():
    """Of two steps of both phases, and of two without noise."""
    return {
        name: through_json(stopped_after(2, phases).state())
        for name, phases in (("both", (HEAD, ALL)), ("silent", [phase(noise_multiplier=0.0)]))
    }


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: next(iter(changes)))
def test_a_state_of_other_phases_is_refused(state, changes):
    (name,) = changes
    other = training([phase(**{"noise_multiplier": 0.0, **changes})])
    with pytest.raises(InputError, match=f"checkpoint: found .* {name} of phase 1"):
        other.restore(*state["silent"])
    assert other.steps_done == 0


def half_frozen():
    model = network()
    model.head.requires_grad_(False)
    return model


VIEWS = ShiftAndFlip((1, 8, 8), views=2, padding=1, flip=False)


@pytest.mark.parametrize(
    ("phases", "options", "message"),
    [
        ([HEAD], {}, "checkpoint: found 2 phases; allowed: 1, as planned"),
        ([HEAD, ALL], {"augmentation": VIEWS}, "another plan: augmentation None"),
        ([HEAD, ALL], {"loss": lambda output, labels: output.sum(1)}, "another plan: loss '"),
        ([HEAD, ALL], {"repetition": 1}, "checkpoint: found a state of another run"),
        ([HEAD, ALL], {"ema_decay": 0.5}, "checkpoint: found a state of another run"),
        ([ALL], {"model": network("mlp")}, "checkpoint: found a state of another run"),
        ([HEAD, ALL], {"model": half_frozen()}, "another plan: frozen"),
    ],
)
def test_a_state_of_another_training_is_refused(state, phases, options, message):
    with pytest.raises(InputError, match=message):
        training(phases, **options).restore(*state["both"])


def test_memory_at_a_time_may_differ_after_a_restore_and_a_state_must_have_its_plan():
    arrays, facts = through_json(stopped_after(2, [phase()]).state())
    again = training([phase(max_physical_batch=2)])
    again.restore(arrays, facts)
    assert again.steps_done == 2
    old = {name: value for name, value in facts["plan"].items() if name != "engine"}
    for plan, version in ((None, "0.1"), (old, "0.1"), ({**old, "engine": "7.5"}, "7.5")):
        with pytest.raises(InputError, match=f"a state that version {version} .*; allowed") as said:
            again.restore(arrays, {**facts, "plan": plan})
        assert "\n" not in str(said.value)


def test_a_training_that_stops_by_its_noisy_sums_has_17_times_the_stated_delta():
    """Full batches with mu 1 in all; the best time to stop, by dynamic programming.

    The privacy loss is a random walk with normal steps of variance h and mean h / 2. Stopping at
    loss s after k steps gives 1 - exp(eps_k - s), with the eps_k that k steps state at delta.
    """
    delta, steps = 1e-5, 1000
    h, width = 1 / steps, 1 / steps**0.5 / 8
    losses = np.arange(-1.0, 9.0, width)
    jumps = np.arange(-50, 51)
    chances = stats.norm.pdf(jumps * width, h / 2, h**0.5)
    chances /= chances.sum()
    value = np.zeros(len(losses))
    for k in range(steps, 0, -1):
        stopped = 1 - np.exp(gaussian_epsilon((k * h) ** 0.5, delta) - losses)
        value = np.maximum(stopped, value).clip(min=0)
        value = np.convolve(value, chances[::-1], "same")
    reached = np.interp(0, losses, value)
    assert reached == pytest.approx(16.7 * delta, rel=0.03)
