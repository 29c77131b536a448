"""The sum of clipped gradients, and what an update takes: that sum with its noise."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class ClippedSum:
    """sum_i g_i min(1, C / ||g_i||) over the records of a batch.

    `gradients`: one tensor per trainable parameter, by name, in the order of the model's
    parameters. `norms`: the upper bounds on ||g_i|| before the clip that records are clipped by,
    (records,). `skipped`: number of records whose gradient was not finite and contributed zero; on
    a GPU a tensor, so that the host need not wait for it.

    A record alone adds at most C (1 + 1e-6), including all rounding. Among n records, adding or
    removing one moves the computed sum by at most C (1 + `clipping.company_rounding(n)`), as long
    as the passes through the network round the activations of the others in the same way.
    """

    gradients: dict[str, Tensor]
    norms: Tensor
    skipped: int | Tensor


def added(chunks: Iterable[ClippedSum]) -> ClippedSum:
    """The sum over a batch from those over its chunks, one after the other, in the first one."""
    chunks = iter(chunks)
    total = next(chunks)
    for chunk in chunks:
        for name, gradient in chunk.gradients.items():
            total.gradients[name] += gradient
        total.norms = torch.cat([total.norms, chunk.norms])
        total.skipped += chunk.skipped
    return total


@dataclass
class NoisySum:
    """A clipped sum with its noise, which alone an update takes: nothing of a record is in it bare.

    `scale`: standard deviation of the noise; 0 where a training asked for none.
    """

    gradients: dict[str, Tensor]
    scale: float

    def divided(self, expected_batch: float) -> "NoisySum":
        """The noisy mean, in place."""
        for gradient in self.gradients.values():
            gradient.div_(expected_batch)
        return NoisySum(self.gradients, self.scale / expected_batch)
