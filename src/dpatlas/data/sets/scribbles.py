"""scribbles: random curves."""

from dpatlas.data.definitions import Drawn
from dpatlas.data.generated import generated_set, scribbles
from dpatlas.data.sets.strokes import PEN

SETS = (
    generated_set(
        "scribbles",
        "random curves of 36 kinds",
        Drawn(scribbles.CLASSES, scribbles.draw, PEN),
        only_public=True,
    ),
)
