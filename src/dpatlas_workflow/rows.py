"""Rows of records as columns of a pandas data frame, for figures and claims."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from dpatlas.base.fields import Model
from dpatlas.base.records import Row
from dpatlas.errors import InputError
from dpatlas_workflow.records import Record

SCALAR = (str, int, float, bool)


def columns(records: Iterable[Record[Any]], table: str = "rows", **where: Any) -> pd.DataFrame:
    """The rows of this table of all records, in their order.

    Beside the table's own columns: those of the row's arm, where the records have a table `arms`;
    the fields of each record's spec (`fields_of`), its single facts, `record`, its id, `condition`,
    and `ids`, a tuple of the ids of all blocks. Of equal names a row's comes before a spec's, and
    this before a fact's. What a record has no value for is missing. where: by column the value of
    the rows that are taken, or a list of them. Records that differ from it in a field of their spec
    are not read.

    Raises InputError for a kind without the table, and for a column that there is not.
    """
    rows: list[Row] = []
    names: list[str] = []
    for record in records:
        own, fields = record.shape.readable(table), fields_of(record)
        of_spec = {name: value for name, value in where.items() if name in fields.keys() - own}
        if any(fields[name] not in as_list(value) for name, value in of_spec.items()):
            continue
        facts = {name: v for name, v in record.facts.items() if isinstance(v, SCALAR)}
        ids = {"record": record.id, "condition": record.condition, "ids": record.ids}
        shared = {n: v for n, v in {**facts, **fields, **ids}.items() if n not in own}
        names = [*own, *shared]
        arms = {row.get("arm"): row for row in record.tables.get("arms", ())}
        rows += [arms.get(row.get("arm"), {}) | row | shared for row in record.tables[table]]
    data = pd.DataFrame(rows, columns=None if rows else names)
    for name, value in where.items():
        if name not in data:
            raise InputError("column", name, ", ".join(data.columns))
        data = data[data[name].isin(as_list(value))]
    return data


def arms(record: Record[Any]) -> list[Row]:
    """The rows of a record's `arms`, each with lists over runs of what its `runs` measured."""
    measured = [name for name in record.shape.columns("runs") if name not in ("run", "arm")]
    found = {row["arm"]: row | {name: [] for name in measured} for row in record.tables["arms"]}
    for run in record.tables["runs"]:
        for name in measured:
            found[run["arm"]][name].append(run[name])
    return list(found.values())


def fields_of(record: Record[Any]) -> dict[str, Any]:
    """Single values in a record's spec, or None, by name; those of a part of it as `data.name`."""
    found: dict[str, Any] = {}
    for name, value in dict(record.spec).items():
        if isinstance(value, Model):
            found |= {f"{name}.{inner}": part for inner, part in dict(value).items()}
        found[name] = value
    return {
        name: value for name, value in found.items() if value is None or isinstance(value, SCALAR)
    }


def as_list(value: Any) -> list[Any]:
    """The values of a list or tuple; a single value alone."""
    return list(value) if isinstance(value, list | tuple) else [value]
