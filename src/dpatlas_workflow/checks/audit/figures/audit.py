"""Table `audit`: lower bounds from attacks on our own mechanisms, and accuracies of training."""

from collections.abc import Mapping, Sequence
from typing import Any

from dpatlas_workflow.checks.audit.records.mechanism import MechanismSpec
from dpatlas_workflow.checks.audit.records.network import NetworkSpec
from dpatlas_workflow.records import Record
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Row, Settings, mean_and_error, of_kind
from dpatlas_workflow.show.tables import Cell, Measured, Part

MechanismRecord = Record[MechanismSpec]
NetworkRecord = Record[NetworkSpec]
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
    "guesses",
    "correct_guesses",
    "contradicting_guesses",
    "p_value",
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
# Headings by column in the tables for people.
ATTACKS: dict[str, Cell] = {
    "mechanism": "mechanism",
    "samplers": "batches",
    "relation": "neighbours",
    "audited_runs": "runs",
    "canaries": "canaries",
    "delta": "delta",
    "guaranteed_epsilon": "guaranteed eps",
    "claimed_epsilon": "claimed eps",
    "lower_bound": "lower bound",
    "ceiling": "largest possible",
    "excess": "excess",
    "excess_delta": "at delta",
    "verdict": "verdict",
    "claim_verdict": "claim",
}
ONE_RUN: dict[str, Cell] = {
    "mechanism": "mechanism",
    "canaries": "canaries",
    "guesses": "guesses",
    "correct_guesses": "correct",
    "contradicting_guesses": "correct that contradict",
    "p_value": "p-value",
    "verdict": "verdict",
}
DESCRIPTIONS: dict[str, Cell] = {"mechanism": "mechanism", "description": "what it does"}
TRAININGS: dict[str, Cell] = {
    "model": "model",
    "samplers": "batches",
    "relation": "neighbours",
    "epsilon": "eps",
    "delta": "delta",
    "noise_multiplier": "noise multiplier",
    "steps": "steps",
    "trained_runs": "runs",
    "accuracy_mean": "test accuracy",
    "skipped_records": "skipped records",
}


def audit(records: Sequence[Record[Any]], settings: Settings) -> ShownTable:
    """A row per mechanism, per audit by canaries, and per private training."""
    mechanisms = [mechanism_row(record) for record in of_kind(records, "mechanism")]
    trainings = of_kind(records, "network")
    one_run = [one_run_row(record) for record in trainings if record.facts["audit"]]
    trained = [training_row(record) for record in trainings if not record.facts["audit"]]
    rows = [*mechanisms, *one_run, *trained]
    attacked = [*mechanisms, *one_run]
    accuracies = [row | {"accuracy_mean": Measured.of(row, "accuracy")} for row in trained]
    measured = "mean ± standard error over runs of the last iterate's accuracy"
    parts = [
        attacks_part(attacked),
        one_run_part(one_run),
        Part.of("Attacked mechanisms", DESCRIPTIONS, attacked),
        Part.of(f"Private training: {measured}", TRAININGS, accuracies),
    ]
    return ShownTable(COLUMNS, rows, parts)


def mechanism_row(record: MechanismRecord) -> Row:
    """The row of an attack by repeated runs on two neighbouring data sets."""
    facts = record.facts
    lower, test, claim = facts["lower"], facts["profile_test"], facts["claim_test"]
    return {
        **_shared("mechanism", record),
        "mechanism": record.spec.mechanism,
        "description": facts["sentence"],
        **_bound(lower),
        "audited_runs": 2 * record.spec.runs,
        "guaranteed_epsilon": facts["guaranteed"],
        "claimed_epsilon": facts["claimed"],
        "excess": test["excess"],
        "excess_delta": test["delta"],
        "excess_level": test["level"],
        "verdict": _verdict(facts["contradicted"]),
        "claim_excess": claim and claim["excess"],
        "claim_excess_delta": claim and claim["delta"],
        "claim_verdict": _verdict(facts["claim_contradicted"]),
    }


