"""Work and memory of feature_learning's jobs: linear in n, and in p apart from second moments."""

from dpatlas.cost.counting import BYTES_PER_NUMBER, RECORD_BYTES, Backbone, JobCost, Size, Work
from dpatlas.papers.feature_learning.records.simulation import Spec
from dpatlas.papers.feature_learning.sizes import numbers_of_a_run, runs_at_once

# Second layers on n records: on the features of the private step, the non-private step and the
# direction, and on random features; and one on random features of both data sets.
LAYERS, PRIVATE_LAYERS = 4, 3
FEATURE_KINDS, MEASURES = 6, 6


def simulation(fields: Spec, size: Size, backbone: Backbone | None) -> Work:
    """Two first layers, second layers with their moments, and private steps, for every run.

    A private step reads the features twice, in single precision: one double per feature.
    """
    split = 2 if fields.sharing == "split" else 0
    layers, private = LAYERS + split, PRIVATE_LAYERS + split
    products = streamed = dense = elements = normals = 0.0
    for point in fields.points:
        d, n, p = point.d, point.n, point.p
        products += 2 * n * d * p * (4 + layers) + 2 * n * p * p * LAYERS
        elements += n * p * (4 + layers)
        streamed += private * fields.steps * n * p
        dense += LAYERS * (p**3 + 2 * fields.steps * p * p)
        normals += 2 * d * (n + p) + private * fields.steps * p
    runs = fields.runs
    counts = {
        "products": runs * products,
        "elements": runs * elements,
        "streamed": runs * streamed,
        "dense": runs * dense,
        "normals": runs * normals,
    }
    numbers = len(fields.points) * FEATURE_KINDS * MEASURES * runs
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers, RECORD_BYTES)


def memory_mb(fields: Spec) -> int:
    """Peak memory of a job in MB: the interpreter's, and that of the largest block of runs."""
    sizes = [(point.d, point.n, point.p, fields.n_test) for point in fields.points]
    largest = max(min(fields.runs, runs_at_once(*s)) * numbers_of_a_run(*s) for s in sizes)
    return round(300 + 4 * largest / 1e6)


KINDS = {
    "simulation": JobCost(simulation, memory_mb, lower=("n", "p", "n_test")),
}
