"""`make first`: one exact result, of the same jobs as the whole run."""

import math
import re
import shutil

import pytest
from checkouts import PROJECT, SMOKE

from dpatlas.base.files import read_rows
from dpatlas_workflow.papers.dp_sgld.claims import FINDINGS

pytestmark = pytest.mark.smoke
# The smoke tier's settings with verdicts: what is exact has one of so small a scan too.
JUDGED = ("--configfile", SMOKE, "--config", "tier=quick", "verdicts=True")
JOBS = {"dp_sgld_counterexample": 1, "sgld_counterexample": 1, "first": 1}


def test_a_first_result_waits_for_its_own_three_jobs(checkout):
    assert checkout.planned("first") == JOBS


@pytest.mark.slow
def test_a_first_result_is_tested_judged_and_told_and_the_whole_run_takes_its_jobs_over(fresh):
    shutil.copytree(PROJECT / "tests", fresh.folder / "tests")
    assert fresh.snakemake("first", *JUDGED).returncode == 0
    folder = fresh.folder / "results/quick"
    rows = {row["claim"]: row for row in read_rows(folder / "first/claims.csv")}
    assert rows.keys() == {"sgld-7a", "sgld-7b", "sgld-7c", "sgld-7"}
    assert rows["sgld-7a"]["verdict"] == rows["sgld-7c"]["verdict"] == "reproduced"
    found, verdict, figure = (folder / "first/finding.txt").read_text().splitlines()
    times, _ = re.findall(r"up to ([\d,]+) times", found)
    assert int(times) == round(math.exp(float(rows["sgld-7a"]["observed"])))
    assert verdict.endswith(f": {rows['sgld-7']['verdict']}; 5 tests passed")
    assert (fresh.folder / figure.removeprefix("figure: ")).is_file()
    assert not (folder / "claims.csv").exists()
    assert not JOBS.keys() & fresh.planned(*JUDGED).keys()
    tests = fresh.folder / "tests/papers/dp_sgld/test_dp_sgld_errata.py"
    tests.write_text(tests.read_text().replace("def test_theorem_3_2_holds", "def test_another"))
    failed = fresh.snakemake("first", *JUDGED, "--forcerun", "first")
    assert failed.returncode == 1 and "a test of sgld-7 fails" in failed.stdout + failed.stderr
    assert not (folder / "first/finding.txt").exists()


def test_the_sentence_has_the_published_numbers():
    rows = read_rows(PROJECT / "docs/results/embedded/claims.csv")
    observed = {row["claim"]: row["observed"] for row in rows}
    found = FINDINGS["sgld-7"]({part: float(observed[part]) for part in ("sgld-7a", "sgld-7b")})
    assert "up to 3,200 times what dp_sgld's Thm 3.2 claims" in found
