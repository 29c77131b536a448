"""Records meet through missing values, padding and labels to be ignored: refused by name.

Honest networks, which may take no such record, or none but positive numbers, pass.
"""

import pytest
import torch
import torch.nn.functional as F
from small_training import N, phase
from torch import nn
from torch.distributions import Bernoulli, Beta, LogNormal

from dpatlas.accounting.samplers import FullBatch
from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.losses import TokenCrossEntropy, squared_error
from dpatlas.privacy.training import PrivateTraining

WIDTH, TIME, WORDS, END = 8, 6, 60, 59
OUTPUT, LOSS = "a record's output depends on other records", "loss: found a record's loss depends"


def probed(model, x, labels, **options):
    """A training up to its first step, which a probe goes before."""
    PrivateTraining(model, [phase(FullBatch(N))], x, labels, noise=Noise(), **options)


class Act(nn.Module):
    """A function as a module."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, x):
        return self.act(x)


def behind(act, outputs=2):
    """A network of numbers whose inputs go through `act`."""
    return nn.Sequential(Act(act), nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, outputs))


class Text(nn.Module):
    """A network of words; `pool(ids, embedded)` makes one row of each text."""

    def __init__(self, pool, before=lambda ids: ids, words=WORDS, padding_idx=None):
        super().__init__()
        self.words = nn.Embedding(words, 4, padding_idx=padding_idx)
        self.head = nn.Linear(4, 2)
        self.pool, self.before = pool, before

    def forward(self, ids):
        ids = self.before(ids)
        return self.head(self.pool(ids, self.words(ids).tanh()))


def tokens(words=WORDS):
    """A network that gives a class at each position."""
    return nn.Sequential(nn.Embedding(words, 4), nn.Tanh(), nn.Linear(4, words))


def cut_to_the_longest(padding):
    return lambda ids: ids[:, (ids != padding).any(0)]


def mean(ids, h):
    return h.mean(1)


def mean_without(padding):
    def pool(ids, h):
        there = (ids != padding)[..., None]
        return (h * there).sum(1) / there.sum(1).clamp_min(1)

    return pool


def by_column(x):
    return torch.where(x.isnan(), x.nanmean(0, keepdim=True), x)


def by_mean_of_the_rest(x):
    return torch.where(x == -1, x[x != -1].mean(), x)


def by_mean_of_others(x):
    return torch.where(x == -999, x[x != -999].mean(), x)


def by_mean_of_those_without(missing):
    return lambda x: torch.where(x == missing, x[x != missing].mean(), x)


class Imputed(nn.Module):
    """A layer that knows its missing value."""

    def __init__(self, missing):
        super().__init__()
        self.missing = missing

    def forward(self, x):
        return torch.where(x == self.missing, x[x != self.missing].mean(), x)


def by_mean_of_ones_own_row(x):
    there = x != -999
    own = (x * there).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp_min(1)
    return torch.where(there, x, own)


def per_token(ignored):
    def loss(output, labels):
        losses = F.cross_entropy(
            output.flatten(0, 1), labels.flatten(), ignore_index=ignored, reduction="none"
        )
        counted = (labels != ignored).sum(1).float().mean()
        return losses.view(len(labels), -1).sum(1) / counted

    return loss


def tasks(output, targets):
    there = ~targets.isnan()
    errors = (there * (output - targets.nan_to_num()).square()).sum(1)
    return errors / there.float().mean()


NUMBERS, CLASSES = torch.zeros(N, WIDTH), torch.zeros(N, dtype=torch.int64)
REAL = torch.zeros(N)
IDS = torch.zeros(N, TIME, dtype=torch.int64)


def of_numbers(act, labels=CLASSES, loss=None, outputs=2, x=NUMBERS):
    """A training of `behind(act)`: network, records, labels, loss."""
    return lambda: behind(act, outputs), x, labels, loss


def of_words(*arguments, **options):
    """A training of `Text`."""
    return lambda: Text(*arguments, **options), IDS, CLASSES, None


MEETING = {
    "imputed by the column": of_numbers(by_column),
    "sentinel imputed": of_numbers(by_mean_of_the_rest),
    "its own sentinel": of_numbers(by_mean_of_others),
    "an enclosed sentinel": of_numbers(by_mean_of_those_without(9999.0)),
    "a sentinel of the layer": of_numbers(Imputed(-77)),
    "trimmed to the longest": of_words(mean, cut_to_the_longest(END)),
    "trimmed to the longest, padding_idx": of_words(mean, cut_to_the_longest(7), padding_idx=7),
    "mean number of tokens": (tokens, IDS, IDS, per_token(-100)),
    "mean number of tokens, ignored -1": (tokens, IDS, IDS, per_token(-1)),
    "mean number of tokens, ignored 300": (tokens, IDS, IDS, per_token(300)),
    "mean number of tasks": of_numbers(torch.tanh, torch.zeros(N, 12), tasks, outputs=12),
}


def given(loss):
    return {} if loss is None else {"loss": loss}


@pytest.mark.parametrize("name", MEETING)
def test_records_that_meet_where_values_are_missing_are_refused(name):
    make, x, labels, loss = MEETING[name]
    with pytest.raises(InputError, match=LOSS if loss else OUTPUT):
        probed(make(), x, labels, **given(loss))


def without_nan(x):
    if x.isnan().any():
        raise ValueError("not a number")
    return x


def of_finite_targets(output, targets):
    return squared_error(output, without_nan(targets))


def picked(output, labels):
    return -output.log_softmax(1).gather(1, labels[:, None])[:, 0]


def masked(output, targets):
    there = ~targets.isnan()
    errors = (there * (output - targets.nan_to_num()).square()).sum(1)
    return errors / there.sum(1).clamp_min(1)


def of_logarithms(output, targets):
    return (output[:, 0] - targets.log()).square()


def beta(output, targets):
    return -Beta(*output.exp().T).log_prob(targets)


def log_normal(output, targets):
    return -LogNormal(output[:, 0], output[:, 1].exp(), validate_args=True).log_prob(targets)


def bernoulli(output, targets):
    return -Bernoulli(logits=output[:, 0], validate_args=True).log_prob(targets)


class Encoder(nn.Module):
    """An attentive network of texts that leaves padding out."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 4, padding_idx=0)
        self.attend = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, ids):
        hidden = self.attend(self.words(ids), src_key_padding_mask=ids == 0)
        return self.head(hidden[:, 0])


