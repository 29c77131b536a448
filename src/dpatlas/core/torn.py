"""The remedy for a torn record of a run, which Snakemake makes again.

One that `train` left must not be deleted: a new one would be a second release.
"""

import contextlib
from collections.abc import Iterator

from dpatlas.errors import InputError

# What the readers of records say of a file of which an end is missing.
TORN = ("text that is not JSON", "a record without ")
REMEDY = "delete it and run snakemake again, which makes it again"


@contextlib.contextmanager
def remedy_for_torn_records() -> Iterator[None]:
    """Reads records within; the InputError for a torn one says what to do about it."""
    try:
        yield
    except InputError as error:
        if not str(error.found).startswith(TORN):
            raise
        raise InputError(error.where, error.found, f"{error.allowed}: {REMEDY}") from None
