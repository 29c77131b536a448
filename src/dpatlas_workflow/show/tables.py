"""Tables for people: the same parts as GitHub Markdown and as LaTeX (booktabs)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TEX_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{symbol: f"\\{symbol}" for symbol in "&%$#_{}"},
    }
)


@dataclass(frozen=True)
class Math:
    """TeX that stands in math mode."""

    tex: str


@dataclass(frozen=True)
class Measured:
    """A mean with its standard error, None where it is not known."""

    mean: float
    error: float | None

    @classmethod
    def of(cls, row: Mapping[str, Any], name: str, unit: float = 1.0) -> "Measured":
        """The columns of a row that `rows.mean_and_error` gives this name, times `unit`."""
        error = row[f"{name}_standard_error"]
        return cls(unit * row[f"{name}_mean"], None if error is None else unit * error)


Cell = str | int | float | Math | Measured | None


@dataclass(frozen=True)
class Part:
    """One block of a table: a caption, a heading per column, rows of as many cells."""

    caption: str
    headings: tuple[Cell, ...]
    rows: Sequence[tuple[Cell, ...]]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.headings) for row in self.rows):
            raise TypeError(f"{self.caption}: every row needs {len(self.headings)} cells")

    @classmethod
    def of(
        cls, caption: str, headings: Mapping[str, Cell], rows: Iterable[Mapping[str, Any]]
    ) -> "Part":
        """The columns of `rows` under their headings; a missing value is an empty cell."""
        lines = [tuple(row.get(column) for column in headings) for row in rows]
        return cls(caption, tuple(headings.values()), lines)


def to_markdown(parts: Sequence[Part], note: str) -> str:
    """GitHub Markdown; math in the backtick form, which protects underscores and asterisks."""
    blocks = []
    for part in parts:
        lines = [part.headings, *part.rows]
        cells = [[_markdown(cell) for cell in line] for line in lines]
        rule = ["---:" if _is_number(column) else "---" for column in _columns(part)]
        table = [f"| {' | '.join(line)} |" for line in [cells[0], rule, *cells[1:]]]
        blocks.append("\n".join([f"**{_markdown(part.caption)}**", "", *table]))
    return "\n\n".join([*blocks, f"_{_markdown(note)}_"]) + "\n"


def to_tex(parts: Sequence[Part], note: str) -> str:
    """One booktabs tabular per part, for \\input inside a table environment."""
    blocks = ["% needs \\usepackage{booktabs}"]
    for part in parts:
        align = "".join("r" if _is_number(column) else "l" for column in _columns(part))
        lines = [" & ".join(map(_tex, line)) + r" \\" for line in [part.headings, *part.rows]]
        foot = rf"\multicolumn{{{len(align)}}}{{r}}{{\footnotesize {_tex(note)}}} \\"
        tabular = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", lines[0], r"\midrule"]
        tabular += [*lines[1:], r"\bottomrule", foot, r"\end{tabular}"]
        blocks.append("\n".join([rf"\par\noindent {_tex(part.caption)}\par\smallskip", *tabular]))
    return "\n\n".join(blocks) + "\n"


def _columns(part: Part) -> list[tuple[Cell, ...]]:
    return list(zip(*part.rows, strict=True)) or [() for _ in part.headings]


def _is_number(column: Sequence[Cell]) -> bool:
    known = [cell for cell in column if cell is not None]
    return bool(known) and all(isinstance(cell, int | float | Measured) for cell in known)


def _markdown(cell: Cell) -> str:
    if isinstance(cell, Math):
        return f"$`{cell.tex}`$"
    if isinstance(cell, str):
        return " ".join(cell.split()).replace("|", r"\|")
    return _number(cell, str, "±")


def _tex(cell: Cell) -> str:
    if isinstance(cell, Math):
        return f"${cell.tex}$"
    if isinstance(cell, str):
        return " ".join(cell.split()).translate(_TEX_ESCAPES)
    return _number(cell, _tex_power, r"$\pm$")


def _number(cell: Any, power: Callable[[str], str], plus_minus: str) -> str:
    if cell is None:
        return ""
    if isinstance(cell, Measured):
        if cell.error is not None:
            mean, error = _to_the_error(cell.mean, cell.error)
            return f"{power(mean)} {plus_minus} {power(error)}"
        cell = cell.mean
    return power(_four_digits(cell)) if isinstance(cell, float) else str(cell)


def _four_digits(value: float) -> str:
    """Four significant digits, or all digits before the point where that reads better."""
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.4g}"


def _to_the_error(mean: float, error: float) -> tuple[str, str]:
    """Mean and error as text, both to the error's second digit where that reads well."""
    if not 1e-4 <= error < 1e6:
        return _four_digits(mean), f"{error:.2g}"
    last = math.floor(math.log10(error)) - 1
    digits = max(0, -last)
    return f"{round(mean, -last):.{digits}f}", f"{round(error, -last):.{digits}f}"


def _tex_power(text: str) -> str:
    mantissa, mark, exponent = text.partition("e")
    return rf"${mantissa} \times 10^{{{int(exponent)}}}$" if mark else text
