"""Records: what a run measured and everything needed to repeat it, written once.

`record.json` is a function of spec, code, data and package versions: two runs on one kind of
machine give the same bytes. What varies (host, time, memory) goes to `cost.json` beside it, which
no digest covers.
"""

import os
import platform
import resource
import socket
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from dpatlas import __version__
from dpatlas.core.files import read_json, write_json
from dpatlas.core.processor import processor
from dpatlas.core.specs import Spec
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


# As written: 1 stays 1 and 1.0 stays 1.0.
Number = int | float


class Typed(BaseModel):
    """A part of a record: strict types, no key beside the declared ones, no NaN, frozen.

    A key that is a keyword of Python is an alias: `lam: float = Field(alias="lambda")`.
    """

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        serialize_by_alias=True,
        defer_build=True,
    )


class SpecFields(Typed):
    """Fields of a spec of any kind: its block and kind, and the base of its seeds if it has one."""

    key: str
    kind: str
    seed: int | None = None
    noise_source: str | None = None


class Metrics(Typed):
    """What a job of one kind measured. `VERSION` is raised when fields of the class change."""

    VERSION: ClassVar[int] = 1


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


def make_record(spec: Spec, **parts: Any) -> dict[str, Any]:
    """A record for `spec`; `parts` are its other fields, with `metrics` as an object."""
    metrics, version = parts.get("metrics"), Metrics.VERSION
    if isinstance(metrics, Metrics):
        version = metrics.VERSION
        parts = {**parts, "metrics": metrics.model_dump(mode="json", exclude_unset=True)}
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


def read_record(path: Path | str) -> dict[str, Any]:
    """Read a record; InputError if it is missing, torn or of another schema version."""
    record = read_json(path)
    if not isinstance(record, dict) or record.get("schema_version") != SCHEMA_VERSION:
        found = record.get("schema_version") if isinstance(record, dict) else type(record).__name__
        raise InputError(str(path), f"schema version {found}", f"a record of {SCHEMA_VERSION}")
    missing = [field for field in FIELDS if field not in record]
    if missing:
        raise InputError(str(path), f"a record without {', '.join(missing)}", "a whole record")
    return record
