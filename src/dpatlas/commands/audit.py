"""`python -m dpatlas audit`: attack our own private mechanisms, here and now."""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dpatlas.checks.audit.mechanisms import MECHANISMS
from dpatlas.checks.audit.settings import Settings, mechanism_spec
from dpatlas.config.load import load_config
from dpatlas.core.guard import integer, real
from dpatlas.core.specs import Spec
from dpatlas.errors import ArgumentParser, InputError, RunError
from dpatlas.records import Record, parse_record

# Fields of a record that --json prints.
PRINTED = ("id", "spec", "metrics", "ledger")
SHARE = real(gt=0, lt=1)


def main(arguments: Sequence[str]) -> int:
    """Print the table of attacks; RunError, exit code 1, if a guarantee is contradicted."""
    config = load_config()
    block: Settings = config.audit
    parser = ArgumentParser(prog="dpatlas audit", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--mechanism", action="append", metavar="NAME", help="only this one; repeatable"
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=block.runs,
        help="runs on each neighbour, of Langevin SGD 2 to 6 times as many (%(default)s)",
    )
    parser.add_argument(
        "--delta", type=float, default=block.delta, help="delta of the bounds (%(default)s)"
    )
    parser.add_argument(
        "--level", type=float, default=block.level, help="confidence of bounds (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    options = parser.parse_args(arguments)
    integer(ge=2).check("--runs", options.runs)
    SHARE.check("--delta", options.delta)
    SHARE.check("--level", options.level)
    names = list(dict.fromkeys(options.mechanism or MECHANISMS))
    for name in names:
        if name not in MECHANISMS:
            raise InputError("--mechanism", repr(name), "one of " + ", ".join(MECHANISMS))
    levels = (options.level, max(options.level, block.verdict_level))
    seeds = config.plain("seed", "noise_source")
    specs = [mechanism_spec(seeds, name, options.runs, options.delta, *levels) for name in names]
    contents = attack(specs)
    records = [parse_record(content, content["id"]) for content in contents]
    if options.json:
        printed = [{name: content[name] for name in PRINTED} for content in contents]
        print(json.dumps(printed, indent=1, allow_nan=False))
    else:
        print(table(records))
    contradicted = [record.spec.mechanism for record in records if record.metrics.contradicted]
    if contradicted:
        raise RunError(f"the guarantee is contradicted by an attack on {', '.join(contradicted)}")
    return 0


def attack(specs: Sequence[Spec]) -> list[dict[str, Any]]:
    """The record of each spec, as a rule of the workflow would write it."""
    from dpatlas.jobs.job import execute
    from dpatlas.jobs.run import kind_of

    contents = []
    with TemporaryDirectory() as folder:
        for spec in specs:
            module, kind = kind_of(spec)
            content = execute(
                spec,
                kind,
                module=module,
                data=None,
                record=Path(folder, spec.id, "record.json"),
                checkpoints=Path(folder),
                device="cpu",
            )
            contents.append(content)
    return contents


def table(records: Sequence[Record[Any, Any]]) -> str:
    """The table of attacks as Markdown."""
    from dpatlas.checks.audit.figures.audit import attacks_part, mechanism_row
    from dpatlas.show.tables import to_markdown

    note = "an attack that finds nothing proves nothing"
    return to_markdown([attacks_part([mechanism_row(record) for record in records])], note)
