"""Networks, losses and augmentations under which records move each other are refused by name."""

import contextlib
import itertools

import pytest
import torch
import torch.nn.functional as F
from reference_gradients import NETWORKS, seeded
from small_training import N, phase
from torch import nn

from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.models.build import NAMES, build
from dpatlas.models.lora import with_lora
from dpatlas.privacy import probe as probe_module
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.per_record import NetworkGradients, cross_entropy
from dpatlas.privacy.training import PrivateTraining, probed_kernel

FRAMES, WIDTH, CLASSES = 4, 6, 5


def train(model, shape=(FRAMES, WIDTH), steps=1, **options):
    """A private training of `model` on records of `shape`, up to its first step."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(N, *shape, generator=draws)
    labels = torch.randint(0, CLASSES, (N,), generator=draws)
    PrivateTraining(model, [phase(steps=steps)], x, labels, noise=Noise("probe"), **options).run()


class Made(nn.Module):
    """A network of two linear layers around what a test does to the hidden values."""

    def __init__(self, between=lambda h: h, before=lambda x: x, into=FRAMES * WIDTH):
        super().__init__()
        self.enc, self.head = nn.Linear(into, 7), nn.Linear(7, CLASSES)
        self.before, self.between = before, between

    def forward(self, x):
        return self.head(self.between(self.enc(self.before(x)).relu()))


def flat(x):
    return x.flatten(1)


class Frames(nn.Module):
    """Frames of a record folded into the batch, and pooled at the end."""

    def __init__(self):
        super().__init__()
        self.enc, self.head = nn.Linear(WIDTH, 7), nn.Linear(7, CLASSES)

    def forward(self, x):
        hidden = self.enc(x.reshape(-1, WIDTH)).relu()
        return self.head(hidden.view(-1, FRAMES, 7).mean(1))


class TimeFirst(nn.Module):
    """(time, batch, features) between the layers."""

    def __init__(self):
        super().__init__()
        self.enc, self.head = nn.Linear(WIDTH, 7), nn.Linear(7, CLASSES)

    def forward(self, x):
        return self.head(self.enc(x.transpose(0, 1)).relu().mean(0))


class Updating(nn.Module):
    """A running mean of the records, used as soon as it is there."""

    def __init__(self, attribute: bool):
        super().__init__()
        self.head = nn.Linear(FRAMES * WIDTH, CLASSES)
        self.register_buffer("mean", torch.zeros(FRAMES * WIDTH))
        self.seen = None
        self.attribute = attribute

    def forward(self, x):
        x = x.flatten(1)
        if self.attribute:
            self.seen = x.detach().sum()
        else:
            self.mean.add_(x.detach().mean(0).to(self.mean))
        return self.head(x)


class TiedByFunction(nn.Module):
    """A decoder that uses the encoder's weights."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(FRAMES * WIDTH, CLASSES)

    def forward(self, x):
        hidden = self.enc(x.flatten(1))
        return hidden + F.linear(F.linear(hidden, self.enc.weight.t()), self.enc.weight)


