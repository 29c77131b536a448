import csv
import dataclasses
import json
from collections import Counter
from itertools import product

import numpy as np
import pytest
import yaml
from committed_claims import CLAIMS
from figure_samples import as_json
from kl_sample_records import constants_record

from dpatlas.core.statistics import Comparison, Estimate, mean_estimate
from dpatlas.errors import InputError, run_command
from dpatlas.evidence.arguments import Group
from dpatlas.evidence.claims import (
    COLUMNS,
    INCONCLUSIVE,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    VERDICTS,
    _judged,
    check_evidence,
    conjunction,
    judge_claims,
    main,
    read_claims,
)
from dpatlas.evidence.comparisons import Evidence, PaperRecords

CONTRACT = [
    *("claim", "paper", "place", "statement", "kind", "verdict"),
    *("expected", "observed", "low", "high", "runs", "evidence"),
]


def observe(records, *, group: Group, target: float):
    """A test whose every interval is a point that the records hold."""
    points = records.group(group)
    estimates = [Estimate(point, 0.0, 4.0, 5) for point in points]
    return Evidence([[Comparison(f"at {e.value}", e, above=target) for e in estimates]])


TESTS = {"kl_privacy": {"observe": observe}}


def part(letter, **fields):
    return {
        "id": f"kl-1{letter}",
        "statement": f"part {letter}",
        "expected": "above {target:g}",
        "test": "observe",
        "group": letter,
        "target": 1.0,
    } | fields


def claim(**fields):
    return {
        "id": "kl-1",
        "place": "Fig. 1",
        "statement": "it grows",
        "kind": "statistical",
        "evidence": ["figures/kl_vs_epochs.pdf"],
    } | fields


def without(name, fields):
    return {key: value for key, value in fields.items() if key != name}


def write(folder, *claims):
    path = folder / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": list(claims)}))
    return path


def read(folder, *claims, tests=TESTS):
    return read_claims({"kl_privacy": write(folder, *claims)}, tests)


def paper(**points):
    return {"kl_privacy": PaperRecords({}, points)}


def test_evidence_that_no_rule_makes_is_refused(tmp_path):
    claims = read(tmp_path, claim(**without("id", part("a"))))
    with pytest.raises(InputError, match=r"figures/kl_vs_epochs\.pdf"):
        check_evidence(claims, ["figures/kl_vs_depth.pdf"], ["kl_privacy"])


@pytest.mark.parametrize("verdicts", list(product(VERDICTS, repeat=3)))
def test_conjunction_is_refuted_by_one_part_and_reproduced_only_by_all(verdicts):
    found = conjunction(verdicts)
    if NOT_REPRODUCED in verdicts:
        assert found == NOT_REPRODUCED
    elif NOT_RUN in verdicts:
        assert found == NOT_RUN
    else:
        assert found == (REPRODUCED if set(verdicts) == {REPRODUCED} else INCONCLUSIVE)


def test_a_claim_with_parts_has_a_row_per_part_and_one_for_their_conjunction(tmp_path):
    claims = read(tmp_path, claim(parts=[part("a"), part("b", place="Fig. 2")]))
    rows = judge_claims(claims, paper(a=(2, 3), b=(-1, 0)), "t", tests=TESTS)
    assert [(r["claim"], r["verdict"]) for r in rows] == [
        ("kl-1a", REPRODUCED),
        ("kl-1b", NOT_REPRODUCED),
        ("kl-1", NOT_REPRODUCED),
    ]
    assert [row["place"] for row in rows] == ["Fig. 1", "Fig. 2", "Fig. 1"]
    assert rows[2]["observed"] == "1 of 2"
    assert rows[0]["expected"] == "above 1"


def test_small_settings_show_what_was_seen_and_carry_no_verdict(tmp_path):
    claims = read(tmp_path, claim(parts=[part("a"), part("b")]))
    rows = judge_claims(claims, paper(a=(2, 3), b=(2, 3)), "t", verdicts=False, tests=TESTS)
    assert {row["verdict"] for row in rows} == {NOT_RUN}
    assert rows[0]["observed"] == 2.0
    assert "no verdict" in rows[0]["note"]


