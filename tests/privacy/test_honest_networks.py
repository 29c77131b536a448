"""Networks that leave records apart train at their first try, by each record's own gradient."""

import warnings
from collections import OrderedDict
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from reference_gradients import by_loop, clipped_sum, distance, norm_of, norms
from small_networks import CLASSES, TIME, WIDTH, WORDS, Case, Net, before, behind, made, mlp
from small_training import phase, sums_of
from torch import Tensor, nn
from torch.distributions import LogNormal, Normal, kl_divergence
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint
from torchvision.models import VisionTransformer

from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.seeds import Noise
from dpatlas.privacy.losses import (
    TokenCrossEntropy,
    binary_cross_entropy,
    cross_entropy,
    squared_error,
)
from dpatlas.privacy.per_record import NetworkGradients, PerRecordWarning
from dpatlas.privacy.training import PrivateTraining

ROWS = 7
DRAWS = torch.Generator().manual_seed(5)


def normal(*shape: int) -> Tensor:
    return torch.randn(ROWS, *shape, generator=DRAWS)


def below(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, (ROWS, *shape), generator=DRAWS)


NUMBERS, IDS, LABELS = normal(WIDTH), below(WORDS, TIME), below(CLASSES)
TOKENS, IMAGES, REAL = normal(TIME, WIDTH), normal(3, 8, 8), normal()
MISSING = torch.where(normal(WIDTH) > 1, torch.nan, NUMBERS)
HELD = torch.linspace(0, 1, WIDTH)


def of(make, x=NUMBERS, targets=LABELS, loss=cross_entropy):
    return Case(make, x, targets, loss)


def numbers(act, x=NUMBERS):
    return of(before(act), x)


def log_normal(output, targets):
    return -LogNormal(output[:, 0], output[:, 1].exp()).log_prob(targets)


def two_heads(output, targets):
    kinds, size = output.split([CLASSES - 1, 1], 1)
    return cross_entropy(kinds, targets[:, 0].long()) + squared_error(size, targets[:, 1:])


def of_maps(output, labels):
    return F.cross_entropy(output, labels, reduction="none").mean((1, 2))


def tiny_vit():
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 24}
    return VisionTransformer(image_size=8, patch_size=4, num_classes=CLASSES, **sizes)


def language():
    return nn.Sequential(nn.Embedding(WORDS, 4), nn.LayerNorm(4), nn.Linear(4, WORDS))


def gaussian(output, labels):
    return F.gaussian_nll_loss(output[:, 0], labels * 1.0, output[:, 1].exp(), reduction="none")


def divergence(output, labels):
    return kl_divergence(Normal(output, output.exp()), Normal(0.0, 1.0)).sum(1)


def in_windows(self, x):
    windows = self.q(x).reshape(2 * len(x), 1, TIME // 2, WIDTH)
    far = x.reshape(len(x), 1, 2, -1).mean(3, keepdim=True)
    mask = far.expand(-1, -1, -1, 2)
    mask = mask if len(x) == 1 else mask.repeat_interleave(2, 0)
    attended = F.scaled_dot_product_attention(windows, windows, windows, attn_mask=mask)
    return attended.reshape(x.shape)


def derivatives(h):
    jacobian = torch.func.vmap(torch.func.jacrev(torch.tanh))(h).sum(1)
    return jacobian + torch.func.vjp(torch.sin, h)[1](torch.ones_like(h))[0]


def read_otherwise():
    table = nn.Embedding(WORDS, 4, padding_idx=1)
    return Net(
        lambda s, x: s.last((s.table(x) * s.table.weight.norm()).flatten(1)),
        table=table,
        last=nn.Linear(16, 3),
    )


def causal():
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, 0.0, batch_first=True)
    return Net(
        lambda s, x: s.last(s.layers(x, s.mask).mean(1)),
        layers=nn.TransformerEncoder(layer, 1),
        mask=nn.Transformer.generate_square_subsequent_mask(TIME),
        last=nn.Linear(WIDTH, CLASSES),
    )


