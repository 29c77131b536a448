"""A network, loss or augmentation that holds the private records or labels is refused by name."""

import pytest
import torch
from small_training import N, phase
from torch import nn
from torch.utils.data import TensorDataset

from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.training import PrivateTraining

EVERY = torch.randn(2 * N, 8, generator=torch.Generator().manual_seed(0))
X, LABELS = EVERY[:N], torch.arange(N) % 2


class Near(nn.Module):
    """A network with a bank of values, by an attribute or as a buffer, that its outputs may use."""

    def __init__(self, bank=None, buffer=None):
        super().__init__()
        self.layer, self.bank = nn.Linear(8, 2), bank
        if buffer is not None:
            self.register_buffer("kept", buffer)

    def forward(self, x):
        out = self.layer(x)
        bank = self.bank["of"][0] if isinstance(self.bank, dict) else self.bank
        return out if bank is None else out + bank.float().mean()


class ReadsAGlobal(Near):
    """A network whose method reads the records from a global."""

    def forward(self, x):
        return self.layer(x - X[:1])


class Views:
    """A view of each record that is mixed with those of a pool."""

    views = 1

    def __init__(self, pool):
        self.pool = pool

    def draw(self, draws, records):
        return torch.from_numpy(draws.random((records, 1)))

    def apply(self, x, parameters):
        return x + self.pool.mean(0)


def enclosing(held):
    def loss(output, labels):
        return cross_entropy(output, labels) + held[0].float().mean()

    return loss


def training(model=None, x=X, labels=LABELS, **options):
    model = Near() if model is None else model
    PrivateTraining(model, [phase()], x, labels, noise=Noise(), **options)


RECORDS, TARGETS = "found the private records", "found the private labels"
HELD = {
    "buffer": (lambda: {"model": Near(buffer=X)}, rf"kept: {RECORDS}"),
    "copy": (lambda: {"model": Near(buffer=X.clone().double())}, rf"kept: {RECORDS}"),
    "parameter": (lambda: {"model": Near(nn.Parameter(X.clone()))}, rf"bank: {RECORDS}"),
    "attribute": (lambda: {"model": Near(X)}, rf"model\.bank: {RECORDS}"),
    "one record": (lambda: {"model": Near(X[3])}, rf"model\.bank: {RECORDS}"),
    "in a dict": (lambda: {"model": nn.Sequential(Near({"of": [X]}))}, rf"bank\.of\.0: {RECORDS}"),
    "global": (lambda: {"model": ReadsAGlobal()}, rf"{RECORDS}"),
    "labels": (lambda: {"model": Near(LABELS)}, rf"model\.bank: {TARGETS}"),
    "closure": (lambda: {"loss": enclosing([X])}, rf"held\.0: {RECORDS}"),
    "augmentation": (lambda: {"augmentation": Views(X)}, RECORDS),
    "array": (lambda: {"model": Near(X), "x": X.numpy()}, rf"model\.bank: {RECORDS}"),
    "part of an input": (lambda: {"model": Two(X), "x": (X, X + 1)}, rf"model\.bank: {RECORDS}"),
    "dataset": (
        lambda: {"model": Near(X), "x": TensorDataset(X, LABELS), "labels": None},
        rf"model\.bank: {RECORDS}",
    ),
}


class Two(Near):
    """With two inputs."""

    def forward(self, x, other):
        return super().forward(x + other)


@pytest.mark.parametrize("name", HELD)
def test_what_holds_the_private_records_is_refused_by_name(name):
    make, match = HELD[name]
    with pytest.raises(InputError, match=match):
        training(**make())


@pytest.mark.parametrize(
    "options",
    [
        {"model": Near(EVERY[N:])},
        {"model": Near(torch.zeros(N)), "labels": torch.zeros(N, dtype=torch.int64)},
        {"model": Near(torch.zeros(1, 8))},
        {"loss": enclosing([EVERY[N:]])},
        {"augmentation": Views(EVERY[N:])},
    ],
    ids=["other records", "zeros like the labels", "zeros", "loss", "augmentation"],
)
def test_what_holds_other_values_passes(options):
    training(**options)
