"""Verdicts on the papers' claims: `python -m dpatlas.evidence.claims`, records in, claims.csv out.

Each paper's folder has `claims.yaml`, what is claimed and when it counts as reproduced, and
`claims.py`, how the numbers are taken from its records.

Statistical verdicts: every comparison inside a claim gets a two-sided Student t interval over runs.
The statistical entries of all papers share the error (Bonferroni): each has error
`FAMILY_ERROR` / entries. An entry is reproduced only if all its comparisons hold, so a wrong
"reproduced" needs a wrong interval in one known comparison, and its intervals have the level 1 -
error (divided among alternatives, where any of several would do). It is not reproduced if one of
them fails, which could happen by chance in any, so to refute, the error is divided among them. A
comparison holds if its interval lies on the claimed side of the threshold, fails if it lies on the
other side, and is open if it contains the threshold. An entry is reproduced if all hold, not
reproduced if one fails, else inconclusive; a diverged run makes it inconclusive. Bootstrap
intervals over five or six runs stay within the range of the runs and cannot keep such a level: they
serve as error bars in the figures only. The rule that turns intervals into a verdict is
`core.statistics.weigh`.
"""

import csv
import io
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpatlas.config.load import read_checked
from dpatlas.config.model import validated
from dpatlas.core.files import read_json, read_lines, remove_parts, write_atomic
from dpatlas.core.statistics import (
    FAILS,
    HOLDS,
    OPEN,
    Judged,
    judge,
    simultaneous_confidence,
    weigh,
)
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas.evidence.arguments import arguments_of
from dpatlas.evidence.claim_file import WrittenClaims
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords, Undecided
from dpatlas.records import read_record
from dpatlas.registry import all_papers

Test = Callable[..., Evidence]


def all_tests() -> dict[str, Mapping[str, Callable[..., Evidence]]]:
    """The tests of every paper by name."""
    return {key: paper.load("claims").TESTS for key, paper in all_papers().items()}


FILE = "claims.yaml"
# Chance that any interval behind any statistical verdict misses what it estimates.
FAMILY_ERROR = 0.05
REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
INCONCLUSIVE, NOT_RUN = "inconclusive", "not run at this tier"
VERDICTS = (REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE, NOT_RUN)
VERDICT_OF = {HOLDS: REPRODUCED, FAILS: NOT_REPRODUCED, OPEN: INCONCLUSIVE}
COLUMNS = (
    "claim",
    "paper",
    "place",
    "statement",
    "kind",
    "verdict",
    "expected",
    "observed",
    "low",
    "high",
    "runs",
    "evidence",
    "level",
    "detectable",
    "comparisons",
    "note",
    "tier",
)
TOO_SMALL = "the settings of this tier only exercise the rules; its numbers carry no verdict"


@dataclass(frozen=True)
class Entry:
    """One question of a claims.yaml: a claim without parts, or a part with what it inherits."""

    id: str
    claim: str
    paper: str
    place: str
    statement: str
    kind: str
    evidence: tuple[str, ...]
    expected: str
    test: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """A claim and its entries: one for the whole, or one per part."""

    id: str
    paper: str
    place: str
    statement: str
    kind: str
    evidence: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def has_parts(self) -> bool:
        """Whether a row for the conjunction follows the entries' rows."""
        return self.entries[0].id != self.id


@dataclass(frozen=True)
class Claims:
    """The claims of all papers, checked."""

    claims: tuple[Claim, ...]
    family_error: float = FAMILY_ERROR

    @property
    def planned(self) -> int:
        """How many statistical entries share the error, whether or not a tier can run them."""
        entries = (entry for claim in self.claims for entry in claim.entries)
        return sum(entry.kind == "statistical" for entry in entries)


def read_claims(
    files: Mapping[str, Path] | None = None, tests: Mapping[str, Mapping[str, Test]] | None = None
) -> Claims:
    """Read and check the claims.yaml of every paper, or of those with a path in `files`.

    Raises InputError for what `claim_file` refuses, an id given twice or that is not its claim's, a
    test that does not exist, arguments that a test does not take or lacks, and a test that no
    entry uses.
    """
    files = (
        {key: paper.folder / FILE for key, paper in all_papers().items()}
        if files is None
        else files
    )
    tests = all_tests() if tests is None else tests
    claims: list[Claim] = []
    for paper, path in files.items():
        written = read_checked(path, WrittenClaims).claims
        of_paper = [
            _claim(paper, entry.model_dump(exclude_none=True), tests[paper]) for entry in written
        ]
        used = {entry.test for claim in of_paper for entry in claim.entries}
        if unused := set(tests[paper]) - used:
            raise InputError(str(path), f"no entry for test {min(unused)}", "one for every test")
        claims += of_paper
        entries = [entry for claim in claims for entry in claim.entries]
        rows = Counter([c.id for c in claims] + [e.id for e in entries if e.id != e.claim])
        (repeated, times), *_ = rows.most_common(1)
        if times > 1:
            raise InputError(str(path), f"id {repeated} twice", "each id once")
    return Claims(tuple(claims))


