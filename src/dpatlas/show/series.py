"""What figures of the earlier way share."""

from typing import Any

from matplotlib.lines import Line2D

from dpatlas.show.look import Look


def handle(look: Look, **line: Any) -> Line2D:
    """An entry of a legend; `line` is for what differs from the lines of other entries."""
    style = {"marker": look.marker, "markersize": 4, **look.line, **line}
    return Line2D([], [], label=look.label, **style)
