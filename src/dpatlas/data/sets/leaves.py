"""leaves, leaves-grey, leaves-8: an object before dead leaves."""

from dpatlas.data.definitions import Drawn
from dpatlas.data.generated import (
    COLOUR_SCALING,
    GREY_SCALING,
    LEVELS_OF_DIGITS,
    generated_set,
    leaves,
)

DESIGNS = "later designs were compared with this one by accuracy on CIFAR-10, and dropped"
SETS = (
    generated_set(
        "leaves",
        "an object before dead leaves, of 36 kinds",
        Drawn(leaves.COLOUR.classes, leaves.COLOUR.draw, DESIGNS, leaves.COLOUR.image_shape),
        "32 x 32 pixels in colour",
        COLOUR_SCALING,
        only_public=True,
    ),
    generated_set(
        "leaves-grey",
        "an object before dead leaves, of 36 kinds",
        Drawn(leaves.GREY.classes, leaves.GREY.draw, DESIGNS, leaves.GREY.image_shape),
        "28 x 28 grey pixels",
        GREY_SCALING,
        only_public=True,
    ),
    generated_set(
        "leaves-8",
        "an object before dead leaves, of 12 kinds",
        Drawn(leaves.BLOCKS.classes, leaves.BLOCKS.draw, DESIGNS),
        LEVELS_OF_DIGITS,
        only_public=True,
    ),
)
