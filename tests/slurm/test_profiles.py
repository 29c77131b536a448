"""What the cluster profiles say, checked without a cluster."""

import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from checkouts import SMOKE
from snakemake_executor_plugin_slurm.partitions import get_best_partition, read_partition_file

FOLDER = Path(__file__).parents[2] / "workflow" / "profiles"
PROFILES = ("slurm", "cluster-generic")


def read(profile: str) -> dict:
    return yaml.safe_load((FOLDER / profile / "config.v8+.yaml").read_text())


def test_the_profiles_differ_only_in_what_knows_the_scheduler():
    slurm, generic = (
        {
            key: value
            for key, value in read(profile).items()
            if not key.startswith(("slurm-", "cluster-generic-")) and "status-checks" not in key
        }
        for profile in PROFILES
    )
    assert slurm.pop("executor") == "slurm"
    assert generic.pop("executor") == "cluster-generic"
    assert slurm["default-resources"].pop("slurm_partition")
    # Slurm's executor takes a job without gpu for one that needs none; submit.sh is given all.
    assert generic["default-resources"].pop("queue") == "''"
    assert generic["default-resources"].pop("gpu") == 0
    assert slurm == generic


def test_the_scripts_that_snakemake_calls_can_be_run():
    settings = read("cluster-generic")
    for name in ("submit", "status", "cancel"):
        script = FOLDER / "cluster-generic" / settings[f"cluster-generic-{name}-cmd"]
        assert os.access(script, os.X_OK), script


@pytest.mark.slow
@pytest.mark.smoke
def test_a_dry_run_needs_no_cluster(new_checkout):
    checkout = new_checkout("planned")
    plain = checkout.planned("--configfile", SMOKE)
    for profile in PROFILES:
        flags = ("--configfile", SMOKE, "--workflow-profile", f"workflow/profiles/{profile}")
        assert checkout.planned(*flags) == plain, profile


@pytest.mark.parametrize(
    ("resources", "partition"),
    [
        ({"mem_mb": 1000, "runtime": 10}, "cpu"),
        ({"mem_mb": 1000, "runtime": 10, "gpu": 0}, "cpu"),
        ({"mem_mb": 20000, "runtime": 1440, "gpu": 1}, "gpu"),
    ],
)
def test_jobs_go_to_the_partition_of_their_kind(resources, partition):
    partitions = read_partition_file(FOLDER / "slurm" / "partitions.yaml")
    job = SimpleNamespace(
        name="kl_privacy_training", threads=1, resources=resources, is_group=lambda: False
    )
    assert get_best_partition(partitions, job, logging.getLogger("test")) == partition
