"""The `conv` race: one step of a network on a given batch of images."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.bench.steps import repetition
from dpatlas.models.build import build
from dpatlas.privacy.samplers import FullBatch


def prepare(candidate: str, case: dict[str, Any]) -> tuple[Callable[[], list[Tensor]], float]:
    """The candidate's repetition, which returns the weights, and the factor to one step's time.

    Images are flat rows of normal numbers, the same at every step.
    """
    shape, classes, batch = case["image_shape"], case["classes"], case["batch"]
    model = build(case["model"], shape, classes, key="bench", run=0, base_seed=0)
    model = model.to(case["device"])
    draws = np.random.default_rng(0)
    x = draws.standard_normal((batch, prod(shape)), dtype=np.float32)
    labels = draws.integers(0, classes, batch)
    rows, targets = (torch.from_numpy(array).to(case["device"]) for array in (x, labels))
    return repetition(candidate, model, FullBatch(batch), rows, targets, case)
