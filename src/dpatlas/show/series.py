"""What figures and tables of several papers share: which records, and how series are told apart."""

from typing import Any

from matplotlib.lines import Line2D

from dpatlas.errors import InputError
from dpatlas.records import Record
from dpatlas.show.look import Look
from dpatlas.show.output import Records

BLUE, RED, GREEN, PINK, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
# For series without a look of their own, told apart in grey print too.
SERIES = (
    Look("", BLUE, "o", "-"),
    Look("", RED, "s", "--"),
    Look("", GREEN, "^", "-."),
    Look("", PINK, "D", ":"),
    Look("", "black", "v", "-"),
    Look("", ORANGE, "P", "--"),
)


def only(records: Records, kind: str) -> Record[Any, Any]:
    """The record of that kind; InputError unless there is exactly one."""
    matching = of_kind(records, kind)
    if len(matching) != 1:
        raise InputError("--records", f"{len(matching)} of kind {kind}", "exactly one")
    return matching[0]


def of_kind(records: Records, kind: str) -> list[Record[Any, Any]]:
    """The records of that kind."""
    return [record for record in records if record.kind == kind]


def handle(look: Look) -> Line2D:
    """An entry of a legend."""
    return Line2D([], [], label=look.label, marker=look.marker, markersize=4, **look.line)
