"""A network, loss or augmentation that holds the private records or labels is refused by name."""

import pytest
import torch
from small_training import N, phase
from torch import nn
from torch.utils.data import TensorDataset

from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.training import PrivateTraining

EVERY = torch.randn(2 * N, 8, generator=torch.Generator().manual_seed(0))
X, LABELS = EVERY[:N], torch.arange(N) % 2


class Near(nn.Module):
    """A network with a bank of values that its outputs do not depend on."""

    def __init__(self, bank=None, buffer=None):
        super().__init__()
        self.layer, self.bank = nn.Linear(8, 2), bank
        if buffer is not None:
            self.register_buffer("kept", buffer)

    def forward(self, x):
        return self.layer(x)


class ReadsAGlobal(Near):
    """A network whose method reads the records from a global."""

    def forward(self, x):
        return self.layer(x - 0 * X[:1])


class Views(ShiftAndFlip):
    """An augmentation with a pool of records."""

    def __init__(self, pool):
        super().__init__((1, 2, 4), views=2, padding=1, flip=True)
        object.__setattr__(self, "pool", pool)


def enclosing(held):
    def loss(output, labels):
        return cross_entropy(output, labels) + 0 * held[0].sum()

    return loss


def training(model=None, x=X, labels=LABELS, **options):
    model = Near() if model is None else model
    PrivateTraining(model, [phase()], x, labels, noise=Noise(), **options)


RECORDS, TARGETS = "found the private records", "found the private labels"
HELD = {
    "buffer": (lambda: {"model": Near(buffer=X)}, rf"model\.kept: {RECORDS}"),
    "copy": (lambda: {"model": Near(buffer=X.clone().double())}, rf"model\.kept: {RECORDS}"),
    "parameter": (lambda: {"model": Near(nn.Parameter(X.clone()))}, rf"model\.bank: {RECORDS}"),
    "one record": (lambda: {"model": Near(X[3])}, rf"model\.bank: {RECORDS}"),
    "in a dict of a part": (
        lambda: {"model": nn.Sequential(Near({"of": [X.numpy()]}))},
        rf"model\.0\.bank\.of\.0: {RECORDS}",
    ),
    "global": (lambda: {"model": ReadsAGlobal()}, rf"model\.X: {RECORDS}"),
    "labels": (lambda: {"model": Near(LABELS)}, rf"model\.bank: {TARGETS}"),
    "closure": (lambda: {"loss": enclosing([X])}, rf"loss\.held\.0: {RECORDS}"),
    "augmentation": (lambda: {"augmentation": Views(X)}, rf"augmentation\.pool: {RECORDS}"),
    "array": (lambda: {"model": Near(X), "x": X.numpy()}, rf"model\.bank: {RECORDS}"),
    "part of an input": (
        lambda: {"model": Near(X), "x": (X, X + 1)},
        rf"model\.bank: {RECORDS}",
    ),
    "dataset": (
        lambda: {"model": Near(X), "x": TensorDataset(X, LABELS), "labels": None},
        rf"model\.bank: {RECORDS}",
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_what_holds_the_private_records_is_refused_by_name(name):
    make, match = HELD[name]
    with pytest.raises(InputError, match=match):
        training(**make())


@pytest.mark.parametrize(
    "options",
    [
        {"model": Near(EVERY[N:])},
        {"model": Near(X.mean(0))},
        {"model": Near(torch.zeros(N)), "labels": torch.zeros(N, dtype=torch.int64)},
        {"model": Near(torch.empty(0, 8))},
        {"loss": enclosing([EVERY[N:]])},
        {"augmentation": Views(EVERY[N:])},
    ],
    ids=["other records", "a mean", "zeros like the labels", "empty", "loss", "augmentation"],
)
def test_what_holds_other_values_passes(options):
    training(**options)