HONEST = {
    "NaN passed on": of_numbers(torch.tanh),
    "NaN as zero": of_numbers(torch.nan_to_num),
    "a sentinel of one's own row": of_numbers(by_mean_of_ones_own_row),
    "NaN fails": of_numbers(without_nan),
    "no class -1": of_numbers(torch.tanh, loss=picked),
    "NaN of one's own row": of_numbers(
        lambda x: torch.where(x.isnan(), x.nanmean(1, keepdim=True), x)
    ),
    "few words": of_words(mean, words=2),
    "trimmed, and left out": of_words(mean_without(END), cut_to_the_longest(END)),
    "attention without padding": (Encoder, IDS, CLASSES, None),
    "a mean over one's own tokens": (tokens, IDS, IDS, TokenCrossEntropy()),
    "tokens without any to be ignored": (tokens, IDS, IDS, TokenCrossEntropy(WORDS + 1)),
    "NaN targets fail": of_numbers(torch.tanh, REAL, of_finite_targets, outputs=1),
    "NaN targets passed on": of_numbers(torch.tanh, REAL, squared_error, outputs=1),
    "a mean over one's own tasks": of_numbers(torch.tanh, torch.zeros(N, 12), masked, outputs=12),
    "positive numbers": of_numbers(torch.log),
    "positive numbers in a large network": (
        lambda: nn.Sequential(Act(torch.log), nn.Linear(WIDTH, 1100), nn.Linear(1100, 1000)),
        NUMBERS,
        CLASSES,
        None,
    ),
    "positive targets": of_numbers(torch.tanh, REAL, of_logarithms, outputs=1),
    "positive targets of one layer": (lambda: nn.Linear(WIDTH, 1), NUMBERS, REAL, of_logarithms),
    "targets between 0 and 1": of_numbers(torch.tanh, REAL, beta),
    "positive targets, checked": of_numbers(torch.tanh, REAL, log_normal),
    "targets 0 or 1, checked": of_numbers(torch.tanh, REAL, bernoulli),
    "pixels": of_numbers(lambda x: x / 255, x=NUMBERS.to(torch.uint8)),
    "flags": of_numbers(lambda x: x * 1.0, x=NUMBERS.bool()),
}


@pytest.mark.parametrize("name", HONEST)
def test_networks_that_leave_records_apart_pass_whatever_they_do_about_missing_values(name):
    make, x, labels, loss = HONEST[name]
    probed(make(), x, labels, **given(loss))
