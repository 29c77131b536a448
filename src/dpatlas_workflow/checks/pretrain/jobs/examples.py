"""A few images of a data set as text, which a figure shows without torch or data files."""

import numpy as np

from dpatlas.base.records import Row
from dpatlas.data.prepared import Prepared

EXAMPLES = 10
# The characters for grey levels 0 to 16 of generated images and of the digits.
LEVELS = "0123456789abcdefg"


def examples(data: Prepared) -> list[Row]:
    """Rows of the first `EXAMPLES` training images of each class, as text.

    An image has one character of `LEVELS` per pixel, so that int(character, 17) is the grey level
    from 0 to 16. No rows for data of another scale.
    """
    preprocessing = data.manifest["preprocessing"]
    if (preprocessing["norm"], preprocessing["divide"]) != (None, len(LEVELS) - 1):
        return []
    rows = []
    for label, name in enumerate(data.classes):
        images = data.x_train[np.flatnonzero(data.y_train == label)[:EXAMPLES]]
        levels = np.rint(images * preprocessing["divide"]).astype(int)
        texts = ["".join(LEVELS[level] for level in image) for image in levels]
        rows += [{"class": name, "number": i, "image": text} for i, text in enumerate(texts)]
    return rows
