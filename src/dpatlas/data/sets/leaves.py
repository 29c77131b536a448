"""leaves, leaves-grey, leaves-8: an object before dead leaves."""

from dpatlas.data.definitions import DataSet, Drawn, Scaling
from dpatlas.data.generated import (
    COLOUR_SCALING,
    DIGITS_SCALING,
    GREY_SCALING,
    LEVELS_OF_DIGITS,
    generated_set,
    leaves,
)

DESIGNS = "later designs were compared with this one by accuracy on CIFAR-10, and dropped"


def _entry(
    name: str, source: leaves.Leaves | leaves.Blocks, kinds: int, form: str, scaling: Scaling
) -> DataSet:
    return generated_set(
        name,
        f"an object before dead leaves, of {kinds} kinds",
        Drawn(source.classes, source.draw, DESIGNS, source.image_shape),
        form,
        scaling,
        only_public=True,
    )


SETS = (
    _entry("leaves", leaves.COLOUR, 36, "32 x 32 pixels in colour", COLOUR_SCALING),
    _entry("leaves-grey", leaves.GREY, 36, "28 x 28 grey pixels", GREY_SCALING),
    _entry("leaves-8", leaves.BLOCKS, 12, LEVELS_OF_DIGITS, DIGITS_SCALING),
)
