"""The Slurm profile on a real Slurm, which these tests start on this machine."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import one_host_slurm
import pytest
import yaml
from one_host_slurm import OneHostSlurm, wait_for

TIER = "tier.yaml"
PROFILE = "workflow/profiles/slurm"
# The profile is for sites; one machine has no slow file system, and its jobs last seconds.
QUICK = ("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "5")
# A loaded machine starts a Python a minute.
PATIENCE_S = 600
COMPARED = ("runs/*/*/record.json", "figures/*.csv", "tables/*")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.slurm,
    pytest.mark.skipif(
        one_host_slurm.why_not() is not None, reason=f"Slurm: {one_host_slurm.why_not()}"
    ),
]


@pytest.fixture(scope="module")
def slurm():
    with OneHostSlurm() as slurm:
        yield slurm


@pytest.fixture(scope="module")
def tier() -> str:
    """The smoke tier under a name of its own, with runs long enough to be interrupted."""
    smoke = Path(__file__).parents[2] / "workflow" / "tiers" / "smoke.yaml"
    config = yaml.safe_load(smoke.read_text())
    config["tier"] = "cluster"
    config["kl_privacy"] |= {"runs": 3, "horizons": {"early": 2, "short": 4, "long": 6000}}
    return yaml.safe_dump(config)


@pytest.fixture
def copies(new_checkout, tier):
    """Two copies of the project: one to be run without Slurm, one with it."""
    local, checkout = new_checkout("local"), new_checkout("cluster")
    for copy in (local, checkout):
        (copy.folder / TIER).write_text(tier)
    return local, checkout


class Head:
    """Snakemake on the head node; killed, if it still runs, at the end of a `with` block."""

    def __init__(self, checkout, *arguments: str):
        self.output = checkout.folder / "head.log"
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "snakemake", *arguments),
                    *("--configfile", TIER, "--workflow-profile", PROFILE, *QUICK),
                ],
                cwd=checkout.folder,
                env=checkout.environment,
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> "Head":
        return self

    def __exit__(self, *failure) -> None:
        self.process.kill()
        self.process.wait()

    def when(self, what: str, condition):
        """Wait for `condition` while Snakemake runs."""

        def found():
            assert self.process.poll() is None, f"ended before {what}:\n{self.said()}"
            return condition()

        return wait_for(what, found, PATIENCE_S)

    def succeed(self) -> None:
        """Wait for the end, which must be a good one."""
        assert self.process.wait(PATIENCE_S) == 0, self.said()

    def said(self) -> str:
        return self.output.read_text()[-5000:]


def running(slurm: OneHostSlurm, rule: str) -> dict[str, dict[str, str]]:
    """The jobs of one rule that run now."""
    return {
        name: job
        for name, job in slurm.jobs().items()
        if job["JobState"] == "RUNNING" and job["Comment"].startswith(f"rule_{rule}_wildcards_")
    }


def long_trainings(slurm) -> dict[str, dict[str, str]]:
    """Running trainings up to the last horizon; those of several networks end after a few steps."""
    found = running(slurm, "kl_privacy_training")
    return {name: job for name, job in found.items() if "networks" not in spec_of(job)}


def spec_of(job: dict[str, str]) -> str:
    """The id of the run that a job does."""
    return job["Comment"].partition("_wildcards_")[2]


def same_bytes(local, checkout, target: str) -> None:
    """A local run of `target` makes what is there, to the byte."""
    run = local.snakemake(target, "--configfile", TIER)
    assert run.returncode == 0, run.stderr[-3000:]
    theirs, ours = (copy.folder / "results" / "cluster" for copy in (checkout, local))
    made = [path.relative_to(theirs) for pattern in COMPARED for path in theirs.glob(pattern)]
    records = [path for path in made if path.name == "record.json"]
    assert 1 < len(records) < len(made), "records, and a figure or a table"
    different = [
        path for path in made if (theirs / path).read_bytes() != (ours / path).read_bytes()
    ]
    assert different == []


def test_a_figure_survives_a_cancelled_job_and_a_killed_node_daemon(slurm, copies):
    local, checkout = copies
    results = checkout.folder / "results" / "cluster"
    with Head(checkout, "kl_vs_epochs") as head:
        head.when("two long jobs that run", lambda: len(long_trainings(slurm)) == 2)
        jobs = long_trainings(slurm)
        cancelled, spared = sorted(jobs, key=int)
        spec = spec_of(jobs[cancelled])
        node = jobs[spared]["NodeList"]
        head.when("a checkpoint", (results / "checkpoints" / spec / "run-0.npz").exists)
        slurm.cancel(cancelled)
        slurm.kill_node(node)
        slurm.start_node(node)
        head.succeed()
    states = {name: job["JobState"] for name, job in slurm.jobs().items()}
    assert states.pop(cancelled) == "CANCELLED"
    # The other run, the repeated one, two early ones and the figure.
    assert list(states.values()) == ["COMPLETED"] * 5
    log = (results / "logs" / "kl_privacy_training" / f"{spec}.log").read_text()
    assert "an earlier attempt ended before its time and left a checkpoint" in log
    same_bytes(local, checkout, "kl_vs_epochs")


def test_a_job_has_its_rules_resources_and_a_killed_head_can_start_again(slurm, copies):
    local, checkout = copies
    before = set(slurm.jobs())
    gpu = ("--jobs", "1", "--set-resources", "max_information_certificates:gpu=1")
    with Head(checkout, "maxinf_grid", *gpu) as head:
        head.when("a running job", lambda: running(slurm, "max_information_certificates"))
        head.process.send_signal(signal.SIGKILL)
    (orphan,) = slurm.active()
    slurm.cancel(orphan)
    assert checkout.snakemake("--unlock", "--configfile", TIER).returncode == 0
    with Head(checkout, "maxinf_grid", *gpu) as head:
        head.succeed()
    jobs = [job for name, job in slurm.jobs().items() if name not in {*before, orphan}]
    runs = [job for job in jobs if spec_of(job)]
    assert (len(runs), len(jobs)) == (2, 3), "two runs, and a job for the table"
    for job in runs:
        memory_mb, minutes = asked_for(checkout, spec_of(job))
        assert job["MinMemoryNode"] == f"{memory_mb}M"
        assert job["TimeLimit"] == f"{minutes // 60:02}:{minutes % 60:02}:00"
        assert job["TresPerJob"] == "gres:gpu:1"
        assert job["Partition"] == "main"
    same_bytes(local, checkout, "maxinf_grid")


def asked_for(checkout, spec: str) -> tuple[int, int]:
    """Memory in MB and minutes of a run, as the package has them."""
    script = (
        "import sys; from dpatlas_workflow.config.load import load_config; "
        "from dpatlas_workflow.cost.estimate import job_seconds, minutes; "
        "from dpatlas_workflow.config.atlas import Atlas; "
        f"atlas = Atlas(load_config(['{TIER}'])); "
        "print(atlas.job(sys.argv[1]).memory_mb, minutes(job_seconds(atlas, sys.argv[1])))"
    )
    memory_mb, minutes = checkout.python("-c", script, spec).stdout.split()
    return int(memory_mb), int(minutes)


def test_a_machine_with_a_slurm_of_its_own_is_refused(slurm, monkeypatch, tmp_path):
    assert "slurmctld running" in one_host_slurm.why_not()
    theirs = tmp_path / "slurm.conf"
    theirs.write_text("ClusterName=theirs\n")
    monkeypatch.setattr(one_host_slurm, "FILES", (theirs,))
    assert str(theirs) in one_host_slurm.why_not()
    assert shutil.which("slurmd")
