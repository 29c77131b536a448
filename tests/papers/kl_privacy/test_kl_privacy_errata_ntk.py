"""The errata of kl_privacy on networks at initialisation: Eq. 65, Lemma D.1, hence R of Eq. 9.

Beside them Table 1's B, which stands. Seeded draws that take a second; nothing is trained.
"""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.datasets import load_digits

from dpatlas.formulas.kl_privacy import theorems

DEPTHS = (2, 4, 8)
SIZES = dict(n=16, d=128, m=512)


def draw_weights(rng, init, d, m, L, o, draws):
    """Weight matrices of `draws` independent networks, each of shape (draws, m_l, m_{l-1})."""
    sizes = [d, *[m] * (L - 1), o]
    return [
        math.sqrt(variance) * rng.standard_normal((draws, out, into))
        for variance, into, out in zip(
            theorems.layer_variances(init, d, m, L, o), sizes, sizes[1:], strict=False
        )
    ]


def layer_parts(weights, x):
    """Inputs of every layer (draws, records, m_{l-1}), output, and output gradients per layer.

    The gradients have shape (draws, records, o, m_l): of every output with respect to the
    pre-activations of layer l.
    """
    inputs = [np.broadcast_to(x, (len(weights[0]), *x.shape))]
    for weight in weights[:-1]:
        inputs.append(np.maximum(inputs[-1] @ weight.swapaxes(1, 2), 0))
    output = inputs[-1] @ weights[-1].swapaxes(1, 2)
    o = output.shape[2]
    deltas = [np.broadcast_to(np.eye(o), (*output.shape[:2], o, o))]
    for weight, layer_input in zip(weights[:0:-1], inputs[:0:-1], strict=True):
        deltas.insert(0, (deltas[0] @ weight[:, None]) * (layer_input > 0)[:, :, None])
    return inputs, output, deltas


def squared_gradients(init, key, size, d=12, m=16, L=3, o=2):
    """Sums over the layers of 4000 networks, given ones, of the input's square times `size`.

    Of the output gradients, as (networks, columns); the largest column counts. With it comes B.
    """
    rng = np.random.default_rng([*key, theorems.INITS.index(init)])
    inputs, _, deltas = layer_parts(draw_weights(rng, init, d, m, L, o, 4000), np.ones((1, d)))
    squares = sum(
        (a**2).sum(axis=2) * size(delta) for a, delta in zip(inputs, deltas, strict=True)
    ).max(axis=1)
    error = squares.std() / math.sqrt(len(squares))
    return squares.mean(), error, theorems.gradient_norm_constant(init, d, m, L, o)


@pytest.mark.parametrize("init", theorems.INITS)
@pytest.mark.parametrize("L", [2, 5])
def test_gradient_norm_constant_is_the_mean_squared_gradient_norm(init, L):
    mean, error, expected = squared_gradients(
        init, [L], lambda delta: (delta**2).sum(axis=(2, 3)), L=L, o=3
    )
    assert error < 0.05 * expected
    assert abs(mean - expected) < 4 * error


@pytest.mark.parametrize("init", theorems.INITS)
def test_difference_of_two_output_gradients_has_mean_square_b(init):
    """So |J^T (p - y)|^2, which is p_wrong^2 times it, has mean at most B for two outputs."""
    mean, error, expected = squared_gradients(
        init, [7], lambda delta: ((delta[:, :, 0] - delta[:, :, 1]) ** 2).sum(axis=2)
    )
    assert error < 0.05 * expected
    assert abs(mean - expected) < 4 * error


def largest_gap(o):
    """M_o: the mean of the largest (g_j - g_0)^2, j = 1 .. o - 1, for standard normal g."""
    g, weights = np.polynomial.hermite_e.hermegauss(100)

    def above(square):
        size = math.sqrt(square)
        within = (norm.cdf(g + size) - norm.cdf(g - size)) ** (o - 1)
        return 1 - weights @ within / weights.sum()

    return quad(above, 0, 150, limit=500)[0]


