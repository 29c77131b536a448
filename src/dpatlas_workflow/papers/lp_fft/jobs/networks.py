"""lp_fft: a public backbone with a random head, what phases train of it, and a run's records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.accounting.samplers import Poisson
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job
from dpatlas.models.backbone import Backbone, features
from dpatlas.models.lora import lora_parameters, with_lora
from dpatlas.models.network import Network, Scale
from dpatlas.privacy.phases import TrainingPhase
from dpatlas_workflow.papers.lp_fft.records.private import FULL, HEAD, Part, PrivateFields
from dpatlas_workflow.run.branches import Stem
from dpatlas_workflow.run.deals import Dealt
from dpatlas_workflow.run.private_plan import dp_sgd_phase


@dataclass(frozen=True)
class Seen:
    """The records that a run is dealt, on a device, by part: "train" and "test".

    stems: steps that trainings of the run have in common, by their phase.
    """

    dealt: Dealt
    backbone: Backbone
    device: str
    standardise: "Standardise | None" = None
    stems: dict[TrainingPhase, Stem] = field(default_factory=dict)

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
        """What the frozen backbone gives the head for the records, part -> (n, features)."""
        features = self._tensors(self.dealt.features(self.backbone))
        if self.standardise is None:
            return features
        return {part: self.standardise(rows) for part, rows in features.items()}

    def _tensors(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        return {part: torch.from_numpy(array).to(self.device) for part, array in arrays.items()}


class Standardise(nn.Module):
    """To mean 0 and standard deviation 1 on `features` (records, features); 0 if constant.

    Nothing of it is trained.
    """

    mean: Tensor
    factor: Tensor

    def __init__(self, features: np.ndarray):
        super().__init__()
        mean, deviation = (getattr(features, name)(0, dtype=np.float64) for name in ("mean", "std"))
        factor = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        for name, part in (("mean", mean), ("factor", factor)):
            self.register_buffer(name, torch.from_numpy(part.astype(np.float32)))

    def forward(self, x: Tensor) -> Tensor:
        """(records, features) to the same."""
        return (x - self.mean) * self.factor


def public_images(job: Job, backbone: Backbone) -> Prepared:
    """The images that the backbone was trained on; InputError for others or none."""
    trained = backbone.manifest["training"]["data"]["sha256"]
    if job.public is None or job.public.sha256 != trained:
        content = f"content with sha256 {job.public.sha256[:16]}" if job.public else "nothing"
        allowed = f"{trained[:16]}, the backbone's training images"
        raise InputError("--public-data", content, allowed)
    return job.public


class BackboneNetworks:
    """The backbone of a job, on its device, with a random head.

    head_scale multiplies the initial weights of the head, feature_scale the features before they
    reach it. rank: of LoRA's adapters; None for none. standardised: whether features are
    standardised on the backbone's public training images.
    """

    def __init__(
        self,
        job: Job,
        backbone: Backbone,
        *,
        head_scale: float = 1.0,
        feature_scale: float = 1.0,
        rank: int | None = None,
        standardised: bool = False,
    ):
        self.job, self.backbone = job, backbone
        self.standardise: Standardise | None = None
        if standardised:
            images = public_images(job, backbone).x_train
            self.standardise = Standardise(features(backbone.network, images)).to(job.device)
        self.head_scale, self.feature_scale, self.rank = head_scale, feature_scale, rank

    def seen(self, dealt: Dealt) -> Seen:
        """What is trained and evaluated on."""
        return Seen(dealt, self.backbone, self.job.device, self.standardise)

    def fresh(self, run: int) -> Network:
        """The backbone with the random head of run `run`, the same for all settings of a seed."""
        axes = {"key": self.job.spec.key, "run": run, "base_seed": self.job.fields.seed}
        network = self.backbone.with_new_head(len(self.job.prepared.classes), **axes)
        network.head.weight.mul_(self.head_scale)
        if self.rank is not None:
            network = with_lora(network, self.rank, **axes)
        *body, head = network.named_children()
        if self.feature_scale != 1:
            body.append(("scale", Scale(self.feature_scale)))
        if self.standardise is not None:
            body.append(("standardise", self.standardise))
        return Network([*body, head]).to(self.job.device)

    def fresh_head(self, run: int) -> Network:
        """The head of `fresh` alone, with the names that its parameters have there.

        LoRA's adapters add zero as long as the head alone is trained, so that it may train on the
        features of the frozen backbone.
        """
        _, head = self.fresh(run).split(["head.weight"])
        return head

    def phase(self, part: Part, steps: int, noise_multiplier: float, lr: float) -> TrainingPhase:
        """Steps on one part of the network, on the records of a run."""
        fields: PrivateFields = self.job.fields
        # Prefixes of the names of the parameters.
        trained: dict[Part, Sequence[str]] = {HEAD: ("head",), FULL: ("",)}
        return dp_sgd_phase(
            Poisson(len(self.job.prepared.y_train), fields.batch),
            noise_multiplier,
            fields.max_grad_norm,
            steps,
            lr,
            trainable=trained[part] if part in trained else lora_parameters(self.fresh(0)),
            max_physical_batch=fields.max_physical_batch,
        )
