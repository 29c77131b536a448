"""Memory that schedulers are asked for, against what an embedded run took."""

import pytest
import yaml
from block_worlds import worlds_of
from tier_atlases import atlas_of

from dpatlas_workflow.registry import all_blocks, all_papers

# Largest peak of resident memory by kind of job, MB: cost.json of a full embedded run on two cores.
BY_BLOCK = yaml.safe_load("""
audit: {mechanism: 619, network: 1016}
dp_sgld: {accuracy: 679, counterexample: 779, finetune: 802, long_training: 623,
          long_training_tuning: 787, privacy_loss: 631, utility: 650}
feature_learning: {simulation: 260}
kl_privacy: {constants: 548, linearized: 565, training: 572}
lp_fft: {distortion: 606, dynamics: 606, feature_quality: 952, imbalance: 557,
         sensitivity: 620, strategies: 1044, strategies_tuning: 914, umap: 1133}
max_information: {agreement: 620, certificates: 653, coefficients: 63, kappa: 63,
                  simulation: 85}
pretrain: {backbone: 754, transfer: 692}
""")
MEASURED = {(key, kind): peak for key, kinds in BY_BLOCK.items() for kind, peak in kinds.items()}
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