class Config:
    """Settings of a class of one's own, without a dict."""

    __slots__ = ("slope",)

    def __init__(self, slope):
        self.slope = slope


def with_config():
    model = Net(lambda self, x: self.inner(x * self.config.slope), inner=mlp())
    model.config = Config(0.5)
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


def moves_buffers(self, x):
    """Writes the length of its own weight into a buffer, and counts its calls."""
    self.length.copy_(self.layer.weight.detach().norm())
    self.calls += 1
    return self.layer(x) / self.length


def with_positions(self, ids):
    """A transformer of words with an embedding of as many positions as a record has."""
    places = torch.arange(ids.shape[1])
    mask = (ids == 0) & (places > 0)
    hidden = self.words(ids) + self.places(places)
    return self.head(self.encoder(hidden, src_key_padding_mask=mask)[:, 0])


def transformer():
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    parts = {"words": nn.Embedding(WORDS, 4), "places": nn.Embedding(TIME, 4)}
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    return Net(with_positions, **parts, encoder=encoder, head=nn.Linear(4, CLASSES))


def without_padding(self, ids):
    there = (ids != 0)[..., None]
    return self.head((self.words(ids).tanh() * there).sum(1) / there.sum(1).clamp_min(1))


def tied():
    """An output layer with the weights of the embedding, which is read past its layer too."""
    words, out = nn.Embedding(WORDS, 4), nn.Linear(4, WORDS, bias=False)
    out.weight = words.weight
    return Net(lambda self, ids: self.out(F.softplus(self.words(ids))), words=words, out=out)


def scanned(self, x):
    """A recurrence by hand: a cell that is called once for each moment."""
    hidden = x.new_zeros(len(x), 4)
    for moment in x.unbind(1):
        hidden = self.cell(moment, hidden)
    return self.head(hidden)


def two_names():
    """One layer that stands in two places, and one that shares its weights."""
    layer, other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
    other.weight = layer.weight
    return nn.Sequential(nn.Sequential(layer, nn.Tanh()), layer, other, nn.Linear(WIDTH, CLASSES))


def with_hooks():
    model = mlp()
    model[0].register_forward_hook(lambda layer, given, output: output + given[0].sum(1, True))
    model[2].register_forward_pre_hook(lambda layer, given: (2 * given[0],))
    return model


def with_forward():
    model = mlp()
    own = model[2].forward
    model[2].forward = lambda x: own(x) ** 2
    return model


def held_in_a_list():
    model = Net(lambda s, x: ((x @ s.w).tanh() @ s.held[0].t())[:, :3], w=(8, 8))
    model.held = [model.w]
    return model


def module_in_a_list():
    model = Net(lambda s, x: s.l(x) + s.others[0](x), l=nn.Linear(8, 3))
    model.others = [nn.Linear(8, 3)]
    return model


def attending(attend, **options):
    options = {"batch_first": True, **options}
    parts = {"attend": nn.MultiheadAttention(WIDTH, 2, **options), "head": nn.Linear(8, 3)}
    return lambda: Net(lambda s, x: s.head(attend(s, x).mean(1)), **parts)


def learned_mask(s, x):
    return s.attend(x, x, x, attn_mask=s.mask, need_weights=False)[0]


def recurrent(kind, directions=1, **options):
    def last(self, x):
        return self.head(self.layer(x)[0][:, -1].square())

    def make():
        layer = kind(WIDTH, 4, batch_first=True, **options)
        return Net(last, layer=layer, head=nn.Linear(4 * directions, CLASSES))

    return of(make, TOKENS)


def mixing(act, parts=lambda: {"mix": nn.Linear(WIDTH, WIDTH)}):
    """A network of tokens: `act(self, x)` is averaged over them."""
    return of(
        lambda: Net(lambda s, x: s.head(act(s, x).mean(1)), **parts(), head=nn.Linear(8, 3)), TOKENS
    )


def scaled_products(s, x):
    return F.scaled_dot_product_attention(s.q(x), s.k(x), x, is_causal=True)


