"""lp_fft: a public backbone with a random head, what phases train of it, and a run's records."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.jobs.deals import Dealt
from dpatlas.jobs.job import Job
from dpatlas.models.backbone import CHUNK, Backbone
from dpatlas.models.lora import lora_parameters, with_lora
from dpatlas.models.network import Network, Scale
from dpatlas.papers.lp_fft.records.private import FULL, HEAD, Part


@dataclass(frozen=True)
class Seen:
    """The records that a run is dealt, on a device, by part: "train" and "test"."""

    dealt: Dealt
    backbone: Backbone
    device: str

    @cached_property
    def x(self) -> Mapping[str, Tensor]:
        """Scaled pixels, part -> (n, pixels)."""
        return self._tensors(self.dealt.x)

    @cached_property
    def labels(self) -> Mapping[str, Tensor]:
        """Classes, part -> (n,) int64."""
        return self._tensors(self.dealt.labels)

    @cached_property
    def features(self) -> Mapping[str, Tensor]:
        """Features of the records by the frozen backbone, part -> (n, features)."""
        return self._tensors(self.dealt.features(self.backbone))

    def _tensors(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        return {part: torch.from_numpy(array).to(self.device) for part, array in arrays.items()}


class Networks:
    """The backbone of a job, on its device, with a random head.

    head_scale multiplies the initial weights of the head, feature_scale the features before they
    reach it. rank: of LoRA's adapters; None for none.
    """

    def __init__(
        self,
        job: Job,
        backbone: Backbone,
        *,
        head_scale: float = 1.0,
        feature_scale: float = 1.0,
        rank: int | None = None,
    ):
        self.job, self.backbone = job, backbone
        self.head_scale, self.feature_scale, self.rank = head_scale, feature_scale, rank

    def seen(self, dealt: Dealt) -> Seen:
        """What is trained and evaluated on."""
        return Seen(dealt, self.backbone, self.job.device)

    def fresh(self, run: int) -> Network:
        """The backbone with the random head of run `run`, the same for all settings of a seed."""
        axes = {"key": self.job.spec.key, "run": run, "base_seed": self.job.fields.seed}
        network = self.backbone.with_new_head(len(self.job.prepared.classes), **axes)
        network.head.weight.mul_(self.head_scale)
        if self.rank is not None:
            network = with_lora(network, self.rank, **axes)
        if self.feature_scale != 1:
            *body, head = network.named_children()
            network = Network([*body, ("scale", Scale(self.feature_scale)), head])
        return network.to(self.job.device)

    def fresh_head(self, run: int) -> Network:
        """The head of `fresh` alone, with the names that its parameters have there.

        LoRA's adapters add zero as long as the head alone is trained, so that it may train on the
        features of the frozen backbone.
        """
        _, head = self.fresh(run).split(["head.weight"])
        return head

    def trained(self, network: Network, part: Part) -> tuple[str, ...]:
        """Prefixes of the names of the parameters that a phase trains."""
        if part == HEAD:
            return ("head",)
        return ("",) if part == FULL else lora_parameters(network)


def outputs(model: nn.Module, x: Tensor) -> Tensor:
    """The model's outputs, `CHUNK` records at a time."""
    with torch.no_grad():
        return torch.cat([model(rows) for rows in x.split(CHUNK)])
