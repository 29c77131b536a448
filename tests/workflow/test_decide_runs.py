"""`decide` on a small paper: runs are added until its claim is decided, after Ctrl-C as well."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from dpatlas.base.files import read_rows
from dpatlas_workflow.registry import all_blocks

pytestmark = [pytest.mark.smoke, pytest.mark.slow]
KEY, TIER, CONFIG = "small_paper", "deciding", "deciding.yaml"
# A difference of .55 in the logarithm, seen with .33 (standard error) by 12 runs.
SETTINGS = {"epsilons": [0.9], "releases": 4, "runs": 12, "runs_per_job": 6}


@pytest.fixture(scope="module")
def project(new_checkout):
    checkout = new_checkout("deciding")
    assert checkout.python("-m", "dpatlas", "new-paper", KEY).returncode == 0
    others = {key: {"enabled": False} for key in all_blocks()}
    config = {"tier": TIER, "seed": 1, **others, KEY: SETTINGS}
    (checkout.folder / CONFIG).write_text(yaml.safe_dump(config))
    return checkout


def command(project, *arguments):
    words = ["-m", "dpatlas", "decide", "--cores", "2", "--configfile", CONFIG, *arguments]
    return project.python(*words)


def claim(project):
    rows = read_rows(project.folder / "results" / TIER / "claims.csv")
    (row,) = (row for row in rows if row["paper"] == KEY)
    return row


def blocks(project):
    """Records of blocks of runs with the time at which they were written."""
    paths = project.folder.glob(f"results/{TIER}/runs/{KEY}/*/record.json")
    return {path.parent.name: path.stat().st_mtime_ns for path in paths}


def test_runs_are_added_until_the_claim_is_decided_also_after_an_interruption(project):
    refused = command(project, "--hours", "1")
    assert refused.returncode == 2 and "a tier that has run" in refused.stderr
    target = f"results/{TIER}/claims.csv"
    result = project.snakemake("--configfile", CONFIG, "--", target)
    assert result.returncode == 0, result.stdout + result.stderr
    first, before = claim(project), blocks(project)
    assert (first["verdict"], first["look"], len(before)) == ("inconclusive", "12", 2)
    assert int(first["runs_to_decide"]) > 12 and float(first["cpu_s_to_decide"]) > 0

    # A millionth of an hour suffices for nothing.
    assert "no inconclusive claim is left" in command(project, "--hours", "1e-6").stdout
    assert blocks(project) == before

    process = subprocess.Popen(
        [sys.executable, "-m", "dpatlas", "decide", "--hours", "1", "--configfile", CONFIG],
        cwd=project.folder,
        env=project.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # Tests that run in the background of a shell inherit a Ctrl-C that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    more_runs = project.folder / "results" / TIER / "more_runs.json"
    logs = project.folder / "results" / TIER / "logs"
    known = set(logs.glob(f"{KEY}_*/*"))
    deadline = time.monotonic() + 120
    # Until a job of the first round runs.
    while not set(logs.glob(f"{KEY}_*/*")) - known:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    assert json.loads(more_runs.read_text())
    # What a terminal does on Ctrl-C.
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) in (1, 130)
    # Snakemake removes what a job that it stopped was to write.
    (project.folder / target).unlink(missing_ok=True)
    project.snakemake("--configfile", CONFIG, "--unlock")

    result = command(project, "--hours", "1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "inconclusive -> reproduced" in result.stdout
    last, after = claim(project), blocks(project)
    assert last["verdict"] == "reproduced"
    assert int(last["runs"]) == int(last["look"]) == 6 * len(after) > 12
    # Earlier blocks were not run again.
    assert {name: after[name] for name in before} == before
    assert list(json.loads(more_runs.read_text()).values()) == [6 * len(after)]
