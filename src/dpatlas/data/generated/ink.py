"""What generators of images share: ink in blocks, sizes, levels, a blur."""

import functools
import operator
from dataclasses import dataclass

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


@dataclass(frozen=True)
class SquareImages:
    """Images of `side` x `side` pixels, in grey or, with three channels, in colour."""

    channels: int
    side: int

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return self.channels, self.side, self.side


def stretched(images: np.ndarray) -> np.ndarray:
    """Images (images, pixels) uint8 from 0, each one's darkest pixel, to 16, its lightest."""
    low, high = images.min(1, keepdims=True), images.max(1, keepdims=True)
    return np.rint(LEVELS * (images - low) / (high - low)).astype(np.uint8)


def blurred(maps: np.ndarray) -> np.ndarray:
    """Maps (channels, side, side, images) after a 3 x 3 blur, edges held."""
    padded = np.pad(maps, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="edge")
    rows = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    return (rows[:, :, :-2] + 2 * rows[:, :, 1:-1] + rows[:, :, 2:]) / 16
