"""Adapters: audits of an Opacus training, of any torch training loop, and the canary planted.

    train = opacus(make_private_training, claim, x, y, canary=(canary_x, canary_y))

stands in a script beside `claim`; then `dpatlas audit script.py:train`.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dpatlas.audit.claim import Claim
from dpatlas.audit.run import Run, Train
from dpatlas.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.data import TensorDataset

    Loss = Callable[[Tensor, Tensor], Tensor]
    Score = Callable[[nn.Module], Any]
    # Makes one private update of the model; may return the noisy sum in units of C.
    Step = Callable[[], Any]


def plant(run: Run, records: Any, canaries: Any) -> Any:
    """A copy of `records` whose first ones are the canaries that are in.

    For the others stand zeros, or under the relation replace_one the records that were there.
    records (n, ...): an array or tensor. canaries: one record (...), or (m, ...) for m of them.
    Raises InputError for canaries that do not fit the records, their type or their number.
    """
    many = len(run.included)
    planted = records.clone() if hasattr(records, "clone") else np.array(records)
    values = np.asarray(canaries if not hasattr(canaries, "detach") else canaries.detach().cpu())
    shape = tuple(planted.shape[1:])
    if values.shape == shape:
        values = np.broadcast_to(values, (many, *shape))
    if values.shape != (many, *shape) or many > len(planted):
        found = f"canaries of shape {values.shape} for {len(planted)} records of shape {shape}"
        raise InputError("canary", found, f"{many} of the records' shape")
    if hasattr(planted, "new_tensor"):
        own = planted.new_tensor(values)
        real, kept = own.is_floating_point(), own.double().cpu().numpy()
    else:
        own = kept = values.astype(planted.dtype)
        real = own.dtype.kind == "f"
    # The last digits may be lost of real numbers only.
    if not np.allclose(kept, values, rtol=1e-2 if real else 0, equal_nan=True):
        allowed = f"numbers that the records' type, {planted.dtype}, can hold"
        raise InputError("canary", f"{values.dtype} numbers that it changes", allowed)
    if run.claim.relation != "replace_one":
        planted[:many] = 0
    for number in np.flatnonzero(run.included):
        planted[number] = own[number]
    return planted


def torch_loop(
    start: "Callable[[Run, Tensor, Tensor, Tensor], tuple[nn.Module, Step]]",
    claim: Claim,
    x: "Tensor",
    y: "Tensor",
    canary: "tuple[Any, Any]",
    loss: "Loss | None" = None,
    score: "Score | None" = None,
) -> Train:
    """The training to audit around one's own torch loop.

    start(run, x, y, present) gives a new model and a function that makes one private update. x
    (n, ...), y (n, ...): the records, the first of which becomes the canary (an input and a target)
    or a blank record. present (n,): 0 for a blank record, else 1; multiply each record's loss by
    it, so that a blank one has no gradient. What an update returns is given to `run.see`: the noisy
    sum of clipped gradients in units of the clip bound; None if it calls `run.see` itself, or if
    the attacker does not see the sums. loss(outputs, targets) -> (records,): by default the
    cross-entropy. Published are the loss of the canary, the trained weights and the buffers; of
    many canaries in one run a score each, score(model) or by default the negative loss.

    Raises InputError for records that do not fit the claim, and for a claim without settings.
    """
    import torch

    per_record = loss or _cross_entropy
    steps = claim.steps
    if steps is None:
        raise InputError("claim", "no settings", "sampler, n, batch, noise and steps")
    if claim.n is not None and claim.n != len(x):
        raise InputError("x", f"{len(x)} records", f"{claim.n}, as the claim says")
    canary_x, canary_y = (torch.as_tensor(each) for each in canary)
    one = canary_x.dim() == x.dim() - 1

    def train(run: Run) -> dict[str, Any]:
        data = (
            plant(run, x, canary_x),
            plant(run, y, canary_y),
            plant(run, torch.ones(len(x)), torch.tensor(1.0)),
        )
        model, step = start(run, *data)
        for _ in range(steps):
            noisy_sum = step()
            if noisy_sum is not None:
                run.see(noisy_sum)
            run.weights(model.parameters())
        model.eval()
        with torch.no_grad():
            inputs = canary_x[None] if one else canary_x
            targets = canary_y[None] if one else canary_y
            losses = per_record(model(inputs.to(x.dtype)), targets.to(y.dtype))
        if claim.canaries > 1:
            return {"score": -losses if score is None else score(model)}
        published: dict[str, Any] = {"loss": losses}
        published["weights"] = [each for each in model.parameters() if each.requires_grad]
        published["buffers"] = list(model.buffers())
        return {name: value for name, value in published.items() if len(value)}

    train.claim = claim  # type: ignore[attr-defined]
    return train


def opacus(
    make_private_training: "Callable[[TensorDataset], tuple[Any, Any, Any]]",
    claim: Claim,
    x: "Tensor",
    y: "Tensor",
    canary: "tuple[Any, Any]",
    loss: "Loss | None" = None,
    score: "Score | None" = None,
) -> Train:
    """The training to audit around `PrivacyEngine.make_private`.

    make_private_training(data) gives what make_private returns: model, optimizer and loader. data
    is a TensorDataset of (x, y, present), as in `torch_loop`, which has the other arguments too.
    The adapter makes the claimed number of steps with mean losses, and sees every noisy sum.
    """
    from torch.utils.data import TensorDataset

    per_record = loss or _cross_entropy

    def start(
        run: Run, inputs: "Tensor", targets: "Tensor", present: "Tensor"
    ) -> "tuple[nn.Module, Step]":
        model, optimizer, loader = make_private_training(TensorDataset(inputs, targets, present))
        watch_opacus(run, optimizer)
        batches: Iterator[Any] = iter(())

        def step() -> None:
            nonlocal batches
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                batch = next(batches)
            some, of_some, weights = batch
            optimizer.zero_grad()
            losses = per_record(model(some), of_some) * weights
            # The mean; of an empty batch 0.
            (losses.sum() / max(1, len(some))).backward()
            optimizer.step()

        return model, step

    return torch_loop(start, claim, x, y, canary, loss, score)


def watch_opacus(run: Run, optimizer: Any) -> None:
    """Give `run.see` every noisy sum of an Opacus optimizer, in units of its clip bound."""

    def see(stepping: Any) -> None:
        factor = 1 / stepping.max_grad_norm
        if stepping.loss_reduction == "mean":
            # What Opacus has divided the noisy sum by.
            factor *= stepping.expected_batch_size * stepping.accumulated_iterations
        run.see([each.grad * factor for each in stepping.params])

    optimizer.attach_step_hook(see)


def _cross_entropy(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, targets, reduction="none")
