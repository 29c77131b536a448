"""Draw all series of a panel from a data frame, each in its `Look`.

A row of the data has a number `value`, its interval `low` to `high`, `runs_used` and
`runs_diverged`, the name of its `series` and what it is drawn against; a missing number is nan.
Intervals are those of the rows, as the csv has them: seaborn computes none. Set the scales of the
axes before drawing.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from dpatlas.show.look import BAND_ALPHA, MUTED, Look
from dpatlas.show.output import Row

Looks = Mapping[Any, Look]

NUMBERS = ("value", "low", "high", "runs_used", "runs_diverged")
# Distance of neighbouring series at one x, as a share of the axis; width that all take together at
# most, as a share of the smallest distance of two x.
BETWEEN_SERIES, WIDEST = 0.018, 0.3
BAR_WIDTH = 0.9
PRINTED_STYLE: dict[str, Any] = {
    "marker": "D",
    "markersize": 5,
    "markerfacecolor": "white",
    "linestyle": "none",
    "zorder": 4,
}
# Height, as a share of the panel, of the crosses where every run diverged.
EDGE = 0.97


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Rows as a data frame that has all columns of `NUMBERS`, as floats."""
    data = pd.DataFrame(list(rows))
    missing = [name for name in NUMBERS if name not in data]
    return data.reindex(columns=[*data, *missing]).astype(dict.fromkeys(NUMBERS, float))


def draw_points(
    axes: Axes, data: pd.DataFrame, x: str, looks: Looks, series: str = "series", dodge: bool = True
) -> None:
    """Markers joined by a line, with intervals as bars, for every series in `looks`.

    With `dodge`, series stand side by side so that bars do not cover each other. Markers are open
    where some runs diverged; a cross at the upper edge stands where all did.
    """
    data = data[data[series].isin(list(looks))]
    if data.empty:
        return
    style: dict[str, Any] = {
        "x": x,
        "y": "end",
        "hue": series,
        "hue_order": list(looks),
        "palette": {name: look.color for name, look in looks.items()},
        "markers": [look.marker for look in looks.values()],
        "dodge": dodge and _room(axes, data[x], len(looks)),
        "native_scale": True,
        "legend": False,
        "ax": axes,
        "linewidth": mpl.rcParams["lines.linewidth"],
        "markersize": mpl.rcParams["lines.markersize"],
        "markeredgewidth": mpl.rcParams["lines.markeredgewidth"],
    }
    # Seaborn sums up the points at one x: here these are a value and the ends of its interval.
    ends = data.melt([x, series], ["value", "low", "high"], value_name="end")
    # Seaborn names axes that have no label after columns, and lays out all ticks to see where.
    labels = {"xlabel": axes.get_xlabel(), "ylabel": axes.get_ylabel()}
    axes.set(xlabel="x", ylabel="y")
    sns.pointplot(
        ends,
        linestyles=[look.linestyle or "none" for look in looks.values()],
        estimator=lambda points: points.iloc[0],
        errorbar=lambda points: (points.iloc[1:].min(), points.iloc[1:].max()),
        err_kws={"linewidth": BAR_WIDTH},
        **style,
    )
    style |= {"errorbar": None, "linestyles": "none", "zorder": 3}
    fewer, none = (data["runs_used"] > 0) & (data["runs_diverged"] > 0), data["runs_used"] == 0
    if fewer.any():
        open_points = data.assign(end=data["value"].where(fewer))
        sns.pointplot(open_points, **style, markerfacecolor="white")
    if none.any():
        crosses = data.assign(end=none.map({True: EDGE}))
        style |= {"markers": "X", "transform": axes.get_xaxis_transform()}
        sns.pointplot(crosses, **style)
    axes.set(**labels)


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


def _room(axes: Axes, x: pd.Series, count: int) -> float:
    """Width of `count` series side by side, as a share of the smallest distance of two x."""
    positions = np.unique(axes.xaxis.get_transform().transform(x.to_numpy(float)))
    distances = np.ptp(positions) / np.diff(positions).min() if len(positions) > 1 else 1.0
    return min(WIDEST, (count - 1) * BETWEEN_SERIES * distances)
