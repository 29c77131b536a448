"""A figure as data: panels with axes, series and words, beside the rows of its csv.

`show.plot` draws it with matplotlib, `show.charts` writes it for the page. Words may hold formulas
as matplotlib takes them. Axes that are equal are one: panels with the same axis have the same ends,
and its words stand once where they are neighbours.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np

from dpatlas_workflow.show.look import DOUBLE_COLUMN, MUTED, Look
from dpatlas_workflow.show.mathtext import number
from dpatlas_workflow.show.rows import Row

Ends = tuple[float, float]
# A column of rows, or what is computed from a row.
Column = str | Callable[[Row], Any]
Looks = Mapping[Any, Look]

# How far an axis of accuracy goes beyond 0 and 1.
BEYOND = 0.02
# Points between neighbouring series at one x; all together take the width of a marker at most.
BETWEEN_SERIES = 1.5
# Height, as a share of the panel, of the crosses where every run diverged.
EDGE = 0.97


@dataclass(frozen=True)
class Axis:
    """An axis: what it shows, its scale, and where it ends if that is not for the data to say.

    label: quantity and unit; log: whether the scale is logarithmic; ends: the first and the last
    number, None where the data decide; within: beyond which it does not go for the data's sake;
    ticks: the numbers that are labelled, all or as many as have room, or their words by number, ()
    for none; percent: fractions, labelled as percentages; margin: room at both ends, as a share of
    the data; turned: words stand aslant; of: tells apart axes that are not to be one.
    """

    label: str = ""
    log: bool = False
    ends: tuple[float | None, float | None] = (None, None)
    within: Ends = (-math.inf, math.inf)
    ticks: Sequence[float] | Mapping[float, str] | None = None
    percent: bool = False
    margin: float = 0.05
    turned: bool = False
    of: Hashable = None

    @property
    def words(self) -> dict[float, str]:
        """The words of the ticks by number."""
        if isinstance(self.ticks, Mapping):
            return dict(self.ticks)
        unit = 100 if self.percent else 1
        return {value: number(unit * value, 6) for value in self.ticks or ()}

    def around(self, numbers: Iterable[float]) -> Ends:
        """The ends of the axis if these numbers are drawn, some of which may be nan."""
        known = [value for value in numbers if math.isfinite(value) and (value > 0 or not self.log)]
        turn, back = (math.log10, lambda value: 10**value) if self.log else (float, float)
        low, high = turn(min(known, default=1.0)), turn(max(known, default=1.0))
        # A single number with ticks stands in the middle of one unit: series beside it stay near.
        room = self.margin * (high - low) or (0.5 if self.ticks or self.log else 0.05 * abs(high))
        low, high = max(back(low - room), self.within[0]), min(back(high + room), self.within[1])
        start, end = self.ends
        return low if start is None else start, high if end is None else end


def accuracy(label: str = "test accuracy, %", **axis: Any) -> Axis:
    """An axis of accuracies, cut where intervals of very few runs go beyond 0 and 1."""
    return Axis(label, percent=True, within=(-BEYOND, 1 + BEYOND), **axis)


def names(words: Iterable[str], label: str = "", **axis: Any) -> Axis:
    """An axis of categories, which stand at 0, 1, ..."""
    ticks: dict[float, str] = dict(enumerate(words))
    return Axis(label, ticks=ticks, **{"ends": (-0.5, len(ticks) - 0.5), **axis})


@dataclass(frozen=True)
class Series:
    """Points, and a line through them if their look has one.

    x, y: numbers, nan where there is none; low to high, left to right: intervals of y and of x, ()
    without; band: whether the interval of y is a band, not bars; every: of how many points one has
    a marker, and the first; aside: points by which the ink is moved to the right; told: labels of a
    legend that speak of it besides that of its look; edge: whether y are shares of the height.
    """

    look: Look
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    left: Sequence[float] = ()
    right: Sequence[float] = ()
    band: bool = False
    every: tuple[int, int] = (1, 0)
    aside: float = 0.0
    told: tuple[str, ...] = ()
    edge: bool = False


@dataclass(frozen=True)
class Words:
    """Text at a point of the axes, or in the upper left corner where `at` is None.

    align: which part of the text is there, as matplotlib names it, horizontally and vertically.
    """

    text: str
    at: tuple[float, float] | None = None
    color: str = "black"
    align: tuple[Any, Any] = ("center", "center")
    bold: bool = False


@dataclass(frozen=True)
class Contours:
    """Where z, (y, x), reaches the levels: ever darker; the line at the first is thick."""

    x: Sequence[float]
    y: Sequence[float]
    z: np.ndarray
    levels: Sequence[float]


@dataclass(frozen=True)
class Span:
    """A coloured rectangle; without y, over the whole height."""

    color: str
    x: Ends
    y: Ends | None = None


@dataclass(frozen=True)
class Legend:
    """The legend of a panel: inside at a place that matplotlib names, `beside` or `above` it.

    looks: the entries; None for those of the panel's series.
    """

    at: str = "best"
    looks: Sequence[Look] | None = None
    heading: str = ""
    columns: int = 1


@dataclass(frozen=True)
class Panel:
    """What is drawn between two axes.

    across, upright: thin lines at these y and x; legend: `ends` names curves at their ends, right
    of the last of panels that stand beside each other and share their y axis; image: grey levels
    from 0 to 1, (height, width), nan for none, without axes; framed: whether axes have lines;
    square: whether it is as high as it is wide; lines: how many lines of the grid it takes.
    """

    title: str = ""
    x: Axis = Axis()
    y: Axis = Axis()
    series: Sequence[Series] = ()
    across: Sequence[float] = ()
    upright: Sequence[float] = ()
    spans: Sequence[Span] = ()
    words: Sequence[Words] = ()
    legend: Legend | Literal["ends"] | None = None
    contours: Contours | None = None
    image: np.ndarray | None = None
    framed: bool = True
    square: bool = False
    lines: int = 1

    @property
    def looks(self) -> list[Look]:
        """The entries of its legend, or what it adds to that of the figure."""
        if isinstance(self.legend, Legend) and self.legend.looks is not None:
            return list(self.legend.looks)
        return list(
            {each.look.label: each.look for each in self.series if each.look.label}.values()
        )

    def numbers(self, name: str) -> list[float]:
        """What is drawn along the axis `x` or `y`."""
        upright = name == "y"
        parts = ("y", "low", "high") if upright else ("x", "left", "right")
        drawn = [each for each in self.series if not (upright and each.edge)]
        found = list(chain.from_iterable(getattr(s, part) for s in drawn for part in parts))
        found += self.across if upright else self.upright
        spans = (span.y if upright else span.x for span in self.spans)
        return [*found, *chain.from_iterable(filter(None, spans))]


def picture(title: str, image: np.ndarray) -> Panel:
    """A panel of an image alone: grey levels from 0 to 1, (height, width), nan for none."""
    height, width = image.shape
    x, y = (Axis(ends=ends, ticks=()) for ends in ((-0.5, width - 0.5), (height - 0.5, -0.5)))
    return Panel(title, x, y, image=image)


@dataclass(frozen=True)
class PanelGrid:
    """Lines of panels, None where a place is free, under a heading.

    height: inches of all lines, with titles and axes; heights, widths: of lines and columns in
    proportion.
    """

    panels: Sequence[Sequence[Panel | None]]
    height: float
    heading: str = ""
    heights: Sequence[float] | None = None
    widths: Sequence[float] | None = None

    @property
    def columns(self) -> int:
        """How many columns it has."""
        return max(map(len, self.panels))

    def places(self) -> Iterator[tuple[int, int, Panel]]:
        """Line, column and panel."""
        for line, panels in enumerate(self.panels):
            yield from ((line, column, each) for column, each in enumerate(panels) if each)

    def neighbour(self, line: int, column: int, name: str) -> Panel | None:
        """The nearest panel below or at the left with the same axis, whose words are this one's."""
        others = (
            self.panels[line][:column][::-1] if name == "y" else self._column(column)[line + 1 :]
        )
        return self._alike(line, column, name, others)

    def beside(self, line: int, column: int) -> Panel | None:
        """The nearest panel at the right with the same y axis."""
        return self._alike(line, column, "y", self.panels[line][column + 1 :])

    def title(self, line: int, column: int) -> str:
        """The title of the panel, or of the nearest with one above it that has the same x axis."""
        above = [each for each in self._column(column)[line::-1] if each and each.title]
        titled = self._alike(line, column, "x", above)
        return titled.title if titled else ""

    def _column(self, column: int) -> list[Panel | None]:
        return [panels[column] if column < len(panels) else None for panels in self.panels]

    def _alike(
        self, line: int, column: int, name: str, others: Iterable[Panel | None]
    ) -> Panel | None:
        axis = getattr(self.panels[line][column], name)
        return next((each for each in others if each and getattr(each, name) == axis), None)


