"""Clipped sums from one backward pass against a per-record loop in float64."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
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
from torch import nn

from dpatlas.models.build import build
from dpatlas.privacy import convolution, layers
from dpatlas.privacy.per_record import NetworkGradients

# Of torch.func's loops and of the peer's hooks, which are only compared with here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:There is a performance drop", "ignore:Full backward hook is firing"
)


# Networks in which a record of huge numbers may still have a gradient of ordinary size.
NORMALISING = ("group norm", "layer norm", "attention")


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


@pytest.mark.parametrize("max_grad_norm", [1e-3, 0.5, 1e6])
def test_the_clipped_sum_equals_a_per_record_loop_for_every_layer_type(case, max_grad_norm):
    model, x, labels = case
    expected = per_record_gradients(model, x, labels)
    found = NetworkGradients(model).clipped_sum(x, labels, max_grad_norm)
    close(found.gradients, clipped_sum(expected, max_grad_norm))
    torch.testing.assert_close(found.norms, norms(expected), rtol=1e-10, atol=0)
    assert found.skipped == 0


def test_both_ways_to_the_norm_of_a_convolution_are_taken_and_agree(case, monkeypatch):
    model, x, labels = case
    found = {}
    for share in (0, 1e9):
        monkeypatch.setattr(convolution, "GRAM_SHARE", share)
        monkeypatch.setattr(layers, "LINEAR_GRAM_SHARE", share)
        found[share] = NetworkGradients(model).clipped_sum(x, labels, 0.1)
    close(found[0].gradients, found[1e9].gradients)
    torch.testing.assert_close(found[0].norms, found[1e9].norms, rtol=1e-10, atol=0)


def test_one_call_for_all_records_equals_a_call_for_each(monkeypatch):
    make, shape = NETWORKS["large convolution of many positions"]
    model, (x, labels) = seeded(make), records(shape)
    found = {}
    for limit in (0, 10**12):
        monkeypatch.setattr(convolution, "SMALL_CONVOLUTION", limit)
        found[limit] = NetworkGradients(model).clipped_sum(x, labels, 0.1).gradients
    close(found[0], found[10**12])


def test_the_networks_of_these_tests_take_every_way_to_a_norm(monkeypatch):
    taken = set()
    gram, single = convolution.Conv2d._few_positions, convolution.Conv2d._per_record

    def watch_gram(rule, delta):
        taken.add(("gram", gram(rule, delta)))
        return gram(rule, delta)

    def watch_single(rule, x, delta):
        products = delta[0, 0].numel() * rule.layer.weight.numel()
        taken.add(("one call", products < convolution.SMALL_CONVOLUTION))
        return single(rule, x, delta)

    monkeypatch.setattr(convolution.Conv2d, "_few_positions", watch_gram)
    monkeypatch.setattr(convolution.Conv2d, "_per_record", watch_single)
    for make, shape in NETWORKS.values():
        NetworkGradients(seeded(make)).clipped_sum(*records(shape), 1.0)
    assert taken == {("gram", True), ("gram", False), ("one call", True), ("one call", False)}


@pytest.mark.parametrize("views", [2, 3])
def test_views_are_averaged_before_the_clip(case, views):
    model, x, labels = case
    labels = labels[::views].repeat_interleave(views)[: len(x)]
    expected = per_record_gradients(model, x, labels, views)
    found = NetworkGradients(model, views=views).clipped_sum(x, labels, 0.3)
    close(found.gradients, clipped_sum(expected, 0.3))
    assert len(found.norms) == len(x) // views


def test_identical_views_equal_a_single_one(case):
    model, x, labels = case
    once = NetworkGradients(model).clipped_sum(x, labels, 0.3)
    thrice = NetworkGradients(model, views=3).clipped_sum(
        x.repeat_interleave(3, 0), labels.repeat_interleave(3), 0.3
    )
    close(thrice.gradients, once.gradients)


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


@on([name for name in NETWORKS if name != "linear without bias"])
def test_frozen_parameters_take_no_part(case):
    model, x, labels = case
    first = next(iter(dict(model.named_parameters())))
    model.get_parameter(first).requires_grad_(False)
    expected = per_record_gradients(model, x, labels)
    found = NetworkGradients(model).clipped_sum(x, labels, 0.3)
    assert first not in found.gradients
    close(found.gradients, clipped_sum(expected, 0.3))


def test_perturbing_one_record_moves_no_other_gradient(case):
    model, x, labels = case
    kernel = NetworkGradients(model)
    before = kernel.clipped_sum(x, labels, 0.3)
    moved = x.clone()
    moved[2] += 10
    after = kernel.clipped_sum(moved, labels, 0.3)
    others = torch.arange(len(x)) != 2
    torch.testing.assert_close(before.norms[others], after.norms[others], rtol=1e-12, atol=0)
    assert before.norms[2] != after.norms[2]


def poisoned_and_others(case, value):
    """The clipped sums at bound 0.3 with every number of record 1 at `value`, and without it."""
    model, x, labels = case
    kernel = NetworkGradients(model)
    poisoned = x.clone()
    poisoned[1] = value
    others = torch.arange(len(x)) != 1
    return (
        kernel.clipped_sum(poisoned, labels, 0.3),
        kernel.clipped_sum(x[others], labels[others], 0.3),
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_record_that_is_not_finite_contributes_zero_and_is_counted(case, value):
    found, expected = poisoned_and_others(case, value)
    close(found.gradients, expected.gradients)
    assert found.skipped == 1


@on([name for name in NETWORKS if name not in NORMALISING])
def test_a_record_whose_gradient_overflows_contributes_zero_and_is_counted(case):
    found, expected = poisoned_and_others(case, 1e300)
    close(found.gradients, expected.gradients)
    assert found.skipped == 1


@on(NORMALISING)
@pytest.mark.parametrize("value", [1e100, 1e300])
def test_a_huge_record_before_a_norm_layer_is_clipped_or_counted(case, value):
    found, expected = poisoned_and_others(case, value)
    moved = distance(found.gradients, expected.gradients)
    assert found.skipped == int(not torch.isfinite(found.norms[1]))
    assert moved <= (0 if found.skipped else 0.3) * (1 + 1e-10) + 1e-10


def test_discarding_a_record_leaves_the_callers_data_alone():
    make, shape = NETWORKS["mlp"]
    model, (x, labels) = seeded(make), records(shape)
    x[1] = torch.inf
    before = x.clone()
    NetworkGradients(model).clipped_sum(x, labels, 0.3)
    torch.testing.assert_close(x, before)


def test_the_model_is_as_it_was_after_a_pass(case):
    model, x, labels = case
    before = model(x)
    NetworkGradients(model).clipped_sum(x, labels, 1.0)
    torch.testing.assert_close(model(x), before, rtol=0, atol=0)
    assert all(value.grad is None for value in model.parameters())
    assert not any("forward" in vars(layer) for layer in model.modules())


def test_what_comes_out_keeps_no_graph(case):
    model, x, labels = case
    with torch.enable_grad():
        found = NetworkGradients(model).clipped_sum(x, labels, 1.0)
    assert not found.norms.requires_grad
    assert not any(value.requires_grad for value in found.gradients.values())


def test_the_model_is_as_it_was_after_a_failed_pass():
    make, shape = NETWORKS["mlp"]
    model, (x, labels) = seeded(make), records(shape)
    kernel = NetworkGradients(model)
    kernel.clipped_sum(x, labels, 1.0)
    with pytest.raises(RuntimeError):
        kernel.clipped_sum(x[:, :3], labels, 1.0)
    assert not any("forward" in vars(layer) for layer in model.modules())
    close(
        kernel.clipped_sum(x, labels, 1.0).gradients, kernel.clipped_sum(x, labels, 1.0).gradients
    )


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 8),
    max_grad_norm=st.floats(1e-6, 1e6),
    scale=st.floats(1e-10, 1e10),
    base=st.integers(0, 2**32 - 1),
    network=st.sampled_from(["mlp", "convolution of few positions", "group norm"]),
)
def test_one_record_never_moves_the_clipped_sum_by_more_than_the_bound(
    rows, max_grad_norm, scale, base, network
):
    make, shape = NETWORKS[network]
    model = seeded(make, dtype=torch.float32)
    draws = np.random.default_rng(base)
    x = torch.from_numpy((scale * draws.standard_normal((rows, *shape))).astype(np.float32))
    labels = torch.from_numpy(draws.integers(0, 5, rows))
    kernel = NetworkGradients(model)
    whole = kernel.clipped_sum(x, labels, max_grad_norm).gradients
    rest = kernel.clipped_sum(x[1:], labels[1:], max_grad_norm).gradients
    # Rounding of the two sums, each of norm up to rows times the bound.
    assert distance(whole, rest) <= max_grad_norm * (1 + 1e-5 * rows)


@pytest.mark.parametrize("name", ["mlp", "small-cnn-t", "bench-cnn"])
def test_float32_networks_agree_with_torch_func(name):
    shape = (3, 32, 32) if name == "bench-cnn" else (1, 8, 8)
    model = build(name, shape, 5, key="test", run=0, base_seed=0)
    x, labels = records((int(np.prod(shape)),), dtype=torch.float32)
    expected = per_record_gradients(model, x, labels)
    found = NetworkGradients(model).clipped_sum(x, labels, 0.3)
    close(found.gradients, clipped_sum(expected, 0.3), tolerance=1e-4)


@pytest.mark.parametrize("name", ["mlp", "small-cnn-s"])
def test_a_step_without_noise_equals_opacus(name):
    from opacus import GradSampleModule

    model = build(name, (1, 8, 8), 5, key="test", run=0, base_seed=0).double()
    x, labels = records((64,))
    found = NetworkGradients(model).clipped_sum(x, labels, 0.3)
    for layer in model.modules():
        if isinstance(layer, nn.ReLU):
            layer.inplace = False  # which backward hooks cannot bear
    theirs = GradSampleModule(model, loss_reduction="sum")
    F.cross_entropy(theirs(x), labels, reduction="sum").backward()
    rows = {
        key.removeprefix("_module."): value.grad_sample for key, value in theirs.named_parameters()
    }
    close(found.gradients, clipped_sum(rows, 0.3))


def test_gradients_per_record_in_one_call_read_only_the_shape_of_the_weights(monkeypatch):
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 8, 3, padding=1)
    x, labels = torch.randn(6, 3, 8, 8), torch.arange(6) % 4
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(8 * 8 * 8, 4))
    expected = NetworkGradients(model).clipped_sum(x, labels, 0.1)
    asked = []

    def nothing_but_a_shape(tensor, *size):
        asked.append(size)
        return torch.full(size, torch.nan)

    monkeypatch.setattr(torch.Tensor, "new_empty", nothing_but_a_shape)
    found = NetworkGradients(model).clipped_sum(x, labels, 0.1)
    assert all(
        torch.equal(found.gradients[name], value) for name, value in expected.gradients.items()
    )
    assert asked == [(6 * 8, 3, 3, 3)]
