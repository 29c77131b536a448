"""strokes: digits drawn with a pen along hand-made skeletons."""

from dpatlas.data.definitions import Drawn
from dpatlas.data.generated import generated_set, strokes

PEN = "the pen's least radius was raised once, after one look at handwritten digits"
SKELETONS = f"{PEN}; skeletons by someone who knows what such digits look like"
SETS = (
    generated_set(
        "strokes",
        "digits drawn with a pen along hand-made skeletons",
        Drawn(strokes.CLASSES, strokes.draw, SKELETONS),
    ),
)
