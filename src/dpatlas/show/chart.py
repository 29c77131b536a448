"""A drawn figure as data that the page's script draws again, with values that can be asked for.

The numbers are read off the axes, so that every figure has a chart without code of its own, and
the chart has what the picture has. Ticks are chosen here, also those of the other scale.
"""

import base64
import io
import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import cycle, islice
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.image import AxesImage, imsave
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from matplotlib.text import Annotation, Text
from matplotlib.ticker import LogLocator, MaxNLocator
from matplotlib.transforms import Transform

Chart = dict[str, Any]

# Digits of places on the axes, and of values, of which a reader is told as many.
DIGITS, TOLD = 5, 4
# Two panels begin at one place if their edges are nearer than this share of the figure.
SAME_EDGE = 0.02
# Columns of the grid in which a page lays panels out, and the share of a figure's width that the
# words at the left of a panel may take.
TRACKS, WORDS = 60, 0.055
# Numbers that are this many times apart may be worth a logarithmic scale.
WIDE = 5
POINTS_PER_INCH = 72
# Less is rounding: ink that is moved aside is moved by more points.
LEAST_ASIDE = 0.01
# Fill styles of markers of which one half is white.
HALVES = ("left", "right", "bottom", "top")
DASHES = {"-": "", "--": "6 3", "-.": "7 3 1.5 3", ":": "1.5 2.5", "None": ""}
# Series of this grey in a legend stand for series of any colour.
ANY_GREY = ("0.6", "0.5", "0.35")
SYMBOLS = {
    r"\times": "×",
    r"\leq": "≤",
    r"\geq": "≥",
    r"\le": "≤",
    r"\ge": "≥",
    r"\ll": "≪",
    r"\gg": "≫",
    r"\pm": "±",
    r"\cdot": "·",
    r"\infty": "∞",
    r"\int": "∫",
    r"\sqrt": "√",
    r"\propto": "∝",
    r"\approx": "≈",
    r"\sim": "~",
    r"\to": "→",
    r"\in": "∈",
    r"\ell": "ℓ",
    r"\Vert": "‖",
    r"\|": "‖",
    r"\,": " ",
    r"\ ": " ",
    "-": "−",
}
SUPERSCRIPTS = str.maketrans("0123456789n", "⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ")
GREEK = {
    rf"\{name}": letter
    for names, letters in (
        (
            "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi "
            "rho varsigma sigma tau upsilon phi chi psi omega",
            "αβγδεζηθικλμνξοπρςστυφχψω",
        ),
        ("Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega", "ΓΔΘΛΞΠΣΦΨΩ"),
    )
    for name, letter in zip(names.split(), letters, strict=True)
}


def chart_of(figure: Figure, notes: Sequence[str]) -> Chart:
    """The panels, series, legends and notes of a figure that has been laid out.

    A panel has its place (`at`: the first of TRACKS equal columns and how many it takes, row and
    how many), its axes (`x`, `y`: ends, ticks, label and whether it is logarithmic; `other`: the
    same for the other scale, where all numbers are above 0; `quiet`: a neighbour has the words of
    its ticks; `percent`: these are percentages of its numbers) and what is in it. A series has
    numbers `x`, `y` and, with intervals, `low` and `high`, or `left` and `right`; `aside` is by how
    many points its ink is moved to the right, beside that of other series; `key` has the places of
    its entries in the legend of the panel, or, counted behind these, in that of the figure.
    """
    shared = [entry for legend in figure.legends for entry in _entries(legend)]
    shown = [axes for axes in figure.axes if axes.get_visible() and _says_something(axes)]
    boxes = [_box(axes) for axes in shown]
    places = _places(boxes)
    height, width = figure.get_figheight(), figure.get_figwidth()
    panels = []
    for axes, place, tracks, box in zip(shown, places, _tracks(boxes), boxes, strict=True):
        left, bottom, right, top = box
        shape = round((top - bottom) * height / ((right - left) * width), 3)
        panels.append({"at": [*tracks, *place[2:]], "shape": shape} | _panel(axes, shared))
    _inherit(panels, places)
    for panel, title in zip(panels, _titles_above(shown), strict=True):
        if title and not panel["title"]:
            panel["under"] = title
    headings = [words(text.get_text()) for text in figure.texts if text.get_text()]
    return {
        "panels": panels,
        "key": shared,
        "headings": headings,
        "notes": list(notes),
    }


