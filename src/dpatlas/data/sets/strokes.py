"""`strokes`: digits drawn with a pen along hand-made skeletons.

Public by construction: no image of a data set entered. What their author knew: the skeletons were
drawn by someone who knows what handwritten digits look like, images are made the way the digits of
scikit-learn are described to have been made (a 32 x 32 bitmap, counted in blocks of 4 x 4), and
the pen's least radius was raised once, after one look at real ones.
"""

import functools

import numpy as np

from dpatlas.data.definitions import Drawn
from dpatlas.data.generated import generated_set
from dpatlas.data.generated.curves import Skeletons

SKELETONS = {
    "0": (
        ("~ 55,0 18,15 5,52 22,90 52,100 85,82 95,45 82,12 55,0",),
        ("~ 72,7 45,0 15,20 6,60 28,96 65,96 93,62 86,20 60,3 36,12",),
        ("~ 40,2 12,30 10,70 40,100 78,80 92,40 70,6 40,0 26,14",),
    ),
    "1": (
        ("- 50,0 50,50 50,100",),
        ("- 20,28 55,0 55,50 55,100",),
        ("- 24,24 54,0 54,50 54,100", "- 20,100 54,99 88,100"),
    ),
    "2": (
        ("~ 8,25 22,6 52,0 82,12 86,34 62,64 32,86 6,98", "- 6,98 50,97 95,96"),
        ("~ 10,22 35,2 70,4 84,28 66,60 34,88 12,96 8,80 26,76 52,92 74,99 96,90",),
        ("~ 10,18 40,0 78,8 80,34 50,66", "- 50,66 8,97 50,98 95,97"),
    ),
    "3": (
        ("~ 10,14 38,0 76,8 80,30 58,46 36,48", "~ 36,48 66,50 90,68 80,90 48,100 8,88"),
        ("~ 12,12 48,0 82,16 72,38 42,47 76,56 92,78 64,98 30,99 6,86",),
        ("- 12,3 48,3 84,3 42,42", "~ 42,42 74,46 92,68 78,92 44,100 8,90"),
    ),
    "4": (
        ("- 28,0 18,30 6,60 50,61 95,60", "- 70,22 68,60 66,100"),
        ("- 66,100 66,50 66,0 34,34 4,68 50,68 96,68",),
        ("~ 20,2 12,30 16,52 44,58 72,48", "- 80,4 74,50 66,100"),
        ("~ 50,0 26,28 4,58 40,62 96,54", "- 72,30 64,64 56,100"),
    ),
    "5": (
        ("- 88,2 55,2 22,3 18,24 15,46", "~ 15,46 45,36 80,48 88,72 66,96 36,100 6,88"),
        ("~ 24,4 20,24 16,44 50,38 84,52 88,78 58,99 8,92", "- 24,3 58,3 94,2"),
        ("~ 88,4 52,2 24,14 26,38 58,48 84,64 76,90 44,100 8,90",),
    ),
    "6": (
        ("~ 76,2 40,16 14,46 8,76 30,98 66,98 88,78 74,58 42,56 14,72",),
        ("~ 50,0 28,30 12,62 20,92 52,100 84,86 80,62 48,54 20,70",),
        ("~ 88,10 62,0 26,20 8,56 18,90 54,100 88,84 84,60 52,52 22,66 14,80",),
    ),
    "7": (
        ("- 8,3 50,3 92,3 62,50 38,100",),
        ("- 6,6 50,4 90,2 64,50 44,100", "- 28,52 56,50 86,48"),
        ("- 10,22 12,4 52,4 92,4", "~ 92,4 66,36 50,68 44,100"),
        ("~ 8,16 26,4 58,8 90,2", "- 90,2 66,44 48,100", "- 30,54 80,50"),
    ),
    "8": (
        ("~ 74,14 48,0 20,12 26,34 54,48 84,68 76,94 46,100 16,88 20,66 50,48 78,30 74,14",),
        (
            "~ 50,0 24,12 28,38 50,46 74,36 76,12 50,0",
            "~ 50,46 16,62 14,88 50,100 86,88 84,62 50,46",
        ),
        ("~ 84,8 50,0 22,16 36,40 70,58 82,84 52,100 18,84 34,56 66,36 88,12",),
    ),
    "9": (
        ("~ 84,14 52,0 18,14 14,38 44,50 78,36 84,14", "- 84,12 80,56 74,100"),
        ("~ 82,20 54,0 18,12 16,40 50,48 80,26 86,50 72,84 40,100 12,92",),
        ("~ 78,10 44,0 14,22 30,48 66,40 84,10", "~ 84,10 82,44 74,76 50,98 20,94"),
        ("~ 86,12 50,0 12,22 28,46 64,44 86,16", "- 86,10 66,56 48,100"),
    ),
}
CLASSES = tuple(SKELETONS)


def draw(draws: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Images (images, 64) uint8 from 0 to 16 of the digits `labels`, each skeleton as likely."""
    skeletons, first, count = _skeletons()
    variants = draws.random(len(labels), dtype=np.float32) * count[labels]
    return skeletons.draw(draws, first[labels] + variants.astype(np.int64))


@functools.cache
def _skeletons() -> tuple[Skeletons, np.ndarray, np.ndarray]:
    """All skeletons, and each digit's first one and their number."""
    count = np.array([len(variants) for variants in SKELETONS.values()])
    every = [strokes for variants in SKELETONS.values() for strokes in variants]
    return Skeletons(every), np.cumsum(count) - count, count


PEN = "the pen's least radius was raised once, after one look at handwritten digits"
LOOKED_UP = f"{PEN}; skeletons by someone who knows what such digits look like"
SETS = (
    generated_set(
        "strokes",
        "digits drawn with a pen along hand-made skeletons",
        Drawn(CLASSES, draw, LOOKED_UP),
    ),
)
