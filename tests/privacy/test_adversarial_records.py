"""Records and networks that break a guarantee: refused, and caught by the audit if they are not.

Each case states two neighbouring data sets and runs one private update of each. The attacker knows
everything but the noise, so what he sees of an update is a normal variable around the noise-free
sum. With the engine's safeguards switched off the bound of `epsilon_lower_bound` exceeds the
epsilon that the engine states; with them on the case is refused, or moves the sum by no more than
was accounted for.
"""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from small_training import flat, kept_sums, sums_of, weights
from torch import Tensor, nn

from dpatlas.accounting.audit_statistics import LowerBound, epsilon_lower_bound
from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.samplers import FullBatch, Sampler
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.convolution import Convolution, patch_gram
from dpatlas.privacy.matrix import Matrix
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining
from dpatlas.train.canaries import PoissonWithEmptySlots

DELTA, LEVEL, RUNS = 0.1, 0.999, 20_000
# No two updates share their noise.
UPDATES = itertools.count()
# What an update may move under its relation, in units of the clip bound.
SENSITIVITY = {"add_remove": 1.0, "replace_one": 2.0}


class World(NamedTuple):
    """One of two neighbouring data sets and the sampler that reads it."""

    x: Tensor
    labels: Tensor
    sampler: Sampler


class Case(NamedTuple):
    """Two neighbours under one network; the noise is one sensitivity."""

    make: Callable[[], nn.Module]
    worlds: tuple[World, World]
    relation: str = "replace_one"
    max_grad_norm: float = 1.0
    trainable: tuple[str, ...] = ("",)

    @property
    def noise_multiplier(self) -> float:
        return SENSITIVITY[self.relation]


def rounded(honest):
    """Norms from Gram matrices as they come, whatever their rounding, in the place of bounds."""

    def norms2(self, *given):
        if getattr(self, "inputs", None) is None or self.positions() == 1:
            return honest(self, *given)
        if isinstance(self, Convolution):
            shape = self.shape
            inputs = patch_gram(self.inputs, self.kernel, shape.stride, shape.padding)
            rows = self.delta.flatten(2).transpose(1, 2)
        else:
            inputs, rows = torch.bmm(self.inputs, self.inputs.transpose(1, 2)), self.delta
        outputs = torch.bmm(rows, rows.transpose(1, 2))
        return torch.linalg.vecdot(inputs.flatten(1), outputs.flatten(1)).clamp_min(0).double()

    return norms2


# What the engine's word rests on, and what it does without each. A name that moves shows: the
# tests without safeguards then meet the safeguard.
SAFEGUARDS = {
    "dpatlas.privacy.training.PrivateTraining._check_plan": lambda *arguments, **options: None,
    "dpatlas.base.seeds.Noise.claim": lambda *arguments, **options: None,
    "dpatlas.privacy.matrix.Matrix.norms2": rounded(Matrix.norms2),
    "dpatlas.privacy.convolution.Convolution.norms2": rounded(Convolution.norms2),
}


def switch_off(patch: pytest.MonkeyPatch) -> None:
    """Take away the safeguards that these cases are about."""
    for name, without in SAFEGUARDS.items():
        patch.setattr(name, without)


def totals(case: Case) -> list[Tensor]:
    """The sum of one update before its noise, in each world."""
    found = []
    for x, labels, sampler in case.worlds:
        torch.manual_seed(0)
        phase = TrainingPhase(sampler, 0.0, case.max_grad_norm, 1, 1e-9, trainable=case.trainable)
        noise = Noise(f"update {next(UPDATES)}", source="keyed")
        (total,) = sums_of(PrivateTraining(case.make(), [phase], x, labels, noise=noise))
        found.append(flat(total).double())
    return found


def moved(case: Case) -> float:
    """How far the neighbours' noise-free sums are apart, in units of the clip bound."""
    first, other = totals(case)
    return float((first - other).norm()) / case.max_grad_norm


def attack(case: Case, more: float = 0.0) -> LowerBound:
    """What the best attack on one update shows.

    Its score is the noisy sum's component along the line through both means.
    more: by how much the means are moved further apart, in units of the noise.
    """
    first, other = totals(case)
    line = (first - other) / (first - other).norm()
    scale = case.noise_multiplier * case.max_grad_norm
    scores = [
        float(total @ line) + scale * np.random.default_rng(use).standard_normal(RUNS)
        for use, total in enumerate((first, other))
    ]
    scores[0] += more * scale
    return epsilon_lower_bound(*scores, DELTA, LEVEL)


def stated(case: Case) -> float:
    phase = Phase(case.worlds[0].sampler, case.noise_multiplier, 1)
    return guarantee([phase], DELTA, case.relation).epsilon