def words(text: str) -> str:
    """Matplotlib's text with formulas in Unicode; powers and indices stay ^{...} and _{...}."""
    parts = re.split(r"(?<!\\)\$", text)
    parts[1::2] = [_formula(part) for part in parts[1::2]]
    return "".join(parts).replace(r"\$", "$").replace("\N{MINUS SIGN}", "−")


def _formula(text: str) -> str:
    text = re.sub(r"\\(?:mathdefault|mathrm|text|mathbf|mathcal|mathbb)\b", "", text)
    text = re.sub(r"\\var(?=epsilon|theta|phi)", r"\\", text)
    text = re.sub(r"\\(?:hat|bar|tilde)\{?(\\?\w+)\}?", r"\1", text)
    text = re.sub(r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2", text)
    for name, symbol in (SYMBOLS | GREEK).items():
        ending = r"(?![a-zA-Z])" if name[-1].isalpha() else ""
        text = re.sub(re.escape(name) + ending, symbol, text)
    text = re.sub(r"([\^_])([^{\s])", r"\1{\2}", text)
    # A power in a power.
    text = re.sub(r"(\{[^{}]*)\^\{([0-9n])\}", lambda m: m[1] + m[2].translate(SUPERSCRIPTS), text)
    # Braces that group nothing but what is drawn alike, from the inside out.
    before = ""
    while before != text:
        before, text = text, re.sub(r"(?<![\^_])\{((?:[^{}]|[\^_]\{[^{}]*\})*)\}", r"\1", text)
    return re.sub(r"\s*([=<>≤≥≪≫×≈])\s*", r" \1 ", text).replace("\\", "")


def ticks_between(low: float, high: float, log: bool) -> list[list[Any]]:
    """Round numbers inside [low, high] with their words: powers of ten, or steps of 1, 2, 5, 10."""
    if log:
        decades = math.log10(high / low)
        subs = (1.0,) if decades > 2 else (1.0, 2.0, 5.0)
        found = LogLocator(subs=subs, numticks=7).tick_values(low, high)
    else:
        found = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)
    # Steps of floats do not meet 0.
    rounded = (0.0 if abs(value) < 1e-9 * (high - low) else value for value in map(float, found))
    return [[_short(value), _as_words(value)] for value in rounded if low <= value <= high]


def _as_words(value: float) -> str:
    mantissa, mark, exponent = f"{value:.3g}".partition("e")
    power = f"10^{{{int(exponent or 0)}}}"
    if not mark:
        return mantissa.replace("-", "−")
    lead = "" if mantissa == "1" else f"{mantissa} × "
    return f"{lead}{power}".replace("-", "−")


def _inherit(panels: Sequence[Chart], places: Sequence[Sequence[int]]) -> None:
    """Labels that panels share stand at the outer ones only: every panel gets them."""
    placed = [(each, at[0], at[2]) for each, at in zip(panels, places, strict=True)]
    for panel, column, row in placed:
        below = [each for each, at, down in placed if at == column and down > row]
        beside = [each for each, at, down in placed if down == row and at < column]
        for name, others in (("x", below), ("y", beside)):
            axis = panel[name]
            if not axis["label"] and axis["ticks"]:
                alike = (each[name] for each in others if each[name]["ends"] == axis["ends"])
                axis["label"] = _first(each["label"] for each in alike)


def _titles_above(shown: Sequence[Axes]) -> list[str]:
    """Of every panel the title of the nearest one above in its column, which has the same x axis.

    A panel with another x axis shows something else.
    """
    titles = []
    for axes in shown:
        shared = axes.get_shared_x_axes()
        left, bottom, *_ = _box(axes)
        column = [
            (_box(other)[1], _title(other))
            for other in shown
            if shared.joined(axes, other) and abs(_box(other)[0] - left) < SAME_EDGE
        ]
        titles.append(_first(title for at, title in sorted(column) if at > bottom))
    return titles


def _title(axes: Axes) -> str:
    return words(axes.get_title("left") + axes.get_title() + axes.get_title("right"))


def _first(texts: Iterable[str]) -> str:
    """The first that is not empty."""
    return next(filter(None, texts), "")


