"""`python -m dpatlas audit`: does this training keep its epsilon? Of a script, or of our own."""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dpatlas.audit.audit import CONFIDENCE, FEWEST_RUNS, LEVEL, PAIRS, RUNS, audit_training
from dpatlas.audit.report import EXIT_POWERLESS
from dpatlas.commands.bound import strict_json
from dpatlas.core.guard import integer, one_of, real
from dpatlas.errors import EXIT_INTERRUPTED, ArgumentParser, InputError, RunError

if TYPE_CHECKING:
    from dpatlas.core.specs import Spec
    from dpatlas.records import Record

# Fields of a record that --json prints.
PRINTED = ("id", "spec", "metrics", "ledger")
SHARE = real(gt=0, lt=1)
# Options by what is audited; the others serve both.
OF_SCRIPT = ("pairs", "seconds", "premises_only", "seed", "folder", "canaries")
OF_MECHANISMS = ("mechanism", "delta")
OF_REPEATED_RUNS = ("runs", "pairs", "seconds", "premises_only")
EPILOG = """\
A script defines claim = Claim(...) and a function of a run; docs/audit.md shows both in ten lines.
Exit code 0: the claim is not contradicted. 1: a premise of the claim fails, or an exact lower bound
on epsilon lies above it. 2: bad input, or the script failed. 3: the attack could not have
contradicted the claim, whatever had happened. Without a script our own mechanisms are attacked;
exit code 1 if a guarantee of ours is contradicted, 3 if one could not have been."""


def main(arguments: Sequence[str]) -> int:
    """Print what an audit found; its exit code."""
    options = _parser().parse_args(arguments)
    if options.script is None:
        _refuse(options, OF_SCRIPT, "it here", "it with a script")
        return _own(options)
    _refuse(options, OF_MECHANISMS, "it here", "it without a script")
    return _script(options)


def _refuse(options: argparse.Namespace, keys: Sequence[str], found: str, allowed: str) -> None:
    for key in keys:
        # An option that is 0 was given.
        value = getattr(options, key)
        if value is not None and value is not False:
            raise InputError(f"--{key.replace('_', '-')}", found, allowed)


def _script(options: argparse.Namespace) -> int:
    from dpatlas.audit.script import load

    train, claim, code = load(options.script)
    if options.canaries is not None:
        integer(ge=2, le=10**6).check("--canaries", options.canaries)
        claim.canaries = options.canaries
    if claim.canaries > 1:
        _refuse(options, OF_REPEATED_RUNS, "it in an audit by one run", "it with one canary")
    given = {name: getattr(options, name) for name in ("runs", "pairs", "level")}
    try:
        report = audit_training(
            train,
            claim,
            **{name: value for name, value in given.items() if value is not None},
            seconds=options.seconds,
            premises_only=options.premises_only,
            seed=options.seed,
            folder=options.folder,
            code=code,
        )
    except KeyboardInterrupt:
        if options.folder is not None:
            raise
        print("dpatlas: interrupted; --folder DIR keeps finished runs", file=sys.stderr)
        return EXIT_INTERRUPTED
    print(strict_json(report.as_dict()) if options.json else report)
    return report.exit_code


def _own(options: argparse.Namespace) -> int:
    """Attack our own mechanisms; RunError, exit code 1, if a guarantee is contradicted."""
    from dpatlas.checks.audit.mechanisms import MECHANISMS
    from dpatlas.checks.audit.settings import Settings, mechanism_spec
    from dpatlas.config.load import load_config
    from dpatlas.records import parse_record

    config = load_config()
    block: Settings = config.audit
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


def table(records: "Sequence[Record[Any]]") -> str:
    """The table of attacks as Markdown."""
    from dpatlas.checks.audit.figures.audit import attacks_part, mechanism_row
    from dpatlas.show.tables import to_markdown

    note = "an attack that finds nothing proves nothing"
    return to_markdown([attacks_part([mechanism_row(record) for record in records])], note)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="dpatlas audit",
        description="Does this training keep its epsilon? Attacks a script's training, or without "
        "a script our own private mechanisms.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("script", nargs="?", metavar="FILE.py:FUNCTION", help="one's own training")
    parser.add_argument(
        "--runs", type=int, help=f"runs on each of the two data sets ({RUNS} of a script)"
    )
    parser.add_argument("--level", type=float, help=f"confidence ({LEVEL} of a script)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    script = parser.add_argument_group("with a script")
    script.add_argument("--pairs", type=int, help=f"pairs of runs that test the premises ({PAIRS})")
    script.add_argument(
        "--premises-only", action="store_true", help="no bound: seconds instead of minutes"
    )
    script.add_argument("--seconds", type=float, help="no run begins after so many seconds")
    script.add_argument("--seed", type=int, help="repeats an audit, with the seed that it printed")
    script.add_argument(
        "--folder", type=Path, help="keeps finished runs, so that a stopped audit goes on"
    )
    script.add_argument(
        "--canaries", type=int, help="one run with so many canaries, each in or out by a coin"
    )
    own = parser.add_argument_group("without a script")
    own.add_argument(
        "--mechanism", action="append", metavar="NAME", help="only this one; repeatable"
    )
    own.add_argument("--delta", type=float, help="delta of the bounds")
    return parser
