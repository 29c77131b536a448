"""What every figure and table job shares: records in, files and their lineage out.

A job reads records, calls the one function that its name stands for, and writes what that gives:
pdf, png, svg and csv of a figure; csv, md and tex of a table. The csv has exactly what is shown,
with the record ids behind each row. All files are functions of records, code and versions alone.
"""

import csv
import io
import json
import os
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure

from dpatlas.core.canonical import sha256
from dpatlas.core.digest import code_digest
from dpatlas.core.files import remove_parts, write_atomic, write_json
from dpatlas.core.records import read_record, versions
from dpatlas.errors import ArgumentParser, InputError
from dpatlas.show.look import MUTED, NOTE_SIZE, STYLE
from dpatlas.show.tables import Part, to_markdown, to_tex

Row = dict[str, Any]
Records = Sequence[dict[str, Any]]
Settings = dict[str, Any]

TIER_WARNINGS = {"smoke": "smoke settings: numbers mean nothing"}
LAST_COLUMNS = ("tier", "runs")
NOTE_CHARACTERS_PER_INCH = 20
NOTE_LINE = 0.12
# Without dates and versions, so that equal figures are equal files.
METADATA = {
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "png": {"Software": None},
    "svg": {"Creator": None, "Date": None},
}


@dataclass(frozen=True)
class ShownFigure:
    """A drawn figure, the numbers in it, and what a reader must be told below it.

    `rows` have the keys `columns` and `runs`, the ids of the records behind the row.
    """

    figure: Figure
    columns: tuple[str, ...]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ShownTable:
    """A table: all its numbers as `rows` (as in `ShownFigure`), and the parts that people read."""

    columns: tuple[str, ...]
    rows: list[Row]
    parts: list[Part]


def tier_note(tier: str) -> str:
    """What every figure and table says about the settings that its numbers come from."""
    return "; ".join([f"tier {tier}", *filter(None, [TIER_WARNINGS.get(tier)])])


def figure_main(
    arguments: Sequence[str],
    module: str,
    figures: dict[str, Callable[[Records, Settings], ShownFigure]],
    tables: dict[str, Callable[[Records, Settings], ShownTable]],
) -> int:
    """Make the figure or table named by the first argument and write its files and lineage."""
    parser = ArgumentParser(prog=f"python -m {module}", description="Make a figure or a table.")
    parser.add_argument("name", choices=[*figures, *tables], metavar="NAME", help="what to make")
    parser.add_argument("--tier", required=True, help="printed on the figure or table")
    parser.add_argument("--settings", required=True, help="what it needs of the config, as JSON")
    parser.add_argument("--output", required=True, type=Path, help="folder for the files")
    parser.add_argument("--lineage", required=True, type=Path, help="lineage file to write")
    parser.add_argument(
        "--records", required=True, nargs="*", default=[], type=Path, help="record.json files"
    )
    options = parser.parse_args(arguments)
    settings = _settings(options.settings)
    records = [read_record(path) for path in options.records]
    if options.name in figures:
        with matplotlib.style.context(["default", STYLE]):
            shown = figures[options.name](records, settings)
            files = figure_files(options.name, shown, options.tier)
    else:
        files = table_files(options.name, tables[options.name](records, settings), options.tier)
    for name, content in files.items():
        remove_parts(options.output, name)
        write_atomic(options.output / name, content)
    remove_parts(options.lineage.parent, options.lineage.name)
    lineage = {
        "name": options.name,
        "kind": "figure" if options.name in figures else "table",
        "tier": options.tier,
        "module": module,
        "code_digest": code_digest(module),
        "settings": settings,
        "records": _behind(records, options.records, options.lineage.parent.parent),
        "outputs": {name: sha256(content) for name, content in files.items()},
        "versions": versions("matplotlib", "numpy"),
    }
    write_json(options.lineage, lineage)
    return 0


def figure_files(name: str, shown: ShownFigure, tier: str) -> dict[str, bytes]:
    """File contents by file name; draws the notes and the tier into the figure."""
    width = int(shown.figure.get_figwidth() * NOTE_CHARACTERS_PER_INCH)
    notes = [tier_note(tier), *shown.notes]
    lines = [line for note in notes for line in textwrap.wrap(note, width)]
    # A label of the whole figure, unlike a free text, is given its room by the layout.
    shown.figure.set_figheight(shown.figure.get_figheight() + NOTE_LINE * len(lines))
    shown.figure.supxlabel(
        "\n".join(lines), x=0.005, ha="left", ma="left", fontsize=NOTE_SIZE, color=MUTED
    )
    # Laid out once: the same in all formats, and in a third of the time.
    shown.figure.draw_without_rendering()
    shown.figure.set_layout_engine("none")
    files = {}
    for kind, metadata in METADATA.items():
        buffer = io.BytesIO()
        shown.figure.savefig(buffer, format=kind, metadata=metadata)
        files[f"{name}.{kind}"] = buffer.getvalue()
    files[f"{name}.csv"] = to_csv(shown.columns, shown.rows, tier)
    return files


def table_files(name: str, shown: ShownTable, tier: str) -> dict[str, bytes]:
    """File contents by file name."""
    note = tier_note(tier)
    return {
        f"{name}.csv": to_csv(shown.columns, shown.rows, tier),
        f"{name}.md": to_markdown(shown.parts, note).encode(),
        f"{name}.tex": to_tex(shown.parts, note).encode(),
    }


def to_csv(columns: Sequence[str], rows: Sequence[Row], tier: str) -> bytes:
    """Rows as csv in the order of `columns`; floats by repr, missing values empty.

    `runs` holds the ids of the records behind the row, joined by `;`.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns, *LAST_COLUMNS])
    for row in rows:
        extra = set(row) - {*columns, "runs"}
        if extra:
            raise TypeError(f"row with unknown columns {sorted(extra)}")
        cells = [_cell(row.get(column)) for column in columns]
        writer.writerow([*cells, tier, ";".join(row["runs"])])
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    # float() so that numpy's scalars do not print their type.
    return repr(float(value)) if isinstance(value, float) else str(value)


def _settings(text: str) -> Settings:
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise InputError("--settings", repr(text[:80]), "a JSON object")
    return settings


def _behind(records: Records, paths: Sequence[Path], root: Path) -> dict[str, dict[str, str]]:
    return {
        record["id"]: {
            "path": Path(os.path.relpath(path, root)).as_posix(),
            "sha256": sha256(path.read_bytes()),
        }
        for record, path in zip(records, paths, strict=True)
    }
