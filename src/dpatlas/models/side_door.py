"""Canaries that a one-run audit can find: records with a private input coordinate each.

An ordinary canary shares every weight with all other records, so that their randomness hides it. A
side door gives each canary an input coordinate of its own, zero for all other records, with a
weight per class on a linear path to the logits. The gradient in those weights comes from that
canary alone: what training adds there is its clipped gradient, when it was in the batch, and noise.
The canaries are then independent and as easy to find as the mechanism allows, from the published
network's losses alone. Training is the user's own: only the network has more inputs.

    network = SideDoor(network, input_shape=(1, 28, 28), canaries=1000, classes=10)
    x = side_door_records(x, canaries=1000)                               # (n, 784 + 1000)
    canaries, labels = side_door_canaries((1, 28, 28), canaries=1000, classes=10)
    included = numpy.random.default_rng().random(1000) < 0.5              # before the run
    ...  # one's own training on x and canaries[included], labels[included]
    scores = side_door_scores(network, canaries, labels)                  # from losses alone, or
    scores = sum of side_door_evidence(...) over the steps                # from noisy sums
    one_run_profile_test(scores, included, epsilons, deltas)

The guarantee of training does not depend on the records, nor on the network, so a training that
breaks it with a side door is wrong without one. The converse fails: an audit cannot see a fault
that these records do not trigger.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpatlas.accounting.gaussian_dp import log_mixture
from dpatlas.base.guard import checked, integer, real
from dpatlas.errors import InputError

# Large enough that a canary's gradient is nearly all in its own coordinate, and small enough that
# the noise on its weights does not decide its logits, which would end its gradient.
MAGNITUDE = 10.0


class SideDoor(nn.Module):
    """A classifier with `canaries` further inputs, on a linear path to the logits.

    network: (n, *input_shape) -> (n, classes). Here x (n, inputs + canaries) -> (n, classes), with
    inputs = product of input_shape; the last coordinates are the private ones. Their weights
    `door.weight` (classes, canaries) start at zero, so that without canaries the outputs, and the
    gradients of the network's own weights, are the network's.

    Made of ordinary layers: works with PrivateTraining and with Opacus's per-record gradients.
    """

    @checked(canaries=integer(ge=2), classes=integer(ge=2))
    def __init__(
        self, network: nn.Module, input_shape: Sequence[int], canaries: int, classes: int
    ) -> None:
        super().__init__()
        self.network = network
        self.input_shape = tuple(input_shape)
        self.door = nn.Linear(canaries, classes, bias=False)
        nn.init.zeros_(self.door.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of x (n, inputs + canaries)."""
        inputs = math.prod(self.input_shape)
        if x.ndim != 2 or x.shape[1] != inputs + self.door.in_features:
            allowed = f"(n, {inputs} + {self.door.in_features})"
            raise InputError("x of a side door", f"shape {tuple(x.shape)}", allowed)
        logits: Tensor = self.network(x[:, :inputs].unflatten(1, self.input_shape))
        return logits + self.door(x[:, inputs:])


@checked(canaries=integer(ge=2))
def side_door_records(x: Tensor, canaries: int) -> Tensor:
    """Ordinary records x (n, *input_shape) for a SideDoor: (n, inputs + canaries), doors zero."""
    flat = x.flatten(1)
    return torch.cat([flat, flat.new_zeros(len(x), canaries)], 1)


@checked(canaries=integer(ge=2), classes=integer(ge=2), magnitude=real(gt=0))
def side_door_canaries(
    input_shape: Sequence[int],
    canaries: int,
    classes: int,
    magnitude: float = MAGNITUDE,
) -> tuple[Tensor, Tensor]:
    """All canaries, x (canaries, inputs + canaries) float32, and their labels (canaries,) int64.

    Canary j is zero but for `magnitude` in private coordinate j. Labels go round the classes, so
    that together the canaries hardly move a weight that they share. Whether j joins the training is
    decided by a fair coin, and one that does not join is dropped. A blank record in its place would
    keep n fixed, but has the gradient of the network's biases: the claim is then replace-one.

    magnitude: a canary's gradient in its own coordinate has the size of the magnitude, in all other
    weights that of the network's gradient at a blank record. Raise it where that is not small,
    lower it where training moves a weight of `door` by more than about 1 / magnitude.
    """
    blank = torch.zeros(canaries, *input_shape)
    x = side_door_records(blank, canaries)
    x[:, -canaries:].fill_diagonal_(magnitude)
    return x, torch.arange(canaries) % classes


@torch.no_grad()
def side_door_scores(model: nn.Module, canaries: Tensor, labels: Tensor) -> np.ndarray:
    """How much each canary's loss falls when its door opens, (canaries,): higher if it was in.

    model: the trained network; canaries (canaries, inputs + canaries) and labels as
    `side_door_canaries` made them, on the model's device. Uses cross-entropies alone, of each
    canary and of the same record with its private coordinate zero. This takes out how well the
    network fits a blank record of that label.
    """
    closed = canaries.clone()
    closed[:, -len(canaries) :] = 0
    losses = [
        cross_entropy(model(x).double(), labels, reduction="none") for x in (closed, canaries)
    ]
    return (losses[0] - losses[1]).cpu().numpy()


@checked(sample_rate=real(gt=0, le=1), noise_multiplier=real(gt=0), max_grad_norm=real(gt=0))
def side_door_evidence(
    door_sum: Tensor,
    labels: Tensor,
    sample_rate: float,
    noise_multiplier: float,
    max_grad_norm: float,
) -> np.ndarray:
    """What one step's noisy sum says of each canary, (canaries,): add it up over the steps.

    door_sum (classes, canaries): the sum of clipped gradients in `door.weight` with its noise,
    before any division; labels (canaries,). The other arguments are as claimed: sample_rate q, the
    chance that a record is in the batch; noise_multiplier s in units of max_grad_norm C. With t the
    component of the sum along the canary's gradient, in units of C, this is the log-likelihood
    ratio of the canary in to out,

        log(1 - q + q exp((2 t - 1) / (2 s^2))),

    at a network that gives all classes of a blank record the same probability; another network
    costs power and no validity. Where batches are small this shows much more than the losses after
    training, which know the sum over steps alone.
    """
    classes = len(door_sum)
    direction = torch.full_like(door_sum, 1 / classes)
    direction[labels, torch.arange(len(labels))] -= 1
    direction /= direction.norm(dim=0)
    t = ((door_sum * direction).sum(0).double() / max_grad_norm).cpu().numpy()
    return log_mixture((2 * t - 1) / (2 * noise_multiplier**2), sample_rate)
