"""The work of kl_privacy's jobs."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

from dpatlas.cost.counting import BYTES_PER_NUMBER, RECORD_BYTES, Size, Work

RESAMPLES = 1000
SHOWN_STEPS = 50
# B R / n as real data show it at most depths: it sets the number of Langevin steps of Cor. 6.4.
BR_OVER_N = 90.0


def training(fields: Mapping[str, Any], size: Size) -> Work:
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


def linearized(fields: Mapping[str, Any], size: Size) -> Work:
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


def constants(fields: Mapping[str, Any], size: Size) -> Work:
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


def _units(inputs: int, width: int, depth: int, outputs: int) -> list[int]:
    return [inputs, *[width] * (depth - 1), outputs]
