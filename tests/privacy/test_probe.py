"""Networks, losses and augmentations under which records move each other are refused by name."""

import collections
import contextlib
import itertools
import subprocess
import sys
import weakref
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from reference_gradients import NETWORKS, by_loop, clipped_sum, distance, seeded
from small_training import N, phase
from torch import nn
from torch.nn.utils import prune

from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.models.build import NAMES, build
from dpatlas.models.group_norm import to_group_norm
from dpatlas.models.lora import with_lora
from dpatlas.privacy import probe as probe_module
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.logistic import SoftmaxGradients
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.per_record import NetworkGradients, PerRecordWarning
from dpatlas.privacy.training import PrivateTraining, probed_kernel

FRAMES, WIDTH, CLASSES = 4, 6, 5


def train(model, shape=(FRAMES, WIDTH), steps=1, **options):
    """A private training of `model` on records of `shape`, up to its first step."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(N, *shape, generator=draws)
    labels = torch.randint(0, CLASSES, (N,), generator=draws)
    PrivateTraining(model, [phase(steps=steps)], x, labels, noise=Noise("probe"), **options).run()


class Made(nn.Module):
    """A network of two linear layers; `act(self, x)` makes hidden values of the flat records."""

    def __init__(self, act=lambda model, x: model.enc(x)):
        super().__init__()
        self.enc, self.head = nn.Linear(FRAMES * WIDTH, 7), nn.Linear(7, CLASSES)
        self.act, self.seen = act, None

    def forward(self, x):
        return self.head(self.act(self, x.flatten(1)))


def hidden(act):
    """The network whose hidden values go through `act`."""
    return Made(lambda model, x: act(model.enc(x).relu()))


def less_the_first(h):
    return h - h[:1]


class Backwards(torch.autograd.Function):
    """The values as they are, the gradients less their mean over the batch."""

    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, delta):
        return delta - delta.mean(0)


@pytest.mark.parametrize("layers", [[], [nn.Tanh()]], ids=["closed form", "network"])
def test_autocast_is_refused_at_every_step(layers):
    model = nn.Sequential(nn.Linear(8, CLASSES), *layers)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(InputError, match="autocast"):
        train(model, (8,))
    training = started(model, (8,))
    training.step()
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(InputError, match="autocast"):
        training.step()


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_supported_layer_passes(name, views):
    make, shape = NETWORKS[name]
    kernel = NetworkGradients(seeded(make, dtype=torch.float32), views=views)
    kernel.probe(torch.zeros(views, *shape), torch.zeros(views, dtype=torch.int64))


class OnGPU:
    """Rows as a GPU would hold them."""

    device = torch.device("cuda")

    def __init__(self, rows):
        self.rows = rows

    def cpu(self):
        return self.rows


def test_labels_that_a_kernel_does_not_take_are_tried_on_the_cpu_first():
    # The loss takes -100, which counts for nothing; the closed form has no such class.
    model, labels = nn.Linear(WIDTH, CLASSES), torch.zeros(1, dtype=torch.int64)

    def kernel_of(layer, loss):
        return SoftmaxGradients(layer)

    rows = torch.zeros(1, WIDTH)
    probe = probe_module._Probe(
        probe_module.Subject(model, cross_entropy, kernel_of, rows, labels, 1)
    )
    probe.run()
    probe._try_on_cpu(OnGPU(rows.double()), labels)
    with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
        probe._try_on_cpu(OnGPU(rows.double()), labels - 100)


class RoundsByBatch(nn.Module):
    """Rounds as the products of some processors do, and turns last digits into first ones."""

    def __init__(self, mixes=0.0):
        super().__init__()
        self.mixes = mixes

    def forward(self, x):
        x = x * (1 + 2.0**-50 * (len(x) % 3))
        if self.mixes:
            x = x + self.mixes * x.mean(0)
        return torch.sin(x * x.sum(1, keepdim=True))


def test_rounding_that_depends_on_the_batch_is_no_mixing_and_mixing_beside_it_is_refused():
    for mixes in (0.0, 1e-3):
        kernel = NetworkGradients(nn.Sequential(RoundsByBatch(mixes), nn.Linear(WIDTH, CLASSES)))
        refused = pytest.raises(InputError, match="depends on other records")
        with refused if mixes else contextlib.nullcontext():
            kernel.probe(torch.zeros(1, WIDTH), torch.zeros(1, dtype=torch.int64))


LARGE = ("resnet18", "mobilenet-v3", "vit-tiny", "wrn16-4")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE))
        for name in NAMES
        if name != "linear"
    ],
)
def test_every_network_of_the_workflow_passes(name):
    side = 64 if name == "alexnet" else 16
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
    train(hidden(lambda h: h @ constant))
    with pytest.raises(InputError, match=MEET):
        train(hidden(lambda h: less_the_first(h) @ constant))


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


def test_what_adds_to_a_gradient_that_is_there_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES))
    model[1].weight.grad = torch.zeros(CLASSES, 64)
    held = weakref.ref(model)

    def leaking(output, labels):
        held()[1].weight.grad.add_(output.detach().sum().float())
        return cross_entropy(output, labels)

    with pytest.raises(InputError, match=r"parameters' \.grad: found changed"):
        probed_kernel(model, leaking, torch.zeros(2, 64), torch.zeros(2, dtype=torch.int64))


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


def remembers(model, x):
    model.seen = x.detach().sum()
    return model.enc(x)


def remembers_a_number(model, x):
    model.seen = float(x.detach().sum())
    return model.enc(x)


def under_no_grad(model, x):
    with torch.no_grad():
        return model.enc(x)


def under_autocast(model, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = x @ torch.ones(FRAMES * WIDTH, FRAMES * WIDTH)
    return model.enc(x + mixed.float())


def mixes_in_training_mode(model, x):
    hidden = model.enc(x)
    return hidden - hidden.mean(0) if model.training else hidden


def takes_several_records(model, x):
    if len(x) == 1:
        raise ValueError("expected more than 1 value per channel")
    return model.enc(x)


class Mixing(nn.Module):
    """A module without a rule, in which records meet."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(CLASSES, CLASSES))

    def forward(self, states):
        output = states[0] if isinstance(states, tuple) else states
        return (output - output.mean(0)) @ self.weight