def of_two(function):
    """A function of the outputs of a linear layer and a parameter."""
    return of(lambda: Net(lambda s, x: function(s.l(x), s.w), l=nn.Linear(WIDTH, 5), w=(5,)))


def assigned(h, w):
    shifted = torch.zeros_like(h)
    shifted[:, 1:] = h[:, :-1] * w[1:]
    shifted[:, 0] += 1
    shifted[shifted < -1] = 0
    return shifted + w


def inner(s, x):
    return torch.func.grad(lambda row: (row @ s.w).tanh().sum())(x) @ s.v + x @ s.w[:, :3]


def inner_by_rows(s, x):
    slopes = torch.func.vmap(torch.func.grad(lambda row: (row @ s.w).tanh().sum()))
    return slopes(x) @ s.v + x @ s.w[:, :3]


def complex_products(s, x):
    return torch.view_as_real(x.cfloat() @ (s.w.cfloat() * 1j)).flatten(1) @ s.v


def chunks():
    return Net(lambda s, x: sum((x @ w).tanh() for w in s.w.chunk(2, 1)), w=(8, 6))


def twice():
    return Net(lambda s, x: (x @ s.w).tanh() @ s.w.t() @ s.w[:, :3], w=(8, 8))


def normed():
    return Net(lambda s, x: F.linear(x, F.normalize(s.w)), w=(3, 8))


def cast(make, dtype):
    return of(lambda: make().to(dtype), NUMBERS.to(dtype))


def compiled_in_place():
    model = mlp()
    model.compile()
    return model


def both_ways(x, weight):
    return ((x @ weight).tanh() @ weight).tanh() @ weight.t()


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).mT


def symmetric():
    layer = nn.Linear(WIDTH, WIDTH)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return nn.Sequential(layer, nn.Linear(WIDTH, 5))


def scaled(s, x):
    first = F.linear(x, s.a.weight * s.scale, s.a.bias)
    return s.head(F.linear(first.relu(), s.a.weight.t()))


