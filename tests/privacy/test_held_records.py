"""A network, loss or augmentation that holds the private records or labels is refused by name."""

import pytest
import torch
from small_networks import Net
from small_training import N, phase
from torch import nn
from torch.utils.data import TensorDataset

from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.training import PrivateTraining

EVERY = torch.randn(2 * N, 8, generator=torch.Generator().manual_seed(0))
X, LABELS = EVERY[:N], torch.arange(N) % 2


def near(bank=None, of=lambda bank: bank, **parts):
    """A network with a bank of values, which its outputs may use."""

    def forward(self, x, *others):
        out = self.layer(x)
        return out if self.bank is None else out + of(self.bank).float().mean()

    model = Net(forward, layer=nn.Linear(8, 2), **parts)
    if "bank" not in parts:
        model.bank = bank
    return model


class ReadsAGlobal(nn.Linear):
    """A network whose method reads the records from a global."""

    def forward(self, x):
        return super().forward(x - X[:1])


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
    model = near() if model is None else model
    PrivateTraining(model, [phase()], x, labels, noise=Noise(), **options)


RECORDS, TARGETS = "found the private records", "found the private labels"
IN_A_DICT = {"of": [X]}
HELD = {
    "buffer": ({"model": near(kept=X)}, rf"kept: {RECORDS}"),
    "copy": ({"model": near(kept=X.clone().double())}, rf"kept: {RECORDS}"),
    "parameter": ({"model": near(bank=nn.Parameter(X.clone()))}, rf"bank: {RECORDS}"),
    "attribute": ({"model": near(X)}, rf"model\.bank: {RECORDS}"),
    "one record": ({"model": near(X[3])}, rf"model\.bank: {RECORDS}"),
    "in a dict": (
        {"model": nn.Sequential(near(IN_A_DICT, lambda bank: bank["of"][0]))},
        rf"bank\.of\.0: {RECORDS}",
    ),
    "global": ({"model": ReadsAGlobal(8, 2)}, RECORDS),
    "labels": ({"model": near(LABELS)}, rf"model\.bank: {TARGETS}"),
    "closure": ({"loss": enclosing([X])}, rf"held\.0: {RECORDS}"),
    "augmentation": ({"augmentation": Views(X)}, RECORDS),
    "array": ({"model": near(X), "x": X.numpy()}, rf"model\.bank: {RECORDS}"),
    "part of an input": ({"model": near(X), "x": (X, X + 1)}, rf"model\.bank: {RECORDS}"),
    "dataset": (
        {"model": near(X), "x": TensorDataset(X, LABELS), "labels": None},
        rf"model\.bank: {RECORDS}",
    ),
    "other records": ({"model": near(EVERY[N:])}, None),
    "zeros like the labels": (
        {"model": near(torch.zeros(N)), "labels": torch.zeros(N, dtype=torch.int64)},
        None,
    ),
    "zeros": ({"model": near(torch.zeros(1, 8))}, None),
    "others in the loss": ({"loss": enclosing([EVERY[N:]])}, None),
    "others in the augmentation": ({"augmentation": Views(EVERY[N:])}, None),
}


@pytest.mark.parametrize("name", HELD)
def test_what_holds_the_private_records_is_refused_by_name_and_other_values_pass(name):
    options, match = HELD[name]
    if match is None:
        training(**options)
    else:
        with pytest.raises(InputError, match=match):
            training(**options)