class Unused(nn.Module):
    """A network with a layer that its output does not depend on."""

    def __init__(self):
        super().__init__()
        self.layer, self.spare = nn.Linear(FRAMES * WIDTH, CLASSES), nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x.flatten(1))


def flattened(*layers):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(FRAMES * WIDTH, CLASSES))


MEET = "a record's output depends on other records"


# Those in which records meet in ways that test_adversarial_records has not, then layers.
class BehindZeros(nn.Module):
    """Two layers of zeros, through which no gradient shows what is below them."""

    def __init__(self):
        super().__init__()
        sizes = (FRAMES * WIDTH, 7), (7, 7), (7, CLASSES)
        self.enc, self.middle, self.head = (nn.Linear(*size) for size in sizes)
        for layer in (self.middle, self.head):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        return self.head(self.middle(less_the_first(self.enc(x.flatten(1)))))


REFUSED = {
    "behind weights of zero": (BehindZeros, rf"model \(BehindZeros\): found {MEET}"),
    "in a module": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(24, 7), nn.Softmax(0), nn.Linear(7, CLASSES)),
        rf"layer 2 \(Softmax\): found {MEET}",
    ),
    "only downwards": (
        lambda: hidden(lambda h: h + h.roll(1, 0).detach()),
        rf"model \(Made\): found {MEET}",
    ),
    "in the gradient alone": (
        lambda: hidden(Backwards.apply),
        "clipped sum of a batch is not the sum of its records' own",
    ),
    "by size of the batch": (lambda: hidden(lambda h: h / len(h)), MEET),
    "attribute": (lambda: Made(remembers), "model: attribute seen: found changed"),
    "number": (lambda: Made(remembers_a_number), "model: attribute seen: found changed"),
    "no_grad": (lambda: Made(under_no_grad), r"layer enc \(Linear\): found trainable, but no grad"),
    "autocast inside": (
        lambda: Made(under_autocast),
        "operation .*: found a result in torch.bfloat16",
    ),
    "own randomness": (
        lambda: Made(lambda model, x: model.enc(x + 0 * torch.rand(1))),
        "torch's global generator: found changed",
    ),
    "no single record": (
        lambda: Made(takes_several_records),
        "model on one record: found fails: ValueError: expected",
    ),
    "batch norm": (
        lambda: flattened(nn.BatchNorm1d(FRAMES)),
        r"layer 0 \(BatchNorm1d\): .*to_group_norm",
    ),
    "batch norm without parameters": (
        lambda: flattened(nn.BatchNorm1d(FRAMES, affine=False)),
        "layer 0",
    ),
    "dropout": (lambda: flattened(nn.Dropout(0.1)), r"layer 0 \(Dropout\): found p = 0.1"),
    "in a module without a rule": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(24, CLASSES), Mixing()),
        rf"layer 2 \(Mixing\): found {MEET}",
    ),
    "as moments of a sequence": (
        lambda: nn.Sequential(nn.Flatten(), nn.LSTM(24, CLASSES), Mixing()),
        rf"layer 1 \(LSTM\): found {MEET}",
    ),
    "a layer that nothing uses": (
        lambda: Unused(),
        r"layer spare \(Linear\): .*no gradient of the loss reaches it",
    ),
    "dropout of attention": (
        lambda: flattened(nn.TransformerEncoderLayer(WIDTH, 2, 5, 0.1, batch_first=True)),
        r"layer 0.self_attn \(MultiheadAttention\): found p = 0.1",
    ),
    "a layer without its shape": (
        lambda: flattened(nn.LazyConv1d(FRAMES, 1)),
        r"layer 0 \(LazyConv1d\): found parameters without a shape",
    ),
    "TorchScript": (
        lambda: flattened(torch.jit.script(nn.Linear(WIDTH, WIDTH))),
        r"layer 0 \(RecursiveScriptModule\): found TorchScript",
    ),
    "an embedding that counts words in the batch": (
        lambda: nn.Sequential(nn.Embedding(3, 4, scale_grad_by_freq=True), nn.Flatten()),
        r"layer 0 \(Embedding\): found scale_grad_by_freq=True",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_lets_records_meet_or_cannot_be_clipped_is_refused_by_name(name):
    make, match = REFUSED[name]
    with pytest.raises(InputError, match=match):
        train(seeded(make, dtype=torch.float32))


@pytest.mark.parametrize("layers", [[], [nn.Tanh()]], ids=["closed form", "network"])
def test_records_of_another_type_than_the_network_takes_are_refused(layers):
    model = nn.Sequential(nn.Linear(WIDTH, CLASSES), *layers)
    x, labels = torch.randn(N, WIDTH, dtype=torch.float64), torch.zeros(N, dtype=torch.int64)
    with pytest.raises(InputError, match=r"x, labels: found torch.float64, .* as torch.float32"):
        PrivateTraining(model, [phase()], x, labels, noise=Noise())


def test_nothing_to_train_and_a_bad_clip_bound_are_refused():
    for bias in (True, False):
        with pytest.raises(InputError, match="no trainable parameter"):
            NetworkGradients(nn.Linear(7, CLASSES, bias).requires_grad_(False))
    x, labels = torch.zeros(2, 7), torch.zeros(2, dtype=torch.int64)
    for kernel in (NetworkGradients, SoftmaxGradients):
        for bound in (0, -1.0, float("inf"), float("nan")):
            with pytest.raises(InputError, match="max_grad_norm"):
                kernel(nn.Linear(7, CLASSES)).clipped_sum(x, labels, bound)


def under_one_name(output, labels):
    return cross_entropy(output, labels) / len(output)


under_one_name.__qualname__ = cross_entropy.__qualname__
LOSSES = {
    "weighted by the batch": (
        lambda output, labels: (losses := cross_entropy(output, labels)) * torch.softmax(losses, 0),
        "loss: found a record's loss depends on other records",
    ),
    "mean, under the name of a loss that passed": (under_one_name, "a record's loss depends on"),
    "reduced": (F.cross_entropy, "loss: found a result of shape"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_looks_across_the_batch_is_refused(name):
    loss, match = LOSSES[name]
    train(Made())
    with pytest.raises(InputError, match=match):
        train(Made(), loss=loss)


class OneView:
    """The draws of an augmentation of one view."""

    views = 1

    def draw(self, draws, records):
        return torch.from_numpy(draws.random((records, 1)))


class Augmentation(OneView):
    """One view of a record, by a function of the batch."""

    def __init__(self, apply):
        self.act = apply

    def apply(self, x, parameters):
        return self.act(x)


@pytest.mark.parametrize(
    ("act", "match"),
    [
        (lambda x: x + x.flip(0), "a record's views depend on other records"),
        (lambda x: x + torch.rand_like(x), "two results for the same parameters"),
        (
            lambda x: torch.where(x.isnan(), x.nanmean(0, keepdim=True), x),
            "a record's views depend on other records",
        ),
    ],
)
def test_an_augmentation_that_mixes_records_or_draws_unkeyed_numbers_is_refused(act, match):
    with pytest.raises(InputError, match=rf"augmentation \(Augmentation\).*{match}"):
        train(Made(), augmentation=Augmentation(act))


def without_nan(x):
    assert not x.isnan().any()
    return 2 * x


@pytest.mark.parametrize("act", [torch.nan_to_num, without_nan])
def test_an_augmentation_may_fill_in_missing_values_of_a_record_alone_or_take_none(act):
    train(Made(), augmentation=Augmentation(act))


class DrawsAList(Augmentation):
    def draw(self, draws, records):
        return [[float(value)] for value in draws.random(records)]


def test_an_augmentation_may_draw_a_list():
    train(Made(), augmentation=DrawsAList(torch.tanh))


def started(model, shape=(FRAMES, WIDTH)):
    x, labels = torch.randn(N, *shape), torch.zeros(N, dtype=torch.int64)
    names = tuple(name for name, value in model.named_parameters() if value.requires_grad)
    return PrivateTraining(model, [phase(trainable=names)], x, labels, noise=Noise("started"))


def frozen_batch_norm():
    layers = nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), *layers)
    model[1].requires_grad_(False)
    model[1].running_mean.normal_()
    return model


def test_a_change_of_the_network_between_two_steps_is_seen():
    changed = Made()
    training = started(changed)
    changed.act = lambda model, x: less_the_first(model.enc(x))
    with pytest.raises(InputError, match=MEET):
        training.step()
    for model, shape, match in (
        (Made(mixes_in_training_mode), (FRAMES, WIDTH), MEET),
        (frozen_batch_norm(), (1, 8, 8), r"layer 1 \(BatchNorm2d\)"),
    ):
        training = started(model.eval(), shape)
        training.step()
        model.train()
        with pytest.raises(InputError, match=match):
            training.step()


class Centred(Made):
    """A frozen parameter follows the features, behind torch's back."""

    def __init__(self):
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(7), requires_grad=False)

    def forward(self, x):
        h = self.enc(x.flatten(1))
        self.centre.data.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        return self.head(h)