def _panel(axes: Axes, shared: Sequence[Chart]) -> Chart:
    legend = axes.get_legend()
    own = _entries(legend) if legend else _named_lines(axes)
    series, rest = _series(axes)
    for each in series:
        each["key"] = [place for place, entry in enumerate([*own, *shared]) if _fits(each, entry)]
    panel: Chart = {
        "title": _title(axes),
        "x": _axis(axes.xaxis, False, [x for each in series for x in each["x"]]),
        "y": _axis(axes.yaxis, True, [y for each in series for y in _heights(each)]),
        "key": own,
        "series": series,
        **rest,
    }
    return {name: value for name, value in panel.items() if value != []}


def _series(axes: Axes) -> tuple[list[Chart], Chart]:
    """Lines, points and bands of a panel, and what else is in it."""
    series: list[Chart] = []
    strokes: list[tuple[str, list[float], list[float], str]] = []
    bands: list[Chart] = []
    rest: Chart = {"rules": [], "spans": [], "texts": [], "areas": [], "pictures": []}
    for artist in axes.get_children():
        if not artist.get_visible() or artist is axes.patch:
            continue
        if isinstance(artist, Line2D):
            _read_line(axes, artist, series, strokes, rest)
        elif isinstance(artist, ContourSet):
            _read_contours(artist, rest)
        elif isinstance(artist, PathCollection):
            _read_points(artist, series)
        elif isinstance(artist, PolyCollection):
            bands.append(_band(artist))
        elif isinstance(artist, LineCollection):
            color = _hex(artist.get_edgecolor()[0])
            dash = _dash_of(artist)
            # A stroke without finite ends (the interval of one run) has no points at all.
            drawn = filter(len, artist.get_segments())
            strokes += [(color, *np.asarray(each).T.tolist(), dash) for each in drawn]
        elif isinstance(artist, Rectangle):
            _read_rectangle(axes, artist, rest)
        elif isinstance(artist, AxesImage):
            rest["pictures"].append(_picture(artist))
        elif isinstance(artist, Annotation) and artist.xycoords == "axes fraction":
            # The name of a curve beside the panel: the legend has it.
            continue
        elif isinstance(artist, Text) and artist in axes.texts and artist.get_text():
            rest["texts"].append(_text(axes, artist))
    _join_bars(series, strokes)
    _join_bands(series, bands)
    return [_rounded(each) for each in series], rest


def _read_line(
    axes: Axes,
    line: Line2D,
    series: list[Chart],
    strokes: list[tuple[str, list[float], list[float], str]],
    rest: Chart,
) -> None:
    x, y = (np.ma.filled(np.ma.asarray(v, float), np.nan).tolist() for v in line.get_data(False))
    color = _hex(line.get_color())
    dash = DASHES.get(str(line.get_linestyle()), "")
    marker = str(line.get_marker())
    marked = marker not in ("None", "", " ")
    if not x or not (np.isfinite(x) & np.isfinite(y)).any():
        return
    transform = line.get_transform()
    if _across(transform, axes.get_yaxis_transform()) and not marked:
        rest["rules"].append({"y": _short(y[0]), "color": color, "dash": dash})
    elif _across(transform, axes.get_xaxis_transform()) and not marked:
        rest["rules"].append({"x": _short(x[0]), "color": color, "dash": dash})
    elif not marked and len(x) == 2 and x[0] == x[1]:
        strokes.append((color, x, y, dash))
    else:
        found: Chart = {"color": color, "x": x, "y": y}
        if str(line.get_linestyle()) not in ("None", ""):
            found |= {"line": True, "dash": dash, "width": _short(line.get_linewidth())}
        if marked:
            found["marker"] = marker
            every = line.get_markevery()
            found["every"] = every if isinstance(every, int) else 1
            found["size"] = _short(line.get_markersize())
            found["open"] = _opening(line)
        for base, edge in ((axes.transData, False), (axes.get_xaxis_transform(), True)):
            aside = _aside(transform, base)
            if aside is not None:
                found |= {"edge": True} if edge else {}
                points = _short(aside * POINTS_PER_INCH / axes.figure.dpi, 2)
                found |= {"aside": points} if abs(points) > LEAST_ASIDE else {}
                break
        series.append(found)


def _read_points(points: PathCollection, series: list[Chart]) -> None:
    """Points of a scatter plot, a series for every colour and marker."""
    places = np.asarray(points.get_offsets(), float)
    # One of all points, or one of each.
    colors = cycle(map(_hex, points.get_facecolor()))
    names = _marker_names()
    markers = cycle(names.get(_bytes_of(path), "o") for path in points.get_paths())
    looks = list(islice(zip(colors, markers, strict=False), len(places)))
    for color, marker in dict.fromkeys(looks):
        chosen = places[[each == (color, marker) for each in looks]]
        x, y = chosen.T.tolist()
        series.append({"color": color, "x": x, "y": y, "marker": marker, "size": 2.5})


