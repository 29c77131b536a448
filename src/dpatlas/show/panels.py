"""What panels of the figures of all papers share: legends, ticks, remarks."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
    ScalarFormatter,
    StrMethodFormatter,
)
from scipy.optimize import isotonic_regression

from dpatlas.show.look import NOTE_SIZE, THIN, Look

# How far an axis of accuracy goes beyond 0 and 1.
MARGIN = 0.02
# Height of a line of a curve's name, as a share of a panel of about 1.6 inches.
LINE_OF_LABEL = 0.075


def legend(figure: Figure, handles: list[Line2D], columns: int | None = None) -> None:
    """One legend above all panels."""
    figure.legend(handles=handles, loc="outside upper center", ncols=columns or len(handles))


def label_ticks(axes: Axes, values: Iterable[float]) -> None:
    """Label an x axis at exactly these values, as plain numbers.

    With a single value the axis spans one unit: points side by side would otherwise fill it.
    """
    ticks = sorted(set(values))
    if len(ticks) == 1:
        to_axis = axes.xaxis.get_transform()
        ends = to_axis.transform(ticks[0]) + np.array([-0.5, 0.5])
        axes.set_xlim(*to_axis.inverted().transform(ends))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())


def label_decades(axis: Axis) -> None:
    """Label a log axis of less than two decades at 1, 2 and 5 times the powers of ten.

    One of less than a decade has labels at 3 and 7 times these powers as well.
    """
    low, high = axis.get_view_interval()
    if high < 100 * low and low > 1e-4 and high < 1e5:
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_locator(LogLocator(subs=(2, 5) if high > 10 * low else (2, 3, 5, 7)))
        axis.set_minor_formatter(StrMethodFormatter("{x:g}"))


def label_sparsely(axis: Axis) -> None:
    """As `label_decades`, without the labels that matplotlib would put between decades."""
    axis.set_minor_formatter(NullFormatter())
    label_decades(axis)


def percent_axis(axis: Axis) -> None:
    """Label fractions as percentages, without the sign."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}"))


def accuracy_axis(axes: Axes) -> None:
    """A y axis of percentages, cut where intervals of very few runs go beyond 0 and 1.

    Call it after everything is drawn.
    """
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, -MARGIN), min(high, 1 + MARGIN))
    percent_axis(axes.yaxis)


def label_ends(axes: Axes, looks: Iterable[Look], ends: Iterable[tuple[float, float]]) -> None:
    """Name curves right of a panel, each at the height of its end as far as names do not overlap.

    Call it after everything is drawn: the axes keep their limits. `\\n` in a label breaks its line.
    """
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    to_height = axes.transData + axes.transAxes.inverted()
    heights = [float(to_height.transform(end)[1]) for end in ends]
    named = sorted(zip(heights, looks, strict=True), key=itemgetter(0))
    leader = {"arrowstyle": "-", "linewidth": THIN, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
    places = _apart([height for height, _ in named], [look.label for _, look in named])
    for (height, look), place in zip(named, places, strict=True):
        axes.annotate(
            look.label,
            (1.0, height),
            (1.06, place),
            xycoords="axes fraction",
            va="center",
            color=look.color,
            fontsize=NOTE_SIZE,
            arrowprops={**leader, "color": look.color},
        )


def _apart(heights: Sequence[float], texts: Sequence[str]) -> list[float]:
    """Heights of texts, as shares of a panel: those of their ends, moved apart and kept inside."""
    thick = [LINE_OF_LABEL * (1 + text.count("\n")) for text in texts]
    gaps = [(low + high) / 2 for low, high in pairwise(thick)]
    offsets = np.concatenate([[0.0], np.cumsum(gaps)])
    # Least squares for a given order and given least distances.
    places = isotonic_regression(np.array(heights) - offsets).x.clip(0, 1 - offsets[-1]) + offsets
    return list(places.tolist())


def write_in(axes: Axes, text: str) -> None:
    """A remark in the upper left corner of a panel."""
    axes.text(0.03, 0.98, text, transform=axes.transAxes, ha="left", va="top", fontsize=NOTE_SIZE)


def number(value: float) -> str:
    """Two or three digits; small and large numbers as powers of ten."""
    mantissa, mark, exponent = f"{value:.3g}".partition("e")
    return rf"${mantissa} \times 10^{{{int(exponent)}}}$" if mark else mantissa
