"""What every experiment's command line shares: spec in, record out, resumable in between."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.core.checkpoints import Checkpoints
from dpatlas.core.digest import code_digest
from dpatlas.core.files import check_writable, read_json, remove_parts
from dpatlas.core.guard import one_of
from dpatlas.core.records import Stopwatch, make_record, versions, write_record
from dpatlas.core.seeds import Noise, Streams, recording
from dpatlas.core.specs import Spec
from dpatlas.data import features as frozen
from dpatlas.data.features import Features
from dpatlas.data.prepared import Prepared, load
from dpatlas.errors import ArgumentParser, InputError
from dpatlas.jobs.limits import limited

SECONDS_BETWEEN_CHECKPOINTS = 20.0
DEVICES = ("cpu", "cuda", "auto")
TF32 = "-tf32"
Stored = tuple[dict[str, np.ndarray], dict[str, Any]]


@dataclass
class Job:
    """One spec being run: its data (None if it names none), device, checkpoints and clock.

    `backbones`: folders of trained backbones, to read or, where one is trained, to write.
    `public`: a second, public data set, for a spec with `public_data`. `features`: of the data, by
    a frozen backbone; a job that trains on them alone has `data` without its images. `streams`: the
    random streams drawn so far.
    """

    spec: Spec
    data: Prepared | None
    device: str
    checkpoints: Checkpoints
    stopwatch: Stopwatch
    backbones: tuple[Path, ...] = ()
    public: Prepared | None = None
    features: Features | None = None
    streams: Streams = field(default_factory=Streams)
    saved: float = field(default_factory=time.monotonic)

    @property
    def prepared(self) -> Prepared:
        """The data; InputError if the spec names none."""
        if self.data is None:
            raise InputError("--data", "nothing", "the manifest of a prepared data set")
        return self.data

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
        """A checkpoint, with seconds used and streams drawn so far, and the secret of `noise`.

        Raises OSError where it cannot be written.
        """
        secret = {} if noise is None else {"secret": noise.secret}
        own = {"streams": self.streams.stored(), **secret, **self.stopwatch.read()}
        self.checkpoints.save(name, dict(arrays), {**facts, **own})

    def restored(self, name: str, noise: Noise | None = None) -> Stored | None:
        """Arrays and facts of a checkpoint; None without one.

        Carries over the interrupted attempt's seconds and streams, and its secret to `noise`.
        """
        stored = self.checkpoints.load(name)
        if stored is not None:
            self.stopwatch.carry(stored[1])
            self.streams.add(stored[1]["streams"])
            if noise is not None:
                noise.carry(stored[1]["secret"])
        return stored


def resolve_device(name: str) -> str:
    """`cpu`, `cuda` or `cuda-tf32`; `auto` takes a GPU if there is one.

    The ending asks for TF32 in passes through networks (`dpatlas.models.precision`), on a GPU.
    """
    place = torch_device(name)
    if place not in DEVICES or name == f"cpu{TF32}":
        endings = (each if each == "cpu" else f"{each} or {each}{TF32}" for each in DEVICES)
        raise InputError("device", repr(name), f"one of {', '.join(endings)}")
    if place == "cpu":
        return name
    import torch

    available = torch.cuda.is_available()
    if place == "cuda" and not available:
        raise InputError("device", f"{name!r} without a usable GPU", "cpu, or auto")
    return name.replace("auto", "cuda") if available else "cpu"


def torch_device(name: str) -> str:
    """What torch calls the device."""
    return name.removesuffix(TF32)


def by_kind(job: Job, kinds: Mapping[str, Callable[[Job], dict[str, Any]]]) -> dict[str, Any]:
    """What the job's kind is mapped to, done; raises InputError for a kind of none."""
    kind = job.spec.fields["kind"]
    one_of(*kinds).check("kind", kind)
    return kinds[kind](job)