class UnderNoGrad(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.head = nn.Linear(FRAMES * WIDTH, 7), nn.Linear(7, CLASSES)

    def forward(self, x):
        with torch.no_grad():
            hidden = self.enc(x.flatten(1))
        return self.head(hidden)


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.head = nn.Linear(FRAMES * WIDTH, 7), nn.Linear(7, CLASSES)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = x.flatten(1) @ torch.ones(FRAMES * WIDTH, FRAMES * WIDTH)
        return self.head(self.enc(x.flatten(1) + mixed.float()))


class OwnRandomness(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(FRAMES * WIDTH, CLASSES)

    def forward(self, x):
        return self.head(x.flatten(1) + 0 * torch.rand(1))


DEPENDS = "a record's output depends on other records"
REFUSED = {
    "frames folded into the batch": (Frames, r"layer enc \(Linear\): found an input of shape"),
    "time first": (TimeFirst, r"layer enc \(Linear\): found an input of shape"),
    "less the first record": (
        lambda: Made(lambda h: h - h[:1], flat),
        rf"model \(Made\): found {DEPENDS}",
    ),
    "cumulative sum": (
        lambda: Made(lambda h: h.cumsum(0), flat),
        rf"model \(Made\): found {DEPENDS}",
    ),
    "in a module": (
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(FRAMES * WIDTH, 7), nn.Softmax(0), nn.Linear(7, CLASSES)
        ),
        rf"layer 2 \(Softmax\): found {DEPENDS}",
    ),
    "only downwards": (
        lambda: Made(lambda h: h + h.roll(1, 0).detach(), flat),
        rf"model \(Made\): found {DEPENDS}",
    ),
    "in the gradient alone": (
        lambda: Made(lambda h: Backwards.apply(h), flat),
        "clipped sum of a batch is not the sum of its records' own",
    ),
    "by size of the batch": (
        lambda: Made(lambda h: h / len(h), flat),
        rf"model \(Made\): found {DEPENDS}",
    ),
    "buffer": (lambda: Updating(False), "model: buffer mean: found changed"),
    "attribute": (lambda: Updating(True), "model: attribute seen: found changed"),
    "functional tie": (TiedByFunction, "the gradient of enc.weight is not the derivative"),
    "no_grad": (UnderNoGrad, r"layer enc \(Linear\): found trainable, but no gradient"),
    "autocast inside": (Autocast, "operation .*: found a result in torch.bfloat16"),
    "own randomness": (OwnRandomness, "torch's global generator: found changed"),
}


class Backwards(torch.autograd.Function):
    """The values as they are, the gradients less their mean over the batch."""

    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, delta):
        return delta - delta.mean(0)


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_that_lets_records_meet_is_refused_by_name(name):
    make, match = REFUSED[name]
    with pytest.raises(InputError, match=match):
        train(seeded(make, dtype=torch.float32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parameters_in_half_precision_are_refused(dtype):
    with pytest.raises(InputError, match=r"parameter enc.weight: found torch\.\w*float16"):
        train(Made(before=flat).to(dtype))


@pytest.mark.parametrize("closed_form", [True, False])
def test_autocast_is_refused_at_every_step(closed_form):
    model = (
        nn.Linear(8, CLASSES) if closed_form else nn.Sequential(nn.Linear(8, CLASSES), nn.Tanh())
    )
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(InputError, match="autocast"):
        train(model, (8,))
    x = torch.randn(N, 8)
    labels = torch.zeros(N, dtype=torch.int64)
    training = PrivateTraining(model, [phase()], x, labels, noise=Noise("autocast"))
    training.step()
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(InputError, match="autocast"):
        training.step()


def weighted_by_batch(output, labels):
    losses = cross_entropy(output, labels)
    return losses * torch.softmax(losses, 0)


def contrastive(output, labels):
    return F.cross_entropy(output @ output.T, torch.arange(len(output)), reduction="none")


LOSSES = {
    "mean": lambda output, labels: cross_entropy(output, labels) / len(output),
    "weighted": weighted_by_batch,
    "temperature": lambda output, labels: cross_entropy(output / output.std(), labels),
    "contrastive": contrastive,
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_looks_across_the_batch_is_refused(name):
    with pytest.raises(InputError, match="loss: found a record's loss depends on other records"):
        train(Made(before=flat), loss=LOSSES[name])


class Augmentation:
    views = 1

    def draw(self, draws, records):
        return torch.from_numpy(draws.random((records, 1)))


class Mixup(Augmentation):
    def apply(self, x, parameters):
        share = parameters.view(-1, *[1] * (x.dim() - 1)).to(x)
        return share * x + (1 - share) * x.flip(0)


class Standardising(Augmentation):
    def apply(self, x, parameters):
        return (x - x.mean(0)) / x.std()


class Unkeyed(Augmentation):
    def apply(self, x, parameters):
        return x + torch.rand_like(x)


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (Mixup, "a record's views depend on other records"),
        (Standardising, "a record's views depend on other records"),
        (Unkeyed, "two results for the same parameters"),
    ],
)
def test_an_augmentation_that_looks_across_the_batch_is_refused_by_name(made, match):
    with pytest.raises(InputError, match=rf"augmentation \({made.__name__}\).*{match}"):
        train(Made(before=flat), augmentation=made())


def test_a_change_between_the_building_and_the_first_step_is_seen():
    model = Made(before=flat)
    x, labels = torch.randn(N, FRAMES, WIDTH), torch.zeros(N, dtype=torch.int64)
    training = PrivateTraining(model, [phase()], x, labels, noise=Noise("changed"))
    model.between = lambda h: h - h[:1]
    with pytest.raises(InputError, match=DEPENDS):
        training.step()


class MixesInTrainingMode(Made):
    def forward(self, x):
        hidden = self.enc(x.flatten(1)).relu()
        return self.head(hidden - hidden.mean(0) if self.training else hidden)


def test_a_change_of_mode_after_the_first_step_is_probed_again():
    model = MixesInTrainingMode().eval()
    x, labels = torch.randn(N, FRAMES, WIDTH), torch.zeros(N, dtype=torch.int64)
    training = PrivateTraining(model, [phase()], x, labels, noise=Noise("mode"))
    training.step()
    model.train()
    with pytest.raises(InputError, match=DEPENDS):
        training.step()


def frozen_batch_norm():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES)
    )
    model[1].requires_grad_(False)
    model[1].running_mean.normal_()
    return model


