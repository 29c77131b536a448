"""No record adds more than C, whatever float32 rounds: every kernel path, with large offsets."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from reference_gradients import (
    NETWORKS,
    attended,
    distance,
    norm_of,
    records,
    seeded,
)
from small_networks import Net
from test_synchronisation import reads
from torch import Tensor, nn

from dpatlas.models.lora import Adapted
from dpatlas.models.vit import ClassToken, Offset
from dpatlas.privacy import clipping, convolution, factors, matrix
from dpatlas.privacy.clipping import SUM_BLOCK, clip_factors, company_rounding
from dpatlas.privacy.logistic import SoftmaxGradients
from dpatlas.privacy.norms import in_blocks, rows_norm2
from dpatlas.privacy.per_record import NetworkGradients

OFFSETS = [1.0, 1e2, 1e4, 1e6]
BOUNDS = [0.01, 0.1, 1.0]
COMPANY = 4096


def lift(offset):
    """Adds a constant to every activation."""
    return Net(lambda self, x: x + offset)


def centred(*dims):
    """Takes the mean over positions away: output gradients then cancel over a constant input."""
    return Net(lambda self, x: x - x.mean(dims, keepdim=True))


def to_itself(layer, x):
    return layer(x, x, x, need_weights=False)[0]


def own(act, value):
    """A product with a parameter that belongs to no layer."""
    return Net(lambda self, x: act(x, self.value), value=nn.Parameter(value))


def adapted(layer, rank):
    """A low-rank branch whose `up` is not zero."""
    branch = Adapted(layer, rank, 1.0)
    layer.requires_grad_(False)
    return branch


@dataclass(frozen=True)
class Path:
    """Layers after the offset, a record's shape, and the way that the named layer must take."""

    make: Callable[[], tuple[nn.Module, ...]]
    shape: tuple[int, ...]
    way: str
    layer: str = "1"
    options: dict[str, Any] = field(default_factory=dict)
    # How far records in company differ.
    spread: float = 1e-3

    def model(self, offset: float, dtype=torch.float32) -> nn.Module:
        return seeded(lambda: nn.Sequential(lift(offset), *self.make()), dtype=dtype)


def through(dims, make, shape, outputs, way, layer="1", **options):
    """A path whose layer gives `outputs` numbers a record, centred over `dims`."""
    rest = centred(*dims), nn.Flatten()
    return Path(lambda: (make(), *rest, nn.Linear(outputs, 5)), shape, way, layer, options)


# Records of shape (positions, features), and (channels, height, width).
tokens, images = (functools.partial(through, dims) for dims in ((1,), (2, 3)))


def linear(inputs, outputs):
    return lambda: nn.Linear(inputs, outputs)


def conv(*sizes, **options):
    return lambda: nn.Conv2d(*sizes, **options)