@dataclass(frozen=True)
class ShownFigure:
    """A figure, the numbers in it, and what a reader must be told below it.

    rows: the csv, with the keys `columns` and `runs`, the ids of the records behind the row;
    legend: entries of the one above all panels, None for what its panels show; width in inches.
    """

    grids: Sequence[PanelGrid]
    columns: tuple[str, ...]
    rows: list[Row]
    notes: list[str]
    legend: Sequence[Look] | None = None
    width: float = DOUBLE_COLUMN

    @property
    def panels(self) -> list[Panel]:
        """All panels, line by line."""
        return [panel for grid in self.grids for _, _, panel in grid.places()]

    @property
    def looks(self) -> list[Look]:
        """The entries of the legend above all panels."""
        if self.legend is not None:
            return list(self.legend)
        shared = (look for panel in self.panels if panel.legend is None for look in panel.looks)
        return list({look.label: look for look in shared}.values())

    def ends(self, name: str) -> list[Ends]:
        """Where the `x` or `y` axis of every panel ends."""
        axes = [getattr(panel, name) for panel in self.panels]
        numbers = [panel.numbers(name) for panel in self.panels]
        return [
            axis.around(
                n for other, n_of in zip(axes, numbers, strict=True) if other == axis for n in n_of
            )
            for axis in axes
        ]


