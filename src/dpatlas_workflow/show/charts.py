"""A figure as the data that the page's script draws, with values that can be asked for.

Ticks are chosen here, also those of the other scale.
"""

import base64
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.ticker import LogLocator, MaxNLocator

from dpatlas_workflow.show.look import MUTED, Look
from dpatlas_workflow.show.mathtext import in_unicode, number
from dpatlas_workflow.show.panel import (
    Axis,
    Contours,
    Ends,
    Legend,
    Panel,
    PanelGrid,
    Series,
    ShownFigure,
    Words,
)
from dpatlas_workflow.show.plot import CORNER, FEW, draw_contours

Chart = dict[str, Any]

# Digits of places on the axes, and of values, of which a reader is told as many.
DIGITS, TOLD = 5, 4
# Columns of the grid in which a page lays panels out.
TRACKS = 60
# Inches of a panel's words: beside it, and above and below it.
BESIDE, ABOVE = 0.55, 0.65
# Numbers that are this many times apart may be worth a logarithmic scale.
WIDE = 5
DASHES = {"-": "", "--": "6 3", "-.": "7 3 1.5 3", ":": "1.5 2.5"}


def chart_of(shown: ShownFigure, notes: Sequence[str]) -> Chart:
    """The panels, series, legends and notes of a figure.

    A panel has its place (`at`: the first of TRACKS equal columns and how many it takes, row and
    how many), its axes (`x`, `y`: ends, ticks, label and whether it is logarithmic; `other`: the
    same for the other scale, where all numbers are above 0; `quiet`: a neighbour has the words of
    its ticks; `percent`: these are percentages of its numbers) and what is in it. A series has
    numbers `x`, `y` and, with intervals, `low` and `high`, or `left` and `right`; `aside` is by how
    many points its ink is moved to the right, beside that of other series; `key` has the places of
    its entries in the legend of the panel, or, counted behind these, in that of the figure.
    """
    shared, panels, before = shown.looks, [], 0
    ends = zip(shown.ends("x"), shown.ends("y"), strict=True)
    for grid in shown.grids:
        heights, widths = grid.heights or [1] * len(grid.panels), grid.widths or [1] * grid.columns
        edges = np.round(TRACKS * np.cumsum([0, *widths]) / sum(widths)).astype(int).tolist()
        for line, column, panel in grid.places():
            start, end = edges[column : column + 2]
            high = grid.height * sum(heights[line : line + panel.lines]) / sum(heights) - ABOVE
            shape = round(high / (shown.width * (end - start) / TRACKS - BESIDE), 3)
            place = {"at": [start, end - start, before + line, panel.lines], "shape": shape}
            panels.append(place | _panel(grid, line, column, next(ends), shared))
        before += len(grid.panels)
    headings = [in_unicode(grid.heading) for grid in shown.grids if grid.heading]
    key = [_entry(look) for look in shared]
    return {"panels": panels, "key": key, "headings": headings, "notes": list(notes)}


def ticks_between(low: float, high: float, log: bool) -> list[list[Any]]:
    """Round numbers inside [low, high] with their words: powers of ten, or steps of 1, 2, 5, 10."""
    if log and high >= FEW * low:
        decades = math.log10(high / low)
        subs = (1.0,) if decades > 2 else (1.0, 2.0, 5.0)
        found = LogLocator(subs=subs, numticks=7).tick_values(low, high)
    else:
        found = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)
    # Steps of floats do not meet 0.
    rounded = (0.0 if abs(value) < 1e-9 * (high - low) else value for value in map(float, found))
    kept = (value for value in rounded if low <= value <= high)
    return [[_short(value), in_unicode(number(value))] for value in kept]


def _panel(
    grid: PanelGrid, line: int, column: int, ends: tuple[Ends, Ends], shared: Sequence[Look]
) -> Chart:
    panel = grid.panels[line][column]
    assert panel is not None
    title, above = in_unicode(panel.title), in_unicode(grid.title(line, column))
    looks = panel.looks if panel.legend is not None else []
    own, labels = [_entry(look) for look in looks], [look.label for look in (*looks, *shared)]
    if isinstance(panel.legend, Legend) and panel.legend.heading:
        own.insert(0, {"label": in_unicode(panel.legend.heading)})
        labels.insert(0, "")
    found: Chart = {
        "title": title,
        "x": _axis(panel.x, ends[0]),
        "y": _axis(panel.y, ends[1]) | _other(panel, ends[1]),
        "key": own,
        "series": [_series(each, labels) for each in panel.series],
        "rules": [
            {name: _short(at), "color": to_hex(MUTED), "dash": ""}
            for name, places in (("y", panel.across), ("x", panel.upright))
            for at in places
        ],
        "spans": [
            {"x": _shorts(span.x), "color": to_hex(span.color)}
            | ({"y": _shorts(span.y)} if span.y else {})
            for span in panel.spans
        ],
        "texts": [_text(words) for words in panel.words],
        "pictures": [] if panel.image is None else [_picture(panel.image)],
    }
    if panel.contours is not None:
        found["areas"], levels = _contours(panel.contours)
        found["texts"] += levels
    if grid.neighbour(line, column, "y"):
        found["y"]["quiet"] = True
    if above and not title:
        found["under"] = above
    return {name: value for name, value in found.items() if value != []}


