"""The noise that is added: its law, its tails, its scale, its keys."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from dpatlas.base.seeds import Noise
from dpatlas.privacy.noise import (
    BLOCK,
    LARGE,
    SMALL,
    _add_box_muller,
    add_noise,
    device_generator,
    device_normals,
)

SIZES = {"small": LARGE - 1, "large": 2 * BLOCK + LARGE + 1}
each_size = pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)


def draw(
    *sizes: int, scale: float = 1.0, repetition: int = 0, step: int = 0, dtype=torch.float32
) -> list[np.ndarray]:
    tensors = {str(i): torch.zeros(size, dtype=dtype) for i, size in enumerate(sizes)}
    add_noise(tensors, scale, Noise("digest", "keyed"), repetition=repetition, step=step)
    return [tensor.numpy().astype(np.float64) for tensor in tensors.values()]


@each_size
def test_noise_is_normal_with_the_given_scale(size):
    shapes, energies = [], []
    for step in range(40):
        normals = draw(size, scale=0.03, step=step)[0] / 0.03
        shapes.append(stats.kstest(normals, "norm").pvalue)
        energies.append(stats.chi2.cdf(normals @ normals, size))
    # Over many keys the p-values of a right law are uniform.
    for values in (shapes, energies):
        assert stats.kstest(values, "uniform").pvalue > 1e-3


@each_size
def test_a_chi_squared_test_finds_no_cell_with_too_many_or_too_few_draws(size):
    edges = np.concatenate([[-np.inf], np.linspace(-4, 4, 161), [np.inf]])
    counts = np.zeros(len(edges) - 1)
    while counts.sum() < 3_000_000:
        (found,) = draw(size, step=int(counts.sum()))
        counts += np.histogram(found, edges)[0]
    expected = np.diff(stats.norm.cdf(edges)) * counts.sum()
    assert expected.min() > 5
    assert stats.chisquare(counts, expected).pvalue > 1e-3


class Chosen:
    """Bits that a test chose, as a Philox would give them: words of 64, in order."""

    def __init__(self, *words):
        self.words = [int(word) for word in words]

    def random_raw(self, count):
        taken, self.words = self.words[:count], self.words[count:]
        return np.array(taken, dtype=np.uint64)


def pair(radius_word: int, more: int | None = None, angle_word: int = 0) -> np.ndarray:
    """r cos t and r sin t of these words; the angle's word 0 is t = 0 but for half a unit."""
    found = np.zeros(2)
    words = [radius_word << 12, angle_word] + ([] if more is None else [more])
    bits = Chosen(*words)
    _add_box_muller(found, 1.0, bits)
    assert not bits.words
    return found


@pytest.mark.parametrize(
    ("word", "more", "u"),
    [
        (2**51, None, 0.5 + 2.0**-53),
        (SMALL, None, (SMALL + 0.5) * 2.0**-52),
        (SMALL - 1, 2**63, (SMALL - 0.5) * 2.0**-52),
        (3, 0, 3 * 2.0**-52),
        (0, 2**63, 2.0**-53),
        (0, 2**40, 2.0**-76),
        (0, 0, 2.0**-117),
    ],
)
def test_a_radius_has_the_probability_of_its_words(word, more, u):
    found = np.hypot(*pair(word, more))
    # P(r > found) of a pair of normals.
    assert math.exp(-(found**2) / 2) == pytest.approx(u, rel=1e-9, abs=0)


def test_tails_reach_beyond_eight_sigma_in_both_waves_with_either_sign():
    # 8.6 sigma and beyond: radius words of 0, and the words that follow say how far.
    reached = [pair(0, more)[0] for more in (2**64 - 1, 2**60, 2**40, 2**20, 0)]
    assert reached == sorted(reached)
    assert reached[0] == pytest.approx(math.sqrt(2 * 52 * math.log(2)), rel=1e-9)
    far = math.sqrt(2 * 117 * math.log(2))
    ends = [pair(0, 0, angle) for angle in (0, 2**62, 2**63, 2**64 - 2**62)]
    np.testing.assert_allclose(ends, [[far, 0], [0, far], [-far, 0], [0, -far]], atol=1e-14)


def test_no_draw_is_exactly_zero():
    for angle in (0, 2**62, 2**62 - 1, 2**63, 2**63 - 1, 2**64 - 2**62, 2**64 - 1):
        for word, more in ((2**52 - 1, None), (2**51, None), (0, 0)):
            assert np.all(pair(word, more, angle) != 0)


def test_the_tails_of_large_draws_are_those_of_a_normal():
    found = np.abs(draw(20_000_000)[0])
    assert found.min() > 0
    for threshold in (3, 4, 5):
        expected = 2 * stats.norm.sf(threshold) * len(found)
        assert abs((found > threshold).sum() - expected) < 4 * np.sqrt(expected)


@each_size
@pytest.mark.parametrize("scale", [1e-23, 1e20])
def test_a_scale_at_the_ends_of_float32_scales_and_nothing_else(size, scale):
    (ordinary,), (found,) = draw(size, dtype=torch.float64), draw(size, scale=scale)
    np.testing.assert_allclose(found / scale, ordinary, rtol=1e-7)


@each_size
def test_the_sum_is_rounded_once(size):
    found = torch.full((size,), 3.0)
    add_noise({"0": found}, 1.0, Noise("digest", "keyed"), repetition=0, step=0)
    noise = torch.from_numpy(draw(size, dtype=torch.float64)[0])
    assert torch.equal(found, (3.0 + noise).float())
    # Noise that is rounded before it is added gives other numbers in places.
    assert not torch.equal(found, 3.0 + noise.float())


def test_the_layout_of_a_tensor_changes_no_number():
    shape = (4, 64, 16, 16)
    plain, channels_last = torch.zeros(shape), torch.zeros(shape)
    channels_last = channels_last.to(memory_format=torch.channels_last)
    for tensor in (plain, channels_last):
        add_noise({"w": tensor}, 0.7, Noise("digest", "keyed"), repetition=0, step=0)
    assert not channels_last.is_contiguous() and plain.numel() >= LARGE
    assert torch.equal(plain, channels_last)


def test_a_devices_normals_are_float64_and_keyed():
    found = [device_normals((3, 2000), device_generator(key, "cpu")) for key in (7, 7, 8)]
    assert device_generator(2**62 + 7, "cpu").initial_seed() == 2**62 + 7
    assert found[0].dtype == torch.float64 and found[0].shape == (3, 2000)
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    assert stats.kstest(found[0].flatten().numpy(), "norm").pvalue > 1e-3


def test_equal_keys_give_equal_noise_and_all_other_parts_are_independent():
    first = np.concatenate(draw(100, LARGE + 7))
    np.testing.assert_array_equal(first, np.concatenate(draw(100, LARGE + 7)))
    (block,) = draw(2 * BLOCK)
    cosines, sines = block[:BLOCK], block[BLOCK:]
    pairs = [
        (first, np.concatenate(draw(100, LARGE + 7, step=1))),
        (first, np.concatenate(draw(100, LARGE + 7, repetition=1))),
        # Two tensors of a step, and the two halves of a block.
        draw(LARGE, LARGE),
        (cosines, sines),
        (cosines**2, sines**2),
    ]
    for one, other in pairs:
        assert not np.isin(one[:1000], other[:1000]).any()
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(one))
    assert stats.kstest(block[1::2], "norm").pvalue > 1e-3
