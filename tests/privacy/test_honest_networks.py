"""Networks that leave records apart train at their first try, by each record's own gradient."""

from typing import ClassVar, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from reference_gradients import by_loop, clipped_sum, distance, norms
from small_training import N, phase, sums_of
from torch import Tensor, nn
from torch.distributions import Bernoulli, Beta, LogNormal
from torch.utils.checkpoint import checkpoint

from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.seeds import Noise
from dpatlas.models.build import build
from dpatlas.models.group_norm import to_group_norm
from dpatlas.models.lora import with_lora
from dpatlas.privacy.losses import TokenCrossEntropy, cross_entropy, squared_error
from dpatlas.privacy.training import PrivateTraining

WIDTH, TIME, WORDS, CLASSES = 8, 6, 20, 3
DRAWS = torch.Generator().manual_seed(5)


class Case(NamedTuple):
    """A network, its records and targets, and its loss."""

    make: object
    x: object
    targets: Tensor
    loss: object = cross_entropy


def normal(*shape: int) -> Tensor:
    return torch.randn(N, *shape, generator=DRAWS)


def whole(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, (N, *shape), generator=DRAWS)


NUMBERS, IDS, LABELS = normal(WIDTH), whole(WORDS, TIME), whole(CLASSES)
TOKENS, IMAGES = normal(TIME, WIDTH), normal(3, 8, 8)
MISSING = torch.where(normal(WIDTH) > 1, torch.nan, NUMBERS)
POSITIVE = NUMBERS.abs() + 0.1


class Act(nn.Module):
    """A function as a module."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, *given, **named):
        return self.act(*given, **named)


class Around(nn.Module):
    """Layers by name, and a forward pass `act(self, x)`."""

    def __init__(self, act, **layers):
        super().__init__()
        self.act = act
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.act(self, x)


def around(act, **makers):
    return lambda: Around(act, **{name: make() for name, make in makers.items()})


def head(inputs=WIDTH, outputs=CLASSES):
    return lambda: nn.Linear(inputs, outputs)


def mlp(before=lambda x: x, outputs=CLASSES):
    layers = nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, outputs)
    return nn.Sequential(Act(before), *layers)


def numbers(before, x=NUMBERS, targets=LABELS, loss=cross_entropy, outputs=CLASSES):
    return Case(lambda: mlp(before, outputs), x, targets, loss)


def texts(pool, padding=None, words=WORDS, ids=IDS):
    """Embedded words, of which `pool(ids, embedded)` makes one row a text."""
    act = around(
        lambda self, ids: self.head(pool(ids, self.words(ids).tanh())),
        words=lambda: nn.Embedding(words, 4, padding_idx=padding),
        head=head(4),
    )
    return Case(act, ids, LABELS)


def of_tokens(act, **makers):
    return Case(around(act, **makers), TOKENS, LABELS)


def mean_without(padding):
    def pool(ids, h):
        there = (ids != padding)[..., None]
        return (h * there).sum(1) / there.sum(1).clamp_min(1)

    return pool


def by_mean_of_ones_own_row(x):
    there = ~x.isnan()
    own = x.nan_to_num().sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp_min(1)
    return torch.where(there, x, own)


def picked(output, labels):
    return -output.log_softmax(1).gather(1, labels[:, None])[:, 0]


def tasks(output, targets):
    there = ~targets.isnan()
    errors = (there * (output - targets.nan_to_num()).square()).sum(1)
    return errors / there.sum(1).clamp_min(1)


def of_logarithms(output, targets):
    return (output[:, 0] - targets.log()).square()


def beta(output, targets):
    return -Beta(*output.exp().T).log_prob(targets)


def log_normal(output, targets):
    return -LogNormal(output[:, 0], output[:, 1].exp()).log_prob(targets)


def bernoulli(output, targets):
    return -Bernoulli(logits=output[:, 0]).log_prob(targets)


def two_heads(output, targets):
    kinds, size = output.split([CLASSES, 1], 1)
    return cross_entropy(kinds, targets[:, 0].long()) + squared_error(size, targets[:, 1:])


class Config:
    """Settings of a class of one's own, without a dict."""

    __slots__ = ("slope",)

    def __init__(self, slope):
        self.slope = slope


def with_config():
    model = mlp(lambda x: x)
    model.config = Config(0.5)
    model[0].act = lambda x, held=model.config: x * held.slope
    return model


MASKS = {}


class CachesByShape(nn.Module):
    """Keeps what it makes for a shape where all of its kind share it."""

    cache: ClassVar[dict] = {}

    def forward(self, x):
        shape = tuple(x.shape[1:])
        for kept in (self.cache, MASKS):
            if shape not in kept:
                kept[shape] = torch.ones(shape)
        return x * self.cache[shape] * MASKS[shape]


