"""A publication read again: what stands, what is judged again from its runs, what is withdrawn."""

import html
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from read_again import Rule, questions, read_again
from test_claims import claim, part, write

from dpatlas.base.fields import Model
from dpatlas.base.files import read_rows
from dpatlas.errors import InputError
from dpatlas_workflow.evidence.claims import (
    COLUMNS,
    COMPARISON_COLUMNS,
    comparison_rows,
    judge_claims,
    judge_entries,
    read_claims,
    write_claims,
)
from dpatlas_workflow.evidence.comparisons import Evidence, PaperRecords
from dpatlas_workflow.evidence.verdicts import (
    FAILURES,
    NOT_REPRODUCED,
    NOT_RUN,
    ORIGINS,
    OURS,
    counted,
    counts,
    is_part,
)
from dpatlas_workflow.report.page_claims import cards
from dpatlas_workflow.statistics import Comparison, mean_estimate

PROJECT = Path(__file__).resolve().parents[2]
PUBLISHED = sorted((PROJECT / "docs/results").glob("*/claims.csv"))
EMBEDDED = PROJECT / "docs/results/embedded"
RUNS = {
    name: mean + np.random.default_rng(seed).normal(scale=0.1, size=24)
    for seed, (name, mean) in enumerate({"a": 2.0, "b": 1.0, "c": 0.2}.items())
}


class Exceeds(Model):
    """Whether every one of the quantities of a group exceeds the target."""

    group: str
    target: float

    def evidence(self, records):
        runs = [RUNS[name][: records.settings["runs"]] for name in self.group]
        comparisons = zip(self.group, map(mean_estimate, runs), strict=True)
        return Evidence([[Comparison(*each, self.target) for each in comparisons]])


class Records(PaperRecords):
    """So many runs of every quantity."""

    def cut(self, runs):
        return Records({"runs": min(runs, 24)})


TESTS = {"observe": Exceeds}


def read(folder, *parts, **fields):
    folder.mkdir(exist_ok=True)
    return read_claims({"kl_privacy": write(folder, claim(parts=[*parts], **fields))}, TESTS)


def judged(folder, claims):
    """Rows of claims.csv and of comparisons.csv, as they are written, on these runs."""
    found = judge_entries(claims, {"kl_privacy": Records({"runs": 24})}, TESTS)
    write_claims(folder / "claims.csv", judge_claims(claims, {}, "t", judged=found))
    write_claims(folder / "comparisons.csv", comparison_rows(found), COMPARISON_COLUMNS)
    return read_rows(folder / "claims.csv"), read_rows(folder / "comparisons.csv")


def again(claims, published, changed, rules=None):
    return read_again(claims, *published, changed, rules or {}, ["figures/kl_vs_epochs.pdf"])


def as_text(rows):
    return [{key: f"{value}" for key, value in row.items()} for row in rows]


@pytest.fixture
def published(tmp_path):
    """Three questions about the same three quantities; the second has a margin that refutes it."""
    parts = [part("a", group="abc"), part("b", group="ab"), part("c", group="a")]
    return judged(tmp_path, read(tmp_path / "then", *parts, margin=2.0))


def test_what_did_not_change_is_as_it_was_and_words_are_todays(tmp_path, published):
    parts = [part("a", group="abc"), part("b", group="ab", statement="other words")]
    parts.append(part("c", group="a", restated=restated("unseen")))
    now = read(tmp_path / "now", *parts, margin=2.0)
    reading = again(now, published, [])
    assert as_text(reading.compared) == published[1]
    rows = {row["claim"]: row for row in as_text(reading.rows)}
    same = {row["claim"]: row for row in published[0]}
    for name in ("kl-1a", "kl-1b", "kl-1c", "kl-1"):
        different = {key for key in COLUMNS if rows[name][key] != same[name][key]}
        assert different <= {"statement", "restated"}
    assert rows["kl-1b"]["statement"] == "other words"
    # Nobody ran it anew for this publication, whatever claims.yaml says of a later one.
    assert rows["kl-1c"]["restated"].startswith("read afterwards: was 'not reproduced'")
    twice = again(now, (as_text(reading.rows), as_text(reading.compared)), [])
    assert as_text(twice.rows) == as_text(reading.rows)


def restated(runs):
    return {"statement": "old", "verdict": NOT_REPRODUCED, "reason": "a reason", "runs": runs}


