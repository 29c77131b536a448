"""A list of chest X-rays and their classes, beside a copy of the published archive.

It decides which images belong to the data set and what they show, whatever their folders and names
say.
"""

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from dpatlas.errors import InputError

COLUMNS = ["file", "label"]
# The list of all published images would have 0.5 MB.
LARGEST_LIST = 1 << 23


def listed(
    path: Path, content: bytes, member: re.Pattern[str], classes: Sequence[str]
) -> dict[str, str]:
    """Path in the archive -> class, in the order of the list in `content`, a csv with a header.

    member: what a path in the archive looks like. Raises InputError with the line, for another
    header, a line that is no path and label, an unknown label, and an image that is listed twice.
    """
    rows = _rows(path, content)
    if not rows or rows[0][1] != COLUMNS:
        found = ",".join(rows[0][1]) if rows else "an empty file"
        raise InputError(f"{path}: line 1", repr(found[:80]), ",".join(COLUMNS))
    labels: dict[str, str] = {}
    lines: dict[str, int] = {}
    for line, row in rows[1:]:
        where = f"{path}: line {line}"
        if len(row) != len(COLUMNS):
            raise InputError(where, f"{len(row)} columns", " and ".join(COLUMNS))
        file, label = row
        if not member.fullmatch(file):
            allowed = "chest_xray/, train/ or test/, NORMAL/ or PNEUMONIA/, and a name in .jpeg"
            raise InputError(where, repr(file[:200]), allowed)
        if label not in classes:
            raise InputError(where, f"label {label[:80]!r}", " | ".join(classes))
        if file in labels:
            found = f"{file}, which line {lines[file]} has too"
            raise InputError(where, found, "every image once")
        labels[file], lines[file] = label, line
    return labels


def check(
    path: Path,
    labels: Mapping[str, str],
    members: Collection[str],
    totals: Mapping[str, int],
) -> None:
    """InputError unless all images of the list are `members` and each split has its total."""
    counts = dict.fromkeys(totals, 0)
    for file in labels:
        split = file.split("/")[1]
        counts[split] += 1
        if file in members:
            continue
        others = (file.replace(f"/{split}/", f"/{other}/", 1) for other in totals)
        elsewhere = next((other for other in others if other in members), None)
        hint = f", but {elsewhere} is" if elsewhere else ""
        allowed = "images of the copy beside this list, each in its own split"
        raise InputError(str(path), f"{file}, which is not in the copy{hint}", allowed)
    for split, total in totals.items():
        if counts[split] != total:
            raise InputError(str(path), f"{counts[split]} {split} images", f"{total} of them")


def _rows(path: Path, content: bytes) -> list[tuple[int, list[str]]]:
    """Line number and cells of every line that is not empty."""
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        return [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), f"no csv file ({error})", "a csv file in UTF-8") from None
