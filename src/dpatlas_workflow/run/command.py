"""The command line of every job: `python -m dpatlas_workflow.run --spec JSON --record PATH ...`."""

import importlib
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from dpatlas.base.digest import code_digest
from dpatlas.base.guard import one_of
from dpatlas.base.progress import say
from dpatlas.base.records import versions
from dpatlas.base.specs import Spec
from dpatlas.data.prepared import MANIFEST
from dpatlas.errors import ArgumentParser
from dpatlas.jobs.job import Kind, execute, resolve_device
from dpatlas_workflow.registry import block_of
from dpatlas_workflow.run.limits import limited
from dpatlas_workflow.run.taken_over import take_over


def main(arguments: Sequence[str]) -> int:
    """Run one spec by the job of its block and kind, unless another tier has run it alike."""
    parser = ArgumentParser(
        prog="python -m dpatlas_workflow.run", description="Run one spec.", allow_abbrev=False
    )
    parser.add_argument("--spec", required=True, help="the spec as JSON")
    parser.add_argument("--data", type=Path, help="manifest of the prepared data, if it names any")
    parser.add_argument("--public-data", type=Path, help="manifest of the spec's public data")
    parser.add_argument("--features", type=Path, help="folder of a frozen backbone's features")
    parser.add_argument(
        "--backbone", action="append", default=[], type=Path, help="folder of one; repeatable"
    )
    parser.add_argument("--tuning", type=Path, help="record of the tuning that the spec waits for")
    parser.add_argument("--record", required=True, type=Path, help="record.json to write")
    parser.add_argument("--checkpoints", required=True, type=Path, help="folder for checkpoints")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, auto; with -tf32")
    options, further = parser.parse_known_args(arguments)
    spec = Spec.parse(options.spec)
    module, kind = kind_of(spec)
    if further and kind.options is None:
        parser.error(f"unrecognized arguments: {' '.join(further)}")
    # One that was interrupted goes on from its checkpoint.
    begun = (options.checkpoints / spec.id).exists()
    if not (begun or further) and (other := _of_another_tier(spec, module, kind, options)):
        say(f"taken over from {other}: the same spec, code, inputs and versions")
        return 0
    with limited(spec, options.checkpoints / spec.id):
        execute(
            spec,
            kind,
            module=module,
            data=options.data,
            record=options.record,
            checkpoints=options.checkpoints,
            device=options.device,
            backbones=tuple(options.backbone),
            public_data=options.public_data,
            features=options.features,
            options=kind.options(further) if kind.options else None,
            tuning=options.tuning,
        )
    return 0


def _of_another_tier(spec: Spec, module: str, kind: Kind, options: Namespace) -> Path | None:
    inputs = [options.data, options.public_data, options.tuning]
    folders = [options.features]
    if spec.fields["kind"] not in block_of(spec.key).writes_weights:
        folders += options.backbone
    inputs += [folder / MANIFEST for folder in folders if folder]
    same = {
        "spec_digest": spec.digest,
        "code_digest": code_digest(module),
        "versions": versions(*kind.packages),
        "device": resolve_device(options.device),
    }
    return take_over(options.record, same, [path for path in inputs if path])


def kind_of(spec: Spec) -> tuple[str, Kind]:
    """The name of the module that defines the spec's kind, and the kind."""
    block, kind = block_of(spec.key), spec.fields["kind"]
    one_of(*block.kinds).check("kind", kind)
    module = block.job_module(kind)
    return module, importlib.import_module(module).KIND