@cache
def _marker_names() -> dict[bytes, str]:
    """Matplotlib's names of markers by their outlines."""
    markers = map(MarkerStyle, MarkerStyle.filled_markers)
    return {
        _bytes_of(marker.get_path().transformed(marker.get_transform())): str(marker.get_marker())
        for marker in markers
    }


def _bytes_of(outline: Path) -> bytes:
    return np.asarray(outline.vertices, float).tobytes()


def _read_rectangle(axes: Axes, box: Rectangle, rest: Chart) -> None:
    (x, y), width, height = box.get_xy(), box.get_width(), box.get_height()
    if not width or not height:
        return
    across = _across(box.get_transform(), box.get_patch_transform() + axes.get_xaxis_transform())
    found: Chart = {"x": [_short(x), _short(x + width)], "color": _hex(box.get_facecolor())}
    rest["spans"].append(found if across else found | {"y": [_short(y), _short(y + height)]})


def _read_contours(contours: ContourSet, rest: Chart) -> None:
    filled = bool(contours.filled)
    colors: Any = contours.get_facecolor() if filled else contours.get_edgecolor()
    for number, path in enumerate(contours.get_paths()):
        polygons: list[Any] = path.to_polygons(closed_only=filled)
        rest["areas"].append(
            {
                "color": _hex(colors[number % len(colors)]),
                "filled": filled,
                "points": [[[_short(x), _short(y)] for x, y in each] for each in polygons],
            }
        )


def _band(band: PolyCollection) -> Chart:
    ends: dict[float, list[float]] = {}
    for path in band.get_paths():
        for x, y in np.asarray(path.vertices).tolist():
            ends.setdefault(x, []).append(y)
    x = sorted(ends)
    low, high = [min(ends[at]) for at in x], [max(ends[at]) for at in x]
    return {"color": _hex(band.get_facecolor()[0]), "x": x, "low": low, "high": high}


def _join_bars(
    series: list[Chart], strokes: Iterable[tuple[str, list[float], list[float], str]]
) -> None:
    """Vertical strokes through a point are its interval; others are lines of their own."""
    for color, x, y, dash in strokes:
        if len(x) == 2 and x[0] == x[1] and _give_interval(series, color, ("x", "y"), x[0], y):
            continue
        if len(x) == 2 and y[0] == y[1] and _give_interval(series, color, ("y", "x"), y[0], x):
            continue
        if np.isfinite([*x, *y]).all() and (x[0], y[0]) != (x[-1], y[-1]):
            line = {"line": True, "dash": dash, "width": 0.8}
            series.append({"color": color, "x": list(x), "y": list(y)} | line)


def _give_interval(
    series: list[Chart], color: str, names: tuple[str, str], at: float, ends: Sequence[float]
) -> bool:
    """Whether the stroke between the ends passes through a point, whose interval it then is."""
    along, across = names
    least, most = ("low", "high") if across == "y" else ("left", "right")
    for each in series:
        if each["color"] != color or "marker" not in each or at not in each[along]:
            continue
        place = each[along].index(at)
        value, none = each[across][place], [math.nan] * len(each["x"])
        low, high = each.setdefault(least, none[:]), each.setdefault(most, none[:])
        if math.isnan(low[place]) and not (value < min(ends) or value > max(ends)):
            low[place], high[place] = sorted(ends)
            return True
    return False


def _join_bands(series: list[Chart], bands: Iterable[Chart]) -> None:
    """A band is the interval of the line of its colour with the same points."""
    for band in bands:
        at = {x: place for place, x in enumerate(band["x"])}
        for each in series:
            same = each["color"] == band["color"] and "low" not in each and each.get("line")
            if same and set(at) <= set(each["x"]):
                for name in ("low", "high"):
                    ends = band[name]
                    each[name] = [ends[at[x]] if x in at else math.nan for x in each["x"]]
                each["band"] = True
                break
        else:
            if band["x"]:
                series.append(band | {"y": [], "band": True})


