"""Sizes of figures, and the colour, marker and line of every series that papers compare.

Every series differs in marker and line as well as in colour, so that a figure survives grey print.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex

STYLE = Path(__file__).with_name("dpatlas.mplstyle")
SINGLE_COLUMN = 3.3
DOUBLE_COLUMN = 6.9
BAND_ALPHA = 0.2
THIN = 0.6
NOTE_SIZE = 7
MUTED = "0.35"
# The colour, in a legend, of what is drawn in many colours.
ANY_COLOR = "0.6"
BLUE, RED, GREEN, PINK, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
# Part of the colour map of ordered series, of one hue, that stands out from white paper.
RAMP, RAMP_ENDS = "Blues", (0.4, 1.0)


@dataclass(frozen=True)
class Look:
    """How one series is named and drawn, as matplotlib takes it.

    linestyle: empty for none; width, size: of line and marker in points; fill: `full`, `none` for a
    white marker, or the half of it that is not; edge: the colour of its edge, if not that of all.
    """

    label: str
    color: str
    marker: str = ""
    linestyle: str = "-"
    width: float = 1.2
    size: float = 4
    fill: str = "full"
    edge: str = ""


INITS = {
    "lecun": Look("LeCun", BLUE, "o", "-"),
    "he": Look("He", RED, "s", "--"),
    "ntk": Look("NTK", GREEN, "^", "-."),
    "xavier": Look("Xavier", PINK, "D", ":"),
}
# For series without a look of their own, told apart in grey print too.
SERIES = (
    Look("", BLUE, "o", "-"),
    Look("", RED, "s", "--"),
    Look("", GREEN, "^", "-."),
    Look("", PINK, "D", ":"),
    Look("", "black", "v", "-"),
    Look("", ORANGE, "P", "--"),
)


def ramp(labels: Sequence[str], **style: Any) -> list[Look]:
    """Looks of series that have an order, from light to dark, told apart in grey print too."""
    colors = mpl.colormaps[RAMP](np.linspace(*RAMP_ENDS, len(labels)))
    return [
        replace(look, label=label, color=to_hex(color), **style)
        for label, color, look in zip(labels, colors, cycle(SERIES), strict=False)
    ]
