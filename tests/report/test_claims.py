import dataclasses
import json
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from figure_samples import as_json
from kl_sample_records import constants_record
from scipy import stats

from dpatlas.base.fields import Model
from dpatlas.base.files import read_rows
from dpatlas.base.records import RunsFields
from dpatlas.errors import InputError, run_command
from dpatlas_workflow.evidence.claims import (
    COLUMNS,
    MOST_COMPARISONS,
    JudgedEntry,
    at_tier,
    check_evidence,
    comparison_rows,
    conjunction,
    judge_claims,
    judge_entries,
    main,
    read_claims,
    waiting,
    with_margins,
)
from dpatlas_workflow.evidence.comparisons import Evidence, PaperRecords
from dpatlas_workflow.evidence.looks import LOOKS
from dpatlas_workflow.evidence.tests import Mean
from dpatlas_workflow.evidence.verdicts import (
    INCONCLUSIVE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    VERDICTS,
)
from dpatlas_workflow.records import Record
from dpatlas_workflow.statistics import Comparison, Estimate, difference_estimate, mean_estimate

CONTRACT = "claim paper place statement kind verdict expected observed low high runs evidence"


class Observe(Model):
    """A test whose every interval is next to nothing around a point that the records hold."""

    group: str
    target: float

    def evidence(self, records):
        points, group = records.group(self.group), self.group
        # Of "far", two of the runs lie far from the others; of "long" there are twice as many.
        runs, outlying = LOOKS[0] * (1 + (group == "long")), 2 * (group == "far")
        veto = group == "veto"
        estimates = [Estimate(point.value, 1e-6, 11.0, runs, outlying=outlying) for point in points]
        return Evidence(
            [[Comparison(f"at {e.value}", e, self.target, veto=veto) for e in estimates]]
        )


TESTS = {"observe": Observe, "mean": Mean}


def part(letter, **fields):
    return {
        "id": f"kl-1{letter}",
        "statement": f"part {letter}",
        "expected": "above {target:g}",
        "test": "observe",
        "group": letter,
        "target": 1.0,
    } | fields


MAIN = [{"claim": "kl-1", "says": "it grows"}]


def claim(**fields):
    return {
        "id": "kl-1",
        "place": "Fig. 1",
        "statement": "it grows",
        "kind": "statistical",
        "asserts": "it grows at every depth",
        "deviations": [],
        "pilots": "none",
        "margin": 0.01,
        "margin_from": "a table",
        "evidence": ["figures/kl_vs_epochs.pdf"],
    } | fields


def without(name, fields):
    return {key: value for key, value in fields.items() if key != name}


def without_margin(fields):
    return without("margin", without("margin_from", fields))


def alone(**fields):
    """A claim that is an entry itself."""
    return claim(**without("id", part("a")) | fields)


def claim_ab(drop=(), a=(), b=(), **fields):
    """A claim with parts a and b: fields of its own and of both, and names of fields it lacks."""
    content = claim(parts=[part("a", **dict(a)), part("b", **dict(b))], **fields)
    return {name: value for name, value in content.items() if name not in drop}


def write(folder, *claims):
    path = folder / "claims.yaml"
    top = {"headline": "It grows", "authors": "Somebody", "main": MAIN}
    path.write_text(yaml.safe_dump({**top, "claims": list(claims)}))
    return path


def read(folder, *claims, tests=TESTS):
    return read_claims({"kl_privacy": write(folder, *claims)}, tests)


class Point(SimpleNamespace):
    """A number in place of a record; a look does not cut it."""

    def cut(self, runs):
        return self


def paper(**points):
    groups = {
        name: [Point(ids=(f"{name}-{value}",), value=value, spec=None) for value in values]
        for name, values in points.items()
    }
    return {"kl_privacy": PaperRecords({}, groups)}


def test_evidence_of_a_part_that_no_rule_makes_is_refused(tmp_path):
    claims = read(tmp_path, claim_ab(b={"evidence": ["tables/kl_moon.csv"]}))
    made = ["figures/kl_vs_epochs.pdf"]
    with pytest.raises(InputError, match="kl_moon"):
        check_evidence(claims, made, ["kl_privacy"])
    check_evidence(claims, made, ["lp_fft"])