BAD = {
    "an unknown key": (claim(parts=[part("a"), part("b", horizen="short")]), "horizen"),
    "a test that does not exist": (claim(parts=[part("a"), part("b", test="guess")]), "guess"),
    "an argument too few": (claim(parts=[part("a"), without("target", part("b"))]), "target"),
    "a group of capitals": (claim(parts=[part("a"), part("b", group="B")]), "kl-1b: group"),
    "an id given twice": (claim(parts=[part("a"), part("a")]), "kl-1a twice"),
    "a part of another claim": (claim(parts=[part("a"), part("b", id="kl-2b")]), "kl-2b"),
    "no test and no parts": (claim(), "kl-1 with none of them"),
    "arguments beside parts": (claim(target=1.0, parts=[part("a"), part("b")]), "kl-1 with target"),
    "a whole number as text": (claim(parts=[part("a"), part("b", target="1e-3")]), "1.0e-3"),
    "an expected value of no field": (
        claim(parts=[part("a"), part("b", expected="{goal}")]),
        "goal",
    ),
    "evidence outside the results": (
        claim(evidence=["../secret.pdf"], parts=[part("a"), part("b")]),
        "secret",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_claims_are_refused_in_one_line_that_names_them(tmp_path, name):
    content, named = BAD[name]
    with pytest.raises(InputError, match=named):
        read(tmp_path, content)


def test_a_test_that_no_entry_uses_is_refused(tmp_path):
    tests = {"kl_privacy": {**TESTS["kl_privacy"], "forgotten": observe}}
    with pytest.raises(InputError, match="no entry for test forgotten"):
        read(tmp_path, claim(parts=[part("a"), part("b")]), tests=tests)


def command(tmp_path, settings, *records):
    listed, given = tmp_path / "records.txt", tmp_path / "settings.json"
    listed.write_text("".join(f"{record}\n" for record in records))
    given.write_text(settings)
    return [
        *("--tier", "t", "--settings", str(given)),
        *("--results", str(tmp_path), "--output", str(tmp_path / "claims.csv")),
        *("--records", str(listed)),
    ]


def test_the_command_writes_the_columns_of_the_contract(tmp_path):
    record, path = constants_record(1.01), tmp_path / "record.json"
    path.write_text(json.dumps(as_json(record)))
    settings = {"kl_privacy": {"groups": {"constants": [record.id]}}}
    assert run_command(main, command(tmp_path, json.dumps(settings), path)) == 0
    with (tmp_path / "claims.csv").open(newline="") as stream:
        header, rows = (reader := csv.DictReader(stream)).fieldnames, list(reader)
    assert header[: len(CONTRACT)] == CONTRACT and header == list(COLUMNS)
    row = next(row for row in rows if row["claim"] == "kl-7")
    assert float(row["observed"]) == pytest.approx(1.01)
    assert float(row["low"]) < 1.01 < float(row["high"])
    assert (row["runs"], row["evidence"]) == ("2000", "tables/kl_constants.csv")
    assert {row["verdict"] for row in rows} == {REPRODUCED, NOT_RUN}


def test_a_run_that_the_settings_name_and_nobody_gives_is_bad_input(tmp_path, capsys):
    settings = json.dumps({"kl_privacy": {"groups": {"constants": ["gone"]}}})
    assert run_command(main, command(tmp_path, settings)) == 2
    assert "gone" in capsys.readouterr().err
    assert not (tmp_path / "claims.csv").exists()


def test_wrong_verdicts_are_as_rare_as_the_error_of_an_entry():
    """Three comparisons exactly at their thresholds, where both answers are wrong, five runs."""
    (alone,) = (claim for claim in CLAIMS.claims if claim.id == "kl-2")
    claims = dataclasses.replace(CLAIMS, family_error=0.2, claims=[alone])
    (entry,) = alone.entries
    assert claims.planned == 1
    studies = np.random.default_rng(3).standard_normal((3000, 3, 5))
    found = Counter()
    for study in studies:
        comparisons = [Comparison("c", mean_estimate(values), above=0.0) for values in study]
        found[_judged(claims, entry, Evidence([comparisons]))["verdict"]] += 1
    assert 0 < found[NOT_REPRODUCED] / len(studies) < 0.2
    assert found[REPRODUCED] / len(studies) < 0.2
