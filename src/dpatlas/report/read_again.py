"""Read the verdicts of a publication again by today's claims.yaml, without its records.

What claims.csv has beside its numbers follows from claims.yaml and comparisons.csv. A verdict
stands where the question is as it was: kind, test, arguments and margin. Where it is another, a
rule may say which of the published comparisons it asks about now; their runs are judged again.
Else the verdict is withdrawn.
"""

import math
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any, TypeVar

from dpatlas.config.load import project_root
from dpatlas.core.fields import Model, setting
from dpatlas.core.statistics import Comparison, Estimate, Judged
from dpatlas.core.yaml_text import parsed
from dpatlas.errors import InputError
from dpatlas.evidence import looks
from dpatlas.evidence.claim_file import WrittenClaim, WrittenPart
from dpatlas.evidence.claims import (
    BESIDE,
    COLUMNS,
    COMPUTED,
    CONTRADICTED,
    FILE,
    READ,
    Claim,
    Claims,
    Entry,
    JudgedEntry,
    Looks,
    all_tests,
    comparison_rows,
    conjunction_row,
    entry_row,
    failure_of,
    judge_entry,
)
from dpatlas.evidence.comparisons import Evidence, PaperRecords
from dpatlas.evidence.run_values import estimate_of, samples_of
from dpatlas.evidence.verdicts import (
    MATHEMATICS,
    NOT_REPRODUCED,
    NOT_RUN,
    OPPOSITE,
    OTHER_READING,
    OURS,
    PAPER,
    REPRODUCED,
    SMALLER,
    is_part,
    origin_of,
)
from dpatlas.registry import all_papers

Row = Mapping[str, Any]
T = TypeVar("T", Claim, Entry)
# Limits of a comparison, and what an empty cell means.
LIMITS = {"above": -math.inf, "below": math.inf}
# Keys of an entry that say what is asked; arguments of its test come on top, without its words.
ASKED = {"kind", "test", "margin"}
LABELS = {"label", "pair_label", "refuting_label", "lacking"}
WORDS = ({*WrittenPart.model_fields} | {*WrittenClaim.model_fields} | LABELS) - ASKED


class Rule(Model):
    """Which comparisons of a publication a changed entry asks about, and with which limits."""

    formula: bool = setting("Whether its test reads no record, so that it runs.", default=False)
    of: str = setting("The entry that had them; its own id without it.", default="")
    labels: str = setting("A text in the labels of those that count; all without it.", default="")
    above: float = setting("A limit in the place of the published one.", default=None)
    below: float = setting("A limit in the place of the published one.", default=None)


@dataclass(frozen=True)
class Reading:
    """Rows of claims.csv and of comparisons.csv; ids of what was withdrawn and judged again."""

    rows: list[dict[str, Any]]
    compared: list[Row]
    withdrawn: list[str]
    judged: list[str]


@dataclass(frozen=True)
class PublishedRuns(PaperRecords):
    """In the place of records: how many of the runs in comparisons.csv a look may use."""

    runs: int = looks.LOOKS[-1]

    def cut(self, runs: int) -> "PublishedRuns":
        """The first `runs` runs."""
        return replace(self, runs=runs)


def questions(tier: str, commit: str | None = None) -> dict[str, dict[str, Any]]:
    """What every entry asks at a tier, by id: today, or in the claims.yaml files of a commit.

    Raises InputError for a commit that this repository lacks.
    """
    asked = {}
    for paper in all_papers().values():
        for claim in parsed(_written(paper.folder / FILE, commit), FILE)["claims"]:
            shared = {key: claim[key] for key in ASKED if key in claim}
            for part in claim.get("parts", [claim]):
                every = shared | part | part.get("elsewhere", {}).get(tier, {})
                asked[part["id"]] = {key: every[key] for key in every.keys() - WORDS}
    return asked


def _written(path: Path, commit: str | None) -> str:
    if commit is None:
        return path.read_text(encoding="utf-8")
    root = project_root().resolve()
    name = f"{commit}:{path.resolve().relative_to(root).as_posix()}"
    found = subprocess.run(["git", "show", name], cwd=root, capture_output=True, text=True)
    if found.returncode:
        raise InputError("commit", name, "one of this repository that has the file")
    return found.stdout


