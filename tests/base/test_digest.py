"""Digests are taken of a small project of the test's own that contains the real digest module."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dpatlas
from dpatlas.base.digest import CACHE, code_digest
from dpatlas.errors import InputError

SOURCE = Path(dpatlas.__file__).parents[1]
BASE = ("base/__init__", "base/canonical", "base/digest", "base/files")
BORROWED = [f"dpatlas/{name}.py" for name in ("__init__", "errors", *BASE)]
MATHS = "dpatlas/maths"
MODULES = {
    "dpatlas_workflow/__init__.py": "",
    "dpatlas_workflow/run/__init__.py": "",
    "dpatlas_workflow/run/train.py": '''"""Train."""
from dpatlas.maths.formulas import step
from dpatlas.maths import tables

def main(x):
    """Run."""
    from dpatlas.maths.lazy import late
    return step(x) + late(x) + tables.ROWS
''',
    "dpatlas_workflow/run/plot.py": "import dpatlas.maths.tables\n\nCOLOUR = 'blue'\n",
    f"{MATHS}/__init__.py": "",
    f"{MATHS}/formulas.py": '''"""Formulas."""

def setting(sentence, **limits):
    return limits

RATE = setting("A rate.", gt=0)

def step(x):
    """One step."""
    # twice
    return 2 * x
''',
    f"{MATHS}/lazy.py": """from dpatlas.maths.deep import DEPTH

def late(x):
    return x - DEPTH
""",
    f"{MATHS}/deep.py": "DEPTH = 3\n",
    f"{MATHS}/tables.py": "ROWS = 4\nSLOW = 'dpatlas.maths.slow:table'\n",
    f"{MATHS}/slow.py": "def table():\n    return 5\n",
}
TRAIN, PLOT = "dpatlas_workflow.run.train", "dpatlas_workflow.run.plot"
REPORT = """
import json, sys
from dpatlas.base.digest import code_digest, remember_code
print(json.dumps([code_digest(name) for name in sys.argv[1:]]))
remember_code()
"""


def write_texts(folder, texts):
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


class Project:
    def __init__(self, folder):
        self.root = folder
        borrowed = {name: (SOURCE / name).read_text() for name in BORROWED}
        write_texts(folder, borrowed | MODULES)

    def edit(self, name, old, new):
        text = (self.root / name).read_text()
        assert old in text
        (self.root / name).write_text(text.replace(old, new))

    def digests(self, cache=""):
        """Digest of train and of plot, from a fresh process."""
        own = {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", REPORT, TRAIN, PLOT],
            env={**os.environ, **own, CACHE: str(cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("before")).digests()


def test_what_does_not_change_the_meaning_does_not_change_the_digest(project, before):
    """A comment, a docstring, the format, and the sentence of a field."""
    for old, new in (
        ("# twice", "# doubled, because the paper says so"),
        ('    """One step."""\n', ""),
        ("2 * x", "(2   *\n            x)"),
        ('"A rate.", gt', '"A step size "\n    "above 0.", gt'),
    ):
        project.edit(f"{MATHS}/formulas.py", old, new)
    assert project.digests() == before


@pytest.mark.parametrize(
    ("name", "old", "new", "users"),
    [
        ("formulas", "2 * x", "2.0 * x", {TRAIN}),
        ("formulas", "gt=0", "ge=0", {TRAIN}),
        # Imported in a function, and by an import.
        ("lazy", "x - DEPTH", "x + DEPTH", {TRAIN}),
        ("deep", "3", "4", {TRAIN}),
        # From a package, and the package.
        ("tables", "4", "5", {TRAIN, PLOT}),
        ("__init__", "", "SIDE_EFFECT = True\n", {TRAIN, PLOT}),
        # An entry point, and its text.
        ("slow", "5", "6", {TRAIN, PLOT}),
        ("tables", "slow:table", "slow:other", {TRAIN, PLOT}),
    ],
)
def test_an_edit_changes_all_who_import_it_in_any_way_and_nobody_else(
    project, before, name, old, new, users
):
    project.edit(f"{MATHS}/{name}.py", old, new)
    found = zip((TRAIN, PLOT), before, project.digests(), strict=True)
    assert {module for module, first, now in found if first != now} == users


def test_a_table_that_a_module_names_is_a_part_of_it(project):
    project.edit("dpatlas_workflow/run/plot.py", "'blue'", "'values.csv'")
    names = ("dpatlas_workflow/run/printed/values.csv", f"{MATHS}/values.csv")
    write_texts(project.root, dict.fromkeys(names, "a\n1\n"))
    found = project.digests()
    project.edit(f"{MATHS}/values.csv", "1", "2")
    assert project.digests() == found
    project.edit("dpatlas_workflow/run/printed/values.csv", "1", "2")
    train, plot = project.digests()
    assert train == found[0] and plot != found[1]


def test_what_is_remembered_gives_the_same_digests_and_hides_no_edit(project, before, tmp_path):
    cache = tmp_path / "cache"
    assert project.digests(cache) == project.digests(cache) == before
    project.edit(f"{MATHS}/deep.py", "3", "4")
    assert project.digests(cache) == project.digests() != before
    # An entry point that names nothing yet is looked for again.
    project.edit("dpatlas_workflow/run/plot.py", "'blue'", "'dpatlas.maths.new:name'")
    found = project.digests(cache)
    (project.root / f"{MATHS}/new.py").write_text("name = 1\n")
    after = project.digests(cache)
    assert (after[0], after[1]) == (found[0], project.digests()[1]) and after[1] != found[1]


def test_what_is_remembered_is_used_and_written_anew_if_damaged(project, before, tmp_path):
    project.digests(tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({key: ["0", *rest] for key, (_, *rest) in kept.items()}))
    assert project.digests(tmp_path / "cache") != before
    for damaged in ("", "[1]", '{"a": ["b"]}'):
        file.write_text(damaged)
        assert project.digests(tmp_path / "cache") == before
        assert json.loads(file.read_text()) == kept
    # A folder that cannot be made costs nothing but time.
    assert project.digests(file / "below") == before


def test_the_digest_never_runs_what_it_digests(project):
    project.edit(f"{MATHS}/formulas.py", "def step", "raise SystemExit('imported')\n\n\ndef step")
    assert project.digests()


def test_a_module_that_does_not_exist_is_refused():
    for name in ("dpatlas_workflow.papers.alchemy", "dpatlas_of_another_project"):
        with pytest.raises(InputError, match=name):
            code_digest(name)
