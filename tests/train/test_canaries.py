"""Canaries in a training: honest training is not contradicted, faulty training is."""

import numpy as np
import pytest
import torch
from own_trainings import run as run_own
from own_trainings import write as write_own
from prepared_trainings import trained

import dpatlas.privacy.per_record
from dpatlas.base.seeds import Noise
from dpatlas.train.canaries import Canaries


def audited(folder, seed=0, **changes):
    """The audit of a few steps with as many canaries as the published one."""
    settings = {"noise_multiplier": None, "epsilon": 4.0, "batch": 1012, "steps": 5, "seed": seed}
    settings |= {"canaries": {"number": 1000}, "momentum": 0.0}
    record = trained(folder, output=f"out-{seed}", **settings | changes)
    return record["metrics"]["audit"]


@pytest.fixture
def no_clip(monkeypatch):
    module = dpatlas.privacy.per_record
    monkeypatch.setattr(module, "clip_factors", lambda norms2, bound: torch.ones_like(norms2))


def test_correct_training_is_not_contradicted_by_its_canaries(data, tmp_path, capsys):
    for seed in range(3):
        audit = audited(tmp_path, seed)
        assert not audit["contradicted"]
        assert audit["profile_test"]["needed"] < audit["profile_test"]["guesses"]
        # A bound on epsilon at one delta, beside a guaranteed 4: the profile is a sharper claim.
        assert 0 < audit["lower"]["epsilon"] < 4
    assert "guesses are right" in capsys.readouterr().out


def test_half_the_noise_is_contradicted_by_a_thousand_canaries(data, tmp_path, half_the_noise):
    assert all(audited(tmp_path, seed)["contradicted"] for seed in range(3))


def test_a_forgotten_clip_is_contradicted_by_a_thousand_canaries(data, tmp_path, no_clip):
    assert audited(tmp_path)["contradicted"]


def test_few_canaries_are_said_to_contradict_nothing(data, tmp_path, capsys):
    test = audited(tmp_path, batch=8, canaries={"number": 6})["profile_test"]
    assert test["needed"] is None and test["least_p_value"] > 0.05
    assert "no number would contradict" in capsys.readouterr().out


def test_canaries_that_are_out_are_never_in_a_batch():
    canaries = Canaries(6, (16,), 3, 12, 0)
    sampler = canaries.sampler(8)
    drawn = [sampler.batch_indices(Noise("x", "keyed"), 0, step) for step in range(200)]
    out = {12 + slot for slot in np.flatnonzero(~canaries.included).tolist()}
    assert out and set(range(18)) - set(np.concatenate(drawn).tolist()) == out
    assert (sampler.expected_batch, sampler.sample_rate) == (8, 8 / 18)


def test_a_network_of_one_s_own_is_audited_by_its_canaries(tmp_path, capsys):
    assert run_own(write_own(tmp_path, canaries={"number": 10})) == 0
    assert "of 0 guesses are right" not in capsys.readouterr().out
