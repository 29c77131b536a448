"""Learning rates and noise by public schedules, parameter groups, AdamW."""

import copy
import itertools
import json
import math
from functools import partial

import pytest
import torch
from small_training import N, flat, network, phase, sums_of, training, weights

from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.samplers import FullBatch, Poisson
from dpatlas.accounting.schedules import MOST_LEVELS, InverseTime, StepDecay, WarmupCosine
from dpatlas.base.canonical import canonical_json
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.optimizers import ParameterGroup

pytestmark = pytest.mark.usefixtures("device")


def alternating(step):
    return 1.0 if step % 3 else 2.0


GROUPS = (ParameterGroup("head", lr=0.05, weight_decay=0.0), ParameterGroup("head.bias", lr=0.4))
NESTEROV = partial(torch.optim.SGD, momentum=0.9, nesterov=True, lr=7.0)
SETTINGS = {
    "warm-up and cosine": {"lr_schedule": WarmupCosine(2, 6, 0.1), "weight_decay": 0.2},
    "inverse time": {"lr_schedule": InverseTime(0.5)},
    "decay": {"lr_decay": 0.5},
    "steps": {"lr_schedule": StepDecay(2, 0.5), "optimizer": "adam"},
    "any function": {
        "lr_schedule": lambda step: 1 / (1 + step) ** 0.5,
        "optimizer": "adamw",
        "weight_decay": 0.2,
    },
    "noise": {"noise_schedule": alternating},
    "groups": {"parameter_groups": GROUPS, "weight_decay": 0.2, "optimizer": "adamw"},
    # A factory's own rate and decay do not count.
    **{
        str(make): {"optimizer": make, "weight_decay": 0.01}
        for make in (NESTEROV, torch.optim.NAdam, torch.optim.RMSprop, torch.optim.AdamW)
    },
}
RULES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def reference(model, changes):
    """torch's optimiser with the same groups, and the schedule as a function."""
    names = dict(model.named_parameters())
    lr, decay = 0.3, changes.get("weight_decay", 0.0)
    parts = [
        {"params": [value], "lr": lr, "weight_decay": decay}
        for name, value in names.items()
        if not (changes.get("parameter_groups") and name.startswith("head"))
    ]
    if "parameter_groups" in changes:
        parts += [
            {"params": [names["head.weight"]], "lr": 0.05, "weight_decay": 0.0},
            {"params": [names["head.bias"]], "lr": 0.4, "weight_decay": decay},
        ]
    rule = changes.get("optimizer", "sgd")
    return RULES.get(rule, rule)(parts)


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
def test_the_update_is_that_of_torch_at_the_rates_of_the_schedule(changes):
    model = network()
    copied = copy.deepcopy(model)
    sums = sums_of(training([phase(**changes)], model, Noise()))
    theirs, decay = reference(copied, changes), changes.get("lr_decay", 0.0)
    factor = changes.get("lr_schedule", InverseTime(decay))
    base = [part["lr"] for part in theirs.param_groups]
    for step, found in enumerate(sums):
        for part, lr in zip(theirs.param_groups, base, strict=True):
            part["lr"] = lr * factor(step)
        for name, value in copied.named_parameters():
            value.grad = found[name] / 6
        theirs.step()
    torch.testing.assert_close(flat(weights(copied)), flat(weights(model)), rtol=1e-4, atol=1e-5)
    assert all(value.grad is None for value in model.parameters())