def test_an_entry_waits_whose_figure_is_not_drawn(tmp_path):
    both = ["figures/kl_vs_epochs.pdf", "figures/kl_vs_depth.pdf"]
    claims = read(tmp_path, alone(evidence=both))
    (entry,) = claims.claims[0].entries
    assert waiting(claims, entry.evidence) == {}
    assert waiting(claims, both[1:])[entry.id].verdict == NOT_RUN


def test_conjunction_is_refuted_by_one_part_and_reproduced_only_by_all():
    gravest = (NOT_REPRODUCED, NOT_RUN, INCONCLUSIVE, REPRODUCED, NOT_CONTRADICTED)
    for verdicts in product(VERDICTS, repeat=3):
        assert conjunction(verdicts) == min(verdicts, key=gravest.index)


def test_a_claim_with_parts_has_a_row_per_part_and_one_for_their_conjunction(tmp_path):
    of_b = {"place": "Fig. 2", "evidence": ["figures/kl_vs_depth.pdf"]}
    rows = [*rows_of(read(tmp_path, claim_ab(b=of_b)), a=(2, 3), b=(-1, 0)).values()]
    assert [(row["claim"], row["place"], row["observed"]) for row in rows] == [
        *(("kl-1a", "Fig. 1", 2), ("kl-1b", "Fig. 2", -1), ("kl-1", "Fig. 1", "1 of 2"))
    ]
    assert rows[0]["expected"] == "above 1"
    assert rows[2]["evidence"] == "figures/kl_vs_epochs.pdf;figures/kl_vs_depth.pdf"


def rows_of(claims, **points):
    found = judge_claims(claims, paper(**points), "t", tests=TESTS)
    return {row["claim"]: row for row in found}


def compared_of(claims, **points):
    return comparison_rows(judge_entries(claims, paper(**points), TESTS))


def test_what_an_entry_compares_is_written_the_deciding_comparison_first(tmp_path):
    claims = read(tmp_path, claim_ab())
    rows = compared_of(claims, a=(3, 2, 4), b=(-1, 5, 0))
    of_a, of_b = ([row for row in rows if row["claim"] == name] for name in ("kl-1a", "kl-1b"))
    # What holds least clearly comes first, what fails most clearly too.
    assert [row["observed"] for row in of_a] == [2, 3, 4]
    assert [row["observed"] for row in of_b] == [-1, 0, 5]
    assert [row["decides"] for row in of_b] == [1, 0, 0]
    assert [(row["holds"], row["fails"]) for row in of_b] == [(0, 1), (0, 1), (1, 0)]
    assert {(row["above"], row["below"], row["margin"]) for row in rows} == {(1.0, "", 0.01)}
    assert of_a[0]["low"] < 2 < of_a[0]["high"]


def test_runs_far_from_the_others_are_noted_whatever_the_verdict(tmp_path):
    claims = read(tmp_path, claim_ab(a={"group": "far"}, b={"group": "near"}))
    for value in (2, 0):
        points = {"far": (value,), "near": (value,)}
        first, second, _ = rows_of(claims, **points).values()
        noted = ["runs far from the others: 2; " in row["note"] for row in (first, second)]
        assert noted == [True, False]
        assert [row["outlying"] for row in compared_of(claims, **points)] == [2, 0]


def test_of_many_comparisons_those_closest_to_the_limit_are_written(tmp_path):
    values = tuple(range(2, 2 + 3 * MOST_COMPARISONS))
    rows = compared_of(read(tmp_path, alone()), a=values)
    assert {row["claim"] for row in rows} == {"kl-1"}
    assert [row["observed"] for row in rows] == list(values[:MOST_COMPARISONS])


def test_main_claims_are_claims_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setitem(MAIN[0], "claim", "kl-7")
    with pytest.raises(InputError, match=r"main of .*: found kl-7"):
        read(tmp_path, alone())


def test_small_settings_show_what_was_seen_and_carry_no_verdict(tmp_path):
    claims = read(tmp_path, claim_ab())
    rows = judge_claims(claims, paper(a=(2, 3), b=(0, 3)), "t", verdicts=False, tests=TESTS)
    assert {(row["verdict"], row["because"]) for row in rows} == {(NOT_RUN, "")}
    assert rows[0]["observed"] == 2.0
    assert "no verdict" in rows[0]["note"]


