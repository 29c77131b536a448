"""Earlier trainings in an output folder: on the same records, their epsilons add up."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpatlas.base.progress import say
from dpatlas.base.records import read_record
from dpatlas.errors import InputError


def earlier_records(output: Path) -> Iterator[dict[str, Any]]:
    """The records of the trainings in this folder; files that are none are reported."""
    for path in sorted(output.glob("*/record.json")):
        try:
            yield read_record(path)
        except InputError as error:
            say(f"not counted among the trainings before: {error}")


def say_what_adds_up(
    records: Iterable[Mapping[str, Any]], on_same_records: Callable[[Mapping[str, Any]], bool]
) -> None:
    """Name those of these trainings that were on the same records, by `on_same_records`."""
    for record in records:
        if on_same_records(record):
            say(
                f"{record['id']} in this folder was trained on the same records with other "
                "settings: their epsilons add up (dpatlas epsilon adds ledgers)"
            )