class MovesWeights(nn.Module):
    """Writes the length of its own weight into a buffer, and counts its calls."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, CLASSES)
        self.register_buffer("length", torch.zeros(()))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.length.copy_(self.layer.weight.detach().norm())
        self.calls += 1
        return self.layer(x) / self.length


class WordsOfBatch(nn.Module):
    """Adds an embedding of the positions, as many as a record has."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 4), nn.Embedding(TIME, 4)
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, ids):
        hidden = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        mask = (ids == 0) & (torch.arange(ids.shape[1]) > 0)
        return self.head(self.encoder(hidden, src_key_padding_mask=mask)[:, 0])


class Tied(nn.Module):
    """An output layer with the weights of the embedding, which is read past its layer too."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 4), nn.Linear(4, WORDS, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ids):
        return self.out(F.softplus(self.words(ids)))


class Scanned(nn.Module):
    """A recurrence by hand: cells that are called once for each moment."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(WIDTH, 4), nn.Linear(4, CLASSES)

    def forward(self, x):
        hidden = x.new_zeros(len(x), 4)
        for moment in x.unbind(1):
            hidden = self.cell(moment, hidden)
        return self.head(hidden)


class Sloped(nn.Module):
    """Its features are the slope of a function of the record, by torch.func inside."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(torch.func.grad(lambda each: each.pow(3).sum())(x))


class Gated(nn.Module):
    """Experts that are weighed by a gate, by each record's own numbers."""

    def __init__(self):
        super().__init__()
        self.gate, self.head = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, CLASSES)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        shares = self.gate(x).softmax(1)
        return self.head(sum(shares[:, [k]] * each(x) for k, each in enumerate(self.experts)))


def two_names():
    """One layer that stands in two places, and one that shares its weights."""
    layer, other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
    other.weight = layer.weight
    return nn.Sequential(nn.Sequential(layer, nn.Tanh()), layer, other, nn.Linear(WIDTH, CLASSES))


def frozen_batch_norm(statistics=True):
    norm = nn.BatchNorm2d(4)
    norm.running_mean.normal_()
    return nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES))


def adapted():
    seeds = {"key": "test", "run": 0, "base_seed": 0}
    return with_lora(build("small-cnn-t", (3, 8, 8), CLASSES, **seeds), 2, **seeds)


def with_hook():
    model = mlp()
    model[1].register_forward_hook(lambda layer, given, output: output + given[0].sum(1, True))
    model[3].register_forward_pre_hook(lambda layer, given: (2 * given[0],))
    return model


def with_forward():
    model = mlp()
    own = model[3].forward
    model[3].forward = lambda x: own(x) ** 2
    return model


def attention(forward, **options):
    def attend(self, x):
        return self.head(forward(self.attend, x).mean(1))

    made = {"batch_first": True, **options}
    return of_tokens(attend, attend=lambda: nn.MultiheadAttention(WIDTH, 2, **made), head=head())


def recurrent(kind, **options):
    def last(self, x):
        return self.head(self.layer(x)[0][:, -1].square())

    return of_tokens(last, layer=lambda: kind(WIDTH, 4, batch_first=True, **options), head=head(4))


