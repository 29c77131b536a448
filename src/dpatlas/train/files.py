"""Records in CSV and Parquet files as they come.

Every number that a cell becomes follows from the settings alone (ranges, categories, fillers), so
no record has an effect on another one's. Counts of missing and clipped cells are for stderr.
"""

import csv
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.base.guard import number_in
from dpatlas.base.progress import say
from dpatlas.errors import InputError
from dpatlas.train.settings import ColumnSettings, TableSettings

Cells = Sequence[str]
# Numbers of a column of texts that are held in memory: 8 GB.
MOST_NUMBERS = 2**31
FLOAT32 = float(np.finfo(np.float32).max)


def read_table(
    key: str, path: Path, table: TableSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Inputs, targets and persons of the rows of a CSV or Parquet file.

    Inputs (n, d) float32: a number from -1 to 1 for its range's ends, a one for the category among
    as many columns, counts of a text's words by hash, of length 1. Targets (n,): the place among
    the classes, int64, or a number, float32. Persons (n,) int64, None without any.

    Raises InputError, where `key` begins, for a file or cells that the settings do not allow.
    """
    needed = [*table.columns, table.target, *([table.groups] if table.groups else [])]
    columns = read_cells(key, path, needed)
    for name in needed:
        if name not in columns:
            raise InputError(key, f"{path} without a column {name}", ", ".join(columns))
    marks = {"", *map(str.casefold, table.missing_marks)}
    where = {name: f"{key}: column {name}" for name in needed}
    inputs = [
        _encoded(where[name], columns[name], column, marks)
        for name, column in table.columns.items()
    ]
    names, persons = table.classes or (), None
    cells = _filled(where[table.target], columns[table.target], marks, names)
    if names:
        y = _places(where[table.target], cells, names)
    else:
        y = _numbers(where[table.target], cells, FLOAT32).astype(np.float32)
    if table.groups:
        cells = _filled(where[table.groups], columns[table.groups], marks)
        persons = np.unique(cells, return_inverse=True)[1]
    return np.concatenate(inputs, axis=1), y, persons


def read_cells(key: str, path: Path, needed: Collection[str] | None = None) -> dict[str, Cells]:
    """The cells of each column of a CSV or Parquet file as texts, without spaces around them.

    Other columns of a Parquet file than those `needed` have none.
    """
    return _read_parquet(key, path, needed) if path.suffix == ".parquet" else _read_csv(key, path)


def _read_csv(key: str, path: Path) -> dict[str, Cells]:
    allowed = "a CSV file in UTF-8 with commas and a first line of different names"
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = [
                [cell.strip() for cell in row] for row in csv.reader(stream, strict=True) if row
            ]
    except (OSError, ValueError, csv.Error) as error:
        found = f"{path}: {getattr(error, 'strerror', None) or error}"
        raise InputError(key, found, allowed) from None
    if len(rows) < 2 or len(set(rows[0])) < len(rows[0]):
        found = "no row" if len(rows) < 2 else "a name twice"
        raise InputError(key, f"{path}: {found}", allowed)
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(rows[0]):
            raise InputError(key, f"{path}: {len(row)} cells in row {number}", f"{len(rows[0])}")
    return dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))


def _read_parquet(key: str, path: Path, needed: Collection[str] | None) -> dict[str, Cells]:
    allowed = "a Parquet file with rows, which pyarrow reads (pip install pyarrow)"
    try:
        from pyarrow.parquet import read_table  # an extra of its own

        table = read_table(path)
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        raise InputError(key, f"{path}: {error}".splitlines()[0], allowed) from None
    if not table.num_rows:
        raise InputError(key, f"{path}: no row", allowed)
    return {
        name: _texts(f"{key}: column {name}", table[name])
        if needed is None or name in needed
        else ()
        for name in table.column_names
    }


def _texts(where: str, column: Any) -> Cells:
    """The cells of a column of pyarrow's as texts; bytes and lists, which are none, are refused."""
    allowed = "numbers, texts, truth values or dates of the years 1 to 9999"
    try:
        cells = column.to_pylist()
        refused = bool({bytes, list, dict} & set(map(type, cells)))
    except (ValueError, OverflowError):
        refused = True
    if refused:
        raise InputError(where, f"cells of type {column.type}", allowed)
    return ["" if cell is None else str(cell).strip() for cell in cells]


def _encoded(where: str, cells: Cells, column: ColumnSettings, marks: set[str]) -> np.ndarray:
    """What the cells of one column give as inputs, (n, numbers of each)."""
    cells = _filled(where, cells, marks, column.categories or (), column.missing)
    if column.categories:
        places = _places(where, cells, column.categories)
        return np.eye(len(column.categories), dtype=np.float32)[places]
    if column.words:
        if (count := len(cells) * column.words) > MOST_NUMBERS:
            found = f"{column.words:,} for {len(cells):,} rows, {count:,} numbers"
            raise InputError(f"{where}: words", found, f"at most {MOST_NUMBERS:,} numbers")
        return _hashed(cells, column.words)
    assert column.range
    numbers, (low, high) = _numbers(where, cells), column.range
    if outside := int(((numbers < low) | (numbers > high)).sum()):
        say(f"{where}: {outside:,} cells outside {low:g} to {high:g} count as the nearer end")
    scaled = 2 * (numbers.clip(low, high) - low) / (high - low) - 1
    return scaled.astype(np.float32)[:, None]


def _hashed(cells: Cells, buckets: int) -> np.ndarray:
    """Counts of each text's words by hash, (n, buckets), scaled to length 1."""
    from sklearn.feature_extraction.text import HashingVectorizer  # a second to import

    vectorizer = HashingVectorizer(n_features=buckets, alternate_sign=False, norm="l2")
    counts: np.ndarray = vectorizer.transform(cells).astype(np.float32).toarray()
    return counts


def _filled(
    where: str,
    cells: Cells,
    marks: set[str],
    names: Sequence[int | str] = (),
    filler: object = None,
) -> Cells:
    """The cells with missing ones filled, which `names` never are; InputError without a filler."""
    known = set(map(str, names))
    gone = [cell not in known and cell.casefold() in marks for cell in cells]
    if not any(gone):
        return cells
    found = f"{sum(gone):,} of {len(cells):,} cells missing"
    if filler is None:
        allowed = "none, or for an input `missing`, the public constant that fills them"
        raise InputError(where, found, allowed)
    say(f"{where}: {found}, filled with {filler}")
    return [str(filler) if empty else cell for cell, empty in zip(cells, gone, strict=True)]


def _places(where: str, cells: Cells, names: Sequence[int | str]) -> np.ndarray:
    """The place of each cell among the names, (n,) int64."""
    places = {str(name): place for place, name in enumerate(names)}
    for row, cell in enumerate(cells, 1):
        if cell not in places:
            raise InputError(where, f"{cell!r} in row {row}", f"one of {', '.join(places)}")
    return np.array([places[cell] for cell in cells], dtype=np.int64)


def _numbers(where: str, cells: Cells, most: float = np.inf) -> np.ndarray:
    """The cells as numbers from -most to most, (n,) float64."""
    numbers = np.array(
        [np.nan if isinstance(number_in(cell), str) else float(cell) for cell in cells]
    )
    for row in np.flatnonzero(~(np.abs(numbers) <= most)).tolist():
        allowed = "a number, or one of missing_marks" if most == np.inf else "a finite number"
        raise InputError(where, f"{cells[row]!r} in row {row + 1}", allowed)
    return numbers
