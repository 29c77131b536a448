"""What figures and tables of several papers share: which records, and how series are told apart."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D

from dpatlas.errors import InputError
from dpatlas.records import Record
from dpatlas.show.look import Look
from dpatlas.show.output import Records

BLUE, RED, GREEN, PINK, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
# For series without a look of their own, told apart in grey print too.
SERIES = (
    Look("", BLUE, "o", "-"),
    Look("", RED, "s", "--"),
    Look("", GREEN, "^", "-."),
    Look("", PINK, "D", ":"),
    Look("", "black", "v", "-"),
    Look("", ORANGE, "P", "--"),
)

# Part of the colour map of ordered series, of one hue, that stands out from white paper.
RAMP, RAMP_ENDS = "Blues", (0.4, 1.0)


def ramp(labels: Sequence[str]) -> list[Look]:
    """Looks of series that have an order, from light to dark, told apart in grey print too."""
    colors = mpl.colormaps[RAMP](np.linspace(*RAMP_ENDS, len(labels)))
    return [
        replace(look, label=label, color=to_hex(color))
        for label, color, look in zip(labels, colors, cycle(SERIES), strict=False)
    ]


def only(records: Records, kind: str) -> Record[Any, Any]:
    """The record of that kind; InputError unless there is exactly one."""
    matching = of_kind(records, kind)
    if len(matching) != 1:
        raise InputError("--records", f"{len(matching)} of kind {kind}", "exactly one")
    return matching[0]


def of_kind(records: Records, kind: str) -> list[Record[Any, Any]]:
    """The records of that kind."""
    return [record for record in records if record.kind == kind]


def some(records: Records, kind: str) -> list[Record[Any, Any]]:
    """The records of that kind; InputError where there is none."""
    matching = of_kind(records, kind)
    if not matching:
        raise InputError("--records", f"none of kind {kind}", "at least one")
    return matching


def handle(look: Look, **line: Any) -> Line2D:
    """An entry of a legend; `line` is for what differs from the lines of other entries."""
    style = {"marker": look.marker, "markersize": 4, **look.line, **line}
    return Line2D([], [], label=look.label, **style)
