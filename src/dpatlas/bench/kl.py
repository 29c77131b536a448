"""Candidates of the `kl` race: one step on the training and the add records.

`plain` and `plain-torch` compute the gradient of the mean loss over all records by autograd. The
others compute the gradient of the mean training loss and every record's squared gap besides.
No candidate updates weights or draws noise.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.bench.steps import silence_hooks
from dpatlas.formulas.kl_privacy.theorems import neighbour_gap
from dpatlas.models import products
from dpatlas.models.mlp import initial_weights
from dpatlas.models.products import times, times_transpose
from dpatlas.privacy.kl import record_gaps, squared_row_norms

Step = Callable[[], Any]
Gaps = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def prepare(candidate: str, case: dict[str, Any]) -> tuple[Step, float]:
    """The candidate's step and the factor from its work to that of the whole case.

    Plain steps return the gradients as a list, the others the squared gaps of the records that
    they cover.
    """
    weights, x, labels = _problem(case)
    n = case["n_train"]
    if candidate == "plain":
        return _plain(weights, x, labels, SameProducts.apply), 1.0
    if candidate == "plain-torch":
        return _plain(weights, x, labels, F.linear), 1.0
    if candidate == "dpatlas-torch":
        products.LARGE = math.inf
    if candidate.startswith("dpatlas"):
        x_norm2 = squared_row_norms(x)
        return (lambda: record_gaps(weights, x, labels, n, x_norm2).squared_gaps()), 1.0
    gradients = _plain(weights, x[:n], labels[:n], F.linear)()
    covered = case["peer_records"]
    peer = {"opacus-hooks": _opacus_hooks, "vmap": _vmap}[candidate]
    gaps = peer(weights, [gradient.flatten() for gradient in gradients])
    chunks = [slice(start, start + case["chunk"]) for start in range(0, covered, case["chunk"])]
    xs, ys = x[:covered], labels[:covered]
    gbar_norm2 = sum(float(gradient.square().sum()) for gradient in gradients)

    def step() -> Tensor:
        terms = [gaps(xs[chunk], ys[chunk]) for chunk in chunks]
        g_norm2, inner = (torch.cat(part) for part in zip(*terms, strict=True))
        return torch.cat(
            [
                neighbour_gap("remove", n, g_norm2[:n], gbar_norm2, inner[:n]),
                neighbour_gap("add", n, g_norm2[n:], gbar_norm2, inner[n:]),
            ]
        )

    return step, len(x) / covered


def _problem(case: dict[str, Any]) -> tuple[list[Tensor], Tensor, Tensor]:
    """He weights, inputs uniform in [-1, 1], labels uniform; the same for every candidate."""
    records = case["n_train"] + case["n_add"]
    shape = (case["inputs"], case["width"], case["depth"], case["outputs"])
    weights = initial_weights("he", *shape, key="bench", run=0, base_seed=0)
    draws = np.random.default_rng(0)
    x = draws.uniform(-1, 1, (records, case["inputs"])).astype(np.float32)
    labels = draws.integers(0, max(2, case["outputs"]), records)
    device = case["device"]
    layers = [torch.from_numpy(weight).to(device) for weight in weights]
    return layers, torch.from_numpy(x).to(device), torch.from_numpy(labels).to(device)


class SameProducts(torch.autograd.Function):
    """A linear layer for autograd whose products go through the kernel's own routine."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        """rows @ weight.T."""
        ctx.save_for_backward(rows, weight)
        return times_transpose(rows.detach(), weight.detach())

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, Tensor]:
        """Gradients with respect to rows (where they are needed) and weight."""
        rows, weight = (tensor.detach() for tensor in ctx.saved_tensors)
        below = times(delta, weight) if ctx.needs_input_grad[0] else None
        return below, torch.mm(delta.T, rows)


def _plain(
    weights: list[Tensor], x: Tensor, labels: Tensor, linear: Callable[[Tensor, Tensor], Tensor]
) -> Step:
    parameters = [weight.clone().requires_grad_() for weight in weights]

    def step() -> list[Tensor]:
        for parameter in parameters:
            parameter.grad = None
        hidden = x
        for parameter in parameters[:-1]:
            hidden = linear(hidden, parameter).relu_()
        F.cross_entropy(linear(hidden, parameters[-1]), labels).backward()
        return [parameter.grad for parameter in parameters if parameter.grad is not None]

    return step


def _gap_terms(per_record: list[Tensor], gbar: list[Tensor]) -> tuple[Tensor, Tensor]:
    """||g_z||^2 and <g_z, gbar> from materialised gradients, one tensor per layer."""
    flat = [gradient.flatten(1) for gradient in per_record]
    norms2 = (torch.linalg.vector_norm(rows, dim=1).square() for rows in flat)
    inner = (torch.mv(rows, mean) for rows, mean in zip(flat, gbar, strict=True))
    return functools.reduce(torch.add, norms2), functools.reduce(torch.add, inner)


def _opacus_hooks(weights: list[Tensor], gbar: list[Tensor]) -> Gaps:
    from opacus.grad_sample import GradSampleModule

    layers: list[nn.Module] = []
    for weight in weights:
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device=weight.device)
        linear.weight.data.copy_(weight)
        layers += [linear, nn.ReLU()]
    silence_hooks()
    model = GradSampleModule(nn.Sequential(*layers[:-1]), loss_reduction="sum")

    def gaps(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        F.cross_entropy(model(x), labels, reduction="sum").backward()
        with torch.no_grad():
            terms = _gap_terms([parameter.grad_sample for parameter in model.parameters()], gbar)
        for parameter in model.parameters():
            parameter.grad_sample = parameter.grad = None
        return terms

    return gaps


def _vmap(weights: list[Tensor], gbar: list[Tensor]) -> Gaps:
    def loss(parameters: list[Tensor], record: Tensor, label: Tensor) -> Tensor:
        hidden = record
        for parameter in parameters[:-1]:
            hidden = F.linear(hidden, parameter).relu()
        return F.cross_entropy(F.linear(hidden, parameters[-1]), label)

    per_record = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    return lambda x, labels: _gap_terms(per_record(weights, x, labels), gbar)
