"""The `conv` race: one step of a network on a given batch of images, signals or words."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.bench.steps import repetition
from dpatlas.models.build import build
from dpatlas.privacy.samplers import FullBatch

VOCABULARY = 5000


def prepare(candidate: str, case: dict[str, Any]) -> tuple[Callable[[], list[Tensor]], float]:
    """The candidate's repetition, which returns the weights, and the factor to one step's time.

    Images are flat rows of normal numbers, the same at every step. A case with `words` has rows of
    so many words instead, one with `signals` rows (channels, length).
    """
    if "words" in case or "signals" in case:
        return _sequences(candidate, case)
    shape, classes, batch = case["image_shape"], case["classes"], case["batch"]
    model = build(case["model"], shape, classes, key="bench", run=0, base_seed=0)
    model = model.to(case["device"])
    draws = np.random.default_rng(0)
    x = draws.standard_normal((batch, prod(shape)), dtype=np.float32)
    labels = draws.integers(0, classes, batch)
    rows, targets = (torch.from_numpy(array).to(case["device"]) for array in (x, labels))
    return repetition(candidate, model, FullBatch(batch), rows, targets, case)


def _sequences(candidate: str, case: dict[str, Any]) -> tuple[Callable[[], list[Tensor]], float]:
    """As `prepare`, of networks on sequences, with torch's initial weights."""
    draws, batch = np.random.default_rng(0), case["batch"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = encoder(case["classes"]) if "words" in case else signal_network(case["classes"])
    x: np.ndarray
    if "words" in case:
        x = draws.integers(0, VOCABULARY, (batch, case["words"]))
    else:
        x = draws.standard_normal((batch, *case["signals"]), dtype=np.float32)
    labels = draws.integers(0, case["classes"], batch)
    rows, targets = (torch.from_numpy(array).to(case["device"]) for array in (x, labels))
    network = model.to(case["device"])
    return repetition(candidate, network, FullBatch(batch), rows, targets, case)


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
