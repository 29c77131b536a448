"""Real numbers as the levels that the digits of scikit-learn have."""

import numpy as np

from dpatlas.data.generated.ink import LEVELS


def stretched(images: np.ndarray) -> np.ndarray:
    """Images (images, pixels) uint8 from 0, each one's darkest pixel, to 16, its lightest."""
    low, high = images.min(1, keepdims=True), images.max(1, keepdims=True)
    return np.rint(LEVELS * (images - low) / (high - low)).astype(np.uint8)
