"""A sixth paper is one folder and its tests: nothing else has to be edited."""

import re
import shutil

import pytest
import yaml
from checkouts import PROJECT

from dpatlas.cli import dispatch
from dpatlas.errors import InputError
from dpatlas_workflow.registry import all_blocks

KEY = "sixth_paper"
# What tests read beside a checkout's own parts.
MORE = (
    "tests",
    "docs",
    "README.md",
    "requirements.lock",
    "requirements.in",
    "requirements-models.in",
    "Makefile",
    ".gitignore",
)
FOLDERS = (
    f"src/dpatlas_workflow/papers/{KEY}",
    f"tests/papers/{KEY}",
    f"src/dpatlas/formulas/{KEY}",
)
# What looks at every paper; of what goes through all products, keys and claims, the new one's.
THE_NEW = "sixth or not (test_every_product or test_every_setting or test_every_claim)"
OVER_ALL = (
    "tests/contract",
    "tests/base/test_config_reference.py",
    "tests/base/test_declared_memory.py",
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
    alone = {"tier": "alone", "seed": 0, **others, KEY: smoke}
    (checkout.folder / "alone.yaml").write_text(yaml.safe_dump(alone))
    return checkout


@pytest.mark.smoke
@pytest.mark.slow
def test_it_edits_no_other_file(project):
    changed = project.run("git", "status", "--porcelain").stdout.splitlines()
    created = {line[3:].rstrip("/") for line in changed if line.startswith("??")}
    assert created == {*FOLDERS, "alone.yaml"}
    assert {line[:2] for line in changed} == {"??", "A "}


@pytest.mark.smoke
@pytest.mark.slow
def test_its_tier_runs_to_the_page_with_figure_claim_and_erratum(project):
    result = project.snakemake("--cores", "1", "--configfile", "alone.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    results = project.folder / "results" / "alone"
    page = "".join((results / "report" / f"{name}.html").read_text() for name in ("index", KEY))
    for words in (f'id="{KEY}_error"', 'id="claim-sixthpaper-1"', "sixthpaper-large-epsilon"):
        assert words in page
    assert (results / "figures" / f"{KEY}_error.pdf").is_file()


@pytest.mark.smoke
@pytest.mark.slow
def test_its_own_tests_and_those_of_all_papers_pass(project):
    result = project.python("-m", "pytest", "-x", "-vv", FOLDERS[1], *OVER_ALL, "-k", THE_NEW)
    assert result.returncode == 0, result.stdout + result.stderr
    for name in (f"test_every_product.py::.*{KEY}", f"test_every_setting.py::.*{KEY}"):
        assert re.search(name, result.stdout), name
    assert re.search(r"test_every_claim.py::.*sixthpaper-1", result.stdout)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["Sixth"], "KEY: found 'Sixth'"),
        (["sixth-paper"], "KEY: found 'sixth-paper'"),
        (["a" * 25], "KEY: found"),
        (["kl_privacy", "--prefix", "other"], "KEY: found 'kl_privacy'"),
        (["kl"], "--prefix: found 'kl'"),
        (["sixth", "--prefix", "s1"], "--prefix: found 's1'"),
        (["7th"], "KEY: found '7th'"),
        (["class"], "KEY: found 'class'"),
        (["seed"], "KEY: found 'seed'"),
        # Its page would be that of the tier.
        (["index"], "KEY: found 'index'"),
    ],
)
def test_a_key_that_cannot_be_is_refused_and_nothing_is_written(words, named):
    before = sorted((PROJECT / "src" / "dpatlas_workflow" / "papers").iterdir())
    with pytest.raises(InputError) as caught:
        dispatch(["new-paper", *words])
    assert str(caught.value).startswith(named)
    assert sorted((PROJECT / "src" / "dpatlas_workflow" / "papers").iterdir()) == before
