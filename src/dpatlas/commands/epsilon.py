"""`python -m dpatlas epsilon`: is this epsilon right? Every valid accounting, the likely slip."""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy)

import argparse
import json
import operator
import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dpatlas.base.files import keys_once, read_text
from dpatlas.base.guard import number_in, real
from dpatlas.base.progress import Progress
from dpatlas.base.schema import check_shape
from dpatlas.base.yaml_files import parsed
from dpatlas.commands.bound import strict_json
from dpatlas.epsilon.check import check
from dpatlas.epsilon.claim import (
    OWN,
    PHASE_KEYS,
    RELATIONS,
    RELEASED,
    SAMPLERS,
    SAMPLERS_OF,
    WORDS,
    ClaimSettings,
    EpsilonClaim,
    read_claim,
)
from dpatlas.epsilon.ledgers import describe_total, total_spent
from dpatlas.epsilon.report import EpsilonReport, describe
from dpatlas.errors import EXIT_FAILED_RUN, ArgumentParser, InputError

EPILOG = """\
The exit code is 0 if a valid accounting supports the claim (or nothing is claimed), 1 if none does
or the claim is refuted, 2 for bad input. A file has one claim or a list of claims, with the names
of these options as keys (drop_last for --drop-last), and further `phases` (a list of settings),
`trials` as a list of settings, `parts` (settings for further, disjoint parts of the records),
`name` and `source`. docs/epsilon.md explains the output."""
# The settings that are options, by what they are about.
GROUPS = {
    "the training": PHASE_KEYS,
    "the claim": ("delta", "claimed", "target", "relation", "released"),
    "what else was trained on the records": ("runs", "trials"),
}
# What an option takes, where the sentence of its key in a file says less.
HELP = {
    "sampler": f"how batches are drawn: {', '.join(SAMPLERS)}; poisson if not given",
    "mechanism": f"what is released: {', '.join(SAMPLERS_OF)}; the first if not given",
    "sample_rate": "probability that a batch draws a record, in place of --batch",
    "epochs": "passes over the records, in place of steps",
    "drop_last": "shuffled: the smaller last batch is left out",
    "batch": "(expected) batch size; or the path of a YAML or JSON file of claims",
    "relation": f"only this one: {', '.join(RELATIONS)}",
    "released": f"{' or '.join(RELEASED)}; the first if not given",
    "trials": "trainings that were compared, the reported one included",
}
# Most values in a file of claims: as many as 100,000 trials have.
MOST_VALUES = 1_000_000


def main(arguments: Sequence[str]) -> int:
    """Print the report; exit code 1 where a claim is not guaranteed."""
    options = _parser().parse_args(arguments)
    if options.ledgers is not None:
        return _ledgers(options)
    by_batch = options.batch is not None and not _is_number(options.batch)
    if options.file is not None or by_batch:
        return _file(options, "batch" if by_batch else "file")
    settings = {
        key: value
        for key, value in vars(options).items()
        if key not in ("json", "ledgers", "explain", "file")
    }
    settings["drop_last"] = options.drop_last or None
    settings["grid"] = _grid(options.grid) if options.grid else None
    if options.batch is not None:
        settings["batch"] = int(options.batch)
    report = check(read_claim(settings, option, plain=False), explain=options.explain, names=option)
    print(strict_json(report.as_dict()) if options.json else describe(report))
    return 0 if report.ok else EXIT_FAILED_RUN


def option(key: str) -> str:
    """The option of a key."""
    return f"--{key.replace('_', '-')}"


def _refuse_others(
    options: argparse.Namespace, where: str, keys: Sequence[str], allowed: str
) -> None:
    for key, value in vars(options).items():
        if key not in (*keys, "json", "explain") and value is not None and value is not False:
            found = value if key == "file" else option(key)
            raise InputError(where, f"{found} as well", allowed)


def _file(options: argparse.Namespace, source: str) -> int:
    """Every claim of the file that the option `source` names, and how many are guaranteed."""
    path: str = getattr(options, source)
    where = path if source == "file" else f"--batch {path}"
    _refuse_others(options, where, (source,), "all settings in the file")
    claims = read_file(path, where)
    reports = []
    with Progress(len(claims), "claims") as progress:
        for claim in claims:
            reports.append(check(claim, explain=options.explain))
            progress.advance(claim.name)
    if options.json:
        print(strict_json([report.as_dict() for report in reports]))
    else:
        print("\n\n".join([*(describe(report, brief=True) for report in reports), _tally(reports)]))
    return 0 if all(report.ok for report in reports) else EXIT_FAILED_RUN


def _tally(reports: Sequence[EpsilonReport]) -> str:
    counts = Counter(report.verdict or "without a claim" for report in reports)
    many = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"{len(reports)} claim{'s' if len(reports) != 1 else ''}: {many}"