def _text(axes: Axes, text: Text) -> Chart:
    place = text.xy if isinstance(text, Annotation) else text.get_position()
    transform = text.get_transform() if not isinstance(text, Annotation) else axes.transData
    x, y = place
    found: Chart = {
        "text": words(text.get_text()),
        "color": _hex(text.get_color()),
        "align": [text.get_horizontalalignment(), text.get_verticalalignment()],
    }
    if _across(transform, axes.transAxes):
        return found | {"part": [_short(x), _short(y)]}
    return found | {"at": [_short(float(x)), _short(float(y))]}


def _picture(image: AxesImage) -> Chart:
    file = io.BytesIO()
    numbers: Any = image.get_array()
    no_name: Any = {"Software": None}
    imsave(file, image.to_rgba(numbers, bytes=True), format="png", metadata=no_name)
    left, right, bottom, top = image.get_extent()
    png = base64.b64encode(file.getvalue()).decode()
    return {"png": png, "x": [left, right], "y": [bottom, top]}


def _axis(axis: Axis, upright: bool, numbers: Sequence[float]) -> Chart:
    low, high = map(float, axis.get_view_interval())
    log = axis.get_scale() == "log"
    # A picture's y axis runs downwards.
    least, most = sorted((low, high))
    label = words(axis.get_label_text())
    if not axis.get_visible() or not axis.axes.axison:
        return {"label": label, "ends": [_short(low), _short(high)], "log": log, "ticks": []}
    ticks = []
    for places, formatter, bare in (
        (axis.get_majorticklocs(), axis.get_major_formatter(), True),
        (axis.get_minorticklocs(), axis.get_minor_formatter(), False),
    ):
        at_ticks = [float(place) for place in places]
        both = zip(at_ticks, map(words, formatter.format_ticks(at_ticks)), strict=True)
        ticks += [[_short(at), text] for at, text in both if (bare or text) and least <= at <= most]
    found: Chart = {
        "label": label,
        "ends": [_short(low), _short(high)],
        "log": log,
        "ticks": sorted(ticks),
    }
    parts = [(at, _number(text)) for at, text in ticks if at and _number(text)]
    if parts and all(math.isclose(number, 100 * at, rel_tol=1e-3) for at, number in parts):
        found["percent"] = True
    shown = axis.get_tick_params()
    if not shown.get("labelleft", shown.get("labelbottom", True)):
        found["quiet"] = True
    finite = [number for number in numbers if number is not None and math.isfinite(number)]
    spread = max(finite) / min(finite) if finite and min(finite) > 0 else 0
    if upright and found["ticks"] and (spread > 0 if log else spread > WIDE):
        found["other"] = _other_scale(min(finite), max(finite), not log)
    return found


def _number(text: str) -> float:
    """The number that a tick has in words; 0 for other words."""
    try:
        return float(text.replace("−", "-"))
    except ValueError:
        return 0.0


def _other_scale(least: float, most: float, log: bool) -> Chart:
    room = (most / least) ** 0.05 if log else 0.05 * most
    low, high = (least / room, most * room) if log else (0.0, most + room)
    if low == high:
        low, high = low / 2, high * 2
    return {
        "ends": [_short(low), _short(high)],
        "log": log,
        "ticks": ticks_between(low, high, log),
    }


def _box(axes: Axes) -> tuple[float, ...]:
    """Left, bottom, right and top of a panel, as shares of the whole figure."""
    whole, part = axes.get_figure(root=True), axes.get_figure(root=False)
    assert whole is not None and part is not None
    place = axes.get_position().transformed(part.transSubfigure - whole.transSubfigure)
    return tuple(map(float, place.extents))


def _named_lines(axes: Axes) -> list[Chart]:
    """What a legend of the lines that have names would have."""
    return _described(*axes.get_legend_handles_labels())


def _entries(legend: Legend) -> list[Chart]:
    """The entries of a legend; its heading, if it has one, is the first and has a label alone."""
    heading = legend.get_title().get_text()
    names = [text.get_text() for text in legend.get_texts()]
    first = [{"label": words(heading)}] if heading else []
    return first + _described(legend.legend_handles, names)


def _described(artists: Sequence[Artist | None], names: Sequence[str]) -> list[Chart]:
    entries = []
    for artist, name in zip(artists, names, strict=True):
        entry: Chart = {"label": words(name)}
        if isinstance(artist, Line2D):
            entry["color"] = _hex(artist.get_color())
            if str(artist.get_linestyle()) not in ("None", ""):
                entry["dash"] = DASHES.get(str(artist.get_linestyle()), "")
                entry["width"] = _short(artist.get_linewidth())
            if str(artist.get_marker()) not in ("None", "", " "):
                entry["marker"] = str(artist.get_marker())
                entry["open"] = _opening(artist)
        elif isinstance(artist, mpl.patches.Patch):
            entry["color"] = _hex(artist.get_facecolor())
        elif isinstance(artist, PathCollection):
            entry |= {"color": _hex(artist.get_facecolor()[0]), "marker": "o"}
        entries.append(entry)
    return entries


