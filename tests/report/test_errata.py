import ast
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest
import yaml

from dpatlas.config.atlas import PAPERS, Atlas
from dpatlas.config.load import load_tier
from dpatlas.errors import InputError, run_command
from dpatlas.evidence.errata import MEANINGS, Status, document, main, read_errata

PROJECT = Path(__file__).resolve().parents[2]
COMMITTED = PROJECT / "workflow" / "errata.yaml"


@pytest.fixture(scope="module")
def errata():
    return read_errata(COMMITTED)


def test_every_erratum_names_tests_that_exist(errata):
    named = defaultdict(set)
    for erratum in errata:
        for test in erratum.shown_by:
            path, _, function = test.partition("::")
            named[path].add(function)
    for path, functions in named.items():
        tree = ast.parse((PROJECT / path).read_text())
        known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert functions <= known, path


def test_every_test_that_an_erratum_names_asserts_something(errata):
    for test in {test for erratum in errata for test in erratum.shown_by}:
        path, _, function = test.partition("::")
        tree = ast.parse((PROJECT / path).read_text())
        (node,) = (each for each in tree.body if getattr(each, "name", None) == function)
        said = ast.unparse(node)
        assert "assert" in said or "raises(" in said, test
        assert not any("skip" in ast.unparse(mark) for mark in node.decorator_list), test


def test_every_test_that_shows_an_erratum_is_named_by_one(errata):
    named = {test for erratum in errata for test in erratum.shown_by}
    for path in (PROJECT / "tests").glob("*/test_*_errata*.py"):
        assert any(path.name in test for test in named), path.name


def test_the_table_at_the_top_counts_every_entry_once(errata):
    head = document(errata).partition("\n## ")[0].splitlines()
    names, _, *rows = [line.strip("| ").split(" | ") for line in head if line.startswith("|")]
    papers = names[2:-1]
    assert papers == list(PAPERS)
    for status, row in zip(MEANINGS, rows[:-1], strict=True):
        of_status = [each.paper for each in errata if each.status == status]
        assert row[0] == status
        assert row[2:] == [str(of_status.count(paper)) for paper in papers] + [str(len(of_status))]
    assert rows[-1][-1] == str(len(errata))


def test_every_erratum_names_figures_and_tables_that_rules_make(errata):
    atlas = Atlas(load_tier("embedded"))
    products = {*atlas.figures, *atlas.tables}
    assert {name for erratum in errata for name in erratum.products} <= products


def test_every_paper_has_errata_and_every_status_a_meaning(errata):
    assert [*dict.fromkeys(erratum.paper for erratum in errata)] == list(PAPERS)
    assert get_args(Status) == tuple(MEANINGS)


def test_the_committed_document_is_made_of_the_committed_data(errata):
    made = "make it again: python -m dpatlas.evidence.errata --output docs/errata.md"
    assert (PROJECT / "docs" / "errata.md").read_text() == document(errata), made


def test_the_document_has_every_entry_and_links_that_lead_to_files(errata):
    text = document(errata)
    for erratum in errata:
        assert f"### {erratum.place}: {erratum.said}\n" in text
        assert erratum.status in erratum.said
        for part in (erratum.printed, erratum.corrected, erratum.consequence):
            assert part in text
        for test in erratum.shown_by:
            assert (PROJECT / "docs" / f"../{test.partition('::')[0]}").is_file()


def small(**changes):
    fields = {
        "id": "kl-a",
        "paper": "kl_privacy",
        "place": "Eq. 6",
        "status": "proved",
        "printed": "one",
        "corrected": "two",
        "consequence": "none",
        "shown_by": ["tests/bounds/test_x.py::test_y"],
    } | changes
    return {key: value for key, value in fields.items() if value is not None}


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ([small(status="wrong")], "wrong"),
        ([small(paper="other")], "other"),
        ([small(shown_by=["../x.py::test_y"])], "x.py"),
        ([small(shown_by=[])], "shown_by"),
        ([small(printed=None)], "printed"),
        ([small(note="more")], "note"),
        ([small(), small(id="kl-b"), small()], "kl-a twice"),
    ],
)
def test_bad_errata_are_refused_in_one_line(tmp_path, capsys, entries, named):
    path = tmp_path / "errata.yaml"
    path.write_text(yaml.safe_dump({"errata": entries}))
    with pytest.raises(InputError, match=named):
        read_errata(path)
    words = ["--errata", str(path), "--output", str(tmp_path / "e.md")]
    assert run_command(main, words) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "e.md").exists()