HALF = {"margin": 0.5, "margin_from": "half of what is printed"}
TWO = {"margin": 2.0, "margin_from": "its own"}
IDENTICAL, LONG, VETO = {"kind": "identity"}, {"group": "long"}, {"group": "veto"}
OTHER_READING, OURS = {"other_reading": True}, {"place": "ours (beside Fig. 1)"}
SEEN, AT_MOST = "the opposite was seen", "the effect is at most the margin"
COMPUTED = "a computed number contradicts it"
SMALL = "estimated effect {} is below the margin {}, as its interval shows"
# What a part says of itself and what was seen; its verdict, failure, reason and margin.
PARTS = {
    "held": ({}, 2, REPRODUCED, "", "", 0.5),
    "small": ({}, 1.2, REPRODUCED, "", SMALL.format(0.2, 0.5), 0.5),
    "of its margin": (TWO, 2, REPRODUCED, "", SMALL.format(1, 2), 2.0),
    "opposite": ({}, 0.5, NOT_REPRODUCED, "opposite", SEEN, 0.5),
    "smaller": ({}, 1.0, NOT_REPRODUCED, "smaller", AT_MOST, 0.5),
    "of more runs": (LONG, 2, REPRODUCED, "", "", 0.5),
    "identity": (IDENTICAL, 2, NOT_CONTRADICTED, "", "", ""),
    "refuted": (IDENTICAL, 0, NOT_REPRODUCED, "mathematics", COMPUTED, ""),
    "exact": ({"kind": "exact"}, 2, REPRODUCED, "", "", ""),
    "computed": ({"kind": "exact"}, 0.5, NOT_REPRODUCED, "mathematics", COMPUTED, ""),
    # What can only be refuted is at best not contradicted.
    "veto": (VETO, 2, NOT_CONTRADICTED, "", "", ""),
    "vetoed": (VETO, 0, NOT_REPRODUCED, "opposite", SEEN, ""),
    "reading": (OTHER_READING, 0, NOT_REPRODUCED, "opposite", SEEN, 0.5),
    "ours": (OURS, 0, NOT_REPRODUCED, "opposite", SEEN, 0.5),
}


FIRST, SECOND, FEW = f"part a: {AT_MOST}", f"part b: {COMPUTED}", LOOKS[0]


def rows_of_parts(folder, *names):
    """The rows of a claim with these of `PARTS`."""
    parts, points = [], {}
    for letter, name in zip("abcde", names, strict=False):
        of_it, seen, *_ = PARTS[name]
        parts.append(part(letter, **of_it))
        points[parts[-1]["group"]] = (seen,)
    return [*rows_of(read(folder, claim(parts=parts, **HALF)), **points).values()]


@pytest.mark.parametrize("name", PARTS)
def test_a_row_says_what_became_of_a_part_and_why(tmp_path, name):
    row, *_ = rows_of_parts(tmp_path, name, "held")
    told = ("verdict", "failure", "because", "margin")
    assert [row[column] for column in told] == [*PARTS[name][2:]]
    assert row["origin"] == {"reading": "other reading", "ours": "ours"}.get(name, "paper")
    beside = {"reading": "another reading", "ours": "of our own"}
    assert beside.get(name, "") in row["note"]
    assert ("does not count" in row["note"]) == (name in beside)
    assert row["runs_to_decide"] == "" and (name != "held" or row["look"] == FEW)


@pytest.mark.parametrize(
    ("names", "verdict", "observed", "failure", "because"),
    [
        (["held", "small"], REPRODUCED, "2 of 2", "", ""),
        (["identity", "held"], REPRODUCED, "2 of 2", "", ""),
        (["identity", "identity"], NOT_CONTRADICTED, "2 of 2", "", ""),
        (["held", "small", "reading", "ours"], REPRODUCED, "2 of 2", "", ""),
        (["held", "ours"], REPRODUCED, "1 of 1", "", ""),
        (["exact", "refuted"], NOT_REPRODUCED, "1 of 2", "mathematics", f"part b: {COMPUTED}"),
        (["opposite", "held"] * 2, NOT_REPRODUCED, "2 of 4", "opposite", f"parts a, c: {SEEN}"),
        (["smaller", "opposite"], NOT_REPRODUCED, "0 of 2", "opposite", f"{FIRST}; part b: {SEEN}"),
        (["smaller", "computed"], NOT_REPRODUCED, "0 of 2", "mathematics", f"{FIRST}; {SECOND}"),
    ],
)
def test_a_claim_stands_as_the_parts_that_count(
    tmp_path, names, verdict, observed, failure, because
):
    *_, whole = rows_of_parts(tmp_path, *names)
    told = ("verdict", "observed", "failure", "because")
    assert [whole[column] for column in told] == [verdict, observed, failure, because]