def read_again(
    claims: Claims,
    rows: Iterable[Mapping[str, str]],
    compared: Sequence[Mapping[str, str]],
    changed: Collection[str],
    rules: Mapping[str, Rule],
    files: Collection[str],
) -> Reading:
    """What a publication with these rows says of today's claims at its tier.

    changed: entries whose question was another. rules: by id of such an entry. files: that the
    publication has; evidence names these alone.

    Raises InputError for a rule where the verdict does not follow from comparisons.csv.
    """
    old = {row["claim"]: row for row in with_columns(rows, compared)}
    by, reading = _by_claim(compared), Reading([], [], [], [])
    for claim in claims.claims:
        parts: list[dict[str, Any]] = []
        for entry in claim.entries:
            rule = rules.get(entry.id) if entry.id in changed else None
            name = (rule and rule.of) or entry.id
            was = old.get(name)
            own: Sequence[Row] = by.get(name, [])
            numbers: Row = {}
            if was is None:
                judged = JudgedEntry(NOT_RUN, 0, "not asked when this was published")
            elif entry.id not in changed or was["verdict"] == NOT_RUN:
                judged = JudgedEntry(was["verdict"], int(was["runs"] or 0), _bare(was["note"]))
                numbers = was
            elif rule and (own or rule.formula):
                judged = _judged_again(claims, entry, was, own, rule)
                own = comparison_rows({entry.id: judged})
                reading.judged.append(entry.id)
            else:
                note = f"withdrawn, as its test is another now; it was '{was['verdict']}'"
                judged = JudgedEntry(NOT_RUN, 0, note)
                reading.withdrawn.append(entry.id)
            row = entry_row(claim, _as_read(entry, was), judged, {})
            there = ";".join(each for each in entry.evidence if each in files)
            kept = {name: numbers[name] for name in ("failure", "evidence") if name in numbers}
            parts.append({**numbers, **row, "evidence": there, **kept})
            reading.compared.extend({**each, "claim": entry.id} for each in own)
        reading.rows.extend(parts)
        if claim.has_parts:
            whole = conjunction_row(_as_read(claim, old.get(claim.id)), parts)
            reading.rows.append(whole | {"evidence": evidence_of(parts)})
    tier = next(iter(old.values()))["tier"]
    for row in reading.rows:
        row |= {column: row.get(column, "") for column in COLUMNS} | {"tier": tier}
    return reading


def evidence_of(parts: Iterable[Row]) -> str:
    """The figures and tables that the parts of a claim name, each once."""
    files = [file for part in parts for file in part["evidence"].split(";")]
    return ";".join(dict.fromkeys(filter(None, files)))