def _series(series: Series, labels: Sequence[str]) -> Chart:
    look, told = series.look, {series.look.label, *series.told}
    found: Chart = {"color": to_hex(look.color)}
    for name in ("x", "y", "low", "high", "left", "right"):
        values = getattr(series, name)
        if name in "xy" or np.isfinite(np.array(values, float)).any():
            found[name] = _shorts(values, DIGITS if name == "x" else TOLD)
    found["key"] = [place for place, label in enumerate(labels) if label in told]
    if look.linestyle:
        found |= {"line": True, "dash": DASHES[look.linestyle], "width": look.width}
    if look.marker:
        found |= {"marker": look.marker, "size": look.size, "every": series.every[0]}
        found["open"] = _opening(look)
    marks = {"band": series.band, "edge": series.edge, "aside": _short(series.aside, 2)}
    return found | {name: mark for name, mark in marks.items() if mark}


def _axis(axis: Axis, ends: Ends) -> Chart:
    words, unit = axis.words, 100 if axis.percent else 1
    ticks = [[_short(at), in_unicode(text)] for at, text in sorted(words.items())]
    if axis.ticks is None:
        low, high = sorted(unit * end for end in ends)
        ticks = [[_short(at / unit), text] for at, text in ticks_between(low, high, axis.log)]
    label, percent = in_unicode(axis.label), {"percent": True} if axis.percent else {}
    return {"label": label, "ends": _shorts(ends), "log": axis.log, "ticks": ticks, **percent}


def _other(panel: Panel, ends: Ends) -> Chart:
    """The other scale of the y axis, where it may tell more."""
    heights = (y for each in panel.series for y in (*each.y, *each.low, *each.high))
    known = [y for y in heights if math.isfinite(y)]
    least, most = min(known, default=0), max(known, default=0)
    log = not panel.y.log
    if panel.y.ticks is not None or least <= 0 or (log and most <= WIDE * least):
        return {}
    room = (most / least) ** 0.05 if log else 0.05 * most
    low, high = (least / room, most * room) if log else (0.0, most + room)
    if low == high:
        low, high = low / 2, high * 2
    return {
        "other": {"ends": _shorts((low, high)), "log": log, "ticks": ticks_between(low, high, log)}
    }


def _entry(look: Look) -> Chart:
    entry: Chart = {"label": in_unicode(look.label).replace("\n", " "), "color": to_hex(look.color)}
    if look.linestyle:
        entry |= {"dash": DASHES[look.linestyle], "width": look.width}
    if look.marker:
        entry |= {"marker": look.marker, "open": _opening(look)}
    return entry


def _opening(look: Look) -> bool | str:
    return look.fill == "none" if look.fill in ("none", "full") else look.fill


def _contours(contours: Contours) -> tuple[list[Chart], list[Chart]]:
    """What lies between levels and the lines at them, and the levels in the middle of these."""
    filled, lines = draw_contours(Figure().subplots(), contours)
    areas, texts = [], []
    for color, path in zip(np.array(filled.get_facecolor()), filled.get_paths(), strict=True):
        points = [_points(part) for part in path.to_polygons()]
        areas.append({"color": to_hex(color), "filled": True, "points": points})
    for level, path in zip(contours.levels, lines.get_paths(), strict=True):
        points = [_points(part) for part in path.to_polygons(closed_only=False)]
        areas.append({"color": "#000000", "filled": False, "points": points})
        longest = max(points, key=len)
        texts.append(_text(Words(f"{level:g}", longest[len(longest) // 2])))
    return areas, texts


def _points(polygon: Any) -> list[Any]:
    return [_shorts(point) for point in polygon]


def _text(words: Words) -> Chart:
    place = {"at": _shorts(words.at)} if words.at else {"part": list(CORNER)}
    align = list(words.align if words.at else ("left", "top"))
    text, color = in_unicode(words.text), to_hex(words.color)
    return {"text": text, "color": color, "align": align, **place}


def _picture(image: np.ndarray) -> Chart:
    file = io.BytesIO()
    no_name: Any = {"Software": None}
    imsave(file, image, cmap="gray_r", vmin=0, vmax=1, format="png", metadata=no_name)
    height, width = image.shape
    png = base64.b64encode(file.getvalue()).decode()
    return {"png": png, "x": [-0.5, width - 0.5], "y": [height - 0.5, -0.5]}


def _shorts(values: Iterable[float], digits: int = DIGITS) -> list[Any]:
    return [_short(value, digits) for value in values]


def _short(value: float, digits: int = DIGITS) -> Any:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
