"""Fully connected ReLU networks without biases, as lists of weight matrices.

`weights[l]` has shape (m_l, m_{l-1}), m_0 = d inputs, m_L = o outputs; layers are counted from 1 in
the papers and from 0 here. The passes are written out because the KL kernel needs every layer's
input and output gradient at once.
"""

import itertools

import numpy as np
import torch
from torch import Tensor

from dpatlas.base.seeds import generator, seed
from dpatlas.formulas.kl_privacy.theorems import layer_variances
from dpatlas.models.products import times, times_transpose


def layer_shapes(d: int, width: int, depth: int, outputs: int) -> list[tuple[int, int]]:
    """(fan out, fan in) of each of the `depth` weight matrices."""
    sizes = [d, *[width] * (depth - 1), outputs]
    return [(out, into) for into, out in itertools.pairwise(sizes)]


def initial_weights(
    init: str, d: int, width: int, depth: int, outputs: int, *, key: str, run: int, base_seed: int
) -> list[np.ndarray]:
    """Gaussian weights with the per-layer variances beta_l of `init`, float32.

    The standard normals behind them depend on (run, layer) only: networks of the same run share
    them across initialisations and depths (common random numbers), scaled by sqrt(beta_l).
    """
    variances = layer_variances(init, d, width, depth, outputs)
    weights = []
    for layer, (shape, variance) in enumerate(
        zip(layer_shapes(d, width, depth, outputs), variances, strict=True)
    ):
        draws = generator(seed(key, use="init", base=base_seed, run=run, layer=layer))
        normals = draws.standard_normal(shape, dtype=np.float32)
        weights.append(normals * np.float32(np.sqrt(variance)))
    return weights


def layer_inputs(weights: list[Tensor], x: Tensor) -> tuple[list[Tensor], Tensor]:
    """Inputs a_{l-1} of every layer, each (records, m_{l-1}), and the network's output."""
    inputs = [x]
    for weight in weights[:-1]:
        inputs.append(times_transpose(inputs[-1], weight).clamp_min_(0))
    return inputs, times_transpose(inputs[-1], weights[-1])


def backward_through(delta: Tensor, weight: Tensor, layer_input: Tensor) -> Tensor:
    """Gradient with respect to the pre-activation below: (delta W) where the ReLU was open."""
    below = times(delta, weight)
    return torch.ops.aten.threshold_backward.grad_input(below, layer_input, 0, grad_input=below)


def output_jacobian_gram(weights: list[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Output f (records,) and NTK matrix K_ij = <grad f(x_i), grad f(x_j)> of a one-output net.

    K = sum_l (A_{l-1} A_{l-1}^T) * (D_l D_l^T), D_l the output's gradient at layer l.
    """
    inputs, output = layer_inputs(weights, x)
    delta = torch.ones_like(output)
    gram = torch.zeros(len(x), len(x), dtype=x.dtype, device=x.device)
    for layer in reversed(range(len(weights))):
        gram += (inputs[layer] @ inputs[layer].T) * (delta @ delta.T)
        if layer:
            delta = backward_through(delta, weights[layer], inputs[layer])
    return output[:, 0], gram


def output_gradient_norms(weights: list[Tensor], x: Tensor) -> Tensor:
    """||grad f(x_i)||_F^2 summed over parameters and outputs, shape (records,).

    One backward pass per output, sharing the forward pass.
    """
    inputs, output = layer_inputs(weights, x)
    sizes = [layer_input.square().sum(1) for layer_input in inputs]
    total = torch.zeros(len(x), dtype=x.dtype, device=x.device)
    for index in range(output.shape[1]):
        delta = torch.zeros_like(output)
        delta[:, index] = 1
        for layer in reversed(range(len(weights))):
            total += sizes[layer] * delta.square().sum(1)
            if layer:
                delta = backward_through(delta, weights[layer], inputs[layer])
    return total
