"""EfficientNet-Lite0: shapes, folding, padding with a stride, and the map of its features."""

import numpy as np
import pytest
import torch

from dpatlas.base.networks import PACKAGE
from dpatlas.data.weights import in_package, obtain
from dpatlas.errors import InputError
from dpatlas.models.efficientnet import (
    FEATURES,
    StridePadding,
    imagenet_efficientnet_lite0,
    named_as_ours,
    principal_directions,
    with_norms,
)
from dpatlas.models.imagenet import ImageNetInput, folded

MODEL = "imagenet-efficientnet-lite0"


def published() -> torch.nn.Sequential:
    """The published network with norms whose statistics are no identity."""
    torch.manual_seed(0)
    network = with_norms(7).eval()
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(part.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(part.running_var, 0.5, 2.0)
    return network


def test_folded_norms_compute_what_the_published_network_does():
    theirs, ours = published(), imagenet_efficientnet_lite0((1, 28, 28), 7, side=64).eval()
    ours.load_state_dict(folded(MODEL, theirs))
    x = torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        assert torch.allclose(ours(x), theirs(ImageNetInput(64)(x)), atol=1e-5)


def test_symmetric_grey_levels_are_the_same_picture():
    x = torch.rand(2, 3, 32, 32)
    assert torch.allclose(
        ImageNetInput(64)(x), ImageNetInput(64, symmetric=True)(2 * x - 1), atol=1e-5
    )


@pytest.mark.parametrize("kernel", [3, 5])
def test_a_stride_pads_even_sides_as_tensorflow_does(kernel):
    x = torch.arange(16.0).view(1, 1, 4, 4)
    padded = StridePadding(kernel)(x)
    total = max((4 // 2 - 1) * 2 + kernel - 4, 0)
    before = total // 2
    assert padded.shape[2:] == (4 + total, 4 + total)
    assert torch.equal(padded[..., before : before + 4, before : before + 4], x)


def test_the_published_names_are_all_known():
    theirs = set(published().state_dict())
    as_published = [
        "_conv_stem.weight", "_bn0.bias", "_blocks.0._bn1.running_var", "_blocks.15._bn2.weight",
        "_blocks.3._expand_conv.weight", "_blocks.3._bn0.weight", "_conv_head.weight",
        "_bn1.running_mean", "_fc.bias",
    ]  # fmt: skip
    assert set(named_as_ours(dict.fromkeys(as_published, torch.zeros(1)))) <= theirs


def test_features_are_mapped_to_the_directions_in_which_the_head_varies():
    head = torch.randn(50, FEATURES, generator=torch.Generator().manual_seed(1))
    directions = principal_directions(head, 20)
    assert torch.allclose(directions @ directions.T, torch.eye(20), atol=1e-5)
    kept = (head - head.mean(0)) @ directions.T
    values = np.linalg.svd((head - head.mean(0)).numpy(), compute_uv=False)
    assert np.allclose(kept.norm() ** 2, np.sum(values[:20] ** 2), rtol=1e-5)
    # A constant added to all classes changes no softmax.
    assert torch.allclose(principal_directions(head + 3, 20), directions, atol=1e-4)


@pytest.mark.parametrize("options", [{"side": 100}, {"inputs": FEATURES + 1}, {"side": 16}])
def test_sides_and_inputs_that_do_not_fit_are_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        imagenet_efficientnet_lite0((3, 32, 32), 10, **options)


def test_a_package_that_is_not_installed_is_named():
    address = f"{PACKAGE}nowhere_to_be_had/weights-00000000.pth"
    assert in_package(address) is None
    with pytest.raises(InputError, match="no package nowhere-to-be-had"):
        obtain(address)
