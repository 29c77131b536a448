"""The `logistic` race: one step of softmax regression on a batch of feature vectors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.accounting.samplers import FullBatch, sampler
from dpatlas.bench.steps import repetition
from dpatlas.models.build import build


def prepare(candidate: str, case: dict[str, Any]) -> tuple[Callable[[], list[Tensor]], float]:
    """The candidate's repetition, which returns the weights, and the factor to one step's time.

    With the sampler `full-batch` every step uses the same records.
    """
    name, batch = case["sampler"], case["batch"]
    features, classes = case["features"], case["classes"]
    given_batch = name == FullBatch.name
    batches = FullBatch(batch) if given_batch else sampler(name, case["records"], batch)
    model = build("linear", (features,), classes, key="bench", run=0, base_seed=0)
    model = model.to(case["device"])
    draws = np.random.default_rng(0)
    x = draws.standard_normal((batches.n, features), dtype=np.float32)
    labels = draws.integers(0, classes, batches.n)
    # Copies: what shares numpy's memory may change unseen, so its norms are taken at every step.
    rows, targets = (torch.tensor(array).to(case["device"]) for array in (x, labels))
    return repetition(candidate, model, batches, rows, targets, case)
