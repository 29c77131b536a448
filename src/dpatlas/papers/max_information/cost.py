"""The work of max_information's jobs."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from dpatlas.config.sizes import array_mb
from dpatlas.cost.counting import BYTES_PER_NUMBER, RECORD_BYTES, JobCost, Size, Work
from dpatlas.cost.training import PRIVATE_STARTS

# Multiplications of one record, forward, of the convolutional network on 3 x 32 x 32.
CONVOLUTIONAL = 157_000_000
# A training step visits every layer for means and deviations, forward and back; a chunk of pairs
# has so many of them.
VISITS_PER_STEP, PAIRS_PER_CHUNK = 12, 1000
NUMBERS_PER_ROW = 40
# Values of kappa, and of epsilon in the ledger, for every DP-SGD prior.
VALUES_PER_PRIOR = 2
# Of a start with torch: what jobs without data take. Of their memory, in MB, and for each draw.
START_WITHOUT_TORCH = 0.25
MB_WITHOUT_TORCH, MB_PER_DRAW = 200, 2e-4


def certificates(fields: Mapping[str, Any], size: Size) -> Work:
    """Per run and prior its centre; per tau a posterior, and pairs for both."""
    tuples = sum(prior["kind"] != "independent" for prior in fields["priors"])
    trained = [prior for prior in fields["priors"] if prior["kind"] != "independent"]
    epochs = sum(prior["E"] for prior in trained)
    rows = fields["runs"] * len(fields["priors"]) * len(fields["taus"])
    counts = _rows(fields, size, rows, 2 * fields["draws"] + 2 * _tests(fields))
    multiplications = _multiplications(fields, size)
    counts["products"] += 8 * fields["runs"] * epochs * size.n_train * multiplications
    counts |= {"accountings": VALUES_PER_PRIOR * tuples, "starts": PRIVATE_STARTS}
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * NUMBERS_PER_ROW * rows)


def agreement(fields: Mapping[str, Any], size: Size) -> Work:
    """One posterior; pairs whose outputs are drawn, and pairs whose weights are."""
    pairs = 2 * fields["repetitions"] * fields["draws"]
    counts = _rows(fields, size, 1, pairs)
    counts["normals"] += pairs * _multiplications(fields, size)
    counts |= {"accountings": VALUES_PER_PRIOR, "starts": PRIVATE_STARTS}
    return Work(counts, 2 * RECORD_BYTES)


def formulas(fields: Mapping[str, Any], size: Size) -> Work:
    """Values of closed forms: start-up is all."""
    return Work({"starts": START_WITHOUT_TORCH}, 4 * RECORD_BYTES)


def simulation(fields: Mapping[str, Any], size: Size) -> Work:
    """Sums of vectors in three dimensions."""
    draws = len(fields["laws"]) * len(fields["nus"]) * fields["draws"]
    counts = {"normals": 3 * draws * fields["m"], "starts": START_WITHOUT_TORCH}
    return Work(counts, 2 * RECORD_BYTES)


def _rows(fields: Mapping[str, Any], size: Size, rows: int, pairs: int) -> dict[str, float]:
    """Posteriors trained, and pairs of a record and weights for each."""
    training, multiplications = fields["training"], _multiplications(fields, size)
    steps = training["epochs"] * (size.n_train // training["batch"])
    visits = 6 * steps * training["batch"] + 2 * pairs
    chunks = math.ceil(pairs / PAIRS_PER_CHUNK)
    return {
        "products": 2 * rows * visits * multiplications,
        "steps": rows * (steps * VISITS_PER_STEP + chunks * VISITS_PER_STEP),
        "normals": rows * (steps * training["batch"] + pairs) * _outputs(fields),
        "elements": rows * steps * 6 * multiplications,
    }


def _tests(fields: Mapping[str, Any]) -> int:
    return fields["test_repetitions"] * fields["data"]["n_test"]


def _multiplications(fields: Mapping[str, Any], size: Size) -> float:
    if fields["model"] != "mlp":
        return CONVOLUTIONAL
    classes = len(fields["data"]["classes"])
    return sum(math.prod(pair) for pair in pairwise([size.inputs, *_widths(fields), classes]))


def _outputs(fields: Mapping[str, Any]) -> float:
    return sum(_widths(fields)) + len(fields["data"]["classes"])


def _widths(fields: Mapping[str, Any]) -> list[int]:
    return list(fields["options"].get("widths", (1024, 512)))


def memory_mb(fields: Mapping[str, Any]) -> int:
    """Peak memory of a job in MB: interpreter, torch and accountants; images, chunks of pairs."""
    return round(1100 + 4 * array_mb(fields["data"]))


def memory_without_data_mb(fields: Mapping[str, Any]) -> int:
    """Peak memory of a job without data in MB: the interpreter, numpy and scipy, and sums."""
    return round(MB_WITHOUT_TORCH + MB_PER_DRAW * fields.get("draws", 0))


KINDS = {
    "certificates": JobCost(
        certificates,
        memory_mb,
        lower=("options.widths", "training.batch", "data.n_train"),
        gpu=True,
    ),
    "agreement": JobCost(agreement, memory_mb, lower=("draws",), gpu=True),
    "coefficients": JobCost(formulas, memory_without_data_mb, lower=("draws",)),
    "kappa": JobCost(formulas, memory_without_data_mb, lower=("draws",)),
    "simulation": JobCost(simulation, memory_without_data_mb, lower=("draws",)),
}
