"""Draws a figure, which `dpatlas_workflow.show.panel` describes, with matplotlib."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis as DrawnAxis
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.legend import Legend as DrawnLegend
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.transforms import ScaledTranslation
from scipy.optimize import isotonic_regression

from dpatlas_workflow.show.look import BAND_ALPHA, MUTED, NOTE_SIZE, THIN, Look
from dpatlas_workflow.show.mathtext import plain
from dpatlas_workflow.show.panel import (
    Axis,
    Contours,
    Ends,
    Legend,
    Panel,
    PanelGrid,
    Series,
    ShownFigure,
)

POINTS_PER_INCH = 72
# A log axis whose ends have a ratio below this gets evenly spaced ticks.
FEW = 3
BAR_WIDTH = 0.9
# Height of a line of a curve's name, as a share of a panel of about 1.6 inches.
LINE_OF_LABEL = 0.075
# Inches: of a legend's entry without its words, of a letter, and of a panel's words at its left.
ENTRY, LETTER, LEFT = 0.49, 0.047, 0.35
# Points: of a digit of a tick, and between two.
DIGIT, BETWEEN = 4.5, 3.0
# Of remarks, in shares of a panel.
CORNER = (0.03, 0.98)
# Where the legend of a panel stands that is not inside.
OUTSIDE: dict[str, dict[str, Any]] = {
    "beside": {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02)},
    "above": {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0},
}


def plot(shown: ShownFigure) -> Figure:
    """The figure, without the notes below it."""
    heights = [grid.height for grid in shown.grids]
    figure = Figure(figsize=(shown.width, sum(heights)))
    ends = zip(shown.ends("x"), shown.ends("y"), strict=True)
    # Grids of their own, so that the labels of one do not push the panels of the other aside.
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, grid in zip(parts if len(heights) > 1 else [figure], shown.grids, strict=True):
        if grid.heading:
            part.suptitle(grid.heading, weight="bold")
        part.align_ylabels(list(_draw_grid(part, grid, ends, shown.width)))
    if looks := shown.looks:
        columns = _columns(looks, shown.width)
        figure.legend(
            handles=[entry(look) for look in looks], loc="outside upper center", ncols=columns
        )
    return figure


def entry(look: Look) -> Line2D:
    """An entry of a legend, its marker not too small to be told from others."""
    return Line2D([], [], label=look.label, **_style(replace(look, size=max(look.size, 4))))


def _style(look: Look) -> dict[str, Any]:
    white = look.fill == "none"
    return {
        "color": look.color,
        "linestyle": look.linestyle or "none",
        "linewidth": look.width,
        "marker": look.marker,
        "markersize": look.size,
        "fillstyle": "full" if white else look.fill,
        "markerfacecolor": "white" if white else look.color,
        "markerfacecoloralt": "white",
        "markeredgecolor": look.edge or look.color,
        "markeredgewidth": THIN if look.edge else 1.0,
    }


def _columns(looks: Sequence[Look], width: float) -> int:
    """Of a legend above all panels: as many as have room in one line, else in few, full lines."""
    letters = [len(plain(look.label)) for look in looks]
    for lines in range(1, len(looks)):
        columns = math.ceil(len(looks) / lines)
        widest = [max(column) for column in np.array_split(letters, columns)]
        if sum(ENTRY + LETTER * each for each in widest) <= width:
            return columns
    return 1


def _draw_grid(
    box: Any, grid: PanelGrid, ends: Iterator[tuple[Ends, Ends]], width: float
) -> Iterator[Axes]:
    shape = len(grid.panels), grid.columns
    cells = box.add_gridspec(*shape, height_ratios=grid.heights, width_ratios=grid.widths)
    widths = np.array(grid.widths or [1] * grid.columns)
    for line, column, panel in grid.places():
        axes = box.add_subplot(cells[line : line + panel.lines, column])
        inches = width * widths[column] / widths.sum() - LEFT
        above = isinstance(panel.legend, Legend) and panel.legend.at == "above"
        axes.set_title(panel.title, loc="left" if above else "center")
        (x_ends, y_ends) = next(ends)
        _scale(axes, axes.xaxis, panel.x, x_ends, inches)
        _scale(axes, axes.yaxis, panel.y, y_ends, math.inf)
        if all(grid.neighbour(line, at, "x") for at, each in enumerate(grid.panels[line]) if each):
            axes.set_xlabel("")
            axes.tick_params(axis="x", which="both", labelbottom=False)
        if grid.neighbour(line, column, "y"):
            axes.set_ylabel("")
            axes.tick_params(axis="y", which="both", labelleft=False)
        _draw_panel(axes, panel)
        free = column + 1 < grid.columns and not any(grid.panels[line][column + 1 :])
        if isinstance(panel.legend, Legend):
            legend = _draw_legend(axes, panel.legend, panel.looks)
            legend.set_in_layout(not (panel.legend.at == "beside" and free))
        elif panel.legend == "ends" and not grid.beside(line, column):
            _name_ends(axes, panel.series)
        yield axes


def _scale(axes: Axes, drawn: DrawnAxis, axis: Axis, ends: Ends, inches: float) -> None:
    name = "x" if drawn is axes.xaxis else "y"
    scale, (low, high) = "log" if axis.log else "linear", ends
    axes.set(**{f"{name}scale": scale, f"{name}lim": ends, f"{name}label": axis.label})
    if axis.ticks is None and axis.log and FEW * low <= high < 100 * low and 1e-4 < low < 1e4:
        axis = replace(axis, ticks=_round_numbers(low, high))
    if axis.ticks is not None:
        ticks = fitting(axis, ends, inches)
        drawn.set_major_locator(ticker.FixedLocator(list(ticks)))
        drawn.set_major_formatter(ticker.FixedFormatter(list(ticks.values())))
        drawn.set_minor_locator(ticker.NullLocator())
        drawn.set_tick_params(rotation=45 if axis.turned else 0)
    elif axis.percent:
        drawn.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{100 * value:.4g}"))
    elif axis.log:
        drawn.set_minor_formatter(ticker.NullFormatter())
        if high < FEW * low:
            drawn.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))
            drawn.set_minor_locator(ticker.NullLocator())
            drawn.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))


def _round_numbers(low: float, high: float) -> list[float]:
    """Powers of ten and their multiples by 2 and 5, within a decade also by 3 and 7."""
    leads = (1, 2, 5) if high > 10 * low else (1, 2, 3, 5, 7)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    numbers = (float(f"{lead}e{power}") for power in powers for lead in leads)
    return [number for number in numbers if low <= number <= high]


def fitting(axis: Axis, ends: Ends, inches: float) -> dict[float, str]:
    """The ticks by number; of those without letters as many as have room, from the last on."""
    words = axis.words
    if any(letter.isalpha() for text in words.values() for letter in plain(text)):
        return words
    turn = math.log10 if axis.log else float
    start, end = map(turn, ends)
    kept, free = {}, math.inf
    for value in sorted(words, reverse=True):
        place = POINTS_PER_INCH * inches * (turn(value) - start) / (end - start)
        text = plain(words[value])
        half = DIGIT * (len(text) - text.count(".") / 2) / 2
        if place + half <= free or math.isinf(inches):
            kept[value] = words[value]
            free = place - half - BETWEEN
    return kept


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for span in panel.spans:
        low, high = span.y or (0, 1)
        scale = axes.transData if span.y else axes.get_xaxis_transform()
        corners = np.repeat(span.x, 2), [low, high, high, low]
        axes.fill(*corners, color=span.color, linewidth=0, zorder=0.5, transform=scale)
    if panel.contours is not None:
        _, lines = draw_contours(axes, panel.contours)
        axes.clabel(lines, fontsize=NOTE_SIZE, fmt="{:g}".format)
    thin: dict[str, Any] = {"color": MUTED, "linewidth": THIN, "zorder": 1}
    for height in panel.across:
        axes.axhline(height, **thin)
    for place in panel.upright:
        axes.axvline(place, **thin)
    for each in panel.series:
        draw_series(axes, each)
    for words in panel.words:
        across, up = words.align if words.at else ("left", "top")
        text = axes.text(*(words.at or CORNER), words.text, ha=across, va=up, color=words.color)
        text.set(fontsize=NOTE_SIZE, weight="bold" if words.bold else "normal")
        if words.at is None:
            text.set_transform(axes.transAxes)
        elif words.color != "white":
            text.set_path_effects([withStroke(linewidth=1.5, foreground="white")])
    if panel.image is not None:
        axes.imshow(panel.image, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axes.set_axis_off()
    if not panel.framed:
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
        axes.tick_params(length=0)
    if panel.square:
        axes.set_box_aspect(1)
        axes.set_anchor("N")


def draw_contours(axes: Axes, contours: Contours) -> tuple[ContourSet, ContourSet]:
    """What lies between levels, and the lines at them."""
    levels, grid = contours.levels, (contours.x, contours.y, contours.z)
    shades = [str(0.92 - 0.5 * place / (len(levels) or 1)) for place in range(len(levels))]
    widths = [1.4, *[0.5] * len(levels[1:])]
    return (
        axes.contourf(*grid, [*levels, np.inf], colors=shades),
        axes.contour(*grid, levels, colors="black", linewidths=widths),
    )


def _draw_legend(axes: Axes, legend: Legend, looks: Sequence[Look]) -> DrawnLegend:
    return axes.legend(
        handles=[entry(look) for look in looks],
        title=legend.heading or None,
        title_fontsize=NOTE_SIZE,
        handlelength=1.8,
        labelspacing=0.2,
        ncols=legend.columns,
        **OUTSIDE.get(legend.at, {"loc": legend.at}),
    )


def draw_series(axes: Axes, series: Series) -> None:
    """Line and markers, and intervals as bars or as a band."""
    look, before = series.look, set(axes.get_children())
    x, y = np.array(series.x, float), np.array(series.y, float)
    every, first = series.every
    scale = axes.get_xaxis_transform() if series.edge else axes.transData
    axes.plot(x, y, markevery=(first, every), transform=scale, **_style(look))
    bars: dict[str, Any] = {"color": look.color, "linewidth": BAR_WIDTH, "zorder": 2}
    if series.band and len(series.low):
        band: dict[str, Any] = {"color": look.color, "alpha": BAND_ALPHA, "linewidth": 0}
        axes.fill_between(x, series.low, series.high, **band)
    elif len(series.low):
        axes.vlines(x, series.low, series.high, **bars)
    if len(series.left):
        axes.hlines(y, series.left, series.right, **bars)
    figure = axes.get_figure(root=True)
    assert figure is not None
    shift = ScaledTranslation(series.aside / POINTS_PER_INCH, 0, figure.dpi_scale_trans)
    for artist in set(axes.get_children()) - before if series.aside else ():
        artist.set_transform(artist.get_transform() + shift)


def _name_ends(axes: Axes, series: Sequence[Series]) -> None:
    """Name curves right of a panel, each at the height of its end as far as names do not overlap.

    `\\n` in a label breaks its line.
    """
    to_height = axes.transData + axes.transAxes.inverted()
    ends = [(float(to_height.transform((each.x[-1], each.y[-1]))[1]), each.look) for each in series]
    ends.sort(key=itemgetter(0))
    leader = {"arrowstyle": "-", "linewidth": THIN, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
    places = _apart([height for height, _ in ends], [look.label for _, look in ends])
    for (height, look), place in zip(ends, places, strict=True):
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
