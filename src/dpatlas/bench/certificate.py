"""The `certificate` race: errors of a randomised network on (record, weights) pairs.

Case `reparametrisation`: plain is a batched forward pass of as many single records. Case
`weight-sampling`: plain is one forward pass of a single record per pair.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dpatlas.base.seeds import Noise
from dpatlas.certify.risk import risk_on_records
from dpatlas.models.build import build
from dpatlas.models.mean_field import MeanField, flat_values

# Batch size of the plain pass, the size of a chunk of pairs.
BATCH = 1000


def prepare(candidate: str, case: dict[str, Any]) -> tuple[Callable[[], Any], float]:
    """The candidate's repetition over its pairs, and the factor to the pairs of the case.

    Drawing all weights for every pair takes so long that a repetition has `sampled` pairs only.
    """
    inputs, pairs = case["inputs"], case["pairs"]
    draws = np.random.default_rng(0)
    drawn = (
        draws.standard_normal((case["records"], inputs), dtype=np.float32),
        draws.integers(0, case["classes"], case["records"]),
    )
    x, labels = (torch.from_numpy(array).to(case["device"]) for array in drawn)
    shape = (1, 1, inputs)
    options = {"widths": case["widths"]}
    network = build("mlp", shape, case["classes"], key="bench", run=0, base_seed=0, **options)
    network = network.to(case["device"])
    law = MeanField.around(network, flat_values(network), case["deviation"])
    single = case["plain"] == "single records"
    sampled = case["sampled"]
    noise = Noise("bench", "keyed")

    @torch.no_grad()
    def batched() -> int:
        rows = x[:pairs].split(BATCH)
        return sum(len(network(batch)) for batch in rows)

    @torch.no_grad()
    def one_by_one() -> int:
        return sum(len(network(x[row : row + 1])) for row in range(sampled))

    def reparametrised() -> int:
        (errors,) = risk_on_records(law, x, labels, pairs, noise=noise).run()
        return errors

    def by_sampling() -> int:
        count = risk_on_records(law, x, labels, sampled, noise=noise, method="sampling")
        (errors,) = count.run()
        return errors

    factor = pairs / sampled
    steps = {
        "plain": (one_by_one, factor) if single else (batched, 1.0),
        "dpatlas": (by_sampling, factor) if single else (reparametrised, 1.0),
        "weight-sampling": (by_sampling, factor),
    }
    return steps[candidate]
