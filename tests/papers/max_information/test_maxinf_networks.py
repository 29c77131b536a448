"""Mean-field networks: sizes, initial means, KL, and that all ways of drawing outputs agree."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp, truncnorm
from torch import nn
from torch.distributions import Normal, kl_divergence

from dpatlas.errors import InputError
from dpatlas.models import mean_field
from dpatlas.models.mean_field_passes import (
    FullyConnected,
    convolve,
    noise_sizes,
    outputs,
    sampled_outputs,
)
from dpatlas.models.network import mlp

KEYS = {"key": "max_information", "run": 0, "base_seed": 0}


@pytest.fixture
def draws():
    return torch.Generator().manual_seed(3)


def law_of(network, deviation):
    return mean_field.MeanField.around(network, mean_field.flat_values(network), deviation)


@pytest.fixture
def small():
    """5-4-3 with deviations that differ from weight to weight."""
    network = mean_field.initial_network("mlp", (5, 1, 1), 3, widths=[4], **KEYS)
    posterior = law_of(network, 0.3)
    generator = torch.Generator().manual_seed(1)
    posterior.mean.add_(torch.randn(len(posterior.mean), generator=generator))
    posterior.rho.add_(torch.randn(len(posterior.rho), generator=generator))
    return posterior


def close(found, expected):
    """torch.testing takes seconds to load."""
    found, expected = (value.detach().numpy() for value in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def parameters(network):
    return sum(value.numel() for value in network.parameters())


def test_the_papers_networks_have_as_many_parameters_as_it_says():
    assert parameters(mlp((1, 28, 28), 10, widths=[600, 600, 600])) == 1_198_210
    assert parameters(mean_field.nine_layer_cnn((3, 32, 32), 10)) == 5_851_338


def test_initial_means_are_truncated_normals_of_the_fan_in_and_biases_zero():
    network = mean_field.initial_network("mlp", (1, 20, 20), 10, widths=[100], **KEYS)
    convolution = mean_field.initial_network("bayes-cnn9", (1, 8, 8), 3, **KEYS).conv3
    for layer in (network.linear1, network.head, convolution):
        scaled = layer.weight.detach().double().numpy() * math.sqrt(layer.weight[0].numel())
        assert np.abs(scaled).max() <= 2.000001 and np.abs(scaled).max() > 1.8
        assert scaled.std() == pytest.approx(truncnorm(-2, 2).std(), rel=0.05)
        assert not layer.bias.any()


def test_kl_is_that_of_torch_distributions(small):
    centre = small.mean - torch.linspace(-1, 1, len(small.mean))
    scale, tau = small.deviation.double(), torch.tensor(0.25, dtype=torch.float64)
    ours, prior = Normal(small.mean.double(), scale), Normal(centre.double(), tau)
    assert small.kl(centre, 0.25) == pytest.approx(kl_divergence(ours, prior).sum().item(), 1e-12)
    for deviation in (1e-4, 0.07, 40.0):
        law = mean_field.MeanField.around(small.network, small.mean, deviation)
        assert 0 <= law.kl(small.mean, deviation) < 1e-9


def test_kl_is_infinite_where_training_has_left_the_numbers(small):
    for name, value in (("mean", math.nan), ("mean", math.inf), ("rho", math.nan)):
        broken = mean_field.MeanField(small.network, small.mean.clone(), small.rho.clone())
        getattr(broken, name)[0] = value
        assert broken.kl(small.mean, 0.1) == math.inf
    # A deviation that underflowed.
    small.rho[0] = -200.0
    assert small.kl(small.mean, 0.1) == math.inf


def test_passes_of_many_rows_of_a_record_are_those_of_its_copies(small, draws):
    x, repeats = torch.randn(3, 5, generator=draws), torch.tensor([2, 1, 3])
    noise = [torch.randn(6, width, generator=draws) for width in (4, 3)]
    named = (small.named(small.mean), small.named(small.deviation))
    expected = outputs(small.network, *named, x.repeat_interleave(repeats, 0), noise)
    close(FullyConnected(small).outputs(x, repeats, [part.clone() for part in noise]), expected)


def rows_of(posterior, x, rows, method, generator):
    """Outputs of record x (inputs,) under weights of their own, (rows, outputs)."""
    repeated = x.expand(rows, -1)
    if method == "weights":
        noise = torch.randn(rows, len(posterior.mean), generator=generator)
        return sampled_outputs(posterior, posterior.mean + posterior.deviation * noise, repeated)
    sizes = noise_sizes(posterior.network, rows, rows)
    noise = [torch.randn(size, generator=generator) for size in sizes]
    if method == "layers":
        named = (posterior.named(posterior.mean), posterior.named(posterior.deviation))
        return outputs(posterior.network, *named, repeated, noise)
    return FullyConnected(posterior).outputs(x[None], torch.tensor([rows]), noise)


@pytest.mark.parametrize("method", ["layers", "fast"])
def test_local_reparametrisation_draws_outputs_of_the_law_of_sampled_weights(small, draws, method):
    x, rows = torch.randn(5, generator=draws), 20_000
    drawn = rows_of(small, x, rows, method, draws).double().numpy()
    sampled = rows_of(small, x, rows, "weights", draws).double().numpy()
    # Marginals, and differences of outputs, which their dependence decides.
    drawn_and_sampled = (np.hstack([rows, np.diff(rows)]).T for rows in (drawn, sampled))
    for ours, theirs in zip(*drawn_and_sampled, strict=True):
        assert ks_2samp(ours, theirs).pvalue > 1e-3
    # The test can tell: a last layer of less variance is another law.
    small.rho[-15:] -= 2.0
    other = rows_of(small, x, rows, method, draws).double().numpy()
    assert min(ks_2samp(*pair).pvalue for pair in zip(other.T, sampled.T, strict=True)) < 1e-6


@pytest.mark.parametrize("name", ["mlp", "bayes-cnn9"])
def test_without_deviation_every_way_is_the_plain_network(name, draws):
    options = {"widths": [6]} if name == "mlp" else {}
    network = mean_field.initial_network(name, (1, 8, 8), 3, **options, **KEYS)
    law = law_of(network, 1e-9)
    x = torch.randn(2, 64, generator=draws)
    with torch.no_grad():
        expected = network(x)
        named = (law.named(law.mean), law.named(law.deviation))
        for shared in (1, 2):
            noise = [torch.randn(size, generator=draws) for size in noise_sizes(network, 2, shared)]
            found = outputs(network, *named, x, noise)
            close(found, expected)
        found = sampled_outputs(law, law.mean.expand(2, -1), x)
    close(found, expected)


def test_every_row_is_convolved_with_its_own_weights(draws):
    shapes = ((3, 2, 6, 6), (3, 4, 2, 3, 3), (3, 4))
    parts = [torch.randn(shape, generator=draws) for shape in shapes]
    for row, found in enumerate(convolve(*parts)):
        x, weights, offsets = (part[row] for part in parts)
        close(found[None], nn.functional.conv2d(x[None], weights, offsets, padding=1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mean_field.initial_network("vgg", (1, 8, 8), 3, **KEYS), "one of mlp, bayes-cnn9"),
        (lambda: mean_field.nine_layer_cnn((3, 28, 28)), "28 x 28; allowed: multiples of 8"),
        # Convolutions are not reparametrised.
        (lambda: FullyConnected(law_of(mean_field.nine_layer_cnn((1, 8, 8), 3), 0.1)), "Unflatten"),
    ],
)
def test_networks_that_do_not_fit_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
