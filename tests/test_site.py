"""The site of `make docs`, its notebooks, and every command that a document shows."""

import functools
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dpatlas.cli import COMMANDS

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
# What they show is run here whole; of other pages, commands are read against what is there.
RUN_WHOLE = ("start", "audit", "certify", "training")
PAGES = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    *DOCS.glob("*.md"),
    *(PROJECT / "src" / "dpatlas").glob("papers/*/README.md"),
]
BUILDER = PROJECT / ".venv-docs" / "bin" / "python"
# In words that stand for something: a reader puts their own there.
PLACEHOLDER = re.compile(r"^[A-Z]+$|[<>…]|\.\.\.")


def blocks(text, *languages):
    """Code blocks of these languages; "" is an indented one."""
    found = [
        body
        for language, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)
        if language in languages
    ]
    if "" in languages:
        found += re.findall(
            r"(?:^\n)((?:^    \S.*\n?)+)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M
        )
    return found


def commands(path):
    """Command lines of a page: in blocks of a shell, and in tables and text."""
    text = path.read_text(encoding="utf-8")
    lines = []
    for body in blocks(text, "console", "sh", "bash", ""):
        shell = "$ " in body
        for line in body.replace("\\\n", " ").splitlines():
            line = line.strip()
            if not shell or line.startswith("$ "):
                lines.append(line.removeprefix("$ "))
    lines += re.findall(r"`((?:python -m dpatlas|snakemake) [^`\n]+)`", text)
    return [line for line in lines if re.match(r"(python -m dpatlas|snakemake|make)\b", line)]


SHOWN = sorted({(path, line) for path in PAGES for line in commands(path)})


@functools.cache
def help_of(command):
    done = subprocess.run(
        [sys.executable, "-m", "dpatlas", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def words_of(line):
    """The words of a command up to a pipe, without comments; brackets mark what is optional."""
    return shlex.split(
        re.split(r"\s[|>&;]", line)[0].replace("[", "").replace("]", ""), comments=True
    )


def test_documents_show_commands():
    assert len(SHOWN) > 60


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_that_a_document_shows_is_there(command):
    shown = [
        (path.name, word.split("=")[0], line)
        for path, line in SHOWN
        for words in [words_of(line)]
        if words[:4] == ["python", "-m", "dpatlas", command]
        for word in words[4:]
        if word.startswith("--")
    ]
    for name, option, line in shown:
        assert option in help_of(command), (name, line)


def test_every_target_and_file_that_a_document_shows_is_there():
    make = (PROJECT / "Makefile").read_text()
    for path, line in SHOWN:
        words = words_of(line)
        if words[0] == "make":
            targets = [
                word for word in words[1:] if "=" not in word and not PLACEHOLDER.search(word)
            ]
            for target in targets:
                assert re.search(rf"^{target}:", make, re.M), (path.name, line)
        if words[:3] == ["python", "-m", "dpatlas"]:
            assert words[3] in COMMANDS or PLACEHOLDER.search(words[3]), (path.name, line)
        for tier in re.findall(r"workflow/\S+\.yaml", line):
            assert (PROJECT / tier).is_file() or "{" in tier, (path.name, line)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN_WHOLE)
def test_what_the_short_pages_show_runs(name, tmp_path):
    page = DOCS / f"{name}.md"
    for line in commands(page):
        words = words_of(line)
        if words[0] == "make":
            continue
        if words[0] == "snakemake":
            assert "-n" in words, "only a dry run is short"
        if words[:2] == ["python", "-m"]:
            words = [sys.executable, *words[1:]]
        else:
            words = [str(Path(sys.executable).parent / words[0]), *words[1:]]
        folder = PROJECT if "snakemake" in words[0] else tmp_path
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr[-800:])
    for snippet in blocks(page.read_text(), "python"):
        command = [sys.executable, "-c", snippet]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout, done.stderr
        assert name != "training" or done.stdout == "True\n"


def tool(name):
    found = importlib.util.spec_from_file_location(name, PROJECT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 3 and all(cell["outputs"] for cell in cells)
    assert tool("run_notebooks").executed(content) == content


def test_the_notebook_s_links_lead_to_files():
    for path in NOTEBOOKS:
        text = "".join(
            line
            for cell in json.loads(path.read_text())["cells"]
            if cell["cell_type"] == "markdown"
            for line in cell["source"]
        )
        links = re.findall(r"\]\(([^)#]+)", text)
        assert links and all((path.parent / link).is_file() for link in links)


def test_the_site_asks_no_other_machine_for_anything():
    theme = yaml.safe_load((PROJECT / "mkdocs.yml").read_text())
    assert theme["theme"]["font"] is False
    assert not {"repo_url", "extra_javascript", "extra_css"} & theme.keys()


@pytest.mark.slow
@pytest.mark.skipif(not BUILDER.exists(), reason="make docs installs its packages")
def test_the_site_builds_without_a_warning_and_every_page_is_whole(tmp_path):
    built = tmp_path / "site"
    done = subprocess.run(
        [BUILDER, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", built],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", text)
        asked = [tag for tag in tags if re.search(r'(?:src|href)="(?:https?:)?//', tag)]
        assert not asked, page
    for style in built.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?https?:", style.read_text()), style
    start = (built / "index.html").read_text(encoding="utf-8")
    assert "Five papers on differential privacy" in start
    assert (built / "all-results.html").read_bytes() == (DOCS / "index.html").read_bytes()
    for key in ("kl_privacy", "dp_sgld", "feature_learning", "lp_fft", "max_information"):
        assert f"papers/{key}/index.html" in start
    reference = (built / "reference.html").read_text(encoding="utf-8")
    for name in re.findall(r"^::: (\S+)", (DOCS / "reference.md").read_text(), re.M):
        assert f'id="{name}"' in reference, name
    shown = (built / "notebooks" / "counterexample.html").read_text(encoding="utf-8")
    assert "3.24e+03" in shown
