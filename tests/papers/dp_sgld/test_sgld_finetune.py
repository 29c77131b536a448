"""dp_sgld's fine-tuning: what is trained, from where, and what each arm guarantees."""

import json

import numpy as np
import pytest
import torch
from lpfft_small import watched_trainings
from sgld_small import arms_in, metrics_of, run, save_backbone, spec_of
from torch import nn

from dpatlas.base import seeds
from dpatlas.errors import InputError
from dpatlas.models import backbone
from dpatlas.models.network import Network

# Accounting for batches without replacement takes seconds a calibration.
pytestmark = pytest.mark.slow
# The second trains on both sides of a frozen layer, and hence in the whole network.
HEAD, AROUND = (
    {"name": "head", "trainable": ["head"]},
    {"name": "a", "trainable": ["linear1", "head"]},
)


@pytest.fixture(scope="module")
def trained_from(tmp_path_factory):
    return save_backbone(tmp_path_factory.mktemp("trained") / "backbone")


@pytest.fixture(scope="module")
def whole(data, trained_from, tmp_path_factory):
    """(record, trainings) of one job."""
    with watched_trainings() as seen:
        made = run(spec_of("finetune"), data, tmp_path_factory.mktemp("whole"), [trained_from])
    return json.loads(made), seen


def test_frozen_parts_keep_the_backbone_s_bits_and_trained_ones_move(data, trained_from, tmp_path):
    with watched_trainings() as seen:
        run(spec_of("finetune", unfreeze=[HEAD, AROUND]), data, tmp_path, [trained_from])
    trained = backbone.load(trained_from).network.state_dict()
    networks = [each for each in seen if "linear2.weight" in each.iterates[0]]
    assert len(networks) == len(seen) / 2
    for each in networks:
        after = each.training.model.state_dict()
        for name, value in each.iterates[0].items():
            assert name.startswith("head") or torch.equal(value, trained[name])
            assert torch.equal(after[name], value) == name.startswith("linear2")


def test_a_run_of_the_last_parts_is_that_of_the_whole_network_with_the_rest_frozen(
    whole, data, trained_from, tmp_path, monkeypatch
):
    # The other way to train stands for another program: in this one its noise would be taken.
    monkeypatch.setattr(seeds, "_claims", {})
    monkeypatch.setattr(Network, "split", lambda network, names: (nn.Sequential(), network))
    slow = arms_in(metrics_of(spec_of("finetune"), data, tmp_path, [trained_from]))
    for one, two in zip(arms_in(whole[0]["metrics"]), slow, strict=True):
        np.testing.assert_allclose(one["accuracy"], two["accuracy"], atol=0.09)
        assert one["trained_parameters"] == two["trained_parameters"]


def test_runs_of_one_number_start_from_the_same_head_and_others_from_another(whole):
    starts = [each.iterates[0].items() for each in whole[1]]
    heads = [
        next(value for name, value in start if name.endswith("weight") and len(value) == 3)
        for start in starts
    ]
    # Four arms of each of two runs.
    assert [torch.equal(head, heads[0]) for head in heads] == [True] * 4 + [False] * 4
    assert all(torch.equal(head, heads[4]) for head in heads[4:])


def test_rows_count_what_is_trained_and_every_arm_has_its_ledger(whole):
    metrics, arms = whole[0]["metrics"], whole[0]["ledger"]["arms"]
    sizes = {row["unfreeze"]: row["trained_parameters"] for row in metrics["arms"]}
    assert sizes == {"head": 21, "last block": 21 + 8 * 6 + 6}
    for arm in arms[:2]:
        assert arm["guaranteed"] == "nothing: no noise" and arm["epsilon"] is None
    for arm in arms[2:]:
        assert 7.9 < arm["epsilon"] <= 8 and arm["sampler"]["name"] == "poisson"


def test_parts_that_the_backbone_has_not_are_refused(data, trained_from, tmp_path):
    spec = spec_of("finetune", unfreeze=[HEAD, {"name": "all", "trainable": ["conv3"]}])
    with pytest.raises(InputError, match="'conv3'; allowed: prefixes among linear1, linear2, head"):
        run(spec, data, tmp_path, [trained_from])
