"""Steps of training as the candidates of a race take them: plain, ours, and the peers'.

A private step clips every record's gradient, adds noise to the sum, divides by the expected batch
and updates, whoever takes it; a plain step updates with the gradient of the mean loss. Everyone
updates with torch's SGD, and nobody keeps a gradient for the next step.
"""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.core.seeds import Noise
from dpatlas.privacy.samplers import FullBatch, Sampler
from dpatlas.privacy.training import PrivateTraining, TrainingPhase

Update = Callable[[Tensor, Tensor], None]
LEARNING_RATE = 0.01
# A worker takes fewer in its life.
PLANNED_STEPS = 10**9


def repetition(
    candidate: str,
    model: nn.Module,
    sampler: Sampler,
    x: Tensor,
    labels: Tensor,
    case: dict[str, Any],
) -> tuple[Callable[[], list[Tensor]], float]:
    """A callable that takes case["steps"] steps, and the factor from its time to one step's.

    A full batch is x itself; of another sampler every candidate draws and gathers its own batches,
    by the same sampler. `case` also gives `noise_multiplier` and `max_grad_norm`. The callable
    returns the model's parameters, which it has updated.
    """
    take = _ours if candidate == "dpatlas" else _theirs
    step = take(candidate, model, sampler, x, labels, case)
    # Code that is loaded at its first use is not the memory that a step takes.
    step()

    def repeat() -> list[Tensor]:
        for _ in range(case["steps"]):
            step()
        return list(model.parameters())

    return repeat, 1 / case["steps"]


def _ours(
    candidate: str,
    model: nn.Module,
    sampler: Sampler,
    x: Tensor,
    labels: Tensor,
    case: dict[str, Any],
) -> Callable[[], None]:
    phase = TrainingPhase(
        sampler,
        noise_multiplier=case["noise_multiplier"],
        max_grad_norm=case["max_grad_norm"],
        steps=PLANNED_STEPS,
        lr=LEARNING_RATE,
    )
    return PrivateTraining(model, [phase], x, labels, noise=Noise("bench", "keyed")).step


def _theirs(
    candidate: str,
    model: nn.Module,
    sampler: Sampler,
    x: Tensor,
    labels: Tensor,
    case: dict[str, Any],
) -> Callable[[], None]:
    update = UPDATES[candidate](model, sampler.expected_batch, case)
    if isinstance(sampler, FullBatch):
        return lambda: update(x, labels)
    noise, count = Noise("bench", "keyed"), itertools.count()

    def step() -> None:
        batch = torch.from_numpy(sampler.batch_indices(noise, 0, next(count)))
        update(x.index_select(0, batch), labels.index_select(0, batch))

    return step


def _plain(model: nn.Module, expected_batch: float, case: dict[str, Any]) -> Update:
    optimizer = _sgd(model)

    def update(x: Tensor, labels: Tensor) -> None:
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def _opacus_hooks(model: nn.Module, expected_batch: float, case: dict[str, Any]) -> Update:
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    _silence_hooks()
    wrapped = GradSampleModule(model)
    optimizer = DPOptimizer(_sgd(model), expected_batch_size=expected_batch, **_mechanism(case))

    def update(x: Tensor, labels: Tensor) -> None:
        F.cross_entropy(wrapped(x), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def _opacus_ghost(model: nn.Module, expected_batch: float, case: dict[str, Any]) -> Update:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    _silence_hooks()
    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=case["max_grad_norm"])
    optimizer = DPOptimizerFastGradientClipping(
        _sgd(model), expected_batch_size=expected_batch, **_mechanism(case)
    )
    criterion = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())

    def update(x: Tensor, labels: Tensor) -> None:
        # Two backward passes: one for the norms, one for the weighted sum.
        criterion(wrapped(x), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def _vmap(model: nn.Module, expected_batch: float, case: dict[str, Any]) -> Update:
    bound = case["max_grad_norm"]
    scale = case["noise_multiplier"] * bound
    optimizer = _sgd(model)
    parameters = dict(model.named_parameters())

    def loss(values: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
        output = torch.func.functional_call(model, values, record.unsqueeze(0))
        return F.cross_entropy(output, label.unsqueeze(0))

    per_record = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def update(x: Tensor, labels: Tensor) -> None:
        values = {name: value.detach() for name, value in parameters.items()}
        gradients = per_record(values, x, labels)
        norms = [
            torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients.values()
        ]
        factors = bound / torch.linalg.vector_norm(torch.stack(norms), dim=0).clamp_min(bound)
        for name, parameter in parameters.items():
            clipped = torch.tensordot(factors, gradients[name], 1)
            noisy = clipped.add_(torch.randn_like(clipped), alpha=scale)
            parameter.grad = noisy.div_(expected_batch)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


UPDATES: dict[str, Callable[[nn.Module, float, dict[str, Any]], Update]] = {
    "plain": _plain,
    "opacus-hooks": _opacus_hooks,
    "opacus-ghost": _opacus_ghost,
    "vmap": _vmap,
}


def _sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)


def _mechanism(case: dict[str, Any]) -> dict[str, float]:
    return {key: case[key] for key in ("noise_multiplier", "max_grad_norm")}


def _silence_hooks() -> None:
    # The records need no gradient, which is what makes the full backward hooks fire and warn.
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
