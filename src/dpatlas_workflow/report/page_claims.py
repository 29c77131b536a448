"""What the page says of claims: the map of verdicts, and a card per claim with its comparisons."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpatlas.errors import InputError
from dpatlas_workflow.evidence import verdicts
from dpatlas_workflow.evidence.claim_file import Claims, Headline, Statement
from dpatlas_workflow.evidence.run_values import samples_of

# An outcome in the words of the first screen; by verdict, the sentence that opens a card.
IN_SHORT = {
    verdicts.REPRODUCED: "held",
    verdicts.MATHEMATICS: "refuted by computation",
    verdicts.OPPOSITE: "opposite seen",
    verdicts.SMALLER: "no effect beyond the margin",
    verdicts.NOT_REPRODUCED: "did not hold",
    verdicts.NOT_CONTRADICTED: "not contradicted",
    verdicts.INCONCLUSIVE: "open",
    verdicts.NOT_RUN: "not run",
}
ANSWERS = {
    verdicts.REPRODUCED: "It held.",
    verdicts.NOT_REPRODUCED: "It did not hold.",
    verdicts.NOT_CONTRADICTED: "It could only have been contradicted, and was not.",
    verdicts.INCONCLUSIVE: "It is open: neither answer was shown.",
    verdicts.NOT_RUN: "This tier has no run that could tell.",
}
# Units of a plot's width in which single runs are placed.
RUNS_WIDTH = 400
# Room beside the outermost value of a plot, in shares of its width.
ROOM = 0.04
WANTED_TICKS = 5
# Comparisons of an entry that its card has; comparisons.csv has more.
MOST_STRIPS = 6


Rows = Sequence[Mapping[str, str]]
# Of a tier: rows of claims.csv, and of comparisons.csv.
Tables = tuple[Rows, Rows]


# What a part does not say again where its claim says the same; of a row that nothing is said of.
SHARED: Mapping[str, Any] = {"asserts": "", "deviations": None, "pilots": ""}
NOTHING = Statement(id="", paper="", place="", statement="", kind="", evidence=())


@dataclass(frozen=True)
class Strip:
    """A line of a plot: a comparison, with positions in percent of the plot's width.

    zone: left and right end of the claimed side. small: those of its part inside the margin, which
    is too near to the limit to matter. line: ends of the interval, None without one. dot: None for
    a value that is not finite. shown, interval: in numbers. state: holds, fails (SMALLER where it
    does by the margin alone) or open; printed for a contrast of the paper. runs: an SVG path with a
    line for every single run, RUNS_WIDTH units wide and 1 high; of the comparison that decides, if
    it is about a mean of runs, whose `values` it draws.
    """

    label: str
    zone: tuple[float, float]
    small: tuple[float, float] | None
    line: tuple[float, float] | None
    dot: float | None
    shown: float
    interval: tuple[float, float] | None
    state: str
    decides: bool
    runs: str = ""
    values: Sequence[float] = ()


@dataclass(frozen=True)
class Plot:
    """The comparisons of an entry on one axis; ticks: position and number. more: left out."""

    strips: list[Strip]
    ticks: list[tuple[float, str]]
    more: int


@dataclass(frozen=True)
class Question:
    """A row of claims.csv with what is written of it and what it compares.

    others: the same of other tiers that judged the same claim.
    """

    row: Mapping[str, str]
    protocol: Statement
    plot: Plot | None
    others: Mapping[str, "Question"] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether it counts for its claim: another reading of the text does not."""
        return "does not count" not in self.row.get("note", "")


