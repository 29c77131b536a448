"""Table `audit`: what attacks showed of our own mechanisms, and what private training reached."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpatlas.checks.audit.records import mechanism, training
from dpatlas.records import Record
from dpatlas.show.output import Row, Settings, ShownTable
from dpatlas.show.tables import Measured, Part

MechanismRecord = Record[mechanism.Spec, mechanism.Metrics]
TrainingRecord = Record[training.Spec, training.Metrics]
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


def audit(records: Sequence[Record[Any, Any]], settings: Settings) -> ShownTable:
    """A row per mechanism, one for the one-run audit, one for the private training."""
    mechanisms = [mechanism_row(each) for each in records if each.kind == "mechanism"]
    trainings = [each for each in records if each.kind == "training"]
    one_run = [one_run_row(each, each.metrics.audit) for each in trainings if each.metrics.audit]
    trained = [training_row(each) for each in trainings if not each.metrics.audit]
    rows = [*mechanisms, *one_run, *trained]
    attacked = [*mechanisms, *one_run]
    parts = [attacks_part(attacked), descriptions_part(attacked), training_part(trained)]
    return ShownTable(COLUMNS, rows, parts)


def mechanism_row(record: MechanismRecord) -> Row:
    """Repeated runs on two neighbouring data sets."""
    metrics = record.metrics
    lower, test, claim = metrics.lower, metrics.profile_test, metrics.claim_test
    return {
        **_shared("mechanism", record),
        "mechanism": record.spec.mechanism,
        "description": metrics.sentence,
        "relation": metrics.relation,
        "method": lower.method,
        "audited_runs": 2 * record.spec.runs,
        "delta": lower.delta,
        "guaranteed_epsilon": metrics.guaranteed,
        "claimed_epsilon": metrics.claimed,
        "lower_bound": lower.epsilon,
        "level": lower.level,
        "ceiling": lower.ceiling,
        "excess": test.excess,
        "excess_delta": test.delta,
        "excess_level": test.level,
        "verdict": _verdict(metrics.contradicted),
        "claim_excess": claim and claim.excess,
        "claim_excess_delta": claim and claim.delta,
        "claim_verdict": _verdict(metrics.claim_contradicted),
    }


def one_run_row(record: TrainingRecord, canaries: training.Audit) -> Row:
    """Many canaries in one training run."""
    lower = canaries.lower
    return {
        **_shared("mechanism", record),
        "mechanism": f"canaries in {record.spec.model}",
        "relation": record.spec.relation,
        "method": lower.method,
        "audited_runs": 1,
        "canaries": canaries.canaries,
        "delta": lower.delta,
        "guaranteed_epsilon": record.ledger["epsilon"],
        "claimed_epsilon": _claimed(record),
        "lower_bound": lower.epsilon,
        "level": lower.level,
        "ceiling": lower.ceiling,
        "excess": canaries.excess,
        "excess_delta": canaries.verdict_bound.delta,
        "excess_level": canaries.verdict_bound.level,
        "verdict": _verdict(canaries.contradicted),
    }


def training_row(record: TrainingRecord) -> Row:
    """Networks trained privately, tested on held-out records."""
    fields, metrics, ledger = record.spec, record.metrics, record.ledger
    accuracy = np.array(metrics.accuracy)
    error = float(accuracy.std(ddof=1) / np.sqrt(len(accuracy))) if len(accuracy) > 1 else None
    return {
        **_shared("training", record),
        "mechanism": "dp-sgd",
        "relation": fields.relation,
        "model": fields.model,
        # Of one run: the ledger's own is of all of them together.
        "epsilon": ledger.get("one_run", ledger)["epsilon"],
        "delta": ledger["delta"],
        "all_runs_epsilon": ledger["epsilon"],
        "with_tuning_epsilon": ledger.get("tuning", {}).get("epsilon"),
        "noise_multiplier": metrics.noise_multiplier,
        "expected_batch": metrics.expected_batch,
        "steps": fields.steps,
        "trained_runs": fields.runs,
        "accuracy_mean": float(accuracy.mean()),
        "accuracy_standard_error": error,
        "n_train": metrics.n_train,
        "n_test": metrics.n_test,
        "skipped_records": sum(metrics.skipped_records),
        "settings_tried": fields.settings_tried,
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


def _shared(part: str, record: MechanismRecord | TrainingRecord) -> Row:
    ledger = record.ledger
    return {
        "part": part,
        "description": ledger["mechanism"],
        "samplers": _samplers(ledger),
        "runs": [record.id],
    }


def _samplers(ledger: Mapping[str, Any]) -> str:
    """The sampler of every phase, with its expected batch."""
    phases = ledger["sampler"] if isinstance(ledger["sampler"], list) else [ledger["sampler"]]
    names = [f"{phase['name']} {phase['expected_batch']:g} of {phase['n']}" for phase in phases]
    return "; then ".join(names)


def _claimed(record: TrainingRecord) -> float | None:
    claimed = record.ledger["claimed"]
    return claimed and claimed["epsilon"]


def _verdict(contradicted: bool | None) -> str | None:
    """None where there was nothing to contradict."""
    if contradicted is None:
        return None
    return CONTRADICTED if contradicted else CONSISTENT
