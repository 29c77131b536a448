"""digits-and-letters: digits by pen and in free fonts, and letters."""

import numpy as np

from dpatlas.data.definitions import Drawn
from dpatlas.data.generated import generated_set
from dpatlas.data.generated.ink import SIDE
from dpatlas.data.sets import fonts, strokes


def draw(draws: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Digits by pen or in a font, each as likely, then letters."""
    by_pen = draws.random(len(labels), dtype=np.float32) < 0.5
    digit = labels < len(fonts.DIGITS)
    pixels = np.empty((len(labels), SIDE * SIDE), np.uint8)
    for members, draw, first in (
        (digit & by_pen, strokes.draw, 0),
        (digit & ~by_pen, fonts.DRAW_DIGITS, 0),
        (~digit, fonts.DRAW_LETTERS, len(fonts.DIGITS)),
    ):
        pixels[members] = draw(draws, labels[members] - first)
    return pixels


SETS = (
    generated_set(
        "digits-and-letters",
        "digits by pen and in 16 free fonts, and 36 letters",
        Drawn(fonts.DIGITS + fonts.LETTERS, draw, strokes.LOOKED_UP),
        only_public=True,
    ),
)
