"""Read the published verdicts again by today's claims.yaml files, without any record.

python tools/read_again.py [TIER ...]    (all published tiers without names)

What claims.csv has beside its numbers follows from claims.yaml and comparisons.csv. A verdict
stands where the question is as it was: kind, test, arguments and margin. Where it is another, a
rule may say which of the published comparisons it asks about now; their runs are judged again.
Else the verdict is withdrawn.

It writes claims.csv, README.md and manifest.json of each publication, comparisons.csv where the
runs of a changed entry were judged again, what stands beside the papers, and docs/index.html.
read_again.yaml beside this file has a `Rule` by entry. The commit that a manifest then names has
the claims.yaml files of HEAD.
"""

import math
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any, TypeVar

import yaml

from dpatlas.base.fields import Model, setting
from dpatlas.base.files import read_rows, write_atomic, write_json
from dpatlas.base.folders import DOCS
from dpatlas.base.schema import validated
from dpatlas.base.yaml_files import parsed
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas_workflow.config.load import project_root
from dpatlas_workflow.evidence import looks
from dpatlas_workflow.evidence.claim_file import FILE, WrittenClaim, WrittenPart
from dpatlas_workflow.evidence.claims import (
    BESIDE,
    COLUMNS,
    COMPARISON_COLUMNS,
    READ,
    Claim,
    ClaimEntry,
    Claims,
    JudgedEntry,
    RecordsByLook,
    at_tier,
    comparison_rows,
    conjunction_row,
    entry_row,
    judge_entry,
    read_claims,
    write_claims,
)
from dpatlas_workflow.evidence.comparisons import Evidence, PaperRecords
from dpatlas_workflow.evidence.run_values import estimate_of, samples_of
from dpatlas_workflow.evidence.verdicts import (
    CLAIMS,
    COMPARISONS,
    NOT_RUN,
    REPRODUCED,
    read_comparisons,
)
from dpatlas_workflow.registry import all_papers
from dpatlas_workflow.report.index import MANIFEST, README, publications, read_publication
from dpatlas_workflow.report.page import write_site
from dpatlas_workflow.report.publish import commit_of, readme
from dpatlas_workflow.report.published_tier import write_beside
from dpatlas_workflow.report.state import file_sha256
from dpatlas_workflow.report.verify import published_differences
from dpatlas_workflow.statistics import Comparison, Estimate

Row = Mapping[str, Any]
T = TypeVar("T", Claim, ClaimEntry)
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
    old = {row["claim"]: row for row in rows}
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
    claims: Claims, entry: ClaimEntry, was: Row, compared: Sequence[Row], rule: Rule
) -> JudgedEntry:
    """What the published runs say of a changed entry; InputError where they cannot tell."""
    if rule.formula:
        # Of the group a test only asks whether the config has it.
        no_record: Any = SimpleNamespace(ids=("none",), key=entry.paper, spec=())
        there = PublishedRuns(groups={entry.arguments["group"]: [no_record]})
        return judge_entry(claims, entry, RecordsByLook(there))
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


def _judge(claims: Claims, entry: ClaimEntry, compared: Sequence[Row], missing: int) -> JudgedEntry:
    def evidence(records: PublishedRuns) -> Evidence:
        every = [_comparison(row, _estimate(row, records.runs)) for row in compared]
        return Evidence([every + every[-1:] * missing])

    tests: Any = {entry.test: lambda **arguments: SimpleNamespace(evidence=evidence)}
    return judge_entry(claims, entry, RecordsByLook(PublishedRuns()), tests)


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


def main(arguments: Sequence[str]) -> int:
    """Read the tiers again; refused where src differs from HEAD or a publication was edited."""
    parser = ArgumentParser(prog="python tools/read_again.py", description=__doc__)
    parser.add_argument("tiers", nargs="*", metavar="TIER")
    options = parser.parse_args(arguments)
    status = ["git", "status", "--porcelain", "--", "src"]
    root = project_root()
    if changes := subprocess.run(status, cwd=root, capture_output=True, text=True).stdout:
        raise InputError("src", changes.splitlines()[0], "the files of a commit")
    commit = (commit_of(root) or "").split()[0]
    written = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    rules = {name: validated(Rule, rule, place=f"{name}: ") for name, rule in written.items()}
    docs = root / DOCS
    for tier in options.tiers or sorted(path.parent.name for path in docs.glob(f"*/{CLAIMS}")):
        for path in publications(docs / tier):
            print(f"{path.parent}: {read_publication_again(path.parent, commit, rules)}")
        if not (docs / tier / MANIFEST).is_file():
            write_beside(docs / tier, tier)
    write_site(docs)
    return 0


def read_publication_again(folder: Path, commit: str, rules: dict[str, Rule]) -> str:
    """Read one publication again; returns what became of entries that changed."""
    if not (folder / CLAIMS).is_file():
        return "no claims"
    if slips := published_differences(folder):
        raise InputError(str(folder), slips[0], "a publication as it was made")
    manifest = read_publication(folder / MANIFEST)
    tier = manifest["tier"]
    then = questions(tier, manifest.get("asked", manifest["commit"]).split()[0])
    changed = {name for name, asked in questions(tier).items() if then.get(name) != asked}
    reading = read_again(
        at_tier(read_claims(), tier),
        read_rows(folder / CLAIMS),
        read_comparisons(folder),
        changed,
        rules,
        manifest["files"],
    )
    rows = [row for row in reading.rows if row["paper"] == manifest.get("block", row["paper"])]
    write_claims(folder / CLAIMS, rows)
    if reading.judged and COMPARISONS in manifest["files"]:
        write_claims(folder / COMPARISONS, reading.compared, COMPARISON_COLUMNS)
    before = manifest.get("read_again", {"judged": [], "withdrawn": []})
    done = {"judged": reading.judged, "withdrawn": reading.withdrawn}
    manifest["asked"] = commit
    manifest["read_again"] = {"commit": commit} | {
        what: sorted({*before[what], *names}) for what, names in done.items()
    }
    for name in {CLAIMS, COMPARISONS} & manifest["files"].keys():
        manifest["files"][name] = file_sha256(folder / name)
    write_atomic(folder / README, readme(manifest, folder))
    write_json(folder / MANIFEST, manifest)
    return f"judged again: {reading.judged}; withdrawn: {reading.withdrawn}"


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
