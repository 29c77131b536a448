"""Per-record gradients by torch, and networks that hold every supported layer."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from small_networks import Net
from torch import Tensor, nn

from dpatlas.models.vit import ClassToken, First, Offset, SelfAttention, Tokens


def per_record_gradients(
    model: nn.Module, x: Tensor, labels: Tensor, views: int = 1
) -> dict[str, Tensor]:
    """(records, *shape) by parameter; a record's loss is the mean over its `views` rows."""
    parameters = {
        name: value.detach() for name, value in model.named_parameters() if value.requires_grad
    }

    def loss(given: dict[str, Tensor], rows: Tensor, marks: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, given, (rows,)), marks)

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    return gradients(parameters, x.unflatten(0, (-1, views)), labels.unflatten(0, (-1, views)))


def by_loop(model: nn.Module, losses: Iterable[Tensor]) -> dict[str, Tensor]:
    """The same by autograd, from the loss of one record after the other."""
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    # Parameters that no loss reaches have gradients of zero.
    options = {"allow_unused": True, "materialize_grads": True}
    grads = (torch.autograd.grad(loss, [*trained.values()], **options) for loss in losses)
    rows = zip(*grads, strict=True)
    pairs = zip(trained, rows, strict=True)
    return {name: torch.stack([one.to_dense() for one in each]) for name, each in pairs}


def norms(gradients: dict[str, Tensor]) -> Tensor:
    return sum(rows.reshape(len(rows), -1).square().sum(1) for rows in gradients.values()).sqrt()


def clipped_sum(gradients: dict[str, Tensor], max_grad_norm: float) -> dict[str, Tensor]:
    factors = (max_grad_norm / norms(gradients)).clamp_max(1)
    return {name: torch.tensordot(factors, rows, 1) for name, rows in gradients.items()}


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> Tensor:
    """|| one - other || over all parameters, in float64."""
    return sum((one[n] - other[n]).double().square().sum() for n in one).sqrt()


def norm_of(tensors: dict[str, Tensor]) -> float:
    return float(sum(value.double().square().sum() for value in tensors.values()).sqrt())


def seeded(make, *arguments, dtype=torch.float64):
    """`make(*arguments)` with weights from a fixed seed."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return make(*arguments).to(dtype)


def records(shape: tuple[int, ...], rows: int = 6, outputs: int = 5, dtype=torch.float64):
    draws = torch.Generator().manual_seed(3)
    x = torch.randn(rows, *shape, generator=draws, dtype=dtype)
    return x, torch.randint(0, outputs, (rows,), generator=draws)


def _flattened(shape: tuple[int, ...], make):
    """(network, shape of a record): the layers that `make` gives, then a linear layer on all."""

    def network() -> nn.Sequential:
        layers = nn.Sequential(*make())
        with torch.no_grad():
            features = layers(torch.zeros(1, *shape)).numel()
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 5))

    return network, shape


def _attention() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 12, 2, 2),
        Tokens(),
        ClassToken(12),
        Offset(17, 12),
        nn.LayerNorm(12),
        SelfAttention(12, 3),
        First(),
        nn.Linear(12, 5),
    )


class Words(nn.Module):
    """Numbers as words of a vocabulary, embedded; the numbers themselves are added.

    positions: add an embedding of the positions.
    """

    def __init__(self, vocabulary, dim, positions=False, padding_idx=None):
        super().__init__()
        self.words = nn.Embedding(vocabulary, dim, padding_idx=padding_idx)
        self.places = nn.Embedding(20, dim) if positions else None

    def forward(self, x):
        words = x.nan_to_num(0, 0, 0).mul(3).remainder(self.words.num_embeddings).long()
        output = self.words(words) + x.unsqueeze(-1)
        if self.places is None:
            return output
        return output + self.places(torch.arange(x.shape[1], device=x.device))


def attended(call, dim=8, **options):
    """torch's attention on tokens, called as `call(layer, x)` does."""
    layer = nn.MultiheadAttention(dim, 2, **{"batch_first": True, **options})
    return Net(lambda self, x: call(self.attention, x), attention=layer)