def check_evidence(claims: Claims, products: Sequence[str], papers: Collection[str]) -> None:
    """Raise InputError if evidence on one of `papers` names a file that is not among `products`."""
    for claim in claims.claims:
        if claim.paper not in papers:
            continue
        for path in (*claim.evidence, *(p for e in claim.entries for p in e.evidence)):
            if path not in products:
                raise InputError(f"evidence of {claim.id}", path, "a file that a rule makes")


def check_files(folder: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Raise InputError for a verdict of claims.csv whose figure or table is not in `folder`."""
    for row in rows:
        for file in row["evidence"].split(";") if row["verdict"] != NOT_RUN else ():
            if not (folder / file).is_file():
                allowed = "the figures and tables that its verdict rests on: run snakemake"
                raise InputError(f"evidence of {row['claim']}", f"no {folder / file}", allowed)


def judge_claims(
    claims: Claims,
    papers: Mapping[str, PaperRecords],
    tier: str,
    *,
    verdicts: bool = True,
    tests: Mapping[str, Mapping[str, Test]] | None = None,
) -> list[dict[str, Any]]:
    """Rows of claims.csv, by column: a row per entry, and one for each claim with parts.

    `detectable`: how far from its limit the decisive quantity has to be to be shown with
    probability .8 by so many runs of such spread.

    papers: records by paper; a paper that is absent was not run. verdicts: False for settings that
    are too small to mean anything; what was observed is shown all the same.
    """
    tests = all_tests() if tests is None else tests
    rows = []
    for claim in claims.claims:
        entry_rows = [
            _entry_row(claims, entry, papers.get(entry.paper), tests[entry.paper][entry.test])
            for entry in claim.entries
        ]
        if not verdicts:
            entry_rows = [_without_verdict(row) for row in entry_rows]
        rows += entry_rows
        if claim.has_parts:
            rows.append(_conjunction_row(claim, entry_rows))
    return [{column: row.get(column, "") for column in COLUMNS} | {"tier": tier} for row in rows]


def conjunction(verdicts: Sequence[str]) -> str:
    """The verdict on "all of these": one that is refuted refutes it, whatever the others say."""
    for verdict in (NOT_REPRODUCED, NOT_RUN, INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return REPRODUCED


def write_claims(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows as csv, atomically; numbers with six significant digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in row.items()})
    remove_parts(path.parent, path.name)
    write_atomic(path, text.getvalue())


def main(arguments: Sequence[str]) -> int:
    """Judge every claim from the command line."""
    parser = ArgumentParser(prog="python -m dpatlas.evidence.claims", description=__doc__)
    parser.add_argument("--tier", required=True)
    parser.add_argument(
        "--settings", required=True, type=Path, help="JSON file: settings and groups by paper"
    )
    parser.add_argument("--results", type=Path, help="the tier's folder (paths in the csv)")
    parser.add_argument("--output", required=True, type=Path, help="claims.csv to write")
    parser.add_argument("--records", required=True, type=Path, help="file with a record per line")
    parser.add_argument(
        "--products", type=Path, help="file: figures and tables that rules make, others are refused"
    )
    options = parser.parse_args(arguments)
    claims = read_claims()
    settings = _settings(options.settings)
    verdicts = settings.pop("verdicts", True)
    if options.products is not None:
        check_evidence(claims, read_lines(options.products), settings)
    records = {record.id: record for record in map(read_record, read_lines(options.records))}
    papers = {key: PaperRecords.of(value, records) for key, value in settings.items()}
    rows = judge_claims(claims, papers, options.tier, verdicts=verdicts)
    write_claims(options.output, rows)
    for row in rows:
        print(f"{row['claim']:8} {row['verdict']:22} {row['note']}")
    return 0


def _settings(path: Path) -> dict[str, Any]:
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise InputError(
            str(path), type(settings).__name__, "a JSON object with an entry per paper"
        )
    return settings


def _claim(paper: str, fields: dict[str, Any], tests: Mapping[str, Test]) -> Claim:
    shared = {"paper": paper} | {name: fields[name] for name in ("place", "statement", "kind")}
    shared["evidence"] = tuple(fields["evidence"])
    parts = fields.get("parts", [fields])
    entries = (_entry(fields["id"], shared, part) for part in parts)
    checked = tuple(_checked(entry, tests) for entry in entries)
    return Claim(id=fields["id"], **shared, entries=checked)


def _entry(claim: str, inherited: dict[str, Any], fields: dict[str, Any]) -> Entry:
    arguments = {**inherited, **fields}
    named = {name: arguments.pop(name) for name in (*inherited, "id", "expected", "test")}
    named["evidence"] = tuple(named["evidence"])
    return Entry(claim=claim, **named, arguments=arguments)


def _checked(entry: Entry, tests: Mapping[str, Test]) -> Entry:
    """The entry with the arguments of its test, as the test's signature allows them."""
    if entry.id != entry.claim and entry.id[:-1] != entry.claim:
        raise InputError(f"part of {entry.claim}", entry.id, f"{entry.claim} and a letter")
    if entry.test not in tests:
        raise InputError(f"test of {entry.id}", entry.test, "one of " + ", ".join(tests))
    model = arguments_of(tests[entry.test])
    arguments = validated(model, entry.arguments, place=f"{entry.id}: ").plain()
    entry = replace(entry, arguments=arguments)
    _expected(entry)
    return entry


def _expected(entry: Entry) -> str:
    words = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else value
        for name, value in entry.arguments.items()
    }
    try:
        return entry.expected.format(**words)
    except (KeyError, IndexError, ValueError) as error:
        fields = ", ".join(words)
        raise InputError(f"expected of {entry.id}", error, f"fields among {fields}") from None


