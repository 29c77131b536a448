"""The unit of privacy: one record, or one person with all of their records.

Samplers draw units, accountants and divisors count them, and each unit's gradient is clipped as a
whole. A person's gradient is the mean over their records' gradients: so every person counts alike,
and a clip bound means the same for a person with one record and for one with fifty. (A sum would
give those with many records a larger gradient, which the clip then takes away again.)

Persons with equally many records go through the network together, since then their rows form a
rectangle; the kernel takes that many consecutive rows as one unit.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpatlas.accounting.ledger import Persons
from dpatlas.errors import InputError
from dpatlas.privacy.digest import digest

# Rows of the data: a slice, or indices.
Rows = slice | np.ndarray


def row_count(rows: Rows) -> int:
    """Number of rows."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


class OneRecord:
    """Each of n records is a unit."""

    persons: Persons | None = None
    sizes: tuple[int, ...] = (1,)

    def __init__(self, n: int):
        self.n = n

    def chunks(self, drawn: np.ndarray | None, limit: int | None) -> Iterator[tuple[int, Rows]]:
        """Rows of the drawn units (None: of all), at most `limit` at a time, with the size 1.

        An empty batch is one chunk of no rows.
        """
        count = self.n if drawn is None else len(drawn)
        size = limit or max(1, count)
        for start in range(0, max(1, count), size):
            chunk = slice(start, min(start + size, count))
            yield 1, chunk if drawn is None else drawn[chunk]

    def facts(self) -> Any:
        """As JSON values, for a plan; None where each record is a unit."""
        return None


class PersonsWithRecords(OneRecord):
    """Each person is a unit: the records with the same integer id. ids: (records,)."""

    def __init__(self, ids: Any, records: int):
        given = np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids)
        if given.shape != (records,) or given.dtype.kind not in "iu":
            found = f"{given.dtype} of shape {given.shape}"
            raise InputError("groups", found, f"whole numbers of shape ({records},): whose record")
        people, person, counts = np.unique(given, return_inverse=True, return_counts=True)
        super().__init__(len(people))
        # Records by person, in the order of the data: those of person p begin at starts[p].
        self._order = np.argsort(person, kind="stable")
        self._counts = counts
        self._starts = np.cumsum(counts) - counts
        self._digest = digest(person)
        self.sizes = tuple(np.unique(counts).tolist())
        self.persons = Persons(len(people), int(counts.max()), records)

    def chunks(self, drawn: np.ndarray | None, limit: int | None) -> Iterator[tuple[int, Rows]]:
        """Rows of the drawn persons with equally many records, these consecutive, and how many.

        `limit`: of rows; the records of one person are never divided. An empty batch is one chunk
        of no rows.
        """
        drawn = np.arange(self.n) if drawn is None else drawn
        if len(drawn) == 0:
            yield 1, drawn
        counts = self._counts[drawn]
        for size in np.unique(counts).tolist():
            starts = self._starts[drawn[counts == size]]
            rows = self._order[starts[:, None] + np.arange(size)]
            at_once = max(1, limit // size) if limit else len(rows)
            for start in range(0, len(rows), at_once):
                yield size, rows[start : start + at_once].ravel()

    def facts(self) -> Any:
        """As JSON values, for a plan."""
        return {"persons": self.n, "records": len(self._order), "digest": self._digest}
