"""What the documents list is what there is: files, commands, figures, links."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dpatlas.cli import COMMANDS
from dpatlas.commands.claims import read_verdicts, summary
from dpatlas.commands.new_paper import ENDING, EXAMPLE
from dpatlas.config.atlas import PAPERS
from dpatlas.evidence.errata import read_errata
from dpatlas.registry import all_blocks

PROJECT = Path(__file__).parents[1]
DOCUMENTS = [
    *(PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(PROJECT / "docs").rglob("*.md"),
    *(PROJECT / "src" / "dpatlas").glob("papers/*/*.md"),
    *(PROJECT / "src" / "dpatlas").glob("checks/*/*.md"),
]
README = (PROJECT / "README.md").read_text()
ARCHITECTURE, COMMANDS_PAGE, EXTENDING, FIGURES = (
    (PROJECT / "docs" / f"{name}.md").read_text()
    for name in ("architecture", "commands", "extending", "figures")
)


def first_cells(text):
    """The names in code of the first cell of every row of every table."""
    rows = re.findall(r"^\| (.*?) \|", text, re.M)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_links_lead_to_files_and_headings(path):
    for link, heading in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", path.read_text()):
        target = path.parent / link if link else path
        assert link.startswith("https://") or target.exists(), link
        assert not heading or heading in headings(target.read_text()), heading


def headings(text):
    """Anchors of the headings of a page, as GitHub forms them of plain words."""
    found = re.findall(r"^#+ (.*)", text, re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


def test_the_walk_through_a_new_paper_lists_every_file_of_it():
    files = {
        str(path.relative_to(EXAMPLE / part)).removesuffix(ENDING).replace("@NAME@", "my_paper")
        for part in ("paper", "tests")
        for path in (EXAMPLE / part).rglob(f"*{ENDING}")
    }
    written = {file.replace("@KEY@", "my_paper") for file in files if "__init__" not in file}
    assert first_cells(EXTENDING) == written | {"configuration.md", "errata.md"}


def test_paths_in_the_walk_exist():
    for path in re.findall(r"`((?:src/dpatlas|tests)/[a-z_/.]+)`", EXTENDING):
        assert (PROJECT / path).exists() or "my_paper" in path, path


def test_every_command_is_listed_and_no_other():
    listed = re.findall(r"^\| `python -m dpatlas ([a-z-]+)", COMMANDS_PAGE, re.M)
    assert set(listed) == set(COMMANDS)


def test_every_figure_and_table_is_listed_by_the_page_of_figures_or_its_block():
    for block in all_blocks().values():
        path = block.folder / "README.md"
        text = FIGURES + (path.read_text() if path.is_file() else "")
        for product in block.load("products").PRODUCTS:
            assert f"`{product.name}`" in text, product.name


def test_the_architecture_says_where_to_find_things():
    table = ARCHITECTURE.partition("| to find | look in |")[2].partition("\n\n")[0]
    for path in re.findall(r"`((?:papers|jobs|figures)/[a-z_/.]+)`", table):
        folder = "src/dpatlas" if path.startswith("papers") else "src/dpatlas/papers/lp_fft"
        assert (PROJECT / folder / path).exists(), path


def test_the_readme_is_short_and_names_every_paper():
    assert len(README.splitlines()) <= 120
    assert set(re.findall(r"src/dpatlas/papers/(\w+)/README", README)) == set(PAPERS)


def test_what_was_found_is_said_in_one_sentence_of_at_most_25_words():
    for found in re.findall(r"^\| \[.*README\.md\).*\| (.*) \|$", README, re.M):
        assert len(found.split()) <= 25, found


def test_the_commands_of_the_readme_print_what_it_says():
    """In what is pasted, three dots stand for anything."""
    (block,) = re.findall(r"```console\n(.*?)```", README, re.S)
    for command, *pasted in (part.splitlines() for part in block.split("$ python -m ")[1:]):
        shown = subprocess.run(
            [sys.executable, "-m", *command.split()],
            cwd=PROJECT,
            env={**os.environ, "COLUMNS": "100"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert 1 <= len(pasted) <= 4
        for line in pasted:
            pattern = ".*".join(re.escape(part) for part in line.split("..."))
            assert re.search(f"^{pattern}$", shown, re.M), line


def test_corrections_of_the_readme_are_errata_with_these_tests():
    rows = re.findall(r"^\| (\w+), (.*?) \|.*\[`(test_\w+)`\]\((.*?)\)", README, re.M)
    assert len(rows) == 3
    for paper, _, test, path in rows:
        shown = [f"{path}::{test}" in entry.shown_by for entry in read_errata()[paper]]
        assert any(shown), test


def test_claims_and_their_parts_are_counted_as_published():
    rows = read_verdicts(PROJECT / "docs" / "results" / "embedded")
    claims = {re.match(r"\w+-\d+", row["claim"])[0] for row in rows}
    parts = sum(int(count) for count in re.findall(r"\d+", summary(rows).splitlines()[-1]))
    for text in (README, FIGURES):
        assert f"{len(claims)} claims with {parts} parts" in text
