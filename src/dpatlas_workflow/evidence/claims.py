"""Verdicts on the papers' claims: `python -m dpatlas_workflow.evidence.claims`, from records.

It writes claims.csv and, beside it, comparisons.csv: what each verdict compares.

Each paper's folder has `claims.yaml`, what is claimed and when it counts as reproduced, and
`claims.py`, how the numbers are taken from its records.

The statistical entries of one paper share the error (Bonferroni): each has `FAMILY_ERROR` /
entries, a fifth of it at each look at its runs. A comparison holds if its interval lies on the
claimed side of the limit, and fails if it lies on the other side of the limit and the margin: the
smallest effect that matters. `looks.decide` turns looks into a verdict; a diverged run, or fewer
runs than the first look needs, make an entry inconclusive.
"""

import contextlib
import csv
import functools
import io
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpatlas.base.files import read_lines, remove_parts, write_atomic
from dpatlas.base.records import RunsFields
from dpatlas.base.yaml_files import read_yaml
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas_workflow.evidence import looks as at_looks
from dpatlas_workflow.evidence.claim_file import (
    FAMILY_ERROR,
    STATISTICAL,
    Claim,
    ClaimEntry,
    Claims,
    Statement,
    Tests,
    at_tier,
    check_evidence,
    expected_text,
    read_claims,
    with_margins,
)
from dpatlas_workflow.evidence.comparisons import Evidence, NotRun, PaperRecords, Undecided
from dpatlas_workflow.evidence.looks import EVERYTHING, LOOKS, Decision
from dpatlas_workflow.evidence.run_values import values_text
from dpatlas_workflow.evidence.tests import TESTS
from dpatlas_workflow.evidence.verdicts import (
    COMPARISONS,
    FAILURES,
    IDENTITY,
    INCONCLUSIVE,
    MATHEMATICS,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    OTHER_READING,
    OURS,
    REPRODUCED,
    VERDICTS,
)
from dpatlas_workflow.records import Record, joined, noting, read_record
from dpatlas_workflow.statistics import FAILS, HOLDS, OPEN

# Verdicts that do not stand against a claim with parts.
HOLD = REPRODUCED, NOT_CONTRADICTED
VERDICT_OF = {HOLDS: REPRODUCED, FAILS: NOT_REPRODUCED, OPEN: INCONCLUSIVE}
COLUMNS = (
    *("claim", "paper", "place", "statement", "kind", "verdict", "expected", "observed", "low"),
    *("high", "runs", "evidence", "level", "detectable", "comparisons", "note", "tier", "margin"),
    *("because", "runs_to_decide", "cpu_s_to_decide", "look", "failure", "origin", "restated"),
)
COMPARISON_COLUMNS = (
    *("claim", "comparison", "observed", "low", "high", "above", "below", "margin", "runs"),
    *("level", "decides", "holds", "fails", "veto", "outlying", "values"),
)
# Of an entry with more comparisons, those closest to its verdict's turning are written.
MOST_COMPARISONS = 16
BESIDE = {
    OTHER_READING: "another reading of the paper's text, which does not count for the claim",
    OURS: "a question of our own, which does not count for the claim",
}
# Kinds whose verdicts follow from computed numbers; why one of these is not reproduced.
COMPUTED = "exact", IDENTITY
CONTRADICTED = "a computed number contradicts it"
# What stands first of a restated entry, by where its verdict comes from.
READ = {"seen": "read afterwards", "unseen": "judged by runs on a base seed that nobody had seen"}
NOT_READ = "not judged since"
TOO_SMALL = "the settings of this tier only exercise the rules; its numbers carry no verdict"


