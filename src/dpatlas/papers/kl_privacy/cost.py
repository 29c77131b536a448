"""Work and memory of kl_privacy's jobs, counted from their specs."""

import itertools
import math

from dpatlas.config.sizes import size_of
from dpatlas.cost.counting import BYTES_PER_NUMBER, RECORD_BYTES, Backbone, JobCost, Size, Work
from dpatlas.papers.kl_privacy.formulas.theorems import gradient_norm_constant
from dpatlas.papers.kl_privacy.records import KlSpec
from dpatlas.papers.kl_privacy.records.constants import ConstantsSpec
from dpatlas.papers.kl_privacy.records.linearized import LinearizedSpec
from dpatlas.papers.kl_privacy.records.training import TrainingSpec

# B R / n on real data at most depths; it determines the number of Langevin steps of Cor. 6.4.
BR_OVER_N = 90.0
# Largest eigenvalue of the NTK matrix over its trace n B: .4 to .7 on digits; on photographs .1 to
# .3, of which the least fits the times that were measured.
SHARE_OF_DIGITS, SHARE_OF_PHOTOGRAPHS, MOST_INPUTS_OF_DIGITS = 0.4, 0.1, 784
SHARES = 16


def training(fields: TrainingSpec, size: Size, backbone: Backbone | None) -> Work:
    """Per step: forward, weight gradients, input gradients (not of layer 1), cross products."""
    units = _units(size.inputs, fields.width, fields.depth, fields.outputs)
    parameters = sum(map(math.prod, itertools.pairwise(units)))
    parameters_above_first = parameters - units[0] * units[1]
    records, steps = size.records, fields.steps
    networks = fields.runs * fields.networks
    passes = networks * steps
    products = 4 * records * parameters + 2 * size.n_train * parameters
    products += 2 * records * parameters_above_first
    kept = 3 * len(fields.shown_steps) * fields.runs + len(fields.record_steps) * records
    return Work(
        counts={
            "products": passes * products,
            "layers": passes * fields.depth,
            "steps": passes,
            "elements": passes * records * sum(units[1:]),
            "normals": (passes + networks) * parameters,
        },
        record_bytes=RECORD_BYTES + BYTES_PER_NUMBER * kept,
        checkpoint_bytes=8 * (steps * records + fields.runs * kept) + 4 * parameters,
    )


def linearized(fields: LinearizedSpec, size: Size, backbone: Backbone | None) -> Work:
    """Per depth and run: the NTK matrix, its factorisations, Langevin steps in function space."""
    n, runs = fields.n_train, fields.runs
    records = n + min(n, size.n_add)
    # Stability asks for T (largest eigenvalue) / (4 n) steps; T is that of Cor. 6.4 here.
    stable_steps = _largest_share(size.inputs) * n * math.sqrt(fields.epsilon * BR_OVER_N / 2) / 4
    budget_steps = max(fields.min_steps, math.ceil(stable_steps))
    counts = dict.fromkeys(("dense", "streamed", "steps", "normals"), 0.0)
    for depth, width, trained in (
        *((depth, fields.width, True) for depth in fields.depths),
        *((fields.width_depth, width, False) for width in fields.widths),
    ):
        units = _units(size.inputs, width, depth, 1)
        parameters = sum(map(math.prod, itertools.pairwise(units)))
        gram = 4 * records * parameters + 4 * records**2 * sum(units)
        counts["normals"] += runs * parameters
        counts["dense"] += runs * gram
        if trained:
            steps = budget_steps + _fixed_steps(fields, size.inputs, depth)
            # Symmetric eigenvectors take about 9 n^3, eigenvalues alone and a solve about 2 n^3.
            counts["dense"] += runs * (9 * records**3 + 2 * n**3)
            counts["streamed"] += runs * steps * records * (records + n)
            counts["steps"] += runs * steps
            counts["normals"] += runs * steps * records
    numbers = (2 * SHARES + 10) * len(fields.depths) * runs
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers)


def _fixed_steps(fields: LinearizedSpec, inputs: int, depth: int) -> int:
    """Steps at the fixed noise: T times the largest eigenvalue / (4 n), with B of Table 1."""
    bound = gradient_norm_constant(fields.init, inputs, fields.width, depth, 1)
    return max(fields.min_steps, math.ceil(_largest_share(inputs) * fields.time * bound / 4))


def _largest_share(inputs: int) -> float:
    return SHARE_OF_DIGITS if inputs <= MOST_INPUTS_OF_DIGITS else SHARE_OF_PHOTOGRAPHS


def constants(fields: ConstantsSpec, size: Size, backbone: Backbone | None) -> Work:
    """Per draw: fresh weights, one forward pass and a backward pass per output, of one record."""
    conditions = len(fields.inits) * fields.draws
    counts = dict.fromkeys(("layers", "steps", "normals", "streamed"), 0.0)
    for depth in fields.depths:
        units = _units(size.inputs, fields.width, depth, fields.outputs)
        parameters = sum(map(math.prod, itertools.pairwise(units)))
        counts["layers"] += conditions * depth * (1 + fields.outputs)
        counts["steps"] += conditions
        counts["normals"] += conditions * parameters
        counts["streamed"] += conditions * parameters * (2 + fields.outputs)
    rows = len(fields.inits) * len(fields.depths)
    return Work(counts, RECORD_BYTES + 10 * BYTES_PER_NUMBER * rows)


def _units(inputs: int, width: int, depth: int, outputs: int) -> list[int]:
    """Sizes of the network's layers, from its inputs to its outputs."""
    return [inputs, *[width] * (depth - 1), outputs]


def memory_mb(fields: KlSpec) -> int:
    """Peak memory of a job in MB: interpreter and torch, data, activations, cumulative KL."""
    n_train, n_add, inputs = size_of(fields.data)
    records = n_train + n_add
    values = 3 * records * inputs
    if isinstance(fields, TrainingSpec):
        values += records * fields.width * (fields.depth + 3)
        values += 6 * fields.width * (inputs + fields.width * fields.depth)
        # Cumulative KL of a network and its copy, and what is kept of every run, in float64.
        values += 2 * 2 * fields.steps * records
        values += 2 * 2 * fields.runs * len(fields.record_steps) * records
    elif isinstance(fields, LinearizedSpec):
        side = 2 * fields.n_train
        values += 2 * side * side * 8 + 4 * side * max(fields.width, *fields.widths)
        values += 2 * side * 2 * _fixed_steps(fields, inputs, max(fields.depths))
    return round(600 + 4 * values / 2**20)


KINDS = {
    "training": JobCost(training, memory_mb, lower=("width", "data.n_train"), gpu=True),
    "linearized": JobCost(linearized, memory_mb, lower=("linearized.width", "linearized.n_train")),
    "constants": JobCost(constants, memory_mb, lower=("constants.width",)),
}
