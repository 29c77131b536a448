"""Ways in which people write networks: traced as torch runs them, or refused with what to write."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from dpatlas.errors import InputError
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.per_record import NetworkGradients, PerRecordWarning
from dpatlas.privacy.trace import called


class Wrapped(nn.Module):
    """A linear layer, and a function of its outputs and a parameter."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.w = nn.Linear(6, 5), nn.Parameter(torch.randn(5))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x), self.w)


def batch(dtype=torch.float32) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(2)
    x = torch.randn(4, 6, generator=draws).to(dtype)
    return x, torch.tensor([0, 1, 2, 4])


def distance(model, x, labels, loss=cross_entropy, plain=None, **settings) -> float:
    """How far the unclipped sum is from autograd's of the plain batch, relative to it."""
    sums = NetworkGradients(model, loss, **settings).clipped_sum(x, labels, 1e6).gradients
    total = loss(called(plain or model, x), labels).sum()
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    wanted = torch.autograd.grad(total, [*trained.values()])
    apart = [(sums[n] - each).double() for n, each in zip(trained, wanted, strict=True)]
    return norm(apart) / norm(wanted)


def norm(tensors) -> float:
    return float(sum(each.double().square().sum() for each in tensors).sqrt())


def refused(model, x, labels, loss=cross_entropy) -> str:
    with pytest.raises(InputError) as caught:
        NetworkGradients(model, loss).trace(x, labels)
    return str(caught.value)


def without_gradient(h: Tensor, w: Tensor) -> Tensor:
    with torch.no_grad():
        scale = h.relu() * 2
    return h * scale * w


def assigned(h: Tensor, w: Tensor) -> Tensor:
    shifted = torch.zeros_like(h)
    shifted[:, 1:] = h[:, :-1] * w[1:]
    shifted[:, 0] += 1
    shifted[shifted < -1] = 0
    return shifted + w


def by_torch_func(h: Tensor, w: Tensor) -> Tensor:
    return torch.func.grad(lambda rows: (rows.sin() * w).square().sum())(h)


HELD = {
    "detach": lambda h, w: h * h.detach() * w,
    "data": lambda h, w: h * h.data * w,
    "the data of a parameter": lambda h, w: h * w.data + w,
    "no_grad": without_gradient,
    "straight through": lambda h, w: (h + (h.round() - h).detach()) * w,
    "requires_grad_ of what is detached": lambda h, w: h.detach().requires_grad_() * h * w,
    "whole slices": lambda h, w: h[:] * w[...],
    "assigned slices and masks": assigned,
    "torch.func.grad": by_torch_func,
    # Its gradient writes in place.
    "real Fourier transforms": lambda h, w: torch.fft.irfft(torch.fft.rfft(h), n=5) * w,
    "a loop over records": lambda h, w: torch.stack([row * w for row in h]),
    "vmap": lambda h, w: torch.vmap(lambda row: (row * w).softmax(0))(h),
}


@pytest.mark.parametrize("way", HELD)
def test_gradients_are_those_that_torch_gives(way):
    assert distance(Wrapped(HELD[way]), *batch()) < 1e-6


def test_what_is_detached_stays_so_beside_dropout_inside_of_attention():
    """Such a network is traced twice, and the second time makes aliases of what is detached."""

    def attended(h: Tensor, w: Tensor) -> Tensor:
        q = (h * w).view(-1, 1, 5, 1)
        out = F.scaled_dot_product_attention(q, q, q.detach(), dropout_p=1e-9)
        return out.view(-1, 5) + h[:]

    model = Wrapped(attended)
    kernel = NetworkGradients(model)
    x, labels = batch()
    kernel.trace(x, labels)
    sums = kernel.clipped_sum(
        x,
        labels,
        1e6,
        draws=lambda a, b: [torch.full((b - a, *d.shape), 0.5) for d in kernel.record.draws],
    )
    q = lambda h: (h * model.w).view(-1, 1, 5, 1)  # noqa: E731
    h = model.layer(x)
    plain = F.scaled_dot_product_attention(q(h), q(h), q(h).detach()).view(-1, 5) + h
    wanted = torch.autograd.grad(cross_entropy(plain, labels).sum(), [*model.parameters()])
    names = [name for name, _ in model.named_parameters()]
    apart = [sums.gradients[name] - each for name, each in zip(names, wanted, strict=True)]
    assert norm(apart) < 1e-5 * norm(wanted)


class Scaled(nn.Module):
    """A weight that is a function of two parameters, one of which is read elsewhere too."""

    def __init__(self):
        super().__init__()
        self.a, self.head = nn.Linear(6, 6), nn.Linear(6, 5)
        self.scale = nn.Parameter(torch.ones(6, 1))

    def forward(self, x: Tensor) -> Tensor:
        first = F.linear(x, self.a.weight * self.scale, self.a.bias)
        return self.head(F.linear(first.relu(), self.a.weight.t()))


