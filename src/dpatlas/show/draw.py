"""Draw all series of a panel from a data frame, each in its `Look`.

A row of the data has a number `value`, its interval `low` to `high`, `runs_used` and
`runs_diverged`, the name of its `series` and what it is drawn against; a missing number is nan.
Numbers and intervals are those of the rows, as the csv has them. Set the scales of the axes before
drawing.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.transforms import ScaledTranslation

from dpatlas.show.look import BAND_ALPHA, MUTED, NOTE_SIZE, Look
from dpatlas.show.rows import Row

Looks = Mapping[Any, Look]

NUMBERS = ("value", "low", "high", "runs_used", "runs_diverged")
# Points between neighbouring series at one x; all together take the width of a marker at most.
BETWEEN_SERIES, POINTS_PER_INCH = 1.5, 72
BAR_WIDTH = 0.9
PRINTED_STYLE: dict[str, Any] = {
    "marker": "D",
    "markersize": 5,
    "markerfacecolor": "white",
    "linestyle": "none",
    "zorder": 4,
}
# Height, as a share of the panel, of the number of a value that lies outside.
OUTSIDE_LINE = 0.1
# Height, as a share of the panel, of the crosses where every run diverged.
EDGE = 0.97


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Rows as a data frame that has all columns of `NUMBERS`, as floats."""
    data = pd.DataFrame(list(rows))
    missing = [name for name in NUMBERS if name not in data]
    return data.reindex(columns=[*data, *missing]).astype(dict.fromkeys(NUMBERS, float))


def draw_points(
    axes: Axes, data: pd.DataFrame, x: str, looks: Looks, series: str = "series", apart: bool = True
) -> None:
    """Markers joined by a line, with intervals as bars, for every series in `looks`.

    All stand at their x. With `apart`, the ink of each series is moved by a few points, so that
    bars do not cover each other; a marker still covers its x. Markers are open where some runs
    diverged; a cross at the upper edge stands where all did.
    """
    named = ((look, data[data[series] == name].sort_values(x)) for name, look in looks.items())
    shown = [(look, points) for look, points in named if len(points)]
    size = mpl.rcParams["lines.markersize"]
    widest = min(size, BETWEEN_SERIES * (len(shown) - 1)) if apart else 0.0
    places = np.linspace(-widest / 2, widest / 2, len(shown))
    for (look, points), aside in zip(shown, places, strict=True):
        before = len(axes.lines)
        at, value = points[x], points["value"]
        axes.plot(at, value, marker=look.marker, **look.line)
        for place, low, high in zip(at, points["low"], points["high"], strict=True):
            if np.isfinite(low):
                axes.plot([place, place], [low, high], color=look.color, linewidth=BAR_WIDTH)
        marks: dict[str, Any] = {"color": look.color, "linestyle": "none", "zorder": 3}
        fewer = (points["runs_used"] > 0) & (points["runs_diverged"] > 0)
        none = points["runs_used"] == 0
        if fewer.any():
            axes.plot(at[fewer], value[fewer], look.marker, markerfacecolor="white", **marks)
        if none.any():
            edge = [EDGE] * none.sum()
            axes.plot(at[none], edge, "X", transform=axes.get_xaxis_transform(), **marks)
        for line in axes.lines[before:]:
            move_aside(line, aside)


def move_aside(artist: Artist, points: float) -> None:
    """Move the ink of what is drawn by so many points to the right; its numbers stay."""
    figure = artist.get_figure(root=True)
    assert figure is not None
    shift = ScaledTranslation(points / POINTS_PER_INCH, 0, figure.dpi_scale_trans)
    artist.set_transform(artist.get_transform() + shift)


def mark_outside(
    axes: Axes, data: pd.DataFrame, x: str, looks: Looks, series: str = "series", unit: float = 1.0
) -> None:
    """An arrow with the number, times `unit`, at the edge beyond which a value of a series lies.

    Set the limits of the axes before. Several at one x stand above each other.
    """
    low, high = axes.get_ylim()
    to_height = (axes.transAxes + axes.transData.inverted()).transform
    before: dict[tuple[float, bool], int] = {}
    for name, look in looks.items():
        for _, row in data[data[series] == name].iterrows():
            if not (up := row["value"] > high) and not row["value"] < low:
                continue
            place = before[row[x], up] = before.get((row[x], up), -1) + 1
            inside = OUTSIDE_LINE * (place + 0.5)
            axes.text(
                row[x],
                to_height((0, 1 - inside if up else inside))[1],
                f"{'↑' if up else '↓'} {unit * row['value']:.3g}".replace("-", "\N{MINUS SIGN}"),
                color=look.color,
                fontsize=NOTE_SIZE,
                ha="center",
                va="center",
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )


def draw_curves(
    axes: Axes,
    data: pd.DataFrame,
    x: str,
    looks: Looks,
    series: str = "series",
    opened: bool = False,
    **line: Any,
) -> None:
    """A line for every series in `looks` with its intervals as a band; `line` is for the lines.

    With `opened`, markers of a series are open where some of its runs diverged.
    """
    # seaborn.lineplot would refuse to mix filled markers with others, and needs lengths of dashes.
    for name, look in looks.items():
        points = data[data[series] == name]
        style: dict[str, Any] = {"marker": look.marker, **look.line, **line}
        if opened and (points["runs_diverged"] > 0).any():
            style["markerfacecolor"] = "white"
        axes.plot(points[x], points["value"], **style)
        band: dict[str, Any] = {"color": look.color, "alpha": BAND_ALPHA, "linewidth": 0}
        axes.fill_between(points[x], points["low"], points["high"], **band)


def draw_printed(
    axes: Axes, data: pd.DataFrame, x: str, looks: Looks, series: str = "series"
) -> None:
    """Numbers that a paper prints, as open diamonds in the colours of the series."""
    for name, look in looks.items():
        points = data[data[series] == name]
        if not points.empty:
            axes.plot(points[x], points["value"], color=look.color, **PRINTED_STYLE)


def printed_handle() -> Line2D:
    """The entry of a legend for what `draw_printed` draws."""
    return Line2D([], [], color=MUTED, label="printed in the paper", **PRINTED_STYLE)
