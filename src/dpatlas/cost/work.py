"""How much work a job is, counted from its spec alone: the features of the cost model."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dpatlas.config.atlas import Atlas
from dpatlas.config.features import FrozenFeatures
from dpatlas.config.sizes import inputs_of, records_of, size_of
from dpatlas.cost import training as work_training
from dpatlas.cost.counting import FEATURES, NO_DATA, Size, Work
from dpatlas.papers.feature_learning import cost as work_feature_learning
from dpatlas.papers.kl_privacy import cost as work_kl_privacy
from dpatlas.papers.lp_fft import cost as work_lp_fft
from dpatlas.papers.max_information import cost as work_max_information

__all__ = ["COUNTS", "FEATURES", "NO_DATA", "Size", "Work", "work", "work_of", "work_of_features"]

COUNTS: dict[tuple[str, str], Callable[[Mapping[str, Any], Size], Work]] = {
    ("kl_privacy", "training"): work_kl_privacy.training,
    ("kl_privacy", "linearized"): work_kl_privacy.linearized,
    ("kl_privacy", "constants"): work_kl_privacy.constants,
    ("pretrain", "backbone"): work_training.pretrain_backbone,
    ("pretrain", "imported"): work_training.pretrain_imported,
    ("pretrain", "transfer"): work_training.pretrain_transfer,
    ("dp_sgld", "accuracy"): work_training.sgld_accuracy,
    ("dp_sgld", "finetune"): work_training.sgld_finetune,
    ("dp_sgld", "long_training"): work_training.sgld_long_training,
    ("dp_sgld", "privacy_loss"): work_training.sgld_privacy_loss,
    ("dp_sgld", "counterexample"): work_training.sgld_counterexample,
    ("dp_sgld", "utility"): work_training.sgld_utility,
    ("feature_learning", "simulation"): work_feature_learning.simulation,
    ("lp_fft", "strategies"): work_lp_fft.strategies,
    ("lp_fft", "feature_quality"): work_lp_fft.feature_quality,
    ("lp_fft", "umap"): work_lp_fft.umap,
    ("lp_fft", "dynamics"): work_lp_fft.dynamics,
    ("lp_fft", "distortion"): work_lp_fft.distortion,
    ("lp_fft", "sensitivity"): work_lp_fft.sensitivity,
    ("lp_fft", "imbalance"): work_lp_fft.imbalance,
    ("max_information", "certificates"): work_max_information.certificates,
    ("max_information", "agreement"): work_max_information.agreement,
    ("max_information", "coefficients"): work_max_information.formulas,
    ("max_information", "kappa"): work_max_information.formulas,
    ("max_information", "simulation"): work_max_information.simulation,
    ("audit", "mechanism"): work_training.audit_mechanism,
    ("audit", "training"): work_training.audit_training,
}


def work(fields: Mapping[str, Any], size: Size) -> Work:
    """The work of the spec with these fields, with its backbone's in place of the backbone's id.

    KeyError for a kind that has no count.
    """
    own = COUNTS[fields["key"], fields["kind"]](fields, size)
    return replace(own, counts={"starts": 1, **own.counts})


def work_of(atlas: Atlas, spec_id: str) -> Work:
    """The work of one of the run's jobs."""
    fields = atlas.specs[spec_id].fields
    if fields.get("backbone"):
        fields["backbone"] = atlas.specs[fields["backbone"]].fields
    size = Size(*size_of(fields["data"])) if "data" in fields else NO_DATA
    return work(fields, size)


def work_of_features(found: FrozenFeatures) -> Work:
    """The work of taking a backbone's features of a data set."""
    inputs, disk_bytes = inputs_of(found.data), 2**20 * found.disk_mb
    network = found.backbone.fields
    return work_training.frozen_features(network, inputs, records_of(found.data), disk_bytes)
