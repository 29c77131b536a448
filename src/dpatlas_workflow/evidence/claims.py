"""Verdicts on the papers' claims: `python -m dpatlas_workflow.evidence.claims`, from records.

It writes claims.csv and, beside it, comparisons.csv: what each verdict compares.

Each paper's folder has `claims.yaml`, what is claimed and when it counts as reproduced, and
`claims.py`, how the numbers are taken from its records.

Statistical verdicts: every comparison inside a claim gets two-sided Student t intervals over runs,
at looks after 12, 24, 48 and 96 runs. The statistical entries of one paper share the error
(Bonferroni): each has `FAMILY_ERROR` / entries, a quarter of it at each look. An entry is
reproduced only if all its comparisons hold, so a wrong "reproduced" needs a wrong interval in one
known comparison, and its intervals have the level 1 - error (divided among alternatives, where any
of several would do). It is not reproduced if one of them fails, which could happen by chance in
any, so to refute, the error is divided among them. A comparison holds if its interval lies on the
claimed side of the limit, and fails if it lies on the other side of the limit and the margin: the
smallest effect that matters. `looks.decide` turns looks into a verdict; a diverged run, or fewer
runs than the first look needs, make an entry inconclusive. Bootstrap intervals over few runs stay
within the range of the runs and could not keep such a level.
"""

import contextlib
import csv
import functools
import io
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from dpatlas.base.fields import Model, setting
from dpatlas.base.files import read_json, read_lines, remove_parts, write_atomic
from dpatlas.base.guard import real
from dpatlas.base.records import RunsFields
from dpatlas.base.schema import validated
from dpatlas.base.yaml_files import read_checked
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas_workflow.evidence.claim_file import STATISTICAL, WrittenClaims
from dpatlas_workflow.evidence.comparisons import Evidence, NotRun, PaperRecords, Undecided
from dpatlas_workflow.evidence.looks import (
    ALONE,
    EVERYTHING,
    LOOKS,
    Decision,
    decide,
    decide_once,
    only_vetoes,
    runs_to_decide,
    with_margin,
)
from dpatlas_workflow.evidence.run_values import values_text
from dpatlas_workflow.evidence.tests import TESTS, ColumnTest, in_words
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
    PAPER,
    REPRODUCED,
    VERDICTS,
    origin_of,
)
from dpatlas_workflow.records import Record, joined, noting, read_record
from dpatlas_workflow.registry import all_papers
from dpatlas_workflow.statistics import FAILS, HOLDS, OPEN

Tests = Mapping[str, type[ColumnTest]]
FILE = "claims.yaml"
# Chance of any wrong statistical verdict on the claims of one paper in one tier.
FAMILY_ERROR = 0.05
# Verdicts that do not stand against a claim with parts.
HOLD = REPRODUCED, NOT_CONTRADICTED
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
    "margin",
    "because",
    "runs_to_decide",
    "cpu_s_to_decide",
    "look",
    "failure",
    "origin",
    "restated",
)
COMPARISON_COLUMNS = (
    *("claim", "comparison", "observed", "low", "high", "above", "below", "margin", "runs"),
    *("level", "decides", "holds", "fails", "veto", "outlying", "values"),
)
# Of an entry with more comparisons, those closest to its verdict's turning are written.
MOST_COMPARISONS = 16
# Fields that parts have from their claim where they do not say otherwise; those that are lists.
INHERITED = (
    *("place", "statement", "kind", "evidence"),
    *("asserts", "deviations", "pilots", "margin", "margin_from", "printed"),
)
LISTS = ("evidence", "deviations")
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


