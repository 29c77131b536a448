"""`scribbles`: random curves; a class is one random skeleton, drawn anew for every image.

Public by construction: nobody's knowledge of digits or letters is in the shapes, and of the pen
only what `curves` says.
"""

import functools

import numpy as np

from dpatlas.base.seeds import generator, seed
from dpatlas.data.definitions import Drawn
from dpatlas.data.generated import generated_set
from dpatlas.data.generated.curves import Skeletons
from dpatlas.data.sets.strokes import PEN

# As many as there are letters, so that the two sources differ in shapes alone.
CLASSES = tuple(f"scribble{number:02}" for number in range(36))
# Control points of each stroke, of one or two: more would be a blob at 8 x 8.
CONTROLS = ((3, 5), (2, 3))
STRAIGHT = 0.3
LEAST_DISTANCE = 0.45


def draw(draws: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Images (images, 64) uint8 from 0 to 16 of the scribbles `labels`."""
    return _skeletons().draw(draws, labels)


@functools.cache
def _skeletons() -> Skeletons:
    return Skeletons([_skeleton(number) for number in range(len(CLASSES))])


def _skeleton(number: int) -> list[str]:
    """One or two strokes, curved or straight, through random points of the unit square."""
    draws = generator(seed("data", use="scribble", number=number))
    strokes = []
    number_of_strokes = draws.integers(1, len(CONTROLS), endpoint=True)
    fewest, most = CONTROLS[number_of_strokes - 1]
    for _ in range(number_of_strokes):
        points = [draws.random(2)]
        count = draws.integers(fewest, most, endpoint=True)
        while len(points) < count:
            point = draws.random(2)
            if np.linalg.norm(point - points[-1]) >= LEAST_DISTANCE:
                points.append(point)
        kind = "-" if draws.random() < STRAIGHT else "~"
        strokes.append(" ".join([kind, *(f"{100 * x:.0f},{100 * y:.0f}" for x, y in points)]))
    return strokes


SETS = (
    generated_set(
        "scribbles", "random curves of 36 kinds", Drawn(CLASSES, draw, PEN), only_public=True
    ),
)
