"""An audit by one run with 1,000 canaries: `dpatlas audit one_run.py:train --level 0.95`."""

import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn

from dpatlas.audit import (
    Claim,
    SideDoor,
    opacus,
    side_door_canaries,
    side_door_records,
    side_door_scores,
)

CANARIES = 1000
digits = load_digits()
x = side_door_records(torch.tensor(digits.data[:1000] / 16, dtype=torch.float32), CANARIES)
canaries, labels = side_door_canaries((64,), CANARIES, classes=10)
x = torch.cat([torch.zeros_like(canaries), x])  # the canaries, or blank records, come first
y = torch.cat([labels, torch.tensor(digits.target[:1000])])
settings = {"sampler": "poisson", "n": 2000, "batch": 1000, "noise": 4.0, "steps": 20}
claim = Claim(**settings, delta=1e-5, canaries=CANARIES)


def make_private_training(data):
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model = SideDoor(network, input_shape=(64,), canaries=CANARIES, classes=10)
    return PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=torch.utils.data.DataLoader(data, batch_size=1000),
        noise_multiplier=4.0,
        max_grad_norm=1.0,
    )


def score(model):
    return side_door_scores(model, canaries, labels)


train = opacus(make_private_training, claim, x, y, canary=(canaries, labels), score=score)
