"""Execution of a job: a spec in, a record out, checkpoints in between."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.base.checkpoints import Checkpoints
from dpatlas.base.digest import code_digest
from dpatlas.base.facts import Choice
from dpatlas.base.files import check_writable, read_json, remove_parts
from dpatlas.base.records import (
    RecordShape,
    Stopwatch,
    checked_fields,
    make_record,
    read_record,
    versions,
    write_record,
)
from dpatlas.base.seeds import Noise, Streams, recording
from dpatlas.base.specs import Spec
from dpatlas.data import features as frozen
from dpatlas.data.features import Features
from dpatlas.data.prepared import MANIFEST, Prepared, load
from dpatlas.errors import InputError

SECONDS_BETWEEN_CHECKPOINTS = 20.0
DEVICES = ("cpu", "cuda", "auto")
TF32 = "-tf32"
Stored = tuple[dict[str, np.ndarray], dict[str, Any]]


@dataclass
class Job:
    """One spec being run: its data (None if it names none), device, checkpoints and clock.

    `fields`: the spec as an instance of its kind's class. `options`: the result of `Kind.options`.
    `backbones`: folders of trained backbones, to read or, for a job that trains one, to write.
    `public`: a second, public data set, for a spec with `public_data`. `features`: those of the
    data by a frozen backbone; a job that trains on them alone has `data` without images. `streams`:
    the random streams drawn so far. `tuning`: JSON of the record of the tuning that the spec waits
    for.
    """

    spec: Spec
    fields: Any
    data: Prepared | None
    device: str
    checkpoints: Checkpoints
    stopwatch: Stopwatch
    backbones: tuple[Path, ...] = ()
    public: Prepared | None = None
    features: Features | None = None
    streams: Streams = field(default_factory=Streams)
    options: Any = None
    tuning: Mapping[str, Any] | None = None
    saved: float = field(default_factory=time.monotonic)

    def backbone_to_write(self) -> Path:
        """The folder for the backbone that the job trains; InputError unless there is just one."""
        if len(self.backbones) != 1:
            raise InputError("--backbone", f"{len(self.backbones)} folders", "one, to write to")
        return self.backbones[0]

    @property
    def prepared(self) -> Prepared:
        """The data; InputError if the spec names none."""
        if self.data is None:
            raise InputError("--data", "nothing", "the manifest of a prepared data set")
        return self.data

    @property
    def chosen(self) -> Mapping[str, Choice]:
        """Settings by the name of the arm, from the spec or from the tuning that it waits for."""
        if self.tuning is None:
            return self.fields.chosen
        return {row["arm"]: row["chosen"] for row in self.tuning["metrics"]["rows"]}

    def save_due(self) -> bool:
        """Whether `SECONDS_BETWEEN_CHECKPOINTS` have passed; the time affects no result."""
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
        """Write a checkpoint with seconds used, streams drawn so far and the secret of `noise`.

        Raises OSError where it cannot be written.
        """
        secret = {} if noise is None else {"secret": noise.secret}
        job_facts = {"streams": self.streams.stored(), **secret, **self.stopwatch.read()}
        self.checkpoints.save(name, dict(arrays), {**facts, **job_facts})

    def restored(self, name: str, noise: Noise | None = None) -> Stored | None:
        """Arrays and facts of a checkpoint; None without one.

        Takes over the interrupted attempt's seconds and streams, and gives `noise` its secret.
        """
        stored = self.checkpoints.load(name)
        if stored is not None:
            self.stopwatch.carry(stored[1])
            self.streams.add(stored[1]["streams"])
            if noise is not None:
                noise.carry(stored[1]["secret"])
        return stored


def resolve_device(name: str) -> str:
    """`cpu`, `cuda` or `cuda-tf32`; `auto` means a GPU if there is one.

    The ending requests TF32 in passes through networks (`dpatlas.models.precision`), on a GPU.
    """
    device = torch_device(name)
    if device not in DEVICES or name == f"cpu{TF32}":
        endings = (each if each == "cpu" else f"{each} or {each}{TF32}" for each in DEVICES)
        raise InputError("device", repr(name), f"one of {', '.join(endings)}")
    if device == "cpu":
        return name
    import torch

    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise InputError("device", f"{name!r} without a usable GPU", "cpu, or auto")
    return name.replace("auto", "cuda") if available else "cpu"


def torch_device(name: str) -> str:
    """torch's name of the device."""
    return name.removesuffix(TF32)


@dataclass(frozen=True)
class Outcome:
    """The result of a job: facts and tables of rows by name, and the privacy ledger."""

    metrics: Mapping[str, Any]
    ledger: Mapping[str, Any] | list[Mapping[str, Any]] | None


@dataclass(frozen=True)
class Kind:
    """A kind of job: the constant `KIND` of its module, which `execute` runs.

    record: what its specs and records hold. packages: those whose versions a record names; torch
    takes seconds to import and is only set up for jobs that name it. reads_images: whether the job
    reads images even when it is given features of them. options: parses command-line arguments that
    only this kind has into `Job.options`; None if there are none.
    """

    run: Callable[["Job"], Outcome]
    packages: tuple[str, ...]
    record: RecordShape
    reads_images: bool = True
    options: Callable[[Sequence[str]], Any] | None = None


