"""What figures and tables of lp_fft's training share: names of backbones, groups of rows, axes."""

from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes

from dpatlas.records import Record
from dpatlas.show.output import Row
from dpatlas.show.panels import percent_axis

# How far an axis of accuracy goes beyond 0 and 1.
MARGIN = 0.02
SKY = "#56B4E9"


def backbone_of(record: Record[Any, Any]) -> str:
    """Name in the config of the backbone that a private training starts from."""
    return record.spec.backbone.rpartition("-")[0]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows of the csv by their values in the columns `names`, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def accuracy_axis(axes: Axes) -> None:
    """A y axis of percentages, cut where intervals of very few runs go beyond 0 and 1.

    Call it after everything is drawn.
    """
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, -MARGIN), min(high, 1 + MARGIN))
    percent_axis(axes.yaxis)
