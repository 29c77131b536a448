import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference_gradients import by_loop, clipped_sum
from small_training import sums_of
from torch import nn

from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.models.build import build
from dpatlas.models.lora import Adapted, lora_parameters, with_lora
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

AXES = {"key": "test", "run": 0, "base_seed": 1}
RANK, OUTPUTS, N = 3, 5, 9
NETWORKS = {
    "vit-tiny": {"patch": 2, "dim": 16, "depth": 1, "heads": 2, "mlp_ratio": 2},
    "small-cnn-t": {},
}


@pytest.fixture(params=NETWORKS)
def network(request):
    return build(request.param, (1, 8, 8), OUTPUTS, **AXES, **NETWORKS[request.param])


def data():
    draws = np.random.default_rng(2)
    return torch.from_numpy(draws.standard_normal((N, 64))), torch.arange(N) % OUTPUTS


def random_branches(network):
    """Branches that are away from zero, so that every one of their weights has a gradient."""
    draws = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name in lora_parameters(network):
            weight = network.get_parameter(name)
            weight.copy_(0.3 * torch.randn(weight.shape, generator=draws, dtype=weight.dtype))
    return network


def test_the_output_is_the_networks_to_the_last_bit(network):
    x = data()[0].float()
    assert torch.equal(with_lora(network, RANK, **AXES)(x), network(x))


def test_nothing_of_the_network_is_shared_or_changed(network):
    before = {name: value.clone() for name, value in network.state_dict().items()}
    adapted = random_branches(with_lora(network, RANK, **AXES))
    with torch.no_grad():
        for value in adapted.parameters():
            value.add_(1)
    after = network.state_dict()
    assert set(after) == set(before) and all(torch.equal(after[k], before[k]) for k in before)
    assert all(value.requires_grad for value in network.parameters())
    assert not any(isinstance(part, Adapted) for part in network.modules())


def test_a_branch_moves_a_layers_weight_by_scale_times_up_down(network):
    adapted = random_branches(with_lora(network, RANK, **AXES, scale=0.7))
    draws = torch.Generator().manual_seed(6)
    for path, part in adapted.named_modules():
        if isinstance(part, Adapted):
            shape = (4, 6, 6) if isinstance(part.base, nn.Conv2d) else (6,)
            shape = (part.base.weight.shape[1], *shape[1:])
            x = torch.randn(2, *shape, generator=draws)
            base, down, up = (layer.weight.detach() for layer in (part.base, part.down, part.up))
            merged = base + 0.7 * (up.flatten(1) @ down.flatten(1)).view(base.shape)
            if isinstance(part.base, nn.Conv2d):
                expected = F.conv2d(x, merged, part.base.bias, part.base.stride, part.base.padding)
            else:
                expected = F.linear(x, merged, part.base.bias)
            np.testing.assert_allclose(
                part(x).detach(), expected.detach(), 1e-4, 1e-5, err_msg=path
            )


def test_down_is_gaussian_with_variance_one_over_fan_in_and_keyed_by_name_and_run(network):
    one, same, other = (
        with_lora(network, RANK, **{**AXES, "run": run}).state_dict() for run in (0, 0, 1)
    )
    scaled = []
    for name in one:
        if ".down." in name:
            assert torch.equal(one[name], same[name])
            assert not torch.isclose(one[name], other[name], rtol=1e-6).any()
            scaled.append((one[name] * one[name][0].numel() ** 0.5).flatten())
        if ".up." in name:
            assert not one[name].any()
    scaled = torch.cat(scaled)
    # Mean square of n squared normals: 1 with deviation sqrt(2 / n).
    assert abs(scaled.square().mean() - 1) < 4 * (2 / len(scaled)) ** 0.5


def phase(**changes):
    settings = {"noise_multiplier": 0.0, "max_grad_norm": 0.4, "steps": 1, "lr": 0.3}
    return TrainingPhase(FullBatch(N), **{**settings, **changes})


@pytest.mark.parametrize("clip", [0.4, 1e6])
def test_the_private_step_is_that_of_a_per_record_loop(network, clip):
    adapted = random_branches(with_lora(network.double(), RANK, **AXES, scale=0.7))
    x, labels = data()
    rows = zip(x[:, None], labels[:, None], strict=True)
    losses = (F.cross_entropy(adapted(row), label) for row, label in rows)
    expected = clipped_sum(by_loop(adapted, losses), clip)
    one_step = phase(max_grad_norm=clip, trainable=lora_parameters(adapted))
    training = PrivateTraining(adapted, [one_step], x, labels, noise=Noise("digest", "keyed"))
    (seen,) = sums_of(training)
    assert set(seen) == set(expected) == set(lora_parameters(adapted))
    for name, value in expected.items():
        assert value.any()
        np.testing.assert_allclose(seen[name], value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "rank", "layer", "width"),
    [("vit-tiny", 5, "patches", 4), ("small-cnn-t", 9, "conv1", 8)],
)
def test_a_rank_above_a_layers_width_is_refused_by_the_layers_name(name, rank, layer, width):
    network = build(name, (1, 8, 8), OUTPUTS, **AXES, **NETWORKS[name])
    with_lora(network, width, **AXES)
    with pytest.raises(InputError, match=f"rank: found {rank}.*at most {width}.*layer {layer}"):
        with_lora(network, rank, **AXES)


def test_a_convolution_with_groups_is_refused_by_name(network):
    network.add_module("grouped", nn.Conv2d(2, 4, 3, groups=2))
    with pytest.raises(InputError, match="layer grouped: found 2 groups"):
        with_lora(network, 1, **AXES)


def test_a_network_of_one_s_own_is_adapted_but_for_what_is_trained_whole():
    own = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3))
    adapted = with_lora(own, 2, whole=("2",))
    names = ("0.down.weight", "0.up.weight", "2.weight", "2.bias")
    assert lora_parameters(adapted, ("2",)) == names
    assert tuple(n for n, value in adapted.named_parameters() if value.requires_grad) == names
    x = torch.randn(30, 20)
    assert torch.equal(adapted(x), own(x))
    before = {name: value.clone() for name, value in adapted.named_parameters()}
    phase = TrainingPhase(FullBatch(30), 1.0, 1.0, 2, 0.1, trainable=names)
    PrivateTraining(adapted, [phase], x, torch.arange(30) % 3, noise=Noise()).run()
    moved = {n for n, value in adapted.named_parameters() if not torch.equal(value, before[n])}
    assert moved == set(names)
    for name in ("head", "1.5"):
        with pytest.raises(InputError, match=f"whole: found '{name}'"):
            with_lora(own, 2, whole=(name,))