class Made(nn.Module):
    """A weight that a layer makes of a buffer."""

    def __init__(self):
        super().__init__()
        self.make = nn.Linear(3, 30)
        self.register_buffer("code", torch.randn(1, 3))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.make(self.code).view(5, 6))


class Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).mT


def symmetric() -> nn.Module:
    layer = nn.Linear(6, 6)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return nn.Sequential(layer, nn.Linear(6, 5))


DERIVED = {
    "two parameters, one read twice": Scaled,
    "made by a layer": Made,
    "symmetric": symmetric,
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(6, 5)),
    "orthogonal": lambda: nn.Sequential(
        parametrizations.orthogonal(nn.Linear(6, 6)), nn.Linear(6, 5)
    ),
}


@pytest.mark.parametrize("way", DERIVED)
def test_a_weight_of_parameters_is_no_copy(way):
    torch.manual_seed(0)
    model = DERIVED[way]()
    assert distance(model, *batch()) < 1e-5
    kernel = NetworkGradients(model)
    kernel.trace(*batch())
    assert kernel._graph.derived and not kernel._graph.copied


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 5))


def compiled(how: str) -> nn.Module:
    model = network()
    if how == "in place":
        model.compile()
    return torch.compile(model) if how == "whole" else model


@pytest.mark.parametrize("how", ["whole", "in place"])
def test_a_compiled_network_is_traced_as_it_was_written(how):
    model = compiled(how)
    with torch.compiler.set_stance("force_eager"):
        assert distance(model, *batch()) < 1e-6


def test_a_data_parallel_wrapper_is_no_matter():
    assert distance(nn.DataParallel(network()), *batch()) < 1e-6


@pytest.mark.parametrize(
    ("dtype", "within"), [(torch.float64, 1e-12), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)]
)
def test_networks_of_other_types(dtype, within):
    assert distance(network().to(dtype), *batch(dtype)) < within


def test_products_in_bfloat16():
    torch.manual_seed(0)
    assert distance(network(), *batch(), autocast=torch.bfloat16) < 2e-2


def test_variances_and_distributions():
    def gaussian(output, labels):
        return F.gaussian_nll_loss(output[:, 0], labels * 1.0, output[:, 1].exp(), reduction="none")

    def divergence(output, labels):
        return kl_divergence(Normal(output, output.exp()), Normal(0.0, 1.0)).sum(1)

    for loss in gaussian, divergence:
        assert distance(network(), *batch(), loss=loss) < 1e-6


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
    model, (x, _) = Wrapped(RANDOM[way]), batch()
    kernel = NetworkGradients(model, lambda output, _: output.sum(1))
    record = kernel.trace(x, None)
    assert len(record.draws) == 1
    rows = x[:1].expand(20_000, -1)
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
        assert distance(nn.Bilinear(6, 6, 5), (batch()[0], batch()[0]), batch()[1]) < 1e-6


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.LSTM(6, 4, batch_first=True), nn.Linear(4, 5)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        return self.head(self.layers(packed)[1][0][-1])


def test_a_packed_sequence_is_refused_with_the_lines_to_write():
    x = torch.randn(4, 7, 6), torch.tensor([7, 2, 3, 4])
    said = refused(Packed(), x, batch()[1])
    assert "packed sequence" in said
    assert "mask = torch.arange(x.shape[1], device=x.device) < lengths[:, None]" in said


REFUSED = {
    "x[mask]": (lambda h, w: h * h[h > 0].sum() * w, "torch.where(mask, x, 0)"),
    "one_hot": (lambda h, w: h * F.one_hot(h.argmax(1)).sum() * w, "F.one_hot(x, num_classes)"),
    "item": (lambda h, w: h * h.sum().item() * w, "torch.where in place of a branch"),
    "a branch": (lambda h, w: h * w if h.sum() > 0 else h, "torch.where in place of a branch"),
    "numpy": (lambda h, w: h * w + float(h.detach().numpy().sum()), "read by .numpy()"),
    "autograd.grad": (
        lambda h, w: torch.autograd.grad((h * w).sum(), h, create_graph=True)[0],
        "torch.func.grad",
    ),
    "reentrant": (
        lambda h, w: checkpoint(torch.sin, h * w, use_reentrant=True),
        "checkpoint(use_reentrant=False)",
    ),
    "multinomial": (
        lambda h, w: h * w + torch.multinomial(h.softmax(1), 1),
        "random numbers without a rule",
    ),
    "heaviside": (lambda h, w: torch.heaviside(h, w), "heaviside"),
}


@pytest.mark.parametrize("way", REFUSED)
def test_what_is_refused_says_what_to_write(way):
    function, line = REFUSED[way]
    assert line in refused(Wrapped(function), *batch())


def test_a_loss_over_alignments_is_refused():
    def alignments(output, labels):
        rows = output.view(1, 1, -1).expand(4, 1, -1).log_softmax(2)
        return F.ctc_loss(rows, labels[:, None], (4,), (1,))

    assert "ctc_loss" in refused(network(), *batch(), loss=alignments)
