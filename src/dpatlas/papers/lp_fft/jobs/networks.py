"""lp_fft: a public backbone with a random head, and the part of it that each phase trains."""

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.jobs.job import Job
from dpatlas.jobs.private_records import PARTS, frozen_features
from dpatlas.models.backbone import CHUNK, Backbone
from dpatlas.models.lora import lora_parameters, with_lora
from dpatlas.models.network import Network, Scale
from dpatlas.papers.lp_fft.records.private import FULL, HEAD, Part


class Networks:
    """Backbone and private records of a job, on its device.

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
        data = job.prepared
        self.x = {part: self._tensor(getattr(data, f"x_{part}")) for part in PARTS}
        self.labels = {part: self._tensor(getattr(data, f"y_{part}")) for part in PARTS}
        self._features: dict[str, Tensor] = {}

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.job.device)

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

    def trained(self, network: Network, part: Part) -> tuple[str, ...]:
        """Prefixes of the names of the parameters that a phase trains."""
        if part == HEAD:
            return ("head",)
        return ("",) if part == FULL else lora_parameters(network)

    def on_frozen_features(self, network: Network) -> tuple[nn.Module, dict[str, Tensor]]:
        """The head of `network`, and the frozen body's features by part of the data.

        LoRA's adapters add zero as long as the head alone is trained.
        """
        _, head = network.split(["head.weight"])
        if not self._features:
            frozen = frozen_features(self.job, self.backbone).x
            self._features = {part: self._tensor(x) for part, x in frozen.items()}
        return head, self._features


def outputs(model: nn.Module, x: Tensor) -> Tensor:
    """The model's outputs, `CHUNK` records at a time."""
    with torch.no_grad():
        return torch.cat([model(rows) for rows in x.split(CHUNK)])
