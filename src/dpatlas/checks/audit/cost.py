"""The work of audit's jobs."""

import math

from dpatlas.checks.audit.mechanisms import MECHANISMS
from dpatlas.checks.audit.records.classifier import Classifier
from dpatlas.checks.audit.records.mechanism import Spec as Mechanism
from dpatlas.checks.audit.records.selection import Spec as Selection
from dpatlas.checks.audit.records.training import Spec as Training
from dpatlas.cost.counting import BYTES_PER_NUMBER, RECORD_BYTES, Backbone, JobCost, Size, Work
from dpatlas.cost.training import (
    CALIBRATION_POINTS,
    CURVE_POINTS,
    PRIVATE_STARTS,
    VISITS_PER_UPDATE,
    private_passes,
)

# Updates of an attacked run, and values of epsilon for the mechanism's profile and ledger, and for
# the profile that canaries test.
ATTACKED_UPDATES, PROFILE_POINTS, ONE_RUN_POINTS = 4, 11, 12
# `steps` per update under attack, and per attacked run of Langevin SGD.
VISITS_PER_ATTACK, VISITS_PER_LANGEVIN = 8, 4
# Peak memory in MB, measured on 8x8 images and rounded up: of the interpreter with torch; of a
# record's activations, patches and backward passes; of a record's inputs that belong to a canary.
INTERPRETER_MB, RECORD_MB, PRIVATE_INPUT_MB = 850, 0.7, 2e-5


def mechanism(fields: Mechanism, size: Size, backbone: Backbone | None) -> Work:
    """Runs of a few attacked updates of a tiny model, and the guaranteed privacy profile."""
    cheap = MECHANISMS[fields.mechanism].runs > 1
    visits = VISITS_PER_LANGEVIN if cheap else ATTACKED_UPDATES * VISITS_PER_ATTACK
    counts = {
        "steps": 2 * fields.runs * visits,
        "accountings": PROFILE_POINTS,
        "starts": PRIVATE_STARTS,
    }
    return Work(counts, RECORD_BYTES)


def training(fields: Training, size: Size, backbone: Backbone | None) -> Work:
    """Forward pass, both backward passes and clip of every update; canaries are records too."""
    return _trainings(fields, size, fields.runs, fields.canaries)


def selection(fields: Selection, size: Size, backbone: Backbone | None) -> Work:
    """The expected number of trainings; the settings that a trial draws hardly change its cost."""
    return _trainings(fields, size, math.ceil(fields.expected_trials), 0)


def _trainings(fields: Classifier, size: Size, runs: int, canaries: int) -> Work:
    updates = runs * fields.steps
    visits = updates * fields.batch
    counts = {
        **private_passes(fields.model, size.inputs, visits),
        "steps": updates * VISITS_PER_UPDATE,
        "accountings": CALIBRATION_POINTS + (ONE_RUN_POINTS if canaries else 0),
        "starts": PRIVATE_STARTS,
    }
    numbers = runs * 3 * CURVE_POINTS + canaries
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers)


def mechanism_mb(fields: Mechanism) -> int:
    """Peak memory of a job in MB: the interpreter with torch."""
    return INTERPRETER_MB


def training_mb(fields: Classifier) -> int:
    """Peak memory of a job in MB, with the gradients of a batch and the inputs of canaries."""
    records = fields.max_physical_batch or fields.batch
    canaries = fields.canaries if isinstance(fields, Training) else 0
    return round(INTERPRETER_MB + (RECORD_MB + PRIVATE_INPUT_MB * canaries) * records)


KINDS = {
    "mechanism": JobCost(mechanism, mechanism_mb, lower=("runs",)),
    "training": JobCost(training, training_mb, lower=("batch", "data.n_train"), gpu=True),
    "selection": JobCost(selection, training_mb, lower=("runs",), gpu=True),
}
