"""Generated images: as many as one asks for, public by construction.

Most sources draw an image the way the digits of scikit-learn were made: a 32 x 32 bitmap, counted
in blocks of 4 x 4. Leaves and styles are images of 256 levels, in colour or in grey; those whose
names end in -8 have the digits' size and levels. Records are independent draws: a uniform label,
then an image. Record i of a part (train, add, test, validation) is a function of (source, classes,
selection, part, i), so a part that grows extends itself and moves no other.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpatlas.core.seeds import generator, seed
from dpatlas.data.generated import fonts, leaves, scribbles, strokes, styles
from dpatlas.data.generated.ink import SIDE
from dpatlas.data.prepared import content_sha256
from dpatlas.data.sources import Images

# Images are drawn this many at a time; part of the definition of record i.
BLOCK = 256
Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Drawn:
    """A source: its classes, and draw(generator, labels (n,)) -> images (n, pixels) uint8.

    image_shape: (channels, height, width) of the pixels.
    looked_up: what its author took from real images, in words, for the ledgers of those who train
    on it.
    """

    classes: tuple[str, ...]
    draw: Draw
    looked_up: str = "nothing"
    image_shape: tuple[int, int, int] = (1, SIDE, SIDE)


def _digits_and_letters(draws: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Digits by pen or in a font, each as likely, then letters."""
    by_pen = draws.random(len(labels), dtype=np.float32) < 0.5
    digit = labels < len(fonts.DIGITS)
    pixels = np.empty((len(labels), SIDE * SIDE), np.uint8)
    for chosen, draw, first in (
        (digit & by_pen, strokes.draw, 0),
        (digit & ~by_pen, _font_digits, 0),
        (~digit, _letters, len(fonts.DIGITS)),
    ):
        pixels[chosen] = draw(draws, labels[chosen] - first)
    return pixels


_PEN = "the pen's least radius was raised once, after one look at handwritten digits"
_SKELETONS = f"{_PEN}; skeletons by someone who knows what such digits look like"
_DESIGNS = "later designs were compared with this one by accuracy on CIFAR-10, and dropped"
_font_digits, _letters = fonts.drawer(fonts.DIGITS), fonts.drawer(fonts.LETTERS)
SOURCES: Mapping[str, Drawn] = {
    "strokes": Drawn(strokes.CLASSES, strokes.draw, _SKELETONS),
    "fonts": Drawn(fonts.DIGITS, _font_digits),
    "letters": Drawn(fonts.LETTERS, _letters),
    "inverted-letters": Drawn(fonts.LETTERS, fonts.inverted(_letters)),
    "scribbles": Drawn(scribbles.CLASSES, scribbles.draw, _PEN),
    "digits-and-letters": Drawn(fonts.DIGITS + fonts.LETTERS, _digits_and_letters, _SKELETONS),
    **{
        name: Drawn(source.classes, source.draw, _DESIGNS, source.image_shape)
        for name, source in (("leaves", leaves.COLOUR), ("leaves-grey", leaves.GREY))
    },
    "leaves-8": Drawn(leaves.BLOCKS.classes, leaves.BLOCKS.draw, _DESIGNS),
    **{
        name: Drawn(styles.CLASSES, source.draw, image_shape=source.image_shape)
        for name, source in (("styles", styles.COLOUR), ("styles-8", styles.GREY))
    },
}


def read(name: str, classes: Sequence[str], counts: Mapping[str, int], selection: int) -> Images:
    """The first counts[part] records of every part, labels as positions in `classes`.

    The checksum covers the pixels and labels of all parts.
    """
    parts = {
        part: records(name, classes, count, part=part, selection=selection)
        for part, count in counts.items()
    }
    arrays = {
        f"{kind}_{part}": pair[i] for part, pair in parts.items() for i, kind in enumerate("xy")
    }
    return Images(parts, f"sha256:{content_sha256(arrays)}")


def records(
    name: str, classes: Sequence[str], count: int, *, part: str, selection: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (count, pixels) uint8 and labels (count,) int64 of one part."""
    source = SOURCES[name]
    of_source = np.array([source.classes.index(each) for each in classes])
    pixels = np.empty((count, math.prod(source.image_shape)), np.uint8)
    labels = np.empty(count, np.int64)
    for number, start in enumerate(range(0, count, BLOCK)):
        axes = {"source": name, "part": part, "selection": selection, "block": number}
        draws = generator(seed("data", use="generated", **axes))
        # Always a whole block: an image must not depend on how many follow it.
        drawn = draws.integers(len(classes), size=BLOCK)
        images = source.draw(draws, of_source[drawn])
        stop = min(start + BLOCK, count)
        labels[start:stop], pixels[start:stop] = drawn[: stop - start], images[: stop - start]
    return pixels, labels
