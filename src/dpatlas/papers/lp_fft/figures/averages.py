"""What figures and tables of lp_fft's training share: names of backbones, groups of rows."""

from collections.abc import Iterable
from typing import Any

from dpatlas.records import Record
from dpatlas.show.rows import Row

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
