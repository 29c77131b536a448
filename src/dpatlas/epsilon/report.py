"""What was found out about a claim, as JSON and in words for a terminal of 100 columns."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpatlas.base.rounding import downward, rounded_up, upward
from dpatlas.epsilon.claim import EpsilonClaim
from dpatlas.epsilon.slips import Hit, Search
from dpatlas.epsilon.valid import NAMES, Reading, assumptions
from dpatlas.errors import one_line

GUARANTEED, UNSUPPORTED, REFUTED = "guaranteed", "not guaranteed", "refuted"
WIDTH = 100
SHOUTED = {GUARANTEED: "GUARANTEED", REFUTED: "REFUTED"}


@dataclass(frozen=True)
class NeededNoise:
    """The noise multiplier that meets a target under one relation, and the accountant."""

    relation: str
    noise: float
    accountant: str


@dataclass(frozen=True)
class EpsilonReport:
    """The report on a claim; `str` gives it in words.

    readings: every valid accounting, by relation, the tightest first. least: by relation, an
    epsilon that the release certainly reaches, None where none is known. verdict: None if nothing
    was claimed. supported_by: the readings that support the claim. searched: how the claimed number
    may have come about; None if not asked. noises: for a target.
    """

    claim: EpsilonClaim
    readings: tuple[Reading, ...]
    least: Mapping[str, float | None]
    verdict: str | None
    supported_by: tuple[Reading, ...]
    searched: Search | None
    noises: tuple[NeededNoise, ...]
    warnings: tuple[str, ...]

    @property
    def tightest(self) -> Reading | None:
        """The reading with the smallest epsilon of all; None if nothing is proved."""
        return min(self.readings, key=lambda each: each.epsilon, default=None)

    @property
    def by_rounding(self) -> bool:
        """Whether only rounding supports the claim: no reading is at most the number claimed."""
        return self.verdict == GUARANTEED and not any(
            self.claim.claimed is not None and each.epsilon <= self.claim.claimed.value
            for each in self.supported_by
        )

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the claim, or against the target."""
        return self.verdict in (None, GUARANTEED) and (
            self.claim.target is None or bool(self.noises)
        )

    def __str__(self) -> str:
        return describe(self)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values, except that infinite numbers stay floats."""
        claim = self.claim
        slips = self.searched and {
            "hits": [
                {**vars(hit), "changes": [*hit.changes], "relations": [*hit.relations]}
                for hit in self.searched.hits
            ],
            "tried": self.searched.tried,
            "expected_by_chance": self.searched.by_chance,
        }
        return {
            "name": claim.name,
            "source": claim.source,
            "phases": [{**vars(phase)} for phase in claim.phases],
            "parts": [[{**vars(phase)} for phase in phases] for phases in claim.parts],
            "delta": claim.delta,
            "runs": claim.runs,
            "other_trials": sum(count for _, count in claim.trials),
            "released": claim.released,
            "relation": claim.relation,
            "claimed": None if claim.claimed is None else claim.claimed.value,
            "target": claim.target,
            "verdict": self.verdict,
            "by_rounding": self.by_rounding,
            "readings": [{**vars(each)} for each in self.readings],
            "tightest": None if self.tightest is None else {**vars(self.tightest)},
            "least": dict(self.least),
            "supported_by": [{**vars(each)} for each in self.supported_by],
            "slips": slips,
            "noise": [{**vars(each)} for each in self.noises],
            "assumptions": {each: assumptions(claim, each) for each in claim.relations},
            "warnings": list(self.warnings),
        }


def describe(report: EpsilonReport, *, brief: bool = False) -> str:
    """The whole report; `brief` leaves out events and assumptions."""
    claim = report.claim
    blocks = [_heading(claim)]
    if report.readings:
        blocks.append(_table(report, brief))
    if claim.target is not None:
        blocks.append(_noises(report))
    if claim.claimed is not None:
        blocks.append(_verdict(report))
        if report.searched is not None:
            blocks.append(_explanation(report))
    if not brief and (report.readings or report.noises):
        blocks.append(_assumed(report))
    if report.warnings:
        blocks.append("\n".join(_wrapped("warning: ", text) for text in report.warnings))
    return "\n".join(blocks) if brief else "\n\n".join(blocks)


def nearest(number: float, unit: float) -> str:
    """Two digits more than a printed number has whose last digit is worth `unit`."""
    return f"{number:.{max(0, round(-math.log10(unit)) + 2)}f}"


def _heading(claim: EpsilonClaim) -> str:
    lines = [one_line(claim.name)] if claim.name else []
    if claim.source:
        lines.append(f"source: {one_line(claim.source)}")
    for part, each in enumerate(claim.disjoint, 1):
        for number, phase in enumerate(each.phases, 1):
            lead = f"part {part}, disjoint: " if claim.parts else ""
            lead += f"phase {number}: " if len(each.phases) > 1 else ""
            lines.append(_wrapped(lead, phase.describe()))
    many = [f"{claim.runs} such runs are released"] if claim.runs > 1 else []
    if others := sum(count for _, count in claim.trials):
        many.append(f"selected among {others + 1} trainings on the same records, all counted")
    return "\n".join([*lines, *(["; ".join(many)] if many else [])])


def _table(report: EpsilonReport, brief: bool) -> str:
    groups = _alike(report)
    left = max(len("relation"), *(len(", ".join(relations)) for relations, _ in groups))
    tightest = report.tightest
    header = f"{'relation':<{left}}  {'accountant':<14}  {'epsilon':>9}"
    lines = [
        header if brief else f"{header}   composed event, at delta {rounded_up(report.claim.delta)}"
    ]
    for relations, found in groups:
        label = ", ".join(relations)
        for index, each in enumerate(found):
            mark = "*" if tightest and each.epsilon == tightest.epsilon else " "
            row = f"{label:<{left}}  {NAMES[each.accountant]:<14}  {upward(each.epsilon):>9}{mark}"
            if not (brief or index):
                # On lines of its own where it is long.
                fits = len(row) + 2 + len(each.event) <= WIDTH
                row += f"  {each.event}" if fits else f"\n{_wrapped('      ', each.event)}"
            lines.append(row)
            label = ""
        least = report.least.get(relations[0])
        if least is not None:
            lines.append(f"{'':<{left}}  {'at least':<14}  {downward(least):>9}")
    return "\n".join(line.rstrip() for line in [*lines, "* the tightest"])


def _alike(report: EpsilonReport) -> list[tuple[list[str], list[Reading]]]:
    """Readings by relation; relations with the same numbers share a row."""
    groups: dict[tuple[tuple[str, float], ...], tuple[list[str], list[Reading]]] = {}
    for relation in report.claim.relations:
        found = [each for each in report.readings if each.relation == relation]
        if found:
            numbers = tuple((each.accountant, each.epsilon) for each in found)
            groups.setdefault(numbers, ([], found))[0].append(relation)
    return list(groups.values())


def _noises(report: EpsilonReport) -> str:
    claim = report.claim
    assert claim.target is not None
    head = f"for epsilon {rounded_up(claim.target)} at delta {rounded_up(claim.delta)}"
    if not report.noises:
        return f"{head}\nno accounting covers these words"
    lines = [head, f"{'relation':<11}  {'noise multiplier':>16}  accountant"]
    for each in report.noises:
        lines.append(f"{each.relation:<11}  {each.noise:>16g}  {NAMES[each.accountant]}")
    return "\n".join(lines)


def _verdict(report: EpsilonReport) -> str:
    claim = report.claim
    assert claim.claimed is not None and report.verdict is not None
    said = f"claimed {claim.claimed.text}: {SHOUTED.get(report.verdict, report.verdict.upper())}"
    if report.verdict == GUARANTEED:
        relations = list(dict.fromkeys(each.relation for each in report.supported_by))
        best = min(report.supported_by, key=lambda each: each.epsilon)
        reason = f"under {_and(relations)}; {NAMES[best.accountant]} gives {upward(best.epsilon)}"
        if best.epsilon > claim.claimed.value:
            reason += ", which rounds to it"
        if others := [each for each in claim.relations if each not in relations]:
            reason += f"; not under {_and(others)}"
        return _wrapped(f"{said} ", reason)
    reason = "nothing is proved for these words"
    if report.verdict == REFUTED:
        least = min(limit for limit in report.least.values() if limit is not None)
        reason = (
            f"whoever sees every noisy sum reaches epsilon {downward(least)} at this delta, for "
            "some records"
        )
    elif tightest := report.tightest:
        by = f"{tightest.relation}, {NAMES[tightest.accountant]}"
        reason = f"the tightest valid number is {upward(tightest.epsilon)} ({by})"
    return _wrapped(f"{said}: ", reason)


def _explanation(report: EpsilonReport) -> str:
    claim, found = report.claim, report.searched
    assert claim.claimed is not None and found is not None
    printed = claim.claimed.text
    if not found.hits and not found.by_chance:
        return f"none of the slips known here gives {printed} ({found.tried} numbers tried)"
    if not found.hits:
        needless = "no slip is needed to give" if report.verdict == GUARANTEED else "no cause of"
        chance = f"chance gives as well (about {found.by_chance:.1g} such hits)"
        return _wrapped(
            f"{needless} {printed}: ", f"what gives it among {found.tried} numbers tried, {chance}"
        )
    heading = f"odds   what gives {printed}, and how many such hits chance would give"
    return "\n".join([heading, *(_hit(hit, claim) for hit in found.hits)])


def _hit(hit: Hit, claim: EpsilonClaim) -> str:
    assert claim.claimed is not None
    words = [*hit.changes, hit.convention]
    if claim.relation is None and "add_remove" not in hit.relations:
        words.append(f"under {_and(hit.relations)}")
    if not hit.changes:
        words.insert(0, "the settings as stated")
    lead = f"{hit.odds:<6.1g} {nearest(hit.epsilon, claim.claimed.unit)}  "
    return _wrapped(lead, "; ".join(words))


def _assumed(report: EpsilonReport) -> str:
    claim = report.claim
    by_relation = {relation: assumptions(claim, relation) for relation in claim.relations}
    used = {each.relation for each in report.readings} | {each.relation for each in report.noises}
    lines = ["this holds if"]
    shared = next(iter(by_relation.values()))[1:]
    for relation, sentences in by_relation.items():
        if relation in used:
            lines.append(_wrapped(f"  {relation}: ", sentences[0]))
    lines += [_wrapped("  - ", sentence) for sentence in shared]
    return "\n".join(lines)


def _wrapped(lead: str, text: str) -> str:
    indent = " " * min(len(lead), 12)
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=lead,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
