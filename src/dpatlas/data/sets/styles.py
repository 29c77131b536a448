"""styles, styles-8: what untrained generators draw."""

from dpatlas.data.definitions import Drawn
from dpatlas.data.generated import COLOUR_SCALING, LEVELS_OF_DIGITS, generated_set, styles

SETS = (
    generated_set(
        "styles",
        "what 36 untrained generators draw",
        Drawn(styles.CLASSES, styles.COLOUR.draw, image_shape=styles.COLOUR.image_shape),
        "32 x 32 pixels in colour",
        COLOUR_SCALING,
        only_public=True,
    ),
    generated_set(
        "styles-8",
        "what 36 untrained generators draw",
        Drawn(styles.CLASSES, styles.GREY.draw, image_shape=styles.GREY.image_shape),
        LEVELS_OF_DIGITS,
        only_public=True,
    ),
)
