"""What a run cost, as its job wrote it beside the record."""

from pathlib import Path
from typing import Any

from dpatlas.base.files import read_json
from dpatlas.base.guard import real
from dpatlas.errors import InputError

SECONDS_AND_MB = ("cpu_s", "wall_s", "peak_memory_mb")


def read_cost(path: Path | str) -> dict[str, Any]:
    """Read a cost.json; InputError if it is missing, torn or lacks its numbers."""
    cost = read_json(path)
    if not isinstance(cost, dict):
        raise InputError(str(path), f"a {type(cost).__name__}", "an object, as a job wrote it")
    for name in SECONDS_AND_MB:
        real(ge=0).check(f"{path}: {name}", cost.get(name))
    return cost
