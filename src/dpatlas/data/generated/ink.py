"""From a field of distances on the 32 x 32 bitmap to an 8 x 8 image of block counts."""

import functools
import operator

import numpy as np

from dpatlas.data.generated.warps import BITMAP

BLOCK = 4
SIDE = BITMAP // BLOCK
LEVELS = BLOCK**2
# Pixels: unevenness of the edge along the stroke, and from pixel to pixel.
SMOOTH_DEVIATION = 0.40
WHITE_DEVIATION = 0.30
KNOTS = 6

PIXEL = np.arange(BITMAP, dtype=np.float32) + np.float32(0.5)


def block_counts(draws: np.random.Generator, depth: np.ndarray) -> np.ndarray:
    """Images (images, 64) uint8 from 0 to 16: ink pixels in blocks of 4 x 4.

    depth (32, 32, images): distance of each pixel from the edge, in pixels, positive inside the
    ink; a smooth and a white noise are added to it in place.
    """
    images = depth.shape[2]
    knots = draws.standard_normal((KNOTS, KNOTS, images), dtype=np.float32)
    smooth = _between_knots() * np.float32(SMOOTH_DEVIATION)
    rows = np.tensordot(smooth, knots, 1)
    depth += np.einsum("xk,ykn->yxn", _between_knots(), rows, optimize=True)
    white = draws.standard_normal(depth.shape, dtype=np.float32)
    white *= np.float32(WHITE_DEVIATION)
    depth += white
    ink = (depth > 0).view(np.uint8)
    sums = functools.reduce(operator.add, (ink[start::BLOCK] for start in range(BLOCK)))
    counts = functools.reduce(operator.add, (sums[:, start::BLOCK] for start in range(BLOCK)))
    return np.ascontiguousarray(counts.reshape(SIDE * SIDE, images).T)


def _between_knots() -> np.ndarray:
    """(32, KNOTS): linear interpolation from evenly spaced knots to pixels."""
    distances = (PIXEL / BITMAP * (KNOTS - 1))[:, None] - np.arange(KNOTS)
    return np.maximum(0, 1 - np.abs(distances)).astype(np.float32)