@pytest.mark.parametrize(
    ("names", "runs", "expected"),
    [
        (["held", "of more runs"], FEW, "all 2 parts reproduced"),
        # Where no part is of the claim's kind, the runs of all are the claim's.
        (["identity", "of more runs"], 2 * FEW, "all 2 parts reproduced or not contradicted"),
        (["identity", "identity"], FEW, "all 2 parts reproduced or not contradicted"),
        (["of more runs", "reading"], 2 * FEW, "its part reproduced"),
    ],
)
def test_a_claim_says_of_how_many_parts_and_runs_it_is(tmp_path, names, runs, expected):
    *_, whole = rows_of_parts(tmp_path, *names)
    assert (whole["runs"], whole["expected"]) == (runs, expected)


def test_a_claim_of_ours_is_ours_with_all_its_parts(tmp_path):
    claims = read(tmp_path, claim_ab(**OURS, b=OTHER_READING))
    rows = rows_of(claims, a=(2,), b=(0,))
    assert {row["origin"] for row in rows.values()} == {"ours"}
    assert (rows["kl-1"]["verdict"], rows["kl-1"]["observed"]) == (REPRODUCED, "1 of 1")


def test_every_margin_can_be_multiplied(tmp_path):
    (scaled,) = with_margins(read(tmp_path, claim_ab(**HALF, b=TWO)), 0.5).claims
    assert [entry.margin for entry in scaled.entries] == [0.25, 1.0]


def test_identities_and_what_can_only_be_refuted_are_compared_by_rules_of_their_own(tmp_path):
    (veto,) = compared_of(read(tmp_path, alone(**VETO)), veto=(2,))
    assert (veto["veto"], veto["margin"]) == (1, "")
    # An identity takes nothing of the error that the others share.
    claims = read(tmp_path, claim_ab(a=IDENTICAL))
    assert claims.planned("kl_privacy") == 1
    assert compared_of(claims, a=(2,), b=(3,))[0]["level"] == "0.95"
    # What is exact needs no word on pilots and no margin.
    read(tmp_path, without("pilots", without_margin(claim_ab(kind="exact"))))


def test_parts_have_what_their_claim_says_unless_they_say_otherwise(tmp_path):
    shared = {"asserts": "it grows", "deviations": [], "pilots": "none"}
    part_b = {"asserts": "it grows fast", "deviations": ["other data"]}
    (read_one,) = read(tmp_path, claim_ab(**shared, b=part_b)).claims
    assert read_one.asserts == "it grows" and read_one.deviations == ()
    first, second = read_one.entries
    assert (first.asserts, first.deviations, first.pilots) == ("it grows", (), "none")
    assert (second.asserts, second.deviations) == ("it grows fast", ("other data",))
    every = {"deviations": [], "asserts": "x", "pilots": "none"}
    (said_by_parts,) = read(tmp_path, claim_ab(drop=every, a=every, b=every)).claims
    assert said_by_parts.deviations is None


RESTATED = {
    "statement": "it grows a lot",
    "verdict": NOT_REPRODUCED,
    "reason": "the paper says it of its bound",
    "runs": "seen",
}


def test_a_restated_claim_or_part_says_what_it_said_before(tmp_path):
    part_a = {"restated": {**RESTATED, "runs": "unseen"}}
    rows = rows_of(read(tmp_path, claim_ab(restated=RESTATED, a=part_a)), a=(2,), b=(2,))
    was = "was 'not reproduced'; the paper says it of its bound; it said: it grows a lot"
    assert {name: row["restated"] for name, row in rows.items()} == {
        "kl-1a": f"judged by runs on a base seed that nobody had seen: {was}",
        "kl-1b": "",
        "kl-1": f"read afterwards: {was}",
    }


