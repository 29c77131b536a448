"""`python -m dpatlas claims`: the verdict on every claim of a run, and what changed."""

import json
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from dpatlas.base import folders
from dpatlas.base.guard import one_of
from dpatlas.errors import EXIT_FAILED_RUN, ArgumentParser, InputError
from dpatlas_workflow.evidence import verdicts
from dpatlas_workflow.registry import all_papers

Row = Mapping[str, str]
MARKS = dict(zip(verdicts.OUTCOMES, "+!-<-=?.", strict=True))
# Colours of a terminal: green, red, cyan, yellow, grey. The marks say the same without them.
COLOURS = dict(zip(verdicts.VERDICTS, ("32", "31", "36", "33", "90"), strict=True))
# Verdicts of which one contradicts the other, on the same claim.
CONTRADICTING = {verdicts.REPRODUCED, verdicts.NOT_REPRODUCED}
WIDEST = 160
# Letters of the longest verdict with its failure.
WORDS = len(verdicts.NOT_REPRODUCED) + 2 + max(map(len, verdicts.FAILURES))


def main(arguments: Sequence[str]) -> int:
    """Print the verdicts; with --check 1 if any contradicts the published ones."""
    keys = tuple(all_papers())
    parser = ArgumentParser(prog="dpatlas claims", description=__doc__, allow_abbrev=False)
    parser.add_argument("--tier", default="embedded", help="folder under the results")
    parser.add_argument("--results", type=Path, default=folders.RESULTS, help="folder of all tiers")
    parser.add_argument(
        "--docs",
        type=Path,
        help="folder of published tiers (default: docs/results)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print counts by paper")
    form.add_argument("--badge", action="store_true", help="print how many claims hold")
    form.add_argument("--json", action="store_true", help="print rows of claims.csv, or the check")
    parser.add_argument("--paper", metavar="KEY", help="one paper only: " + ", ".join(keys))
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--published", action="store_true", help="print the published verdicts")
    which.add_argument(
        "--check",
        action="store_true",
        help="compare with docs/results; exit code 1 if a verdict turned from reproduced to not "
        "reproduced or back",
    )
    options = parser.parse_args(arguments)
    if options.paper is not None:
        one_of(*keys).check("--paper", options.paper)
    for name in ("markdown", "badge"):
        if options.check and getattr(options, name):
            raise InputError("--check", f"--{name} as well", "--json beside it, or nothing")
    docs = options.docs or folders.published_results()
    run, published = options.results / options.tier, docs / options.tier
    columns = ["place"] if options.badge or options.markdown else []
    if not options.published:
        _require_claims(run, published=False)
    if options.published or options.check:
        _require_claims(published, published=True)
    rows = read_verdicts(published if options.published else run, options.paper, *columns)
    if options.check:
        changed = changes(read_verdicts(published, options.paper), rows)
        lines = [line for line, _ in changed]
        contradictions = [line for line, contradicts in changed if contradicts]
        if options.json:
            found = {"verdicts": len(rows), "changes": lines, "contradictions": contradictions}
            print(json.dumps(found, indent=1))
        else:
            noun = "contradiction" + "s" * (len(contradictions) != 1)
            counts = f"{len(lines)} of {len(rows)} verdicts changed"
            print(*lines, f"{counts}; {len(contradictions)} {noun}", sep="\n")
        return EXIT_FAILED_RUN if contradictions else 0
    if options.markdown or options.badge:
        print(summary(rows) if options.markdown else badge(rows))
    elif options.json:
        print(json.dumps(rows, indent=1))
    else:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        width = min(shutil.get_terminal_size((100, 24)).columns, WIDEST)
        print(table(rows, width=width, colour=colour))
    return 0


def _require_claims(folder: Path, *, published: bool) -> None:
    """InputError for a tier without verdicts, which says where there are some."""
    path = folder / verdicts.CLAIMS
    if path.exists():
        return
    tiers = sorted(file.parent.name for file in folder.parent.glob(f"*/{verdicts.CLAIMS}"))
    others = [f"--tier {' or '.join(tiers)}"] if tiers else []
    if published:
        allowed = " or ".join(others) or "a folder of published tiers: --docs"
        raise InputError(str(path), "no such file", allowed)
    named = folder.name == folders.DEFAULT_TIER or (folders.TIERS / f"{folder.name}.yaml").is_file()
    if named or (folder / folders.CONFIG).is_file():
        run = folders.command("claims", folder.name)
        others.insert(0, f"the verdicts of a run: run {run} first")
    raise InputError(str(path), "no such file", ", or ".join([*others, "--published"]))


