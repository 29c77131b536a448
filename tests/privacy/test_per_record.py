"""Clipped sums from one backward pass against a per-record loop in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import put
from reference_gradients import (
    NETWORKS,
    clipped_sum,
    distance,
    norms,
    per_record_gradients,
    records,
    seeded,
)
from small_training import Jitter, phase
from torch import nn

from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.models.build import NAMES, build
from dpatlas.privacy import convolution, matrix, per_record
from dpatlas.privacy.logistic import SoftmaxGradients
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.per_record import NetworkGradients, PerRecordWarning
from dpatlas.privacy.training import PrivateTraining

# Of torch.func's loops, which are only compared with here.
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


def kernel_of(model):
    """For one linear layer the closed form of softmax regression."""
    return (SoftmaxGradients if type(model) is nn.Linear else NetworkGradients)(model)


# Networks in which a record of huge numbers may still have a gradient of ordinary size.
NORMALISING = (
    *("group norm", "layer norm", "attention", "rms norm", "rms norm of each token"),
    *("transformer layer of torch", "used twice", "product of its own"),
)


def dashed(name):
    return name.replace(" ", "-")


@pytest.fixture(params=NETWORKS, ids=dashed)
def case(request, device):
    make, shape = NETWORKS[request.param]
    x, labels = records(shape)
    return put(seeded(make)), put(x), put(labels)


def on(names):
    """Run a test on these of the networks only."""
    return pytest.mark.parametrize("case", names, indirect=True, ids=dashed)


def close(found, expected, tolerance=1e-10):
    assert set(found) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("max_grad_norm", [0.5, 1e6])
def test_the_clipped_sum_equals_a_per_record_loop_for_every_layer_type(case, max_grad_norm):
    model, x, labels = case
    expected = per_record_gradients(model, x, labels)
    found = kernel_of(model).clipped_sum(x, labels, max_grad_norm)
    close(found.gradients, clipped_sum(expected, max_grad_norm))
    torch.testing.assert_close(found.norms, norms(expected), rtol=1e-10, atol=0)
    assert found.skipped == 0


def test_views_are_averaged_before_the_clip(case):
    (model, x, labels), views = case, 2
    labels = labels[::views].repeat_interleave(views)[: len(x)]
    expected = per_record_gradients(model, x, labels, views)
    found = NetworkGradients(model, views=views).clipped_sum(x, labels, 0.3)
    close(found.gradients, clipped_sum(expected, 0.3))
    assert len(found.norms) == len(x) // views


def test_per_layer_clipping_clips_each_layer_at_its_share():
    make, shape = NETWORKS["mlp"]
    model, (x, labels) = seeded(make), records(shape)
    found = NetworkGradients(model, clipping="per-layer").clipped_sum(x, labels, 0.2)
    expected = {}
    for layer in ("0", "2"):
        rows = per_record_gradients(model, x, labels)
        rows = {name: value for name, value in rows.items() if name.startswith(layer)}
        expected |= clipped_sum(rows, 0.2 / 2**0.5)
    close(found.gradients, expected)


@on(NORMALISING)
@pytest.mark.parametrize("value", [1e100, 1e300])
def test_a_huge_record_before_a_norm_layer_is_clipped_or_counted(case, value):
    found, expected = poisoned_and_others(case, value)
    moved = distance(found.gradients, expected.gradients)
    assert found.skipped == int(not torch.isfinite(found.norms[1]))
    assert moved <= (0 if found.skipped else 0.3) * (1 + 1e-10) + 1e-10


def test_gradients_per_record_in_one_call_read_only_the_shape_of_the_weights(monkeypatch):
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 8, 3, padding=1)
    x, labels = torch.randn(6, 3, 8, 8), torch.arange(6) % 4
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(8 * 8 * 8, 4))
    kernel, asked = kernel_of(model), []
    expected = kernel.clipped_sum(x, labels, 0.1)

    def nothing_but_a_shape(tensor, *size):
        asked.append(size)
        return torch.full(size, torch.nan)

    monkeypatch.setattr(torch.Tensor, "new_empty", nothing_but_a_shape)
    found = kernel.clipped_sum(x, labels, 0.1)
    assert all(
        torch.equal(found.gradients[name], value) for name, value in expected.gradients.items()
    )
    assert asked == [(6 * 8, 3, 3, 3)]


CONVOLUTIONS = [name for name in NETWORKS if "convolution" in name]
POSITIONS = [name for name in NETWORKS if "over" in name or "attention" in name]


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        *((name, ("GRAM_SHARE", 0, 1e9)) for name in CONVOLUTIONS + POSITIONS),
        *((name, ("FEW_PIXELS_SHARE", 0, 1e9)) for name in CONVOLUTIONS),
        *((name, ("FEW_PIXELS", 0, 36)) for name in CONVOLUTIONS),
        ("large convolution of many positions", ("SMALL_CONVOLUTION", 0, 10**12)),
    ],
)
def test_every_way_to_a_norm_gives_the_same(name, limits, monkeypatch):
    make, shape = NETWORKS[name]
    model, (x, labels), found = seeded(make), records(shape), []
    for value in limits[1:]:
        monkeypatch.setattr(convolution, limits[0], value)
        monkeypatch.setattr(matrix, limits[0], value, raising=False)
        found.append(kernel_of(model).clipped_sum(x, labels, 0.1))
    close(found[0].gradients, found[1].gradients)
    torch.testing.assert_close(found[0].norms, found[1].norms, rtol=1e-10, atol=0)


@on([name for name in NETWORKS if name != "linear without bias"])
@pytest.mark.parametrize("index", [0, 1])
def test_frozen_parameters_take_no_part(case, index):
    model, x, labels = case
    frozen = [name for name, _ in model.named_parameters()][index]
    model.get_parameter(frozen).requires_grad_(False)
    found = kernel_of(model).clipped_sum(x, labels, 0.3)
    assert frozen not in found.gradients
    close(found.gradients, clipped_sum(per_record_gradients(model, x, labels), 0.3))


def poisoned_and_others(case, value):
    """The clipped sums at bound 0.3 with every number of record 1 at `value`, and without it."""
    model, x, labels = case
    kernel = kernel_of(model)
    poisoned = x.clone()
    poisoned[1] = value
    before, others = poisoned.clone(), torch.arange(len(x)) != 1
    found = kernel.clipped_sum(poisoned, labels, 0.3)
    torch.testing.assert_close(poisoned, before, equal_nan=True)
    return found, kernel.clipped_sum(x[others], labels[others], 0.3)


POISONED = [(name, value) for name in NETWORKS for value in (float("nan"), float("inf"))]
POISONED += [(name, 1e300) for name in NETWORKS if name not in NORMALISING]


@pytest.mark.parametrize(("case", "value"), POISONED, indirect=["case"])
def test_a_record_without_a_finite_gradient_contributes_zero_and_is_counted(case, value):
    found, expected = poisoned_and_others(case, value)
    close(found.gradients, expected.gradients)
    assert found.skipped == 1


@on(["closed form", "mlp", "group norm", "frozen batch norm", "tied", "weight norm"])
def test_a_pass_leaves_the_model_as_it_was_and_keeps_no_graph(case):
    model, x, labels = case
    before = model(x)
    with torch.enable_grad():
        found = kernel_of(model).clipped_sum(x, labels, 1.0)
    assert not any(value.requires_grad for value in (found.norms, *found.gradients.values()))
    torch.testing.assert_close(model(x), before, rtol=0, atol=0)
    assert all(value.grad is None for value in model.parameters())


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 8),
    max_grad_norm=st.floats(1e-6, 1e6),
    scale=st.floats(1e-10, 1e10),
    base=st.integers(0, 2**32 - 1),
    network=st.sampled_from(["closed form", "mlp", "convolution of few positions", "group norm"]),
)
def test_one_record_never_moves_the_clipped_sum_by_more_than_the_bound(
    rows, max_grad_norm, scale, base, network
):
    make, shape = NETWORKS[network]
    draws = np.random.default_rng(base)
    x = torch.from_numpy((scale * draws.standard_normal((rows, *shape))).astype(np.float32))
    labels = torch.from_numpy(draws.integers(0, 5, rows))
    kernel = kernel_of(seeded(make, dtype=torch.float32))
    whole = kernel.clipped_sum(x, labels, max_grad_norm).gradients
    rest = kernel.clipped_sum(x[1:], labels[1:], max_grad_norm).gradients
    # Rounding of the two sums, each of norm up to rows times the bound.
    assert distance(whole, rest) <= max_grad_norm * (1 + 1e-5 * rows)


def kernel_for(model, loss=cross_entropy, augmentation=None):
    """The kernel that a training of this network takes."""
    x, labels = records((64,), dtype=torch.float32)
    phases = [phase(FullBatch(len(x)))]
    options = {"loss": loss, "augmentation": augmentation, "noise": Noise()}
    run = PrivateTraining(model, phases, x, labels, **options)
    run.step()
    return run.kernel


def test_the_closed_form_is_taken_for_one_linear_layer_and_for_nothing_else():
    linear = build("linear", (1, 8, 8), 5, key="test", run=0, base_seed=0)
    for model in (linear, nn.Linear(64, 5)):
        assert isinstance(kernel_for(model), SoftmaxGradients)
    hooked = nn.Linear(64, 5)
    hooked.register_forward_hook(lambda layer, given, output: 2 * output)
    for model, loss, augmentation in [
        (nn.Sequential(nn.Linear(64, 9), nn.Linear(9, 5)), cross_entropy, None),
        (nn.Sequential(nn.ReLU(), nn.Linear(64, 5)), cross_entropy, None),
        (hooked, cross_entropy, None),
        (linear, lambda output, labels: cross_entropy(output, labels), None),
        (linear, cross_entropy, Jitter()),
    ]:
        assert isinstance(kernel_for(model, loss, augmentation), NetworkGradients)


def test_the_closed_form_keeps_norms_and_names_parameters_as_the_model_does():
    model = build("linear", (1, 8, 8), 5, key="test", run=0, base_seed=0)
    x, labels = records((64,), dtype=torch.float32)
    kernel = SoftmaxGradients(model.head, "head.")
    fresh = kernel.clipped_sum(x, labels, 0.7)
    kept = kernel.clipped_sum(x, labels, 0.7, kernel.constants(x))
    assert list(fresh.gradients) == list(kernel.empty().gradients) == ["head.weight", "head.bias"]
    torch.testing.assert_close(kept.gradients, fresh.gradients)


@pytest.mark.parametrize("held", [1, 80])
@on(["weight norm", "tokens and factors", "rms norm"])
def test_copies_for_every_record_are_held_a_few_at_a_time(case, held, monkeypatch):
    model, x, labels = case
    expected = kernel_of(model).clipped_sum(x, labels, 0.3)
    monkeypatch.setattr(per_record, "HELD", held)
    found = kernel_of(model)
    close(found.clipped_sum(x, labels, 0.3).gradients, expected.gradients)
    assert found.at_once < len(x)


def test_copies_are_told_once_for_all_phases():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(200, 200)))
    x, labels = records((200,), dtype=torch.float32)
    phases = [phase(FullBatch(len(x)), steps=1, lr=lr) for lr in (0.1, 0.2)]
    words = "every record's gradient of 0.parametrizations.*is held"
    with pytest.warns(PerRecordWarning, match=words) as told:
        PrivateTraining(model, phases, x, labels, noise=Noise()).run()
    assert len(told) == 1


def test_nothing_to_train_and_a_bad_clip_bound_are_refused():
    with pytest.raises(InputError, match="no trainable parameter"):
        NetworkGradients(nn.Linear(7, 5).requires_grad_(False))
    x, labels = torch.zeros(2, 7), torch.zeros(2, dtype=torch.int64)
    for kernel in (NetworkGradients, SoftmaxGradients):
        for bound in (0, -1.0, float("inf"), float("nan")):
            with pytest.raises(InputError, match="max_grad_norm"):
                kernel(nn.Linear(7, 5)).clipped_sum(x, labels, bound)


LARGE = ("resnet18", "mobilenet-v3", "vit-tiny", "wrn16-4")
# What is trained of networks whose weights are published.
PUBLISHED = {
    "imagenet-resnet18": ("body.layer4.1", "head"),
    "imagenet-deit-tiny": ("body.blocks.11", "body.norm", "head"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in (*LARGE, *PUBLISHED)))
        for name in (*NAMES, *PUBLISHED)
        if name != "linear"
    ],
)
def test_every_network_of_the_workflow_has_the_clipped_sum_of_a_loop(name):
    side = 64 if name == "alexnet" else 16
    model = build(name, (1, side, side), 5, key="test", run=0, base_seed=0).double()
    for path, value in model.named_parameters():
        value.requires_grad_(path.startswith(PUBLISHED.get(name, "")))
        # Heads may be zero at first.
        if not value.any():
            nn.init.normal_(value, std=0.1)
    x, labels = records((side * side,), rows=3)
    found = NetworkGradients(model).clipped_sum(x, labels, 0.5)
    expected = clipped_sum(per_record_gradients(model, x, labels), 0.5)
    assert distance(found.gradients, expected) < 1e-9
