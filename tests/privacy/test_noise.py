"""The noise that is added: its law, its scale, its keys."""

import numpy as np
import pytest
import torch
from scipy import stats

from dpatlas.core.seeds import Noise
from dpatlas.privacy.noise import BLOCK, LARGE, add_noise

SIZES = {"small": LARGE - 1, "large": 2 * BLOCK + LARGE + 1}


def draw(*sizes: int, scale: float = 1.0, repetition: int = 0, step: int = 0) -> list[np.ndarray]:
    tensors = [torch.zeros(size) for size in sizes]
    add_noise(tensors, scale, Noise("digest", "keyed"), repetition=repetition, step=step)
    return [tensor.numpy().astype(np.float64) for tensor in tensors]


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("scale", [1.0, 0.03])
def test_noise_is_normal_with_the_given_scale(size, scale):
    shapes, energies = [], []
    for step in range(40):
        (found,) = draw(size, scale=scale, step=step)
        shapes.append(stats.kstest(found / scale, "norm").pvalue)
        energies.append(stats.chi2.cdf((found / scale) @ (found / scale), size))
    # Over many keys the p-values of a right law are uniform.
    for values in (shapes, energies):
        assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_the_tails_of_large_draws_are_those_of_a_normal():
    found = np.abs(draw(20_000_000)[0])
    for threshold in (3, 4, 5):
        expected = 2 * stats.norm.sf(threshold) * len(found)
        assert abs((found > threshold).sum() - expected) < 4 * np.sqrt(expected)
    assert found.max() < 6.67  # sqrt(-2 log 2^-32): 32 bits reach no further


def test_halves_of_a_block_are_independent():
    (found,) = draw(2 * BLOCK)
    cosines, sines = found[:BLOCK], found[BLOCK:]
    for power in (1, 2):
        r = np.corrcoef(cosines**power, sines**power)[0, 1]
        assert abs(r) < 4 / np.sqrt(BLOCK)
    assert stats.kstest(found[1::2], "norm").pvalue > 1e-3


def test_noise_is_added_to_what_is_there():
    tensors = [torch.arange(5.0), torch.full((LARGE + 3,), 2.0)]
    add_noise(tensors, 0.0, Noise("digest", "keyed"), repetition=0, step=0)
    torch.testing.assert_close(tensors[0], torch.arange(5.0))
    torch.testing.assert_close(tensors[1], torch.full((LARGE + 3,), 2.0))


def test_equal_keys_give_equal_noise_and_others_give_other_noise():
    first = np.concatenate(draw(100, LARGE + 7))
    np.testing.assert_array_equal(first, np.concatenate(draw(100, LARGE + 7)))
    for other in (draw(100, LARGE + 7, step=1), draw(100, LARGE + 7, repetition=1)):
        assert abs(np.corrcoef(first, np.concatenate(other))[0, 1]) < 4 / np.sqrt(len(first))


def test_no_tensor_shares_noise_with_another_of_the_same_step():
    one, two = draw(LARGE, LARGE)
    assert not np.isin(one[:1000], two[:1000]).any()
    assert abs(np.corrcoef(one, two)[0, 1]) < 4 / np.sqrt(LARGE)
