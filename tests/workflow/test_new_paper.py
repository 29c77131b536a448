"""A sixth paper is one folder and its tests: nothing else has to be edited."""

import shutil

import pytest
import yaml
from checkouts import PROJECT

from dpatlas.registry import all_blocks

pytestmark = [pytest.mark.smoke, pytest.mark.slow]
KEY = "sixth_paper"
# What tests read beside a checkout's own parts.
MORE = (
    "tests",
    "docs",
    "README.md",
    "requirements.lock",
    "requirements.in",
    "Makefile",
    ".gitignore",
)
FOLDERS = (f"src/dpatlas/papers/{KEY}", f"tests/papers/{KEY}")
# What looks at every paper.
OVER_ALL = (
    "tests/contract",
    "tests/core/test_config_reference.py",
    "tests/report/test_errata.py",
    "tests/papers/test_catalogue.py",
    "tests/test_architecture.py",
    "tests/test_public_docstrings.py",
)


@pytest.fixture(scope="module")
def project(new_checkout):
    """A checkout with a new paper, in which only that paper is part of the tier `alone`."""
    checkout = new_checkout("sixth")
    for name in MORE:
        source, target = PROJECT / name, checkout.folder / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)
    checkout.run("git", "init", "-q")
    checkout.run("git", "add", "-A")
    result = checkout.python("-m", "dpatlas", "new-paper", KEY)
    assert result.returncode == 0, result.stderr
    others = {key: {"enabled": False} for key in all_blocks()}
    folder = checkout.folder / FOLDERS[0]
    smoke = yaml.safe_load((folder / "config.yaml").read_text())["smoke"]
    alone = {"tier": "alone", **others, KEY: smoke}
    (checkout.folder / "alone.yaml").write_text(yaml.safe_dump(alone))
    return checkout


def test_it_edits_no_other_file(project):
    changed = project.run("git", "status", "--porcelain").stdout.splitlines()
    created = {line[3:].rstrip("/") for line in changed if line.startswith("??")}
    assert created == {*FOLDERS, "alone.yaml"}
    assert {line[:2] for line in changed} == {"??", "A "}


def test_its_tier_runs_to_the_page_with_figure_claim_and_erratum(project):
    result = project.snakemake("--cores", "1", "--configfile", "alone.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    results = project.folder / "results" / "alone"
    page = (results / "report" / "index.html").read_text()
    for words in (f'id="{KEY}_error"', 'id="claim-sixthpaper-1"', "sixthpaper-large-epsilon"):
        assert words in page
    assert (results / "figures" / f"{KEY}_error.pdf").is_file()


def test_a_cluster_makes_its_job_and_its_figure(project):
    for profile in ("slurm", "cluster-generic"):
        flags = ("--configfile", "alone.yaml", "--workflow-profile", f"workflow/profiles/{profile}")
        planned = project.planned(f"{KEY}_error", "--forceall", *flags)
        assert planned == {f"{KEY}_release": 1, f"{KEY}_error": 1}


def test_its_own_tests_and_those_of_all_papers_pass(project):
    result = project.python("-m", "pytest", "-q", "-x", FOLDERS[1], *OVER_ALL)
    assert result.returncode == 0, result.stdout + result.stderr


def test_without_its_folders_nothing_of_it_is_left(project):
    for folder in FOLDERS:
        shutil.rmtree(project.folder / folder)
    listed = project.snakemake("--list").stdout
    assert KEY not in listed and "kl_vs_depth" in listed