def test_largest_of_several_normal_gaps_is_below_the_number_of_outputs_but_for_three():
    """Given g_0 the gaps are independent, so M_o is concave in o: from 4 on it stays below o."""
    sizes = np.array([largest_gap(o) for o in range(2, 13)])
    assert sizes[:3] == pytest.approx([2, 3.1027, 3.8592], abs=1e-4)
    assert sizes[1] < 3 * 1.035
    assert np.all(sizes[2:] < np.arange(4, 13))
    rises = np.diff(sizes)
    assert np.all(np.diff(rises) < 0) and rises[2] < 1


@pytest.mark.parametrize("o", [4, 10])
@pytest.mark.parametrize("init", theorems.INITS)
def test_farthest_output_gradient_has_mean_square_below_b(init, o):
    """It bounds |J^T (p - y)|^2 for any p, a mean of such differences; y is the first output."""

    def size(delta):
        return ((delta[:, 0, 1:] - delta[:, 0, :1]) ** 2).sum(axis=2)

    mean, error, B = squared_gradients(init, [9, o], size, d=6, m=4, o=o)
    assert mean + 4 * error < B


def test_the_norm_of_the_output_does_not_scale_as_lemma_d_1_prints_it():
    """Weights of variance 4 beta_L in the last layer double the output; its square is 4 times."""
    rng = np.random.default_rng(52)
    *below, last = draw_weights(rng, "he", 12, 16, 3, 1, 50)
    x = np.ones((1, 12))
    output, doubled = (layer_parts([*below, w], x)[1] for w in (last, 2 * last))
    assert np.abs(doubled).mean() == pytest.approx(2 * np.abs(output).mean())
    assert (doubled**2).mean() == pytest.approx(4 * (output**2).mean())


def interpolation(init, L, *, n, d, m, draws=6):
    """Mean over networks of R, lambda_min and trace / n of the NTK matrix, and of f^2.

    Random labels and inputs on the sphere ||x||^2 = d.
    """
    rows = []
    for draw in range(draws):
        rng = np.random.default_rng([L, draw])
        x = rng.standard_normal((n, d))
        x *= math.sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)
        y = rng.choice([-1.0, 1.0], n)
        rows.append(interpolate(draw_weights(rng, init, d, m, L, 1, 1), x, y))
    return np.mean(rows, axis=0)


def interpolate(weights, x, y):
    """R, lambda_min and trace / n of the NTK matrix, and the mean of f^2, of one network.

    R = (2 ln n y - f)^T K^-1 (2 ln n y - f), the squared distance of Eq. 62.
    """
    n = len(x)
    inputs, output, deltas = layer_parts(weights, x)
    kernel = sum(
        (a[0] @ a[0].T) * (delta[0, :, 0] @ delta[0, :, 0].T)
        for a, delta in zip(inputs, deltas, strict=True)
    )
    target = 2 * math.log(n) * y - output[0, :, 0]
    return (
        target @ np.linalg.solve(kernel, target),
        np.linalg.eigvalsh(kernel)[0],
        np.trace(kernel) / n,
        np.mean(output**2),
    )


@pytest.fixture(scope="module")
def measured():
    """`interpolation` for every init and depth."""
    return {(init, L): interpolation(init, L, **SIZES) for init in theorems.INITS for L in DEPTHS}


@pytest.mark.parametrize("init", theorems.INITS)
def test_smallest_ntk_eigenvalue_is_below_eq_65_by_a_power_of_the_depth(measured, init):
    """lambda_min <= trace / n, whose mean is B; Eq. 65 puts it at 2^(L-1) B."""
    for L in DEPTHS:
        B = theorems.gradient_norm_constant(init, SIZES["d"], SIZES["m"], L, 1)
        _, smallest, mean_diagonal, _ = measured[init, L]
        assert mean_diagonal == pytest.approx(B, rel=0.15)
        assert 0.25 * B < smallest <= mean_diagonal
        variances = theorems.layer_variances(init, SIZES["d"], SIZES["m"], L, 1)
        eq_65 = SIZES["d"] * SIZES["m"] ** (L - 1) * variances.prod() * (1 / variances).sum()
        assert eq_65 == pytest.approx(2 ** (L - 1) * B)