def _entry_row(
    claims: Claims, entry: Entry, records: PaperRecords | None, test: Callable[..., Evidence]
) -> dict[str, Any]:
    row = {
        "claim": entry.id,
        "paper": entry.paper,
        "place": entry.place,
        "statement": entry.statement,
        "kind": entry.kind,
        "expected": _expected(entry),
        "runs": 0,
        "evidence": ";".join(entry.evidence),
    }
    if records is None:
        return row | {"verdict": NOT_RUN, "note": f"{entry.paper} is not part of this run"}
    try:
        evidence = test(records, **entry.arguments)
    except NotRun as reason:
        return row | {"verdict": NOT_RUN, "note": str(reason)}
    except Undecided as reason:
        return row | {"verdict": INCONCLUSIVE, "note": str(reason), "runs": reason.runs}
    return row | _judged(claims, entry, evidence)


def _judged(claims: Claims, entry: Entry, evidence: Evidence) -> dict[str, Any]:
    """The columns that follow from the intervals; only statistical entries share the error."""
    statistical = entry.kind == "statistical"
    entries = claims.planned if statistical else 1

    def weighed(shares: int) -> tuple[float, str, Judged]:
        level = simultaneous_confidence(claims.family_error, entries, shares)
        judged = [[judge(c, level) for c in group] for group in evidence.alternatives]
        return level, *weigh(judged)

    # A false claim has a false comparison in every alternative, and all of an alternative have to
    # hold: one wrong interval in each at most, so alternatives share the error. A true claim has
    # an alternative without a false comparison, any of which may fail wrongly: these share it.
    level, answer, decisive = weighed(len(evidence.alternatives))
    if answer != HOLDS:
        refuting = weighed(max(map(len, evidence.alternatives)))
        if refuting[1] == FAILS or answer == FAILS:
            level, answer, decisive = refuting
    judged = {
        "verdict": VERDICT_OF[answer],
        "observed": decisive.comparison.estimate.value,
        "runs": evidence.runs,
        "comparisons": evidence.comparisons,
        "note": f"decided by: {decisive.comparison.label}",
    }
    if not statistical:
        return judged
    return judged | {
        "low": decisive.low,
        "high": decisive.high,
        "level": f"{level:.5f}",
        "detectable": decisive.comparison.estimate.detectable(level),
    }


def _without_verdict(row: dict[str, Any]) -> dict[str, Any]:
    note = "; ".join(part for part in (TOO_SMALL, row.get("note", "")) if part)
    return row | {"verdict": NOT_RUN, "note": note}


def _conjunction_row(claim: Claim, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    verdicts = [part["verdict"] for part in parts]
    files = dict.fromkeys(path for entry in claim.entries for path in entry.evidence)
    counts = [f"{verdicts.count(kind)} {kind}" for kind in VERDICTS if kind in verdicts]
    return {
        "claim": claim.id,
        "paper": claim.paper,
        "place": claim.place,
        "statement": claim.statement,
        "kind": claim.kind,
        "verdict": conjunction(verdicts),
        "expected": f"all {len(parts)} parts reproduced",
        "observed": f"{verdicts.count(REPRODUCED)} of {len(parts)}",
        "runs": min((part["runs"] for part in parts if part["runs"]), default=0),
        "evidence": ";".join(files),
        "note": "parts: " + ", ".join(counts),
    }


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