def draws(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def flipped(x: Tensor) -> tuple[World, World]:
    """The data set, all labels 0, and the one in which the first record has the other label."""
    labels = torch.zeros(len(x), dtype=torch.int64)
    other = labels.clone()
    other[0] = 1
    return World(x, labels, FullBatch(len(x))), World(x, other, FullBatch(len(x)))


def removed(x: Tensor) -> tuple[World, World]:
    """The data set, and the one without its first record; every record is in every batch."""
    n, labels = len(x), torch.zeros(len(x), dtype=torch.int64)
    full = PoissonWithEmptySlots(n, n)
    without = PoissonWithEmptySlots(n, n, frozenset([0]))
    return World(x, labels, full), World(x, labels, without)


class Contrast(nn.Module):
    """A layer over four positions of which the sum with signs + - - + is the output."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer
        self.register_buffer("signs", torch.tensor([1.0, -1.0, -1.0, 1.0]))
        self.head = nn.Linear(64, 2, bias=False).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        if out.dim() == 4:
            out = out.flatten(2).transpose(1, 2)
        return self.head((self.signs[:, None] * out).sum(1))


def linear() -> nn.Module:
    """Two layers: of one alone the closed form would be taken."""
    return nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2))


# Layers whose norm comes from Gram matrices, and the shape of four records.
LAYERS = {
    "linear layer over positions": (lambda: nn.Linear(64, 64, bias=False), (4, 4, 64)),
    "convolution by Gram": (lambda: nn.Conv2d(64, 64, 3, bias=False), (4, 64, 4, 4)),
}


@functools.cache
def clipped(what: str, offset: float, max_grad_norm: float) -> Case:
    """Activations that share an offset, which the output does not see: what a Gram norm may lose.

    Of several records, those that show most without safeguards: processors round differently.
    """
    layer, shape = LAYERS[what]
    cases = [
        Case(
            lambda: Contrast(layer()),
            flipped(offset + draws(*shape, seed=seed)),
            max_grad_norm=max_grad_norm,
            trainable=("layer",),
        )
        for seed in range(8)
    ]
    with pytest.MonkeyPatch.context() as patch:
        switch_off(patch)
        return max(cases, key=moved)


OFFSETS = pytest.mark.parametrize(("offset", "bound"), [(1e4, 0.1), (1e5, 0.1), (1e6, 0.01)])


@OFFSETS
@pytest.mark.parametrize("what", LAYERS)
def test_with_the_safeguards_off_the_audit_catches_the_case(what, offset, bound, monkeypatch):
    switch_off(monkeypatch)
    case = clipped(what, offset, bound)
    assert attack(case).epsilon > stated(case)


@OFFSETS
@pytest.mark.parametrize("what", LAYERS)
def test_with_the_safeguards_on_the_record_is_clipped(what, offset, bound):
    case = clipped(what, offset, bound)
    assert moved(case) <= SENSITIVITY[case.relation] * (1 + 1e-5)
    assert attack(case).epsilon <= stated(case)


@pytest.mark.parametrize("relation", SENSITIVITY)
def test_an_update_that_moves_by_what_is_accounted_for_is_not_caught(relation):
    """Of 20,000 runs a tenth more is seen and what is stated is not."""
    worlds = (flipped if relation == "replace_one" else removed)(torch.eye(6))
    honest = Case(linear, worlds, relation, max_grad_norm=0.01)
    assert moved(honest) == pytest.approx(SENSITIVITY[relation], rel=1e-5)
    assert 0.8 * stated(honest) < attack(honest).epsilon <= stated(honest)
    assert attack(honest, more=0.1).epsilon > stated(honest)


# Several runs of the engine, each with its own noise: here the noise is what goes wrong.
REPETITIONS = 40


def engine(phase: TrainingPhase, world: World, noise: Noise, seed: int = 0) -> PrivateTraining:
    torch.manual_seed(seed)
    return PrivateTraining(linear(), [phase], world.x, world.labels, noise=noise)


def repetitions(world: World) -> range:
    """Others for each neighbour; the first of all is left out."""
    first = 1 + REPETITIONS * int(world.labels[0])
    return range(first, first + REPETITIONS)


def again(training: PrivateTraining, start, repetition: int) -> None:
    """Run it anew, with noise of its own."""
    arrays, facts = start
    training.repetition = repetition
    training.restore(arrays, {**facts, "repetition": repetition})
    training.run()


def neighbours() -> tuple[World, World]:
    return flipped(draws(4, 6))


def two_trainings(world: World, noise: Noise) -> list[Tensor]:
    """What two networks' trainings on the same noise show by the difference of their sums."""
    phase = TrainingPhase(world.sampler, 100.0, 0.01, 1, 1e-9)
    trainings = [engine(phase, world, noise, seed) for seed in (0, 1)]
    sums = [kept_sums(training) for training in trainings]
    starts = [training.state() for training in trainings]
    for repetition in repetitions(world):
        for training, start in zip(trainings, starts, strict=True):
            again(training, start, repetition)
    return [flat(one).double() - flat(other).double() for one, other in zip(*sums, strict=True)]


def other_phases(world: World, noise: Noise) -> list[Tensor]:
    """Weights after nine steps without noise and one that the ledger knows, with much of it."""
    free = TrainingPhase(world.sampler, 0.0, 0.01, 10, 1000.0)
    noisy = TrainingPhase(world.sampler, 50.0, 0.01, 10, 1.0)
    without = engine(free, world, noise)
    for _ in range(9):
        without.step()
    start = without.state()
    training = engine(noisy, world, noise)
    found = []
    for repetition in repetitions(world):
        again(training, start, repetition)
        found.append(flat(weights(training.model)).double())
    return found


# Name -> (what both neighbours' runs show, the phases that are stated).
SEVERAL = {
    "two trainings with one noise": (two_trainings, [Phase(FullBatch(4), 100.0, 1)] * 2),
    "restored into other phases": (other_phases, [Phase(FullBatch(4), 50.0, 10)]),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_with_the_safeguards_off_the_audit_catches_the_runs(name, monkeypatch):
    switch_off(monkeypatch)
    show, phases = SEVERAL[name]
    seen = [torch.stack(show(world, Noise(name, source="keyed"))) for world in neighbours()]
    line = seen[0].mean(0) - seen[1].mean(0)
    scores = [(each @ line).numpy() for each in seen]
    delta = 1e-2
    shown = epsilon_lower_bound(*scores, delta, LEVEL).epsilon
    assert shown > guarantee(phases, delta, "replace_one").epsilon


@pytest.mark.parametrize("name", SEVERAL)
def test_with_the_safeguards_on_the_runs_are_refused(name):
    show, _ = SEVERAL[name]
    with pytest.raises(InputError):
        show(neighbours()[0], Noise(f"{name}, refused", source="keyed"))
