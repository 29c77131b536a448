"""The table `audit`, on small synthetic records."""

import pytest
from audit_samples import LEDGER, attack, canaries, trained
from figure_samples import csv_rows

from dpatlas.checks.audit.figures.audit import COLUMNS, audit
from dpatlas.show.output import table_files


def table(*records):
    """Rows of the csv, and the text of the Markdown."""
    files = table_files("audit", audit(records, {}), "trial")
    return csv_rows(files["audit.csv"]), files["audit.md"].decode()


def test_every_record_is_one_row_with_its_guarantee_bound_and_verdict():
    records = attack(), attack("lp-then-fft", contradicted=True), canaries(), trained()
    rows, _ = table(*records)
    assert tuple(rows[0])[: len(COLUMNS)] == COLUMNS
    assert [row["part"] for row in rows] == ["mechanism"] * 3 + ["training"]
    assert [row["verdict"] for row in rows] == ["consistent", "contradicted", "consistent", ""]
    first, _, one_run, network = rows
    bounds = ("guaranteed_epsilon", "lower_bound", "delta", "audited_runs", "canaries")
    assert [first[name] for name in bounds] == ["1.5", "0.8", "0.01", "1200", ""]
    assert [one_run[name] for name in bounds] == ["3.0", "0.8", "1e-05", "1", "300"]
    assert float(network["accuracy_mean"]) == pytest.approx(0.85)
    assert float(network["accuracy_standard_error"]) == pytest.approx(0.05)
    assert network["skipped_records"] == "3"


def test_a_claim_stands_beside_the_guarantee_with_a_verdict_of_its_own():
    claims = [{}, {"claimed": 1.0, "claim_excess": -0.1}, {"claimed": 0.2, "claim_excess": 0.3}]
    rows, text = table(*(attack(**claim) for claim in claims), canaries(), trained())
    rows = rows[:4]
    assert [row["claimed_epsilon"] for row in rows] == ["", "1.0", "0.2", ""]
    assert [row["claim_verdict"] for row in rows] == ["", "consistent", "contradicted", ""]
    assert [row["claim_excess"] for row in rows] == ["", "-0.1", "0.3", ""]
    assert [row["claim_excess_delta"] for row in rows] == ["", "0.03", "0.03", ""]
    # The guarantee's verdict is another matter.
    assert {row["verdict"] for row in rows} == {"consistent"}
    assert text.count("contradicted |") == 1


def test_people_read_what_is_attacked_with_which_batches_and_what_was_trained():
    phases = [LEDGER["sampler"], LEDGER["sampler"] | {"name": "full-batch", "expected_batch": 32.0}]
    attacked = attack(sampler=phases, sentence="the head, then LoRA")
    rows, text = table(attacked, canaries(), trained(accuracy=(0.9,)))
    assert rows[0]["samplers"] == "poisson 8 of 32; then full-batch 32 of 32"
    assert [row["description"] for row in rows] == ["the head, then LoRA", *["DP-SGD in words"] * 2]
    assert "| dp-sgd-poisson | the head, then LoRA |" in text
    assert "| canaries in small-cnn-s | DP-SGD in words |" in text
    assert "confidence 0.95; contradicted if" in text
    # A single run has no standard error.
    assert "| 0.9 |" in text
