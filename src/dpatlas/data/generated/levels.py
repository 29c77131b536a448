"""Sizes of generated images, and their levels where they have those of scikit-learn's digits."""

from dataclasses import dataclass

import numpy as np

from dpatlas.data.generated.ink import LEVELS


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
