"""lp_fft: UMAP of the features before, early and late in private fine-tuning."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from dpatlas.papers.lp_fft.figures.averages import backbone_of
from dpatlas.papers.lp_fft.records.umap import MOMENTS, UmapSpec
from dpatlas.records import Record
from dpatlas.show.look import DOUBLE_COLUMN, NOTE_SIZE
from dpatlas.show.output import DrawnFigure
from dpatlas.show.rows import Records, Row, Settings, some, where

UmapRecord = Record[UmapSpec, Any]

TITLES = {
    "before": "features before FFT",
    "early": "features early in FFT",
    "late": "features late in FFT",
}
# Ten that differ, for ten digits. None is grey, which the page paints as ink, black or white.
COLORS = tuple(
    "#0b2a5c" if red == green == blue else to_hex((red, green, blue))
    for red, green, blue in map(to_rgb, mpl.color_sequences["tab10"])
)
MARKERS = ("o", "^", "s", "X", "D", "v", "P", "<", "*", ">", "p")
MARKER_AREA = 8
MARGIN = 1.08
PANEL_HEIGHT = 2.0
PANEL = ("lp_steps", "moment", "fft_steps", "knn", "silhouette", "accuracy")
COLUMNS = ("part", "data", "backbone", *PANEL, "epsilon_of_all_steps", "point", "class", "x", "y")


def lpfft_umap(records: Records, settings: Settings) -> DrawnFigure:
    """Figs. 4 and 5: a line of panels for every record and number of LP steps.

    LP leaves the features as they are: of every record one panel shows them before FFT.
    """
    pictures = some(records, "umap")
    rows: list[list[Row]] = []
    for record in pictures:
        steps = _lp_steps(record.tables["panels"])
        shown = [row for each in steps for row in panel_rows(record, each)]
        rows.append([row for row in shown if (row["moment"], row["lp_steps"]) not in _same(steps)])
    classes = [record.facts["classes"] for record in pictures]
    return umap_figure(rows, classes, [_note(record) for record in pictures])


def umap_figure(
    pictures: Sequence[list[Row]], classes: Sequence[Sequence[str]], notes: list[str]
) -> DrawnFigure:
    """The figure of these rows of its csv, by record, with the classes of each record."""
    count = sum(len(_lp_steps(rows)) for rows in pictures)
    figure = Figure(figsize=(DOUBLE_COLUMN, PANEL_HEIGHT * count))
    grid = figure.add_gridspec(count, len(MOMENTS))
    line = 0
    for rows, names in zip(pictures, classes, strict=True):
        first, *others = _lp_steps(rows)
        before = grid[line : line + 1 + len(others), 0]
        for steps in (first, *others):
            places = {"before": before} if steps == first else {}
            places |= {"early": grid[line, 1], "late": grid[line, 2]}
            shown = [row for row in rows if row["lp_steps"] == steps]
            for moment, place in places.items():
                axes = figure.add_subplot(place)
                panel = [row for row in shown if row["moment"] == moment]
                _draw_panel(axes, panel, names)
                axes.set_ylabel(_line_label(shown[0]) if moment == "early" else "")
                axes.set_title(TITLES[moment])
                if (steps, moment) == (first, "before"):
                    axes.set_ylabel("UMAP of the features, no unit")
                    axes.set_anchor("N")
            if steps == first:
                _name_classes(axes, names, rows[0]["data"])
            line += 1
    return DrawnFigure(figure, COLUMNS, [row for rows in pictures for row in rows], notes)


def _same(steps: Sequence[int]) -> set[tuple[str, int]]:
    """Panels that would show again what the first does: the features before FFT."""
    return {("before", each) for each in steps[1:]}


def panel_rows(record: UmapRecord, lp_steps: int) -> list[Row]:
    """For every panel after `lp_steps` of LP one row of its measures and one for each point.

    Of the first run: a picture shows one.
    """
    (spent,) = where(record.tables["budgets"], lp_steps=lp_steps)
    first = record.tables["labels"][0]
    names = [record.facts["classes"][label] for label in first["labels"]]
    rows: list[Row] = []
    for panel in where(record.tables["panels"], run=first["run"], lp_steps=lp_steps):
        shared = {
            "data": record.spec.data.name,
            "backbone": backbone_of(record),
            **{name: panel[name] for name in ("lp_steps", "moment", "fft_steps")},
            "runs": list(record.ids),
        }
        measured = {name: panel[name] for name in ("knn", "silhouette", "accuracy")}
        measured["epsilon_of_all_steps"] = spent["epsilon"]
        rows.append({"part": "panel", **shared, **measured})
        rows += [
            {"part": "point", **shared, "point": point, "class": name, "x": x, "y": y}
            for point, (name, x, y) in enumerate(zip(names, panel["x"], panel["y"], strict=True))
        ]
    return rows


def class_looks(classes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker by class; ten colours and eleven markers distinguish 110 classes."""
    looks = zip(classes, cycle(COLORS), cycle(MARKERS), strict=False)
    return {name: {"color": color, "marker": marker} for name, color, marker in looks}


