"""Verdicts and the csv that has them, for readers: nothing here needs more than Python."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dpatlas.base.files import read_rows
from dpatlas.errors import InputError

CLAIMS, COMPARISONS = "claims.csv", "comparisons.csv"
IDENTITY = "identity"
REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
NOT_CONTRADICTED = "not contradicted"
INCONCLUSIVE, NOT_RUN = "inconclusive", "not run at this tier"
VERDICTS = (REPRODUCED, NOT_REPRODUCED, NOT_CONTRADICTED, INCONCLUSIVE, NOT_RUN)
# Why something is not reproduced, the gravest first: a computed number contradicts it, the opposite
# was seen in runs, or the effect is at most the margin.
MATHEMATICS, OPPOSITE, SMALLER = FAILURES = ("mathematics", "opposite", "smaller")
# Whose question a row is: the paper's, the paper's text read otherwise, or our own.
PAPER, OTHER_READING, OURS = ORIGINS = ("paper", "other reading", "ours")
# What a row comes to: its failure if it has one, else its verdict.
OUTCOMES = (REPRODUCED, *FAILURES, *VERDICTS[1:])


def origin_of(place: str, *, other_reading: bool = False) -> str:
    """Whose question it is that claims.yaml has of this place."""
    if place.startswith(OURS):
        return OURS
    return OTHER_READING if other_reading else PAPER


def outcome(row: Mapping[str, str]) -> str:
    """The failure of a row of claims.csv, or its verdict; `not reproduced` of an older file."""
    return row.get("failure") or row["verdict"]


def same_question(row: Mapping[str, str], other: Mapping[str, str] | None) -> bool:
    """Whether two rows of a claim are about one statement, procedure and expectation."""
    # A tier that was published before margins decided has no such column.
    if other is None or ("margin" in row) != ("margin" in other):
        return False
    # Of a claim with parts some words of what is expected depend on their verdicts.
    questions = (
        (
            *(side.get(column) for column in ("statement", "kind")),
            re.sub(r"^(all \d+ parts|its part) .*", r"\1", side.get("expected", "")),
        )
        for side in (row, other)
    )
    return len(set(questions)) == 1


def is_part(row: Mapping[str, str]) -> bool:
    """Whether a row is of a part: these have a letter behind the number of their claim."""
    return row["claim"][-1].isalpha()


def counts(rows: Iterable[Mapping[str, str]], origin: str = PAPER) -> dict[str, Counter[str]]:
    """How many claims of this origin have which outcome, by paper; parts are not counted.

    rows: of claims.csv. PAPER gives what README, page and docs count, OURS what stands apart.
    """
    rows = list(rows)
    found = {row["paper"]: Counter[str]() for row in rows}
    for row in rows:
        if not is_part(row) and origin_of(row.get("place", "")) == origin:
            found[row["paper"]][outcome(row)] += 1
    return found


def counted(rows: Iterable[Mapping[str, str]], origin: str = PAPER) -> str:
    """`counts` of all papers in words, such as `2 reproduced, 3 not reproduced (3 smaller)`."""
    every = sum(counts(rows, origin).values(), Counter[str]())
    failed = [f"{every[failure]} {failure}" for failure in FAILURES if every[failure]]
    words = []
    for verdict in VERDICTS:
        number = every[verdict]
        if verdict == NOT_REPRODUCED and failed:
            number += sum(every[failure] for failure in FAILURES)
            verdict += f" ({', '.join(failed)})"
        words += [f"{number} {verdict}"] * (number > 0)
    return ", ".join(words) or "none"


def read_comparisons(folder: Path) -> list[dict[str, str]]:
    """Rows of a tier's comparisons.csv; none where its verdicts are older than such files."""
    path = folder / COMPARISONS
    return read_rows(path) if path.is_file() else []


def read_claims(folder: Path, *columns: str) -> list[dict[str, str]]:
    """Rows of a tier's claims.csv, at least one; InputError for a file without these columns."""
    path = folder / CLAIMS
    rows, allowed = read_rows(path), "the csv of the rule claims"
    if not rows:
        raise InputError(str(path), "no claims", allowed)
    if missing := sorted({"claim", "verdict", *columns} - set(rows[0])):
        raise InputError(str(path), f"no column {', '.join(missing)}", allowed)
    if nameless := [number for number, row in enumerate(rows, 1) if not row["claim"]]:
        raise InputError(str(path), f"row {nameless[0]} without a claim's name", allowed)
    names = Counter(row["claim"] for row in rows)
    if twice := [name for name, count in names.items() if count > 1]:
        raise InputError(str(path), f"{twice[0]} twice", "a row for each claim and part")
    return rows


def check_files(folder: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Raise InputError for a verdict of claims.csv whose figure or table is not in `folder`."""
    for row in rows:
        for file in row["evidence"].split(";") if row["verdict"] != NOT_RUN else ():
            if not (folder / file).is_file():
                allowed = "the figures and tables that its verdict rests on: run snakemake"
                raise InputError(f"evidence of {row['claim']}", f"no {folder / file}", allowed)


def observed_text(row: Mapping[str, str], digits: int = 4) -> str:
    """What a row of claims.csv observed, with its interval if it has one."""

    def number(name: str) -> str:
        text = row.get(name) or ""
        try:
            return f"{float(text):.{digits}g}"
        except ValueError:
            return text

    between = f" [{number('low')}, {number('high')}]" if row.get("low") else ""
    return number("observed") + between
