"""dp_sgld: the records that softmax regression sees, bounded by a public norm."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpatlas.errors import InputError
from dpatlas.models.backbone import Backbone
from dpatlas.privacy.langevin import BoundedRecords, bound_records
from dpatlas_workflow.papers.dp_sgld.records import RegressionSpec
from dpatlas_workflow.run.deals import Dealt

# Least norm that a record is divided by: a shorter one has no direction.
LEAST_NORM = 1e-12


@dataclass(frozen=True)
class Bounded:
    """What the regressions of a run see: x (records, d) and labels (records,) by part.

    scaled_down: training records that were longer than the declared norm, or not finite.
    """

    x: dict[str, Tensor]
    labels: dict[str, Tensor]
    scaled_down: int


def bounded(fields: RegressionSpec, backbone: Backbone | None, dealt: Dealt) -> Bounded:
    """The features that the spec names of the records of a run, each scaled by itself.

    Raises InputError for a backbone without classes where they are asked for.
    """
    arrays = dealt.x if backbone is None else dealt.features(backbone)
    parts = {part: _bounded(fields, backbone, arrays[part]) for part in dealt.labels}
    return Bounded(
        {part: found.x for part, found in parts.items()},
        {part: torch.from_numpy(labels) for part, labels in dealt.labels.items()},
        parts["train"].scaled_down,
    )


def _bounded(
    fields: RegressionSpec, backbone: Backbone | None, array: np.ndarray
) -> BoundedRecords:
    inputs = torch.from_numpy(array)
    if fields.features == "softmax" and backbone is not None:
        if len(backbone.classes) < 2:
            raise InputError("features", "softmax of a backbone without classes", "penultimate")
        inputs = torch.softmax(backbone.network.head(inputs), 1)
    if fields.normalise:
        norms = torch.linalg.vector_norm(inputs, dim=1, keepdim=True)
        inputs = fields.feature_norm * inputs / norms.clamp_min(LEAST_NORM)
    return bound_records(inputs, fields.feature_norm)