PATHS = {
    "linear": Path(lambda: (nn.Linear(64, 5),), (64,), "one position"),
    "linear, positions by gram": tokens(linear(64, 64), (16, 64), 16 * 64, "gram"),
    "linear, wide, by gram in blocks": tokens(linear(600, 40), (6, 600), 6 * 40, "gram"),
    "linear, positions by gradients": tokens(linear(6, 5), (32, 6), 32 * 5, "gradients"),
    "linear, views": tokens(linear(64, 64), (8, 64), 8 * 64, "gram", views=2),
    "convolution by gram, strided": images(conv(48, 64, 3, 2, 1), (48, 5, 6), 64 * 9, "gram"),
    "convolution by gram, per layer": images(
        conv(64, 64, 3), (64, 6, 6), 64 * 16, "gram", clipping="per-layer"
    ),
    "convolution in one call": images(conv(3, 8, 3), (3, 8, 8), 8 * 36, "one call"),
    "convolution in one call, views": images(conv(3, 8, 3), (3, 8, 8), 8 * 36, "one call", views=2),
    "convolution, a call a record": images(
        conv(24, 32, 3), (24, 26, 26), 32 * 576, "a call a record"
    ),
    "convolution in groups, strided, dilated": images(
        conv(4, 8, 3, 2, dilation=2, groups=2), (4, 9, 9), 8 * 9, "one call"
    ),
    "convolution of single channels": images(
        conv(8, 8, 3, groups=8), (8, 8, 8), 8 * 36, "one call"
    ),
    "group norm": images(lambda: nn.GroupNorm(2, 6), (6, 4, 4), 6 * 16, "gradients"),
    "layer norm": tokens(lambda: nn.LayerNorm(12), (8, 12), 8 * 12, "gradients"),
    "offset": tokens(lambda: Offset(8, 12), (8, 12), 8 * 12, "gradients"),
    "class token": tokens(lambda: ClassToken(12), (8, 12), 9 * 12, "gradients"),
    "convolution in one dimension": through(
        (2,), lambda: nn.Conv1d(4, 8, 3), (4, 12), 8 * 10, "one call"
    ),
    "convolution in three dimensions": through(
        (2, 3, 4), lambda: nn.Conv3d(2, 4, 2), (2, 4, 4, 4), 4 * 27, "one call"
    ),
    "transposed convolution": images(
        lambda: nn.ConvTranspose2d(3, 8, 3), (3, 6, 6), 8 * 64, "one call"
    ),
    "rms norm": tokens(lambda: nn.RMSNorm(12), (8, 12), 8 * 12, "gradients"),
    "batch norm, running statistics": images(
        lambda: nn.BatchNorm2d(6).eval(), (6, 4, 4), 6 * 16, "gradients"
    ),
    # Its outputs differ so little between positions that centred they would be rounding alone.
    "attention": Path(
        lambda: (attended(to_itself, 12), nn.Flatten(), nn.Linear(8 * 12, 5)),
        (8, 12),
        "gradients",
        "1.attention",
        # The softmax of large products tells apart what differs by more.
        spread=1e-5,
    ),
    # In the place of which every record has a copy.
    "a factor of its own": tokens(
        lambda: own(torch.mul, torch.linspace(0.5, 1.5, 12)), (8, 12), 8 * 12, "gradients"
    ),
    "a matrix of its own": tokens(
        lambda: own(torch.matmul, torch.eye(12) + 0.1), (8, 12), 8 * 12, "gradients"
    ),
    "lora, linear": tokens(
        lambda: adapted(nn.Linear(64, 64), 40), (16, 64), 16 * 64, "gram", "1.down"
    ),
    "lora, convolution": images(
        lambda: adapted(nn.Conv2d(64, 64, 3), 4), (64, 6, 6), 64 * 16, "one call", "1.down"
    ),
}


@pytest.fixture(params=PATHS, ids=lambda name: name.replace(", ", "-").replace(" ", "-"))
def path(request):
    return PATHS[request.param]


def made(path: Path, rows: int = 3, dtype=torch.float32) -> tuple[Tensor, Tensor]:
    views = path.options.get("views", 1)
    x, labels = records(path.shape, rows * views, dtype=dtype)
    return x, labels[::views].repeat_interleave(views)


def way(kernel: NetworkGradients, name: str, x: Tensor, labels: Tensor) -> str:
    """Which way the gradients of the layer's first parameter go."""
    calls, gradients = [], convolution.Shape.gradients

    def counted(shape, delta, rows, weight, of, *more):
        calls.append((of, tuple(weight.shape)))
        return gradients(shape, delta, rows, weight, of, *more)

    record = kernel.trace(x, labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution.Shape, "gradients", counted)
        data, units = (x.unsqueeze(1), labels.unsqueeze(1)), len(x) // kernel.views
        found = kernel._graph.gradients(record.state(), data, units)
    (_, part), *_ = next(each for key, each in found.items() if key.startswith(f"{name}.")).parts
    if part.stored is None:
        return "gram" if part.positions() > 1 else "one position"
    if not isinstance(part, convolution.Convolution):
        return "gradients"
    together = "weight", (units * len(part.weight), *part.weight.shape[1:])
    return "one call" if together in calls else "a call a record"


def test_the_paths_of_these_tests_are_those_that_are_meant(path):
    kernel = NetworkGradients(path.model(1.0), **path.options)
    assert way(kernel, path.layer, *made(path)) == path.way


