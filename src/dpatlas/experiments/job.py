"""What every experiment's command line shares: spec in, record out, resumable in between."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpatlas.core.checkpoints import Checkpoints
from dpatlas.core.digest import code_digest
from dpatlas.core.files import check_writable
from dpatlas.core.records import Stopwatch, make_record, versions, write_record
from dpatlas.core.specs import Spec
from dpatlas.data.prepared import Prepared, load
from dpatlas.errors import ArgumentParser, InputError

SECONDS_BETWEEN_CHECKPOINTS = 20.0
DEVICES = ("cpu", "cuda", "auto")


@dataclass
class Job:
    """One spec being run: its data, device, checkpoints and clock."""

    spec: Spec
    data: Prepared
    device: str
    checkpoints: Checkpoints
    stopwatch: Stopwatch
    saved: float = field(default_factory=time.monotonic)

    def save_due(self) -> bool:
        """True once every `SECONDS_BETWEEN_CHECKPOINTS`; the clock decides when, never what."""
        if time.monotonic() - self.saved < SECONDS_BETWEEN_CHECKPOINTS:
            return False
        self.saved = time.monotonic()
        return True

    def spent(self) -> dict[str, float]:
        """Seconds used so far, stored with a checkpoint so that the cost adds up."""
        return self.stopwatch.read()

    def resume(self, spent: dict[str, float]) -> None:
        """Carry over the seconds that an interrupted attempt had used."""
        self.stopwatch.carry(spent)


def resolve_device(name: str) -> str:
    """`cpu` or `cuda`; `auto` takes a GPU if there is one."""
    import torch

    if name not in DEVICES:
        raise InputError("device", repr(name), "one of " + ", ".join(DEVICES))
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device", "'cuda' without a usable GPU", "cpu, or auto")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def job_main(
    arguments: Sequence[str],
    module: str,
    packages: tuple[str, ...],
    run: Callable[[Job], dict[str, Any]],
) -> int:
    """Parse the arguments of one job, call `run` and write its record.

    `run` returns the record's metrics, seeds and ledger.
    """
    parser = ArgumentParser(prog=f"python -m {module}", description="Run one spec.")
    parser.add_argument("--spec", required=True, help="the spec as JSON")
    parser.add_argument("--data", required=True, type=Path, help="manifest of the prepared data")
    parser.add_argument("--record", required=True, type=Path, help="record.json to write")
    parser.add_argument("--checkpoints", required=True, type=Path, help="folder for checkpoints")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto")
    options = parser.parse_args(arguments)
    stopwatch = Stopwatch()
    check_writable(options.record.parent)
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    spec = Spec.parse(options.spec)
    device = resolve_device(options.device)
    data = load(options.data.parent)
    digest = code_digest(module)
    identity = {
        "spec": spec.digest,
        "code": digest,
        "data": data.sha256,
        "device": device,
        "versions": versions(*packages),
    }
    checkpoints = Checkpoints(options.checkpoints / spec.id, identity)
    job = Job(spec, data, device, checkpoints, stopwatch)
    record = make_record(
        spec,
        code_digest=digest,
        versions=versions(*packages),
        device=device,
        data=data.manifest,
        **run(job),
    )
    write_record(options.record, record, job.stopwatch)
    checkpoints.clear()
    return 0