def one_run_row(record: NetworkRecord) -> Row:
    """The row of an audit by many canaries in one training run."""
    canaries = record.facts["audit"]
    lower, test, claimed = canaries["lower"], canaries["profile_test"], record.ledger["claimed"]
    return {
        **_shared("mechanism", record),
        "mechanism": f"canaries in {record.spec.model}",
        **_bound(lower),
        "audited_runs": 1,
        "canaries": test["canaries"],
        "guesses": test["guesses"],
        "correct_guesses": test["correct"],
        "contradicting_guesses": test["needed"],
        "p_value": test["p_value"],
        "guaranteed_epsilon": record.ledger["epsilon"],
        "claimed_epsilon": claimed and claimed["epsilon"],
        "excess_level": test["level"],
        "verdict": _verdict(canaries["contradicted"]),
    }


def training_row(record: NetworkRecord) -> Row:
    """The row of networks trained privately and tested on held-out records."""
    fields, facts, ledger = record.spec, record.facts, record.ledger
    runs = record.tables["runs"]
    return {
        **_shared("training", record),
        "mechanism": "dp-sgd",
        "model": fields.model,
        # The epsilon of one run; that of the ledger itself covers all runs together.
        "epsilon": ledger.get("one_run", ledger)["epsilon"],
        "delta": ledger["delta"],
        "all_runs_epsilon": ledger["epsilon"],
        "with_tuning_epsilon": ledger.get("tuning", {}).get("epsilon"),
        "noise_multiplier": facts["noise_multiplier"],
        "expected_batch": facts["expected_batch"],
        "steps": fields.steps,
        "trained_runs": fields.runs,
        **mean_and_error("accuracy", [row["accuracy"] for row in runs]),
        "n_train": facts["n"],
        "n_test": facts["n_test"],
        "skipped_records": facts["skipped_records"],
        "settings_tried": fields.settings_tried,
    }


def attacks_part(rows: Sequence[Row]) -> Part:
    """Lower bounds beside the guaranteed and the claimed epsilon."""
    first = rows[0]
    caption = (
        f"Attacks: eps is at least the lower bound with confidence {first['level']:g}; "
        f"contradicted if some eps(delta) is exceeded with confidence {first['excess_level']:g}, "
        "the guaranteed (verdict) or the claimed (claim); for the verdict on one run see below"
    )
    return Part.of(caption, ATTACKS, rows)


def one_run_part(rows: Sequence[Row]) -> Part:
    """Correct guesses beside the number that contradicts the guarantee."""
    levels = ", ".join(sorted({f"{row['excess_level']:g}" for row in rows}))
    caption = (
        "One run: so many guesses about the canaries were correct; with the given number the "
        f"guaranteed profile is contradicted with confidence {levels} (empty: no number does)"
    )
    return Part.of(caption, ONE_RUN, rows)


def _shared(part: str, record: MechanismRecord | NetworkRecord) -> Row:
    """What rows of all parts have, with the sampler and the expected batch of every phase."""
    samplers = record.ledger["sampler"]
    phases = samplers if isinstance(samplers, list) else [samplers]
    names = [f"{phase['name']} {phase['expected_batch']:g} of {phase['n']}" for phase in phases]
    return {
        "part": part,
        "description": record.ledger["mechanism"],
        "samplers": "; then ".join(names),
        "relation": record.facts["relation"],
        "runs": [record.id],
    }


def _bound(lower: Mapping[str, Any]) -> Row:
    """A lower bound on epsilon, as of `LowerBound`."""
    shown = {name: lower[name] for name in ("method", "delta", "level", "ceiling")}
    return {**shown, "lower_bound": lower["epsilon"]}


def _verdict(contradicted: bool | None) -> str | None:
    """The verdict in a word; None where there was nothing to contradict."""
    if contradicted is None:
        return None
    return CONTRADICTED if contradicted else CONSISTENT
