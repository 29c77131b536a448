"""Records and networks that break a guarantee: refused, and caught by the audit if they are not.

Each case states two neighbouring data sets and runs one private update of each. The attacker knows
everything but the noise, so what he sees of an update is a normal variable around the noise-free
sum, and buffers or `.grad` fields of the model that he is given as they are. With the engine's
safeguards switched off the bound of `epsilon_lower_bound` exceeds the epsilon that the engine
states; with them on the case is refused, or moves the sum by no more than was accounted for.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from dpatlas.privacy.layers import Linear
from small_training import sums_of
from torch import Tensor, nn

from dpatlas.accounting.audit_statistics import LowerBound, epsilon_lower_bound
from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.samplers import FullBatch, Sampler
from dpatlas.checks.audit.jobs.canaries import PoissonWithEmptySlots
from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.convolution import Conv2d, patch_gram
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.per_record import PerRecordWarning
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

DELTA, LEVEL, RUNS = 0.1, 0.999, 20_000
# No two updates share their noise.
UPDATES = itertools.count()
# What an update may move under its relation, in units of the clip bound.
SENSITIVITY = {"add_remove": 1.0, "replace_one": 2.0}


@dataclass(frozen=True)
class World:
    """One of two neighbouring data sets and the sampler that reads it."""

    x: Tensor
    labels: Tensor
    sampler: Sampler


@dataclass(frozen=True)
class Case:
    """Two neighbours under one network, loss and augmentation; the noise is one sensitivity."""

    make: Callable[[], nn.Module]
    worlds: tuple[World, World]
    relation: str = "replace_one"
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    augmentation: object = None
    max_grad_norm: float = 1.0
    trainable: tuple[str, ...] = ("",)

    @property
    def noise_multiplier(self) -> float:
        return SENSITIVITY[self.relation]


@dataclass
class Seen:
    """What one update shows: the sum before its noise, and what is released without any."""

    total: Tensor
    bare: Tensor


def nothing(*arguments, **options) -> None:
    """In the place of a function that refuses."""


def any_outputs(subject) -> int:
    """In the place of the probe, which gives the size of a record's output."""
    return 10**6


def rounded(honest):
    """Norms from Gram matrices as they come, whatever their rounding, in the place of bounds."""

    def norms2(self, *given):
        if getattr(self, "inputs", None) is None or self.positions() == 1:
            return honest(self, *given)
        if isinstance(self, Conv2d):
            layer = self.layer
            inputs = patch_gram(self.inputs, layer.kernel_size, layer.stride, layer.padding)
            rows = self.delta.flatten(2).transpose(1, 2)
        else:
            inputs, rows = torch.bmm(self.inputs, self.inputs.transpose(1, 2)), self.delta
        outputs = torch.bmm(rows, rows.transpose(1, 2))
        return torch.linalg.vecdot(inputs.flatten(1), outputs.flatten(1)).clamp_min(0).double()

    return norms2


# What the engine's word rests on, and what it does without each. A name that moves shows: the
# tests without safeguards then meet the safeguard.
SAFEGUARDS = {
    "dpatlas.privacy.training.probe": any_outputs,
    "dpatlas.privacy.per_record.probe": any_outputs,
    "dpatlas.privacy.training.refuse_autocast": nothing,
    "dpatlas.privacy.per_record.refuse_autocast": nothing,
    "dpatlas.privacy.rules.Rule.check_rows": nothing,
    "dpatlas.privacy.training.PrivateTraining._check_plan": nothing,
    "dpatlas.core.seeds.Noise.claim": nothing,
    "dpatlas.privacy.layers.Linear.norms2": rounded(Linear.norms2),
    "dpatlas.privacy.convolution.Conv2d.norms2": rounded(Conv2d.norms2),
}


def switch_off(patch: pytest.MonkeyPatch) -> None:
    """Take away the safeguards that these cases are about."""
    for name, without in SAFEGUARDS.items():
        patch.setattr(name, without)


