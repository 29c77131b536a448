"""A training that another process resumes has the same network, loss and augmentation, or none."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.trace import trace_record

SCRIPT = """
import pickle, sys
from pathlib import Path
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from dpatlas.errors import InputError
from dpatlas.privacy import Noise, Poisson, PrivateTraining, TrainingPhase

FACTOR = 1.0

def scaled(output, labels):
    return cross_entropy(output * FACTOR, labels, reduction="none")

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(8, 5), nn.BatchNorm1d(5).eval(), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.norm(torch.relu(self.body(x))))

class Views:
    views = 2

    def __init__(self, size):
        self.size = size

    def draw(self, draws, records):
        return torch.from_numpy(draws.standard_normal((records, 1)))

    def apply(self, x, shifts):
        return torch.stack([x, x + self.size * shifts.to(x)], 1).flatten(0, 1)

torch.manual_seed(0)
x, labels, model = torch.randn(24, 8), torch.arange(24) % 3, Network()
augmentation, state = Views(0.1), Path(sys.argv[1])
exec(sys.argv[2])
phase = TrainingPhase(Poisson(24, 6), 1.0, max_grad_norm=1.0, steps=6, lr=0.5)
training = PrivateTraining(
    model, [phase], x, labels, noise=Noise("resumed"), loss=scaled, augmentation=augmentation
)
if state.exists():
    try:
        training.restore(*pickle.loads(state.read_bytes()))
    except InputError as error:
        sys.exit(str(error))
    training.step()
else:
    for _ in range(3):
        training.step()
    state.write_bytes(pickle.dumps(training.state()))
    training.step()
print(*(value.item() for value in next(training.model.parameters()).flatten()))
"""
# Each is a process of its own: the first of them in every run of the tests.
FIRST, *OTHERS = [
    ("network", "FACTOR = 3.0"),
    (
        "network",
        "Network.forward = lambda self, x: self.head(self.norm(torch.tanh(self.body(x))))",
    ),
    ("loss", "scaled = cross_entropy"),
    ("augmentation", "augmentation = Views(5.0)"),
]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A script with the state after three steps, and the first weights after a fourth."""
    folder = tmp_path_factory.mktemp("resumed")
    (folder / "script.py").write_text(SCRIPT)
    return folder, trained(folder).stdout


def trained(folder, change=""):
    words = [sys.executable, "script.py", "state", change]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def test_another_process_goes_on_to_the_same_bits_with_buffers_from_the_state(begun):
    folder, weights = begun
    assert trained(folder, "model.norm.running_mean += 3").stdout == weights
    assert weights.count(" ") == 39


@pytest.mark.parametrize(
    ("part", "change"),
    [FIRST, *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS)],
)
def test_with_another_network_loss_or_augmentation_it_does_not(begun, part, change):
    folder, _ = begun
    done = trained(folder, change)
    assert done.returncode == 1 and done.stdout == ""
    assert f"checkpoint: found a state of another plan: {part} " in done.stderr


def test_another_device_is_no_other_network():
    def digest(device, outputs=2):
        model = nn.Sequential(nn.Linear(3, 4), nn.LSTM(4, outputs)).to(device)
        model.forward = lambda x: model[1](model[0](x) + torch.zeros(4, device=device))[0]
        x, labels = torch.zeros(1, 3, device=device), torch.zeros(1, dtype=torch.int64)
        return trace_record(model, cross_entropy, x, labels.to(device)).digest

    assert digest("cpu") != digest("cpu", 5)
    if torch.cuda.is_available():
        assert digest("cpu") == digest("cuda")