@pytest.mark.parametrize("init", theorems.INITS)
def test_output_at_initialisation_lacks_the_printed_powers_of_two(measured, init):
    """Eq. 68 has d beta_L prod beta_i m_i, without the halves that the ReLU takes."""
    for L in DEPTHS:
        variances = theorems.layer_variances(init, SIZES["d"], SIZES["m"], L, 1)
        eq_68 = SIZES["d"] * SIZES["m"] ** (L - 1) * variances.prod()
        assert 0.3 < measured[init, L][3] / (eq_68 / 2 ** (L - 1)) < 3


def depth_trend(measured, init, distance):
    """How the measured R over the formula's changes from the least depth to the greatest."""
    d, m, n = SIZES["d"], SIZES["m"], SIZES["n"]
    ratios = [measured[init, L][0] / distance(init, d, m, L, n) for L in (DEPTHS[0], DEPTHS[-1])]
    return ratios[1] / ratios[0]


@pytest.mark.parametrize("init", theorems.INITS)
def test_corrected_lazy_distance_follows_the_measured_one_over_depth(measured, init):
    assert 0.25 < depth_trend(measured, init, theorems.lazy_distance_corrected) < 4


@pytest.mark.parametrize("init", ["he", "ntk"])
def test_two_errors_cancel_in_the_printed_lazy_distance(measured, init):
    """Eq. 65 and Eq. 68 are too large by the same power of 2, and R is their ratio here."""
    assert 0.25 < depth_trend(measured, init, theorems.lazy_distance) < 4


@pytest.mark.parametrize("init", ["lecun", "xavier"])
def test_printed_lazy_distance_misses_a_power_of_the_depth(measured, init):
    """2^6 = 64 from depth 2 to 8."""
    assert depth_trend(measured, init, theorems.lazy_distance) > 30


@pytest.mark.parametrize("init", ["lecun", "xavier"])
def test_trade_off_does_not_improve_with_depth(measured, init):
    """B R / n decides the excess risk under a KL budget (Cor. 6.4); as printed it falls 2^-L."""
    d, m, n = SIZES["d"], SIZES["m"], SIZES["n"]

    def products(distance):
        return [theorems.gradient_norm_constant(init, d, m, L, 1) * distance(L) / n for L in DEPTHS]

    observed = products(lambda L: measured[init, L][0])
    printed = products(lambda L: theorems.lazy_distance(init, d, m, L, n))
    assert observed[-1] > 0.7 * observed[0]
    assert printed[-1] < 2.0 ** -(DEPTHS[-1] - DEPTHS[0] - 2) * printed[0]


@pytest.fixture(scope="module")
def digits():
    """Digits 3 and 8 with ||x||^2 = d = 64, and labels -1, 1."""
    pixels, labels = load_digits(return_X_y=True)
    kept = np.isin(labels, (3, 8))
    x = 8 * pixels[kept] / np.linalg.norm(pixels[kept], axis=1, keepdims=True)
    return x, np.where(labels[kept] == 3, -1.0, 1.0)


@pytest.mark.parametrize("init", theorems.INITS)
def test_on_digits_the_trade_off_improves_alike_for_all_inits(digits, init):
    """By 2 to 4 from depth 2 to 8; printed are 64 for LeCun and Xavier, 1 for He and NTK."""
    x, y = digits
    n, d, m = 64, 64, 256
    products = []
    for L in (2, 8):
        rng = np.random.default_rng([L, 8])
        distances = []
        for _ in range(4):
            dealt = rng.permutation(len(x))[:n]
            weights = draw_weights(rng, init, d, m, L, 1, 1)
            distances.append(interpolate(weights, x[dealt], y[dealt])[0])
        products.append(theorems.gradient_norm_constant(init, d, m, L, 1) * np.mean(distances) / n)
    assert 1.5 < products[0] / products[1] < 5
    printed = [
        theorems.gradient_norm_constant(init, d, m, L, 1) * theorems.lazy_distance(init, d, m, L, n)
        for L in (2, 8)
    ]
    improves = 64 if init in ("lecun", "xavier") else 1
    assert printed[0] / printed[1] == pytest.approx(improves)
