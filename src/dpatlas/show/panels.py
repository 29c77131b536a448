"""What panels of the figures of all papers share: legends, ticks, remarks."""

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullLocator,
    ScalarFormatter,
    StrMethodFormatter,
)

from dpatlas.show.look import NOTE_SIZE


def legend(figure: Figure, handles: list[Line2D], columns: int | None = None) -> None:
    """One legend above all panels."""
    figure.legend(handles=handles, loc="outside upper center", ncols=columns or len(handles))


def label_ticks(axes: Axes, values: Iterable[float]) -> None:
    """Label an x axis at exactly these values, as plain numbers."""
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(values))))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())


def label_decades(axis: Axis) -> None:
    """Label a log axis of less than two decades at 1, 2 and 5 times the powers of ten."""
    low, high = axis.get_view_interval()
    if high < 100 * low and low > 1e-4 and high < 1e5:
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter(StrMethodFormatter("{x:g}"))


def percent_axis(axis: Axis) -> None:
    """Label fractions as percentages, without the sign."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}"))


def write_in(axes: Axes, text: str, right: bool = False, low: bool = False) -> None:
    """A remark in a corner of a panel."""
    x, side = (0.98, "right") if right else (0.03, "left")
    y, edge = (0.03, "bottom") if low else (0.98, "top")
    axes.text(x, y, text, transform=axes.transAxes, ha=side, va=edge, fontsize=NOTE_SIZE)


def number(value: float) -> str:
    """Two or three digits; small and large numbers as powers of ten."""
    mantissa, mark, exponent = f"{value:.3g}".partition("e")
    return rf"${mantissa} \times 10^{{{int(exponent)}}}$" if mark else mantissa