@dataclass(frozen=True)
class ClaimEntry:
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
    asserts: str = ""
    deviations: tuple[str, ...] | None = None
    pilots: str = ""
    margin: float = 0.0
    margin_from: str = ""
    printed: Mapping[str, float] = field(default_factory=dict)
    elsewhere: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    other_reading: bool = False
    restated: Mapping[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Whose question it is, one of `ORIGINS`."""
        return origin_of(self.place, other_reading=self.other_reading)


@dataclass(frozen=True)
class Claim:
    """A claim and its entries: one for the whole, or one per part."""

    id: str
    paper: str
    place: str
    statement: str
    kind: str
    evidence: tuple[str, ...]
    entries: tuple[ClaimEntry, ...]
    asserts: str = ""
    deviations: tuple[str, ...] | None = None
    pilots: str = ""
    restated: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_parts(self) -> bool:
        """Whether a row for the conjunction follows the entries' rows."""
        return self.entries[0].id != self.id

    @property
    def origin(self) -> str:
        """Whose claim it is, PAPER or OURS."""
        return origin_of(self.place)

    def counts(self, entry: ClaimEntry) -> bool:
        """Whether this part counts: no other reading does, nor ours for a claim of the paper."""
        return not entry.other_reading and (self.origin == OURS or entry.origin == PAPER)


@dataclass(frozen=True)
class Headline:
    """A paper in one sentence; `main`: the claims to know first, each in a clause, by id."""

    text: str
    authors: str
    main: Mapping[str, str]


@dataclass(frozen=True)
class Claims:
    """The claims of all papers, checked; headlines by paper."""

    claims: tuple[Claim, ...]
    family_error: float = FAMILY_ERROR
    headlines: Mapping[str, Headline] = field(default_factory=dict)

    def planned(self, paper: str) -> int:
        """How many statistical entries of a paper share its error, run in this tier or not."""
        entries = (entry for claim in self.claims for entry in claim.entries)
        return sum(entry.paper == paper and entry.kind == STATISTICAL for entry in entries)

    def error(self, paper: str) -> float:
        """Chance to miss of one entry's intervals at one look."""
        return self.family_error / self.planned(paper) / len(LOOKS)


def read_claims(files: Mapping[str, Path] | None = None, tests: Tests = TESTS) -> Claims:
    """Read and check the claims.yaml of every paper, or of those with a path in `files`.

    Raises InputError for what `claim_file` refuses, an id given twice, one that is not its claim's
    or, in `main`, no claim's, a test that does not exist, and arguments that a test does not take
    or lacks.
    """
    files = (
        {key: paper.folder / FILE for key, paper in all_papers().items()}
        if files is None
        else files
    )
    claims: list[Claim] = []
    headlines = {}
    for paper, path in files.items():
        written = read_checked(path, WrittenClaims)
        of_paper = [
            _claim(paper, entry.model_dump(exclude_none=True), tests) for entry in written.claims
        ]
        claims += of_paper
        entries = [entry for claim in claims for entry in claim.entries]
        rows = Counter([c.id for c in claims] + [e.id for e in entries if e.id != e.claim])
        (repeated, times), *_ = rows.most_common(1)
        if times > 1:
            raise InputError(str(path), f"id {repeated} twice", "each id once")
        main = {each.claim: each.says for each in written.main}
        if unknown := set(main) - set(rows):
            raise InputError(f"main of {path}", min(unknown), "ids of its claims and their parts")
        headlines[paper] = Headline(written.headline, written.authors, main)
    return Claims(tuple(claims), headlines=headlines)


def at_tier(claims: Claims, tier: str) -> Claims:
    """The claims with the arguments that their tests take at a tier."""
    return _changed(
        claims, lambda entry: replace(entry, arguments=entry.elsewhere.get(tier, entry.arguments))
    )


def with_margins(claims: Claims, factor: float) -> Claims:
    """The claims with all margins multiplied; InputError for a factor that is not above 0."""
    real(gt=0).check("--margin-factor", factor)
    return _changed(claims, lambda entry: replace(entry, margin=factor * entry.margin))


def _changed(claims: Claims, change: Callable[[ClaimEntry], ClaimEntry]) -> Claims:
    return replace(
        claims,
        claims=tuple(
            replace(claim, entries=tuple(map(change, claim.entries))) for claim in claims.claims
        ),
    )


def check_evidence(claims: Claims, products: Sequence[str], papers: Collection[str]) -> None:
    """Raise InputError if evidence on one of `papers` names a file that is not among `products`."""
    for claim in claims.claims:
        if claim.paper not in papers:
            continue
        for path in (*claim.evidence, *(p for e in claim.entries for p in e.evidence)):
            if path not in products:
                raise InputError(f"evidence of {claim.id}", path, "a file that a rule makes")


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

    judged: what `judge_entries` gave, if it was called before.

    `detectable`: how far from its limit the decisive quantity has to be to be shown with
    probability .8 by so many runs of such spread.

    Raises InputError for a statistical entry with a directional comparison and without a margin.

    papers: records by paper; a paper that is absent was not run. verdicts: False for settings that
    are too small to mean anything; what was observed is shown all the same. costs: estimated CPU
    seconds per run by id of a record.
    """
    judged = judge_entries(claims, papers, tests) if judged is None else judged
    rows = []
    for claim in claims.claims:
        entry_rows = [
            entry_row(claim, entry, judged[entry.id], costs or {}) for entry in claim.entries
        ]
        if not verdicts:
            entry_rows = [_without_verdict(row) for row in entry_rows]
        rows += entry_rows
        if claim.has_parts:
            rows.append(conjunction_row(claim, entry_rows))
    return [{column: row.get(column, "") for column in COLUMNS} | {"tier": tier} for row in rows]


def judge_entries(
    claims: Claims,
    papers: Mapping[str, PaperRecords],
    tests: Tests = TESTS,
) -> dict[str, "JudgedEntry"]:
    """What the runs say of every entry, by its id; arguments as of `judge_claims`."""
    looks = {key: LookRecords(records) for key, records in papers.items()}
    entries = (entry for claim in claims.claims for entry in claim.entries)
    return {each.id: judge_entry(claims, each, looks.get(each.paper), tests) for each in entries}


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
            asked = each.comparison
            row = {
                "claim": name,
                "comparison": asked.label,
                "observed": asked.estimate.value,
                "low": each.low,
                "high": each.high,
                "above": asked.above,
                "below": asked.below,
                "margin": asked.margin or "",
                "runs": asked.estimate.runs,
                "level": f"{entry.decision.level:.10g}",
                "decides": int(each is entry.decision.decisive),
                "holds": int(holds),
                "fails": int(fails),
                "veto": int(asked.veto),
                "outlying": asked.estimate.outlying,
                "values": values_text(asked.estimate),
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
        "claim": claim.id,
        "paper": claim.paper,
        "place": claim.place,
        "statement": claim.statement,
        "kind": claim.kind,
        "verdict": conjunction(verdicts),
        "expected": f"all {len(parts)} parts {hold}" if parts[1:] else f"its part {hold}",
        "observed": f"{sum(verdict in HOLD for verdict in verdicts)} of {len(parts)}",
        "runs": min(runs, default=0),
        "evidence": ";".join(files),
        "note": "parts: " + ", ".join(counts),
        "origin": claim.origin,
        **failure_of(parts),
        "restated": restated_text(claim.restated, conjunction(verdicts)),
    }


def failure_of(parts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The columns `failure`, the gravest of these parts that count, and `because`: which fails how.

    That is, `part b: the opposite was seen`.
    """
    failures = {part["failure"] for part in parts}
    letters: dict[str, list[str]] = {}
    for part in parts:
        if part["failure"]:
            letters.setdefault(part["because"], []).append(part["claim"][-1])
    said = ((", ".join(of), "parts" if of[1:] else "part", why) for why, of in letters.items())
    return {
        "failure": next((each for each in FAILURES if each in failures), ""),
        "because": "; ".join(f"{noun} {of}: {why}" for of, noun, why in said),
    }


def restated_text(restated: Mapping[str, str], verdict: str) -> str:
    """The column `restated`, given that key of claims.yaml and today's verdict; empty without."""
    if not restated:
        return ""
    old, reason = restated["statement"], restated["reason"]
    read = NOT_READ if verdict == NOT_RUN else READ[restated["runs"]]
    return f"{read}: was '{restated['verdict']}'; {reason}; it said: {old}"


def write_claims(
    path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = COLUMNS
) -> None:
    """Write the rows as csv, atomically; numbers with six significant digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in row.items()})
    remove_parts(path.parent, path.name)
    write_atomic(path, text.getvalue())


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
    settings, flags = _read_settings(options.settings)
    products = None if options.products is None else read_lines(options.products)
    if products is not None and not flags.partial:
        check_evidence(claims, products, settings)
    papers = read_papers(settings, read_lines(options.records))
    costs = _read_costs(options.costs) if options.costs else None
    judged = judge_entries(claims, papers)
    if flags.partial:
        judged |= waiting(claims, products or ())
    rows = judge_claims(
        claims, papers, options.tier, verdicts=flags.verdicts, costs=costs, judged=judged
    )
    if products is not None:
        # Papers that are left out, and of a partial run what waits, have no files in the folder.
        for row in rows:
            files = [file for file in row["evidence"].split(";") if file in products]
            row["evidence"] = ";".join(files)
    compared = comparison_rows(judged)
    write_claims(options.output.with_name(COMPARISONS), compared, COMPARISON_COLUMNS)
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
    whole = joined(map(read_record, paths))
    records = {block: record for record in whole for block in record.ids}
    return {key: PaperRecords.of(value, records) for key, value in settings.items()}


def waiting(claims: Claims, products: Collection[str]) -> dict[str, "JudgedEntry"]:
    """The entries of which a figure or table is not among `products`, as not run."""
    entries = (entry for claim in claims.claims for entry in claim.entries)
    return {
        each.id: JudgedEntry(NOT_RUN, 0, "a figure or table of it waits for runs")
        for each in entries
        if not {*each.evidence} <= {*products}
    }


class Flags(Model):
    """What claims.json says beside the settings of papers."""

    verdicts: bool = setting("Whether the numbers carry verdicts.", default=True)
    partial: bool = setting("Whether only a part of the run is there.", default=False)


class PaperSettings(Model):
    """A paper's settings that tests read, and the ids of its records by group."""

    model_config = ConfigDict(extra="allow")

    groups: dict[str, list[str]] = setting("Ids of records by group.", default={})
    horizons: dict[str, int] = setting("Steps at which tests read, by name.", default={})


class Costs(Model):
    """CPU seconds of one run."""

    costs: dict[str, Annotated[float, Field(ge=0)]] = setting("CPU seconds by record.")


def _read_settings(path: Path) -> tuple[dict[str, dict[str, Any]], Flags]:
    """Settings by paper, and what else the file says."""
    content = _json_object(path)
    given = {name: content.pop(name) for name in Flags.model_fields if name in content}
    flags = validated(Flags, given, place=f"{path}: ")
    for paper, settings in content.items():
        validated(PaperSettings, settings, place=f"{path}: {paper}.")
    return content, flags


def _read_costs(path: Path) -> dict[str, float]:
    return validated(Costs, {"costs": _json_object(path)}, place=f"{path}: ").costs


def _json_object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(str(path), type(content).__name__, "a JSON object")
    return content


def _claim(paper: str, written: dict[str, Any], tests: Tests) -> Claim:
    """The claim of a paper with these fields of claims.yaml."""
    inherited = {"paper": paper} | {name: written[name] for name in INHERITED if name in written}
    entries = tuple(
        _checked(_entry(written["id"], inherited | part), tests)
        for part in written.get("parts", [written])
    )
    own = _values(Claim, inherited)
    restated = written.get("restated", {})
    return Claim(id=written["id"], entries=entries, restated=restated, **own)


def _entry(claim: str, given: dict[str, Any]) -> ClaimEntry:
    values = _values(ClaimEntry, given)
    arguments = {name: value for name, value in given.items() if name not in values}
    return ClaimEntry(claim=claim, **values, arguments=arguments)


def _values(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values that are fields of a dataclass; lists as tuples."""
    own = {each.name for each in fields(kind)}
    return {name: tuple(v) if name in LISTS else v for name, v in given.items() if name in own}


def _checked(entry: ClaimEntry, tests: Tests) -> ClaimEntry:
    """The entry with the arguments of its test, as the test's signature allows them."""
    if entry.id != entry.claim and entry.id[:-1] != entry.claim:
        raise InputError(f"part of {entry.claim}", entry.id, f"{entry.claim} and a letter")
    if entry.test not in tests:
        raise InputError(f"test of {entry.id}", entry.test, "one of " + ", ".join(tests))
    model = tests[entry.test]

    def arguments(changes: Mapping[str, Any], place: str) -> dict[str, Any]:
        return validated(model, {**entry.arguments, **changes}, place=f"{place}: ").plain()

    elsewhere = {
        tier: arguments(changes, f"{entry.id} elsewhere.{tier}")
        for tier, changes in entry.elsewhere.items()
    }
    entry = replace(entry, arguments=arguments({}, entry.id), elsewhere=elsewhere)
    expected_text(entry)
    return entry


def expected_text(entry: ClaimEntry) -> str:
    """The column `expected`: that key with the arguments; InputError for a field that is none."""
    where, less = (in_words(entry.arguments.get(name, {})) for name in ("where", "less"))
    values = {**where, **{f"less_{name}": value for name, value in less.items()}}
    words = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else value
        for name, value in {**values, **entry.arguments}.items()
    }
    try:
        return entry.expected.format(**words)
    except (KeyError, IndexError, ValueError) as error:
        fields = ", ".join(words)
        raise InputError(f"expected of {entry.id}", error, f"fields among {fields}") from None


def beside(claim: Claim, entry: ClaimEntry) -> str:
    """Why a part does not count for its claim; empty if it does."""
    if claim.counts(entry):
        return ""
    return BESIDE[OTHER_READING if entry.other_reading else OURS]


def entry_row(
    claim: Claim, entry: ClaimEntry, judged: "JudgedEntry", costs: Mapping[str, float]
) -> dict[str, Any]:
    """The row of claims.csv for one entry of a claim; costs: as of `judge_claims`."""
    notes = judged.note, beside(claim, entry)
    row: dict[str, Any] = {
        "claim": entry.id,
        "paper": entry.paper,
        "place": entry.place,
        "statement": entry.statement,
        "kind": entry.kind,
        "expected": expected_text(entry),
        "verdict": judged.verdict,
        "runs": judged.runs,
        "evidence": ";".join(entry.evidence),
        "note": "; ".join(filter(None, notes)),
        "origin": entry.origin,
        "failure": "",
        "restated": restated_text(entry.restated, judged.verdict),
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


class LookRecords:
    """The records of a paper, and their first runs for each look.

    repeated: the conditions whose runs can be added to, by the id of their first block.
    """

    def __init__(self, records: PaperRecords):
        self.whole = records
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
            return self.whole.cut(look)


def judge_entry(
    claims: Claims,
    entry: ClaimEntry,
    looks: LookRecords | None,
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
            return _plain(entry, evidence_of(looks.whole))
        error = claims.error(entry.paper)
        evidence_over = functools.cache(lambda runs: evidence_of(looks.at(runs)))
        with noting() as ids:
            with contextlib.suppress(Undecided):
                evidence_over(looks.least)
            # Conditions may have been given more runs one by one; a test gets as many of each.
            common = min((looks.runs(each) for each in ids), default=LOOKS[-1])
            decision = decide(lambda look: evidence_over(min(look, common)), error)
    except NotRun as reason:
        return JudgedEntry(NOT_RUN, 0, str(reason))
    except Undecided as reason:
        return JudgedEntry(INCONCLUSIVE, reason.runs, str(reason))
    runs, verdict = decision.evidence.runs, VERDICT_OF[decision.answer]
    if only_vetoes(decision.evidence, decision.answer):
        verdict = NOT_CONTRADICTED
    note = f"decided by: {decision.decisive.comparison.label}"
    if not decision.look:
        note = (
            f"{runs} runs, and the first look is at {LOOKS[0]}: an interval at {ALONE:.0%} and no "
            f"verdict; {note}"
        )
    if outlying := decision.decisive.comparison.estimate.outlying:
        note = f"runs far from the others: {outlying}; {note}"
    wanted = None
    if verdict == INCONCLUSIVE:
        if lacking := decision.without_interval:
            note = f"{lacking}; {note}"
        wanted = runs_to_decide(decision.evidence, error, decision.look)
    read = tuple(looks.repeated[each] for each in sorted(ids & set(looks.repeated)))
    return JudgedEntry(verdict, runs, note, decision, wanted, read)


def _with_margin(entry: ClaimEntry, evidence: Evidence) -> Evidence:
    """The comparisons with the entry's margin; InputError if one needs a margin and has none."""
    directional = [c for group in evidence.alternatives for c in group if c.directional]
    if directional and not entry.margin:
        found = f"none, and one limit for {directional[0].label}"
        raise InputError(f"margin of {entry.id}", found, "a margin in the unit of that quantity")
    return with_margin(evidence, entry.margin)


def _plain(entry: ClaimEntry, evidence: Evidence) -> JudgedEntry:
    """The verdict on an entry that shares no error with others and is judged once."""
    decision = decide_once(evidence, FAMILY_ERROR)
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