@dataclass(frozen=True)
class Card:
    """A claim: its own row, and its questions (itself if it has no parts).

    others: its outcomes in other tiers, by tier, where the claim was the same.
    """

    id: str
    row: Mapping[str, str]
    protocol: Statement
    questions: list[Question]
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def number(self) -> str:
        """What follows the paper's prefix."""
        return self.id.rpartition("-")[2]

    @property
    def ours(self) -> bool:
        """Whether the claim is our own and not the paper's."""
        return verdicts.origin_of(self.row["place"]) == verdicts.OURS

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """The outcome, and which parts failed so where not all did: a pair per kind of failure."""
        counting = [each.row for each in self.questions if each.counts]
        failed: dict[str, list[str]] = defaultdict(list)
        for row in counting:
            if row["verdict"] == verdicts.NOT_REPRODUCED:
                failed[verdicts.outcome(row)].append(row["claim"][-1])
        if not failed or [len(counting)] == [len(letters) for letters in failed.values()]:
            return [(verdicts.outcome(self.row), "")]
        return [
            (kind, f"part{'s' if letters[1:] else ''} {', '.join(letters)}")
            for kind, letters in failed.items()
        ]

    @property
    def rows(self) -> list[Mapping[str, str]]:
        """Its own row of claims.csv, then those of its parts."""
        return [self.row, *(question.row for question in self.questions if self.has_parts)]

    @property
    def has_parts(self) -> bool:
        """Whether the questions are parts of the claim."""
        return [question.row["claim"] for question in self.questions] != [self.id]

    @property
    def answer(self) -> str:
        """The verdict as a sentence or two."""
        sentences = [ANSWERS[self.row["verdict"]]]
        if because := self.row.get("because"):
            sentences.append(f"{because[0].upper()}{because[1:]}.")
        if self.has_parts:
            counting = [IN_SHORT[each.row["verdict"]] for each in self.questions if each.counts]
            counts = Counter(counting)
            said = ", ".join(f"{counts[word]} {word}" for word in IN_SHORT.values() if counts[word])
            sentences.append(f"Of {len(counting)} {'parts' if counting[1:] else 'part'}: {said}.")
        return " ".join(sentences)

    @property
    def evidence(self) -> list[str]:
        """Names of the figures and tables on which it can be seen."""
        files = [file for each in self.questions for file in each.row["evidence"].split(";")]
        return list(dict.fromkeys(re.sub(r".*/|\..*", "", file) for file in files if file))


@dataclass(frozen=True)
class Takeaway:
    """The main claims of a paper with one outcome, or our own with it, in clauses by id."""

    outcome: str
    ours: bool
    clauses: list[tuple[str, str]]


def told_alike(every: Sequence[Card]) -> list[str]:
    """Other tiers that judged at least half of these claims as this tier does."""
    counts = Counter(tier for card in every for tier in card.others)
    return [tier for tier, count in counts.items() if 2 * count >= len(every)]


def cards(
    rows: Sequence[Mapping[str, str]],
    compared: Sequence[Mapping[str, str]],
    written: Claims | None,
    beside: Mapping[str, Tables],
) -> list[Card]:
    """A card for each claim of claims.csv, in its order.

    compared: rows of comparisons.csv. beside: rows of both of other tiers, of which only claims
    that state and expect the same in all their parts are taken.
    """
    names = {row["claim"] for row in rows}
    groups: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for row in rows:
        whole = row["claim"][:-1]
        groups[whole if verdicts.is_part(row) and whole in names else row["claim"]].append(row)
    said = protocols(written) if written else {}
    elsewhere = {tier: _by_claim(*tables) for tier, tables in beside.items()}
    here = _by_claim(rows, compared)
    claim_cards = []
    for name, group in groups.items():
        own = next(row for row in group if row["claim"] == name)
        alike = {
            tier: there
            for tier, there in elsewhere.items()
            if all(
                verdicts.same_question(row, there.get(row["claim"], (None,))[0]) for row in group
            )
        }
        questions = []
        for row in [row for row in group if row is not own] or group:
            id, protocol = row["claim"], said.get(row["claim"], NOTHING)
            others = {
                tier: Question(there[id][0], NOTHING, _plot(there[id], {}))
                for tier, there in alike.items()
            }
            plot = _plot(here[id], protocol.printed)
            questions.append(Question(row, protocol, plot, others))
        outcomes = {tier: verdicts.outcome(there[name][0]) for tier, there in alike.items()}
        claim_cards.append(Card(name, own, said.get(name, NOTHING), questions, outcomes))
    return claim_cards


def takeaways(headline: Headline, rows: Sequence[Mapping[str, str]]) -> list[Takeaway]:
    """The main claims of a paper, then of our own, by the outcomes that these rows give them."""
    judged = {row["claim"]: row for row in rows}
    grouped: dict[tuple[bool, str], list[tuple[str, str]]] = defaultdict(list)
    for claim, clause in headline.main.items():
        if row := judged.get(claim):
            ours = verdicts.origin_of(row["place"]) == verdicts.OURS
            grouped[ours, verdicts.outcome(row)].append((claim, clause))
    order = [(ours, kind) for ours in (False, True) for kind in verdicts.OUTCOMES]
    return [
        Takeaway(kind, ours, grouped[ours, kind]) for ours, kind in order if (ours, kind) in grouped
    ]


