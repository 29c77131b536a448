"""`python -m dpatlas audit` without a script: attacks on our own mechanisms."""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dpatlas.audit.audit import CONFIDENCE, FEWEST_RUNS
from dpatlas.audit.report import EXIT_POWERLESS
from dpatlas.base.guard import integer, one_of, real
from dpatlas.commands.audit import parser
from dpatlas.errors import RunError

if TYPE_CHECKING:
    from dpatlas.base.specs import Spec
    from dpatlas_workflow.records import Record

# Fields of a record that --json prints.
PRINTED = ("id", "spec", "metrics", "ledger")
SHARE = real(gt=0, lt=1)


def main(arguments: Sequence[str]) -> int:
    """Attack our own mechanisms; RunError, exit code 1, if a guarantee is contradicted."""
    options = parser().parse_args(arguments)
    from dpatlas_workflow.checks.audit.mechanisms import MECHANISMS
    from dpatlas_workflow.checks.audit.settings import AuditSettings, mechanism_spec
    from dpatlas_workflow.config.load import load_config
    from dpatlas_workflow.records import parse_record

    config = load_config()
    block: AuditSettings = config.audit
    runs = block.runs if options.runs is None else options.runs
    delta = block.delta if options.delta is None else options.delta
    level = block.level if options.level is None else options.level
    integer(ge=FEWEST_RUNS, le=10**6).check("--runs", runs)
    SHARE.check("--delta", delta)
    CONFIDENCE.check("--level", level)
    names = list(dict.fromkeys(options.mechanism or MECHANISMS))
    for name in names:
        one_of(*MECHANISMS).check("--mechanism", name)
    levels = (level, max(level, block.verdict_level))
    seeds = config.plain("seed", "noise_source")
    contents = attack([mechanism_spec(seeds, name, runs, delta, *levels) for name in names])
    records = [parse_record(content, content["id"]) for content in contents]
    if options.json:
        printed = [{name: content[name] for name in PRINTED} for content in contents]
        print(json.dumps(printed, indent=1, allow_nan=False))
    else:
        print(table(records))
    contradicted = [record.spec.mechanism for record in records if record.facts["contradicted"]]
    if contradicted:
        raise RunError(f"the guarantee is contradicted by an attack on {', '.join(contradicted)}")
    powerless = [
        record.spec.mechanism for record in records if record.facts["profile_test"]["ceiling"] <= 0
    ]
    if powerless:
        said = f"{runs} runs could not have contradicted the guarantee of {', '.join(powerless)}"
        print(f"dpatlas: {said}: give more --runs", file=sys.stderr)
    return EXIT_POWERLESS if powerless else 0


def attack(specs: "Sequence[Spec]") -> list[dict[str, Any]]:
    """The record of each spec, as a rule of the workflow would write it."""
    from dpatlas.jobs.job import execute
    from dpatlas_workflow.run.command import kind_of

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


def table(records: "Sequence[Record[Any]]") -> str:
    """The table of attacks as Markdown."""
    from dpatlas_workflow.checks.audit.figures.audit import attacks_part, mechanism_row
    from dpatlas_workflow.show.tables import to_markdown

    note = "an attack that finds nothing proves nothing"
    return to_markdown([attacks_part([mechanism_row(record) for record in records])], note)
