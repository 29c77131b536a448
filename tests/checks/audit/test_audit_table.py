"""The table `audit`, on small synthetic records."""

import pytest
from block_worlds import worlds_of
from figure_samples import csv_rows

from dpatlas_workflow.checks.audit.figures.audit import COLUMNS, audit
from dpatlas_workflow.show.output import table_files

worlds = worlds_of("audit")
attack, canaries, trained = worlds.attack, worlds.canaries, worlds.trained


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
    assert first["samplers"] == "poisson 8 of 32"


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


def test_one_run_shows_its_correct_guesses_beside_those_that_contradict():
    rows, text = table(attack(), canaries(), canaries(contradicted=True), trained())
    _, consistent, contradicted, _ = rows
    shown = ("guesses", "correct_guesses", "contradicting_guesses", "p_value", "verdict")
    assert [consistent[name] for name in shown] == ["84", "60", "79", "0.9", "consistent"]
    assert [contradicted[name] for name in shown] == ["84", "80", "79", "0.04", "contradicted"]
    # Its verdict has another confidence than those of repeated runs, and no excess.
    assert [row["excess_level"] for row in rows[:2]] == ["0.999", "0.95"]
    assert consistent["excess"] == ""
    assert "profile is contradicted with confidence 0.95 (empty" in text