def read_file(path: str, where: str) -> list[EpsilonClaim]:
    """The claims of a YAML or JSON file, `where` in errors; InputError for a file without any."""
    try:
        text = read_text(path, "a batch size or a readable file")
    except InputError as error:
        raise InputError(where, error.found, error.allowed) from None
    try:
        content = _json(text, where)
    except InputError:
        raise
    except ValueError:
        content = parsed(text, where, as_written=True)
    entries = content if isinstance(content, list) else [content]
    check_shape(entries, f"{where}: ", MOST_VALUES)
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(where, "no settings", "settings of a claim, or a list of them")
    claims = []
    for number, entry in enumerate(entries, 1):
        prefix = f"{path}: claim {number}, " if isinstance(content, list) else f"{path}: "
        claims.append(read_claim(entry, partial(operator.add, prefix), plain=False))
    return claims


def _json(text: str, where: str) -> Any:
    """JSON with its numbers as text, which keeps their digits; ValueError for other text.

    YAML takes JSON too, but for tabs.
    """
    once = keys_once(where)
    try:
        return json.loads(
            text, object_pairs_hook=once, parse_int=str, parse_float=str, parse_constant=str
        )
    except RecursionError:
        raise ValueError from None


def _is_number(text: str) -> bool:
    """Whether --batch is a batch size: a whole number, or what was meant as one."""
    number = number_in(text)
    if isinstance(number, float) or not text.strip():
        found = text if text.strip() else repr(text)
        raise InputError("--batch", found, "a whole number >= 1, or the path of a file of claims")
    return isinstance(number, int)


def _grid(pairs: Sequence[str]) -> dict[str, list[str]]:
    grid: dict[str, list[str]] = {}
    for pair in pairs:
        key, equals, values = pair.partition("=")
        key = key.replace("-", "_")
        if not (equals and values) or key not in PHASE_KEYS or key in grid:
            allowed = f"KEY=VALUE,VALUE with KEY one of {', '.join(PHASE_KEYS)}, once each"
            raise InputError("--grid", repr(pair), allowed)
        grid[key] = values.split(",")
    return grid


def _ledgers(options: argparse.Namespace) -> int:
    """What the runs of several ledgers spent together; with --claimed, whether it is enough."""
    beside = "--delta, --claimed and --json beside it"
    _refuse_others(options, "--ledgers", ("ledgers", "delta", "claimed"), beside)
    if options.delta is not None:
        real(gt=0, lt=1).check("--delta", options.delta)
    budget = None
    if options.claimed is not None:
        budget = number_in(options.claimed)
        real(gt=0).check("--claimed", budget)
    if len({os.path.realpath(path) for path in options.ledgers}) < len(options.ledgers):
        raise InputError("--ledgers", "the same file twice", "different files")
    total = total_spent({path: _read(path) for path in options.ledgers}, options.delta)
    met = None if budget is None else total.meets(float(budget), options.delta)
    if options.json:
        print(strict_json({**total.as_dict(), "budget_met": met}))
    else:
        print(describe_total(total))
        if met is not None:
            at = "" if options.delta is None else f" at delta {options.delta:g}"
            rest = any(each.uncounted for each in total.spent)
            said = ("met by what is counted" if rest else "met") if met else "NOT MET"
            print(f"budget of epsilon {options.claimed}{at}: {said}")
    return EXIT_FAILED_RUN if met is False else 0


def _read(path: str) -> Any:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        return json.loads(text, object_pairs_hook=keys_once(f"--ledgers {path}"))
    except InputError:
        raise
    except OSError as error:
        found = error.strerror or "unreadable"
        raise InputError(f"--ledgers {path}", found, "a readable JSON file") from None
    except (ValueError, RecursionError):
        raise InputError(f"--ledgers {path}", "text that is not JSON", "a JSON file") from None


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="dpatlas epsilon",
        description="Is this epsilon right? Every valid accounting, and the likely slip.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="YAML or JSON file of claims")
    for title, keys in GROUPS.items():
        group = parser.add_argument_group(title)
        for key in keys:
            sentence = ClaimSettings.model_fields[key].description or ""
            words = HELP.get(key) or f"{sentence[0].lower()}{sentence[1:].rstrip('.')}"
            words += f" (of {OWN[key]})" if key in OWN else ""
            kind: dict[str, Any] = {"type": str if key in (*WORDS, "batch") else number_in}
            kind = {"action": "store_true"} if key == "drop_last" else kind
            group.add_argument(option(key), help=words, **kind)
    group.add_argument(
        "--grid",
        action="append",
        metavar="KEY=V,V",
        help="settings that were tried, repeatable: every combination is a trial",
    )
    group.add_argument(
        "--ledgers", nargs="+", metavar="FILE", help="records of runs: what they spent together"
    )
    parser.add_argument(
        "--no-slips",
        dest="explain",
        action="store_false",
        help="do not search for the slip that gives the claimed number",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser
