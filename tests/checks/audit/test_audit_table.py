"""What the table `audit` shows, on small synthetic records."""

import csv
import io

import pytest
from figure_samples import check_job, sample_record
from small_jobs import TRAINING

from dpatlas.checks.audit.figures.audit import COLUMNS, audit
from dpatlas.checks.audit.records import mechanism, training
from dpatlas.checks.audit.records.bounds import Bound, Excess, Rates
from dpatlas.checks.audit.settings import DEFAULTS
from dpatlas.show.output import table_files

LEDGER = {
    "mechanism": "DP-SGD in words",
    "sampler": {"name": "poisson", "n": 32, "expected_batch": 8.0, "sample_rate": 0.25},
    "epsilon": 3.0,
    "delta": 1e-5,
    "claimed": None,
}
COMMON = {"key": "audit", "seed": 0, "noise_source": "keyed"}
RATES = Rates(
    runs=1200,
    threshold=0.0,
    above=True,
    false_positives=1,
    tested_without=450,
    false_negatives=2,
    tested_with=450,
    fpr_limit=0.02,
    fnr_limit=0.03,
)


def bound(**changes):
    values = {"epsilon": 0.8, "delta": 0.01, "level": 0.95, "runs": 1200, "ceiling": 5.0}
    return Bound(**{**values, "method": "repeated runs", "evidence": RATES, **changes})


def excess(value, delta):
    values = {"epsilon": 1.0, "level": 0.999, "runs": 1200, "ceiling": 4.0, "evidence": RATES}
    return Excess(excess=value, delta=delta, **values)


def attack(
    name="dp-sgd-poisson",
    contradicted=False,
    claimed=None,
    claim_excess=None,
    sentence="DP-SGD in a sentence",
    **ledger,
):
    profile = mechanism.Profile(delta=[0.1], epsilon=[1.0])
    metrics = mechanism.Metrics(
        sentence=sentence,
        relation="add_remove",
        guaranteed=1.5,
        profile=profile,
        lower=bound(),
        profile_test=excess(0.2 if contradicted else -0.2, 0.1),
        contradicted=contradicted,
        claimed=claimed,
        claimed_profile=claimed and profile,
        claim_test=claimed and excess(claim_excess, 0.03),
        claim_contradicted=claimed and claim_excess > 0,
    )
    fields = {"kind": "mechanism", "mechanism": name, "runs": 600, "delta": 0.01}
    levels = {"level": 0.95, "verdict_level": 0.999}
    spec = mechanism.Spec(**COMMON, **fields, **levels)
    return sample_record(spec, metrics, name, ledger=LEDGER | ledger)


def trained(audited=None, accuracy=(0.8, 0.9)):
    metrics = training.Metrics(
        accuracy=list(accuracy),
        curves=[],
        ema_accuracy=[],
        selection=None,
        noise_multiplier=5.5,
        expected_batch=600.0,
        n_train=1200,
        n_test=297,
        skipped_records=[1, 2],
        audit=audited,
    )
    settings = {"model": "small-cnn-s", "steps": 60, "runs": len(accuracy), "settings_tried": 10}
    settings |= {"kind": "training", "canaries": 300 if audited else 0}
    spec = training.Spec(**{**TRAINING, **DEFAULTS, **COMMON, **settings})
    return sample_record(spec, metrics, ledger=LEDGER)


def canaries():
    one_run = {"delta": 1e-5, "method": "one run", "runs": 1}
    return trained(
        training.Audit(
            canaries=300,
            auc=0.6,
            lower=bound(**one_run),
            verdict_bound=bound(**one_run, level=0.999),
            excess=-2.6,
            contradicted=False,
        )
    )


def rows_of(*records):
    content = table_files("audit", audit(records, {}), "trial")
    return list(csv.DictReader(io.StringIO(content["audit.csv"].decode()))), content


def test_every_record_is_one_row_with_its_guarantee_bound_and_verdict():
    rows, _ = rows_of(attack(), attack("lp-then-fft", contradicted=True), canaries(), trained())
    assert tuple(rows[0])[: len(COLUMNS)] == COLUMNS
    assert [row["part"] for row in rows] == ["mechanism"] * 3 + ["training"]
    assert [row["verdict"] for row in rows] == ["consistent", "contradicted", "consistent", ""]
    first, _, one_run, network = rows
    assert (first["guaranteed_epsilon"], first["lower_bound"], first["delta"]) == (
        "1.5",
        "0.8",
        "0.01",
    )
    assert (first["audited_runs"], first["canaries"], first["claimed_epsilon"]) == ("1200", "", "")
    assert (one_run["audited_runs"], one_run["canaries"], one_run["delta"]) == ("1", "300", "1e-05")
    assert float(network["accuracy_mean"]) == pytest.approx(0.85)
    assert float(network["accuracy_standard_error"]) == pytest.approx(0.05)
    assert network["skipped_records"] == "3"


def test_a_claim_stands_beside_the_guarantee_with_a_verdict_of_its_own():
    claims = [{}, {"claimed": 1.0, "claim_excess": -0.1}, {"claimed": 0.2, "claim_excess": 0.3}]
    rows, content = rows_of(*(attack(**claim) for claim in claims), canaries(), trained())
    rows = rows[:4]
    assert [row["claimed_epsilon"] for row in rows] == ["", "1.0", "0.2", ""]
    assert [row["claim_verdict"] for row in rows] == ["", "consistent", "contradicted", ""]
    assert [row["claim_excess"] for row in rows] == ["", "-0.1", "0.3", ""]
    assert [row["claim_excess_delta"] for row in rows] == ["", "0.03", "0.03", ""]
    # The guarantee's verdict is another matter.
    assert {row["verdict"] for row in rows} == {"consistent"}
    assert content["audit.md"].decode().count("contradicted |") == 1


def test_every_phase_names_its_batches():
    phases = [LEDGER["sampler"], LEDGER["sampler"] | {"name": "full-batch", "expected_batch": 32.0}]
    rows, _ = rows_of(attack(sampler=phases), trained())
    assert rows[0]["samplers"] == "poisson 8 of 32; then full-batch 32 of 32"


def test_every_attacked_mechanism_is_described_in_words():
    rows, content = rows_of(attack(sentence="the head, then LoRA"), canaries(), trained())
    assert [row["description"] for row in rows] == ["the head, then LoRA", *["DP-SGD in words"] * 2]
    text = content["audit.md"].decode()
    assert "| dp-sgd-poisson | the head, then LoRA |" in text
    assert "| canaries in small-cnn-s | DP-SGD in words |" in text


def test_people_read_three_tables_and_one_run_has_no_standard_error():
    _, content = rows_of(attack(), canaries(), trained(accuracy=(0.9,)))
    text = content["audit.md"].decode()
    assert text.count("| --- |") >= 3
    assert "confidence 0.95; contradicted if" in text
    assert "| 0.9 |" in text


def test_the_table_is_made_from_the_command_line(tmp_path):
    check_job("audit", [attack(), canaries(), trained()], {}, tmp_path)
