"""The command line of every job: `python -m dpatlas.jobs --spec JSON --record PATH ...`."""

import importlib
from collections.abc import Sequence
from pathlib import Path

from dpatlas.core.guard import one_of
from dpatlas.core.specs import Spec
from dpatlas.errors import ArgumentParser
from dpatlas.jobs.job import Kind, execute
from dpatlas.jobs.limits import limited
from dpatlas.registry import block_of


def main(arguments: Sequence[str]) -> int:
    """Run one spec by the job of its block and kind."""
    parser = ArgumentParser(
        prog="python -m dpatlas.jobs", description="Run one spec.", allow_abbrev=False
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


def kind_of(spec: Spec) -> tuple[str, Kind]:
    """The name of the module that defines the spec's kind, and the kind."""
    block, kind = block_of(spec.key), spec.fields["kind"]
    one_of(*block.kinds).check("kind", kind)
    module = block.job_module(kind)
    return module, importlib.import_module(module).KIND
