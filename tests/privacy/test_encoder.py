"""A transformer encoder over tokens, as torch has it, trains privately without a change."""

import warnings

import torch
import torch.nn.functional as F
from reference_gradients import by_loop, clipped_sum
from torch import nn

from dpatlas.accounting.samplers import FullBatch
from dpatlas.core.seeds import Noise
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

N, BOUND = 6, 0.5


class Encoder(nn.Module):
    """A small transformer encoder over tokens."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.embedding = nn.Embedding(20, 16)
        self.position = nn.Parameter(torch.zeros(1, 7, 16))
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens) + self.position).mean(1))


def test_its_clipped_sum_is_that_of_a_loop_over_records():
    torch.manual_seed(1)
    model, x, labels = Encoder(), torch.arange(7 * N).reshape(N, 7) % 20, torch.arange(N) % 3
    rows = zip(x[:, None], labels[:, None], strict=True)
    losses = (F.cross_entropy(model(row), label) for row, label in rows)
    expected = clipped_sum(by_loop(model, losses), BOUND)
    sums = {}

    def see(step, found):
        sums.update({key: each.clone() for key, each in found.items()})

    phase = TrainingPhase(FullBatch(N), 0.0, BOUND, steps=1, lr=0.1)
    with warnings.catch_warnings():
        # No layer is passed through record by record.
        warnings.simplefilter("error")
        PrivateTraining(model, [phase], x, labels, noise=Noise(), on_update=see).run()
    for name, each in sums.items():
        assert each.any() and torch.allclose(each, expected[name], atol=2e-4)
