"""Generated images: as many as one asks for, public by construction.

Most sources draw an image the way the digits of scikit-learn were made: a 32 x 32 bitmap, counted
in blocks of 4 x 4. Leaves and styles are images of 256 levels, in colour or in grey; those whose
names end in -8 have the digits' size and levels. Records are independent draws: a uniform label,
then an image. Record i of a part (train, add, test, validation) is a function of (source, classes,
selection, part, i), so a part that grows extends itself and moves no other.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dpatlas.base.seeds import generator, seed
from dpatlas.data.definitions import DataSet, Drawn, Scaling
from dpatlas.data.prepared import content_sha256
from dpatlas.data.sources import Images
from dpatlas.errors import InputError

# Images are drawn this many at a time; part of the definition of record i.
BLOCK = 256

BLOCK_COUNTS = "8 x 8 block counts from 0 to 16"
LEVELS_OF_DIGITS = "8 x 8 levels from 0 to 16"
# Of the 8 x 8 digits and of images of 256 levels, in colour and in grey.
DIGITS_SCALING = Scaling(multiply=1, subtract=0, divide=16)
COLOUR_SCALING = Scaling(multiply=2, subtract=255, divide=255)
GREY_SCALING = Scaling(multiply=1, subtract=0, divide=255)


def generated_set(
    name: str,
    what: str,
    drawn: Drawn,
    form: str = BLOCK_COUNTS,
    scaling: Scaling = DIGITS_SCALING,
    *,
    only_public: bool = False,
) -> DataSet:
    """The entry of a generated set.

    scaling: that of the data that its backbones are meant for; features are taken of no other.
    """
    return DataSet(
        name=name,
        what=f"{what}; {form}, generated",
        classes=drawn.classes,
        image_shape=drawn.image_shape,
        counts={},
        scaling=scaling,
        licence="made by this project",
        kind="generated",
        whole_by_default=True,
        only_public=only_public,
        pretraining=True,
        drawn=drawn,
    )


def read(
    data_set: DataSet, classes: Sequence[str], counts: Mapping[str, int], selection: int
) -> Images:
    """The first counts[part] records of every part, labels as positions in `classes`.

    The checksum covers the pixels and labels of all parts.
    """
    parts = {
        part: records(data_set, classes, count, part=part, selection=selection)
        for part, count in counts.items()
    }
    arrays = {
        f"{kind}_{part}": pair[i] for part, pair in parts.items() for i, kind in enumerate("xy")
    }
    return Images(parts, f"sha256:{content_sha256(arrays)}")


def records(
    data_set: DataSet, classes: Sequence[str], count: int, *, part: str, selection: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (count, pixels) uint8 and labels (count,) int64 of one part."""
    source = data_set.drawn
    if source is None:
        raise InputError("data set", repr(data_set.name), "a generated one")
    of_source = np.array([source.classes.index(each) for each in classes])
    pixels = np.empty((count, math.prod(source.image_shape)), np.uint8)
    labels = np.empty(count, np.int64)
    for number, start in enumerate(range(0, count, BLOCK)):
        axes = {"source": data_set.name, "part": part, "selection": selection, "block": number}
        draws = generator(seed("data", use="generated", **axes))
        # Always a whole block: an image must not depend on how many follow it.
        drawn = draws.integers(len(classes), size=BLOCK)
        images = source.draw(draws, of_source[drawn])
        stop = min(start + BLOCK, count)
        labels[start:stop], pixels[start:stop] = drawn[: stop - start], images[: stop - start]
    return pixels, labels