def update(case: Case, world: World) -> Seen:
    """One update without noise, in the given world."""
    torch.manual_seed(0)
    model = case.make()
    phase = TrainingPhase(world.sampler, 0.0, case.max_grad_norm, 1, 1e-9, trainable=case.trainable)
    training = PrivateTraining(
        model,
        [phase],
        world.x,
        world.labels,
        noise=Noise(f"update {next(UPDATES)}", source="keyed"),
        loss=case.loss,
        augmentation=case.augmentation,
    )
    (total,) = sums_of(training)
    bare = [*model.buffers(), *(p.grad for p in model.parameters() if p.grad is not None)]
    return Seen(flat(total.values()), flat([torch.zeros(0), *bare]))


def flat(tensors) -> Tensor:
    return torch.cat([each.detach().flatten() for each in tensors])


def moved(case: Case) -> float:
    """How far the neighbours' noise-free sums are apart, in units of the clip bound."""
    first, other = (update(case, world) for world in case.worlds)
    return float((first.total.double() - other.total.double()).norm()) / case.max_grad_norm


def attack(case: Case) -> LowerBound:
    """What the best attack on one update shows.

    Its score is the noisy sum's component along the line through both means. A part that is
    released without noise and differs tells the neighbours apart by itself.
    """
    seen = [update(case, world) for world in case.worlds]
    line = seen[0].total.double() - seen[1].total.double()
    line /= line.norm()
    scores = [components(each.total, line, case, use) for use, each in enumerate(seen)]
    if not torch.equal(seen[0].bare, seen[1].bare):
        scores[0] += np.inf
    return epsilon_lower_bound(*scores, DELTA, LEVEL)


def components(total: Tensor, line: Tensor, case: Case, use: int) -> np.ndarray:
    """Along `line`, of `RUNS` noisy sums.

    In float32 they are the sum's plus one normal number each. A coarser sum with its noise is
    rounded, entry by entry, which is part of what is released.
    """
    scale = case.noise_multiplier * case.max_grad_norm
    rng = np.random.default_rng(use)
    if total.dtype == torch.float32:
        return float(total.double() @ line) + scale * rng.standard_normal(RUNS)
    noise = torch.from_numpy(rng.standard_normal((RUNS, len(total)), dtype=np.float32))
    return ((total + scale * noise).to(total.dtype).double() @ line).numpy()


def stated(case: Case) -> float:
    phase = Phase(case.worlds[0].sampler, case.noise_multiplier, 1)
    return guarantee([phase], DELTA, case.relation).epsilon