def _draw_panel(axes: Axes, rows: Sequence[Row], classes: Sequence[str]) -> None:
    """Points by class with its name above their centre, and the measures of the features behind.

    Nothing without rows.
    """
    if not rows:
        axes.set_axis_off()
        return
    panel, points = rows[0], pd.DataFrame(rows[1:])
    looks = class_looks(classes)
    sns.scatterplot(
        points,
        x="x",
        y="y",
        hue="class",
        style="class",
        palette={name: look["color"] for name, look in looks.items()},
        markers={name: look["marker"] for name, look in looks.items()},
        s=MARKER_AREA,
        linewidth=0,
        alpha=0.75,
        legend=False,
        ax=axes,
    )
    for name, (x, y) in points.groupby("class")[["x", "y"]].median().iterrows():
        halo = [withStroke(linewidth=1.5, foreground="white")]
        style: dict[str, Any] = {"fontsize": NOTE_SIZE, "fontweight": "bold", "path_effects": halo}
        # Above the points, which it would hide.
        aside: dict[str, Any] = {"xytext": (0, 3), "textcoords": "offset points"}
        color = looks[str(name)]["color"]
        axes.annotate(str(name), (x, y), ha="center", color=color, **aside, **style)
    across, up = _limits(points)
    axes.set(xlim=across, ylim=up, xticks=[], yticks=[], ylabel="")
    axes.set_box_aspect(1)
    measured = f"kNN {100 * panel['knn']:.1f}%, silhouette {panel['silhouette']:.2f}"
    axes.set_xlabel(f"{_steps(panel)}\n{measured}")


def _limits(points: pd.DataFrame) -> list[tuple[float, float]]:
    """Limits of both axes, of one length, that hold the points of a panel."""
    low, high = points[["x", "y"]].min(), points[["x", "y"]].max()
    half = MARGIN * (high - low).max() / 2 or 1.0
    return [(float(middle - half), float(middle + half)) for middle in (low + high) / 2]


def _name_classes(axes: Axes, classes: Sequence[str], data: str) -> None:
    """The classes of a record beside its first line of panels."""
    handles = [
        Line2D([], [], linestyle="none", markersize=4, label=name, **look)
        for name, look in class_looks(classes).items()
    ]
    axes.legend(handles=handles, title=data, loc="upper left", bbox_to_anchor=(1.02, 1.0))


def _line_label(panel: Row) -> str:
    text, epsilon = f"LP: {panel['lp_steps']} steps", panel["epsilon_of_all_steps"]
    return text if epsilon is None else f"{text}\n$\\varepsilon$ = {epsilon:.3g}"


def _steps(panel: Row) -> str:
    return f"after {panel['fft_steps']} steps of FFT"


def _lp_steps(rows: Sequence[Row]) -> list[int]:
    return sorted({row["lp_steps"] for row in rows})


def _note(record: UmapRecord) -> str:
    spec, shown = record.spec, record.tables["labels"][0]["labels"]
    return (
        f"{spec.data.name}: {len(shown)} test records; noise multiplier "
        f"{spec.noise_lp:g} in LP and {spec.noise_fft:g} in FFT; $\\varepsilon$ covers all steps "
        "of a row and not kNN accuracy, where private records vote without noise; each panel is a "
        "UMAP of its own: its axes have no unit and cannot be compared with another panel's; kNN "
        "accuracy and silhouette are of the features themselves; one run"
    )