def execute(
    spec: Spec,
    kind: Kind,
    *,
    module: str,
    data: Path | None,
    record: Path,
    checkpoints: Path,
    device: str,
    backbones: tuple[Path, ...] = (),
    public_data: Path | None = None,
    features: Path | None = None,
    options: Any = None,
    tuning: Path | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Run a job, write its record to the path `record`, and return the record.

    module: the record's code digest covers it and its imports. data, public_data: manifests of the
    prepared data sets; None for a spec that names none. features: folder with the features of
    `data` by a frozen backbone. tuning: record of the tuning whose settings a spec without any
    takes. The record's seeds are the spec's base and every stream drawn
    during the run. A killed job continues from its checkpoint; `resume` refuses to start from the
    beginning. Raises InputError for a spec that does not fit the class of its kind.
    """
    stopwatch = Stopwatch()
    fields = checked_fields(kind.record.spec, spec.fields, "--spec: ")
    check_writable(record.parent)
    for folder in (record.parent, checkpoints / spec.id):
        remove_parts(folder)
    device = resolve_device(device)
    of_backbone = None if features is None else frozen.load(features)
    prepared = _data(spec, "data", data, None if kind.reads_images else of_backbone)
    if of_backbone is not None and prepared is not None:
        of_backbone.check("data", prepared.sha256)
    public = _data(spec, "public_data", public_data)
    digest = code_digest(module)
    tuned = _tuning(fields, tuning)
    identity = {
        "spec": spec.digest,
        "code": digest,
        "data": [data_set and data_set.sha256 for data_set in (prepared, public)],
        "features": of_backbone and of_backbone.manifest["sha256"],
        "backbones": _manifests(spec, backbones),
        "tuning": tuned and tuned["metrics"],
        "device": device,
        "versions": versions(*kind.packages),
    }
    store = Checkpoints(checkpoints / spec.id, identity)
    if resume and not store.trusted():
        allowed = "settings, data, code and device of a training that was interrupted"
        raise InputError("--resume", f"no checkpoint of these in {store.folder}", allowed)
    with recording() as streams, numerics(device) if "torch" in kind.packages else nullcontext():
        job = Job(
            spec,
            fields,
            prepared,
            torch_device(device),
            store,
            stopwatch,
            backbones=backbones,
            public=public,
            features=of_backbone,
            streams=streams,
            options=options,
            tuning=tuned,
        )
        outcome = kind.run(job)
    base = {"base": fields.base_seed} if fields.base_seed is not None else {}
    content = make_record(
        spec,
        kind.record,
        code_digest=digest,
        versions=versions(*kind.packages),
        device=device,
        data=prepared and prepared.manifest,
        seeds={**base, **streams.facts()},
        metrics=outcome.metrics,
        ledger=outcome.ledger,
    )
    write_record(record, content, job.stopwatch)
    store.clear()
    return content


@contextmanager
def numerics(device: str) -> Iterator[None]:
    """Use one thread, the precision in the device's name, and no gradients; restore both after.

    The calling process may use autograd afterwards.
    """
    import torch

    from dpatlas.models.precision import set_precision

    torch.set_num_threads(1)
    before = set_precision("tf32" if device.endswith(TF32) else "float32")
    try:
        with torch.no_grad():
            yield
    finally:
        set_precision(before)


def _manifests(spec: Spec, backbones: tuple[Path, ...]) -> list[Any]:
    """Of the backbones that a spec names, which have digests of their weights.

    A spec that names none writes to the folder that it is given.
    """
    if spec.fields.keys().isdisjoint({"backbone", "backbones"}):
        return []
    return [read_json(folder / MANIFEST) for folder in backbones]


def _tuning(fields: Any, path: Path | None) -> dict[str, Any] | None:
    """The record of the tuning that the spec waits for, None for a spec that waits for none."""
    waits = getattr(fields, "chosen", {}) is None
    if waits != (path is not None):
        found = f"no record of {fields.tuning}" if waits else str(path)
        raise InputError("--tuning", found, "a record for a spec that has no settings yet")
    if path is None:
        return None
    record = read_record(path)
    if record["id"] != fields.tuning:
        raise InputError("--tuning", record["id"], fields.tuning)
    return record


def _data(
    spec: Spec, field: str, manifest: Path | None, features: Features | None = None
) -> Prepared | None:
    """The data set that the spec names in `field`, without images if there are `features`."""
    if (field in spec.fields) != (manifest is not None):
        option = "--" + field.replace("_", "-")
        found = f"no {option}" if manifest is None else str(manifest)
        needed = spec.fields.get(field, "none: the spec names no such data set")
        allowed = f"the manifest of {needed}" if manifest is None else needed
        raise InputError(option, found, allowed)
    if manifest is None:
        return None
    if features is None:
        return load(manifest.parent)
    return features.without_images(read_json(manifest))