def test_a_parameter_that_follows_the_records_is_refused():
    with pytest.raises(InputError, match="model: parameter centre: found changed by a forward"):
        started(Centred())


class Slots:
    """An object without a __dict__."""

    __slots__ = ("kept",)

    def append(self, value):
        self.kept = value


class Bytes(bytearray):
    """Numbers as bytes."""

    def append(self, value):
        self.extend(value.numpy().tobytes())


class Sum:
    """A tensor that changes behind torch's back."""

    def __init__(self):
        self.total = torch.zeros(())

    def append(self, value):
        self.total.data.add_(value)


def largest_losses(output, labels):
    losses = cross_entropy(output, labels)
    return losses * (losses >= losses.topk(min(16, len(losses)))[0][-1])


class Experts(nn.Module):
    """Experts that each take at least eight records of a batch, the first ones."""

    def __init__(self):
        super().__init__()
        self.gate, self.head = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, CLASSES)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        shares = self.gate(x).softmax(1)
        chosen = F.one_hot(shares.argmax(1), 4)
        place = (chosen.cumsum(0) * chosen).sum(1, keepdim=True)
        shares = shares * chosen * (place <= max(8, len(x) // 4))
        return self.head(sum(shares[:, [k]] * each(x) for k, each in enumerate(self.experts)))


class InLargeBatches(nn.Module):
    """Centred values, of many records."""

    def forward(self, h):
        return h - h.mean(0) if len(h) >= 32 else h


@pytest.mark.parametrize(
    ("make", "options", "match"),
    [
        (lambda: nn.Linear(WIDTH, CLASSES), {"loss": largest_losses}, "loss: found a record's"),
        (Experts, {}, rf"model \(Experts\): found {MEET}"),
        (
            lambda: nn.Sequential(nn.Linear(WIDTH, 2), InLargeBatches()),
            {},
            rf"layer 1 .*found {MEET}",
        ),
        (
            lambda: nn.Sequential(nn.Linear(WIDTH, 200), nn.Linear(200, 300), InLargeBatches()),
            {},
            rf"layer 2 .*found {MEET}",
        ),
    ],
    ids=["the largest losses", "experts of a limited capacity", "32 records", "in a large network"],
)
def test_what_mixes_records_in_large_batches_only_is_refused(make, options, match):
    with pytest.raises(InputError, match=match):
        train(seeded(make, dtype=torch.float32), (WIDTH,), **options)


MEMORIES = {"deque": collections.deque, "slots": Slots, "bytes": Bytes, "tensor": Sum}


def remembers_in_an_attribute(model, x):
    model.seen.append(x.detach().sum())
    return model.enc(x)


@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_of_records_in_a_network_is_refused(name):
    model = Made(remembers_in_an_attribute)
    model.seen = MEMORIES[name]()
    with pytest.raises(InputError, match="model: attribute seen: found changed by a forward pass"):
        started(model)


class CentredOnce(nn.Module):
    """Subtracts a centre that the first batch sets: of its values, or of its shape."""

    def __init__(self, centre_of):
        super().__init__()
        self.register_buffer("centre", torch.zeros(WIDTH))
        self.ready = False
        self.centre_of = centre_of

    def forward(self, x):
        if not self.ready:
            self.centre, self.ready = self.centre_of(x), True
        return x - self.centre


def test_a_centre_that_the_first_batch_sets_is_refused():
    found = r"layer 0: buffer centre: found set from the records of a first forward pass"
    with pytest.raises(InputError, match=found):
        started(flattened(CentredOnce(lambda x: x.detach().mean((0, 1)))))


class KeepsOne(nn.Module):
    """Keeps one record of every batch, of which no output depends."""

    def __init__(self, place):
        super().__init__()
        self.register_buffer("kept", torch.zeros(FRAMES, WIDTH))
        self.place = place

    def forward(self, x):
        self.kept.copy_(x[self.place].detach())
        return x


@pytest.mark.parametrize("place", [0, -1])
def test_a_record_that_a_buffer_keeps_of_every_batch_is_refused(place):
    # It would be published with the weights.
    with pytest.raises(InputError, match="layer 0: buffer kept: found"):
        started(flattened(KeepsOne(place)))


class LossThatKeeps:
    kept = None

    def __call__(self, output, labels):
        self.kept = output[0].detach()
        return cross_entropy(output, labels)


class ViewsThatKeep(OneView):
    kept = None

    def apply(self, x, parameters):
        self.kept = x[0].clone()
        return x


@pytest.mark.parametrize(
    "options", [{"loss": LossThatKeeps()}, {"augmentation": ViewsThatKeep()}], ids=list
)
def test_a_loss_or_augmentation_that_keeps_the_first_record_is_refused(options):
    with pytest.raises(InputError, match="found set from the records of a first forward pass"):
        train(flattened(nn.Identity()), **options)


def test_what_the_first_batch_sets_from_its_shape_alone_passes():
    started(flattened(CentredOnce(lambda x: torch.arange(x.shape[-1]).to(x))))


GLOBAL_MEMORY = collections.deque(maxlen=3)


class RemembersInAGlobal(nn.Module):
    """Adds what a global of its module says of earlier records."""

    def forward(self, x):
        GLOBAL_MEMORY.append(float(x.detach().sum()))
        return x + 1e-9 * len(GLOBAL_MEMORY)


def test_a_memory_of_records_in_a_global_that_a_network_reads_is_refused():
    found = r"model: global GLOBAL_MEMORY \(RemembersInAGlobal\): found changed by a forward pass"
    with pytest.raises(InputError, match=found):
        started(flattened(RemembersInAGlobal()))


MASKS = {}


class CachesByShape(nn.Module):
    """Keeps what it makes for a shape where all of its kind share it."""

    cache: ClassVar[dict] = {}

    def forward(self, x):
        shape = tuple(x.shape[1:])
        for kept in (self.cache, MASKS):
            if shape not in kept:
                kept[shape] = torch.ones(shape, dtype=torch.float64)
        return x * self.cache[shape].to(x) * MASKS[shape].to(x)


def test_a_cache_by_shape_that_instances_share_passes():
    started(flattened(CachesByShape()))
    assert len(MASKS) == len(CachesByShape.cache) == 1


class SetOnce(OneView):
    """A loss, or an augmentation of one view, with a centre that its first batch sets."""

    def __init__(self):
        self.centre = None

    def less_the_centre(self, values):
        if self.centre is None:
            self.centre = values.detach().mean(0)
        return values - self.centre

    def __call__(self, output, labels):
        return cross_entropy(self.less_the_centre(output), labels)

    def apply(self, x, parameters):
        return self.less_the_centre(x)


@pytest.mark.parametrize("name", ["loss", "augmentation"])
def test_an_object_with_a_centre_of_its_first_batch_is_refused_each_time_and_stays_as_it_was(name):
    for _ in range(2):
        given = SetOnce()
        with pytest.raises(InputError, match="set from the records of a first forward pass"):
            train(Made(), **{name: given})
        assert given.centre is None


def remembers_in_a_global(output, labels):
    GLOBAL_MEMORY.append(float(output.detach().sum()))
    return cross_entropy(output, labels)


class RemembersInABuffer(nn.Module):
    """A loss with a buffer that follows the outputs."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(CLASSES))

    def forward(self, output, labels):
        self.centre.lerp_(output.detach().mean(0), 0.1)
        return cross_entropy(output, labels)


class Remembers(OneView):
    """A loss, or an augmentation of one view, that keeps a sum of what it sees."""

    def __init__(self):
        self.total = 0.0

    def __call__(self, output, labels):
        self.total += float(output.detach().sum())
        return cross_entropy(output, labels)

    def apply(self, x, parameters):
        self.total += float(x.sum())
        return x


def remembers_in_what_it_encloses():
    memory = collections.deque(maxlen=3)

    def loss(output, labels):
        memory.append(float(output.detach().sum()))
        return cross_entropy(output, labels)

    return loss


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"loss": Remembers()}, "loss"),
        ({"loss": remembers_in_a_global}, "loss"),
        ({"loss": remembers_in_what_it_encloses()}, "loss"),
        ({"loss": RemembersInABuffer()}, "loss: buffer centre"),
        ({"augmentation": Remembers()}, r"augmentation \(Remembers\)"),
    ],
    ids=["attribute", "global", "closure", "buffer", "augmentation"],
)
def test_a_loss_or_an_augmentation_that_remembers_records_is_refused(options, where):
    with pytest.raises(InputError, match=f"{where}: found changed by a forward pass"):
        train(Made(), **options)


def test_evaluation_mode_and_group_norm_make_layers_pass():
    train(flattened(nn.Dropout(0.5)).eval())
    train(flattened(nn.Dropout(0.0)))
    NetworkGradients(frozen_batch_norm().eval())
    NetworkGradients(to_group_norm(frozen_batch_norm().requires_grad_(True), groups=4))
    train(frozen_batch_norm().eval().requires_grad_(True), (1, 8, 8))
    with pytest.raises(InputError, match=r"layer 1 \(BatchNorm2d\)"):
        NetworkGradients(frozen_batch_norm())


def test_a_training_loads_no_compiler():
    """torch imports its own, with sympy, for seconds on several occasions that can be avoided."""
    code = """
import sys
import torch
from dpatlas.core.seeds import Noise
from dpatlas.models.build import builder
from dpatlas.accounting.samplers import Poisson
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

model = builder("small-cnn-t")(image_shape=(1, 8, 8))
phase = TrainingPhase(Poisson(20, 5), 1.0, 1.0, 2, 0.1)
x, labels = torch.randn(20, 1, 8, 8), torch.zeros(20, dtype=torch.int64)
PrivateTraining(model, [phase], x, labels, noise=Noise("compiler")).run()
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout, result.returncode) == ("[]\n", 0), result.stderr


class OverDistinctWords(nn.Module):
    """Looks every word of a batch up once."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, CLASSES)

    def forward(self, ids):
        distinct, places = torch.unique(ids, return_inverse=True)
        return self.head(self.words(distinct)[places].mean(1))


def test_an_embedding_of_the_distinct_words_is_passed_through_record_by_record():
    torch.manual_seed(0)
    model, ids = OverDistinctWords(), torch.randint(0, 9, (6, 5))
    labels, kernel = torch.arange(6) % CLASSES, NetworkGradients(model)
    with pytest.warns(PerRecordWarning, match="rows of an embedding, that are of no single record"):
        kernel.probe(ids, labels)
    found = kernel.clipped_sum(ids, labels, 0.1).gradients
    losses = (F.cross_entropy(model(ids[i : i + 1]), labels[i : i + 1]) for i in range(6))
    assert distance(found, clipped_sum(by_loop(model, losses), 0.1)) < 1e-6


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (
            lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
            r"weight of layer 1 \(Linear\); allowed: .*prune\.remove\(layer, 'weight'\)",
        ),
        (nn.utils.weight_norm, r"weight of layer 1 \(Linear\); .*parametrizations\.weight_norm"),
    ],
)
def test_weights_that_a_hook_computes_are_refused_with_a_remedy(change, remedy):
    model = nn.Sequential(nn.Flatten(), nn.Linear(FRAMES * WIDTH, 4), nn.Linear(4, CLASSES))
    change(model[1])
    model(torch.zeros(1, FRAMES, WIDTH))
    with pytest.raises(InputError, match=remedy):
        train(model)
