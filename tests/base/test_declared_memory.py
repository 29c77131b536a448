"""Memory that schedulers are asked for, against what an embedded run took."""

import pytest
from block_worlds import worlds_of
from tier_atlases import atlas_of

from dpatlas_workflow.registry import all_blocks, all_papers

# Largest peak of resident memory by kind of job, MB: cost.json of a full embedded run on two cores.
MEASURED = {
    ("audit", "mechanism"): 619,
    ("audit", "network"): 1016,
    ("dp_sgld", "accuracy"): 679,
    ("dp_sgld", "counterexample"): 779,
    ("dp_sgld", "finetune"): 802,
    ("dp_sgld", "long_training"): 623,
    ("dp_sgld", "long_training_tuning"): 787,
    ("dp_sgld", "privacy_loss"): 631,
    ("dp_sgld", "utility"): 650,
    ("feature_learning", "simulation"): 260,
    ("kl_privacy", "constants"): 548,
    ("kl_privacy", "linearized"): 565,
    ("kl_privacy", "training"): 572,
    ("lp_fft", "distortion"): 606,
    ("lp_fft", "dynamics"): 606,
    ("lp_fft", "feature_quality"): 952,
    ("lp_fft", "imbalance"): 557,
    ("lp_fft", "sensitivity"): 620,
    ("lp_fft", "strategies"): 1044,
    ("lp_fft", "strategies_tuning"): 914,
    ("lp_fft", "umap"): 1133,
    ("max_information", "agreement"): 620,
    ("max_information", "certificates"): 653,
    ("max_information", "coefficients"): 63,
    ("max_information", "kappa"): 63,
    ("max_information", "simulation"): 85,
    ("pretrain", "backbone"): 754,
    ("pretrain", "transfer"): 692,
}
# A paper may measure in its own tests: `MEASURED_MB` of its `worlds.py`, by kind.
MEASURED |= {
    (key, kind): peak
    for key in all_papers()
    for kind, peak in getattr(worlds_of(key), "MEASURED_MB", {}).items()
}
# The embedded tier imports no weights.
ELSEWHERE = {("pretrain", "imported")}


def test_every_kind_of_job_was_measured():
    declared = {(key, kind) for key, block in all_blocks().items() for kind in block.kinds}
    assert declared == set(MEASURED) | ELSEWHERE


@pytest.mark.parametrize("kind", MEASURED, ids="-".join)
def test_no_job_asks_for_less_than_it_took(kind):
    atlas = atlas_of("embedded")
    declared = [
        atlas.job(name).memory_mb
        for name, spec in {**atlas.specs, **atlas.tunings}.items()
        if (spec.key, spec.fields["kind"]) == kind
    ]
    assert min(declared) >= MEASURED[kind]
