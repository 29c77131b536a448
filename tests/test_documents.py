"""What the documents list is what there is: files, commands, figures, links."""

import math
import re
from pathlib import Path

import pytest
import yaml

import dpatlas
import dpatlas.audit
import dpatlas.privacy
from dpatlas.base.files import read_rows
from dpatlas.cli import dispatch
from dpatlas.cli import listed as listed_commands
from dpatlas_workflow.commands.claims import read_verdicts
from dpatlas_workflow.commands.new_paper import ENDING, EXAMPLE
from dpatlas_workflow.config.atlas import PAPERS
from dpatlas_workflow.config.products import products_of
from dpatlas_workflow.registry import all_blocks, all_papers

PROJECT = Path(__file__).parents[1]
DOCUMENTS = [
    *(PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(PROJECT / "docs").rglob("*.md"),
    *(PROJECT / "src" / "dpatlas_workflow").glob("papers/*/*.md"),
    *(PROJECT / "src" / "dpatlas_workflow").glob("checks/*/*.md"),
]
README = (PROJECT / "README.md").read_text()
ARCHITECTURE, CITE, COMMANDS_PAGE, EXTENDING, FIGURES = (
    (PROJECT / "docs" / f"{name}.md").read_text()
    for name in ("architecture", "cite", "commands", "extending", "figures")
)
RESULTS = PROJECT / "docs" / "results"
# Certificates on MNIST: less than with a prior that is independent, and with one of noise alone.
GAINS = ("maxinf-3", "maxinf-15")


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
        str(path.relative_to(EXAMPLE if part == "formulas" else EXAMPLE / part))
        .removesuffix(ENDING)
        .replace("@NAME@", "my_paper")
        for part in ("paper", "formulas", "tests")
        for path in (EXAMPLE / part).rglob(f"*{ENDING}")
    }
    written = {file.replace("@KEY@", "my_paper") for file in files if "__init__" not in file}
    assert first_cells(EXTENDING) == written | {"configuration.md", "errata.md"}


def test_every_command_is_listed_and_no_other():
    listed = re.findall(r"^\| `python -m dpatlas ([a-z-]+)", COMMANDS_PAGE, re.M)
    assert set(listed) == set(listed_commands())


def test_every_figure_and_table_is_listed_by_the_page_of_figures_or_its_block():
    for block in all_blocks().values():
        path = block.folder / "README.md"
        text = FIGURES + (path.read_text() if path.is_file() else "")
        for product in products_of(block):
            assert f"`{product.name}`" in text, product.name


def test_the_reference_has_every_public_name():
    reference = (PROJECT / "docs" / "reference.md").read_text()
    for package in (dpatlas.audit, dpatlas.privacy):
        for module, names in package.MODULES.items():
            for name in names:
                assert f"::: {module}.{name}\n" in reference, name


def test_pages_say_where_to_find_things():
    for path in re.findall(r"`((?:src/dpatlas|src/dpatlas_workflow|tests)/[a-z_/.]+)`", EXTENDING):
        assert (PROJECT / path).exists() or "my_paper" in path, path
    table = ARCHITECTURE.partition("| to find | look in |")[2].partition("\n\n")[0]
    for path in re.findall(r"`((?:formulas|papers|jobs|figures)/[a-z_/.]+)`", table):
        rooms = {"formulas": "dpatlas", "papers": "dpatlas_workflow"}
        room = rooms.get(path.partition("/")[0], "dpatlas_workflow/papers/lp_fft")
        assert (PROJECT / "src" / room / path).exists(), path


def test_the_readme_takes_two_minutes_and_names_every_paper_with_its_link():
    assert len(README.split()) <= 600
    linked = (
        r"\[(\w+)\]\(src/dpatlas_workflow/papers/\1/README\.md\) \| .*\[(.*?)\]\((https://.*?)\)"
    )
    papers = {key: (title, link) for key, title, link in re.findall(linked, README)}
    assert papers.keys() == set(PAPERS)
    for key, (title, link) in papers.items():
        # Where it was read, up to the version.
        page = (all_blocks()[key].folder / "README.md").read_text()
        assert title in " ".join(page.split()) and re.sub(r"v\d$", "", link) in page, key


