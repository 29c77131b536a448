"""Every command line that a document shows is run, or a part of it, or by a test that is named."""

import re
import shlex
import shutil

import pytest
from checkouts import copy_project

from dpatlas.cli import dispatch, listed
from shown_commands import (
    DOCS,
    LEFT_TO,
    NEEDS_RUNS,
    PAGES,
    PROJECT,
    SHOWN,
    blocks,
    left_to,
    names_a_command,
    shorter,
    written_files,
)

LINES = dict.fromkeys(line for _, line in SHOWN)
TRIED = [shorter(line) for line in LINES if left_to(line) is None and not names_a_command(line)]
# One of those that differ in a time limit or in the number of cores alone.
ALIKE = re.compile("DPATLAS_JOB_TIMEOUT=90 | --cores [0-9]+")
RUN = dict.fromkeys({ALIKE.sub("", line): line for line in TRIED}.values())
# The snippets of a page are one program; those that begin with a file's name are files.
BODIES = {
    path: [body for body in blocks(path.read_text(), "python") if body[:2] != "# "]
    for path in PAGES
}
SNIPPETS = [(path, "\n".join(bodies)) for path, bodies in BODIES.items() if bodies]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the project, its pages and tools, with the files that pages give."""
    copy = copy_project(tmp_path_factory.mktemp("shown") / "dp-atlas")
    for name in ("docs", "tools"):
        shutil.copytree(PROJECT / name, copy.folder / name)
    for name in ("Makefile", "README.md"):
        shutil.copy(PROJECT / name, copy.folder)
    for path in PAGES:
        for name, content in written_files(path).items():
            (copy.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (copy.folder / name).write_text(content)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("line", RUN)
def test_what_a_document_shows_runs(checkout, line):
    words = shlex.split(line.replace("DPATLAS_JOB_TIMEOUT=90 ", ""))
    if words[0] == "snakemake":
        done = checkout.snakemake(*words[1:])
    elif words[0] == "make":
        done = checkout.run(*words)
    else:
        module = words[words.index("dpatlas") + 1 :] if "dpatlas" in words else None
        rest = words[1:] if module is None else ["-m", "dpatlas", *module]
        done = checkout.python(*rest)
    expected = 2 if line in NEEDS_RUNS else 0
    assert done.returncode == expected, done.stdout[-800:] + done.stderr[-800:]
    assert done.stdout + done.stderr
    assert expected == 0 or len(re.findall("^dpatlas: ", done.stderr, re.M)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("path", "snippet"), SNIPPETS, ids=[path.stem for path, _ in SNIPPETS])
def test_the_python_that_a_document_shows_runs(checkout, path, snippet):
    for package in re.findall(r"^(?:import|from) (timm|transformers|peft)\b", snippet, re.M):
        # Of requirements-models.lock, which nothing else needs.
        pytest.importorskip(package)
    done = checkout.python("-c", snippet)
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout or "print" not in snippet


def test_documents_show_many_commands():
    assert len(LINES) > 80 and len(RUN) > 45
    programs = {re.sub(r"^python -m |^[A-Z_]+=\S+ ", "", line).split()[0] for line in RUN}
    assert programs == {"dpatlas", "snakemake", "make"} and RUN.keys() >= NEEDS_RUNS.keys()


def test_a_command_that_is_only_named_is_shown_with_arguments_too():
    for line in filter(names_a_command, LINES):
        name = line.split()[-1]
        assert any(re.search(rf"dpatlas {name} .", other) for other in LINES), line


@pytest.mark.parametrize(("pattern", "test"), [entry[:2] for entry in LEFT_TO])
def test_what_is_left_to_another_test_is_shown_and_that_test_runs_such_a_command(pattern, test):
    assert any(re.search(pattern, line) for line in LINES)
    word = re.findall(r"[A-Za-z_]{4,}", pattern)[-1].lower().split("_")[-1]
    assert word in (PROJECT / "tests" / test).read_text().lower()


@pytest.mark.parametrize("command", listed())
def test_the_options_of_what_is_left_to_another_test_are_there(command, capsys):
    lines = [line for line in LINES if left_to(line) and re.search(rf"dpatlas {command}\b", line)]
    options = {word for line in lines for word in re.findall(r"--[a-z-]+", line)}
    if options:
        with pytest.raises(SystemExit):
            dispatch([command, "--help"])
        assert options <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))


def test_a_here_document_is_written_as_a_shell_would():
    text = written_files(DOCS / "commands.md")["mine.yaml"]
    assert text.startswith("tier: mine\n") and text.endswith("]}\n")


def test_make_knows_every_target_that_a_document_shows():
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.M)
    for line in LINES:
        if line.split()[0] == "make":
            assert {word for word in line.split()[1:] if "=" not in word} <= set(targets), line