# Weights that are functions of parameters.
DERIVED = {
    "two parameters, one read twice": of(
        lambda: Net(scaled, a=nn.Linear(8, 8), head=nn.Linear(8, 5), scale=(8, 1))
    ),
    "a function of one, read twice": of(
        lambda: Net(lambda s, x: both_ways(x, F.normalize(s.w)), w=(WIDTH, WIDTH))
    ),
    "made by a layer of a buffer": of(
        lambda: Net(
            lambda s, x: F.linear(x, s.make(s.code).view(5, 8)),
            make=nn.Linear(3, 40),
            code=torch.randn(1, 3),
        )
    ),
    "symmetric": of(symmetric),
    "weight norm": of(lambda: parametrizations.weight_norm(nn.Linear(WIDTH, 5))),
    "orthogonal": of(
        lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(8, 8)), nn.Linear(8, 5))
    ),
}
CASES = {
    # Records and targets.
    "missing values passed on as zero": numbers(torch.nan_to_num, MISSING),
    "pixels": numbers(lambda x: x / 255, below(256, WIDTH).to(torch.uint8)),
    "flags": numbers(lambda x: x * 1.0, NUMBERS > 0),
    "codes from 1": numbers(lambda x: F.one_hot(x - 1, 4).float().mean(2), 1 + below(4, WIDTH)),
    "complex numbers": numbers(
        lambda x: torch.view_as_real(x).mean(2), torch.complex(NUMBERS, NUMBERS)
    ),
    "classes that are picked": of(
        mlp, loss=lambda o, y: -o.log_softmax(1).gather(1, y[:, None])[:, 0]
    ),
    "targets whose logarithm is taken": of(
        mlp, targets=REAL.exp(), loss=lambda o, y: (o[:, 0] - y.log()).square()
    ),
    "a law that checks its values": of(mlp, targets=REAL.exp(), loss=log_normal),
    "a variance": of(mlp, loss=gaussian),
    "a divergence of laws": of(mlp, loss=divergence),
    "two heads in one output": of(mlp, targets=torch.stack([LABELS % 2, REAL], 1), loss=two_heads),
    "a sum over the batch": of(mlp, loss=lambda o, y: F.cross_entropy(o, y, reduction="sum")),
    "the batch's mean": of(mlp, loss=F.cross_entropy),
    "a module as the loss": of(
        mlp, loss=nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)
    ),
    "labels that are independent": of(
        mlp, targets=(normal(CLASSES) > 0).float(), loss=binary_cross_entropy
    ),
    "one number": of(lambda: nn.Linear(WIDTH, 1), targets=REAL, loss=squared_error),
    "maps": of(lambda: nn.Conv2d(3, CLASSES, 3, padding=1), IMAGES, below(CLASSES, 8, 8), of_maps),
    "the record as its target": of(
        lambda: nn.Sequential(nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 8)),
        targets=NUMBERS,
        loss=squared_error,
    ),
    # Texts.
    "padding left out": of(
        lambda: Net(
            without_padding, words=nn.Embedding(WORDS, 4, padding_idx=0), head=nn.Linear(4, 3)
        ),
        IDS,
    ),
    "bag of words": of(
        lambda: nn.Sequential(
            nn.EmbeddingBag(WORDS, 4, mode="mean", padding_idx=0), nn.Linear(4, CLASSES)
        ),
        IDS,
    ),
    "int32 words": of(
        lambda: nn.Sequential(nn.Embedding(WORDS, 4), nn.Flatten(), nn.Linear(16, 3)), IDS.int()
    ),
    "transformer with a causal mask": of(causal, TOKENS),
    "transformer with padding": of(transformer, IDS),
    "next words": of(language, IDS, IDS, TokenCrossEntropy()),
    "next words, some ignored": of(
        language, IDS, IDS, TokenCrossEntropy(ignore_index=2, reduction="sum")
    ),
    "tied words": of(tied, IDS, IDS, TokenCrossEntropy()),
    # Networks.
    "holds an object of a class of one's own": of(with_config),
    "caches by shape": of(lambda: nn.Sequential(CachesByShape(), *mlp())),
    "moves buffers by weights": of(
        lambda: Net(
            moves_buffers,
            layer=nn.Linear(WIDTH, CLASSES),
            length=torch.zeros(()),
            calls=torch.zeros((), dtype=torch.int64),
        )
    ),
    "constants": numbers(lambda x: x * HELD),
    "hooks": of(with_hooks),
    "a forward of its own": of(with_forward),
    "spectral norm": of(
        lambda: nn.Sequential(
            parametrizations.spectral_norm(nn.Linear(WIDTH, 5)).eval(), nn.Linear(5, CLASSES)
        )
    ),
    "two names": of(two_names),
    "a weight the other way round": of(
        lambda: Net(lambda s, x: F.linear(s.l(x).tanh(), s.l.weight.t()), l=nn.Linear(8, 5))
    ),
    "a parameter in a list": of(held_in_a_list),
    "a module in a list": of(module_in_a_list),
    "checkpointed": mixing(lambda s, x: checkpoint(s.mix, x, use_reentrant=False)),
    "in place": mixing(lambda s, x: s.mix(x).mul_(2).add_(x).relu_()),
    "time before records": mixing(lambda s, x: s.mix(x.transpose(0, 1)).tanh().transpose(0, 1)),
    "frames folded into the batch": mixing(
        lambda s, x: s.mix(x.reshape(-1, WIDTH)).tanh().view(len(x), TIME, -1)
    ),
    "bilinear": of(lambda: Net(lambda s, x: s.mix(x, x.tanh()), mix=nn.Bilinear(8, 8, CLASSES))),
    "prelu": of(lambda: nn.Sequential(nn.Linear(8, 5), nn.PReLU(5), nn.Linear(5, CLASSES))),
    "attention with learned keys": of(
        attending(lambda s, x: s.attend(x, x, x, need_weights=False)[0], add_bias_kv=True), TOKENS
    ),
    "attention with a learned mask": of(
        lambda: Net(
            lambda s, x: s.head(learned_mask(s, x).mean(1)),
            attend=nn.MultiheadAttention(8, 2, batch_first=True),
            mask=(TIME, TIME),
            head=nn.Linear(8, 3),
        ),
        TOKENS,
    ),
    "attention by scaled_dot_product": mixing(
        scaled_products, lambda: {"q": nn.Linear(8, 8), "k": nn.Linear(8, 8)}
    ),
    "attention in windows with a mask of the record": mixing(
        in_windows, lambda: {"q": nn.Linear(8, 8)}
    ),
    "LSTM": recurrent(nn.LSTM, 2, num_layers=2, bidirectional=True),
    "GRU": recurrent(nn.GRU),
    "RNN": recurrent(nn.RNN),
    "cells": of(lambda: Net(scanned, cell=nn.GRUCell(8, 4), head=nn.Linear(4, 3)), TOKENS),
    "instance norm": of(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.Flatten(), nn.Linear(144, 3)
        ),
        IMAGES,
    ),
    "pooled, and enlarged": of(
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2), nn.ELU()),
            *(nn.ConvTranspose2d(4, 2, 2, 2), nn.Upsample(scale_factor=2)),
            *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, CLASSES)),
        ),
        IMAGES,
    ),
    "a transformer of torchvision": of(tiny_vit, IMAGES),
    "a layer also behind detach": of(
        lambda: Net(
            lambda s, x: (s.l(x) - s.l(x).detach().mean(1, keepdim=True)).tanh(), l=nn.Linear(8, 3)
        )
    ),
    "a layer also under no_grad": of(
        lambda: Net(lambda s, x: s.l(x) - torch.no_grad()(s.l)(2 * x), l=nn.Linear(8, 3))
    ),
    "gradient inside": of(lambda: Net(inner, w=(8, 4), v=(8, 3))),
    "derivatives inside": of(behind(derivatives)),
    "words with gradients that are sparse": of(
        lambda: nn.Sequential(nn.Embedding(WORDS, 4, sparse=True), nn.Flatten(), nn.Linear(16, 3)),
        IDS,
    ),
    "words of a table that is read otherwise": of(read_otherwise, IDS),
    "gradients by record inside": of(lambda: Net(inner_by_rows, w=(8, 4), v=(8, 3))),
    "no number in a parameter": of(
        lambda: Net(lambda s, x: torch.cat([x, s.z.expand(len(x), 0)], 1) @ s.v, z=(1, 0), v=(8, 3))
    ),
    "complex products": of(lambda: Net(complex_products, w=(8, 4), v=(8, 3))),
    # Ways to write a function.
    "data": of_two(lambda h, w: h * h.data * w),
    "the data of a parameter": of_two(lambda h, w: h * w.data + w),
    "straight through": of_two(lambda h, w: (h + (h.round() - h).detach()) * w),
    "requires_grad_ of what is detached": of_two(lambda h, w: h.detach().requires_grad_() * h * w),
    "whole slices": of_two(lambda h, w: h[:] * w[...]),
    "assigned slices and masks": of_two(assigned),
    # Its gradient writes in place.
    "real Fourier transforms": of_two(lambda h, w: torch.fft.irfft(torch.fft.rfft(h), n=5) * w),
    "a loop over records": of_two(lambda h, w: torch.stack([row * w for row in h])),
    "vmap": of_two(lambda h, w: torch.vmap(lambda row: (row * w).softmax(0))(h)),
    "compiled": of(lambda: torch.compile(mlp())),
    "compiled in place": of(compiled_in_place),
    "data parallel": of(lambda: nn.DataParallel(mlp())),
    # Numbers of other types.
    "float64 chunks": cast(chunks, torch.float64),
    "bfloat16 chunks": cast(chunks, torch.bfloat16),
    "bfloat16, read twice": cast(twice, torch.bfloat16),
    "bfloat16, normed": cast(normed, torch.bfloat16),
    "float16": cast(lambda: nn.Linear(8, 3), torch.float16),
    **DERIVED,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::dpatlas.privacy.per_record.PerRecordWarning")
