"""What every figure and table job shares: records in, files and their lineage out.

A job reads records, calls the one function that its name stands for, and writes what that gives:
pdf, png, svg, csv and json (the chart of the page) of a figure; csv, md and tex of a table. The csv
has exactly what is shown, with the record ids behind each row. Equal records, code and package
versions give equal bytes.
"""

import csv
import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.style

from dpatlas.base.canonical import canonical_json
from dpatlas_workflow.show.charts import chart_of
from dpatlas_workflow.show.look import MUTED, NOTE_SIZE, STYLE
from dpatlas_workflow.show.panel import ShownFigure
from dpatlas_workflow.show.plot import plot
from dpatlas_workflow.show.rows import LEAST_RUNS, Row
from dpatlas_workflow.show.tables import Part, to_markdown, to_tex

TIER_WARNINGS = {"smoke": "smoke settings: numbers mean nothing"}
LAST_COLUMNS = ("tier", "runs")
INTERVALS_NOTE = "verdicts rest on intervals of their own, most of them wider: see claims.csv"
FEW_NOTE = f"values of fewer than {LEAST_RUNS} runs have no interval"
# Of ordinary words: at 20 a line of wide letters ended beyond the figure.
NOTE_CHARACTERS_PER_INCH = 18
NOTE_LINE = 0.12
# Stands for a space of a formula while lines are broken.
IN_FORMULA = "\0"
LETTER = re.compile(r"\b(?:alpha|beta|delta|epsilon|eta|kappa|lambda|mu|sigma|tau|theta|zeta)\b")
# Without dates and versions, so that equal figures are equal files.
METADATA = {
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "png": {"Software": None},
    "svg": {"Creator": None, "Date": None},
}


@dataclass(frozen=True)
class ShownTable:
    """A table: all its numbers as `rows` (as in `ShownFigure`), and the parts that people read."""

    columns: tuple[str, ...]
    rows: list[Row]
    parts: list[Part]


def tier_note(tier: str) -> str:
    """What every figure and table says about the settings that its numbers come from."""
    return "; ".join([f"tier {tier}", *filter(None, [TIER_WARNINGS.get(tier)])])


def figure_files(name: str, shown: ShownFigure, tier: str) -> dict[str, bytes]:
    """File contents by file name; draws the notes and the tier into the figure."""
    with matplotlib.style.context(["default", STYLE]):
        pictures = _pictures(shown, words_below(shown, tier))
    return {
        **{f"{name}.{kind}": picture for kind, picture in pictures.items()},
        f"{name}.csv": to_csv(shown.columns, shown.rows, tier),
        f"{name}.json": canonical_json(chart_of(shown, _notes(shown))).encode(),
    }


def words_below(shown: ShownFigure, tier: str) -> list[str]:
    """Lines of the tier, the notes and what is said of intervals, as they stand below a figure."""
    told = _notes(shown)
    # In front, so that no line break divides it.
    notes = ["; ".join([tier_note(tier), *told[:1]]), *told[1:]]
    if any(row.get("low") is not None for row in shown.rows):
        notes.append(INTERVALS_NOTE)
    width = int(shown.width * NOTE_CHARACTERS_PER_INCH)
    wrapped = [line for note in notes for line in textwrap.wrap(_with_values(note), width)]
    return [_with_symbols(line.replace(IN_FORMULA, " ")) for line in wrapped]


def _notes(shown: ShownFigure) -> list[str]:
    few = any(0 < (row.get("runs_used") or 0) < LEAST_RUNS for row in shown.rows)
    return [*shown.notes, *([FEW_NOTE] if few else [])]


def _pictures(shown: ShownFigure, lines: list[str]) -> dict[str, bytes]:
    figure = plot(shown)
    # The layout makes room for a label of the whole figure, which it does not for a free text.
    figure.set_figheight(figure.get_figheight() + NOTE_LINE * len(lines))
    figure.supxlabel(
        "\n".join(lines), x=0.005, ha="left", ma="left", fontsize=NOTE_SIZE, color=MUTED
    )
    # Laid out once: the same in all formats, and in a third of the time.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    pictures = {}
    for kind, metadata in METADATA.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata)
        pictures[kind] = buffer.getvalue()
    return pictures


def _with_values(note: str) -> str:
    """The note with no place for a line to end in a formula or between a symbol and its value."""
    words = note.split("$")
    words[::2] = [text.replace(" = ", "\u00a0=\u00a0") for text in words[::2]]
    words[1::2] = [formula.replace(" ", IN_FORMULA) for formula in words[1::2]]
    return "$".join(words)


def _with_symbols(line: str) -> str:
    """The line with names of Greek letters outside of formulas as the letters of formulas."""
    words = line.split("$")
    words[::2] = [LETTER.sub(r"$\\\g<0>$", text) for text in words[::2]]
    return "$".join(words)


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
        if extra := set(row) - {*columns, "runs"}:
            raise TypeError(f"row with unknown columns {sorted(extra)}")
        cells = [_cell(row.get(column)) for column in columns]
        writer.writerow([*cells, tier, ";".join(row["runs"])])
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    # float() so that numpy's scalars do not print their type.
    return repr(float(value)) if isinstance(value, float) else str(value)
