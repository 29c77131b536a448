"""dp_sgld's fine-tuning: what is trained, from where, and what each arm guarantees."""

import json

import numpy as np
import pytest
import torch
from lpfft_small import watched_trainings
from sgld_small import arms_in, metrics_of, run, save_backbone, save_data, spec_of
from torch import nn

from dpatlas.base import seeds
from dpatlas.errors import InputError
from dpatlas.models import backbone
from dpatlas.models.network import Network

# Accounting for batches without replacement takes seconds a calibration.
pytestmark = pytest.mark.slow


@pytest.fixture
def given(tmp_path):
    """(manifest of the data, folder of the record, backbones)"""
    return save_data(tmp_path / "data"), tmp_path, [save_backbone(tmp_path / "backbone")]


def test_frozen_parts_keep_the_backbone_s_bits_and_trained_ones_move(given):
    around = {"name": "around the second", "trainable": ["linear1", "head"]}
    with watched_trainings() as seen:
        run(spec_of("finetune", unfreeze=[{"name": "head", "trainable": ["head"]}, around]), *given)
    trained = backbone.load(given[2][0]).network.state_dict()
    whole = [each for each in seen if "linear2.weight" in each.iterates[0]]
    assert len(whole) == len(seen) / 2
    for each in whole:
        after = each.training.model.state_dict()
        for name, value in each.iterates[0].items():
            if not name.startswith("head"):
                assert torch.equal(value, trained[name])
            assert torch.equal(after[name], value) == name.startswith("linear2")


def test_a_run_of_the_last_parts_is_that_of_the_whole_network_with_the_rest_frozen(
    given, monkeypatch
):
    fast = arms_in(metrics_of(spec_of("finetune"), *given))
    # The other way to train stands for another program: in this one its noise would be taken.
    monkeypatch.setattr(seeds, "_claims", {})
    monkeypatch.setattr(Network, "split", lambda network, names: (nn.Sequential(), network))
    slow = arms_in(metrics_of(spec_of("finetune"), given[0], given[1] / "slow", given[2]))
    for one, two in zip(fast, slow, strict=True):
        np.testing.assert_allclose(one["accuracy"], two["accuracy"], atol=0.09)
        assert one["trained_parameters"] == two["trained_parameters"]


def test_runs_of_one_number_start_from_the_same_head_and_others_from_another(given):
    with watched_trainings() as seen:
        run(spec_of("finetune"), *given)
    starts = [each.iterates[0].items() for each in seen]
    heads = [
        next(value for name, value in start if name.endswith("weight") and len(value) == 3)
        for start in starts
    ]
    # Four arms of each of two runs.
    assert len(heads) == 8
    for head in heads[:4]:
        assert torch.equal(head, heads[0])
    for head in heads[4:]:
        assert torch.equal(head, heads[4]) and not torch.equal(head, heads[0])


def test_rows_count_what_is_trained_and_every_arm_has_its_ledger(given):
    record = json.loads(run(spec_of("finetune"), *given))
    metrics, arms = record["metrics"], record["ledger"]["arms"]
    sizes = {row["unfreeze"]: row["trained_parameters"] for row in metrics["arms"]}
    assert sizes == {"head": 21, "last block": 21 + 8 * 6 + 6}
    for arm in arms[:2]:
        assert arm["guaranteed"] == "nothing: no noise" and arm["epsilon"] is None
    for arm in arms[2:]:
        assert 7.9 < arm["epsilon"] <= 8 and arm["sampler"]["name"] == "poisson"


def test_parts_that_the_backbone_has_not_are_refused(given):
    parts = [{"name": "head", "trainable": ["head"]}, {"name": "all", "trainable": ["conv3"]}]
    spec = spec_of("finetune", unfreeze=parts)
    with pytest.raises(InputError, match="'conv3'; allowed: prefixes among linear1, linear2, head"):
        run(spec, *given)