def causal(layer, x):
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
    return layer(x, x, x, attn_mask=mask, need_weights=False)[0]


def padded(layer, x):
    """With the first token always, and others where their first number is negative."""
    masked = (x[..., 0] < 0) & (torch.arange(x.shape[1], device=x.device) > 0)
    output, weights = layer(x, x, x, key_padding_mask=masked)
    return output + weights.sum(-1, keepdim=True)


def to_others(layer, x):
    return layer(x, x[:, :2, :6], x[:, :2, 2:], need_weights=False)[0]


def in_parts(layer, x):
    return layer(x[:, :1], x, x, need_weights=False)[0]


def time_first(layer, x):
    return layer(*[x.transpose(0, 1)] * 3)[0].transpose(0, 1)


def with_tokens(self, x):
    x = torch.cat([self.token.expand(len(x), -1, -1), self.linear(x)], 1)
    x = x + self.position[:, : x.shape[1]]
    return x * self.factor * self.power.exp() + self.factor.view(1, 1, -1)


def scaled(tokens=4, dim=6):
    """Learned tokens, positions and factors that belong to no layer."""
    shapes = {"token": (1, 1, dim), "position": (1, tokens + 1, dim), "factor": (dim,)}
    power = nn.Parameter(torch.zeros(()))
    return Net(with_tokens, **shapes, power=power, linear=nn.Linear(dim, dim))


def tied():
    """An output layer with the weights of the first, which are read past any layer too."""
    embed, head = nn.Linear(4, 5), nn.Linear(4, 5, bias=False)
    head.weight = embed.weight
    return Net(
        lambda self, x: self.head(F.softplus(self.embed(x) @ self.embed.weight)),
        embed=embed,
        head=head,
    )


def mixed_twice(self, x):
    """One layer, twice, with its positions in front inside."""
    hidden = self.mix(torch.tanh(self.mix(x.transpose(0, 1)))).transpose(0, 1)
    return self.head(hidden.mean(1))


def by_weight():
    """A product with a weight of its own."""
    return Net(lambda self, x: torch.einsum("ntd,de->nte", x, self.weight).tanh(), weight=(4, 6))


def frozen_statistics(layer):
    """Batch normalisation by made-up running statistics."""
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    for value in layer.parameters():
        nn.init.normal_(value)
    return layer.eval()