def test_an_honest_network_trains_by_the_gradients_of_a_loop_over_records(name):
    case = CASES[name]
    model = made(case)
    rows = zip(case.x.split(1), case.targets.split(1), strict=True)
    with torch.compiler.set_stance("force_eager"):
        # A network may write into its input.
        losses = (case.loss(model(x.clone()), y).sum() for x, y in rows)
        gradients = {key: rows.double() for key, rows in by_loop(model, losses).items()}
    settings = {"noise_multiplier": 0.0, "max_grad_norm": 1e6, "steps": 1, "lr": 1e-9}
    given = {"noise": Noise(), "loss": case.loss}
    run = PrivateTraining(
        model, [phase(FullBatch(ROWS), **settings)], case.x, case.targets, **given
    )
    (unclipped,) = sums_of(run)
    half = float(norms(gradients).median())
    clipped = run.kernel.clipped_sum(case.x, case.targets, half)
    assert run.skipped_records == clipped.skipped == 0
    few_bits = case.x.dtype in (torch.float16, torch.bfloat16)
    for found, bound in ((unclipped, 1e6), (clipped.gradients, half)):
        expected = clipped_sum(gradients, bound)
        assert distance(found, expected) <= (3e-2 if few_bits else 1e-5) * norm_of(expected)


@pytest.mark.parametrize("name", DERIVED)
def test_a_weight_of_parameters_is_no_copy(name):
    case = DERIVED[name]
    kernel = NetworkGradients(made(case))
    kernel.trace(case.x, case.targets)
    assert kernel._graph.derived and not kernel._graph.copied


