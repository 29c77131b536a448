"""The profile for any scheduler, against stand-ins for SGE, PBS and LSF."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fake_scheduler
import pytest

PROFILE = Path(__file__).parents[2] / "workflow" / "profiles" / "cluster-generic"
RESOURCES = {"mem_mb": 3000, "runtime": 90, "gpu": 1, "queue": "long"}
# What a job of one thread with these resources must be asked for.
ASKED = {
    "sge": [["-l", "mem_free=3000M,h_rt=5400"], ["-l", "gpu=1"], ["-q", "long"]],
    "pbs": [["-l", "select=1:ncpus=1:mem=3000mb:ngpus=1"], ["-l", "walltime=5400"], ["-q", "long"]],
    "lsf": [["-M", "3000"], ["-W", "90"], ["-gpu", "num=1"], ["-q", "long"]],
}
NOT_WITHOUT_GPU = {"sge": "gpu", "pbs": "ngpus", "lsf": "num="}


class Site:
    """A folder from which jobs are sent to a stand-in scheduler."""

    def __init__(self, folder: Path, scheduler: str, grace_s: float = 60):
        self.folder, self.spool = folder, folder / "spool"
        self.spool.mkdir()
        fake_scheduler.install(folder / "bin")
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "FAKE_SPOOL": str(self.spool),
            "DPATLAS_SCHEDULER": scheduler,
            "DPATLAS_GRACE_S": str(grace_s),
        }

    def call(self, script: str, *arguments: str) -> str:
        run = subprocess.run(
            [PROFILE / script, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    def submit(self, command: str, **resources) -> str:
        facts = {
            "rule": "kl_privacy_training",
            "threads": 1,
            "resources": {**RESOURCES, **resources},
        }
        path = self.folder / "snakejob.sh"
        path.write_text(f"#!/bin/sh\n# properties = {json.dumps(facts)}\n{command}\n")
        return self.call("submit.sh", str(path))

    def status(self, job: str) -> str:
        return self.call("status.sh", job)

    def ended(self, job: str) -> str:
        """The first status that is not `running`."""
        deadline = time.monotonic() + 20
        while (status := self.status(job)) == "running":
            assert time.monotonic() < deadline, "still running"
            time.sleep(0.1)
        return status

    def facts(self, job: str) -> dict:
        return json.loads((self.spool / f"{job.split('.')[0]}.json").read_text())


@pytest.fixture(params=["sge", "pbs", "lsf"])
def scheduler(request) -> str:
    return request.param


@pytest.fixture
def site(tmp_path, scheduler) -> Site:
    return Site(tmp_path, scheduler)


def test_a_job_asks_for_its_memory_time_gpu_and_queue(site, scheduler):
    options = site.facts(site.submit("true"))["options"]
    assert [option for option in ASKED[scheduler] if option not in options] == []
    without = site.facts(site.submit("true", gpu=0, queue=""))["options"]
    assert not any(
        NOT_WITHOUT_GPU[scheduler] in value for _, *values in without for value in values
    )
    assert not any(option == "-q" for option, *_ in without)


def test_a_job_runs_in_the_folder_it_was_sent_from_and_leaves_its_output_and_status(site):
    job = site.submit("pwd; echo complaint >&2")
    assert site.ended(job) == "success"
    output = (site.folder / ".snakemake" / "cluster" / job / "output").read_text()
    assert output.split() == [str(site.folder), "complaint"]
    assert site.ended(site.submit("exit 3")) == "failed"


def test_a_job_that_vanishes_runs_for_a_while_and_has_then_failed(site):
    job = site.submit("sleep 60")
    assert site.status(job) == "running"
    os.killpg(site.facts(job)["pid"], signal.SIGKILL)
    assert site.status(job) == "running", "its exit code may still be on the way"
    site.environment["DPATLAS_GRACE_S"] = "0"
    assert site.ended(job) == "failed"


def test_a_cancelled_job_is_gone(site):
    job = site.submit("sleep 60")
    site.call("cancel.sh", job)
    site.environment["DPATLAS_GRACE_S"] = "0"
    assert site.ended(job) == "failed"
    assert not fake_scheduler.alive(site.facts(job)["pid"])


def test_a_job_is_not_given_up_while_the_scheduler_does_not_answer(site):
    job = site.submit("sleep 60")
    os.killpg(site.facts(job)["pid"], signal.SIGKILL)
    site.environment["DPATLAS_GRACE_S"] = "0"
    (site.spool / "down").touch()
    assert site.status(job) == "running"
    (site.spool / "down").unlink()
    assert site.ended(job) == "failed"


def test_an_unknown_scheduler_is_named(tmp_path):
    site = Site(tmp_path, "lotus")
    run = subprocess.run(
        [PROFILE / "status.sh", "1"], env=site.environment, capture_output=True, text=True
    )
    assert run.returncode == 2
    assert run.stderr == "scheduler.sh: found scheduler=lotus; allowed: sge, pbs, lsf\n"


@pytest.mark.slow
def test_a_figure_comes_through_the_profile_though_its_run_vanishes_once(new_checkout):
    here, there = new_checkout("local"), new_checkout("cluster")
    site = Site(there.folder, "sge", grace_s=0)
    there.environment |= site.environment
    target = ("sgld_counterexample", "--configfile", "workflow/tiers/smoke.yaml")
    assert here.snakemake(*target).returncode == 0
    head = subprocess.Popen(
        [
            *(sys.executable, "-m", "snakemake", *target),
            *("--workflow-profile", "workflow/profiles/cluster-generic"),
            *("--seconds-between-status-checks", "1", "--latency-wait", "5"),
        ],
        cwd=there.folder,
        env=there.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + 300
        while not (site.spool / "1.json").exists():
            assert head.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(site.facts("1")["pid"], signal.SIGKILL)
        output, _ = head.communicate(timeout=600)
    finally:
        head.kill()
    assert head.returncode == 0, output[-3000:]
    assert len(list(site.spool.glob("*.json"))) == 3, "one run, once more, and the figure"
    # On a cluster a job is a process, whose time and memory Snakemake measures.
    assert [*there.folder.glob("results/smoke/benchmarks/*/*.tsv")]
    assert not [*here.folder.glob("results/smoke/benchmarks/*/*.tsv")]
    for part in ("runs/*/*/record.json", "figures/*.csv"):
        (mine,) = here.folder.glob(f"results/smoke/{part}")
        (theirs,) = there.folder.glob(f"results/smoke/{part}")
        assert mine.read_bytes() == theirs.read_bytes()
