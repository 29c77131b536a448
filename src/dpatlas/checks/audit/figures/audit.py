"""Table `audit`: what attacks showed of our own mechanisms, and what private training reached."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpatlas.show.output import Records, Row, Settings, ShownTable
from dpatlas.show.tables import Measured, Part

CONSISTENT, CONTRADICTED = "consistent", "contradicted"
SHARED = ("part", "mechanism", "description", "samplers", "relation")
ATTACKED = (
    "delta",
    "guaranteed_epsilon",
    "claimed_epsilon",
    "lower_bound",
    "verdict",
    "claim_verdict",
    "level",
    "ceiling",
    "excess",
    "excess_delta",
    "excess_level",
    "claim_excess",
    "claim_excess_delta",
    "method",
    "audited_runs",
    "canaries",
)
TRAINED = (
    "model",
    "epsilon",
    "noise_multiplier",
    "expected_batch",
    "steps",
    "trained_runs",
    "all_runs_epsilon",
    "with_tuning_epsilon",
    "accuracy_mean",
    "accuracy_standard_error",
    "n_train",
    "n_test",
    "skipped_records",
    "settings_tried",
)
COLUMNS = (*SHARED, *ATTACKED, *TRAINED)


def audit(records: Records, settings: Settings) -> ShownTable:
    """A row per mechanism, one for the one-run audit, one for the private training."""
    mechanisms = [mechanism_row(each) for each in records if each["spec"]["kind"] == "mechanism"]
    trainings = [each for each in records if each["spec"]["kind"] == "training"]
    one_run = [one_run_row(each) for each in trainings if each["metrics"]["audit"]]
    trained = [training_row(each) for each in trainings if not each["metrics"]["audit"]]
    rows = [*mechanisms, *one_run, *trained]
    attacked = [*mechanisms, *one_run]
    parts = [attacks_part(attacked), descriptions_part(attacked), training_part(trained)]
    return ShownTable(COLUMNS, rows, parts)


def mechanism_row(record: Mapping[str, Any]) -> Row:
    """Repeated runs on two neighbouring data sets."""
    metrics = record["metrics"]
    lower, test = metrics["lower"], metrics["profile_test"]
    claim = metrics["claim_test"] or {}
    return {
        **_shared("mechanism", record),
        "mechanism": record["spec"]["mechanism"],
        "description": metrics["sentence"],
        "relation": metrics["relation"],
        "method": lower["method"],
        "audited_runs": 2 * record["spec"]["runs"],
        "delta": lower["delta"],
        "guaranteed_epsilon": metrics["guaranteed"],
        "claimed_epsilon": metrics["claimed"],
        "lower_bound": lower["epsilon"],
        "level": lower["level"],
        "ceiling": lower["ceiling"],
        "excess": test["excess"],
        "excess_delta": test["delta"],
        "excess_level": test["level"],
        "verdict": _verdict(metrics["contradicted"]),
        "claim_excess": claim.get("excess"),
        "claim_excess_delta": claim.get("delta"),
        "claim_verdict": _verdict(metrics["claim_contradicted"]),
    }


def one_run_row(record: Mapping[str, Any]) -> Row:
    """Many canaries in one training run."""
    found = record["metrics"]["audit"]
    lower = found["lower"]
    return {
        **_shared("mechanism", record),
        "mechanism": f"canaries in {record['spec']['model']}",
        "relation": record["spec"]["relation"],
        "method": lower["method"],
        "audited_runs": 1,
        "canaries": found["canaries"],
        "delta": lower["delta"],
        "guaranteed_epsilon": record["ledger"]["epsilon"],
        "claimed_epsilon": _claimed(record),
        "lower_bound": lower["epsilon"],
        "level": lower["level"],
        "ceiling": lower["ceiling"],
        "excess": found["excess"],
        "excess_delta": found["verdict_bound"]["delta"],
        "excess_level": found["verdict_bound"]["level"],
        "verdict": _verdict(found["contradicted"]),
    }


def training_row(record: Mapping[str, Any]) -> Row:
    """Networks trained privately, tested on held-out records."""
    fields, metrics, ledger = (record[name] for name in ("spec", "metrics", "ledger"))
    accuracy = np.array(metrics["accuracy"])
    error = float(accuracy.std(ddof=1) / np.sqrt(len(accuracy))) if len(accuracy) > 1 else None
    return {
        **_shared("training", record),
        "mechanism": "dp-sgd",
        "relation": fields["relation"],
        "model": fields["model"],
        # Of one run: the ledger's own is of all of them together.
        "epsilon": ledger.get("one_run", ledger)["epsilon"],
        "delta": ledger["delta"],
        "all_runs_epsilon": ledger["epsilon"],
        "with_tuning_epsilon": ledger.get("tuning", {}).get("epsilon"),
        "noise_multiplier": metrics["noise_multiplier"],
        "expected_batch": metrics["expected_batch"],
        "steps": fields["steps"],
        "trained_runs": fields["runs"],
        "accuracy_mean": float(accuracy.mean()),
        "accuracy_standard_error": error,
        "n_train": metrics["n_train"],
        "n_test": metrics["n_test"],
        "skipped_records": sum(metrics["skipped_records"]),
        "settings_tried": fields["settings_tried"],
    }


def attacks_part(rows: Sequence[Row]) -> Part:
    """Lower bounds beside what is guaranteed."""
    headings = (
        "mechanism",
        "batches",
        "neighbours",
        "runs",
        "canaries",
        "delta",
        "guaranteed eps",
        "claimed eps",
        "eps at least",
        "could show",
        "excess",
        "at delta",
        "verdict",
        "claim",
    )
    first = rows[0]
    return Part(
        f"Attacks: eps is at least the bound with confidence {first['level']:g}; contradicted if "
        f"some eps(delta) is exceeded with confidence {first['excess_level']:g}, the guaranteed "
        "(verdict) or the claimed (claim)",
        headings,
        [
            (
                row["mechanism"],
                row["samplers"],
                row["relation"],
                row["audited_runs"],
                row.get("canaries"),
                row["delta"],
                row["guaranteed_epsilon"],
                row["claimed_epsilon"],
                row["lower_bound"],
                row["ceiling"],
                row["excess"],
                row["excess_delta"],
                row["verdict"],
                row.get("claim_verdict"),
            )
            for row in rows
        ],
    )


def descriptions_part(rows: Sequence[Row]) -> Part:
    """What each attacked mechanism does, in words."""
    cells = [(row["mechanism"], row["description"]) for row in rows]
    return Part("What is attacked", ("mechanism", "what it does"), cells)


def training_part(rows: Sequence[Row]) -> Part:
    """Accuracy beside the guarantee."""
    headings = (
        "model",
        "batches",
        "neighbours",
        "eps",
        "delta",
        "noise multiplier",
        "steps",
        "runs",
        "test accuracy",
        "skipped records",
    )
    return Part(
        "Private training: mean ± standard error over runs of the last iterate's accuracy",
        headings,
        [
            (
                row["model"],
                row["samplers"],
                row["relation"],
                row["epsilon"],
                row["delta"],
                row["noise_multiplier"],
                row["steps"],
                row["trained_runs"],
                Measured(row["accuracy_mean"], row["accuracy_standard_error"]),
                row["skipped_records"],
            )
            for row in rows
        ],
    )


def _shared(part: str, record: Mapping[str, Any]) -> Row:
    ledger = record["ledger"]
    return {
        "part": part,
        "description": ledger["mechanism"],
        "samplers": _samplers(ledger),
        "runs": [record["id"]],
    }


def _samplers(ledger: Mapping[str, Any]) -> str:
    """The sampler of every phase, with its expected batch."""
    phases = ledger["sampler"] if isinstance(ledger["sampler"], list) else [ledger["sampler"]]
    names = [f"{phase['name']} {phase['expected_batch']:g} of {phase['n']}" for phase in phases]
    return "; then ".join(names)


def _claimed(record: Mapping[str, Any]) -> float | None:
    claimed = record["ledger"]["claimed"]
    return claimed and claimed["epsilon"]


def _verdict(contradicted: bool | None) -> str | None:
    """None where there was nothing to contradict."""
    if contradicted is None:
        return None
    return CONTRADICTED if contradicted else CONSISTENT