def test_a_bias_by_position_is_that_of_a_record_alone():
    case = of(
        lambda: Net(
            lambda s, x: torch.addmm(s.p, x[0], s.w).mean(0)[None], p=(TIME, 3), w=(WIDTH, 3)
        ),
        TOKENS,
    )
    kernel = NetworkGradients(model := made(case))
    rows = zip(case.x.split(1), case.targets.split(1), strict=True)
    expected = clipped_sum(by_loop(model, (cross_entropy(model(x), y) for x, y in rows)), 0.1)
    found = kernel.clipped_sum(case.x, case.targets, 0.1).gradients
    assert distance(found, expected) <= 1e-5 * norm_of(expected)


def test_a_training_of_another_parameter_of_the_same_name_has_its_own_gradients():
    """Of one record the two networks have the same graph."""
    for names in ("ab", "ba"):
        model = nn.Sequential(OrderedDict((name, nn.Linear(8, 8)) for name in names))
        model.b.requires_grad_(False)
        kernel = NetworkGradients(model)
        rows = zip(NUMBERS.split(1), LABELS.split(1), strict=True)
        expected = clipped_sum(by_loop(model, (cross_entropy(model(x), y) for x, y in rows)), 0.1)
        found = kernel.clipped_sum(NUMBERS, LABELS, 0.1).gradients
        assert distance(found, expected) <= 1e-5 * norm_of(expected)


def test_a_buffer_that_counts_is_at_each_step_what_it_is_without_privacy():
    def counted(self, x):
        self.calls += 1
        return self.inner(x) * self.calls

    model = Net(counted, inner=nn.Linear(WIDTH, CLASSES), calls=torch.zeros(()))
    settings = {"noise_multiplier": 0.0, "max_grad_norm": 1e6, "steps": 3, "lr": 1e-9}
    run = PrivateTraining(
        model, [phase(FullBatch(ROWS), **settings)], NUMBERS, LABELS, noise=Noise(), isolate=True
    )
    sums = sums_of(run)
    model.calls.zero_()
    for found in sums:
        plain = cross_entropy(model(NUMBERS), LABELS).sum()
        expected = dict(zip(found, torch.autograd.grad(plain, run.trained.values()), strict=True))
        assert distance(found, expected) <= 1e-4 * norm_of(expected)