def check_records_alone(path, offset, tight):
    """Each record alone adds at most every bound, and hardly less where that is `tight`."""
    kernel = NetworkGradients(path.model(offset), **path.options)
    views = path.options.get("views", 1)
    x, labels = made(path)
    for start in range(0, len(x), views):
        rows = slice(start, start + views)
        for bound in BOUNDS:
            found = kernel.clipped_sum(x[rows], labels[rows], bound)
            added = norm_of(found.gradients)
            assert added <= bound * (1 + 1e-6)
            if tight and "clipping" not in path.options and found.norms > bound:
                assert added >= bound * (1 - factors.SLACK)


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_record_alone_adds_at_most_the_bound_and_hardly_less(path, offset):
    check_records_alone(path, offset, tight=True)


def aligned(shape, model, rows=COMPANY, spread=1e-3):
    """Records that are nearly equal, with the label that the model finds least likely."""
    draws = torch.Generator().manual_seed(1)
    one = torch.randn(1, *shape, generator=draws)
    with torch.no_grad():
        label = model(one).argmin(1)
    return one + spread * torch.randn(rows, *shape, generator=draws), label.repeat(rows)


def movements(kernel, x, labels, bound, removed, views=1):
    """How far the sum moves, in units of the bound, as each of these records is removed."""
    whole = kernel.clipped_sum(x, labels, bound).gradients
    assert norm_of(whole) > 0.9 * bound * len(x) / views
    for record in removed:
        others = torch.arange(len(x)) // views != record
        rest = kernel.clipped_sum(x[others], labels[others], bound).gradients
        yield float(distance(whole, rest)) / bound


def check_records_in_company(path, offset, count):
    """Among `count` records, none moves the sum by more than the bound and rounding."""
    views = path.options.get("views", 1)
    model = path.model(offset)
    x, labels = aligned(path.shape, model, count * views, path.spread)
    kernel = NetworkGradients(model, **path.options)
    for moved in movements(kernel, x, labels, 0.01, [0, count // 2, count - 1], views):
        assert moved <= 1 + company_rounding(count)


def test_sums_over_many_records_are_added_by_blocks_in_float64():
    rows, sizes = torch.zeros(5, 2, 3), []
    rows[0], rows[1:] = 2.0**23, 0.5

    def summed(block):
        sizes.append(len(block))
        return block.sum((0, 1))

    # Two records fill a block: float32 would lose every later one of them.
    total = in_blocks(summed, SUM_BLOCK // 2, rows)
    assert sizes == [2, 2, 1]
    assert total.tolist() == [2.0**24 + 4] * 3


@pytest.mark.parametrize("offset", OFFSETS)
def test_the_closed_form_keeps_the_bound(offset):
    kernel = SoftmaxGradients(seeded(nn.Linear, 64, 5, dtype=torch.float32))
    x, labels = records((64,), dtype=torch.float32)
    for bound in BOUNDS:
        for row in range(len(x)):
            rows = slice(row, row + 1)
            found = kernel.clipped_sum(x[rows] + offset, labels[rows], bound)
            assert norm_of(found.gradients) <= bound * (1 + 1e-6)
    lifted = nn.Sequential(lift(offset), kernel.layer)
    x, labels = aligned((64,), lifted)
    for moved in movements(kernel, x + offset, labels, 0.01, [0, COMPANY - 1]):
        assert moved <= 1 + company_rounding(COMPANY)


def test_the_closed_form_measures_output_gradients_whose_squares_vanish():
    layer = nn.Linear(4, 2, bias=False).requires_grad_()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[5.4e-18] * 4, [0.0] * 4]))
    x = torch.full((1, 4), 2.3e18)
    found = SoftmaxGradients(layer).clipped_sum(x, torch.tensor([0]), 1e-5)
    assert 0 < norm_of(found.gradients) <= 1e-5 * (1 + 1e-6)


@pytest.mark.parametrize("columns", [7, 1024, 1025, 10**7])
def test_long_rows_of_equal_entries_lose_nothing(columns):
    rows = torch.full((1, columns), 0.7)
    for bound in BOUNDS:
        factor = clip_factors(rows_norm2(rows), bound).float()
        added = float((factor * rows).double().norm())
        assert bound * (1 - 1e-5) <= added <= bound * (1 + 1e-6)


FACTORED = ["linear, positions by gram", "linear, views", "convolution by gram, strided"]


