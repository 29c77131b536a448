"""A training that is killed after any step goes on, in another process, to the same bits."""

import pytest
import torch
from places import put
from small_networks import Net
from small_training import Jitter, N, check_resumes, data, network, phase, training
from test_clip_bounds import ADAPTIVE, BY_LAYER
from test_data import SOURCES, against_the_mean, several, two_inputs
from test_schedules import GROUPS, alternating
from test_units import IDS, PERSONS
from torch import nn

from dpatlas.accounting.samplers import FullBatch, Poisson, Shuffled
from dpatlas.accounting.schedules import StepDecay, WarmupCosine

pytestmark = pytest.mark.usefixtures("device")

TWO_PHASES = [
    phase(Poisson(N, 6), steps=2, lr=0.05, lr_decay=0.5, trainable=("head",)),
    phase(Shuffled(N, 4), steps=3, lr=0.05, max_physical_batch=3),
]
AVERAGED = {"ema_decay": 0.9, "augmentation": Jitter(), "repetition": 2}


def both(**changes):
    return [phase(Poisson(N, 6), steps=1, **changes), phase(FullBatch(N), steps=2, **changes)]


def moving(self, x):
    self.factor *= 1.5
    return self.layer(x) * self.factor


def moving_buffers():
    model = Net(moving, layer=nn.Linear(64, 5), factor=torch.ones(()))
    nn.init.constant_(model.layer.weight, 0.1)
    return put(model)


def few_bits():
    return moving_buffers().bfloat16()


# Phases, the network, and other arguments, which may be functions of a folder.
CASES = {
    "adam, views, average": (both(optimizer="adam", lr=0.05), network, AVERAGED),
    "momentum, frozen part": (both(momentum=0.9, trainable=("head",)), network, {}),
    "two samplers": (TWO_PHASES, network, AVERAGED),
    "schedules, groups": (
        [
            phase(lr_schedule=WarmupCosine(1, 2, 0.1), noise_schedule=alternating, steps=2),
            phase(
                lr_schedule=StepDecay(2, 0.5), parameter_groups=GROUPS, optimizer="adamw", steps=3
            ),
        ],
        network,
        {},
    ),
    "bounds by layer": (both(**BY_LAYER, max_physical_batch=3), network, {}),
    "adaptive bound": (both(**ADAPTIVE, max_physical_batch=3), network, {}),
    "persons": (
        [phase(Poisson(PERSONS, 3), steps=1), phase(FullBatch(PERSONS), steps=2, **ADAPTIVE)],
        network,
        {"groups": IDS, "augmentation": Jitter()},
    ),
    "buffers that move": (both(), moving_buffers, {}),
    "numbers of few bits": (
        both(),
        few_bits,
        {"ema_decay": 0.9, "records": lambda folder: (data()[0].bfloat16(), data()[1])},
    ),
    "torch's own optimizer, few bits": (
        both(optimizer=torch.optim.NAdam),
        few_bits,
        {"records": lambda folder: (data()[0].bfloat16(), data()[1])},
    ),
    "several inputs": (both(), two_inputs, {"records": lambda folder: several("dict")}),
    "no targets": (
        both(),
        network,
        {"loss": against_the_mean, "records": lambda folder: (data()[0], None)},
    ),
    **{
        name: (both(), network, {"records": SOURCES[name]})
        for name in ("a mapped file", "a dataset")
    },
}


@pytest.mark.parametrize(
    ("name", "source"), [*((name, "os") for name in CASES), ("two samplers", "keyed")]
)
def test_a_run_killed_at_any_step_and_resumed_gives_the_same_bits(name, source, tmp_path):
    phases, make, options = CASES[name]
    given = options.get("records", lambda folder: data())
    options = {key: value for key, value in options.items() if key != "records"}

    def fresh(noise, on_update):
        model = make("mlp") if make is network else make()
        records = given(tmp_path)
        return training(phases, model, noise, records, on_update=on_update, **options)

    check_resumes(fresh, tmp_path, source)
