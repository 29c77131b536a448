import numpy as np
import pytest
import torch
from clipped_loop import clipped_loop
from torch import nn

from dpatlas.errors import InputError
from dpatlas.models.alexnet import alexnet
from dpatlas.models.build import build
from dpatlas.papers.dp_sgld.formulas.published import TABLE_4
from dpatlas.privacy.per_record import NetworkGradients


def test_it_has_five_convolutions_three_poolings_and_the_features_of_table_4():
    net = alexnet()
    kinds = [type(part) for part in net]
    assert kinds.count(nn.Conv2d) == 5 and kinds.count(nn.ReLU) == 5
    assert kinds.count(nn.MaxPool2d) + kinds.count(nn.AdaptiveMaxPool2d) == 3
    (problem,) = (problem for problem in TABLE_4 if problem.backbone == "alexnet")
    assert net.head.in_features == problem.features == 256
    assert net.head.out_features == problem.classes


def test_parameters_and_maps_are_counted_by_hand():
    net = alexnet()
    channels = [3, 64, 192, 384, 256, 256]
    kernels = [11, 5, 3, 3, 3]
    counted = sum(
        (into * kernel**2 + 1) * out
        for into, out, kernel in zip(channels, channels[1:], kernels, strict=False)
    )
    assert sum(value.numel() for value in net.parameters()) == counted + 257 * 10 == 2_472_266
    sides = {}
    x = torch.zeros(2, 3, 32, 32)
    for name, part in net.named_children():
        x = part(x)
        sides[name] = x.shape[-1]
    # Stride 4, then three halvings.
    assert [sides[f"conv{i}"] for i in range(1, 6)] == [8, 4, 2, 2, 2]
    assert (sides["pool1"], sides["pool2"], sides["pool5"]) == (4, 2, 1)


def test_images_that_are_too_small_are_refused():
    with pytest.raises(InputError, match="8 x 8 pixels; allowed: 13 x 13"):
        alexnet((1, 8, 8))
    with pytest.raises(RuntimeError):
        # The limit is where pooling runs out of positions.
        alexnet((1, 13, 13))(torch.zeros(1, 1, 12, 12))


def test_the_private_engine_takes_max_pooling():
    net = build("alexnet", (3, 32, 32), 10, key="test", run=0, base_seed=0).double()
    draws = np.random.default_rng(2)
    x = torch.from_numpy(draws.standard_normal((3, 3072)))
    labels = torch.tensor([0, 4, 9])
    clipped = NetworkGradients(net).clipped_sum(x, labels, 1e9)
    norms, total = clipped_loop(net, x, labels, 1e9)
    torch.testing.assert_close(clipped.norms, norms)
    for name, value in total.items():
        torch.testing.assert_close(clipped.gradients[name], value)
