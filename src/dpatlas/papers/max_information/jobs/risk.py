"""max_information: the 0-1 risk of a randomised network, from independent (record, weights) pairs.

Eq. 98 counts pairs. Each has a record drawn with replacement and weights drawn for it alone, so
that the errors are independent and 150,000 of them cost as many single-record forward passes.
"""

from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.core.guard import checked, integer, one_of
from dpatlas.core.seeds import Noise
from dpatlas.models.mean_field import MeanField
from dpatlas.models.mean_field_passes import (
    FullyConnected,
    noise_sizes,
    outputs,
    sampled_outputs,
)
from dpatlas.papers.max_information.records.certified import Method
from dpatlas.privacy.noise import add_noise

METHODS: tuple[Method, ...] = get_args(Method)
# Pairs at a time, and the most normals for them by device: part of the definition of a draw. More
# than a few weight draws at a time gain nothing on a CPU, and keep a GPU busy.
MOST_PAIRS = 1000
MOST_NORMALS = {"cpu": 2**21, "cuda": 2**26}


class PairErrors:
    """Errors over pairs of a record and weights of its own; a step is a chunk of pairs.

    x (records, ...), labels (records,). drawn (pairs,): the record of every pair.
    `reparametrisation` draws the outputs of linear layers and the weights of convolutions,
    `sampling` all weights. Normals are keyed by (noise, repetition, chunk).
    """

    @checked(method=one_of(*METHODS), repetition=integer(ge=0))
    def __init__(
        self,
        posterior: MeanField,
        x: Tensor,
        labels: Tensor,
        drawn: np.ndarray,
        *,
        noise: Noise,
        repetition: int = 0,
        method: Method = "reparametrisation",
    ):
        self.posterior, self.x, self.labels = posterior, x, labels
        # Pairs are exchangeable; in this order rows of one record stand together.
        self.drawn = np.sort(drawn)
        self.noise, self.repetition = noise, repetition
        parts = list(posterior.network)
        if method == "sampling":
            self._outputs, sizes = self._sampled, [(1, len(posterior.mean))]
        else:
            sizes = noise_sizes(posterior.network, 1, 1)
            if any(isinstance(part, nn.Conv2d) for part in parts):
                self._outputs = self._with_convolutions
            else:
                self.kernel = FullyConnected(posterior)
                self._outputs = self._fully_connected
        self.widths = [width for _, width in sizes]
        limit = MOST_NORMALS[x.device.type]
        self.chunk = max(1, min(MOST_PAIRS, limit // sum(self.widths)))
        self.deviation = posterior.deviation
        self.errors = self.steps_done = 0

    @property
    def pairs(self) -> int:
        """All pairs."""
        return len(self.drawn)

    @property
    def steps(self) -> int:
        """Chunks."""
        return -(-self.pairs // self.chunk)

    @torch.no_grad()
    def step(self) -> None:
        """One chunk."""
        start = self.steps_done * self.chunk
        counted = np.unique(self.drawn[start : start + self.chunk], return_counts=True)
        records, repeats = (torch.from_numpy(part).to(self.x.device) for part in counted)
        output = self._outputs(self.x.index_select(0, records), repeats)
        labels = self.labels.index_select(0, records).repeat_interleave(repeats)
        self.errors += int((output.argmax(1) != labels).sum())
        self.steps_done += 1

    def run(self) -> int:
        """All chunks that are left; errors among all pairs."""
        while self.steps_done < self.steps:
            self.step()
        return self.errors

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What `restore` goes on from."""
        return {}, {"errors": self.errors, "steps_done": self.steps_done}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Go on from a state of the same pairs."""
        self.errors, self.steps_done = facts["errors"], facts["steps_done"]

    def _normals(self, rows: int) -> list[Tensor]:
        """(rows, width) of every layer, N(0, 1), keyed by the chunk."""
        flat = torch.zeros(rows * sum(self.widths), device=self.x.device)
        add_noise([flat], 1.0, self.noise, repetition=self.repetition, step=self.steps_done)
        parts = flat.split([rows * width for width in self.widths])
        return [part.view(rows, width) for part, width in zip(parts, self.widths, strict=True)]

    def _fully_connected(self, x: Tensor, repeats: Tensor) -> Tensor:
        return self.kernel.outputs(x, repeats, self._normals(int(repeats.sum())))

    def _with_convolutions(self, x: Tensor, repeats: Tensor) -> Tensor:
        rows = x.repeat_interleave(repeats, 0)
        posterior = self.posterior
        named = (posterior.named(posterior.mean), posterior.named(self.deviation))
        return outputs(posterior.network, *named, rows, self._normals(len(rows)))

    def _sampled(self, x: Tensor, repeats: Tensor) -> Tensor:
        rows = x.repeat_interleave(repeats, 0)
        (weights,) = self._normals(len(rows))
        weights.mul_(self.deviation).add_(self.posterior.mean)
        return sampled_outputs(self.posterior, weights, rows)


def drawn_records(n: int, draws: int, noise: Noise, repetition: int) -> np.ndarray:
    """`draws` of n records with replacement, (draws,) int64, keyed."""
    return noise.generator(repetition=repetition, step=0, use="records").integers(0, n, draws)


def _risk(
    method: Method,
    posterior: MeanField,
    x: Tensor,
    labels: Tensor,
    draws: int,
    noise: Noise,
    repetition: int,
) -> PairErrors:
    drawn = drawn_records(len(x), draws, noise, repetition)
    return PairErrors(
        posterior, x, labels, drawn, noise=noise, repetition=repetition, method=method
    )


@checked(draws=integer(ge=1))
def risk_by_reparametrisation(
    posterior: MeanField,
    x: Tensor,
    labels: Tensor,
    draws: int,
    *,
    noise: Noise,
    repetition: int = 0,
) -> PairErrors:
    """`draws` keyed pairs whose linear layers draw outputs: exact, and cheap.

    Weights of convolutions are drawn for every pair.
    """
    return _risk("reparametrisation", posterior, x, labels, draws, noise, repetition)


@checked(draws=integer(ge=1))
def risk_by_sampling(
    posterior: MeanField,
    x: Tensor,
    labels: Tensor,
    draws: int,
    *,
    noise: Noise,
    repetition: int = 0,
) -> PairErrors:
    """`draws` keyed pairs, all weights drawn for every one."""
    return _risk("sampling", posterior, x, labels, draws, noise, repetition)
