"""kill -9 of jobs, of Snakemake, and of both, at seeded moments, until a run gets through."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
import yaml
from runs_on_disk import SMOKE, end, files_of, forks_of, jobs_in, jobs_of, pixels_of, said, start

from dpatlas_workflow.config.atlas import KEYS

pytestmark = [pytest.mark.slow, pytest.mark.smoke]
TIER = "faults"
# Long enough to be hit, by steps that cost a fraction of a millisecond.
LONG = {
    "kl_privacy": {
        "inits": ["he"],
        "horizons": {"early": 2, "short": 4, "long": 3000},
        "width_sweep": {"depth": 3, "steps": 3000, "widths": [4]},
    },
    "max_information": {"certificates": {"draws": 40000}},
}
OFF = {key: {"enabled": False} for key in KEYS if key not in LONG}
CONFIG = {"tier": TIER, **LONG, **OFF}
SEED = 20240229
MODES = (
    "a job",
    "a fork",
    "snakemake and its jobs",
    "a job, then snakemake",
    "snakemake alone",
    "a time limit",
)
# Minutes: less than a job takes, and more than it needs to get on.
ENVIRONMENTS = {
    "a time limit": {"DPATLAS_JOB_TIMEOUT": "0.03"},
    "a fork": {"DPATLAS_FORKS": None},
}
# A checkpoint every 20 s would lie between two kills by luck only.
OFTEN = ("src/dpatlas/jobs/job.py", "CHECKPOINTS = 20.0", "CHECKPOINTS = 0.2")
CONFIGS = ("--configfile", SMOKE, "long.yaml")


@pytest.fixture(scope="module")
def quiet(new_checkout):
    """A copy in which the tier has run undisturbed, and what a second Snakemake said meanwhile."""
    checkout = prepared(new_checkout("quiet"))
    process = run(checkout)
    try:
        while process.poll() is None and not jobs_of(process, checkout):
            time.sleep(0.1)
        second = checkout.snakemake(*CONFIGS)
        assert process.poll() is None
        finish(process, checkout)
    finally:
        stop(process)
    return checkout, second


@pytest.fixture(scope="module")
def disturbed(new_checkout):
    """A copy in which the tier was killed again and again; how often, by mode; who went on."""
    checkout, survived, resumed = prepared(new_checkout("disturbed")), Counter(), set()
    draws = random.Random(SEED)
    try:
        for mode in MODES:
            survived[mode] += strike(checkout, mode, draws)
            resumed |= resumed_in(checkout)
        psutil.wait_procs(jobs_in(checkout), timeout=600)
        process = run(checkout)
        try:
            finish(process, checkout)
            resumed |= resumed_in(checkout)
        finally:
            stop(process)
    finally:
        for each in jobs_in(checkout):
            end(each)
    return checkout, survived, resumed


def prepared(checkout):
    (checkout.folder / "long.yaml").write_text(yaml.safe_dump(CONFIG))
    path, old, new = OFTEN
    checkout.edit(path, old, new).__enter__()
    return checkout


def run(checkout, **options):
    return start(checkout, 2, *CONFIGS, **options)


def finish(process, checkout):
    assert process.wait(timeout=1800) == 0, said(checkout)[-3000:]


def stop(process):
    """SIGKILL for Snakemake and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def strike(checkout, mode, draws):
    """Start a run and disturb it at a drawn moment; 1, or 0 where there was nothing to disturb."""
    process = run(checkout, environment=ENVIRONMENTS.get(mode))
    try:
        struck = mode != "a time limit" and hit(process, checkout, mode, draws)
        if mode in ("a job", "a fork", "a time limit"):
            code = process.wait(timeout=1800)
            if mode == "a time limit":
                struck = code == 1
                assert "the limit in DPATLAS_JOB_TIMEOUT" in said(checkout) or code == 0
            assert code == int(struck), said(checkout)[-3000:]
            return int(struck)
        if mode == "snakemake alone":
            end(process)
    finally:
        if mode != "snakemake alone":
            stop(process)
    process.wait(timeout=300)
    result = checkout.snakemake("--unlock", *CONFIGS)
    assert result.returncode == 0, result.stdout + result.stderr
    return int(struck)