def test_schedules_are_what_their_formulas_say():
    cosine = WarmupCosine(4, 12, 0.2)
    assert [cosine(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert cosine(4) == 1.0 and cosine(8) == pytest.approx(0.6)
    assert cosine(12) == cosine(100) == 0.2
    falling = [cosine(step) for step in range(4, 14)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(falling))
    assert WarmupCosine(3, 3)(3) == 0.0
    assert [StepDecay(2, 0.5)(step) for step in range(5)] == [1, 1, 0.5, 0.5, 0.25]
    assert [InverseTime(0.5)(step) for step in (0, 2)] == [1, 0.5]


@pytest.mark.parametrize(("sampler", "relation"), [(Poisson(N, 6), "add_remove"), (None, None)])
def test_every_noise_of_a_schedule_is_accounted_with_its_steps(sampler, relation):
    sampler, relation = sampler or FullBatch(N), relation or "replace_one"
    run = training([phase(sampler, noise_schedule=alternating, steps=7)], noise=Noise())
    noises = [3.0, 1.5, 1.5, 3.0, 1.5, 1.5, 3.0]
    for taken in range(8):
        expected = [Phase(sampler, noise, 1) for noise in noises[:taken]]
        found = run.guarantee(1e-5, relation).epsilon
        assert found == pytest.approx(guarantee(expected, 1e-5, relation).epsilon, rel=1e-9)
        if taken < 7:
            run.step()
    if isinstance(sampler, FullBatch):
        # Gaussian releases compose exactly: their squared signals add up.
        mu = 2 * math.sqrt(sum(noise**-2 for noise in noises))
        assert found == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-3)
    ledger = run.ledger(1e-5, relation)
    assert ledger["noise_multiplier"] == [3.0, 1.5, 3.0, 1.5, 3.0]
    assert ledger["steps"] == [1, 2, 1, 2, 1] and ledger["clip"] == [0.5] * 5


def test_many_levels_of_noise_are_accounted_as_few_that_are_no_larger():
    # Of full batches, whose accounting takes no time; levels are the same for every sampler.
    rising = phase(FullBatch(N), steps=100, noise_schedule=lambda step: 1 + step / 100)
    phases = rising.accounted_phases
    assert len(phases) == MOST_LEVELS and sum(each.steps for each in phases) == 100
    accounted = [each.noise_multiplier for each in phases for _ in range(each.steps)]
    noises = [rising.noise_at(step) for step in range(100)]
    assert all(
        0.96 * noise < level <= noise for noise, level in zip(noises, accounted, strict=True)
    )
    exact = [Phase(rising.sampler, noise, 1) for noise in noises]
    bound, tight = (
        guarantee(given, 1e-5, "add_remove", "rdp").epsilon for given in (phases, exact)
    )
    assert tight < bound < 1.03 * tight
    run = training([rising], network("linear"), Noise())
    run.run()
    mechanism = run.ledger(accountant="rdp")["mechanism"]
    assert "noise by a schedule of 100 levels, accounted as 24 lower ones, on" in mechanism
    vanishing = phase(FullBatch(N), steps=310, noise_schedule=StepDecay(1, 0.1))
    assert guarantee([vanishing], 1e-5, "add_remove").epsilon == math.inf


def test_the_noise_added_at_a_step_is_that_of_the_schedule():
    zero = {"lr": 1.0, "max_grad_norm": 0.5, "steps": 4, "noise_schedule": lambda step: 1 + step}
    run = training(
        [phase(FullBatch(N), **zero)],
        network("mlp"),
        Noise(),
        loss=lambda output, labels: 0 * output.sum(1),
    )
    for step, found in enumerate(sums_of(run)):
        sums = flat(found).double()
        scale = float(sums.std()) / (1.5 * 0.5 * (1 + step))
        assert abs(scale - 1) < 5 / math.sqrt(2 * len(sums))


def test_a_step_without_noise_guarantees_nothing():
    run = training([phase(noise_schedule=lambda step: step, steps=2)], noise=Noise())
    run.run()
    assert run.guarantee().epsilon == math.inf
    assert run.ledger()["guaranteed"] == "nothing: no noise"


def test_a_function_is_evaluated_before_training_and_stored_as_numbers():
    asked = []

    def rate(step):
        asked.append(step)
        return 1 / (step + 1)

    planned = phase(lr_schedule=rate, steps=4)
    before = len(asked)
    run = training([planned], noise=Noise())
    run.run()
    arrays, facts = run.state()
    assert len(asked) == before
    assert facts["plan"]["phases"][0]["lr_schedule"] == [1, 1 / 2, 1 / 3, 1 / 4]
    other = training([phase(lr_schedule=lambda step: 1 / (step + 2), steps=4)], noise=Noise())
    with pytest.raises(InputError, match="another plan: lr_schedule of phase 1"):
        other.restore(arrays, json.loads(canonical_json(facts)))


def impure():
    numbers = itertools.count(1)
    return lambda step: float(next(numbers))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr_schedule": impure()}, r"lr_schedule: found 6.0 and then 7.0 at step 5; .* pure func"),
        ({"lr_schedule": 0.5}, "lr_schedule: found 0.5; allowed: a function of the step"),
        ({"lr_schedule": lambda step: -1.0}, "lr_schedule, step 0: found -1.0"),
        ({"lr_schedule": lambda step: 1e7}, "lr_schedule, step 0: found 10000000.0"),
        ({"noise_schedule": lambda step: math.nan}, "noise_schedule, step 0: found nan"),
        ({"noise_schedule": lambda step: "1"}, "noise_schedule, step 0: found '1'"),
        ({"lr_schedule": InverseTime(1.0), "lr_decay": 0.1}, "lr_decay: found 0.1; allowed: 0 wit"),
        ({"parameter_groups": (GROUPS[0], GROUPS[0])}, "parameter_groups: .* each prefix once"),
        ({"optimizer": "adamw", "momentum": 0.5}, "momentum: found 0.5; allowed: 0 with adamw"),
    ],
)
def test_what_is_no_function_of_the_step_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        phase(**changes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: WarmupCosine(7, 6), "warmup: found 7"),
        (lambda: StepDecay(0, 0.5), "every: found 0"),
        (lambda: InverseTime(-1), "decay: found -1"),
        (lambda: ParameterGroup("head", lr=0), "lr of the parameter group 'head': found 0"),
        (lambda: ParameterGroup("head", lr=1e39), "lr of the parameter group 'head': found 1e"),
        (
            lambda: training([phase(parameter_groups=(ParameterGroup("tail"),))], noise=Noise()),
            "parameter_groups: found prefix 'tail'",
        ),
        # Where the function was evaluated.
        (
            lambda: phase(lr_schedule=phase(lr_schedule=lambda step: 1, steps=4).lr_schedule),
            "steps: found 5; allowed: at most 4",
        ),
    ],
)
def test_a_schedule_or_a_group_out_of_range_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