def read_verdicts(folder: Path, paper: str | None = None, *columns: str) -> list[dict[str, str]]:
    """Rows of a tier's claims.csv.

    Raises InputError for a missing file, one that is no such csv or lacks one of these columns, and
    for a verdict that rests on a figure or table which is not there.
    """
    rows = verdicts.read_claims(folder, "paper", "evidence", *columns)
    rows = [row for row in rows if paper in (None, row["paper"])]
    for row in rows:
        for column, known in (("verdict", verdicts.VERDICTS), ("failure", verdicts.FAILURES)):
            if (cell := row.get(column)) not in known and (cell or column == "verdict"):
                where = f"{folder / verdicts.CLAIMS}: {row['claim']}"
                raise InputError(where, cell, ", ".join(known))
    # A wheel has the verdicts alone.
    if folder.parent != folders.PACKAGED:
        verdicts.check_files(folder, rows)
    return rows


def badge(rows: Sequence[Row]) -> str:
    """How many of the papers' own claims, parts not counted, are reproduced."""
    theirs = sum(verdicts.counts(rows).values(), Counter[str]())
    return f"{theirs[verdicts.REPRODUCED]} of {theirs.total()} claims reproduced"


def changes(before: Sequence[Row], now: Sequence[Row]) -> list[tuple[str, bool]]:
    """A line for every claim whose verdict is another, is new or is gone; whether it contradicts.

    A verdict contradicts another of the same claim if one is `reproduced` (of an identity: `not
    contradicted`) and the other `not reproduced`. More runs may decide a row, other settings may
    open one, and an edit of claims.yaml may add or drop one: none of these says that the claim is
    both true and false.
    """
    old, new = ({row["claim"]: row for row in rows} for rows in (before, now))
    changed = []
    for claim in dict.fromkeys([*old, *new]):
        pair = [rows[claim]["verdict"] if claim in rows else None for rows in (old, new)]
        # Papers that were not run are no part of a publication.
        if pair[0] == pair[1] or {*pair} == {None, verdicts.NOT_RUN}:
            continue
        contradicts = {_side(rows.get(claim)) for rows in (old, new)} == CONTRADICTING
        line = f"{claim}: " + " -> ".join(verdict or "no such claim" for verdict in pair)
        changed.append((line + ", a contradiction" * contradicts, contradicts))
    return changed


def _side(row: Row | None) -> str | None:
    """The verdict, where `not contradicted` is the best that a row can have: `reproduced`."""
    if row is None:
        return None
    best = row.get("kind") == verdicts.IDENTITY and row["verdict"] == verdicts.NOT_CONTRADICTED
    return verdicts.REPRODUCED if best else row["verdict"]


def table(rows: Sequence[Row], *, width: int, colour: bool) -> str:
    """A line per claim, by paper, and how many of the papers' own have which verdict."""
    lines: list[str] = []
    claims = max(len(row["claim"]) for row in rows) if rows else 0
    for paper in dict.fromkeys(row["paper"] for row in rows):
        lines += [*([""] if lines else []), paper]
        lines += [_line(row, claims, width, colour) for row in rows if row["paper"] == paper]
    return "\n".join([*lines, "", f"of the papers' claims: {verdicts.counted(rows)}", _ours(rows)])


def summary(rows: Sequence[Row]) -> str:
    """How many of the papers' claims have which outcome, by paper, as a Markdown table.

    Parts are not counted; claims of our own stand below.
    """
    by_paper = verdicts.counts(rows)
    total = sum(by_paper.values(), Counter[str]())
    shown = [each for each in verdicts.OUTCOMES if each != verdicts.NOT_REPRODUCED or total[each]]
    heads = (
        f"{verdicts.NOT_REPRODUCED}: {each}" if each in verdicts.FAILURES else each
        for each in shown
    )
    lines = [f"| paper | {' | '.join(heads)} |", "|---" * (len(shown) + 1) + "|"]
    for paper, number in [*by_paper.items(), ("all", total)]:
        lines.append(f"| {paper} | {' | '.join(str(number[each]) for each in shown)} |")
    return "\n".join([*lines, "", f"{_ours(rows)}."])


def _ours(rows: Sequence[Row]) -> str:
    return f"claims of our own stand apart: {verdicts.counted(rows, verdicts.OURS)}"


def _line(row: Row, claims: int, width: int, colour: bool) -> str:
    verdict = row["verdict"]
    words = ": ".join(filter(None, (verdict, row.get("failure"))))
    verdict_cell = f"{MARKS[verdicts.outcome(row)]} {words:<{WORDS}}"
    shown = f"\033[{COLOURS[verdict]}m{verdict_cell}\033[0m" if colour else verdict_cell
    start = f"  {row['claim']:<{claims}}  "
    left = max(width - len(start) - len(verdict_cell) - 2 - 31, 20)
    words = textwrap.shorten(row.get("statement", ""), left, placeholder=" ...")
    return f"{start}{shown}  {verdicts.observed_text(row, digits=3):<29}  {words}".rstrip()