FLOAT_TARGETS, HELD = normal(), torch.linspace(0, 1, WIDTH)
CASES = {
    # Records and targets of any kind.
    "missing values passed on as zero": numbers(torch.nan_to_num, MISSING),
    "missing values by one's own row": numbers(by_mean_of_ones_own_row, MISSING),
    "logarithms of positive numbers": numbers(torch.log, POSITIVE),
    "pixels": numbers(lambda x: x / 255, whole(256, WIDTH).to(torch.uint8)),
    "flags": numbers(lambda x: x * 1.0, NUMBERS > 0),
    "codes from 1": numbers(lambda x: F.one_hot(x - 1, 4).float().mean(2), 1 + whole(4, WIDTH)),
    "complex numbers": numbers(
        lambda x: torch.view_as_real(x).mean(2), torch.complex(NUMBERS, NUMBERS)
    ),
    "spectrum": numbers(lambda x: torch.fft.fft(x).abs()),
    "no class -1": numbers(torch.tanh, loss=picked),
    "targets with missing values": numbers(torch.tanh, targets=MISSING, loss=tasks, outputs=WIDTH),
    "targets of one number": numbers(
        torch.tanh, targets=FLOAT_TARGETS, loss=squared_error, outputs=1
    ),
    "positive targets": numbers(torch.tanh, NUMBERS, FLOAT_TARGETS.exp(), of_logarithms, 1),
    "targets between 0 and 1": numbers(torch.tanh, NUMBERS, FLOAT_TARGETS.sigmoid(), beta, 2),
    "positive targets, checked": numbers(torch.tanh, NUMBERS, FLOAT_TARGETS.exp(), log_normal, 2),
    "targets 0 or 1, checked": numbers(
        torch.tanh, NUMBERS, (FLOAT_TARGETS > 0).float(), bernoulli, 1
    ),
    "two heads in one output": numbers(
        torch.tanh,
        targets=torch.stack([LABELS.float(), FLOAT_TARGETS], 1),
        loss=two_heads,
        outputs=CLASSES + 1,
    ),
    "a loss that is a sum over the batch": numbers(
        torch.tanh, loss=lambda o, y: F.cross_entropy(o, y, reduction="sum")
    ),
    "a loss that is the batch's mean": numbers(torch.tanh, loss=F.cross_entropy),
    "a module as the loss": numbers(
        torch.tanh, loss=nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)
    ),
    "an own target": Case(
        lambda: nn.Sequential(nn.Linear(WIDTH, 3), nn.Tanh(), nn.Linear(3, WIDTH)),
        NUMBERS,
        NUMBERS,
        squared_error,
    ),
    # Texts.
    "few words": texts(lambda ids, h: h.mean(1), words=2, ids=whole(2, TIME)),
    "padding left out": texts(mean_without(0), padding=0),
    "bag of words": Case(
        lambda: nn.Sequential(
            nn.EmbeddingBag(WORDS, 4, mode="mean", padding_idx=0), nn.Linear(4, CLASSES)
        ),
        IDS,
        LABELS,
    ),
    "transformer with padding": Case(WordsOfBatch, IDS, LABELS),
    "next words": Case(
        lambda: nn.Sequential(nn.Embedding(WORDS, 4), nn.Tanh(), nn.Linear(4, WORDS)),
        IDS,
        IDS.roll(1, 1),
        TokenCrossEntropy(),
    ),
    "next words, some ignored": Case(
        lambda: nn.Sequential(nn.Embedding(WORDS, 4), nn.Tanh(), nn.Linear(4, WORDS)),
        IDS,
        torch.where(IDS < 5, -100, IDS),
        TokenCrossEntropy(reduction="sum"),
    ),
    "tied words": Case(Tied, IDS, IDS, TokenCrossEntropy()),
    # Networks.
    "holds an object of a class of one's own": Case(with_config, NUMBERS, LABELS),
    "caches by shape": Case(lambda: nn.Sequential(CachesByShape(), *mlp()), NUMBERS, LABELS),
    "moves buffers by weights": Case(MovesWeights, NUMBERS, LABELS),
    "constants": numbers(lambda x: x * HELD),
    "hooks": Case(with_hook, NUMBERS, LABELS),
    "a forward of its own": Case(with_forward, NUMBERS, LABELS),
    "weight norm": Case(
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, 5)),
            nn.Tanh(),
            nn.Linear(5, CLASSES),
        ),
        NUMBERS,
        LABELS,
    ),
    "spectral norm": Case(
        lambda: nn.Sequential(
            nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, 5)).eval(),
            nn.Linear(5, CLASSES),
        ),
        NUMBERS,
        LABELS,
    ),
    "two names": Case(two_names, NUMBERS, LABELS),
    "experts": Case(Gated, NUMBERS, LABELS),
    "slopes inside": Case(Sloped, NUMBERS, LABELS),
    "checkpointed": of_tokens(
        lambda self, x: self.head(checkpoint(self.mix, x, use_reentrant=False).mean(1)),
        mix=lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()),
        head=head(),
    ),
    "in place": of_tokens(
        lambda self, x: self.head(self.mix(x).mul_(2).add_(x).relu_().mean(1)),
        mix=lambda: nn.Linear(WIDTH, WIDTH),
        head=head(),
    ),
    "time before records": of_tokens(
        lambda self, x: self.head(self.mix(x.transpose(0, 1)).tanh().sum(0)),
        mix=lambda: nn.Linear(WIDTH, WIDTH),
        head=head(),
    ),
    "frames folded into the batch": of_tokens(
        lambda self, x: self.head(
            self.mix(x.reshape(-1, WIDTH)).tanh().view(len(x), TIME, -1).mean(1)
        ),
        mix=lambda: nn.Linear(WIDTH, WIDTH),
        head=head(),
    ),
    "one layer in two places": of_tokens(
        lambda self, x: self.head(self.mix(torch.tanh(self.mix(x))).mean(1)),
        mix=lambda: nn.Linear(WIDTH, WIDTH),
        head=head(),
    ),
    "a product by einsum": of_tokens(
        lambda self, x: self.head(torch.einsum("ntd,de->nte", x, self.mix.weight).tanh().mean(1)),
        mix=lambda: nn.Linear(WIDTH, WIDTH, bias=False),
        head=head(),
    ),
    "bilinear": Case(
        around(
            lambda self, x: self.mix(x, x.tanh()), mix=lambda: nn.Bilinear(WIDTH, WIDTH, CLASSES)
        ),
        NUMBERS,
        LABELS,
    ),
    "prelu": numbers(torch.tanh)._replace(
        make=lambda: nn.Sequential(nn.Linear(WIDTH, 5), nn.PReLU(5), nn.Linear(5, CLASSES))
    ),
    "attention": attention(lambda layer, x: layer(x, x, x, need_weights=False)[0]),
    "attention with weights": attention(
        lambda layer, x: (
            torch.cat(layer(x, x, x), 2)[..., :WIDTH].sin() + layer(x, x, x)[1].sum(2, True)
        )
    ),
    "attention with learned keys": attention(
        lambda layer, x: layer(x, x, x, need_weights=False)[0], add_bias_kv=True
    ),
    "attention by scaled_dot_product": of_tokens(
        lambda self, x: self.head(
            F.scaled_dot_product_attention(self.q(x), self.k(x), x, is_causal=True).mean(1)
        ),
        q=lambda: nn.Linear(WIDTH, WIDTH),
        k=lambda: nn.Linear(WIDTH, WIDTH),
        head=head(),
    ),
    "LSTM": recurrent(nn.LSTM, num_layers=2),
    "LSTM in both directions": Case(
        around(
            lambda self, x: self.head(self.layer(x)[0].mean(1)),
            layer=lambda: nn.LSTM(WIDTH, 2, batch_first=True, bidirectional=True),
            head=head(4),
        ),
        TOKENS,
        LABELS,
    ),
    "GRU": recurrent(nn.GRU),
    "RNN": recurrent(nn.RNN),
    "cells": Case(Scanned, TOKENS, LABELS),
    # Images.
    "frozen batch norm": Case(lambda: frozen_batch_norm().eval(), IMAGES, LABELS),
    "group norm in its place": Case(
        lambda: to_group_norm(frozen_batch_norm(), groups=2), IMAGES, LABELS
    ),
    "instance norm": Case(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3),
            nn.InstanceNorm2d(4, affine=True),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(144, CLASSES),
        ),
        IMAGES,
        LABELS,
    ),
    "low-rank adapters": Case(adapted, IMAGES.flatten(1), LABELS),
    "pooled, and enlarged": Case(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ELU(),
            nn.ConvTranspose2d(4, 2, 2, 2),
            nn.Upsample(scale_factor=2),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(8, CLASSES),
        ),
        IMAGES,
        LABELS,
    ),
    "channels last": Case(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES)
        ).to(memory_format=torch.channels_last),
        IMAGES.to(memory_format=torch.channels_last),
        LABELS,
    ),
}