# Name -> (network, shape of a record). Sizes are such that each way to a norm is taken.
NETWORKS = {
    "closed form": (lambda: nn.Linear(7, 5), (7,)),
    "linear": (lambda: nn.Sequential(nn.Linear(7, 5)), (7,)),
    "linear without bias": (lambda: nn.Sequential(nn.Linear(7, 5, bias=False)), (7,)),
    "mlp": (lambda: nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 5)), (7,)),
    "linear over few positions": _flattened((3, 40), lambda: [nn.Linear(40, 30)]),
    "linear over many positions": _flattened((20, 4), lambda: [nn.Linear(4, 3)]),
    "convolution of many positions": _flattened(
        (3, 12, 12), lambda: [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()]
    ),
    "convolution of few positions": _flattened(
        (32, 4, 4), lambda: [nn.Conv2d(32, 48, 3, padding=1, bias=False), nn.ReLU()]
    ),
    "convolution of few positions with stride": _flattened(
        (48, 5, 6), lambda: [nn.Conv2d(48, 64, 3, stride=2, padding=1)]
    ),
    "convolution of one pixel with stride": _flattened(
        (128, 6, 6), lambda: [nn.Conv2d(128, 128, 1, stride=2)]
    ),
    "large convolution of many positions": _flattened(
        (24, 26, 26), lambda: [nn.Conv2d(24, 32, 3), nn.AvgPool2d(4)]
    ),
    "convolution with groups and dilation": _flattened(
        (4, 8, 8), lambda: [nn.Conv2d(4, 8, (3, 2), (1, 2), (1, 0), dilation=(2, 1), groups=2)]
    ),
    "group norm": _flattened((6, 4, 4), lambda: [nn.GroupNorm(2, 6), nn.ReLU(True)]),
    "layer norm": _flattened((2, 3, 4), lambda: [nn.LayerNorm((3, 4))]),
    "attention": (_attention, (3, 8, 8)),
    "convolution of signals, few positions": _flattened(
        (32, 9), lambda: [nn.Conv1d(32, 48, 3, padding=1)]
    ),
    "convolution of signals by shifts": _flattened(
        (64, 40), lambda: [nn.Conv1d(64, 64, 4, 2, bias=False)]
    ),
    "convolution of signals, circular": _flattened(
        (4, 21),
        lambda: [nn.Conv1d(4, 6, 3, 2, 2, dilation=2, groups=2, padding_mode="circular")],
    ),
    "convolution of the same size": _flattened(
        (3, 7, 7), lambda: [nn.Conv2d(3, 4, (2, 3), padding="same")]
    ),
    "convolution, reflected": _flattened(
        (3, 7, 7), lambda: [nn.Conv2d(3, 4, 3, padding=(1, 2), padding_mode="reflect")]
    ),
    "convolution of volumes": _flattened(
        (2, 4, 4, 5), lambda: [nn.Conv3d(2, 4, (3, 2, 3), (1, 2, 1), 1, groups=2)]
    ),
    "transposed convolution of signals": _flattened(
        (4, 7), lambda: [nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2)]
    ),
    "transposed convolution": _flattened(
        (4, 4, 5), lambda: [nn.ConvTranspose2d(4, 3, 3, (2, 1), dilation=2)]
    ),
    "transposed convolution of volumes": _flattened(
        (2, 1, 2, 3), lambda: [nn.ConvTranspose3d(2, 3, 2, 2)]
    ),
    "rms norm": _flattened((3, 4), lambda: [nn.Linear(4, 6), nn.RMSNorm((3, 6))]),
    "rms norm of each token": _flattened((3, 4), lambda: [nn.Linear(4, 6), nn.RMSNorm(6, 0.1)]),
    "frozen batch norm": _flattened(
        (3, 5, 5),
        lambda: [nn.Conv2d(3, 4, 3), frozen_statistics(nn.BatchNorm2d(4)), nn.ReLU()],
    ),
    "embedding": _flattened((7,), lambda: [Words(30, 4, padding_idx=2)]),
    "embedding of few words": _flattened((7,), lambda: [Words(5, 4, padding_idx=2)]),
    "embedding of positions": _flattened((7,), lambda: [Words(30, 4, True)]),
    "embedding of as many positions as records": _flattened((6,), lambda: [Words(30, 4, True)]),
    "attention of torch": _flattened((5, 8), lambda: [attended(causal)]),
    "attention of torch, padded": _flattened((5, 8), lambda: [attended(padded, bias=False)]),
    "attention of torch to others": _flattened(
        (5, 8), lambda: [attended(to_others, kdim=6, vdim=6)]
    ),
    "attention of torch to itself, in parts": _flattened((5, 8), lambda: [attended(in_parts)]),
    "attention of torch, time first": _flattened(
        (5, 8), lambda: [attended(time_first, batch_first=False)]
    ),
    "transformer layer of torch": _flattened(
        (5, 8), lambda: [nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True)]
    ),
    "tokens and factors": _flattened((4, 6), lambda: [scaled()]),
    "tied": (tied, (4,)),
    "used twice": (
        lambda: Net(mixed_twice, mix=nn.Linear(4, 4), head=nn.Linear(4, 5)),
        (3, 4),
    ),
    "product of its own": _flattened((3, 4), lambda: [by_weight()]),
    "weight norm": _flattened(
        (4,), lambda: [nn.utils.parametrizations.weight_norm(nn.Linear(4, 6))]
    ),
}
