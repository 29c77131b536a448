"""lp_fft: the features as UMAP shows them, before, early and late in private fine-tuning."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpatlas.errors import InputError
from dpatlas.papers.lp_fft.figures.averages import SKY, backbone_of
from dpatlas.papers.lp_fft.records.umap import MOMENTS, Metrics, Spec
from dpatlas.records import Record
from dpatlas.show.look import DOUBLE_COLUMN
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import select
from dpatlas.show.series import BLUE, GREEN, ORANGE, PINK, RED, of_kind

UmapRecord = Record[Spec, Metrics]

TITLES = {"before": "before FFT", "early": "early in FFT", "late": "late in FFT"}
COLORS = (BLUE, RED, GREEN, PINK, ORANGE, SKY, "black")
MARKERS = ("o", "^", "s", "x", "D", "v", "+", "<", "*", ">", "P")
MARGIN = 1.08
PANEL_HEIGHT = 2.0
PANEL = ("lp_steps", "moment", "fft_steps", "knn", "silhouette", "accuracy")
COLUMNS = ("part", "data", "backbone", *PANEL, "epsilon_of_all_steps", "point", "class", "x", "y")


def lpfft_umap(records: Records, settings: Settings) -> ShownFigure:
    """Figs. 4 and 5: a line of panels for every number of LP steps, for every record."""
    pictures = of_kind(records, "umap")
    if not pictures:
        raise InputError("--records", "none of kind umap", "at least one")
    lines = [(record, steps) for record in pictures for steps in _lp_steps(record)]
    figure = Figure(figsize=(DOUBLE_COLUMN, PANEL_HEIGHT * len(lines)))
    panels = figure.subplots(len(lines), len(MOMENTS), squeeze=False)
    rows: list[Row] = []
    for line, (record, steps) in zip(panels, lines, strict=True):
        shown = panel_rows(record, steps)
        for axes, moment in zip(line, MOMENTS, strict=True):
            _draw_panel(axes, select(shown, moment=moment), record.metrics.classes)
        line[0].set_ylabel(_line_label(shown[0]))
        if steps == _lp_steps(record)[0]:
            _name_classes(line[-1], record)
        rows += shown
    for axes, title in zip(panels[0], TITLES.values(), strict=True):
        axes.set_title(title)
    return ShownFigure(figure, COLUMNS, rows, [_note(record) for record in pictures])


def panel_rows(record: UmapRecord, lp_steps: int) -> list[Row]:
    """Of every panel after `lp_steps` steps of LP: a row for itself and one for each point."""
    metrics = record.metrics
    budgets = {spent.lp_steps: spent.epsilon for spent in metrics.budgets}
    names = [metrics.classes[label] for label in metrics.labels]
    rows: list[Row] = []
    for panel in metrics.panels:
        if panel.lp_steps != lp_steps:
            continue
        shared = {
            "data": record.spec.data.name,
            "backbone": backbone_of(record),
            "lp_steps": panel.lp_steps,
            "moment": panel.moment,
            "fft_steps": panel.fft_steps,
            "runs": [record.id],
        }
        measured = {
            "knn": panel.knn,
            "silhouette": panel.silhouette,
            "accuracy": panel.accuracy,
            "epsilon_of_all_steps": budgets[lp_steps],
        }
        rows.append({"part": "panel", **shared, **measured})
        rows += [
            {"part": "point", **shared, "point": point, "class": name, "x": x, "y": y}
            for point, (name, x, y) in enumerate(zip(names, panel.x, panel.y, strict=True))
        ]
    return rows


def class_looks(classes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker by class; seven colours and eleven markers tell 77 classes apart."""
    looks = zip(classes, cycle(COLORS), cycle(MARKERS), strict=False)
    return {name: {"color": color, "marker": marker} for name, color, marker in looks}


def _draw_panel(axes: Axes, rows: Sequence[Row], classes: Sequence[str]) -> None:
    """Points by class and what was measured on the features behind them; nothing without rows."""
    if not rows:
        axes.set_axis_off()
        return
    panel, points = rows[0], select(rows, part="point")
    for name, look in class_looks(classes).items():
        shown = select(points, **{"class": name})
        at = [[row[axis] for row in shown] for axis in ("x", "y")]
        axes.plot(*at, linestyle="none", markersize=2.2, markeredgewidth=0.6, alpha=0.75, **look)
    across, up = _limits(points)
    axes.set(xlim=across, ylim=up, xticks=[], yticks=[])
    axes.set_box_aspect(1)
    measured = f"kNN {100 * panel['knn']:.1f}%, silhouette {panel['silhouette']:.2f}"
    axes.set_xlabel(f"{_steps(panel)}\n{measured}")


def _limits(points: Sequence[Row]) -> list[tuple[float, float]]:
    """Limits of both axes, of one length, that hold the points of a panel."""
    axes = [np.array([row[axis] for row in points]) for axis in ("x", "y")]
    half = MARGIN * max(np.ptp(values) for values in axes) / 2 or 1.0
    middles = [(values.min() + values.max()) / 2 for values in axes]
    return [(float(middle - half), float(middle + half)) for middle in middles]


def _name_classes(axes: Axes, record: UmapRecord) -> None:
    """The classes of a record beside its first line of panels."""
    handles = [
        Line2D([], [], linestyle="none", markersize=4, label=name, **look)
        for name, look in class_looks(record.metrics.classes).items()
    ]
    title = record.spec.data.name
    axes.legend(handles=handles, title=title, loc="upper left", bbox_to_anchor=(1.02, 1.0))


def _line_label(panel: Row) -> str:
    text, epsilon = f"LP: {panel['lp_steps']} steps", panel["epsilon_of_all_steps"]
    return text if epsilon is None else f"{text}\n$\\varepsilon$ = {epsilon:.3g}"


def _steps(panel: Row) -> str:
    return f"after {panel['fft_steps']} steps of FFT"


def _lp_steps(record: UmapRecord) -> list[int]:
    return sorted({panel.lp_steps for panel in record.metrics.panels})


def _note(record: UmapRecord) -> str:
    spec = record.spec
    return (
        f"{spec.data.name}: {len(record.metrics.labels)} test records; noise multiplier "
        f"{spec.noise_lp:g} in LP and {spec.noise_fft:g} in FFT; $\\varepsilon$ of all "
        "steps of a line; each panel is a fit of its own, whose axes have no unit and no meaning "
        "beyond it; kNN and silhouette are of the features themselves; one run"
    )