def test_a_statistical_comparison_with_one_limit_needs_a_margin(tmp_path):
    claims = read(tmp_path, without_margin(claim_ab()))
    with pytest.raises(InputError, match="margin of kl-1a: found none, and one limit for at 2"):
        rows_of(claims, a=(2,), b=(3,))


def test_papers_do_not_share_the_error_and_all_entries_and_looks_of_one_do(tmp_path):
    claims = read(tmp_path, claim(parts=[part("a"), part("b"), part("c", kind="exact")]))
    assert claims.planned("kl_privacy") == 2 and claims.planned("dp_sgld") == 0
    assert claims.error("kl_privacy") == pytest.approx(0.05 / 2 / len(LOOKS))
    rows = rows_of(claims, a=(2,), b=(2,), c=(2,))
    assert float(rows["kl-1a"]["level"]) == pytest.approx(1 - 0.05 / 2 / len(LOOKS))


class Repeated(RunsFields):
    """Settings of runs that can be added to."""


def repeated(name, values):
    """A record of so many runs, one value each, that looks cut."""

    spec = Repeated(key="k", kind="x", runs=len(values))
    fields = dict.fromkeys((each.name for each in dataclasses.fields(Record)), "")
    fields |= {"id": name, "condition": name, "blocks": ()}
    tables = {"rows": [{"run": run, "value": value} for run, value in enumerate(values)]}
    return Record(**{**fields, "spec": spec, "tables": tables})


def values_of(record):
    return [row["value"] for row in record.tables["rows"]]


def test_a_condition_of_several_blocks_is_read_once():
    record = repeated("a", range(24))
    blocks = {"a-run0": record, "a-run12": record}
    assert PaperRecords.of({"groups": {"g": [*blocks]}}, blocks).group("g") == [record]


class Exceeds(Model):
    """A test of the mean over runs of the group's first record."""

    group: str
    above: float

    def evidence(self, records):
        record, *_ = records.group(self.group)
        estimate = mean_estimate(values_of(record))
        return Evidence([[Comparison("mean", estimate, above=self.above)]])


EXCEEDING = {"exceeds": Exceeds}
EXCEEDS = {"test": "exceeds", "expected": "above {above:g}", "group": "a", "above": 0.0}


def test_an_inconclusive_row_says_what_would_decide_it_and_what_that_costs(tmp_path):
    claims = read(tmp_path, claim(**EXCEEDS), tests=EXCEEDING)
    draws = np.random.default_rng(2).normal(size=24)
    values = (draws - draws.mean()) / draws.std(ddof=1) + 0.55
    group = [repeated("read", values), repeated("not read", values)]
    papers = {"kl_privacy": PaperRecords({}, {"a": group})}
    costs = {"read": 2.0, "not read": 1000.0}
    (row,) = judge_claims(claims, papers, "t", tests=EXCEEDING, costs=costs)
    assert (row["verdict"], row["look"], row["runs"]) == (INCONCLUSIVE, 24, 24)
    assert row["runs_to_decide"] == 48
    assert row["cpu_s_to_decide"] == (48 - 24) * 2.0
    few = {"kl_privacy": papers["kl_privacy"].cut(5)}
    (row,) = judge_claims(claims, few, "t", tests=EXCEEDING, costs=costs)
    assert (row["verdict"], row["look"]) == (INCONCLUSIVE, "")
    assert (row["low"], row["high"]) == pytest.approx(
        stats.t.interval(0.95, 4, values[:5].mean(), stats.sem(values[:5]))
    )
    assert row["note"].startswith("5 runs, and the first look is at 6: an interval at 95%")
    assert row["observed"] == pytest.approx(values[:5].mean())
    (row,) = judge_claims(claims, papers, "t", tests=EXCEEDING)
    assert row["cpu_s_to_decide"] == ""
    # A condition that has more runs than are wanted gives no time back.
    read_both = repeated("read", values), repeated("long", np.arange(96))
    entry = JudgedEntry(INCONCLUSIVE, 24, runs_to_decide=48, read=read_both)
    assert entry.cpu_s({"read": 2.0, "long": 1.0}) == (48 - 24) * 2.0


