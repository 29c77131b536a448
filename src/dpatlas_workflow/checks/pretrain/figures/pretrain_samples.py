"""Training images of the backbones beside real digits, and accuracy with their features."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpatlas_workflow.checks.pretrain.records.backbone import BackboneSpec
from dpatlas_workflow.checks.pretrain.records.transfer import TransferSpec
from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import BLUE, GREEN, RED, Look
from dpatlas_workflow.show.panel import (
    Axis,
    Legend,
    Panel,
    PanelGrid,
    Series,
    ShownFigure,
    names,
    picture,
)
from dpatlas_workflow.show.rows import Row, Settings, mean_and_error, only

TransferRecord = Record[TransferSpec]
BackboneRecord = Record[BackboneSpec]
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


def pretrain_samples(records: Sequence[Record[Any]], settings: Settings) -> ShownFigure:
    """Images of every source above, accuracies on the private data below."""
    measured: TransferRecord = only(records, "transfer")
    sheets = [
        (rows, record.facts["image_shape"])
        for record in _one_per_source(records)
        if (rows := image_rows(record))
    ]
    rows = transfer_rows(measured)
    n_train, n_test = (measured.facts[name] for name in ("n_train", "n_test"))
    notes = [
        f"images: {PER_LINE * LINES} of each source, its classes in turn; below: accuracy on "
        f"{n_test} of the {n_train + n_test} "
        f"{measured.spec.data.name} after training on the others with frozen features; mean and "
        f"standard error over {rows[0]['splits']} random splits, whose test records overlap; for "
        "the reader only: no setting is chosen by it",
    ]
    heights = [SHEET_HEIGHT] * len(sheets) + [AXIS_HEIGHT + LINE_HEIGHT * len(rows)]
    panels = [_sheet(*sheet) for sheet in sheets]
    title = f"accuracy on {measured.spec.data.name} with frozen features"
    panels.append(_accuracies(title, rows))
    shown = [row for sheet, _ in sheets for row in sheet]
    grid = PanelGrid([[panel] for panel in panels], sum(heights), heights=heights)
    return ShownFigure([grid], COLUMNS, [*shown, *rows], notes)


def image_rows(record: TransferRecord | BackboneRecord) -> list[Row]:
    """A row for every image shown of a record, classes in turn; none if it keeps no images."""
    images = sorted(record.tables["examples"], key=lambda row: row["number"])
    return [
        {
            "part": "real image" if record.kind == "transfer" else "generated image",
            "source": record.spec.data.name,
            "class": row["class"],
            "example": row["number"],
            "image": row["image"],
            "runs": [record.id],
        }
        for row in images[: PER_LINE * LINES]
    ]


def transfer_rows(record: TransferRecord) -> list[Row]:
    """A row for raw pixels and one for each backbone."""
    rows = []
    for _, of_backbone in itertools.groupby(record.tables["rows"], lambda row: row["backbone"]):
        first, *others = of_backbone
        row: Row = {
            "part": "transfer",
            "backbone": _name(first),
            "source": first["source"],
            "architecture": first["architecture"],
            "features": first["features"],
            "splits": 1 + len(others),
            "runs": [record.id],
        }
        for measure in MEASURES:
            if first[measure] is not None:
                row |= mean_and_error(measure, [split[measure] for split in (first, *others)])
        rows.append(row)
    return rows


def levels(image: str, shape: Sequence[int]) -> np.ndarray:
    """Grey levels of an image from 0 to 1, (height, width); a character is one of 17 levels."""
    grey = np.array([int(character, BASE) for character in image]) / (BASE - 1)
    return grey.reshape(shape[-2:])


def _one_per_source(records: Sequence[Record[Any]]) -> list[TransferRecord | BackboneRecord]:
    """Real images first, then the first backbone of every source."""
    by_source: dict[str, TransferRecord | BackboneRecord] = {}
    for kind in ("transfer", "backbone"):
        for record in records:
            if record.kind == kind:
                by_source.setdefault(record.spec.data.name, record)
    return list(by_source.values())


def _name(row: Row) -> str:
    """Name of the backbone, without the digest of its spec."""
    backbone: str = row["backbone"]
    return backbone if row["source"] is None else backbone.rpartition("-")[0]


def _sheet(rows: list[Row], shape: Sequence[int]) -> Panel:
    height, width = (side + GAP for side in shape[-2:])
    lines = -(-len(rows) // PER_LINE)
    sheet = np.full((lines * height - GAP, PER_LINE * width - GAP), np.nan)
    for index, row in enumerate(rows):
        top, left = index // PER_LINE * height, index % PER_LINE * width
        sheet[top : top + height - GAP, left : left + width - GAP] = levels(row["image"], shape)
    origin = "real, private" if rows[0]["part"] == "real image" else "public"
    return picture(f"{rows[0]['source']} ({origin})", sheet)


def _accuracies(title: str, rows: Sequence[Row]) -> Panel:
    """Mean and standard error over splits, by backbone and measure, the first above."""
    drawn = []
    for place, (name, look) in enumerate(MEASURES.items()):
        known = [line for line, row in enumerate(rows) if row.get(f"{name}_mean") is not None]
        means = np.array([rows[line][f"{name}_mean"] for line in known])
        errors = np.array([rows[line][f"{name}_standard_error"] for line in known], float)
        aside = DODGE * (place / (len(MEASURES) - 1) - 0.5)
        at = [line + aside for line in known]
        ends = {"left": (means - errors).tolist(), "right": (means + errors).tolist()}
        drawn.append(Series(look, means.tolist(), at, **ends))
    x = Axis("test accuracy on the private data, %", percent=True)
    y = names([row["backbone"] for row in rows], ends=(len(rows) - 0.5, -0.5))
    return Panel(title, x, y, drawn, legend=Legend("above", columns=len(MEASURES)))
