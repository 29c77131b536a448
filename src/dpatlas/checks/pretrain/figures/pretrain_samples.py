"""What the backbones were trained on, beside real digits, and what their features are worth."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.checks.pretrain.records import backbone, transfer
from dpatlas.core.statistics import mean_estimate
from dpatlas.errors import InputError
from dpatlas.records import Record
from dpatlas.show.look import DOUBLE_COLUMN, NOTE_SIZE, Look
from dpatlas.show.output import Row, Settings, ShownFigure
from dpatlas.show.panels import columns
from dpatlas.show.series import BLUE, GREEN, RED, handle

TransferRecord = Record[transfer.Spec, transfer.Metrics]
BackboneRecord = Record[backbone.Spec, backbone.Metrics]
PER_LINE, LINES = 20, 2
GAP, BASE = 1, 17
# Inches: a sheet, a line of the panel below and what it needs beside its lines.
SHEET_HEIGHT, LINE_HEIGHT, BELOW = 0.78, 0.24, 0.7
MEASURES = {
    "zero_shot": Look("head as it is", GREEN, "^", ""),
    "knn": Look("nearest neighbours", RED, "s", ""),
    "logistic": Look("logistic regression", BLUE, "o", ""),
}
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
    *(f"{name}_{what}" for name in MEASURES for what in ("mean", "standard_error")),
)


def pretrain_samples(records: Sequence[Record[Any, Any]], settings: Settings) -> ShownFigure:
    """Images of every source above; accuracies on the private data below."""
    transfers = [record for record in records if record.kind == "transfer"]
    if len(transfers) != 1:
        raise InputError("--records", f"{len(transfers)} of kind transfer", "exactly one")
    measured: TransferRecord = transfers[0]
    sheets = [
        (rows, record.metrics.image_shape)
        for record in _one_per_source(records)
        if (rows := image_rows(record))
    ]
    rows = transfer_rows(measured)
    heights = [SHEET_HEIGHT] * len(sheets) + [BELOW + LINE_HEIGHT * len(rows)]
    figure = Figure(figsize=(DOUBLE_COLUMN, sum(heights)))
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    *above, below = panels
    for axes, sheet in zip(above, sheets, strict=True):
        _draw_sheet(axes, *sheet)
    _draw_transfer(below, rows)
    metrics = measured.metrics
    notes = [
        f"images: one of each class in turn, {PER_LINE * LINES} of a source; below: accuracy on "
        f"{metrics.n_test} of the {metrics.n_train + metrics.n_test} "
        f"{measured.spec.data.name} after training on the others, features frozen; "
        f"mean and standard error of {rows[0]['splits']} splits, which overlap; for the reader "
        "only, nothing is chosen by it",
    ]
    shown = [row for sheet, _ in sheets for row in sheet]
    return ShownFigure(figure, COLUMNS, [*shown, *rows], notes)


def image_rows(record: TransferRecord | BackboneRecord) -> list[Row]:
    """A row for every image shown of a record, class after class; none if it keeps no images."""
    examples = record.metrics.examples or {}
    most = max(map(len, examples.values()), default=0)
    rows = [
        {
            "part": "real image" if record.kind == "transfer" else "generated image",
            "source": record.spec.data.name,
            "class": name,
            "example": number,
            "image": images[number],
            "runs": [record.id],
        }
        for number in range(most)
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
                estimate = mean_estimate(accuracies)
                error = estimate.standard_error if estimate.runs > 1 else None
                row |= {f"{measure}_mean": estimate.value, f"{measure}_standard_error": error}
        rows.append(row)
    return rows


def levels(image: str, shape: Sequence[int]) -> np.ndarray:
    """Ink of an image, (height, width), from 0 to 1; a character is a level of 17."""
    ink = np.array([int(character, BASE) for character in image]) / (BASE - 1)
    return ink.reshape(shape[-2:])


def _one_per_source(records: Sequence[Record[Any, Any]]) -> list[TransferRecord | BackboneRecord]:
    """Real images first, then the first backbone of every source."""
    by_source: dict[str, TransferRecord | BackboneRecord] = {}
    for kind in ("transfer", "backbone"):
        for record in records:
            if record.kind == kind:
                by_source.setdefault(record.spec.data.name, record)
    return list(by_source.values())


def _name(row: transfer.Row) -> str:
    """Of a backbone, without the digest of its spec."""
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
    title = rows[0]["source"] + (" (real, private)" if rows[0]["part"] == "real image" else "")
    axes.set_title(title, loc="left", fontsize=NOTE_SIZE, pad=2)


def _draw_transfer(axes: Axes, rows: list[Row]) -> None:
    places = np.arange(len(rows))
    for measure, look in MEASURES.items():
        mean, error = columns(rows, f"{measure}_mean", f"{measure}_standard_error")
        axes.errorbar(
            mean, places, xerr=error, color=look.color, marker=look.marker, linestyle="none"
        )
    axes.set_yticks(places, [row["backbone"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("accuracy on the private data")
    axes.legend(
        handles=[handle(look) for look in MEASURES.values()],
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=len(MEASURES),
    )