def with_columns(
    rows: Iterable[Mapping[str, str]], compared: Iterable[Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Rows of an older claims.csv with `failure`, `origin` and `because` as they are today."""
    by = _by_claim(compared)
    every = [{**row, **_columns(row, by.get(row["claim"], []))} for row in rows]
    for whole in every:
        parts = [row for row in every if is_part(row) and row["claim"][:-1] == whole["claim"]]
        if parts:
            whole |= failure_of([row for row in parts if _counts(row, whole)])
    return every


def _columns(row: Row, compared: Sequence[Mapping[str, str]]) -> dict[str, str]:
    because, failure = row.get("because") or "", ""
    decisive = next((_judged(each) for each in compared if each["decides"] == "1"), None)
    if row["verdict"] == NOT_REPRODUCED and row["kind"] in COMPUTED:
        failure, because = MATHEMATICS, CONTRADICTED
    elif row["verdict"] == NOT_REPRODUCED:
        failure = OPPOSITE if because.startswith(looks.SEEN) else SMALLER
        if decisive and failure == SMALLER:
            because = looks.how_failed(decisive)
    elif row["verdict"] == REPRODUCED and decisive and row["kind"] not in COMPUTED:
        surely = because == looks.POSITIVE_AT_MOST or because.endswith(looks.SURELY)
        failing = next((_judged(each) for each in compared if each["fails"] == "1"), None)
        because = looks.how_held((surely and failing) or decisive, surely=surely)
    other_reading = BESIDE[OTHER_READING] in row.get("note", "")
    origin = origin_of(row.get("place", ""), other_reading=other_reading)
    return {"failure": failure, "origin": origin, "because": because}


def _counts(part: Row, whole: Row) -> bool:
    """As `Claim.counts`, by rows."""
    if BESIDE[OTHER_READING] in part["note"]:
        return False
    return bool(whole["origin"] == OURS or part["origin"] == PAPER)


def _by_claim(compared: Iterable[Mapping[str, str]]) -> dict[str, list[Mapping[str, str]]]:
    by: dict[str, list[Mapping[str, str]]] = {}
    for row in compared:
        by.setdefault(row["claim"], []).append(row)
    return by


def _bare(note: str) -> str:
    """A note without the words of a part that does not count."""
    return "; ".join(each for each in note.split("; ") if each not in BESIDE.values())


def _as_read(said: T, was: Row | None) -> T:
    """An entry or claim whose verdict was read afterwards, unless the publication says better."""
    if not said.restated or (was and was.get("restated", "").startswith(READ["unseen"])):
        return said
    return replace(said, restated={**said.restated, "runs": "seen"})


def _judged_again(
    claims: Claims, entry: Entry, was: Row, compared: Sequence[Row], rule: Rule
) -> JudgedEntry:
    """What the published runs say of a changed entry; InputError where they cannot tell."""
    if rule.formula:
        # Of the group a test only asks whether the config has it.
        no_record: Any = SimpleNamespace(ids=("none",), key=entry.paper, spec=())
        there = PublishedRuns(groups={entry.arguments["group"]: [no_record]})
        return judge_entry(claims, entry, Looks(there), all_tests())
    # Of many comparisons those closest to the verdict's turning are published: the last one stands
    # for the others, so that the error is shared among as many.
    missing = int(was["comparisons"] or 0) - len(compared)
    then = replace(entry, kind=was["kind"], margin=float(was["margin"] or 0))
    follows = _judge(claims, then, compared, missing).verdict == was["verdict"]
    limits = {name: rule.plain()[name] for name in LIMITS if rule.plain().get(name) is not None}
    now = [{**row, **limits} for row in compared if rule.labels in row["comparison"]]
    judged = _judge(claims, entry, now, missing)
    if not follows or (missing and judged.verdict == REPRODUCED):
        found = "a verdict that does not follow from comparisons.csv"
        raise InputError(f"rule of {entry.id}", found, "no rule: it is withdrawn then")
    return judged


def _judge(claims: Claims, entry: Entry, compared: Sequence[Row], missing: int) -> JudgedEntry:
    def test(records: PublishedRuns, **_: object) -> Evidence:
        every = [_comparison(row, _estimate(row, records.runs)) for row in compared]
        return Evidence([every + every[-1:] * missing])

    return judge_entry(claims, entry, Looks(PublishedRuns()), {entry.paper: {entry.test: test}})


def _estimate(row: Row, runs: int) -> Estimate:
    """What a row of comparisons.csv estimates by its first runs.

    One without values was computed, or is about draws without number, whose interval is normal.
    """
    if samples := [sample[:runs] for sample in samples_of(row)]:
        return estimate_of(samples)
    low, high = (float(row[end] or row["observed"]) for end in ("low", "high"))
    error = (high - low) / 2 / NormalDist().inv_cdf((1 + float(row["level"])) / 2)
    return Estimate(float(row["observed"]), error, math.inf, int(row["runs"]))


def _comparison(row: Row, estimate: Estimate) -> Comparison:
    """A row of comparisons.csv as it was compared, without its margin."""
    above, below = (float(row[name] or end) for name, end in LIMITS.items())
    return Comparison(row["comparison"], estimate, above, below, veto=row["veto"] == "1")


def _judged(row: Mapping[str, str]) -> Judged:
    """A row of comparisons.csv with its interval, as it was written."""
    seen = Estimate(float(row["observed"]), math.inf, 1.0, int(row["runs"]))
    comparison = replace(_comparison(row, seen), margin=float(row["margin"] or 0))
    return Judged(comparison, float(row["low"] or -math.inf), float(row["high"] or math.inf))