def test_what_a_network_does_to_its_buffers_tells_it_from_another():
    def counting(step):
        def forward(self, x):
            output = self.inner(x) * (1 + self.calls)
            self.calls += step
            return output

        model = Net(forward, inner=nn.Linear(WIDTH, CLASSES), calls=torch.zeros(()))
        return NetworkGradients(model).trace(NUMBERS, LABELS).digest

    assert counting(1) == counting(1) != counting(2)


def test_products_in_bfloat16():
    case = of(lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 5)))
    found, exact = (
        NetworkGradients(made(case), autocast=kind).clipped_sum(case.x, case.targets, 1e6).gradients
        for kind in (torch.bfloat16, None)
    )
    assert 0 < distance(found, exact) < 2e-2 * norm_of(exact)


def test_what_is_detached_stays_so_beside_dropout_inside_of_attention():
    """Such a network is traced twice, and the second time makes aliases of what is detached."""

    def attended(h, w, **options):
        q = (h * w).view(-1, 1, 5, 1)
        out = F.scaled_dot_product_attention(q, q, q.detach(), **options)
        return out.view(-1, 5) + h[:]

    case = of_two(lambda h, w: attended(h, w, dropout_p=1e-9))
    kernel = NetworkGradients(model := made(case))
    kernel.trace(case.x, case.targets)
    sums = kernel.clipped_sum(
        case.x,
        case.targets,
        1e6,
        draws=lambda a, b: [torch.full((b - a, *d.shape), 0.5) for d in kernel.record.draws],
    )
    rows = zip(case.x.split(1), case.targets.split(1), strict=True)
    losses = (cross_entropy(attended(model.l(x), model.w), y) for x, y in rows)
    expected = clipped_sum(by_loop(model, losses), 1e6)
    assert distance(sums.gradients, expected) < 1e-5 * norm_of(expected)


RANDOM = {
    "gumbel_softmax": lambda h, w: F.gumbel_softmax(h, hard=True) * w,
    "rsample": lambda h, w: Normal(h, w.exp()).rsample(),
    "rrelu": lambda h, w: F.rrelu(h * w, training=True),
    "randint": lambda h, w: h * torch.randint(1, 3, h.shape) * w,
    "exponential_": lambda h, w: h + w * torch.empty_like(h).exponential_(2.0),
    "normal": lambda h, w: h + w * torch.normal(1.0, 2.0, h.shape),
}


@pytest.mark.parametrize("way", RANDOM)
def test_random_numbers_of_a_record_are_as_torch_draws_them(way):
    model = made(of_two(RANDOM[way]))
    record = NetworkGradients(model, lambda output, _: output.sum(1)).trace(NUMBERS, None)
    assert len(record.draws) == 1
    rows = NUMBERS[:1].expand(20_000, -1)
    torch.manual_seed(1)
    make = torch.rand if record.draws[0].kind == "uniform" else torch.randn
    found = torch.vmap(record.loss, (*[None] * len(record.state()), 0, 0))(
        *record.state(), rows.unsqueeze(1), make(len(rows), *record.draws[0].shape)
    )
    plain = model(rows).sum(1)
    for moment in torch.mean, torch.std:
        assert moment(found).item() == pytest.approx(moment(plain).item(), rel=0.05, abs=0.05)


def test_what_torch_computes_record_by_record_is_told_by_module_and_operation():
    model = nn.Sequential(
        nn.FractionalMaxPool2d(2, output_ratio=0.5), nn.Flatten(), nn.Linear(9, 5)
    )
    with pytest.warns(PerRecordWarning, match=r"layer 0 \(FractionalMaxPool2d\): aten.fraction"):
        NetworkGradients(model).trace(torch.randn(2, 1, 6, 6), torch.tensor([0, 1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NetworkGradients(nn.Bilinear(8, 8, 5)).trace((NUMBERS, NUMBERS), LABELS)
