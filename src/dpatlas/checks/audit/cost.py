"""The work of audit's jobs."""

import math
from collections.abc import Mapping
from typing import Any

from dpatlas.checks.audit.mechanisms import MECHANISMS
from dpatlas.cost.counting import BYTES_PER_NUMBER, RECORD_BYTES, JobCost, Size, Work
from dpatlas.cost.training import (
    ATTACKED_UPDATES,
    CALIBRATION_POINTS,
    CURVE_POINTS,
    PRIVATE_STARTS,
    PROFILE_POINTS,
    VISITS_PER_ATTACK,
    VISITS_PER_LANGEVIN,
    VISITS_PER_UPDATE,
    private_passes,
)

# Measured, rounded up, in MB: interpreter and torch; activations, patches and both passes of a
# record of 8x8; a canary's gradient and its row of the Gram matrix.
INTERPRETER_MB, RECORD_MB, CANARY_MB = 850, 0.7, 0.6


def mechanism(fields: Mapping[str, Any], size: Size) -> Work:
    """Runs of a few updates of a tiny model, each update attacked; the guaranteed profile."""
    cheap = MECHANISMS[fields["mechanism"]].runs > 1
    visits = VISITS_PER_LANGEVIN if cheap else ATTACKED_UPDATES * VISITS_PER_ATTACK
    counts = {
        "steps": 2 * fields["runs"] * visits,
        "accountings": PROFILE_POINTS,
        "starts": PRIVATE_STARTS,
    }
    return Work(counts, RECORD_BYTES)


def training(fields: Mapping[str, Any], size: Size) -> Work:
    """Per update: forward, both backward passes and the clip; canaries once more, and their Gram.

    Three sweeps over the activations for what is not a product.
    """
    canaries = fields["canaries"]
    updates = fields["runs"] * fields["steps"]
    visits = updates * (fields["batch"] + (size.records + 2 * canaries if canaries else 0))
    counts = {
        **private_passes(fields, size.inputs, visits),
        "steps": updates * VISITS_PER_UPDATE,
        "accountings": CALIBRATION_POINTS,
        "starts": PRIVATE_STARTS,
    }
    numbers = fields["runs"] * 3 * CURVE_POINTS + canaries
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers)


def selection(fields: Mapping[str, Any], size: Size) -> Work:
    """As many trainings as are expected; what each trial draws of its settings changes little."""
    trials = math.ceil(fields["expected_trials"])
    return training({**fields, "runs": trials, "canaries": 0}, size)


def memory_mb(fields: Mapping[str, Any]) -> int:
    """Peak memory of a job in MB: mostly the interpreter and torch; the canaries' gradients."""
    if fields["kind"] == "mechanism":
        return INTERPRETER_MB
    records = fields["max_physical_batch"] or fields["batch"]
    canaries = fields.get("canaries", 0)
    return round(INTERPRETER_MB + RECORD_MB * records + CANARY_MB * canaries)


KINDS = {
    "mechanism": JobCost(mechanism, memory_mb, lower=("runs",)),
    "training": JobCost(training, memory_mb, lower=("batch", "data.n_train"), gpu=True),
    "selection": JobCost(selection, memory_mb, lower=("runs",), gpu=True),
}
