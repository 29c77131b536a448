"""The `logistic` and `conv` races: one step of a network on vectors, images, signals or words."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.accounting.samplers import FullBatch, Sampler, sampler
from dpatlas.bench.steps import repetition
from dpatlas.models.build import build

VOCABULARY = 5000


def prepare(candidate: str, case: dict[str, Any]) -> tuple[Callable[[], list[Tensor]], float]:
    """The candidate's repetition, which returns the weights, and the factor to one step's time.

    Records are flat rows of normal numbers. A case with `words` has rows of so many words instead,
    one with `signals` rows (channels, length). A case with a `sampler` draws batches of `records`
    by it; in any other every step uses the same batch.
    """
    draws, size = np.random.default_rng(0), case["batch"]
    batches: Sampler = FullBatch(size)
    if "sampler" in case:
        batches = sampler(case["sampler"], case["records"], size)
    x: np.ndarray
    if "words" in case:
        x = draws.integers(0, VOCABULARY, (batches.n, case["words"]))
    else:
        shape = case["signals"] if "signals" in case else [prod(case["image_shape"])]
        x = draws.standard_normal((batches.n, *shape), dtype=np.float32)
    labels = draws.integers(0, case["classes"], batches.n)
    # Copies: what shares numpy's memory may change unseen, so its norms are taken at every step.
    rows, targets = (torch.tensor(array).to(case["device"]) for array in (x, labels))
    model = _network(case).to(case["device"])
    return repetition(candidate, model, batches, rows, targets, case)


def _network(case: dict[str, Any]) -> nn.Module:
    """The network of a case; one on words or signals has torch's initial weights."""
    classes = case["classes"]
    if "model" in case:
        return build(case["model"], case["image_shape"], classes, key="bench", run=0, base_seed=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return encoder(classes) if "words" in case else signal_network(classes)


class Mean(nn.Module):
    """The mean over positions."""

    def forward(self, x: Tensor) -> Tensor:
        """(records, positions, features) to (records, features)."""
        return x.mean(1)


def encoder(classes: int) -> nn.Sequential:
    """Words to classes by two of torch's transformer layers of width 128, without positions."""
    layers = (nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True) for _ in range(2))
    return nn.Sequential(nn.Embedding(VOCABULARY, 128), *layers, Mean(), nn.Linear(128, classes))


def signal_network(classes: int) -> nn.Sequential:
    """Four convolutions of signals with GroupNorm, of 16 channels to classes."""
    layers: list[nn.Module] = []
    for into, out in ((16, 64), (64, 64), (64, 128), (128, 128)):
        layers += [nn.Conv1d(into, out, 5, 2, 2), nn.GroupNorm(8, out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, classes))