def judge_claims(
    claims: Claims,
    papers: Mapping[str, PaperRecords],
    tier: str,
    *,
    verdicts: bool = True,
    tests: Tests = TESTS,
    costs: Mapping[str, float] | None = None,
    judged: Mapping[str, "JudgedEntry"] | None = None,
) -> list[dict[str, Any]]:
    """Rows of claims.csv, by column: a row per entry, and one for each claim with parts.

    papers: records by paper; a paper that is absent was not run. verdicts: False for settings that
    are too small to mean anything; what was observed is shown all the same. costs: estimated CPU
    seconds per run by id of a record. judged: what `judge_entries` gave, if it was called before.
    Raises InputError for a statistical entry with a directional comparison and without a margin.
    """
    judged = judge_entries(claims, papers, tests) if judged is None else judged
    rows = []
    for claim in claims.claims:
        entry_rows = [entry_row(claim, e, judged[e.id], costs or {}) for e in claim.entries]
        if not verdicts:
            entry_rows = [_without_verdict(row) for row in entry_rows]
        rows += entry_rows
        if claim.has_parts:
            rows.append(conjunction_row(claim, entry_rows))
    return [{column: row.get(column, "") for column in COLUMNS} | {"tier": tier} for row in rows]


def judge_entries(
    claims: Claims, papers: Mapping[str, PaperRecords], tests: Tests = TESTS
) -> dict[str, "JudgedEntry"]:
    """What the runs say of every entry, by its id; arguments as of `judge_claims`."""
    looks = {key: RecordsByLook(records) for key, records in papers.items()}
    return {e.id: judge_entry(claims, e, looks.get(e.paper), tests) for e in claims.entries}


def comparison_rows(judged: Mapping[str, "JudgedEntry"]) -> list[dict[str, Any]]:
    """Rows of comparisons.csv: of each entry the comparison that decides, then the next closest.

    Limits that there are not, and ends of intervals that are infinite, are empty. above, below: the
    claimed side of the quantity. holds, fails: by the intervals that could reproduce and refute the
    entry, of which the row shows one. veto: whether the comparison can only refute. outlying: how
    many of the runs lie far from the others, for which t intervals are not made. values: of single
    runs, from which observed, low and high follow (`run_values`).
    """
    rows = []
    for name, entry in judged.items():
        if entry.decision is None:
            continue
        for each, holds, fails in entry.decision.closest(MOST_COMPARISONS):
            comparison = each.comparison
            row = {
                "claim": name,
                "comparison": comparison.label,
                "observed": comparison.estimate.value,
                "low": each.low,
                "high": each.high,
                "above": comparison.above,
                "below": comparison.below,
                "margin": comparison.margin or "",
                "runs": comparison.estimate.runs,
                "level": f"{entry.decision.level:.10g}",
                "decides": int(each is entry.decision.decisive),
                "holds": int(holds),
                "fails": int(fails),
                "veto": int(comparison.veto),
                "outlying": comparison.estimate.outlying,
                "values": values_text(comparison.estimate),
            }
            rows.append({key: "" if value in EVERYTHING else value for key, value in row.items()})
    return rows


def conjunction(verdicts: Sequence[str]) -> str:
    """The verdict on "all of these": one that is refuted refutes it, whatever the others say.

    Parts that are merely not contradicted do not stand against it, nor for it.
    """
    for verdict in (NOT_REPRODUCED, NOT_RUN, INCONCLUSIVE, REPRODUCED):
        if verdict in verdicts:
            return verdict
    return NOT_CONTRADICTED


