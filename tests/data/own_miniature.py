"""Image folders and npz files as a user might have them."""

from pathlib import Path

import numpy as np
from PIL import Image

NAME = "my-scans"
CLASSES = ["healthy", "ill"]
GREY = {"classes": CLASSES, "image_shape": [1, 6, 5], "scaling": "unit"}
COLOUR = {"classes": CLASSES, "image_shape": [3, 6, 5], "scaling": "centred"}


def levels(count: int, shape, seed: int = 0) -> np.ndarray:
    """Grey levels (count, *shape) uint8."""
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def put(path: Path, pixels: np.ndarray) -> None:
    """One image file; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def folder(root: Path, counts, shape=(6, 5), ending="png") -> dict[str, np.ndarray]:
    """Image files below `root`: counts, of images, by sub-folder; what they hold, by sub-folder."""
    written = {}
    for seed, (place, count) in enumerate(counts.items()):
        written[place] = levels(count, shape, seed)
        for i, pixels in enumerate(written[place]):
            put(root / place / f"{i:03}.{ending}", pixels)
    return written


def pile(root: Path, count: int = 12, shape=(6, 5)) -> dict[str, np.ndarray]:
    """Folders of classes alone."""
    return folder(root, dict.fromkeys(CLASSES, count), shape)