def test_titles_are_the_same_wherever_a_paper_is_cited():
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    assert citation["version"] == dpatlas.__version__
    references = citation["references"]
    cited = {each["notes"].split(";")[0].removeprefix("key "): each for each in references}
    assert list(cited) == list(all_papers())
    bibtex = dict(re.findall(r"^@\w+\{(\w+),\n +title += \{(.*?)\},", CITE, re.M))
    assert bibtex == {key: each["title"] for key, each in cited.items()}
    for key, title in bibtex.items():
        assert f"[{title}](" in README and all_blocks()[key].title.startswith(title)
        authors = re.search(rf"\{{{key},.*?author += \{{(.*?)\}}", CITE, re.S)[1].split(" and ")
        names = [f"{each['family-names']}, {each['given-names']}" for each in cited[key]["authors"]]
        assert authors == names


@pytest.mark.parametrize("text", [README, COMMANDS_PAGE], ids=["readme", "commands"])
def test_the_commands_with_output_print_what_is_pasted(text, result_of, monkeypatch):
    """Lines of it, in their order; in a line three dots stand for anything."""
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("COLUMNS", "100")
    (block,) = re.findall(r"```console\n(.*?)```", text, re.S)
    shown = [part.splitlines() for part in block.removeprefix("$ ").split("\n$ ")]
    ours = [part for part in shown if re.match("(python -m )?dpatlas ", part[0])]
    assert ours and all(1 <= len(pasted) <= 4 for _, *pasted in ours)
    for command, *pasted in ours:
        words = command.removeprefix("python -m ").split()[1:]
        code, printed, error = result_of(dispatch, *words)
        # 1 says that a claim is not guaranteed.
        assert code == int("NOT GUARANTEED" in printed), error
        lines = (".*".join(map(re.escape, line.split("..."))) for line in pasted)
        assert re.search("^" + "$(.|\n)*^".join(lines) + "$", printed, re.M), pasted


def test_the_findings_of_the_readme_are_the_published_numbers():
    found = README.partition("## Three findings")[2].partition("\n\n[")[0]
    divergence, steps, gain = " ".join(found.split()).split("- ")[1:]

    def observed(tier):
        return {row["claim"]: row["observed"] for row in read_rows(RESULTS / tier / "claims.csv")}

    largest = math.exp(float(observed("embedded")["sgld-7a"]))
    assert f"up to {float(f'{largest:.2g}'):,.0f} times the claimed one" in divergence
    rows = read_rows(next((RESULTS / "embedded").rglob("sgld_published.csv")))
    epsilons = [float(row["claimed_steps"]) for row in rows if row["claimed_steps"]]
    assert f"gives {min(epsilons):.1f} to {max(epsilons):.1f} " in steps
    mnist = {claim: f"{float(observed('workstation')[claim]):.3f}" for claim in GAINS}
    assert f"by {mnist['maxinf-3']}, of which {mnist['maxinf-15']} come from the data" in gain


def test_a_picture_is_there_and_shows_every_paper():
    shown = re.findall(r"!\[.*?\]\((docs/results/embedded/(?:\w+/)?figures/(\w+)\.png)\)", README)
    assert len(shown) == len({name for _, name in shown}) == 7
    assert all((PROJECT / path).is_file() for path, _ in shown)
    keys = {
        key
        for key, block in all_blocks().items()
        for product in products_of(block)
        if product.name in {name for _, name in shown}
    }
    assert keys == set(PAPERS)


def test_claims_are_counted_as_published():
    rows = read_verdicts(PROJECT / "docs" / "results" / "embedded")
    claims = {re.match(r"\w+-\d+", row["claim"])[0] for row in rows}
    assert f"the embedded tier: {len(claims)} claims." in FIGURES
