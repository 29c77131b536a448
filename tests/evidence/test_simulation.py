"""The errors that docs/verdicts.md promises, on simulated papers judged by the code that judges."""

import functools
import math
import re
from pathlib import Path

import pytest
import verdict_rates
from verdict_rates import (
    BEGIN,
    DOCUMENT,
    EFFECTS,
    END,
    ENTRIES,
    KEEPING,
    LAWS,
    SHOWN,
    simulate,
)

from dpatlas_workflow.evidence.claims import FAMILY_ERROR
from dpatlas_workflow.evidence.looks import LOOKS

TEXT = (Path(__file__).resolve().parents[2] / DOCUMENT).read_text()
PAPERS = 200


@functools.cache
def documented():
    """By law and effect: wrong shares of entries, of papers and by the first look; right ones."""
    rows = TEXT.partition(BEGIN)[2].partition(END)[0].splitlines()[-len(LAWS) :]
    found = {}
    for row in rows:
        law, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        shares = [[float(share) / 100 for share in cell.split(", ")] for cell in cells]
        found |= {
            (law, effect): shares[2 * place : 2 * place + 2] for place, effect in enumerate(EFFECTS)
        }
    return found


def margin_of(share, number):
    """Four standard errors of a share, at least those of one success."""
    share = max(share, 1 / number)
    return 4 * math.sqrt(share * (1 - min(share, 0.999)) / number)


def test_the_table_has_every_law_and_effect():
    assert set(documented()) == {(law, effect) for law in LAWS for effect in EFFECTS}


@pytest.mark.slow
@pytest.mark.parametrize("law", KEEPING)
@pytest.mark.parametrize("effect", EFFECTS)
def test_where_t_intervals_cover_no_more_than_one_paper_in_twenty_has_a_wrong_verdict(law, effect):
    (_, wrong, _), _ = documented()[law, effect]
    assert wrong <= FAMILY_ERROR
    found = simulate(law, effect, PAPERS)
    assert found.wrong_papers <= FAMILY_ERROR + margin_of(FAMILY_ERROR, PAPERS)
    allowed = FAMILY_ERROR / ENTRIES
    assert found.wrong[-1] <= allowed + margin_of(allowed, PAPERS * ENTRIES)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("effect", EFFECTS)
def test_the_table_is_what_the_code_gives(law, effect):
    (entries, papers, early), right = documented()[law, effect]
    # Entries of a paper may depend on each other, so papers count.
    found = simulate(law, effect, PAPERS // 2)
    shares = (found.right[LOOKS.index(look)] for look in SHOWN)
    for shown, share in (
        (entries, found.wrong[-1]),
        (papers, found.wrong_papers),
        (early, found.wrong_by_first),
        *zip(right, shares, strict=True),
    ):
        assert share == pytest.approx(shown, abs=margin_of(shown, PAPERS // 2) + 0.001)


def test_the_text_says_where_the_promise_is_not_kept():
    exceeding = {
        law: max(documented()[law, effect][0][1] for effect in EFFECTS)
        for law in LAWS
        if law not in KEEPING
    }
    text = " ".join(TEXT.partition(END)[2].split())
    for law, wrong in exceeding.items():
        if wrong > FAMILY_ERROR:
            assert re.search(rf"\b{100 * wrong:.1f}\b", text), (law, wrong)
    assert max(exceeding.values()) > FAMILY_ERROR


def test_the_promise_would_break_if_entries_and_looks_did_not_share_the_error(monkeypatch):
    monkeypatch.setattr(verdict_rates, "FAMILY_ERROR", FAMILY_ERROR * ENTRIES * 4)
    for effect in (0, 1):
        wrong = simulate("normal", effect, 50).wrong_papers
        assert wrong > FAMILY_ERROR + margin_of(FAMILY_ERROR, 50)


def test_larger_effects_are_decided_sooner_and_every_normal_entry_in_the_end():
    normal = {effect: simulate("normal", effect, 10) for effect in (-1, 0, 1, 2)}
    assert all(rates.right[-1] > 0.99 for rates in normal.values())
    assert normal[2].right[0] > normal[1].right[0]
    shared, alone = (
        documented()[arms, 1][1][0]
        for arms in ("normal arms correlated by .9", "independent normal arms")
    )
    assert shared > 2 * alone