def made(case):
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = case.make()
        for value in model.parameters():
            # Adapters begin with zeros, and gradients behind them vanish.
            if value.requires_grad and not value.any():
                nn.init.normal_(value, std=0.1)
    return model


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::dpatlas.privacy.per_record.PerRecordWarning")
def test_an_honest_network_trains_by_the_gradients_of_a_loop_over_records(name):
    case = CASES[name]
    model = made(case)
    rows = zip(case.x.split(1), case.targets.split(1), strict=True)
    gradients = by_loop(model, (case.loss(model(x), y).sum() for x, y in rows))
    settings = {"noise_multiplier": 0.0, "max_grad_norm": 1e6, "steps": 1, "lr": 1e-9}
    phases, given = [phase(FullBatch(N), **settings)], {"noise": Noise(), "loss": case.loss}
    run = PrivateTraining(model, phases, case.x, case.targets, **given)
    (unclipped,) = sums_of(run)
    half = float(norms(gradients).median())
    clipped = run.kernel.clipped_sum(case.x, case.targets, half)
    assert run.skipped_records == clipped.skipped == 0
    for found, bound in ((unclipped, 1e6), (clipped.gradients, half)):
        expected = clipped_sum(gradients, bound)
        assert distance(found, expected) <= 1e-5 * norm_of(expected)


def norm_of(sums):
    return float(sum(each.double().square().sum() for each in sums.values()).sqrt())
