"""Sizes of figures, and the colour, marker and line of every series that papers compare.

Every series differs in marker and line as well as in colour, so that a figure survives grey print.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

STYLE = Path(__file__).with_name("dpatlas.mplstyle")
SINGLE_COLUMN = 3.3
DOUBLE_COLUMN = 6.9
BAND_ALPHA = 0.2
THIN = 0.6
NOTE_SIZE = 7
MUTED = "0.35"


@dataclass(frozen=True)
class Look:
    """How one series is named and drawn, as matplotlib takes it."""

    label: str
    color: str
    marker: str
    linestyle: str

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of `plot` without marker and label."""
        return {"color": self.color, "linestyle": self.linestyle}


INITS = {
    "lecun": Look("LeCun", "#0072B2", "o", "-"),
    "he": Look("He", "#D55E00", "s", "--"),
    "ntk": Look("NTK", "#009E73", "^", "-."),
    "xavier": Look("Xavier", "#CC79A7", "D", ":"),
}
