import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import jacrev, vmap

from dpatlas.formulas.kl_privacy.theorems import INITS, layer_variances
from dpatlas.models.mlp import (
    initial_weights,
    layer_shapes,
    output_gradient_norms,
    output_jacobian_gram,
)

INPUTS, WIDTH, RECORDS = 13, 17, 9
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def _weights(init="he", depth=3, outputs=1, run=0, base_seed=1, d=INPUTS, width=WIDTH, key="test"):
    return initial_weights(init, d, width, depth, outputs, key=key, run=run, base_seed=base_seed)


def _double(weights):
    return [torch.from_numpy(weight).double() for weight in weights]


def _jacobians(weights, x):
    """(records, outputs, parameters) by torch.func."""

    def output(parameters, record):
        for weight in parameters[:-1]:
            record = torch.relu(weight @ record)
        return parameters[-1] @ record

    layers = vmap(jacrev(output), (None, 0))(weights, x)
    return torch.cat([layer.flatten(2) for layer in layers], 2)


@pytest.fixture
def x():
    return torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (RECORDS, INPUTS)))


@pytest.mark.parametrize("outputs", [1, 10])
@pytest.mark.parametrize("depth", [2, 3, 6])
@pytest.mark.parametrize("init", INITS)
def test_output_gradient_norms_are_those_of_the_jacobian(init, depth, outputs, x):
    weights = _double(_weights(init, depth, outputs))
    literal = _jacobians(weights, x).square().sum((1, 2))
    torch.testing.assert_close(output_gradient_norms(weights, x), literal, **EXACT)


@pytest.mark.parametrize("depth", [2, 3, 6])
@pytest.mark.parametrize("init", INITS)
def test_the_ntk_matrix_is_the_gram_matrix_of_the_jacobian(init, depth, x):
    weights = _double(_weights(init, depth))
    jacobian = _jacobians(weights, x)[:, 0]
    output, gram = output_jacobian_gram(weights, x)
    torch.testing.assert_close(gram, jacobian @ jacobian.T, **EXACT)
    # f is homogeneous of degree 1 in each of its L weight matrices: <W, df/dW> = L f.
    parameters = torch.cat([weight.flatten() for weight in weights])
    torch.testing.assert_close(jacobian @ parameters, depth * output, **EXACT)


@pytest.mark.parametrize("init", INITS)
def test_initial_weights_are_gaussian_with_the_variances_of_table_1(init):
    d, width, depth, outputs = 80, 120, 4, 60
    weights = _weights(init, depth, outputs, d=d, width=width)
    variances = layer_variances(init, d, width, depth, outputs)
    assert [weight.shape for weight in weights] == layer_shapes(d, width, depth, outputs)
    for weight, variance in zip(weights, variances, strict=True):
        assert weight.dtype == np.float32
        values = weight.astype(np.float64).ravel()
        chi2 = (values**2).sum() / variance
        assert 1e-4 < stats.chi2.cdf(chi2, values.size) < 1 - 1e-4
        assert stats.kstest(values, "norm", args=(0, variance**0.5)).pvalue > 1e-4


def test_initialisations_share_their_normals_and_depths_their_layers():
    outputs, depth = 3, 4
    scaled = []
    for init in INITS:
        scales = np.sqrt(layer_variances(init, INPUTS, WIDTH, depth, outputs))
        weights = zip(_weights(init, depth, outputs), scales, strict=True)
        scaled.append(np.concatenate([(weight / scale).ravel() for weight, scale in weights]))
    for other in scaled[1:]:
        np.testing.assert_allclose(other, scaled[0], rtol=1e-5)
    # And depths their common layers.
    shallow, deep = _weights(depth=3), _weights(depth=6)
    for ours, theirs in zip(shallow[:-1], deep, strict=False):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("change", [{"run": 1}, {"base_seed": 2}, {"key": "other"}])
def test_other_runs_seeds_and_papers_draw_other_weights(change):
    for ours, theirs in zip(_weights(), _weights(**change), strict=True):
        assert not np.isclose(ours, theirs).any()
