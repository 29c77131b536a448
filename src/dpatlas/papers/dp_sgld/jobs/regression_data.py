"""dp_sgld: the records that softmax regression sees, bounded by a public norm."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpatlas.core.facts import BackboneUsed, FeaturesUsed
from dpatlas.core.progress import say
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job
from dpatlas.jobs.private_records import (
    PARTS,
    check_parts,
    frozen_features,
    identity,
    load_backbone,
)
from dpatlas.papers.dp_sgld.formulas.theorems import smoothness_of_mean
from dpatlas.papers.dp_sgld.records.regression import RegressionSpec
from dpatlas.privacy.langevin import bound_records

# Least norm that a record is divided by: a shorter one has no direction.
LEAST_NORM = 1e-12


@dataclass(frozen=True)
class Split:
    """Bounded features (records, d) and labels of the three parts of the data.

    scaled_down: private records that were longer than the declared norm, or not finite. backbone,
    features: the frozen backbone and its features, None for raw ones.
    """

    x: dict[str, Tensor]
    labels: dict[str, Tensor]
    classes: int
    scaled_down: int
    backbone: BackboneUsed | None
    features: FeaturesUsed | None

    def facts(self) -> dict[str, Any]:
        """For a record's metrics.

        mean_eigenvalue: lambda_max(mean x x^T) of the private records. It is private information,
        for the reader only: nothing is calibrated by it.
        """
        lam = 1.0
        beta = smoothness_of_mean(self.x["train"].double().numpy(), lam)
        return {
            **{f"n_{part}": len(self.labels[part]) for part in PARTS},
            "inputs": self.x["train"].shape[1],
            "classes": self.classes,
            "scaled_down": self.scaled_down,
            "mean_eigenvalue": float(2 * (beta - lam)),
            "backbone": self.backbone,
            "features": self.features,
        }


def load_split(job: Job) -> Split:
    """Features of the three parts as the spec names them, each record scaled by itself.

    Raises InputError for a missing part, for a backbone other than the spec's, for features that
    this backbone did not make, and for data scaled otherwise than those that it was trained on.
    """
    fields: RegressionSpec = job.fields
    data = job.prepared
    check_parts(data)
    backbone = features = None
    if fields.features != "raw":
        backbone = load_backbone(job)
        features = frozen_features(job, backbone)
    x: dict[str, Tensor] = {}
    scaled_down = 0
    for part in PARTS:
        inputs = torch.from_numpy(features.x[part] if features else getattr(data, f"x_{part}"))
        if fields.features == "softmax" and backbone is not None:
            if len(backbone.classes) < 2:
                raise InputError("features", "softmax of a backbone without classes", "penultimate")
            inputs = torch.softmax(backbone.network.head(inputs), 1)
        if fields.normalise:
            norms = torch.linalg.vector_norm(inputs, dim=1, keepdim=True)
            inputs = fields.feature_norm * inputs / norms.clamp_min(LEAST_NORM)
        bounded = bound_records(inputs, fields.feature_norm)
        x[part] = bounded.x
        scaled_down += bounded.scaled_down if part == "train" else 0
    if scaled_down:
        share = f"{scaled_down} of {len(x['train'])} private records"
        say(f"{job.spec.id}: {share} scaled down to norm {fields.feature_norm:g}")
    return Split(
        x,
        labels={part: torch.from_numpy(getattr(data, f"y_{part}")) for part in PARTS},
        classes=len(data.classes),
        scaled_down=scaled_down,
        backbone=None if backbone is None else BackboneUsed(**identity(backbone)),
        features=None if features is None else FeaturesUsed(**features.identity()),
    )