def _opening(line: Line2D) -> bool | str:
    """Whether the marker is white inside, or the half of it that is not."""
    fill = line.get_fillstyle()
    if fill in HALVES:
        return str(fill)
    return fill == "none" or _hex(line.get_markerfacecolor()) == "#ffffff"


def _fits(series: Chart, entry: Chart) -> bool:
    """Whether an entry of a legend speaks of a series: what both have is the same."""
    if "color" not in entry:
        return False
    every = entry["color"] in map(_hex, ANY_GREY)
    if not every and entry["color"] != series["color"]:
        return False
    if entry.get("open") and entry["open"] != series.get("open"):
        return False
    for name in ("dash", "marker"):
        if name in entry and entry[name] != series.get(name, entry[name]):
            return False
    if every and "width" in entry and series.get("line"):
        return bool(entry["width"] == series["width"])
    return True


def _places(boxes: Sequence[Sequence[float]]) -> list[list[int]]:
    """Column and columns taken, row and rows taken; of boxes: left, bottom, right and top."""
    columns = _steps([left for left, _, _, _ in boxes])
    rows = _steps([-top for _, _, _, top in boxes])
    return [
        [*_taken(columns, left, right), *_taken(rows, -top, -bottom)]
        for left, bottom, right, top in boxes
    ]


def _tracks(boxes: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """The first track of every panel and how many it takes, with room for the words at its left."""
    starts = []
    for left, bottom, _, top in boxes:
        beside = [box[2] for box in boxes if box[2] <= left and box[1] < top and box[3] > bottom]
        starts.append(max([left - WORDS, *beside]))
    least, most = min(starts, default=0.0), max((box[2] for box in boxes), default=1.0)
    scale = TRACKS / (most - least)
    ends = [
        (round((at - least) * scale), round((box[2] - least) * scale))
        for at, box in zip(starts, boxes, strict=True)
    ]
    return [(start, max(1, end - start)) for start, end in ends]


def _taken(edges: Sequence[float], start: float, end: float) -> tuple[int, int]:
    """The first of the steps between two edges, and how many lie there."""
    inside = [place for place, at in enumerate(edges) if start - SAME_EDGE <= at < end - SAME_EDGE]
    return inside[0], len(inside)


def _steps(edges: Sequence[float]) -> list[float]:
    found: list[float] = []
    for edge in sorted(edges):
        if not found or edge > found[-1] + SAME_EDGE:
            found.append(edge)
    return found


def _says_something(axes: Axes) -> bool:
    return axes.has_data() or any(text.get_text() for text in axes.texts) or bool(axes.get_legend())


def _heights(series: Chart) -> list[float]:
    if series.get("edge"):
        return []
    return [*series["y"], *series.get("low", []), *series.get("high", [])]


def _across(transform: Transform, other: Transform) -> bool:
    """Whether two transforms put points at the same places."""
    corners = [(0.25, 0.25), (0.75, 0.75)]
    return bool(np.allclose(transform.transform(corners), other.transform(corners)))


def _aside(transform: Transform, other: Transform) -> float | None:
    """Pixels by which a transform puts points to the right of where another does; None if not."""
    corners = [(0.25, 0.25), (0.75, 0.75)]
    right, up = (transform.transform(corners) - other.transform(corners)).T
    return float(right[0]) if np.allclose(up, 0) and np.allclose(*right) else None


def _dash_of(lines: LineCollection) -> str:
    styles: Any = lines.get_linestyle()
    return DASHES["--"] if styles and styles[0][1] else ""


def _hex(color: Any) -> str:
    """Any colour that matplotlib takes, as #rrggbb."""
    return str(to_hex(color))


def _rounded(series: Chart) -> Chart:
    digits = {"x": DIGITS} | dict.fromkeys(("y", "low", "high", "left", "right"), TOLD)
    return series | {
        name: [_short(value, count) for value in series[name]]
        for name, count in digits.items()
        if name in series
    }


def _short(value: float, digits: int = DIGITS) -> Any:
    """A number to so many digits; None if it is not finite."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
