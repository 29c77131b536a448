"""Training steps of the candidates of a race: plain, ours, and those of peers.

Every private step clips each record's gradient, adds noise to the sum, divides by the expected
batch and updates; a plain step updates with the gradient of the mean loss. Peers update with
torch's SGD, and no candidate keeps a gradient for the next step.
"""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpatlas.accounting.samplers import FullBatch, Sampler
from dpatlas.base.seeds import Noise
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.to_device import to_device
from dpatlas.privacy.training import PrivateTraining

Update = Callable[[Tensor, Tensor], None]
LEARNING_RATE = 0.01
# More steps than a worker ever takes.
PLANNED_STEPS = 10**9


def repetition(
    candidate: str,
    model: nn.Module,
    sampler: Sampler,
    x: Tensor,
    labels: Tensor,
    case: dict[str, Any],
) -> tuple[Callable[[], list[Tensor]], float]:
    """A callable that takes case["steps"] steps, and the factor from its time to that of one step.

    A full batch is x itself; for another sampler every candidate draws and gathers its own batches
    with that sampler. `case` also has `noise_multiplier`, `max_grad_norm` and, for ours alone and
    where it is wanted, `max_physical_batch`. The callable returns the model's parameters, which it
    has updated.
    """
    step: Callable[[], None]
    if candidate == "dpatlas":
        mechanism = case["noise_multiplier"], case["max_grad_norm"]
        phase = TrainingPhase(
            sampler,
            *mechanism,
            PLANNED_STEPS,
            LEARNING_RATE,
            max_physical_batch=case.get("max_physical_batch"),
        )
        noise = Noise("bench", "keyed")
        step = PrivateTraining(model, [phase], x, labels, noise=noise).step
    else:
        update = UPDATES[candidate](model, sampler.expected_batch, case)
        step = _on_batches(update, sampler, x, labels)
    # Without this, code that is loaded at its first use would count as memory of a step.
    step()

    def repeat() -> list[Tensor]:
        for _ in range(case["steps"]):
            step()
        return list(model.parameters())

    return repeat, 1 / case["steps"]


def _on_batches(update: Update, sampler: Sampler, x: Tensor, labels: Tensor) -> Callable[[], None]:
    if isinstance(sampler, FullBatch):
        return lambda: update(x, labels)
    noise, count = Noise("bench", "keyed"), itertools.count()

    def step() -> None:
        batch = to_device(sampler.batch_indices(noise, 0, next(count)), x.device)
        update(x.index_select(0, batch), labels.index_select(0, batch))

    return step


def _by_autograd(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Tensor, Tensor], Any] = F.cross_entropy,
) -> Update:
    def update(x: Tensor, labels: Tensor) -> None:
        loss(model(x), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def _plain(model: nn.Module, expected_batch: float, case: dict[str, Any]) -> Update:
    return _by_autograd(model, _sgd(model))


def _opacus_hooks(model: nn.Module, expected_batch: float, case: dict[str, Any]) -> Update:
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    silence_hooks()
    wrapped = GradSampleModule(model)
    optimizer = DPOptimizer(_sgd(model), expected_batch_size=expected_batch, **_mechanism(case))
    return _by_autograd(wrapped, optimizer)


def _opacus_ghost(model: nn.Module, expected_batch: float, case: dict[str, Any]) -> Update:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    silence_hooks()
    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=case["max_grad_norm"])
    optimizer = DPOptimizerFastGradientClipping(
        _sgd(model), expected_batch_size=expected_batch, **_mechanism(case)
    )
    # Its `backward` makes two passes: one for the norms, one for the weighted sum.
    criterion = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())
    return _by_autograd(wrapped, optimizer, criterion)


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


def silence_hooks() -> None:
    """Ignore the warning of full backward hooks that records need no gradient."""
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
