"""How much work a job is, counted from its spec alone: the features of the cost model.

Counts are what costs time, each with a unit that has a rate: `products` floating-point operations
of float32 matrix products; `layers` and `steps` visits, each with a fixed overhead; `elements`
activations swept over; `normals` N(0, 1) draws; `resamples` record values resampled by the
bootstrap; `dense` float64 operations of factorisations and products; `streamed` float64 entries
read by matrix-vector products; `accountings` values of epsilon from steps on a sample of records;
`starts` how often the interpreter and torch start.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

FEATURES = (
    "products",
    "layers",
    "steps",
    "elements",
    "normals",
    "resamples",
    "dense",
    "streamed",
    "accountings",
    "starts",
)
# A line of an indented JSON list of floats, in bytes.
BYTES_PER_NUMBER = 24
RECORD_BYTES = 6_000
RESAMPLES = 1000
SHOWN_STEPS = 50
CURVE_POINTS = 21
# Multiplications and activations of one record of 8x8, forward, by model.
NETWORKS = {
    "linear": (640, 10),
    "mlp": (50_432, 394),
    "small-cnn-s": (380_416, 2_570),
    "small-cnn-xs": (159_296, 1_674),
    "small-cnn-t": (93_632, 906),
}
# Of an audited mechanism: updates of a run, and values of epsilon for its profile and ledger.
ATTACKED_UPDATES, PROFILE_POINTS = 4, 11
# A private update draws keys, a batch and noise, clips, and is looked at: this many visits.
VISITS_PER_UPDATE, VISITS_PER_ATTACK = 5, 8
# Optimiser and accountant take as long to load as torch does, and again.
PRIVATE_STARTS = 3
# Values of epsilon that a calibration and the ledger ask for.
CALIBRATION_POINTS = 16
# B R / n as real data show it at most depths: it sets the number of Langevin steps of Cor. 6.4.
BR_OVER_N = 90.0


@dataclass(frozen=True)
class Size:
    """Training records, records to add and inputs of a data set."""

    n_train: int
    n_add: int
    inputs: int

    @property
    def records(self) -> int:
        """All records that a step looks at."""
        return self.n_train + self.n_add


NO_DATA = Size(0, 0, 0)


@dataclass(frozen=True)
class Work:
    """Counts by feature; size of the record and of checkpoints while it runs, in bytes.

    `on_gpu`: whether the job's work moves to a GPU when there is one.
    """

    counts: Mapping[str, float]
    record_bytes: float
    checkpoint_bytes: float = 0.0
    on_gpu: bool = False


def work(fields: Mapping[str, Any], size: Size) -> Work:
    """The work of the spec with these fields; KeyError for a kind that has no count."""
    own = COUNTS[fields["key"], fields["kind"]](fields, size)
    return replace(own, counts={"starts": 1, **own.counts})


def _kl_training(fields: Mapping[str, Any], size: Size) -> Work:
    """Per step: forward, weight gradients, input gradients (not of layer 1), cross products."""
    units = _units(size.inputs, fields["width"], fields["depth"], fields["outputs"])
    parameters = sum(map(math.prod, itertools.pairwise(units)))
    above = parameters - units[0] * units[1]
    records, steps = size.records, fields["steps"]
    passes = fields["runs"] * steps
    products = 4 * records * parameters + 2 * size.n_train * parameters + 2 * records * above
    return Work(
        counts={
            "products": passes * products,
            "layers": passes * fields["depth"],
            "steps": passes,
            "elements": passes * records * sum(units[1:]),
            "normals": (passes + fields["runs"]) * parameters,
            "resamples": RESAMPLES * steps * records,
        },
        record_bytes=RECORD_BYTES + BYTES_PER_NUMBER * steps * (5 + 3 * fields["runs"]),
        checkpoint_bytes=8 * passes * records + 4 * parameters,
        on_gpu=True,
    )


def _kl_linearized(fields: Mapping[str, Any], size: Size) -> Work:
    """Per depth and run: the NTK matrix, its factorisations, Langevin steps in function space."""
    n, runs = fields["n_train"], fields["runs"]
    records = n + min(n, size.n_add)
    # T (largest eigenvalue) / (4 n) of Cor. 6.4, were the trace n B in one eigenvalue.
    needed = n * math.sqrt(fields["epsilon"] * BR_OVER_N / 2) / 4
    steps = max(fields["min_steps"], math.ceil(needed))
    counts = dict.fromkeys(("dense", "streamed", "steps", "normals"), 0.0)
    for depth in fields["depths"]:
        units = _units(size.inputs, fields["width"], depth, 1)
        parameters = sum(map(math.prod, itertools.pairwise(units)))
        gram = 4 * records * parameters + 4 * records**2 * sum(units)
        # Symmetric eigenvectors take about 9 n^3, eigenvalues alone and a solve about 2 n^3.
        counts["dense"] += runs * (gram + 9 * records**3 + 2 * n**3)
        counts["streamed"] += runs * steps * records * (records + n)
        counts["steps"] += runs * steps
        counts["normals"] += runs * (steps * records + parameters)
    numbers = len(fields["depths"]) * SHOWN_STEPS * (runs + 2)
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers)


def _kl_constants(fields: Mapping[str, Any], size: Size) -> Work:
    """Per draw: fresh weights, one forward pass and a backward pass per output, of one record."""
    conditions = len(fields["inits"]) * fields["draws"]
    counts = dict.fromkeys(("layers", "steps", "normals", "streamed"), 0.0)
    for depth in fields["depths"]:
        units = _units(size.inputs, fields["width"], depth, fields["outputs"])
        parameters = sum(map(math.prod, itertools.pairwise(units)))
        counts["layers"] += conditions * depth * (1 + fields["outputs"])
        counts["steps"] += conditions
        counts["normals"] += conditions * parameters
        counts["streamed"] += conditions * parameters * (2 + fields["outputs"])
    rows = len(fields["inits"]) * len(fields["depths"])
    return Work(counts, RECORD_BYTES + 10 * BYTES_PER_NUMBER * rows)


def _audit_mechanism(fields: Mapping[str, Any], size: Size) -> Work:
    """Runs of a few updates of a tiny model, each update attacked; the guaranteed profile."""
    updates = 2 * fields["runs"] * ATTACKED_UPDATES
    counts = {
        "steps": updates * VISITS_PER_ATTACK,
        "accountings": PROFILE_POINTS,
        "starts": PRIVATE_STARTS,
    }
    return Work(counts, RECORD_BYTES)


def _audit_training(fields: Mapping[str, Any], size: Size) -> Work:
    """Per update: forward, both backward passes and the clip; canaries once more, and their Gram.

    Three sweeps over the activations for what is not a product.
    """
    multiplications, activations = NETWORKS[fields["model"]]
    canaries = fields["canaries"]
    updates = fields["runs"] * fields["steps"]
    visits = updates * (fields["batch"] + (size.records + 2 * canaries if canaries else 0))
    counts = {
        "products": 8 * visits * multiplications,
        "elements": 3 * visits * activations,
        "steps": updates * VISITS_PER_UPDATE,
        "accountings": CALIBRATION_POINTS,
        "starts": PRIVATE_STARTS,
    }
    numbers = fields["runs"] * 3 * CURVE_POINTS + canaries
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers, on_gpu=True)


def _units(inputs: int, width: int, depth: int, outputs: int) -> list[int]:
    return [inputs, *[width] * (depth - 1), outputs]


COUNTS: dict[tuple[str, str], Callable[[Mapping[str, Any], Size], Work]] = {
    ("kl_privacy", "training"): _kl_training,
    ("kl_privacy", "linearized"): _kl_linearized,
    ("kl_privacy", "constants"): _kl_constants,
    ("audit", "mechanism"): _audit_mechanism,
    ("audit", "training"): _audit_training,
}
