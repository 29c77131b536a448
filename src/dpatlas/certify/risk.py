"""The 0-1 risk of a randomised network, from independent (record, weights) pairs.

max_information Eq. 98 counts errors over pairs. Each pair has a record drawn with replacement and
weights drawn for this pair only. Therefore errors are independent, and 150,000 pairs cost as many
single-record forward passes. Several networks may be judged on the same records and normals: the
pairs of each are independent, and its certificate pays for its own count.
"""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.base.guard import checked, integer, one_of
from dpatlas.base.seeds import Noise
from dpatlas.certify.normals import standard_normals
from dpatlas.formulas.max_information.certificates import Method
from dpatlas.models.mean_field import MeanField
from dpatlas.models.mean_field_passes import (
    FullyConnected,
    misclassified,
    noise_sizes,
    outputs,
    sampled_outputs,
)

METHODS: tuple[Method, ...] = get_args(Method)
# Upper bounds on the pairs of a chunk and, by device, on their normals. Chunks determine the keys
# of the noise, so other bounds would give other draws. On a CPU a few draws of all weights are as
# fast as many; a GPU needs more to be busy.
MAX_PAIRS = 1000
MAX_NORMALS = {"cpu": 2**21, "cuda": 2**26}


class PairErrors:
    """Counts the errors of posteriors over pairs of a record and weights; a step is a chunk.

    x (records, ...), labels (records,). drawn (pairs,): the index of every pair's record. Method
    `reparametrisation` draws the outputs of linear layers and the weights of convolutions,
    `sampling` draws all weights. Normals are keyed by (noise, repetition, chunk), and the same for
    all posteriors, which are over the parameters of one network. `errors` has a count for each.
    """

    @checked(method=one_of(*METHODS), repetition=integer(ge=0))
    def __init__(
        self,
        posteriors: Sequence[MeanField],
        x: Tensor,
        labels: Tensor,
        drawn: np.ndarray,
        *,
        noise: Noise,
        repetition: int = 0,
        method: Method = "reparametrisation",
    ):
        self.posteriors, self.x, self.labels = posteriors, x, labels
        # Pairs are exchangeable; after sorting, pairs of one record are adjacent and share work.
        self.drawn = np.sort(drawn)
        self.noise, self.repetition = noise, repetition
        network = posteriors[0].network
        self._outputs: Callable[..., Tensor]
        self._laws: Sequence[Any] = posteriors
        if method == "sampling":
            self._outputs, sizes = _sampled, [(1, len(posteriors[0].mean))]
        else:
            sizes = noise_sizes(network, 1, 1)
            if any(isinstance(part, nn.Conv2d) for part in network):
                self._outputs = _with_convolutions
            else:
                self._outputs = FullyConnected.outputs
                self._laws = [FullyConnected(posterior) for posterior in posteriors]
        self.widths = [width for _, width in sizes]
        limit = MAX_NORMALS[x.device.type]
        self.chunk = max(1, min(MAX_PAIRS, limit // sum(self.widths)))
        self.errors = [0] * len(posteriors)
        self.steps_done = 0

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return len(self.drawn)

    @property
    def steps(self) -> int:
        """Number of chunks."""
        return -(-self.pairs // self.chunk)

    @torch.no_grad()
    def step(self) -> None:
        """Count the errors of the next chunk."""
        start = self.steps_done * self.chunk
        counted = np.unique(self.drawn[start : start + self.chunk], return_counts=True)
        records, repeats = (torch.from_numpy(part).to(self.x.device) for part in counted)
        x = self.x.index_select(0, records)
        labels = self.labels.index_select(0, records).repeat_interleave(repeats)
        normals = standard_normals(
            [(len(labels), width) for width in self.widths],
            self.noise,
            repetition=self.repetition,
            step=self.steps_done,
            device=self.x.device,
        )
        last = len(self._laws) - 1
        counts = []
        for number, law in enumerate(self._laws):
            # A pass uses its normals up.
            given = normals if number == last else [part.clone() for part in normals]
            counts.append(misclassified(self._outputs(law, x, repeats, given), labels).sum())
        found = torch.stack(counts).tolist()
        self.errors = [sum(pair) for pair in zip(self.errors, found, strict=True)]
        self.steps_done += 1

    def run(self) -> list[int]:
        """Count all remaining chunks and return the errors of each posterior among all pairs."""
        while self.steps_done < self.steps:
            self.step()
        return self.errors

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and facts from which `restore` goes on."""
        return {}, {"errors": self.errors, "steps_done": self.steps_done}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Go on from a state of the same pairs."""
        self.errors, self.steps_done = facts["errors"], facts["steps_done"]


def _with_convolutions(
    law: MeanField, x: Tensor, repeats: Tensor, normals: Sequence[Tensor]
) -> Tensor:
    named = (law.named(law.mean), law.named(law.deviation))
    return outputs(law.network, *named, x.repeat_interleave(repeats, 0), normals)


def _sampled(law: MeanField, x: Tensor, repeats: Tensor, normals: Sequence[Tensor]) -> Tensor:
    weights = normals[0].mul_(law.deviation).add_(law.mean)
    return sampled_outputs(law, weights, x.repeat_interleave(repeats, 0))


def drawn_records(n: int, draws: int, noise: Noise, repetition: int) -> np.ndarray:
    """Indices of `draws` records drawn from n with replacement, (draws,) int64, keyed."""
    return noise.generator(repetition=repetition, step=0, use="records").integers(0, n, draws)


@checked(draws=integer(ge=1))
def risk_on_records(
    posterior: MeanField,
    x: Tensor,
    labels: Tensor,
    draws: int,
    *,
    noise: Noise,
    repetition: int = 0,
    method: Method = "reparametrisation",
) -> PairErrors:
    """The count of one posterior over `draws` pairs of records drawn from x with replacement."""
    drawn = drawn_records(len(x), draws, noise, repetition)
    return PairErrors(
        [posterior], x, labels, drawn, noise=noise, repetition=repetition, method=method
    )