def conjunction_row(claim: Claim, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The row of a claim with parts, given the rows of its entries in their order."""
    parts = [row for entry, row in zip(claim.entries, rows, strict=True) if claim.counts(entry)]
    verdicts = [part["verdict"] for part in parts]
    files = dict.fromkeys(path for entry in claim.entries for path in entry.evidence)
    counts = [f"{verdicts.count(kind)} {kind}" for kind in VERDICTS if kind in verdicts]
    hold = " or ".join(HOLD if NOT_CONTRADICTED in verdicts else HOLD[:1])
    # Parts of another kind, such as formulas, have no runs that are repeated.
    repeated = [part["runs"] for part in parts if part["runs"] and part["kind"] == claim.kind]
    runs = repeated or [part["runs"] for part in parts if part["runs"]]
    return {
        **_row(claim, conjunction(verdicts)),
        "expected": f"all {len(parts)} parts {hold}" if parts[1:] else f"its part {hold}",
        "observed": f"{sum(verdict in HOLD for verdict in verdicts)} of {len(parts)}",
        "runs": min(runs, default=0),
        "evidence": ";".join(files),
        "note": "parts: " + ", ".join(counts),
        **failure_of(parts),
    }


def _row(statement: Statement, verdict: str) -> dict[str, Any]:
    """Columns of a claim and of a part; restated: that key of claims.yaml, beside the verdict."""
    columns = ("paper", "place", "statement", "kind", "origin")
    row = {"claim": statement.id, "verdict": verdict, "evidence": ";".join(statement.evidence)}
    row |= {name: getattr(statement, name) for name in columns}
    if said := statement.restated:
        read = NOT_READ if verdict == NOT_RUN else READ[said["runs"]]
        words = f"was '{said['verdict']}'; {said['reason']}; it said: {said['statement']}"
        row["restated"] = f"{read}: {words}"
    return row


def failure_of(parts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The columns `failure`, the gravest of these parts that count, and `because`: which fails how.

    That is, `part b: the opposite was seen`.
    """
    letters: dict[str, list[str]] = defaultdict(list)
    for part in (part for part in parts if part["failure"]):
        letters[part["because"]].append(part["claim"][-1])
    because = (f"part{'s' * (len(x) > 1)} {', '.join(x)}: {why}" for why, x in letters.items())
    failures = [kind for kind in FAILURES if any(part["failure"] == kind for part in parts)]
    return {"failure": [*failures, ""][0], "because": "; ".join(because)}


def write_claims(
    path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = COLUMNS
) -> None:
    """Write the rows as csv, atomically; numbers with six significant digits."""
    remove_parts(path.parent, path.name)
    write_atomic(path, csv_text(rows, columns))


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """These columns of the rows, as `write_claims` writes them; empty where a row lacks one."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        values = (row.get(column, "") for column in columns)
        writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in values])
    return text.getvalue()


def main(arguments: Sequence[str]) -> int:
    """Judge every claim from the command line."""
    parser = ArgumentParser(prog="python -m dpatlas_workflow.evidence.claims", description=__doc__)
    parser.add_argument("--tier", required=True)
    parser.add_argument(
        "--settings", required=True, type=Path, help="JSON file: settings and groups by paper"
    )
    parser.add_argument("--output", required=True, type=Path, help="claims.csv to write")
    parser.add_argument("--records", required=True, type=Path, help="file with a record per line")
    parser.add_argument(
        "--products", type=Path, help="file: figures and tables that rules make, others are refused"
    )
    parser.add_argument("--costs", type=Path, help="JSON file: CPU seconds per run by record")
    parser.add_argument("--margin-factor", type=float, default=1.0, help="on every margin")
    options = parser.parse_args(arguments)
    claims = at_tier(with_margins(read_claims(), options.margin_factor), options.tier)
    settings = read_yaml(options.settings)
    verdicts, partial = settings.pop("verdicts", True), settings.pop("partial", False)
    products = None if options.products is None else read_lines(options.products)
    if products is not None and not partial:
        check_evidence(claims, products, settings)
    papers = read_papers(settings, read_lines(options.records))
    costs = {} if options.costs is None else read_yaml(options.costs)
    judged = judge_entries(claims, papers)
    if partial:
        judged |= waiting(claims, products or ())
    rows = judge_claims(claims, papers, options.tier, verdicts=verdicts, costs=costs, judged=judged)
    if products is not None:
        # Papers that are left out, and of a partial run what waits, have no files in the folder.
        for row in rows:
            files = [file for file in row["evidence"].split(";") if file in products]
            row["evidence"] = ";".join(files)
    beside = options.output.with_name(COMPARISONS)
    write_claims(beside, comparison_rows(judged), COMPARISON_COLUMNS)
    write_claims(options.output, rows)
    for row in rows:
        print(f"{row['claim']:8} {row['verdict']:22} {row['note']}")
    return 0


def read_papers(
    settings: Mapping[str, Mapping[str, Any]], paths: Iterable[Path | str]
) -> dict[str, PaperRecords]:
    """The records at these paths by paper, as `settings` (by paper) groups them.

    Raises InputError for a record that cannot be read, and for one that settings name and no path
    leads to.
    """
    records = {block: record for record in joined(map(read_record, paths)) for block in record.ids}
    return {key: PaperRecords.of(value, records) for key, value in settings.items()}


def waiting(claims: Claims, products: Collection[str]) -> dict[str, "JudgedEntry"]:
    """The entries of which a figure or table is not among `products`, as not run."""
    not_run = JudgedEntry(NOT_RUN, 0, "a figure or table of it waits for runs")
    return {each.id: not_run for each in claims.entries if {*each.evidence} - {*products}}


def entry_row(
    claim: Claim, entry: ClaimEntry, judged: "JudgedEntry", costs: Mapping[str, float]
) -> dict[str, Any]:
    """The row of claims.csv for one entry of a claim; costs: as of `judge_claims`."""
    notes = [judged.note]
    if not claim.counts(entry):
        notes.append(BESIDE[OTHER_READING if entry.other_reading else OURS])
    row = _row(entry, judged.verdict) | {
        "expected": expected_text(entry),
        "runs": judged.runs,
        "note": "; ".join(filter(None, notes)),
        "failure": "",
    }
    decision = judged.decision
    if decision is None:
        return row
    row |= {
        "observed": decision.decisive.comparison.estimate.value,
        "comparisons": decision.evidence.comparisons,
    }
    if judged.verdict == NOT_REPRODUCED:
        computed = entry.kind in COMPUTED
        row["failure"] = MATHEMATICS if computed else decision.failure
        row["because"] = CONTRADICTED if computed else decision.because
    if entry.kind != STATISTICAL:
        return row
    row |= {
        "level": f"{decision.level:.10g}",
        # How far from its limit it has to be, to be shown by so many runs of such spread.
        "detectable": decision.decisive.comparison.estimate.detectable(decision.level),
        "because": decision.because,
        # What a test reads of draws that are no runs of a condition is whole at every look.
        "look": decision.look if decision.look == judged.runs else "",
    }
    if any(c.margin for group in decision.evidence.alternatives for c in group):
        row["margin"] = entry.margin
    if decision.look or decision.answer == OPEN:
        row |= {"low": decision.decisive.low, "high": decision.decisive.high}
    if judged.runs_to_decide:
        row |= {"runs_to_decide": judged.runs_to_decide}
        if judged.read and all(each.ids[0] in costs for each in judged.read):
            row["cpu_s_to_decide"] = judged.cpu_s(costs)
    return row


@dataclass(frozen=True)
class JudgedEntry:
    """What the runs say of an entry.

    decision: None where the test gave no comparisons. runs_to_decide: of an inconclusive entry,
    None if none would do. read: conditions that its test reads and whose runs can be added to.
    """

    verdict: str
    runs: int
    note: str = ""
    decision: Decision | None = None
    runs_to_decide: int | None = None
    read: tuple[Record[Any], ...] = ()

    def cpu_s(self, costs: Mapping[str, float]) -> float:
        """CPU seconds of the runs missing to `runs_to_decide`; costs: of one run, by record id."""
        wanted = self.runs_to_decide or 0
        missing = {each.ids[0]: max(0, wanted - each.spec.runs) for each in self.read}
        return sum(costs[name] * runs for name, runs in missing.items())


class RecordsByLook:
    """The records of a paper, and their first runs for each look.

    repeated: the conditions whose runs can be added to, by the id of their first block.
    """

    def __init__(self, records: PaperRecords):
        self.records = records
        self.at = functools.cache(self._at)
        conditions = {each.ids[0]: each for group in records.groups.values() for each in group}
        self.repeated = {
            name: each for name, each in conditions.items() if isinstance(each.spec, RunsFields)
        }
        # All conditions have so many runs, by which a test shows which conditions it reads; two at
        # least, since a single run has no spread.
        fewest = min((each.spec.runs for each in self.repeated.values()), default=LOOKS[0])
        self.least = min(max(fewest, 2), LOOKS[0])

    def runs(self, name: str) -> int:
        """Runs of the condition with this first block; as many as looks use if not repeated."""
        return self.repeated[name].spec.runs if name in self.repeated else LOOKS[-1]

    def _at(self, look: int) -> PaperRecords:
        # What is cut is not read by a test; `judge_entry` notes what is.
        with noting():
            return self.records.cut(look)


def judge_entry(
    claims: Claims,
    entry: ClaimEntry,
    looks: RecordsByLook | None,
    tests: Tests = TESTS,
) -> JudgedEntry:
    """The verdict on an entry; looks: None if its paper is not part of the run."""
    if looks is None:
        return JudgedEntry(NOT_RUN, 0, f"{entry.paper} is not part of this run")

    def evidence_of(records: PaperRecords) -> Evidence:
        evidence = tests[entry.test](**entry.arguments).evidence(records)
        return _with_margin(entry, evidence) if entry.kind == STATISTICAL else evidence

    try:
        if entry.kind != STATISTICAL:
            return _judged_once(entry, evidence_of(looks.records))
        error = claims.error(entry.paper)
        evidence_over = functools.cache(lambda runs: evidence_of(looks.at(runs)))
        with noting() as ids:
            with contextlib.suppress(Undecided):
                evidence_over(looks.least)
            # Conditions may have been given more runs one by one; a test gets as many of each.
            common = min((looks.runs(each) for each in ids), default=LOOKS[-1])
            decision = at_looks.decide(lambda look: evidence_over(min(look, common)), error)
    except NotRun as reason:
        return JudgedEntry(NOT_RUN, 0, str(reason))
    except Undecided as reason:
        return JudgedEntry(INCONCLUSIVE, reason.runs, str(reason))
    evidence, deciding = decision.evidence, decision.decisive.comparison
    runs, verdict, wanted = evidence.runs, VERDICT_OF[decision.answer], None
    if at_looks.only_vetoes(evidence, decision.answer):
        verdict = NOT_CONTRADICTED
    notes = [f"decided by: {deciding.label}"]
    if not decision.look:
        too_few = f"{runs} runs, and the first look is at {LOOKS[0]}"
        notes.insert(0, f"{too_few}: an interval at {at_looks.ALONE:.0%} and no verdict")
    if outlying := deciding.estimate.outlying:
        notes.insert(0, f"runs far from the others: {outlying}")
    if verdict == INCONCLUSIVE:
        notes.insert(0, decision.without_interval)
        wanted = at_looks.runs_to_decide(evidence, error, decision.look)
    read = tuple(looks.repeated[each] for each in sorted(ids & set(looks.repeated)))
    return JudgedEntry(verdict, runs, "; ".join(filter(None, notes)), decision, wanted, read)


def _with_margin(entry: ClaimEntry, evidence: Evidence) -> Evidence:
    """The comparisons with the entry's margin; InputError if one needs a margin and has none."""
    directional = [c for group in evidence.alternatives for c in group if c.directional]
    if directional and not entry.margin:
        found = f"none, and one limit for {directional[0].label}"
        raise InputError(f"margin of {entry.id}", found, "a margin in the unit of that quantity")
    return at_looks.with_margin(evidence, entry.margin)


def _judged_once(entry: ClaimEntry, evidence: Evidence) -> JudgedEntry:
    decision = at_looks.decide_once(evidence, FAMILY_ERROR)
    verdict = VERDICT_OF[decision.answer]
    if entry.kind == IDENTITY and verdict == REPRODUCED:
        verdict = NOT_CONTRADICTED
    note = f"decided by: {decision.decisive.comparison.label}"
    return JudgedEntry(verdict, evidence.runs, note, decision)


def _without_verdict(row: dict[str, Any]) -> dict[str, Any]:
    note = "; ".join(part for part in (TOO_SMALL, row.get("note", "")) if part)
    of_verdicts = dict.fromkeys(("because", "failure", "runs_to_decide", "cpu_s_to_decide"), "")
    return row | of_verdicts | {"verdict": NOT_RUN, "note": note}


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