def protocols(claims: Claims) -> dict[str, Statement]:
    """What claims.yaml says of every row, by its id; of a part, what its claim does not say."""
    said: dict[str, Statement] = {}
    for claim in claims.claims:
        said[claim.id] = claim
        for entry in claim.entries:
            own = [n for n in SHARED if getattr(entry, n) == getattr(claim, n) and claim.has_parts]
            said[entry.id] = replace(entry, **{name: SHARED[name] for name in own})
    return said


def _by_claim(rows: Rows, compared: Rows) -> dict[str, tuple[Mapping[str, str], Rows]]:
    of_claim: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for row in compared:
        of_claim[row["claim"]].append(row)
    return {row["claim"]: (row, of_claim[row["claim"]]) for row in rows}


def _plot(judged: tuple[Mapping[str, str], Rows], printed: Mapping[str, float]) -> Plot | None:
    """The plot of the first rows of comparisons.csv of a row of claims.csv; None without rows.

    printed: contrasts of the paper, shown below ours. Raises InputError for a cell that is no
    number.
    """
    row, rows = judged
    # What a withdrawn verdict had compared is not what the claim asks now.
    if not rows or row["verdict"] == verdicts.NOT_RUN:
        return None
    total = int(row.get("comparisons") or 0)
    rows = rows[:MOST_STRIPS]
    read = [_numbers(row) for row in rows]
    finite = [value for each in read for value in each.values() if math.isfinite(value)]
    finite += [*printed.values(), *(value for row in rows for value in _runs(row))]
    least, most = min(finite, default=0.0), max(finite, default=1.0)
    # The lowest and highest number need some room, also if they are the same.
    room = ROOM * (most - least) or abs(most) / 2 or 1.0
    least, most = least - room, most + room

    def at(value: float) -> float:
        return round(100 * (min(max(value, least), most) - least) / (most - least), 1)

    strips = [_strip(row, numbers, at) for row, numbers in zip(rows, read, strict=True)]
    more, zone = max(0, total - len(strips)), strips[0].zone
    strips += [
        Strip(f"in the paper: {what}", zone, None, None, at(value), value, None, "printed", False)
        for what, value in printed.items()
    ]
    ticks = [(at(value), f"{value:.6g}".replace("-", "−")) for value in nice_ticks(least, most)]
    return Plot(strips, ticks, more)


def nice_ticks(least: float, most: float) -> list[float]:
    """Round numbers inside [least, most], about WANTED_TICKS: steps of 1, 2 or 5 times 10^k."""
    rough = (most - least) / WANTED_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first, last = math.ceil(least / step), math.floor(most / step)
    return [step * count for count in range(first, last + 1)]


def _strip(
    row: Mapping[str, str], numbers: Mapping[str, float], at: Callable[[float], float]
) -> Strip:
    observed, low, high = numbers["observed"], numbers["low"], numbers["high"]
    exact = low == high or (math.isinf(low) and math.isinf(high))
    state = "holds" if row["holds"] == "1" else "fails" if row["fails"] == "1" else "open"
    above, below, margin = numbers["above"], numbers["below"], float(row["margin"] or 0)
    if state == "fails" and low <= below and above <= high and not exact:
        state = verdicts.SMALLER
    ends = (above, above + margin) if math.isfinite(above) else (below - margin, below)
    return Strip(
        label=row["comparison"],
        zone=(at(above), at(below)),
        small=(at(ends[0]), at(ends[1])) if margin else None,
        line=None if exact else (at(low), at(high)),
        dot=at(observed) if math.isfinite(observed) else None,
        shown=observed,
        interval=None if exact else (low, high),
        state=state,
        decides=row["decides"] == "1",
        runs=_run_lines([at(value) for value in _runs(row)]),
        values=_runs(row),
    )


def _run_lines(places: Sequence[float]) -> str:
    units = sorted({round(place * RUNS_WIDTH / 100) for place in places})
    steps = zip(units, [0, *units], strict=False)
    return "M0 1" + "".join(f"m{here - before}-1v1" for here, before in steps) if units else ""


def _runs(row: Mapping[str, str]) -> Sequence[float]:
    samples = samples_of(row) if row["decides"] == "1" else []
    return samples[0] if len(samples) == 1 else ()


def _numbers(row: Mapping[str, str]) -> dict[str, float]:
    endless = {"low": -math.inf, "high": math.inf, "above": -math.inf, "below": math.inf}
    try:
        return {
            name: float(row[name]) if row[name] else endless.get(name, math.nan)
            for name in ("observed", *endless)
        }
    except ValueError as error:
        raise InputError(f"comparisons.csv, {row['claim']}", error, "numbers") from None