def job_main(
    arguments: Sequence[str],
    module: str,
    packages: tuple[str, ...],
    run: Callable[[Job], dict[str, Any]],
    *,
    takes_backbones: bool = False,
    takes_public_data: bool = False,
    takes_features: bool = False,
    without_images: Callable[[Spec], bool] = lambda spec: False,
) -> int:
    """Parse the arguments of one job and `execute` it.

    without_images: whether a spec's job is content with features and labels.
    """
    parser = ArgumentParser(prog=f"python -m {module}", description="Run one spec.")
    parser.add_argument("--spec", required=True, help="the spec as JSON")
    parser.add_argument(
        "--data", type=Path, help="manifest of the prepared data, if the spec has any"
    )
    parser.add_argument("--record", required=True, type=Path, help="record.json to write")
    parser.add_argument("--checkpoints", required=True, type=Path, help="folder for checkpoints")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, auto; with -tf32")
    if takes_backbones:
        parser.add_argument(
            "--backbone", action="append", type=Path, help="folder of a backbone; repeatable"
        )
    if takes_public_data:
        parser.add_argument("--public-data", type=Path, help="manifest of the spec's public data")
    if takes_features:
        parser.add_argument("--features", type=Path, help="folder of the backbone's features")
    options = parser.parse_args(arguments)
    spec = Spec.parse(options.spec)
    with limited(spec, options.checkpoints / spec.id):
        execute(
            spec,
            module=module,
            packages=packages,
            run=run,
            data=options.data,
            record=options.record,
            checkpoints=options.checkpoints,
            device=options.device,
            backbones=tuple(vars(options).get("backbone") or ()),
            public_data=vars(options).get("public_data"),
            features=vars(options).get("features"),
            without_images=without_images(spec),
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
    features: Path | None = None,
    without_images: bool = False,
) -> dict[str, Any]:
    """Call `run`, write its record to the path `record`, and return what was written.

    module, packages: what the record's code digest covers, and whose versions it names; torch takes
        seconds to load, and a job that does not name it does without.
    data, public_data: manifests of the prepared data sets; None for a spec that names none.
    features: folder of the features that a frozen backbone has of `data`; without_images: no image
        is read where there are any.
    `run` returns the record's metrics and ledger; the record's seeds are the spec's base and every
    stream that was drawn meanwhile. A killed job goes on from its checkpoint.
    """
    stopwatch = Stopwatch()
    check_writable(record.parent)
    for folder in (record.parent, checkpoints / spec.id):
        remove_parts(folder)
    device = resolve_device(device)
    shown = None if features is None else frozen.load(features)
    prepared = _data(spec, "data", data, shown if without_images else None)
    if shown is not None and prepared is not None:
        shown.check("data", prepared.sha256)
    public = _data(spec, "public_data", public_data)
    digest = code_digest(module)
    identity = {
        "spec": spec.digest,
        "code": digest,
        "data": [each and each.sha256 for each in (prepared, public)],
        "features": shown and shown.manifest["sha256"],
        "device": device,
        "versions": versions(*packages),
    }
    kept = Checkpoints(checkpoints / spec.id, identity)
    place = torch_device(device)
    with recording() as streams, numerics(device) if "torch" in packages else nullcontext():
        job = Job(spec, prepared, place, kept, stopwatch, backbones, public, shown, streams)
        found = run(job)
    base = {"base": spec.fields["seed"]} if "seed" in spec.fields else {}
    content = make_record(
        spec,
        code_digest=digest,
        versions=versions(*packages),
        device=device,
        data=prepared and prepared.manifest,
        seeds={**base, **streams.facts()},
        **found,
    )
    write_record(record, content, job.stopwatch)
    kept.clear()
    return content


@contextmanager
def numerics(device: str) -> Iterator[None]:
    """One thread, the precision that the device's name asks for, and no gradients.

    The caller's process may go on to train by autograd.
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


def _data(
    spec: Spec, field: str, manifest: Path | None, instead: Features | None = None
) -> Prepared | None:
    """The data set that the spec names in `field`; features `instead` of its images."""
    if (field in spec.fields) != (manifest is not None):
        option = "--" + field.replace("_", "-")
        found = f"no {option}" if manifest is None else str(manifest)
        needed = spec.fields.get(field, "none: the spec names no such data set")
        allowed = f"the manifest of {needed}" if manifest is None else needed
        raise InputError(option, found, allowed)
    if manifest is None:
        return None
    return load(manifest.parent) if instead is None else instead.without_images(read_json(manifest))
