"""Tables as the page shows them: the parts that people read."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from dpatlas.base.files import read_text
from dpatlas.base.schema import is_number

# Formulas of the Markdown of tables, and of the notes of figures.
MATH = re.compile(r"\$`(.+?)`\$")
NOTE_MATH = re.compile(r"\$(.+?)\$")
NAMESPACE = ' xmlns="http://www.w3.org/1998/Math/MathML"'


@dataclass(frozen=True)
class Shown:
    """A table: caption, heads and cells as HTML; which columns hold numbers."""

    caption: Markup
    head: list[Markup]
    rows: list[list[Markup]]
    numeric: list[bool]


def read_parts(path: Path) -> list[Shown]:
    """The parts of a table from its Markdown, as `figures.tables.to_markdown` writes it.

    Raises InputError for a file that cannot be read.
    """
    parts, caption = [], Markup("")
    for block in read_text(path, "a Markdown table").split("\n\n"):
        if block.startswith("**"):
            caption = html(_unescaped(block.strip().strip("*")))
        elif block.startswith("|"):
            head, rule, *rows = [_cells(line) for line in block.strip().splitlines()]
            cells = [[html(cell) for cell in row] for row in rows]
            numeric = [mark.strip().endswith(":") for mark in rule]
            parts.append(Shown(caption, [html(cell) for cell in head], cells, numeric))
            caption = Markup("")
    return parts


def number(text: str) -> str:
    """A number with four significant digits; other text as it is."""
    if not is_number(text):
        return text
    value = float(text)
    if math.isnan(value):
        return "not finite"
    shown = "∞" if math.isinf(value) else f"{abs(value):.4g}"
    return f"−{shown}" if value < 0 else shown


def _cells(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [_unescaped(cell.strip()) for cell in cells]


def _unescaped(text: str) -> str:
    return text.replace(r"\|", "|")


def html(text: str, formula: re.Pattern[str] = MATH) -> Markup:
    """Text with its formulas as MathML, which browsers draw without a script."""
    # Takes half a second to import.
    from latex2mathml.converter import convert

    plain, *rest = formula.split(text)
    shown = escape(plain)
    for tex, after in zip(rest[::2], rest[1::2], strict=True):
        shown += Markup(convert(tex).replace(NAMESPACE, "")) + escape(after)
    return shown
