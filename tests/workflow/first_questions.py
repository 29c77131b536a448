"""What the Snakefile asks of a config before the first job, in this process."""

from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.cost.estimate import job_seconds, minutes


def evaluate(config):
    """All of it; raises InputError where the config makes no run."""
    atlas = Atlas(config)
    atlas.check_data_root()
    atlas.product_files(), atlas.all_records(), atlas.claim_records(), atlas.claim_settings()
    atlas.data_sets, atlas.data_source()
    for key in atlas.blocks:
        atlas.settings(key)
    for name in (*atlas.figures, *atlas.tables):
        atlas.behind(name)
    for name, spec in atlas.specs.items():
        assert spec.argument
        assert atlas.record(name)
        job = atlas.job(name)
        assert len(job.weights) == 2 * len(job.backbones) and isinstance(job.arguments, str)
        assert job.device in ("cpu", "cuda", "auto")
        assert job.memory_mb >= 100
        assert minutes(job_seconds(atlas, name)) >= 1