def test_batch_norm_passes_if_it_is_frozen_and_in_evaluation_mode():
    model = frozen_batch_norm().eval()
    NetworkGradients(model).clipped_sum(torch.randn(3, 1, 8, 8), torch.tensor([0, 1, 2]), 1.0)
    for model in (frozen_batch_norm(), frozen_batch_norm().eval().requires_grad_(True)):
        with pytest.raises(InputError, match=r"layer 1 \(BatchNorm2d\)"):
            NetworkGradients(model)


def test_batch_norm_that_goes_back_to_training_is_refused_at_the_next_step():
    model = frozen_batch_norm().eval()
    names = tuple(name for name, value in model.named_parameters() if value.requires_grad)
    x, labels = torch.randn(N, 1, 8, 8), torch.zeros(N, dtype=torch.int64)
    training = PrivateTraining(
        model, [phase(trainable=names)], x, labels, noise=Noise("batch norm")
    )
    training.step()
    model.train()
    with pytest.raises(InputError, match=r"layer 1 \(BatchNorm2d\)"):
        training.step()


def test_dropout_passes_in_evaluation_mode():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(FRAMES * WIDTH, CLASSES))
    train(model.eval())


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_supported_layer_passes(name, views):
    make, shape = NETWORKS[name]
    kernel = NetworkGradients(seeded(make, dtype=torch.float32), views=views)
    kernel.probe(torch.zeros(views, *shape), torch.zeros(views, dtype=torch.int64))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "linear"])
def test_every_network_of_the_workflow_passes(name):
    side = 64 if name == "alexnet" else 32
    model = build(name, (1, side, side), CLASSES, key="test", run=0, base_seed=0)
    labels = torch.zeros(2, dtype=torch.int64)
    probed_kernel(model, cross_entropy, torch.zeros(2, side * side), labels)


def test_low_rank_adapters_and_shifted_views_pass():
    model = build("small-cnn-t", (1, 8, 8), CLASSES, key="test", run=0, base_seed=0)
    adapted = with_lora(model, 2, key="test", run=0, base_seed=0)
    augmentation = ShiftAndFlip((1, 8, 8), views=3, padding=2, flip=True)
    labels = torch.zeros(2, dtype=torch.int64)
    probed_kernel(adapted, cross_entropy, torch.zeros(2, 64), labels, augmentation, "per-layer")


def test_a_network_that_holds_float32_constants_is_probed_in_float32():
    constant = torch.randn(7, 7)
    train(Made(lambda h: h @ constant, flat))
    with pytest.raises(InputError, match=DEPENDS):
        train(Made(lambda h: (h - h[:1]) @ constant, flat))


def test_a_network_that_takes_no_single_record_is_refused():
    def between(h):
        if len(h) == 1:
            raise ValueError("expected more than 1 value per channel")
        return h

    with pytest.raises(InputError, match="model on one record: found fails: ValueError: expected"):
        train(Made(between, flat))


def test_a_second_training_of_the_same_network_is_not_probed_again(monkeypatch):
    runs = itertools.count()
    whole = probe_module._Probe.run

    def counted(self):
        next(runs)
        return whole(self)

    monkeypatch.setattr(probe_module._Probe, "run", counted)
    monkeypatch.setattr(probe_module, "_passed", type(probe_module._passed)())

    def network():
        return build("small-cnn-t", (1, 8, 8), CLASSES, key="test", run=0, base_seed=0)

    for _ in range(2):
        train(network(), (64,), steps=3)
    assert next(runs) == 1
    with contextlib.suppress(InputError):
        train(network().requires_grad_(True), (64,), loss=lambda *given: cross_entropy(*given))
    assert next(runs) == 3


def test_a_loss_that_is_defined_anew_under_its_name_is_probed_again():
    def safe(output, labels):
        return cross_entropy(output, labels)

    def unsafe(output, labels):
        return cross_entropy(output, labels) / len(output)

    safe.__qualname__ = unsafe.__qualname__ = "loss"
    train(Made(before=flat), loss=safe)
    with pytest.raises(InputError, match="loss: found a record's loss depends on other records"):
        train(Made(before=flat), loss=unsafe)


def test_the_probe_leaves_everything_as_it_was():
    model = frozen_batch_norm().eval()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    state = torch.get_rng_state()
    probed_kernel(model, cross_entropy, torch.zeros(2, 1, 8, 8), torch.zeros(2, dtype=torch.int64))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert torch.equal(torch.get_rng_state(), state)
    assert [name for name, value in vars(model[0]).items() if name == "forward"] == []


def test_records_weigh_nothing_in_the_probe():
    """Shapes and types alone decide: records that are no numbers pass as others do."""
    model = seeded(lambda: nn.Sequential(nn.Linear(8, CLASSES), nn.Tanh()), dtype=torch.float32)
    kernel = NetworkGradients(model)
    kernel.probe(torch.full((3, 8), float("nan")), torch.zeros(3, dtype=torch.int64))
