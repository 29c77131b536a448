"""What the documents list is what there is: files, commands, figures, links."""

import re
from pathlib import Path

import pytest

from dpatlas.cli import COMMANDS
from dpatlas.commands.new_paper import ENDING, EXAMPLE
from dpatlas.registry import all_blocks

PROJECT = Path(__file__).parents[1]
DOCUMENTS = [
    PROJECT / "README.md",
    *(PROJECT / "docs").glob("*.md"),
    *(PROJECT / "src" / "dpatlas").glob("papers/*/*.md"),
    *(PROJECT / "src" / "dpatlas").glob("checks/*/*.md"),
]
README, EXTENDING = ((PROJECT / name).read_text() for name in ("README.md", "docs/extending.md"))


def first_cells(text):
    """The names in code of the first cell of every row of every table."""
    rows = re.findall(r"^\| (.*?) \|", text, re.M)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_links_lead_to_files(path):
    for link in re.findall(r"\]\(([^)#]+)", path.read_text()):
        assert link.startswith("https://") or (path.parent / link).exists(), link


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


def test_the_readme_lists_every_command_and_no_other():
    listed = re.findall(r"^\| `python -m dpatlas ([a-z-]+)", README, re.M)
    assert set(listed) == set(COMMANDS)


def test_every_figure_and_table_is_listed_by_the_readme_of_the_project_or_its_block():
    for block in all_blocks().values():
        path = block.folder / "README.md"
        text = README + (path.read_text() if path.is_file() else "")
        for product in block.load("products").PRODUCTS:
            assert f"`{product.name}`" in text, product.name


def test_the_readme_says_where_to_find_things():
    table = README.partition("| to find | look in |")[2].partition("\n\n")[0]
    for path in re.findall(r"`((?:papers|jobs|figures)/[a-z_/.]+)`", table):
        folder = "src/dpatlas" if path.startswith("papers") else "src/dpatlas/papers/lp_fft"
        assert (PROJECT / folder / path).exists(), path
