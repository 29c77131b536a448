"""Standard normals for weights and outputs that are drawn, keyed.

They hide no record, so that float32 is enough: drawing them takes two fifths of the time of the
noise that `privacy.noise` adds to sums. By the Box-Muller transform r cos t and r sin t with r^2 =
-2 log U are a pair of normals. Of 64 random bits U has 40, and r ends at 7.4, beyond which lies a
part of 2^-40 of the law; t has 24, the precision of float32.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dpatlas.base.seeds import Noise, generator
from dpatlas.privacy.noise import device_generator, device_normals

# Number of pairs made at a time: their arrays stay in the cache.
PAIRS = 2**13
ANGLE_BITS, RADIUS_BITS = 24, 40


def standard_normals(
    sizes: Sequence[tuple[int, int]],
    noise: Noise,
    *,
    repetition: int,
    step: int,
    device: torch.device,
) -> list[Tensor]:
    """N(0, 1) draws of every size, float32, which depend on (noise, repetition, step) alone.

    A GPU draws other ones than a CPU.
    """
    counts = [rows * width for rows, width in sizes]
    key = noise.key(repetition, step, "normals")
    if device.type == "cpu":
        flat = torch.from_numpy(_box_muller(sum(counts), generator(key).bit_generator))
    else:
        flat = device_normals([sum(counts)], device_generator(key, device)).float()
    return [part.view(size) for part, size in zip(flat.split(counts), sizes, strict=True)]


def _box_muller(count: int, bits: np.random.BitGenerator) -> np.ndarray:
    """r cos(t) in the first half of each block, r sin(t) in the second; (count,) float32."""
    flat = np.empty(count + count % 2, np.float32)
    radius, angle = np.empty((2, PAIRS), np.float32)
    for start in range(0, len(flat), 2 * PAIRS):
        first, second = np.split(flat[start : start + 2 * PAIRS], 2)
        r, t = radius[: len(first)], angle[: len(first)]
        raw = bits.random_raw(len(first))
        # Conversions from signed integers are the faster ones.
        np.copyto(t, (raw & (2**ANGLE_BITS - 1)).view(np.int64), casting="unsafe")
        t *= 2 * math.pi / 2**ANGLE_BITS
        raw >>= ANGLE_BITS
        # U is never 0.
        raw += 1
        np.copyto(r, raw.view(np.int64), casting="unsafe")
        r *= 2.0**-RADIUS_BITS
        np.log(r, out=r)
        r *= -2
        np.sqrt(r, out=r)
        np.cos(t, out=first)
        np.sin(t, out=second)
        first *= r
        second *= r
    return flat[:count]