def hit(process, checkout, mode, draws):
    """Wait for a moment, or for a checkpoint and a moment, and kill; False if the run ended first.

    Whoever is killed while it imports torch has nothing to lose.
    """
    began, moment = time.time(), time.monotonic() + draws.uniform(0.2, 6.0)
    while process.poll() is None:
        if mode == "snakemake and its jobs":
            if time.monotonic() > moment:
                return True
        elif fresh := saved_since(checkout, began):
            time.sleep(draws.uniform(0.0, 1.0))
            running = forks_of(process) if mode == "a fork" else jobs_of(process, checkout)
            jobs = [job for job in running if slug_of(job) in fresh]
            if jobs and (mode == "snakemake alone" or end(draws.choice(jobs))):
                return process.poll() is None
        time.sleep(0.02)
    return False


def saved_since(checkout, began):
    """Slugs of the jobs that saved a checkpoint since then."""
    found = set()
    for path in (checkout.folder / "results" / TIER / "checkpoints").glob("*/*.npz"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime > began:
                found.add(path.parent.name.rpartition("-")[0])
    return found


def slug_of(job):
    """The slug of the spec that the process runs, by the log it writes; none once it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{job.pid}/fd/1").readlink().stem.rpartition("-")[0]
    return None


def resumed_in(checkout):
    """Jobs of the last run that found what an earlier attempt had left."""
    logs = (checkout.folder / "results" / TIER / "logs").glob("*/*.log")
    return {path.stem for path in logs if "an earlier attempt" in path.read_text(errors="replace")}


def test_killed_runs_end_in_the_bytes_of_an_undisturbed_one(quiet, disturbed, capsys):
    (quiet, _), (checkout, survived, resumed) = quiet, disturbed
    with capsys.disabled():
        print(f"\nfaults survived: {sum(survived.values())} of {len(MODES)}: {dict(survived)}")
        print(f"jobs that went on from a checkpoint: {', '.join(sorted(resumed))}")
    assert all(survived[mode] for mode in MODES) and resumed
    expected, found = files_of(quiet, TIER), files_of(checkout, TIER)
    assert found["manifest.txt"] == expected["manifest.txt"]
    assert {name for name in expected | found if expected.get(name) != found.get(name)} == set()
    shown, drawn = pixels_of(quiet, TIER), pixels_of(checkout, TIER)
    assert shown.keys() == drawn.keys()
    assert all((shown[name] == drawn[name]).all() for name in shown)


def test_nothing_half_written_is_left(disturbed):
    checkout, *_ = disturbed
    folder = checkout.folder / "results" / TIER
    assert not [path for path in folder.rglob("*") if path.name.endswith((".part", ".npz"))
                and path.parent.parent.name != "data"]  # fmt: skip
    assert not [path for path in folder.glob("checkpoints/*") if any(path.iterdir())]
    result = checkout.python("-m", "dpatlas", "verify", "--tier", TIER)
    assert result.returncode == 0, result.stdout + result.stderr
    assert checkout.planned(*CONFIGS) == {}


def test_a_second_snakemake_in_the_same_folder_is_refused(quiet):
    """The first came to its end beside it: the fixture asserts that."""
    _, second = quiet
    assert second.returncode == 1
    assert "LockException" in second.stderr and "unlock" in second.stderr


def test_a_read_only_folder_stops_the_run_before_any_job(new_checkout):
    checkout = new_checkout("read-only")
    results = checkout.folder / "results"
    results.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(results)]
    if checkout.run(*mount).returncode:
        pytest.skip("this user may not mount")
    try:
        line = checkout.refusal("kl_constants", "--configfile", SMOKE)
        # What writes nothing is not refused.
        assert checkout.planned("kl_constants", "--configfile", SMOKE)["kl_constants"] == 1
        listed = checkout.snakemake("--list-rules", "--configfile", SMOKE)
        assert listed.returncode == 0 and "kl_constants" in listed.stdout
    finally:
        checkout.run("umount", str(results))
    assert "results" in line and "without write permission" in line
