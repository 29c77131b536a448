"""Keyed Gaussian noise for tensors of any size, drawn and scaled in float64.

Small tensors use numpy's ziggurat. Large ones use the Box-Muller transform of the same
counter-based generator's raw bits, in blocks that fit the cache, a fifth faster. Two thirds of the
time go into 64 random bits a number and sines in float64: with fewer bits, or in float32, noisy
sums would lie on a lattice that identifies the sum before the noise.

r cos t and r sin t with r^2 = -2 log U are a pair of normals. U takes 52 bits, and 64 more where it
is below 2^-24: P(r > a) = P(U < exp(-a^2 / 2)) is right to a part of 2^-29 up to a = 11, and r ends
at 12.7. U is never 1 and t never a multiple of pi / 2, so no draw is zero. The ziggurat takes its
tail from exponentials of 53 bits: right to a part of 2^-27 at 8.5 and of 2^-19 at 10; it ends at
12.2, and gives zero with a probability of 2^-52.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from dpatlas.base.seeds import Noise, reused
from dpatlas.errors import InputError
from dpatlas.privacy.sums import ClippedSum, NoisySum

LARGE = 2**14
# Number of pairs of normals made at a time.
BLOCK = 2**15
# Words of 52 bits below this, one in 2^24, are extended by 64 bits.
SMALL = 2**28


def add_noise(
    tensors: Mapping[str, Tensor], scale: float, noise: Noise, *, repetition: int, step: int
) -> None:
    """Add scale * N(0, I) to `tensors` in place, each keyed by (repetition, step, its name).

    So a parameter gets the same noise whichever other parameters are trained with it. A tensor and
    its noise are added in float64, and rounded to the tensor's own type once.

    A CPU draws from Philox as numpy has it, a GPU from its own counter-based generator: both are
    keyed and differ from each other, so a record names the device it ran on. A GPU's normals are
    torch's in float64, from 63 bits of the key; how far their tails reach, how often they are zero
    and whether another driver draws the same is unknown.
    """
    for name, tensor in tensors.items():
        key = noise.key(repetition, step, "noise", name)
        if tensor.device.type != "cpu":
            normals = device_normals(tensor.shape, device_generator(key, tensor.device))
            tensor.add_(normals, alpha=scale)
        elif tensor.is_contiguous():
            _add_flat(tensor.detach().view(-1).numpy(), scale, reused(key))
        else:
            flat = np.zeros(tensor.numel())
            _add_flat(flat, scale, reused(key))
            tensor.add_(torch.from_numpy(flat).view(tensor.shape))


def noisy_sum(
    clipped: ClippedSum, scale: float, noise: Noise, *, repetition: int, step: int
) -> NoisySum:
    """The clipped sum with its noise, in the same tensors; InputError for anything else.

    scale: standard deviation of the noise, noise_multiplier times max_grad_norm. repetition, step:
    which draw of `noise`; nothing here refuses the same draw for another sum.
    """
    if not isinstance(clipped, ClippedSum):
        allowed = "a ClippedSum, once: noise belongs to the sum of clipped gradients"
        raise InputError("noisy_sum", type(clipped).__name__, allowed)
    if scale:
        add_noise(clipped.gradients, scale, noise, repetition=repetition, step=step)
    return NoisySum(clipped.gradients, scale)


def device_generator(key: int, device: torch.device | str) -> torch.Generator:
    """A GPU's counter-based generator, seeded by 63 bits of the key."""
    draws = torch.Generator(device=device)
    draws.manual_seed(key % 2**63)
    return draws


def device_normals(shape: Iterable[int], draws: torch.Generator) -> Tensor:
    """N(0, 1) draws on the generator's device, float64."""
    normals = torch.empty(tuple(shape), dtype=torch.float64, device=draws.device)
    return normals.normal_(generator=draws)


def _add_flat(flat: np.ndarray, scale: float, draws: np.random.Generator) -> None:
    if len(flat) < LARGE:
        np.add(flat, scale * draws.standard_normal(len(flat)), out=flat, casting="same_kind")
    else:
        _add_box_muller(flat, scale, draws.bit_generator)


def _add_box_muller(flat: np.ndarray, scale: float, bits: np.random.BitGenerator) -> None:
    """Add r cos(t) to the first half of each block of `flat`, r sin(t) to the second."""
    pairs = min(BLOCK, (len(flat) + 1) // 2)
    radius, angle, wave = (torch.empty(pairs, dtype=torch.float64, device="cpu") for _ in range(3))
    for start in range(0, len(flat), 2 * BLOCK):
        block = flat[start : start + 2 * BLOCK]
        half = (len(block) + 1) // 2
        raw = bits.random_raw(2 * half)
        words = raw[:half]
        words >>= 12
        # numpy is faster at logarithms and roots, torch at conversions and trigonometry.
        radius[:half].copy_(torch.from_numpy(words.view(np.int64)))
        r = radius[:half].numpy()
        # U = (word + 1/2) / 2^52 is exact, and lies between 0 and 1.
        r += 0.5
        small = np.flatnonzero(words < SMALL)
        if len(small):
            r[small] = words[small] + (bits.random_raw(len(small)) + 0.5) * 2.0**-64
        r *= 2.0**-52
        np.log(r, out=r)
        r *= -2
        np.sqrt(r, out=r)
        r *= scale
        # From a signed word: t lies in [-pi, pi], and |t| is at least pi / 2^64.
        t = angle[:half]
        t.copy_(torch.from_numpy(raw[half:].view(np.int64))).add_(0.5).mul_(math.pi * 2.0**-63)
        first = torch.cos(t, out=wave[:half]).numpy()
        second = torch.sin(t, out=t).numpy()
        for part, normals in ((block[:half], first), (block[half:], second)):
            normals *= r
            np.add(part, normals[: len(part)], out=part, casting="same_kind")
