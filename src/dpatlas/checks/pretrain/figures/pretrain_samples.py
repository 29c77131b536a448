"""Training images of the backbones beside real digits, and accuracy with their features."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.checks.pretrain.records import backbone, transfer
from dpatlas.records import Record
from dpatlas.show.look import BLUE, DOUBLE_COLUMN, GREEN, NOTE_SIZE, RED, Look
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import percent_axis
from dpatlas.show.rows import Row, Settings, mean_and_error, only
from dpatlas.show.series import handle

TransferRecord = Record[transfer.Spec, transfer.Metrics]
BackboneRecord = Record[backbone.Spec, backbone.Metrics]
# Images per line and lines of a sheet; pixels between images; number of grey levels.
PER_LINE, LINES = 20, 2
GAP, BASE = 1, 17
# Inches: height of a sheet, of a line of the panel below, and of that panel's axis and legend.
SHEET_HEIGHT, LINE_HEIGHT, AXIS_HEIGHT = 0.78, 0.24, 0.7
MEASURES = {
    "zero_shot": Look("backbone's own head", GREEN, "^", ""),
    "knn": Look("nearest neighbours", RED, "s", ""),
    "logistic": Look("logistic regression", BLUE, "o", ""),
}
# Between the measures of a backbone, as a share of its line.
DODGE = 0.3
COLUMNS = (
    "part",
    "source",
    "class",
    "example",
    "image",
    "backbone",
    "architecture",
    "features",
    "splits",
    *(f"{name}_{statistic}" for name in MEASURES for statistic in ("mean", "standard_error")),
)


def pretrain_samples(records: Sequence[Record[Any, Any]], settings: Settings) -> DrawnFigure:
    """Images of every source above, accuracies on the private data below."""
    measured: TransferRecord = only(records, "transfer")
    sheets = [
        (rows, record.metrics.image_shape)
        for record in _one_per_source(records)
        if (rows := image_rows(record))
    ]
    rows = transfer_rows(measured)
    metrics = measured.metrics
    notes = [
        f"images: {PER_LINE * LINES} of each source, its classes in turn; below: accuracy on "
        f"{metrics.n_test} of the {metrics.n_train + metrics.n_test} "
        f"{measured.spec.data.name} after training on the others with frozen features; mean and "
        f"standard error over {rows[0]['splits']} random splits, whose test records overlap; for "
        "the reader only: no setting is chosen by it",
    ]
    return samples_figure(sheets, rows, measured.spec.data.name, notes)


def samples_figure(
    sheets: Sequence[tuple[list[Row], Sequence[int]]], rows: list[Row], data: str, notes: list[str]
) -> DrawnFigure:
    """The figure of these rows of its csv: images by source with their shape, and accuracies."""
    heights = [SHEET_HEIGHT] * len(sheets) + [AXIS_HEIGHT + LINE_HEIGHT * len(rows)]
    figure = Figure(figsize=(DOUBLE_COLUMN, sum(heights)))
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    *above, below = panels
    for axes, sheet in zip(above, sheets, strict=True):
        _draw_sheet(axes, *sheet)
    _draw_accuracies(below, rows)
    _title(below, f"accuracy on {data} with frozen features")
    shown = [row for sheet, _ in sheets for row in sheet]
    return DrawnFigure(figure, COLUMNS, [*shown, *rows], notes)


def image_rows(record: TransferRecord | BackboneRecord) -> list[Row]:
    """A row for every image shown of a record, classes in turn; none if it keeps no images."""
    examples = record.metrics.examples or {}
    largest = max(map(len, examples.values()), default=0)
    rows = [
        {
            "part": "real image" if record.kind == "transfer" else "generated image",
            "source": record.spec.data.name,
            "class": name,
            "example": number,
            "image": images[number],
            "runs": [record.id],
        }
        for number in range(largest)
        for name, images in examples.items()
        if number < len(images)
    ]
    return rows[: PER_LINE * LINES]


def transfer_rows(record: TransferRecord) -> list[Row]:
    """A row for raw pixels and one for each backbone."""
    rows = []
    for measured in record.metrics.rows:
        row: Row = {
            "part": "transfer",
            "backbone": _name(measured),
            "source": measured.source,
            "architecture": measured.architecture,
            "features": measured.features,
            "splits": len(measured.knn),
            "runs": [record.id],
        }
        for measure in MEASURES:
            if (accuracies := getattr(measured, measure)) is not None:
                row |= mean_and_error(measure, accuracies)
        rows.append(row)
    return rows


def levels(image: str, shape: Sequence[int]) -> np.ndarray:
    """Grey levels of an image from 0 to 1, (height, width); a character is one of 17 levels."""
    grey = np.array([int(character, BASE) for character in image]) / (BASE - 1)
    return grey.reshape(shape[-2:])


def _one_per_source(records: Sequence[Record[Any, Any]]) -> list[TransferRecord | BackboneRecord]:
    """Real images first, then the first backbone of every source."""
    by_source: dict[str, TransferRecord | BackboneRecord] = {}
    for kind in ("transfer", "backbone"):
        for record in records:
            if record.kind == kind:
                by_source.setdefault(record.spec.data.name, record)
    return list(by_source.values())


def _name(row: transfer.Row) -> str:
    """Name of the backbone, without the digest of its spec."""
    return row.backbone if row.source is None else row.backbone.rpartition("-")[0]


def _draw_sheet(axes: Axes, rows: list[Row], shape: Sequence[int]) -> None:
    height, width = (side + GAP for side in shape[-2:])
    lines = -(-len(rows) // PER_LINE)
    sheet = np.full((lines * height - GAP, PER_LINE * width - GAP), np.nan)
    for index, row in enumerate(rows):
        top, left = index // PER_LINE * height, index % PER_LINE * width
        sheet[top : top + height - GAP, left : left + width - GAP] = levels(row["image"], shape)
    axes.imshow(sheet, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    axes.set_axis_off()
    origin = "real, private" if rows[0]["part"] == "real image" else "public"
    _title(axes, f"{rows[0]['source']} ({origin})")


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=NOTE_SIZE, pad=2)


def _draw_accuracies(axes: Axes, rows: Sequence[Row]) -> None:
    """Mean and standard error over splits, by backbone and measure, the first above."""
    for name, look in MEASURES.items():
        known = [place for place, row in enumerate(rows) if row.get(f"{name}_mean") is not None]
        aside = DODGE * (list(MEASURES).index(name) / (len(MEASURES) - 1) - 0.5)
        axes.errorbar(
            [rows[place][f"{name}_mean"] for place in known],
            [place + aside for place in known],
            xerr=[rows[place][f"{name}_standard_error"] or np.nan for place in known],
            fmt=look.marker,
            color=look.color,
        )
    axes.set_yticks(range(len(rows)), [row["backbone"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set(xlabel="test accuracy on the private data, %", ylabel="")
    percent_axis(axes.xaxis)
    axes.legend(
        handles=[handle(look) for look in MEASURES.values()],
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0,
        ncols=len(MEASURES),
    )
