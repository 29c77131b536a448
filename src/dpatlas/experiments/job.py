"""What every experiment's command line shares: spec in, record out, resumable in between."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.core.checkpoints import Checkpoints
from dpatlas.core.digest import code_digest
from dpatlas.core.files import check_writable
from dpatlas.core.records import Stopwatch, make_record, versions, write_record
from dpatlas.core.seeds import Noise
from dpatlas.core.specs import Spec
from dpatlas.data.prepared import Prepared, load
from dpatlas.errors import ArgumentParser, InputError

SECONDS_BETWEEN_CHECKPOINTS = 20.0
DEVICES = ("cpu", "cuda", "auto")
Stored = tuple[dict[str, np.ndarray], dict[str, Any]]


@dataclass
class Job:
    """One spec being run: its data (None if it names none), device, checkpoints and clock.

    `backbones`: folders of trained backbones, to read or, where one is trained, to write.
    `public`: a second, public data set, for a spec with `public_data`.
    """

    spec: Spec
    data: Prepared | None
    device: str
    checkpoints: Checkpoints
    stopwatch: Stopwatch
    backbones: tuple[Path, ...] = ()
    public: Prepared | None = None
    saved: float = field(default_factory=time.monotonic)

    def save_due(self) -> bool:
        """True once every `SECONDS_BETWEEN_CHECKPOINTS`; the clock decides when, never what."""
        if time.monotonic() - self.saved < SECONDS_BETWEEN_CHECKPOINTS:
            return False
        self.saved = time.monotonic()
        return True

    def save(
        self,
        name: str,
        arrays: Mapping[str, np.ndarray],
        facts: Mapping[str, Any],
        noise: Noise | None = None,
    ) -> None:
        """A checkpoint, with the seconds used so far and, if it is one of its own, noise's secret.

        Raises OSError where it cannot be written.
        """
        secret = {} if noise is None else {"secret": noise.secret}
        self.checkpoints.save(name, dict(arrays), {**facts, **secret, **self.stopwatch.read()})

    def restored(self, name: str, noise: Noise | None = None) -> Stored | None:
        """Arrays and facts of a checkpoint; None without one.

        Carries over the seconds that the interrupted attempt had used, and its secret to `noise`.
        """
        stored = self.checkpoints.load(name)
        if stored is not None:
            self.stopwatch.carry(stored[1])
            if noise is not None:
                noise.carry(stored[1]["secret"])
        return stored


def resolve_device(name: str) -> str:
    """`cpu` or `cuda`; `auto` takes a GPU if there is one."""
    if name not in DEVICES:
        raise InputError("device", repr(name), "one of " + ", ".join(DEVICES))
    if name == "cpu":
        return name
    import torch

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
    *,
    takes_backbones: bool = False,
    takes_public_data: bool = False,
) -> int:
    """Parse the arguments of one job and `execute` it."""
    parser = ArgumentParser(prog=f"python -m {module}", description="Run one spec.")
    parser.add_argument("--spec", required=True, help="the spec as JSON")
    parser.add_argument(
        "--data", type=Path, help="manifest of the prepared data, if the spec has any"
    )
    parser.add_argument("--record", required=True, type=Path, help="record.json to write")
    parser.add_argument("--checkpoints", required=True, type=Path, help="folder for checkpoints")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto")
    if takes_backbones:
        parser.add_argument(
            "--backbone", action="append", type=Path, help="folder of a backbone; repeatable"
        )
    if takes_public_data:
        parser.add_argument("--public-data", type=Path, help="manifest of the spec's public data")
    options = parser.parse_args(arguments)
    execute(
        Spec.parse(options.spec),
        module=module,
        packages=packages,
        run=run,
        data=options.data,
        record=options.record,
        checkpoints=options.checkpoints,
        device=options.device,
        backbones=tuple(vars(options).get("backbone") or ()),
        public_data=vars(options).get("public_data"),
    )
    return 0


def execute(
    spec: Spec,
    *,
    module: str,
    packages: tuple[str, ...],
    run: Callable[[Job], dict[str, Any]],
    data: Path | None,
    record: Path,
    checkpoints: Path,
    device: str,
    backbones: tuple[Path, ...] = (),
    public_data: Path | None = None,
) -> dict[str, Any]:
    """Call `run`, write its record to the path `record`, and return what was written.

    module, packages: what the record's code digest covers, and whose versions it names; torch takes
        seconds to load, and a job that does not name it does without.
    data, public_data: manifests of the prepared data sets; None for a spec that names none.
    `run` returns the record's metrics, seeds and ledger. A killed job goes on from its checkpoint.
    """
    stopwatch = Stopwatch()
    check_writable(record.parent)
    device = resolve_device(device)
    prepared = _data(spec, "data", data)
    public = _data(spec, "public_data", public_data)
    digest = code_digest(module)
    identity = {
        "spec": spec.digest,
        "code": digest,
        "data": [each and each.sha256 for each in (prepared, public)],
        "device": device,
        "versions": versions(*packages),
    }
    kept = Checkpoints(checkpoints / spec.id, identity)
    job = Job(spec, prepared, device, kept, stopwatch, backbones, public)
    with _torch() if "torch" in packages else nullcontext():
        found = run(job)
    content = make_record(
        spec,
        code_digest=digest,
        versions=versions(*packages),
        device=device,
        data=prepared and prepared.manifest,
        **found,
    )
    write_record(record, content, job.stopwatch)
    kept.clear()
    return content


def _torch() -> AbstractContextManager:
    """One thread, and no gradients: the caller's process may go on to train by autograd."""
    import torch

    torch.set_num_threads(1)
    return torch.no_grad()


def _data(spec: Spec, field: str, manifest: Path | None) -> Prepared | None:
    """The data set that the spec names in `field`."""
    if (field in spec.fields) != (manifest is not None):
        option = "--" + field.replace("_", "-")
        found = f"no {option}" if manifest is None else str(manifest)
        needed = spec.fields.get(field, "none: the spec names no such data set")
        allowed = f"the manifest of {needed}" if manifest is None else needed
        raise InputError(option, found, allowed)
    return manifest and load(manifest.parent)