def draws(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def replaced(x: Tensor, row: Tensor, label: int = 0, index: int = 0):
    """The data set, all labels 0, and the one in which a record is another."""
    labels = torch.zeros(len(x), dtype=torch.int64)
    other_x, other_labels = x.clone(), labels.clone()
    other_x[index], other_labels[index] = row, label
    sampler = FullBatch(len(x))
    return World(x, labels, sampler), World(other_x, other_labels, sampler)


def flipped(x: Tensor):
    """The data set, and the one in which the first record has the other label."""
    return replaced(x, x[0], label=1)


def opposite(x: Tensor, size: float):
    """The data set with `size` as every number of the first record, and with its opposite."""
    x[0] = size
    return replaced(x, -x[0])


def removed(x: Tensor):
    """The data set, and the one without its first record; every record is in every batch."""
    n, labels = len(x), torch.zeros(len(x), dtype=torch.int64)
    full = PoissonWithEmptySlots(n, n)
    without = PoissonWithEmptySlots(n, n, frozenset([0]))
    return World(x, labels, full), World(x, labels, without)


class Through(nn.Module):
    """A network of one trained linear layer, and what happens before and after it."""

    def __init__(self, forward: Callable[[nn.Module, Tensor], Tensor], bias: bool = True):
        super().__init__()
        self.layer, self.passed = nn.Linear(6, 2, bias), forward

    def forward(self, x: Tensor) -> Tensor:
        return self.passed(self.layer, x)


def frames_in_the_batch() -> Case:
    """Sixteen equal frames of a record, each clipped as a record of its own."""

    def forward(layer, x):
        frames = layer(x.reshape(-1, x.shape[2]))
        return frames.view(len(x), x.shape[1], -1).mean(1)

    x = 100 * draws(4, 1, 6).expand(-1, 16, -1).contiguous()
    return Case(lambda: Through(forward), flipped(x))


def time_before_records() -> Case:
    """The layer's first dimension is time: what is clipped is a moment of all records."""
    x = torch.zeros(4, 8, 6)
    x[0] = 100.0
    return Case(
        lambda: Through(lambda layer, x: layer(x.transpose(0, 1)).sum(0), bias=False), flipped(x)
    )


def less_the_first() -> Case:
    """All records see record 0."""
    worlds = opposite(0.01 * draws(16, 6), 100)
    return Case(lambda: Through(lambda layer, x: layer(x - x[:1])), worlds)


def running_sum() -> Case:
    """A record sees those before it."""
    worlds = opposite(0.01 * draws(16, 6), 100)
    return Case(lambda: Through(lambda layer, x: layer(x.cumsum(0))), worlds)


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


def by_gram(
    layer: Callable[[], nn.Module], offset: float, shape: tuple[int, ...], max_grad_norm: float
) -> Case:
    """Of several records, those that show most without safeguards: processors round differently."""
    options = {"max_grad_norm": max_grad_norm, "trainable": ("layer",)}
    cases = [
        Case(lambda: Contrast(layer()), flipped(offset + draws(*shape, seed=seed)), **options)
        for seed in range(8)
    ]
    with pytest.MonkeyPatch.context() as patch:
        switch_off(patch)
        return max(cases, key=moved)


def offset_positions(offset: float, max_grad_norm: float) -> Case:
    """Activations that share an offset, which the output does not see, in a Gram norm."""
    return by_gram(lambda: nn.Linear(64, 64, bias=False), offset, (4, 4, 64), max_grad_norm)


def offset_convolution(offset: float, max_grad_norm: float) -> Case:
    """The same for a convolution of few positions."""
    layer = functools.partial(nn.Conv2d, 64, 64, 3, bias=False)
    return by_gram(layer, offset, (4, 64, 4, 4), max_grad_norm)


def linear(bias: bool = True) -> nn.Module:
    """Two layers: of one alone the closed form would be taken."""
    return nn.Sequential(nn.Linear(6, 8, bias), nn.Linear(8, 2, bias))


def temperature_of_the_batch() -> Case:
    """One record's logits cool the losses of all others, whose gradients fall below the clip."""

    def loss(output, labels):
        return cross_entropy(output / output.detach().abs().max(), labels)

    x = 1 + 0.1 * draws(16, 6)
    return Case(linear, replaced(x, 1e6 * x[0]), loss=loss, max_grad_norm=0.01)


def contrastive() -> Case:
    """Every record's loss is a log ratio over all records."""

    def loss(output, labels):
        unit = F.normalize(output, dim=1)
        return F.cross_entropy(unit @ unit.T / 0.1, torch.arange(len(output)), reduction="none")

    return Case(linear, removed(draws(16, 6)), "add_remove", loss=loss, max_grad_norm=0.01)


@dataclass
class Together:
    """An augmentation whose views depend on the whole batch."""

    act: Callable[[Tensor, Tensor], Tensor]
    views: int = 1

    def draw(self, generator, records):
        """An order of the records, the same for both neighbours: the attacker knows it."""
        return torch.from_numpy(np.random.default_rng(0).permutation(records))[:, None]

    def apply(self, x, parameters):
        return self.act(x, parameters[:, 0])


def standardised() -> Case:
    """Records less the batch's mean, over its deviation."""
    views = Together(lambda x, order: (x - x.mean(0)) / x.std(0))
    return Case(linear, opposite(draws(16, 6), 1e4), augmentation=views, max_grad_norm=0.01)


def mixup() -> Case:
    """Each record half itself, half another."""
    make, views = (
        functools.partial(linear, bias=False),
        Together(lambda x, order: (x + x[order]) / 2),
    )
    worlds = opposite(0.001 * draws(16, 6), 0.1)
    return Case(make, worlds, augmentation=views, max_grad_norm=1e-4)


class Tied(nn.Module):
    """Decodes by the encoder's weight, past the layer that is watched."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 6, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.encoder(x), self.encoder.weight.t())


def functional_tie() -> Case:
    """A part of the gradient that the engine does not see, and of which nothing may stay."""
    return Case(Tied, flipped(draws(4, 6)))


class Remembers(nn.Module):
    """Centres by a buffer that follows the records."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean += 0.1 * (x.detach().mean(0) - self.mean)
        return self.layer(x)


def buffer_of_records() -> Case:
    """A running mean of the records is released with the model."""
    x = draws(4, 6)
    return Case(Remembers, replaced(x, -x[0]))


def low_precision() -> Case:
    """Sums of aligned records that are rounded to eight bits before the noise."""
    worlds = removed(torch.ones(256, 6, dtype=torch.bfloat16))
    return Case(lambda: linear().bfloat16(), worlds, "add_remove", max_grad_norm=0.01)


# What no clip can make good: another record moves a record's gradient, or something leaves the
# engine without noise.
DEPENDS = "found a record's output depends on other records"
REFUSED = {
    "records less the first": (less_the_first, rf"model \(Through\): {DEPENDS}"),
    "running sum over records": (running_sum, rf"model \(Through\): {DEPENDS}"),
    "temperature of the batch": (
        temperature_of_the_batch,
        "loss: found a record's loss depends on",
    ),
    "contrastive loss": (contrastive, "loss: found a record's loss depends on other records"),
    "batch-standardising augmentation": (standardised, r"augmentation \(Together\)"),
    "mixup": (mixup, r"augmentation \(Together\)"),
    "buffer updated from records": (buffer_of_records, "model: buffer mean: found changed"),
    "bfloat16 parameters": (low_precision, r"parameter 0.weight: found torch\.bfloat16"),
}
# What no rule covers and is passed through record by record, with a warning that says why.
RECORD_BY_RECORD = {
    "frames folded into the batch": (frames_in_the_batch, r"layer layer \(Linear\): .* an input"),
    "time before records": (
        time_before_records,
        r"layer layer \(Linear\): found an input of shape",
    ),
    "functional tie": (functional_tie, "the gradient of encoder.weight is not the derivative"),
}
# What is clipped if its norm is not read too small.
CLIPPED = {
    f"{what}, offset {offset:g}, C = {bound:g}": functools.partial(make, offset, bound)
    for what, make in (
        ("linear layer over positions", offset_positions),
        ("convolution by Gram", offset_convolution),
    )
    for offset, bound in ((1e4, 0.1), (1e5, 0.1), (1e6, 0.01))
}
# What a pass that leaves gradients nowhere catches too.
TWICE = "functional tie"
CASES = {name: make for name, (make, _) in (REFUSED | RECORD_BY_RECORD).items()} | CLIPPED


def test_what_is_past_the_watched_layer_leaves_nothing_with_the_safeguards_off(monkeypatch):
    switch_off(monkeypatch)
    seen = [update(CASES[TWICE](), world) for world in CASES[TWICE]().worlds]
    assert not any(len(each.bare) for each in seen)


@pytest.mark.parametrize("name", [name for name in CASES if name != TWICE])
def test_with_the_safeguards_off_the_audit_catches_the_case(name, monkeypatch):
    switch_off(monkeypatch)
    # Updates have none, and the noise of low precision would fail.
    monkeypatch.setattr("dpatlas.privacy.training.add_noise", nothing)
    case = CASES[name]()
    assert attack(case).epsilon > stated(case)


@pytest.mark.parametrize("name", REFUSED)
def test_with_the_safeguards_on_the_case_is_refused_by_name(name):
    make, message = REFUSED[name]
    case = make()
    with pytest.raises(InputError, match=message):
        update(case, case.worlds[0])


@pytest.mark.parametrize("name", RECORD_BY_RECORD)
def test_with_the_safeguards_on_what_no_rule_covers_is_clipped_record_by_record(name):
    make, reason = RECORD_BY_RECORD[name]
    case = make()
    with pytest.warns(PerRecordWarning, match=reason):
        assert moved(case) <= SENSITIVITY[case.relation] * (1 + 1e-5)
    with pytest.warns(PerRecordWarning):
        assert attack(case).epsilon <= stated(case)


@pytest.mark.parametrize("name", CLIPPED)
def test_with_the_safeguards_on_the_record_is_clipped(name):
    case = CLIPPED[name]()
    assert moved(case) <= SENSITIVITY[case.relation] * (1 + 1e-5)
    assert attack(case).epsilon <= stated(case)


@pytest.mark.parametrize("relation", SENSITIVITY)
def test_an_update_that_moves_by_what_is_accounted_for_is_not_caught(relation):
    """Of 20,000 runs a tenth more is seen and what is stated is not."""
    worlds = (flipped if relation == "replace_one" else removed)(torch.eye(6))
    honest = Case(linear, worlds, relation, max_grad_norm=0.01)
    assert moved(honest) == pytest.approx(SENSITIVITY[relation], rel=1e-5)
    assert 0.8 * stated(honest) < attack(honest).epsilon <= stated(honest)
    first, *rest = (update(honest, world).total for world in worlds)
    line = (first - rest[0]).double()
    line /= line.norm()
    scores = [components(each, line, honest, use) for use, each in enumerate((first, *rest))]
    scores[0] += 0.1 * SENSITIVITY[relation] * honest.max_grad_norm
    assert epsilon_lower_bound(*scores, DELTA, LEVEL).epsilon > stated(honest)


# Several runs of the engine, each with its own noise: here the noise is what goes wrong.
REPETITIONS = 40


def engine(phases, world: World, noise: Noise, seed: int, see=None) -> PrivateTraining:
    torch.manual_seed(seed)
    return PrivateTraining(linear(), phases, world.x, world.labels, noise=noise, on_update=see)


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
    seen: dict[int, Tensor] = {}
    trainings = []
    for seed in (0, 1):

        def see(step, sums, seed=seed):
            seen[seed] = flat(sums.values()).double()

        trainings.append(engine([phase], world, noise, seed, see))
    starts = [each.state() for each in trainings]
    found = []
    first = REPETITIONS * int(world.labels[0])
    for repetition in range(first, first + REPETITIONS):
        for training, start in zip(trainings, starts, strict=True):
            again(training, start, repetition)
        found.append(seen[0] - seen[1])
    return found


def other_phases(world: World, noise: Noise) -> list[Tensor]:
    """Weights after nine steps without noise and one that the ledger knows, with much of it."""
    free = TrainingPhase(world.sampler, 0.0, 0.01, 10, 1000.0)
    noisy = TrainingPhase(world.sampler, 50.0, 0.01, 10, 1.0)
    without = engine([free], world, noise, seed=0)
    for _ in range(9):
        without.step()
    start = without.state()
    training = engine([noisy], world, noise, seed=0)
    found = []
    first = 1 + REPETITIONS * int(world.labels[0])
    for repetition in range(first, first + REPETITIONS):
        again(training, start, repetition)
        found.append(flat(training.model.parameters()).double())
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
