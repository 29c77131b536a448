"""lp_fft: UMAP of the features before, early and late in private fine-tuning."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex, to_rgb

from dpatlas_workflow.papers.lp_fft.figures.arms import backbone_of
from dpatlas_workflow.papers.lp_fft.records.umap import MOMENTS, UmapSpec
from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import Look
from dpatlas_workflow.show.panel import Axis, Legend, Panel, PanelGrid, ShownFigure, Words, series
from dpatlas_workflow.show.rows import Records, Row, Settings, some, where

UmapRecord = Record[UmapSpec]

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
MARKER_SIZE = 1.9
MARGIN = 1.08
PANEL_HEIGHT = 2.0
PANEL = ("lp_steps", "moment", "fft_steps", "knn", "silhouette", "accuracy")
COLUMNS = ("part", "data", "backbone", *PANEL, "epsilon_of_all_steps", "point", "class", "x", "y")


def lpfft_umap(records: Records, settings: Settings) -> ShownFigure:
    """Figs. 4 and 5: a line of panels for every record and number of LP steps.

    LP leaves the features as they are: of every record one panel shows them before FFT.
    """
    pictures: list[UmapRecord] = some(records, "umap")
    rows: list[Row] = []
    lines: list[list[Panel | None]] = []
    for record in pictures:
        looks = class_looks(record.facts["classes"])
        steps = sorted({row["lp_steps"] for row in record.tables["panels"]})
        for each in steps:
            first = each == steps[0]
            shown = [row for row in _panel_rows(record, each) if first or row["moment"] != "before"]
            labels = {"before": "UMAP of the features, no unit", "early": _line_label(shown[0])}
            line = {
                moment: _panel(of_moment, moment, labels.get(moment, ""), looks)
                for moment in MOMENTS
                if (of_moment := where(shown, moment=moment))
            }
            if first:
                legend = Legend("beside", list(looks.values()), record.spec.data.name)
                line["before"] = replace(line["before"], lines=len(steps))
                line["late"] = replace(line["late"], legend=legend)
            lines.append([line.get(moment) for moment in MOMENTS])
            rows += shown
    grid = PanelGrid(lines, PANEL_HEIGHT * len(lines))
    return ShownFigure([grid], COLUMNS, rows, list(map(_note, pictures)), legend=())


def _panel_rows(record: UmapRecord, lp_steps: int) -> list[Row]:
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


def class_looks(classes: Sequence[str]) -> dict[str, Look]:
    """Colour and marker by class; ten colours and eleven markers distinguish 110 classes."""
    looks = zip(classes, cycle(COLORS), cycle(MARKERS), strict=False)
    return {name: Look(name, color, marker, "", size=MARKER_SIZE) for name, color, marker in looks}


def _panel(rows: Sequence[Row], moment: str, label: str, looks: Mapping[str, Look]) -> Panel:
    """Points by class with its name above their centre, and the measures of the features behind."""
    panel, points = rows[0], rows[1:]
    # Above the points, which it would hide.
    names = [
        Words(name, _centre(of_class), look.color, ("center", "bottom"), bold=True)
        for name, look in looks.items()
        if (of_class := where(points, **{"class": name}))
    ]
    measured = f"kNN {100 * panel['knn']:.1f}%, silhouette {panel['silhouette']:.2f}"
    across, up = _limits(points)
    return Panel(
        TITLES[moment],
        Axis(f"after {panel['fft_steps']} steps of FFT\n{measured}", ends=across, ticks=()),
        Axis(label, ends=up, ticks=()),
        series(points, "x", looks, "class", y="y"),
        words=names,
        square=True,
    )


def _centre(points: Sequence[Row]) -> tuple[float, float]:
    x, y = (float(np.median([row[name] for row in points])) for name in "xy")
    return x, y


def _limits(points: Sequence[Row]) -> list[tuple[float, float]]:
    """Limits of both axes, of one length, that hold the points of a panel."""
    places = np.array([[row["x"], row["y"]] for row in points])
    low, high = places.min(0), places.max(0)
    half = MARGIN * (high - low).max() / 2 or 1.0
    return [(float(middle - half), float(middle + half)) for middle in (low + high) / 2]


def _line_label(panel: Row) -> str:
    text, epsilon = f"LP: {panel['lp_steps']} steps", panel["epsilon_of_all_steps"]
    return text if epsilon is None else f"{text}\n$\\varepsilon$ = {epsilon:.3g}"


def _note(record: UmapRecord) -> str:
    spec, shown = record.spec, record.tables["labels"][0]["labels"]
    return (
        f"{spec.data.name}: {len(shown)} test records; noise multiplier "
        f"{spec.noise_lp:g} in LP and {spec.noise_fft:g} in FFT; $\\varepsilon$ covers all steps "
        "of a row and not kNN accuracy, where private records vote without noise; each panel is a "
        "UMAP of its own: its axes have no unit and cannot be compared with another panel's; kNN "
        "accuracy and silhouette are of the features themselves; one run"
    )
