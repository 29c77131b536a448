import ast
import functools
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from latex2mathml.converter import convert
from markupsafe import Markup
from tier_atlases import atlas_of

from dpatlas.errors import InputError
from dpatlas_workflow.evidence.claims import read_claims
from dpatlas_workflow.evidence.errata import MADE_BY, MEANINGS, Status, read_errata, written

PROJECT = Path(__file__).resolve().parents[2]
# As GitHub takes it: after a space or a bracket, and before no letter or digit.
FORMULA = re.compile(r"(?<![^\s(])\$(?!\s)([^$]+)(?<!\s)\$(?!\w)")
# What Markdown takes for its own before TeX is read, such as \, and }_ and *.
MARKDOWN = re.compile(r"\\[^A-Za-z]|[^\w\s{]_|\*|\]\(|<\S")


BY_PAPER = read_errata()
ERRATA = [erratum for entries in BY_PAPER.values() for erratum in entries]
SHOWN_BY = {test for erratum in ERRATA for test in erratum.shown_by}


@functools.cache
def parsed(path):
    return ast.parse((PROJECT / path).read_text())


def test_every_test_that_an_erratum_names_asserts_something():
    for test in SHOWN_BY:
        path, _, function = test.partition("::")
        tree = parsed(path)
        (node,) = (each for each in tree.body if getattr(each, "name", None) == function)
        said = ast.unparse(node)
        assert "assert" in said or "raises(" in said, test
        assert not any("skip" in ast.unparse(mark) for mark in node.decorator_list), test


def test_every_test_that_shows_an_erratum_is_named_by_one():
    paths = [*(PROJECT / "tests").glob("papers/*/test_*_errata*.py")]
    assert paths and not [path for path in paths if not any(path.name in test for test in SHOWN_BY)]


def test_every_erratum_names_figures_and_tables_that_rules_make():
    products = atlas_of("embedded").products
    assert {name for erratum in ERRATA for name in erratum.products} <= set(products)


def test_every_erratum_names_claims_of_its_own_paper():
    claims = {claim.id: claim.paper for claim in read_claims().claims}
    for paper, errata_of_it in BY_PAPER.items():
        named = {name for erratum in errata_of_it for name in erratum.claims}
        assert {claims[name] for name in named} <= {paper}


def test_every_status_has_a_meaning_in_the_document_of_all():
    assert get_args(Status) == tuple(MEANINGS)
    text = (PROJECT / "docs" / "errata.md").read_text()
    assert all(f"| {status} | {meaning} |" in text for status, meaning in MEANINGS.items())


def test_the_committed_documents_are_made_of_the_committed_data():
    for path, text in written().items():
        assert path.read_text() == text, f"make it again: {MADE_BY}"


def test_every_formula_is_drawn_on_the_page_and_by_github_and_headlines_are_short():
    for erratum in ERRATA:
        parts = (erratum.derivation, erratum.consequence, erratum.would_change)
        for text in (erratum.printed, erratum.corrected, *parts):
            formulas = FORMULA.findall(text)
            assert text.count("$") == 2 * len(formulas), (erratum.id, text)
            for tex in formulas:
                assert not MARKDOWN.search(tex), (erratum.id, tex)
                # A command that latex2mathml does not know stays as it is.
                assert "\\" not in convert(tex), (erratum.id, tex)
        headline = Markup(FORMULA.sub(lambda found: convert(found[1]), erratum.corrected))
        assert len(headline.striptags()) <= 220, erratum.id


def small(**changes):
    fields = {
        "id": "kl-a",
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
        ([small(shown_by=["../x.py::test_y"])], "x.py"),
        ([small(note="more")], "note"),
        ([small(), small(id="kl-b"), small()], "kl-a twice"),
    ],
)
def test_bad_errata_are_refused_by_name(tmp_path, entries, named):
    path = tmp_path / "errata.yaml"
    path.write_text(yaml.safe_dump({"errata": entries}))
    with pytest.raises(InputError, match=named):
        read_errata({"kl_privacy": path})
