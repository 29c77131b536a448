"""Records: what a run measured and everything needed to repeat it, written once.

`record.json` is a function of spec, code, data and package versions: two runs on one kind of
machine give the same bytes. What varies (host, time, memory) goes to `cost.json` beside it, which
no digest covers.
"""

import functools
import itertools
import math
import operator
import os
import platform
import resource
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from dpatlas import __version__
from dpatlas.base.fields import Count, Model
from dpatlas.base.files import read_json, write_json
from dpatlas.base.processor import processor
from dpatlas.base.specs import Spec
from dpatlas.errors import InputError

SCHEMA_VERSION = 1
FIELDS = (
    "schema_version",
    "id",
    "key",
    "spec",
    "spec_digest",
    "code_digest",
    "versions",
    "device",
    "data",
    "seeds",
    "ledger",
    "metrics",
)


# Of a table, by column.
Row = dict[str, Any]
# As written: 1 stays 1 and 1.0 stays 1.0.
Number = int | float
# What all blocks of runs compute alike may differ between processors by so much.
RELATIVE, ABSOLUTE = 1e-6, 1e-9


def _equal(first: Any, other: Any) -> bool:
    if isinstance(first, float) and isinstance(other, int | float):
        return math.isclose(first, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(first) is type(other) and bool(first == other)


def _shown(value: Any) -> str:
    return f"{len(value)} entries" if isinstance(value, list | dict) else repr(value)[:40]


class SpecFields(Model):
    """Fields of a spec of any kind: its block and kind, and the base of its seeds if it has one."""

    key: str
    kind: str
    seed: int | None = None
    noise_source: str | None = None

    @property
    def base_seed(self) -> int | None:
        """The base of all seeds that a record names; None where there is none."""
        return self.seed


def checked_fields(model: type[Any], fields: Any, where: str) -> Any:
    """JSON as an instance of a class; InputError for its first bad field, where `where` begins."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = where + ".".join(map(str, first["loc"]))
        if isinstance(cause := first.get("ctx", {}).get("error"), InputError):
            joint = "." if cause.where and path and not path.endswith((".", " ")) else ""
            path = f"{path}{joint}{cause.where}".rstrip(".")
            raise InputError(path, cause.found, cause.allowed) from None
        raise InputError(path, repr(first["input"])[:60], first["msg"]) from None


class RunsFields(SpecFields):
    """Fields of a spec of repeated runs: its job computes `runs` of them, from `first_run` on.

    A run is known by its number, which is the same whatever block it is computed in.
    """

    first_run: Annotated[int, Field(ge=0)] = 0
    runs: Count

    @property
    def run_numbers(self) -> range:
        """Numbers of the runs of this block."""
        return range(self.first_run, self.first_run + self.runs)


@dataclass(frozen=True)
class RecordShape:
    """What records of one kind hold: the constant `RECORD` of its module among a block's `records`.

    spec: class of its specs. facts: names of the single values in `metrics`. tables: by name the
    columns of its tables, lists of rows; a table with a column `run` has rows of every run, any
    other is the same in all blocks of runs. A row with an `arm` belongs to that row of `arms`.
    version: raised when facts or columns change. Names have spaces between them.
    """

    spec: type[SpecFields]
    version: int
    facts: str
    tables: Mapping[str, str]

    def columns(self, table: str) -> list[str]:
        """Columns of a table; InputError where the kind has none of this name."""
        if table not in self.tables:
            raise InputError("table", table, f"one of {', '.join(self.tables)}")
        return self.tables[table].split()

    def readable(self, table: str) -> list[str]:
        """Columns of a table as it is read: one with a column `arm` has those of `arms`, too."""
        own = self.columns(table)
        of_arm = self.tables.get("arms", "").split() if "arm" in own else []
        return list(dict.fromkeys([*of_arm, *own]))

    def check(self, metrics: Any, where: str) -> None:
        """Raise InputError, naming the part below `where`, unless `metrics` (JSON) fits."""
        _check_names(metrics, [*self.facts.split(), *self.tables], where)
        for table in self.tables:
            rows, columns = metrics[table], self.columns(table)
            if not isinstance(rows, list):
                raise InputError(f"{where}.{table}", type(rows).__name__, "a list of rows")
            for number, row in enumerate(rows):
                _check_names(row, columns, f"{where}.{table}.{number}")


def _check_names(value: Any, names: Sequence[str], where: str) -> None:
    if not isinstance(value, dict):
        raise InputError(where, type(value).__name__, f"an object with {', '.join(names)}")
    for word, of in (("without", set(names) - set(value)), ("also", set(value) - set(names))):
        if of:
            raise InputError(where, f"{word} {', '.join(sorted(of))}", ", ".join(names))


def check_alike(first: Any, other: Any, where: str) -> None:
    """Raise InputError where JSON of two blocks of runs, the same in all, is not.

    Numbers may differ as between processors. `where` names the part of it that differs.
    """
    if isinstance(first, dict) and isinstance(other, dict) and first.keys() == other.keys():
        for name in first:
            check_alike(first[name], other[name], f"{where}.{name}")
    elif isinstance(first, list) and isinstance(other, list) and len(first) == len(other):
        for number, pair in enumerate(zip(first, other, strict=True)):
            check_alike(*pair, f"{where}.{number}")
    elif not _equal(first, other):
        found = f"{_shown(first)} in one block of runs, {_shown(other)} in another"
        raise InputError(where, found, "the same in all blocks of a condition: run them again")


def rows_of(axes: Mapping[str, Iterable[Any]], **columns: Any) -> list[Row]:
    """Rows of a table: one for each combination of the axes' values, the last axis fastest.

    columns: by name a nested list, or an array, with an axis for each of `axes`, in this order.
    """
    named = {name: list(values) for name, values in axes.items()}
    lists = {
        name: values.tolist() if hasattr(values, "tolist") else values
        for name, values in columns.items()
    }
    rows = []
    for index in itertools.product(*(range(len(values)) for values in named.values())):
        row = {name: values[i] for (name, values), i in zip(named.items(), index, strict=True)}
        at = {name: functools.reduce(operator.getitem, index, v) for name, v in lists.items()}
        rows.append(row | at)
    return rows


class Stopwatch:
    """Wall seconds since it was made, and CPU seconds of the whole process so far."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.monotonic(), 0.0

    def carry(self, spent: dict[str, float]) -> None:
        """Start from what an interrupted attempt had used, as `read` gave it, if that is more."""
        self.wall = min(self.wall, time.monotonic() - spent["wall_s"])
        self.cpu = min(self.cpu, time.process_time() - spent["cpu_s"])

    def read(self) -> dict[str, float]:
        """Seconds so far."""
        return {"wall_s": time.monotonic() - self.wall, "cpu_s": time.process_time() - self.cpu}


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python, of this package and of `packages`."""
    fixed = {"python": platform.python_version(), "dpatlas": __version__}
    return fixed | {name: metadata.version(name) for name in packages}


def make_record(spec: Spec, shape: RecordShape | None = None, **parts: Any) -> dict[str, Any]:
    """A record for `spec`; `parts` are its other fields, with `metrics` as JSON of the `shape`."""
    version = 1
    if shape is not None:
        shape.check(parts.get("metrics"), f"{spec.id}: metrics")
        version = shape.version
    record = {
        "schema_version": SCHEMA_VERSION,
        "id": spec.id,
        "key": spec.key,
        "spec": spec.fields,
        "spec_digest": spec.digest,
        **parts,
    }
    missing, extra = set(FIELDS) - set(record), set(record) - set(FIELDS)
    if missing or extra:
        raise TypeError(f"record of {spec.id}: missing {sorted(missing)}, extra {sorted(extra)}")
    return {**record, "metrics_version": version}


def write_record(path: Path | str, record: dict[str, Any], stopwatch: Stopwatch) -> None:
    """Write `cost.json` and then `record.json`, each by rename; the record comes last."""
    path = Path(path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cost = {
        **stopwatch.read(),
        # Linux counts in KiB, macOS in bytes.
        "peak_memory_mb": peak / (1024**2 if sys.platform == "darwin" else 1024),
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "device": record["device"],
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_json(path.with_name("cost.json"), cost)
    write_json(path, record)


# One that `train` left is the only account of a release: it must not be made again.
WHOLE = "a whole record; a torn one of the workflow can be deleted, and snakemake makes it again"


def read_record(path: Path | str) -> dict[str, Any]:
    """Read a record; InputError if it is missing, torn or of another schema version."""
    record = read_json(path, WHOLE)
    if not isinstance(record, dict) or record.get("schema_version") != SCHEMA_VERSION:
        found = record.get("schema_version") if isinstance(record, dict) else type(record).__name__
        raise InputError(str(path), f"schema version {found}", f"a record of {SCHEMA_VERSION}")
    missing = [field for field in FIELDS if field not in record]
    if missing:
        raise InputError(str(path), f"a record without {', '.join(missing)}", WHOLE)
    return record
