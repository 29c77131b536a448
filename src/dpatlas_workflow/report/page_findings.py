"""The findings with which the index opens: numbers of verdicts in the words of claims.yaml."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpatlas.errors import InputError
from dpatlas_workflow.evidence.claim_file import Finding, Headline
from dpatlas_workflow.evidence.verdicts import NOT_RUN

Rows = Sequence[Mapping[str, str]]


class Number(float):
    """A number that is written with two significant digits."""

    def __format__(self, spec: str) -> str:
        if spec or not self:
            return super().__format__(spec)
        digits = 1 - math.floor(math.log10(abs(self)))
        return f"{round(self, digits):,.{max(digits, 0)}f}"


@dataclass(frozen=True)
class Value:
    """What claims.csv observed for a claim, and the extremes over its comparisons."""

    observed: float
    least: Number
    most: Number

    def __format__(self, spec: str) -> str:
        return format(Number(self.observed), spec)

    @property
    def exp(self) -> Number:
        """The ratio whose logarithm was observed."""
        return Number(math.exp(self.observed))


@dataclass(frozen=True)
class ShownFinding:
    """A finding as the index shows it.

    claims: where it is judged. bars: label, number and width in percent.
    """

    paper: str
    claims: list[str]
    tier: str
    number: str
    says: str
    bars: list[tuple[str, str, float]]


def findings(
    headlines: Mapping[str, Headline], tier: str, tables: Mapping[str, tuple[Rows, Rows]]
) -> list[ShownFinding]:
    """The findings of all papers whose numbers are there.

    tables: rows of claims.csv and comparisons.csv by tier, of which `tier` is the page's own.
    Raises InputError for a template that names what is not there.
    """
    found = (
        _shown(paper, finding, finding.tier or tier, tables)
        for paper, headline in headlines.items()
        for finding in headline.findings
    )
    return [finding for finding in found if finding]


def _shown(
    paper: str, finding: Finding, tier: str, tables: Mapping[str, tuple[Rows, Rows]]
) -> ShownFinding | None:
    claims, compared = tables.get(tier, ((), ()))
    rows = {row["claim"]: row for row in claims if row["verdict"] != NOT_RUN and row["observed"]}
    if not rows.keys() >= set(finding.values.values()):
        return None
    try:
        values = {name: _value(rows[id], compared) for name, id in finding.values.items()}
        number = finding.number.format(**values)
        bars = {label: text.format(**values) for label, text in finding.bars.items()}
        lengths = [float(text.replace(",", "")) for text in bars.values()]
    except (AttributeError, KeyError, ValueError) as error:
        raise InputError(f"findings of {paper}", error, "numbers under names of `values`") from None
    longest = max(lengths) or 1.0
    shares = [round(100 * length / longest, 1) for length in lengths]
    drawn = [(*bar, share) for bar, share in zip(bars.items(), shares, strict=True)]
    return ShownFinding(paper, [*finding.values.values()], tier, number, finding.says, drawn)


def _value(row: Mapping[str, str], compared: Rows) -> Value:
    every: Iterable[str] = (each["observed"] for each in compared if each["claim"] == row["claim"])
    numbers = [float(text) for text in (*every, row["observed"])]
    return Value(float(row["observed"]), Number(min(numbers)), Number(max(numbers)))
