"""The closed form of softmax regression against a per-record loop."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_gradients import (
    clipped_sum,
    distance,
    norms,
    per_record_gradients,
    records,
    seeded,
)
from torch import nn

from dpatlas.errors import InputError
from dpatlas.models.build import build
from dpatlas.privacy.logistic import SoftmaxGradients
from dpatlas.privacy.per_record import NetworkGradients, cross_entropy
from dpatlas.privacy.training import kernel_for


@pytest.mark.parametrize(
    ("bias", "frozen"), [(True, ()), (True, ("weight",)), (True, ("bias",)), (False, ())]
)
def test_the_closed_form_equals_a_per_record_loop(bias, frozen):
    model = seeded(nn.Linear, 7, 5, bias)
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    x, labels = records((7,))
    expected = per_record_gradients(model, x, labels)
    found = SoftmaxGradients(model).clipped_sum(x, labels, 0.7)
    assert set(found.gradients) == set(expected)
    for name, value in clipped_sum(expected, 0.7).items():
        torch.testing.assert_close(found.gradients[name], value, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.norms, norms(expected), rtol=1e-10, atol=0)


def test_norms_of_records_may_be_kept():
    model, (x, labels) = seeded(nn.Linear, 7, 5), records((7,))
    kernel = SoftmaxGradients(model)
    kept = kernel.clipped_sum(x, labels, 0.7, kernel.constants(x))
    fresh = kernel.clipped_sum(x, labels, 0.7)
    torch.testing.assert_close(kept.gradients, fresh.gradients)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_a_poisoned_record_contributes_zero(value):
    model, (x, labels) = seeded(nn.Linear, 7, 5), records((7,))
    kernel = SoftmaxGradients(model)
    poisoned = x.clone()
    poisoned[2] = value
    found = kernel.clipped_sum(poisoned, labels, 0.7)
    others = torch.arange(len(x)) != 2
    expected = kernel.clipped_sum(x[others], labels[others], 0.7)
    torch.testing.assert_close(found.gradients, expected.gradients)
    assert found.skipped == 1


@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(1, 10),
    max_grad_norm=st.floats(1e-6, 1e6),
    scale=st.floats(1e-10, 1e10),
    base=st.integers(0, 2**32 - 1),
)
def test_one_record_never_moves_the_closed_form_by_more_than_the_bound(
    rows, max_grad_norm, scale, base
):
    model = seeded(nn.Linear, 7, 5, dtype=torch.float32)
    draws = torch.Generator().manual_seed(base)
    x = scale * torch.randn(rows, 7, generator=draws)
    labels = torch.randint(0, 5, (rows,), generator=draws)
    kernel = SoftmaxGradients(model)
    whole = kernel.clipped_sum(x, labels, max_grad_norm).gradients
    rest = kernel.clipped_sum(x[1:], labels[1:], max_grad_norm).gradients
    assert distance(whole, rest) <= max_grad_norm * (1 + 1e-5 * rows)


def test_the_closed_form_is_taken_for_one_linear_layer_and_for_nothing_else():
    linear = build("linear", (1, 8, 8), 5, key="test", run=0, base_seed=0)
    assert isinstance(kernel_for(linear, cross_entropy), SoftmaxGradients)
    assert isinstance(kernel_for(nn.Linear(3, 2), cross_entropy), SoftmaxGradients)
    for model, loss, views in [
        (build("mlp", (1, 8, 8), 5, key="test", run=0, base_seed=0), cross_entropy, 1),
        (nn.Sequential(nn.ReLU(), nn.Linear(3, 2)), cross_entropy, 1),
        (linear, lambda output, labels: cross_entropy(output, labels), 1),
        (linear, cross_entropy, 2),
    ]:
        assert isinstance(kernel_for(model, loss, views), NetworkGradients)


def test_the_closed_form_names_parameters_as_the_model_does():
    model = build("linear", (1, 8, 8), 5, key="test", run=0, base_seed=0)
    x, labels = records((64,), dtype=torch.float32)
    kernel = kernel_for(model, cross_entropy)
    assert list(kernel.clipped_sum(x, labels, 1.0).gradients) == ["head.weight", "head.bias"]
    assert list(kernel.empty().gradients) == ["head.weight", "head.bias"]


@pytest.mark.parametrize("bound", [0, -1.0, float("inf")])
def test_the_closed_form_refuses_a_bad_clip_bound(bound):
    with pytest.raises(InputError, match="max_grad_norm"):
        SoftmaxGradients(nn.Linear(7, 5)).clipped_sum(*records((7,)), bound)