@pytest.mark.parametrize("margin", [0.01, 0.5, 2.0])
def test_runs_that_are_judged_again_give_what_their_records_would(tmp_path, published, margin):
    parts = [part("a", group="abc"), part("b", group="a"), part("c", group="a")]
    now = read(tmp_path / "now", *parts, margin=margin)
    rules = {"kl-1a": Rule(), "kl-1b": Rule(labels="a"), "kl-1c": Rule()}
    reading = again(now, published, [*rules], rules)
    assert reading.judged == ["kl-1a", "kl-1b", "kl-1c"] and not reading.withdrawn
    (tmp_path / "new").mkdir()
    rows, _ = judged(tmp_path / "new", now)
    write_claims(tmp_path / "claims.csv", reading.rows)
    shown = ("verdict", "because", "failure", "observed", "low", "high", "level", "look", "runs")
    for there, here in zip(read_rows(tmp_path / "claims.csv"), rows, strict=True):
        assert [there[name] for name in shown] == [here[name] for name in shown], here["claim"]


def test_a_card_says_which_part_failed_how_and_so_does_the_mark_of_a_comparison(published):
    rows, compared = published
    (card,) = cards(rows, compared, None, {})
    assert card.outcomes == [("opposite", "part a"), ("smaller", "part b")]
    states = [question.plot.strips[0].state for question in card.questions]
    assert states == ["fails", "smaller", "holds"]
    assert card.questions[2].row["because"].startswith("estimated effect ")
    whole = [row for row in rows if row["claim"] == "kl-1b"]
    (alone,) = cards(whole, compared, None, {})
    assert alone.outcomes == [("smaller", "")]


def test_a_changed_question_without_a_rule_is_withdrawn(tmp_path, published):
    now = read(tmp_path / "now", *[part(each, group="a") for each in "abc"], margin=2.0)
    reading = again(now, published, ["kl-1b"])
    rows = {row["claim"]: row for row in reading.rows}
    assert reading.withdrawn == ["kl-1b"]
    assert (rows["kl-1b"]["verdict"], rows["kl-1b"]["failure"]) == (NOT_RUN, "")
    assert f"it was '{published[0][1]['verdict']}'" in rows["kl-1b"]["note"]
    # The page shows no comparisons of what the claim does not ask any more.
    (card,) = cards(reading.rows, as_text(reading.compared), now, {})
    assert [question.plot is None for question in card.questions] == [False, True, False]


def test_a_rule_is_refused_where_the_published_verdict_does_not_follow(tmp_path, published):
    now = read(tmp_path / "now", *[part(each, group="a") for each in "abc"], margin=0.5)
    rows, compared = published
    few = [row for row in compared if row["comparison"] == "a"]
    with pytest.raises(InputError, match="rule of kl-1a: found a verdict that does not follow"):
        again(now, (rows, few), ["kl-1a"], {"kl-1a": Rule()})


def test_what_an_entry_asks_is_its_test_its_arguments_and_its_margin():
    now = questions("embedded")
    assert now["kl-1b"]["test"] == "slope" and not {"expected", "label"} & now["kl-1b"].keys()
    assert questions("embedded", "HEAD").keys() <= now.keys()
    with pytest.raises(InputError, match="one of this repository"):
        questions("embedded", "0" * 40)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
def test_published_rows_say_whose_question_they_are_and_how_they_failed(path):
    rows = read_rows(path)
    assert [*rows[0]] == [*COLUMNS]
    for row in rows:
        assert (row["failure"] in FAILURES) == (row["verdict"] == NOT_REPRODUCED), row["claim"]
        assert row["origin"] in ORIGINS
        assert (row["origin"] == OURS) == row["place"].startswith(OURS)
    text = "".join(each.read_text(encoding="utf-8") for each in path.parent.rglob("README.md"))
    assert f"Of the papers' claims: {counted(rows)}. " in text
    assert f"Claims of our own stand apart: {counted(rows, OURS)}. " in text
    assert all(row["restated"] in text for row in rows)


def test_page_and_docs_count_as_the_published_file_does():
    rows = read_rows(EMBEDDED / "claims.csv")
    page = (PROJECT / "docs/index.html").read_text(encoding="utf-8")
    total = sum(number.total() for number in counts(rows).values())
    lede = re.search(r'<p class="lede">.*?</p>', page, re.DOTALL)[0]
    assert f"of the papers' {total} claims," in html.unescape(lede)
    for kind, number in sum(counts(rows).values(), Counter()).items():
        assert re.search(rf'data-verdict="{kind}">{number} ', lede), kind
    ours = sum(not is_part(row) and row["origin"] == OURS for row in rows)
    assert f"{ours} more claims are our own" in lede
    figures = " ".join((PROJECT / "docs/figures.md").read_text(encoding="utf-8").split())
    assert f"Of the papers' {total} claims: {counted(rows)}." in figures
    shown = html.unescape(page)
    restated = (row["restated"].rstrip(".") for row in rows if row["restated"])
    assert all(f"Restated, {words}." in shown for words in restated)