class ExceedsInPairs(Exceeds):
    """A test of the difference, run by run, of a group's first two records."""

    def evidence(self, records):
        first, second = (values_of(record) for record in records.group(self.group)[:2])
        difference = difference_estimate(first, second, paired=True)
        return Evidence([[Comparison("difference", difference, above=self.above)]])


@pytest.mark.parametrize(
    ("runs", "look", "used"), [((96, 24, 12), 24, 24), ((96, 30, 12), 24, 24), ((30, 5, 4), "", 5)]
)
def test_a_test_gets_as_many_runs_of_all_conditions_that_it_reads(tmp_path, runs, look, used):
    tests = {"exceeds": ExceedsInPairs}
    claims = read(tmp_path, claim(**EXCEEDS), tests=tests)
    draws = np.random.default_rng(1).normal(size=96)
    group = [repeated(f"of {number}", draws[:number]) for number in runs]
    papers = {"kl_privacy": PaperRecords({}, {"a": group})}
    (row,) = judge_claims(claims, papers, "t", tests=tests)
    # The difference is 0 in every run.
    assert (row["verdict"], row["look"], row["runs"]) == (INCONCLUSIVE, look, used)


def test_draws_that_looks_do_not_divide_have_no_look(tmp_path):
    class OfDraws(Exceeds):
        def evidence(self, records):
            (point,) = records.group(self.group)
            estimate = Estimate(point.value, 0.1, 1e9, 200_000)
            return Evidence([[Comparison("mean", estimate, above=self.above)]])

    tests = {"exceeds": OfDraws}
    claims = read(tmp_path, claim(**EXCEEDS), tests=tests)
    (row,) = judge_claims(claims, paper(a=(2,)), "t", tests=tests)
    assert (row["verdict"], row["look"], row["runs"]) == (REPRODUCED, "", 200_000)


BAD = [
    (claim_ab(restated={**RESTATED, "verdict": "wrong"}), "restated.verdict"),
    (claim_ab(drop=["margin_from"]), "kl-1 with margin alone"),
    (claim_ab(drop=["asserts"], a={"asserts": "this"}), "kl-1 without asserts"),
    (claim_ab(drop=["deviations"]), "kl-1 without deviations"),
    (claim_ab(drop=["pilots"], a={"pilots": "none"}), "kl-1 without pilots"),
    (without_margin(claim_ab(b={"margin_from": "x"})), "kl-1b with margin_from alone"),
    (claim_ab(margin=0.0), "margin"),
    (claim_ab(kind="identity", b={"kind": "exact"}), "kl-1, an identity"),
    (claim_ab(a=OTHER_READING, b=OTHER_READING), "kl-1 with other readings alone"),
    (claim_ab(a=OURS, b=OURS), "kl-1 with other readings alone"),
    (claim_ab(b={"horizen": "short"}), "horizen"),
    (claim_ab(b={"test": "guess"}), "guess"),
    (claim(parts=[part("a"), without("target", part("b"))]), "target"),
    (claim_ab(b={"test": "mean", "group": "B", "column": "x", "label": "x"}), "kl-1b: group"),
    (claim_ab(b={"id": "kl-1a"}), "kl-1a twice"),
    (claim_ab(b={"id": "kl-2b"}), "kl-2b"),
    (claim(), "kl-1 with none of them"),
    (claim_ab(target=1.0), "kl-1 with target"),
    (claim_ab(b={"target": "0.001"}), "without quotes"),
    (claim_ab(b={"expected": "{goal}"}), "goal"),
    (claim_ab(evidence=["../secret.pdf"]), "secret"),
    (claim_ab(b={"elsewhere": {"t": {"below": 9.0}}}), r"elsewhere\.t: "),
    (claim_ab(b={"elsewhere": {"t": {"expected": "{height}"}}}), "expected of kl-1b"),
]


@pytest.mark.parametrize(("content", "named"), BAD, ids=[named for _, named in BAD])
def test_bad_claims_are_refused_in_one_line_that_names_them(tmp_path, content, named):
    with pytest.raises(InputError, match=named):
        read(tmp_path, content)


