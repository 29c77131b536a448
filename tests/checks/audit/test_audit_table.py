"""What the table `audit` shows, on small synthetic records."""

import csv
import io
import json

import pytest

from dpatlas.checks.audit.figures.audit import COLUMNS, audit, main
from dpatlas.core.records import FIELDS
from dpatlas.core.specs import Spec
from dpatlas.show.output import table_files

BOUND = {"epsilon": 0.8, "delta": 0.01, "level": 0.95, "ceiling": 5.0, "method": "repeated runs"}
SAMPLER = {"name": "poisson", "n": 32, "expected_batch": 8.0, "sample_rate": 0.25}


def record(kind, metrics, ledger=None, **fields):
    spec = Spec.of({"key": "audit", "kind": kind, **fields}, kind)
    stated = {
        "mechanism": "DP-SGD in words",
        "sampler": SAMPLER,
        "epsilon": 3.0,
        "delta": 1e-5,
        "claimed": None,
    }
    return {
        "id": spec.id,
        "spec": spec.fields,
        "metrics": metrics,
        "ledger": stated | (ledger or {}),
    }


def attack(
    name="dp-sgd-poisson",
    contradicted=False,
    claimed=None,
    claim_excess=None,
    sentence="DP-SGD in a sentence",
    **ledger,
):
    metrics = {
        "sentence": sentence,
        "relation": "add_remove",
        "guaranteed": 1.5,
        "lower": BOUND,
        "profile_test": {"excess": 0.2 if contradicted else -0.2, "delta": 0.1, "level": 0.999},
        "contradicted": contradicted,
        "claimed": claimed,
        "claim_test": claimed and {"excess": claim_excess, "delta": 0.03, "level": 0.999},
        "claim_contradicted": claimed and claim_excess > 0,
    }
    return record("mechanism", metrics, ledger, mechanism=name, runs=600)


def training(audited=None, accuracy=(0.8, 0.9)):
    metrics = {
        "accuracy": list(accuracy),
        "noise_multiplier": 5.5,
        "expected_batch": 600.0,
        "n_train": 1200,
        "n_test": 297,
        "skipped_records": [1, 2],
        "audit": audited,
    }
    settings = {"model": "small-cnn-s", "relation": "add_remove", "steps": 60}
    settings["canaries"] = 300 if audited else 0
    return record("training", metrics, **settings, runs=len(accuracy), settings_tried=10)


def canaries():
    return training(
        {
            "canaries": 300,
            "lower": BOUND | {"delta": 1e-5, "method": "one run"},
            "verdict_bound": {"delta": 1e-5, "level": 0.999},
            "excess": -2.6,
            "contradicted": False,
        }
    )


def rows_of(*records):
    content = table_files("audit", audit(records, {}), "trial")
    return list(csv.DictReader(io.StringIO(content["audit.csv"].decode()))), content


def test_every_record_is_one_row_with_its_guarantee_bound_and_verdict():
    rows, _ = rows_of(attack(), attack("lp-then-fft", contradicted=True), canaries(), training())
    assert tuple(rows[0])[: len(COLUMNS)] == COLUMNS
    assert [row["part"] for row in rows] == ["mechanism"] * 3 + ["training"]
    assert [row["verdict"] for row in rows] == ["consistent", "contradicted", "consistent", ""]
    first, _, one_run, trained = rows
    assert (first["guaranteed_epsilon"], first["lower_bound"], first["delta"]) == (
        "1.5",
        "0.8",
        "0.01",
    )
    assert (first["audited_runs"], first["canaries"], first["claimed_epsilon"]) == ("1200", "", "")
    assert (one_run["audited_runs"], one_run["canaries"], one_run["delta"]) == ("1", "300", "1e-05")
    assert float(trained["accuracy_mean"]) == pytest.approx(0.85)
    assert float(trained["accuracy_standard_error"]) == pytest.approx(0.05)
    assert trained["skipped_records"] == "3"


def test_a_claim_stands_beside_the_guarantee_with_a_verdict_of_its_own():
    claims = [{}, {"claimed": 1.0, "claim_excess": -0.1}, {"claimed": 0.2, "claim_excess": 0.3}]
    rows, content = rows_of(*(attack(**claim) for claim in claims), canaries(), training())
    rows = rows[:4]
    assert [row["claimed_epsilon"] for row in rows] == ["", "1.0", "0.2", ""]
    assert [row["claim_verdict"] for row in rows] == ["", "consistent", "contradicted", ""]
    assert [row["claim_excess"] for row in rows] == ["", "-0.1", "0.3", ""]
    assert [row["claim_excess_delta"] for row in rows] == ["", "0.03", "0.03", ""]
    # The guarantee's verdict is another matter.
    assert {row["verdict"] for row in rows} == {"consistent"}
    assert content["audit.md"].decode().count("contradicted |") == 1


def test_every_phase_names_its_batches():
    phases = [SAMPLER, SAMPLER | {"name": "full-batch", "expected_batch": 32.0}]
    rows, _ = rows_of(attack(sampler=phases), training())
    assert rows[0]["samplers"] == "poisson 8 of 32; then full-batch 32 of 32"


def test_every_attacked_mechanism_is_described_in_words():
    rows, content = rows_of(attack(sentence="the head, then LoRA"), canaries(), training())
    assert [row["description"] for row in rows] == ["the head, then LoRA", *["DP-SGD in words"] * 2]
    text = content["audit.md"].decode()
    assert "| dp-sgd-poisson | the head, then LoRA |" in text
    assert "| canaries in small-cnn-s | DP-SGD in words |" in text


def test_people_read_three_tables_and_one_run_has_no_standard_error():
    _, content = rows_of(attack(), canaries(), training(accuracy=(0.9,)))
    text = content["audit.md"].decode()
    assert text.count("| --- |") >= 3
    assert "confidence 0.95; contradicted if" in text
    assert "| 0.9 |" in text


def test_the_table_is_made_from_the_command_line(tmp_path):
    paths = []
    for each in (attack(), canaries(), training()):
        path = tmp_path / "t" / "runs" / "audit" / each["id"] / "record.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(dict.fromkeys(FIELDS) | each | {"schema_version": 1}))
        paths.append(str(path))
    lineage = tmp_path / "t" / "lineage" / "audit.json"
    arguments = ["audit", "--tier", "t", "--settings", "{}", "--output", str(tmp_path / "t/tables")]
    assert main([*arguments, "--lineage", str(lineage), "--records", *paths]) == 0
    assert len(json.loads(lineage.read_text())["records"]) == 3
    assert (tmp_path / "t/tables/audit.tex").is_file()