# Numbers that are held at a time: a record's, or those of some, so that the last part is smaller.
@pytest.mark.parametrize("held", [1, 4 * 64 * 64])
@pytest.mark.parametrize("name", [*FACTORED, "convolution in one call, views"])
def test_a_host_that_must_not_look_reads_nothing_and_finds_the_same(name, held, monkeypatch):
    path = PATHS[name]
    kernel, (x, labels) = NetworkGradients(path.model(0.0), **path.options), made(path, 6)
    expected = kernel.clipped_sum(x, labels, 0.1)
    monkeypatch.setattr(clipping, "may_look", lambda values: False)
    monkeypatch.setattr(factors, "GPU_CHUNK", held)
    with reads() as seen:
        found = kernel.clipped_sum(x, labels, 0.1)
    assert seen == []
    assert float(distance(found.gradients, expected.gradients)) < 1e-4 * norm_of(expected.gradients)
    torch.testing.assert_close(found.norms, expected.norms, rtol=1e-3, atol=0)


@pytest.mark.slow
def test_where_the_host_cannot_look_a_record_alone_adds_at_most_the_bound(path, monkeypatch):
    monkeypatch.setattr(clipping, "may_look", lambda values: False)
    for offset in OFFSETS:
        # Larger offsets cost what float32 loses by them.
        check_records_alone(path, offset, tight=offset <= 1e3)


@pytest.mark.parametrize("offset", [1.0, 1e4])
@pytest.mark.parametrize("name", FACTORED)
def test_where_the_host_cannot_look_a_record_in_company_moves_the_sum_by_no_more(
    name, offset, monkeypatch
):
    monkeypatch.setattr(clipping, "may_look", lambda values: False)
    check_records_in_company(PATHS[name], offset, 512)


IMAGES = [name for name, (_, shape) in NETWORKS.items() if len(shape) == 3]


@pytest.mark.parametrize(("views", "share"), [(1, 0), (1, 1e9), (2, None)])
@pytest.mark.parametrize("name", IMAGES)
def test_channels_last_changes_nothing_but_rounding(name, views, share, monkeypatch):
    if share is not None:
        monkeypatch.setattr(convolution, "GRAM_SHARE", share)
    make, shape = NETWORKS[name]
    model, (x, labels) = seeded(make), records(shape)
    labels = labels[::views].repeat_interleave(views)
    kernel = NetworkGradients(model, views=views)
    expected = kernel.clipped_sum(x, labels, 0.3)
    x = x.to(memory_format=torch.channels_last)
    for network in (model, seeded(make).to(memory_format=torch.channels_last)):
        found = NetworkGradients(network, views=views).clipped_sum(x, labels, 0.3)
        torch.testing.assert_close(found.norms, expected.norms, rtol=1e-11, atol=0)
        for key, value in expected.gradients.items():
            torch.testing.assert_close(found.gradients[key], value, rtol=1e-10, atol=1e-12)


# Paths whose 4,096 records take seconds, and those that are tested in every run.
LARGE = ("convolution, a call a record", "convolution by gram, per layer")
QUICK = ("linear", "linear, positions by gradients", "convolution in one call")


@pytest.mark.parametrize("offset", [1.0, 1e4, 1e6])
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PATHS],
)
def test_a_record_in_company_moves_the_sum_by_at_most_the_bound_and_rounding(name, offset):
    check_records_in_company(PATHS[name], offset, 128 if name in LARGE else COMPANY)


def test_records_that_need_it_are_multiplied_in_float64_whatever_the_others_are(monkeypatch):
    taken, pairs = [], matrix.Matrix.pairs

    def watched(rule, rows):
        taken.append(rows.tolist())
        return pairs(rule, rows)

    path = PATHS["linear, positions by gram"]
    x, labels = records(path.shape, 6, dtype=torch.float32)
    x[::2] += 1e4
    kernel = NetworkGradients(path.model(0.0))
    kernel.trace(x, labels)
    monkeypatch.setattr(matrix.Matrix, "pairs", watched)
    kernel.clipped_sum(x[1::2], labels[1::2], 0.1)
    assert taken == []
    together = kernel.clipped_sum(x, labels, 0.1)
    assert taken == [[0, 2, 4]] * 2
    alone = [kernel.clipped_sum(x[i : i + 1], labels[i : i + 1], 0.1).gradients for i in range(6)]
    assert taken[2:] == [[0]] * 6
    summed = {name: sum(each[name].double() for each in alone) for name in together.gradients}
    assert float(distance(together.gradients, summed)) < 0.1 * 1e-3