def command(tmp_path, *records, **settings):
    listed, given = tmp_path / "records.txt", tmp_path / "settings.json"
    listed.write_text("".join(f"{record}\n" for record in records))
    given.write_text(json.dumps(settings))
    return [
        *("--tier", "t", "--settings", str(given)),
        *("--output", str(tmp_path / "claims.csv"), "--records", str(listed)),
    ]


def command_on_constants(tmp_path, **settings):
    record, path = constants_record(1.01), tmp_path / "record.json"
    path.write_text(json.dumps(as_json(record)))
    groups = {"groups": {"constants": [record.id]}}
    return command(tmp_path, path, kl_privacy=groups, **settings)


@pytest.mark.parametrize(("tier", "asked"), [("printed", "noise 5 "), ("photographs", "noise 2 ")])
def test_the_command_writes_the_columns_of_the_contract_as_the_tier_asks(tmp_path, tier, asked):
    words = command_on_constants(tmp_path)
    words[1] = tier
    assert run_command(main, words) == 0
    rows = read_rows(tmp_path / "claims.csv")
    header = list(rows[0])
    assert header == list(COLUMNS) and " ".join(header).startswith(f"{CONTRACT} ")
    row = next(row for row in rows if row["claim"] == "kl-7")
    assert float(row["observed"]) == pytest.approx(1.01)
    assert float(row["low"]) < 1.01 < float(row["high"])
    assert (row["runs"], row["evidence"]) == ("2000", "tables/kl_constants.csv")
    assert {row["verdict"] for row in rows} == {REPRODUCED, NOT_RUN}
    (row,) = (row for row in rows if row["claim"] == "lpfft-1b")
    assert f"at {asked}" in row["expected"]


@pytest.mark.parametrize(
    ("flags", "products", "verdict", "note"),
    [
        ({"verdicts": True}, None, REPRODUCED, "decided by: Monte Carlo mean"),
        ({"verdicts": False}, None, NOT_RUN, "no verdict"),
        ({"partial": True}, "tables/kl_constants.csv\n", REPRODUCED, "decided by"),
        ({"partial": True}, "figures/kl_vs_depth.pdf\n", NOT_RUN, "waits for runs"),
        ({}, "figures/kl_vs_depth.pdf\n", None, "found figures/kl_vs_epochs.pdf; allowed: a file"),
    ],
)
def test_the_command_judges_as_the_settings_say(tmp_path, capsys, flags, products, verdict, note):
    words = command_on_constants(tmp_path, **flags)
    if products:
        (tmp_path / "products.txt").write_text(products)
        words += ["--products", str(tmp_path / "products.txt")]
    assert run_command(main, words) == (0 if verdict else 2)
    if verdict:
        rows = {row["claim"]: row for row in read_rows(tmp_path / "claims.csv")}
        assert rows["kl-7"]["verdict"] == verdict and note in rows["kl-7"]["note"]
        # Evidence names only files that the run makes.
        if products:
            assert {row["evidence"] for row in rows.values()} == {"", products.strip()}
    else:
        assert note in capsys.readouterr().err


def test_a_run_that_the_settings_name_and_nobody_gives_is_bad_input(tmp_path, refusal_of):
    groups = {"groups": {"constants": ["gone"]}}
    assert "gone" in refusal_of(main, *command(tmp_path, kl_privacy=groups))
    assert not (tmp_path / "claims.csv").exists()


def test_at_another_tier_a_test_takes_the_arguments_that_are_given_for_it(tmp_path):
    other = {"above": 9.0, "expected": "at t above {above:g}"}
    claims = read(tmp_path, claim(**EXCEEDS, elsewhere={"t": other}), tests=EXCEEDING)
    papers = {"kl_privacy": PaperRecords({}, {"a": [repeated("read", np.arange(12.0))]})}
    (usual,) = judge_claims(claims, papers, "u", tests=EXCEEDING)
    (there,) = judge_claims(at_tier(claims, "t"), papers, "t", tests=EXCEEDING)
    assert (usual["expected"], there["expected"]) == ("above 0", "at t above 9")
    assert usual["verdict"] == REPRODUCED and there["verdict"] == NOT_REPRODUCED
    assert at_tier(claims, "u") == claims