def series(
    rows: Iterable[Row],
    x: Column,
    looks: Looks,
    by: Column = "series",
    y: str = "value",
    **style: Any,
) -> list[Series]:
    """A series for every look that has rows, by what these have in `by`, along their `x`.

    A row has a number `value`, its interval `low` to `high`, `runs_used` and `runs_diverged`; any
    of these may be missing. Where some runs diverged the marker is open; where all did a cross
    stands at the edge. style: the rest of every `Series`.
    """
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(_of(row, by), []).append(row)
    found = []
    for name, look in looks.items():
        if shown := sorted(groups.get(name, ()), key=lambda row: _of(row, x)):
            low, high = ([_number(row.get(end)) for row in shown] for end in ("low", "high"))
            ends = {} if np.isnan(low).all() else {"low": low, "high": high}
            # A line through one point would not be seen.
            look = replace(look, marker=look.marker or "_") if len(shown) == 1 else look
            at, heights = [_of(row, x) for row in shown], [_number(row.get(y)) for row in shown]
            found.append(Series(look, at, heights, **{**ends, **style}))
            found += _marks(found[-1], shown) if look.marker else []
    return found


def _marks(series: Series, rows: Sequence[Row]) -> Iterator[Series]:
    """Of the points at which some runs diverged, and of those at which all did."""
    every, first = series.every
    lost = [place for place, row in enumerate(rows) if row.get("runs_diverged")]
    none = [place for place in lost if not rows[place]["runs_used"]]
    some = [place for place in lost if rows[place]["runs_used"] and (place - first) % every == 0]
    bare = replace(series.look, linestyle="")
    for places, look, edge in (
        (some, replace(bare, fill="none"), False),
        (none, replace(bare, marker="X"), True),
    ):
        if places:
            x, y = ([values[place] for place in places] for values in (series.x, series.y))
            y = [EDGE] * len(x) if edge else y
            yield Series(look, x, y, told=series.told, edge=edge)


def points(
    rows: Iterable[Row], x: Column, looks: Looks, by: Column = "series", **style: Any
) -> list[Series]:
    """As `series`, the ink of each moved by a few points, so that bars do not cover each other.

    A marker still covers its x.
    """
    found = series(rows, x, looks, by, **style)
    shown = list(dict.fromkeys(each.look.label for each in found))
    size = max((each.look.size for each in found), default=0)
    widest = min(size, BETWEEN_SERIES * (len(shown) - 1))
    aside = dict(zip(shown, np.linspace(-widest / 2, widest / 2, len(shown)).tolist(), strict=True))
    return [replace(each, aside=aside[each.look.label]) for each in found]


def spaced(curves: Sequence[Series]) -> list[Series]:
    """The series with about four markers each, all at other points."""
    every = max([1, *(len(curve.x) // 4 for curve in curves)])
    return [replace(curve, every=(every, first % every)) for first, curve in enumerate(curves)]


def printed(rows: Iterable[Row], x: Column, looks: Looks, by: Column = "series") -> list[Series]:
    """Numbers that a paper prints, as open diamonds in the colours of the series."""
    open_diamonds = {name: replace(PRINTED, color=look.color) for name, look in looks.items()}
    return series(rows, x, open_diamonds, by)


PRINTED = Look("printed in the paper", MUTED, "D", "", size=5, fill="none")


def _of(row: Row, column: Column) -> Any:
    return row.get(column) if isinstance(column, str) else column(row)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
