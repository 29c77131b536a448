"""The work of max_information's jobs."""

import math
from itertools import pairwise

from dpatlas.config.sizes import array_mb, draws_records
from dpatlas.core.records import SpecFields
from dpatlas.cost.counting import BYTES_PER_NUMBER, RECORD_BYTES, Backbone, JobCost, Size, Work
from dpatlas.cost.training import PRIVATE_STARTS
from dpatlas.papers.max_information.records.agreement import AgreementSpec
from dpatlas.papers.max_information.records.certificates import CertificatesSpec
from dpatlas.papers.max_information.records.certified import CertifiedFields, DpSgdPrior
from dpatlas.papers.max_information.records.simulation import SimulationSpec

# Multiplications in a forward pass of the convolutional network on one 3 x 32 x 32 record.
CNN_MULTIPLICATIONS = 157_000_000
# Overhead of a training step of all posteriors of a run, and of a chunk of pairs of one law.
CALLS_PER_STEP, CALLS_PER_CHUNK, PAIRS_PER_CHUNK = 4, 1, 1000
NUMBERS_PER_ROW = 40
# Drawing a record of a generated set takes as long as this many activations.
ELEMENTS_PER_FRESH_RECORD = 9000
# One kappa and one epsilon are computed for every DP-SGD prior.
ACCOUNTINGS_PER_PRIOR = 2
# Jobs without data do not load torch: their start-up as a share of one that does, their memory in
# MB, and MB for every draw of a simulation.
START_WITHOUT_TORCH = 0.25
MB_WITHOUT_TORCH, MB_PER_DRAW = 200, 2e-4


def certificates(fields: CertificatesSpec, size: Size, backbone: Backbone | None) -> Work:
    """A centre for every run and prior; for every tau a posterior, and risk counts of both.

    Priors and posteriors of a run share their draws.
    """
    trained = [prior for prior in fields.priors if isinstance(prior, DpSgdPrior)]
    epochs = sum(prior.E for prior in trained)
    arms = len(fields.priors) * len(fields.taus)
    rows, pairs = fields.runs * arms, fields.draws + _tests(fields)
    counts = _rows(fields, size, rows, 2 * pairs)
    counts["steps"] += fields.runs * _steps(fields, size) * CALLS_PER_STEP
    counts["normals"] = fields.runs * _normals(fields, size, pairs)
    multiplications = _multiplications(fields, size)
    counts["products"] += 8 * fields.runs * epochs * size.n_train * multiplications
    if draws_records(fields.data):
        drawn = fields.runs * (size.n_train + (fields.data.n_test or 0))
        counts["elements"] += ELEMENTS_PER_FRESH_RECORD * drawn
    counts |= {"accountings": ACCOUNTINGS_PER_PRIOR * len(trained), "starts": PRIVATE_STARTS}
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * NUMBERS_PER_ROW * rows)


def agreement(fields: AgreementSpec, size: Size, backbone: Backbone | None) -> Work:
    """One posterior; risk counts by local reparametrisation and by sampled weights."""
    pairs = 2 * fields.repetitions * fields.draws
    counts = _rows(fields, size, 1, pairs)
    counts["steps"] += _steps(fields, size) * CALLS_PER_STEP
    counts["normals"] = _normals(fields, size, pairs) + pairs * _multiplications(fields, size)
    counts |= {"accountings": ACCOUNTINGS_PER_PRIOR, "starts": PRIVATE_STARTS}
    return Work(counts, 2 * RECORD_BYTES)


def formulas(fields: SpecFields, size: Size, backbone: Backbone | None) -> Work:
    """Closed-form values, whose cost is that of starting the job."""
    return Work({"starts": START_WITHOUT_TORCH}, 4 * RECORD_BYTES)


def simulation(fields: SimulationSpec, size: Size, backbone: Backbone | None) -> Work:
    """Sums of vectors in three dimensions."""
    draws = len(fields.laws) * len(fields.nus) * fields.draws
    counts = {"normals": 3 * draws * fields.m, "starts": START_WITHOUT_TORCH}
    return Work(counts, 2 * RECORD_BYTES)


def _rows(fields: CertifiedFields, size: Size, rows: int, pairs: int) -> dict[str, float]:
    """Work of training `rows` posteriors and drawing `pairs` (record, weights) pairs for each."""
    steps, multiplications = _steps(fields, size), _multiplications(fields, size)
    passes = 6 * steps * fields.training.batch + 2 * pairs
    return {
        "products": 2 * rows * passes * multiplications,
        "steps": rows * math.ceil(pairs / PAIRS_PER_CHUNK) * CALLS_PER_CHUNK,
        "elements": rows * steps * 6 * multiplications,
    }


def _steps(fields: CertifiedFields, size: Size) -> int:
    return fields.training.epochs * (size.n_train // fields.training.batch)


def _normals(fields: CertifiedFields, size: Size, pairs: int) -> float:
    """Normals of one training and of so many pairs."""
    return (_steps(fields, size) * fields.training.batch + pairs) * _outputs(fields)


def _tests(fields: CertifiedFields) -> int:
    return fields.test_repetitions * (fields.data.n_test or 0)


def _multiplications(fields: CertifiedFields, size: Size) -> float:
    if fields.model != "mlp":
        return CNN_MULTIPLICATIONS
    classes = len(fields.data.classes or ())
    return sum(math.prod(pair) for pair in pairwise([size.inputs, *_widths(fields), classes]))


def _outputs(fields: CertifiedFields) -> float:
    return sum(_widths(fields)) + len(fields.data.classes or ())


def _widths(fields: CertifiedFields) -> list[int]:
    return fields.options.widths or [1024, 512]


def memory_mb(fields: CertifiedFields) -> int:
    """Peak memory of a job with data in MB: interpreter, torch, accountants, images and pairs."""
    return round(1100 + 4 * array_mb(fields.data))


def memory_without_data_mb(fields: SpecFields) -> int:
    """Peak memory of a job without data in MB: interpreter, numpy, scipy and simulated sums."""
    draws = fields.draws if isinstance(fields, SimulationSpec) else 0
    return round(MB_WITHOUT_TORCH + MB_PER_DRAW * draws)


KINDS = {
    "certificates": JobCost(
        certificates,
        memory_mb,
        lower=("options.widths", "training.batch", "data.n_train"),
        gpu=True,
    ),
    "agreement": JobCost(agreement, memory_mb, lower=("agreement.draws",), gpu=True),
    "coefficients": JobCost(formulas, memory_without_data_mb, lower=("coefficients.betas",)),
    "kappa": JobCost(formulas, memory_without_data_mb, lower=("kappa.axes",)),
    "simulation": JobCost(simulation, memory_without_data_mb, lower=("simulation.draws",)),
}
