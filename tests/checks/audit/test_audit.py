"""An audit that can fail: honest mechanisms pass, and two broken ones are caught in every row."""

import functools
import json

import numpy as np
import pytest
import torch
from small_audits import DELTA, LEVEL, VERDICT_LEVEL, audited, one_thread_without_gradients  # noqa: F401

import dpatlas.privacy.logistic
import dpatlas.privacy.per_record
import dpatlas.privacy.training
from dpatlas.checks.audit.jobs.kernels import SETTINGS
from dpatlas.checks.audit.jobs.mechanisms import (
    MECHANISMS,
    PrivateSGD,
    log_likelihood_ratio,
    neighbours,
)
from dpatlas.checks.audit.mechanisms import MECHANISMS as ENTRIES
from dpatlas.commands import audit as command
from dpatlas.core.seeds import Noise
from dpatlas.cost.training import ATTACKED_UPDATES
from dpatlas.errors import run_command

# The others are in test_audit_langevin.
PRIVATE_SGD = [name for name, each in MECHANISMS.items() if isinstance(each, PrivateSGD)]
# Broken mechanisms stand for their kernel here, and each sampler for itself in the slow tests.
SLOW = (
    "dp-sgd-full-batch",
    "dp-sgd-fixed-size",
    "dp-sgd-shuffled",
    "dp-sgd-cyclic",
    "convolution-views",
    "transformer-adam",
    "transformer-lora",
)
BROKEN = [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in PRIVATE_SGD
]
# Enough for nine audits of ten to catch half the noise; the one accountant of fixed-size batches
# leaves more room.
RUNS = {name: 500 if name == "dp-sgd-fixed-size" else 300 for name in PRIVATE_SGD}


@pytest.fixture(autouse=True, scope="module")
def profiles_once():
    """The same guarantee is asked for by every test of a mechanism."""
    honest = PrivateSGD.profile
    kept = functools.cache(lambda mechanism, deltas: honest(mechanism, deltas))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateSGD, "profile", lambda self, deltas: kept(self, tuple(deltas)))
        yield


@pytest.fixture
def half_the_noise(monkeypatch):
    honest = dpatlas.privacy.training.add_noise

    def halved(tensors, scale, *arguments, **keys):
        honest(tensors, scale / 2, *arguments, **keys)

    monkeypatch.setattr(dpatlas.privacy.training, "add_noise", halved)


@pytest.fixture
def no_clip(monkeypatch):
    for place in (dpatlas.privacy.logistic, dpatlas.privacy.per_record):
        monkeypatch.setattr(place, "clip_factors", lambda norms2, bound: torch.ones_like(norms2))


def test_every_mechanism_of_the_list_can_be_attacked_and_no_other():
    assert tuple(MECHANISMS) == tuple(ENTRIES)


def test_the_plan_counts_the_updates_of_every_mechanism():
    """Those of larger networks, each of which takes longer, are fewer."""
    for name in PRIVATE_SGD:
        updates = sum(phase.steps for phase in MECHANISMS[name].phases)
        assert updates < ATTACKED_UPDATES if name in SETTINGS else updates == ATTACKED_UPDATES


@pytest.mark.parametrize("name", MECHANISMS)
def test_an_honest_mechanism_is_not_contradicted(name):
    found = audited(name, runs=200)
    assert not found.contradicted
    assert found.lower.epsilon <= found.guaranteed


@pytest.mark.parametrize("name", BROKEN)
def test_noise_at_half_scale_is_caught(name, half_the_noise):
    assert audited(name, RUNS[name]).contradicted


@pytest.mark.parametrize("name", BROKEN)
def test_a_forgotten_clip_is_caught(name, no_clip):
    assert audited(name, runs=150).contradicted


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_neighbours_differ_in_one_record_and_the_others_have_no_gradient(relation):
    (x, labels), (other, other_labels) = neighbours(relation)
    differs = (x != other).any(1) | (labels != other_labels)
    assert differs.nonzero().flatten().tolist() == [0]
    assert not x[1:].any()


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("q", [1.0, 0.3, 0.0])
def test_the_score_is_the_log_ratio_of_the_two_densities(q, relation):
    sigma, share = 1.3, 0.8

    def density(t, mean):
        mixed = (1 - q) * np.exp(-(t**2) / (2 * sigma**2))
        return mixed + q * np.exp(-((t - mean) ** 2) / (2 * sigma**2))

    for t in (-2.0, 0.1, 1.5):
        against = density(t, -share) if relation == "replace_one" else np.exp(-(t**2) / 2 / 1.69)
        expected = np.log(density(t, share) / against)
        found = log_likelihood_ratio(t, share, q, sigma, relation)
        assert found == pytest.approx(expected, abs=1e-12)


def test_the_two_neighbours_never_share_noise(monkeypatch):
    keys = []
    honest = Noise.key

    def remember(self, repetition, step, use):
        keys.append((repetition, step, use))
        return honest(self, repetition, step, use)

    monkeypatch.setattr(Noise, "key", remember)
    MECHANISMS["logistic-full-batch"].scores(3, Noise("x", "keyed"), lambda: None)
    assert len(keys) == len(set(keys)) == 2 * 3 * ATTACKED_UPDATES


def test_the_command_prints_every_row_and_ends_well(capsys):
    names = ["logistic-full-batch", "logistic-poisson"]
    words = [word for name in names for word in ("--mechanism", name)]
    assert run_command(command.main, [*words, "--runs", "20"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in names)
    assert text.count("consistent") == 2


def test_the_command_fails_and_names_what_is_contradicted(capsys, no_clip):
    words = ["--mechanism", "logistic-full-batch", "--runs", "60", "--json"]
    assert run_command(command.main, words) == 1
    captured = capsys.readouterr()
    (found,) = json.loads(captured.out)
    assert found["metrics"]["contradicted"]
    assert found["ledger"]["epsilon"] == pytest.approx(found["metrics"]["guaranteed"])
    assert "logistic-full-batch" in captured.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--mechanism", "dp-sgd"], "'dp-sgd'"),
        (["--runs", "1"], "--runs"),
        (["--delta", "0"], "--delta"),
        (["--delta", "1"], "--delta"),
        (["--level", "1"], "--level"),
        (["--runs", "many"], "--runs"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(capsys, arguments, named):
    assert run_command(command.main, arguments) == 2
    error = capsys.readouterr().err
    assert named in error
    assert len(error.splitlines()) == 1
