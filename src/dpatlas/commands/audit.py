"""`python -m dpatlas audit`: does a script, a finished model or our own training keep epsilon?"""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from dpatlas.audit.audit import LEVEL, PAIRS, RUNS, audit_training
from dpatlas.audit.membership import ATTACKS
from dpatlas.base.guard import integer
from dpatlas.cli import commands
from dpatlas.commands.bound import strict_json
from dpatlas.errors import EXIT_INTERRUPTED, ArgumentParser, InputError

# Options by what is audited; the others serve both.
OF_SCRIPT = ("pairs", "seconds", "premises_only", "seed", "folder", "canaries")
OF_MECHANISMS = ("mechanism", "delta")
OF_MODEL = ("epsilon", "attack")
OF_REPEATED_RUNS = ("runs", "pairs", "seconds", "premises_only")
EPILOG = """\
A script defines claim = Claim(...) and a function of a run; docs/audit.md shows both in ten lines.
Exit code 0: the claim is not contradicted. 1: a premise of the claim fails, or an exact lower bound
on epsilon lies above it. 2: bad input, or the script failed. 3: the attack could not have
contradicted the claim, whatever had happened. --scores attacks a finished model by reference
models; exit code 1 if --epsilon at --delta is contradicted. Without either our own mechanisms are
attacked; exit code 1 if a guarantee of ours is contradicted, 3 if one could not have been."""


def main(arguments: Sequence[str]) -> int:
    """Print what an audit found; its exit code."""
    options = parser().parse_args(arguments)
    if options.scores is not None:
        _refuse(options, ("script", "mechanism", "runs", *OF_SCRIPT), "it with --scores", "one")
        return _model(options)
    _refuse(options, OF_MODEL, "it here", "it with --scores")
    if options.script is None:
        _refuse(options, OF_SCRIPT, "it here", "it with a script")
        return import_module(commands()["audit-mechanisms"].module).main(arguments)
    _refuse(options, OF_MECHANISMS, "it here", "it without a script")
    return _script(options)


def _refuse(options: argparse.Namespace, keys: Sequence[str], found: str, allowed: str) -> None:
    for key in keys:
        # An option that is 0 was given.
        value = getattr(options, key)
        if value is not None and value is not False:
            raise InputError(f"--{key.replace('_', '-')}", found, allowed)


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _model(options: argparse.Namespace) -> int:
    from dpatlas.audit.membership import attack_model, read_scores

    if options.delta is None:
        raise InputError("--delta", "missing", "the delta of the bounds and of --epsilon")
    log_odds, members = read_scores(options.scores)
    given = _given(options, "attack", "level")
    report = attack_model(log_odds, members, delta=options.delta, epsilon=options.epsilon, **given)
    print(strict_json(report.as_dict()) if options.json else report)
    return int(report.contradicted)


def _script(options: argparse.Namespace) -> int:
    from dpatlas.audit.script import load

    train, claim, code = load(options.script)
    if options.canaries is not None:
        integer(ge=2, le=10**6).check("--canaries", options.canaries)
        claim.canaries = options.canaries
    if claim.canaries > 1:
        _refuse(options, OF_REPEATED_RUNS, "it in an audit by one run", "it with one canary")
    names = ("runs", "pairs", "level", "seconds", "premises_only", "seed", "folder")
    try:
        report = audit_training(train, claim, code=code, **_given(options, *names))
    except KeyboardInterrupt:
        if options.folder is not None:
            raise
        print("dpatlas: interrupted; --folder DIR keeps finished runs", file=sys.stderr)
        return EXIT_INTERRUPTED
    print(strict_json(report.as_dict()) if options.json else report)
    return report.exit_code


def parser() -> ArgumentParser:
    """The options of both audits."""
    parser = ArgumentParser(
        prog="dpatlas audit",
        description="Does this training keep its epsilon? Attacks a script's training, a finished "
        "model, or without either our own private mechanisms.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("script", nargs="?", metavar="FILE.py:FUNCTION", help="your training")
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
    model = parser.add_argument_group("of a finished model")
    model.add_argument(
        "--scores",
        type=Path,
        metavar="FILE.npz",
        help="log_odds and members (1 + references, candidates); the model first",
    )
    model.add_argument("--attack", choices=ATTACKS, help=f"{ATTACKS[0]} unless given")
    model.add_argument("--epsilon", type=float, help="claimed at --delta, for one record")
    own = parser.add_argument_group("without a script")
    own.add_argument(
        "--mechanism", action="append", metavar="NAME", help="only this one; repeatable"
    )
    own.add_argument("--delta", type=float, help="delta of the bounds, also of --scores")
    return parser
