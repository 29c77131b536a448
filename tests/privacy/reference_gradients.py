"""Per-record gradients by torch.func, and networks that hold every supported layer."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.models.vit import Attention, ClassToken, First, Offset, Tokens


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


def norms(gradients: dict[str, Tensor]) -> Tensor:
    return sum(rows.flatten(1).square().sum(1) for rows in gradients.values()).sqrt()


def clipped_sum(gradients: dict[str, Tensor], max_grad_norm: float) -> dict[str, Tensor]:
    factors = (max_grad_norm / norms(gradients)).clamp_max(1)
    return {name: torch.tensordot(factors, rows, 1) for name, rows in gradients.items()}


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> Tensor:
    """|| one - other || over all parameters, in float64."""
    return sum((one[n] - other[n]).double().square().sum() for n in one).sqrt()


def seeded(make, *arguments, dtype=torch.float64):
    """`make(*arguments)` with weights from a fixed seed."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return make(*arguments).to(dtype)


def records(shape: tuple[int, ...], rows: int = 6, outputs: int = 5, dtype=torch.float64):
    draws = torch.Generator().manual_seed(3)
    x = torch.randn(rows, *shape, generator=draws, dtype=dtype)
    return x, torch.randint(0, outputs, (rows,), generator=draws)


def _flat(*layers: nn.Module, features: int) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 5))


def _attention() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 12, 2, 2),
        Tokens(),
        ClassToken(12),
        Offset(17, 12),
        nn.LayerNorm(12),
        Attention(12, 3),
        First(),
        nn.Linear(12, 5),
    )


# Name -> (network, shape of a record). Sizes are such that each way to a norm is taken.
NETWORKS = {
    "closed form": (lambda: nn.Linear(7, 5), (7,)),
    "linear": (lambda: nn.Sequential(nn.Linear(7, 5)), (7,)),
    "linear without bias": (lambda: nn.Sequential(nn.Linear(7, 5, bias=False)), (7,)),
    "mlp": (lambda: nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 5)), (7,)),
    "linear over few positions": (
        lambda: _flat(nn.Linear(40, 30), features=3 * 30),
        (3, 40),
    ),
    "linear over many positions": (
        lambda: _flat(nn.Linear(4, 3), features=20 * 3),
        (20, 4),
    ),
    "convolution of many positions": (
        lambda: _flat(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), features=4 * 144),
        (3, 12, 12),
    ),
    "convolution of few positions": (
        lambda: _flat(nn.Conv2d(32, 48, 3, padding=1, bias=False), nn.ReLU(), features=48 * 16),
        (32, 4, 4),
    ),
    "convolution of few positions with stride": (
        lambda: _flat(nn.Conv2d(48, 64, 3, stride=2, padding=1), features=64 * 9),
        (48, 5, 6),
    ),
    "convolution of one pixel with stride": (
        lambda: _flat(nn.Conv2d(128, 128, 1, stride=2), features=128 * 9),
        (128, 6, 6),
    ),
    "large convolution of many positions": (
        lambda: _flat(nn.Conv2d(24, 32, 3), nn.AvgPool2d(4), features=32 * 36),
        (24, 26, 26),
    ),
    "convolution with groups and dilation": (
        lambda: _flat(
            nn.Conv2d(4, 8, (3, 2), (1, 2), (1, 0), dilation=(2, 1), groups=2), features=8 * 24
        ),
        (4, 8, 8),
    ),
    "group norm": (
        lambda: _flat(nn.GroupNorm(2, 6), nn.ReLU(True), features=6 * 16),
        (6, 4, 4),
    ),
    "layer norm": (lambda: _flat(nn.LayerNorm((3, 4)), features=24), (2, 3, 4)),
    "attention": (_attention, (3, 8, 8)),
}
