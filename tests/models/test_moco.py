"""Which of a checkpoint's tensors are the encoder's; a few names stand for all."""

import pytest
import torch

from dpatlas.errors import InputError
from dpatlas.models.moco import encoder

V2, V3 = "moco-v2-resnet50", "moco-v3-resnet50"
TAKEN = {"conv1.weight", "bn1.running_var", "layer1.0.downsample.1.bias"}
PROJECTION = {
    V2: ("fc.0.weight", "fc.0.bias", "fc.2.weight", "fc.2.bias"),
    V3: ("fc.0.weight", "fc.1.running_mean", "fc.3.weight", "fc.4.running_var"),
}
OTHERS = {
    V2: ("encoder_k.conv1.weight", "encoder_k.fc.0.weight", "queue", "queue_ptr"),
    V3: ("momentum_encoder.conv1.weight", "predictor.0.weight", "predictor.4.running_mean"),
}
PREFIX = {V2: "encoder_q.", V3: "base_encoder."}


def state(names, value=1.0):
    return {name: torch.full((2, 3), value) for name in names}


def checkpoint(model, wrapper="module."):
    own = {f"{PREFIX[model]}{name}" for name in (*TAKEN, *PROJECTION[model])}
    found = {**state(own), **state(OTHERS[model], 2.0)}
    return {f"{wrapper}{name}": value for name, value in found.items()}


@pytest.mark.parametrize("model", [V2, V3])
@pytest.mark.parametrize("wrapper", ["module.", ""])
def test_the_encoder_that_learns_by_gradients_is_taken_without_its_projection(model, wrapper):
    found = encoder(model, "here", checkpoint(model, wrapper))
    assert found.keys() == TAKEN
    assert all(bool((value == 1).all()) for value in found.values())
    # And so is the encoder alone.
    names = [f"{wrapper}{name}" for name in (*TAKEN, *PROJECTION[model])]
    assert encoder(model, "here", state(names)).keys() == TAKEN
    assert encoder(model, "here", state(TAKEN)).keys() == TAKEN


@pytest.mark.parametrize("prefix", ["", "module.", "module.encoder_q."])
def test_a_network_with_a_single_last_layer_is_refused(prefix):
    """Of a supervised network 1000 x 2048, of MoCo-v1 128 x 2048."""
    given = state([f"{prefix}{name}" for name in TAKEN])
    given[f"{prefix}fc.weight"] = torch.zeros(1000, 4)
    with pytest.raises(InputError, match=r"here: found a single last layer \(1000 x 4\)"):
        encoder(V2, "here", given)
