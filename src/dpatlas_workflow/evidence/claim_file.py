"""What a paper's claims.yaml may hold, beside the arguments of tests, and the claims in it."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from dpatlas.base.fields import Model, Once, optional, setting
from dpatlas.base.guard import real
from dpatlas.base.schema import validated
from dpatlas.base.yaml_files import read_checked
from dpatlas.errors import InputError
from dpatlas_workflow.evidence.looks import LOOKS
from dpatlas_workflow.evidence.tests import TESTS, ColumnTest, in_words
from dpatlas_workflow.evidence.verdicts import OURS, PAPER, VERDICTS, origin_of
from dpatlas_workflow.registry import all_papers

FILE, STATISTICAL = "claims.yaml", "statistical"
# Chance of any wrong statistical verdict on the claims of one paper in one tier.
FAMILY_ERROR = 0.05
# Fields that parts have from their claim where they do not say otherwise; those that are lists.
INHERITED = (
    *("place", "statement", "kind", "evidence"),
    *("asserts", "deviations", "pilots", "margin", "margin_from", "printed"),
)
LISTS = ("evidence", "deviations")
Tests = Mapping[str, type[ColumnTest]]
Name = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")]
Text = Annotated[str, Field(min_length=1)]
File = Annotated[
    str,
    Field(pattern=r"^(figures/[a-z0-9_]+\.(pdf|png|csv)|tables/[a-z0-9_]+\.(csv|md|tex))$"),
]
Place = Annotated[Text, setting("Where the paper says so; `ours` for a claim of our own.")]
Kind = Annotated[
    Literal["exact", "statistical", "qualitative", "identity"],
    setting(
        "Exact and qualitative verdicts follow from the numbers alone, statistical ones from "
        "intervals over runs. An identity holds by construction, so that it can only be "
        "contradicted."
    ),
]
Files = Annotated[
    Once[File],
    setting(
        "Figures and tables on which the verdict can be seen, relative to the tier's results "
        "folder.",
        min_length=1,
    ),
]
Expected = Annotated[
    Text,
    setting("What counts as reproduced; {field} stands for the value of an argument of the test."),
]
Test = Annotated[
    Name, setting("A test of the paper's claims module; the fields below are its arguments.")
]


class Restated(Model):
    """What a claim or part said before its runs were seen, where it says something else now."""

    statement: Text = setting("The old statement.")
    verdict: str = setting("The verdict on the old statement.", pattern=f"^({'|'.join(VERDICTS)})$")
    reason: Text = setting("Why it was changed, without a full stop.")
    runs: Literal["unseen", "seen"] = setting(
        "`unseen`: the verdict comes from runs on a base seed that nobody had seen; `seen`: it was "
        "read afterwards."
    )


class ClaimKeys(Model):
    """What claims and parts may say; keys that are not declared are arguments of the test."""

    model_config = ConfigDict(extra="allow")

    id: str
    statement: Text = setting("The claim in our words.")
    asserts: Text = setting(
        "What the paper states, in our words, and for which settings; of a claim of our own, which "
        "question it answers.",
        default=None,
    )
    deviations: list[Text] = setting(
        "How our protocol differs from the paper's for this claim.", default=None
    )
    pilots: Text = setting(
        "What had been run and seen when test, settings and margin of the claim were fixed.",
        default=None,
    )
    margin: float = setting(
        "Smallest effect that matters, in the unit of the compared quantity: half the smallest "
        "printed difference that the paper calls better, else 1 point of accuracy or 5 %. An "
        "effect that is surely smaller is not reproduced. Comparisons with two limits, and those "
        "that can only refute, have none.",
        gt=0,
        default=None,
    )
    margin_from: Text = setting(
        "Where the margin comes from; never from our own spread.", default=None
    )
    printed: dict[Text, float] = setting(
        "Contrasts that the paper prints, by what they are of, in the unit of the compared "
        "quantity; the page shows them beside ours, and they decide nothing.",
        default=None,
    )
    elsewhere: dict[Text, dict[Text, Any]] = setting(
        "By tier, arguments of the test that take another value there, or `expected`: scenarios "
        "and levels that this tier has in the place of the others.",
        default=None,
    )
    restated: Restated = setting(
        "What it said before, where it was changed after its runs had been seen.", default=None
    )

    @model_validator(mode="after")
    def _margin_has_a_reason(self) -> "ClaimKeys":
        given = [name for name in ("margin", "margin_from") if getattr(self, name) is not None]
        if len(given) == 1:
            raise InputError("", f"{self.id} with {given[0]} alone", "margin and margin_from")
        return self


class WrittenPart(ClaimKeys):
    """One question of a claim; what it does not say of itself, the claim says."""

    id: str = setting("The claim's id and a letter.", pattern="^[a-z]+-[1-9][0-9]*[a-z]$")
    test: Test
    expected: Expected
    place: Place = optional()
    kind: Kind = optional()
    evidence: Files = optional()
    other_reading: bool = setting(
        "Whether the part tests another reading of the paper's text, which is reported beside and "
        "does not count for the claim.",
        default=False,
    )


class WrittenClaim(ClaimKeys):
    """A claim, with a test or with parts that have a test each."""

    id: str = setting("The paper's short name and a number.", pattern="^[a-z]+-[1-9][0-9]*$")
    place: Place
    kind: Kind
    evidence: Files
    test: Test = optional()
    expected: Expected = optional()
    parts: list[WrittenPart] = setting(
        "Questions of which all have to be answered with yes.", min_length=2, default=None
    )

    @model_validator(mode="after")
    def _is_a_question_or_has_some(self) -> "WrittenClaim":
        given = {"test", "expected", "parts"} & self.model_fields_set
        if given not in ({"test", "expected"}, {"parts"}):
            found = " and ".join(sorted(given)) or "none of them"
            raise InputError("", f"{self.id} with {found}", "test and expected, or parts")
        if "parts" in given and self.model_extra:
            found = f"{self.id} with {', '.join(self.model_extra)}"
            raise InputError("", found, "arguments of tests in the parts that have one")
        parts = self.parts or []
        for name in ("asserts", "deviations"):
            self._require(name, parts, f"{name} of the claim, or of every part")
        statistical = [part for part in parts if (part.kind or self.kind) == STATISTICAL]
        if statistical or (not parts and self.kind == STATISTICAL):
            self._require("pilots", statistical, "what was known when its tests were fixed")
        if self.kind == "identity" and any(part.kind not in (None, "identity") for part in parts):
            found = f"{self.id}, an identity, with a part of another kind"
            raise InputError("", found, "parts that are identities, or another kind")
        return self

    def _require(self, name: str, parts: Sequence[WrittenPart], allowed: str) -> None:
        """Raise InputError unless the claim says this, or each of these parts, of which it has."""
        said = [getattr(part, name) is not None for part in parts]
        if getattr(self, name) is None and not (said and all(said)):
            raise InputError("", f"{self.id} without {name}", allowed)


class MainClaim(Model):
    """A claim that the first screen of the page tells in one clause."""

    claim: str = setting("Id of the claim, or of a part.", pattern="^[a-z]+-[1-9][0-9]*[a-z]?$")
    says: Text = setting("The claim as a short sentence in plain words, without its full stop.")


class Finding(Model):
    """A number with which the index of the pages opens: its words are templates of verdicts.

    In a template `{name}` is the number that the claim rests on, under a name of `values`;
    `{name.exp}` its exponential, `{name.least}` and `{name.most}` the extremes of its comparisons.
    """

    values: dict[str, str] = setting("Ids of claims or parts by a name of one's own.", min_length=1)
    tier: Text = setting("The tier whose numbers are meant; the page's own if missing.", default="")
    number: Text = setting("The number in large print.")
    says: Text = setting("What it is of: the sentence that follows it, without its full stop.")
    bars: dict[str, str] = setting("Bars by their labels; each a template of one number.")


class WrittenClaims(Model):
    """A paper's claims.yaml."""

    headline: Text = setting("What the paper is known for, as a sentence without its full stop.")
    authors: Text = setting("Authors and year, as a reader would cite them.")
    address: Text = setting("Where the paper can be read.", pattern="^https://", default="")
    findings: list[Finding] = setting("What the index opens with.", default=())
    main: list[MainClaim] = setting(
        "The claims that a reader should know first.", min_length=1, max_length=4
    )
    claims: list[WrittenClaim] = setting("The claims.", min_length=1)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a claim and its parts have alike."""

    id: str
    paper: str
    place: str
    statement: str
    kind: str
    evidence: tuple[str, ...]
    asserts: str = ""
    deviations: tuple[str, ...] | None = None
    pilots: str = ""
    margin_from: str = ""
    printed: Mapping[str, float] = field(default_factory=dict)
    restated: Mapping[str, str] = field(default_factory=dict)
    other_reading: bool = False

    @property
    def origin(self) -> str:
        """Whose question it is, one of `ORIGINS`."""
        return origin_of(self.place, other_reading=self.other_reading)


@dataclass(frozen=True, kw_only=True)
class ClaimEntry(Statement):
    """One question of a claims.yaml: a claim without parts, or a part with what it inherits."""

    claim: str
    expected: str
    test: str
    arguments: Mapping[str, Any]
    margin: float = 0.0
    elsewhere: Mapping[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Claim(Statement):
    """A claim and its entries: one for the whole, or one per part."""

    entries: tuple[ClaimEntry, ...]

    @property
    def has_parts(self) -> bool:
        """Whether a row for the conjunction follows the entries' rows."""
        return self.entries[0].id != self.id

    def counts(self, entry: ClaimEntry) -> bool:
        """Whether this part counts: no other reading does, nor ours for a claim of the paper."""
        return not entry.other_reading and (self.origin == OURS or entry.origin == PAPER)


@dataclass(frozen=True)
class Headline:
    """A paper in one sentence; `main`: the claims to know first, each in a clause, by id."""

    text: str
    authors: str
    main: Mapping[str, str]
    address: str = ""
    findings: Sequence[Finding] = ()


@dataclass(frozen=True)
class Claims:
    """The claims of all papers, checked; headlines by paper."""

    claims: tuple[Claim, ...]
    headlines: Mapping[str, Headline] = field(default_factory=dict)

    @property
    def entries(self) -> list[ClaimEntry]:
        """Those of all claims."""
        return [entry for claim in self.claims for entry in claim.entries]

    def planned(self, paper: str) -> int:
        """How many statistical entries of a paper share its error, run in this tier or not."""
        return sum(entry.paper == paper and entry.kind == STATISTICAL for entry in self.entries)

    def error(self, paper: str) -> float:
        """Chance to miss of one entry's intervals at one look."""
        return FAMILY_ERROR / self.planned(paper) / len(LOOKS)

    def changed(self, change: Callable[[ClaimEntry], ClaimEntry]) -> "Claims":
        """The claims with every entry changed."""
        claims = (
            replace(claim, entries=tuple(map(change, claim.entries))) for claim in self.claims
        )
        return replace(self, claims=tuple(claims))


def read_claims(files: Mapping[str, Path] | None = None, tests: Tests = TESTS) -> Claims:
    """Read and check the claims.yaml of every paper, or of those with a path in `files`.

    Raises InputError for what `WrittenClaims` refuses, an id given twice, one that is not its
    claim's or, in `main`, no claim's, a test that does not exist, and arguments that a test does
    not take or lacks.
    """
    if files is None:
        files = {key: paper.folder / FILE for key, paper in all_papers().items()}
    claims: list[Claim] = []
    headlines, ids = {}, Counter[str]()
    for paper, path in files.items():
        written = read_checked(path, WrittenClaims)
        of_paper = [_claim(paper, of.model_dump(exclude_none=True), tests) for of in written.claims]
        claims += of_paper
        entries = (entry for claim in of_paper for entry in claim.entries)
        ids.update([claim.id for claim in of_paper] + [e.id for e in entries if e.id != e.claim])
        ((repeated, times),) = ids.most_common(1)
        if times > 1:
            raise InputError(str(path), f"id {repeated} twice", "each id once")
        main = {each.claim: each.says for each in written.main}
        if unknown := set(main) - set(ids):
            raise InputError(f"main of {path}", min(unknown), "ids of its claims and their parts")
        headlines[paper] = Headline(
            written.headline, written.authors, main, written.address, written.findings
        )
    return Claims(tuple(claims), headlines=headlines)


def at_tier(claims: Claims, tier: str) -> Claims:
    """The claims with the arguments of their tests, and what is expected, at a tier."""
    return claims.changed(lambda entry: replace(entry, **entry.elsewhere.get(tier, {})))


def with_margins(claims: Claims, factor: float) -> Claims:
    """The claims with all margins multiplied; InputError for a factor that is not above 0."""
    real(gt=0).check("--margin-factor", factor)
    return claims.changed(lambda entry: replace(entry, margin=factor * entry.margin))


def check_evidence(claims: Claims, products: Sequence[str], papers: Collection[str]) -> None:
    """Raise InputError if evidence on one of `papers` names a file that is not among `products`."""
    for claim in claims.claims:
        for path in (*claim.evidence, *(p for e in claim.entries for p in e.evidence)):
            if path not in products and claim.paper in papers:
                raise InputError(f"evidence of {claim.id}", path, "a file that a rule makes")


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


def _claim(paper: str, written: dict[str, Any], tests: Tests) -> Claim:
    claim, written = written["id"], {"paper": paper, **written}
    inherited = {name: written[name] for name in ("paper", *INHERITED) if name in written}
    parts = written.get("parts", [written])
    entries = tuple(_entry(claim, inherited | part, tests) for part in parts)
    whole = Claim(entries=entries, **_fields_of(Claim, written))
    if not any(map(whole.counts, entries)):
        found = f"{claim} with other readings alone, or ours"
        raise InputError(f"parts of {claim}", found, "a part that counts")
    return whole


def _entry(claim: str, given: dict[str, Any], tests: Tests) -> ClaimEntry:
    """The entry with the arguments of its test, as the test's signature allows them."""
    own = _fields_of(ClaimEntry, given)
    given = {name: value for name, value in given.items() if name not in own}
    entry = ClaimEntry(claim=claim, **own, arguments=given)
    if entry.claim not in (entry.id, entry.id[:-1]):
        raise InputError(f"part of {claim}", entry.id, f"{claim} and a letter")
    if entry.test not in tests:
        raise InputError(f"test of {entry.id}", entry.test, "one of " + ", ".join(tests))
    model = tests[entry.test]

    def checked(changes: Mapping[str, Any], place: str) -> dict[str, Any]:
        """`expected` and the arguments of the test with these changes, which must fit together."""
        own = {**given, "expected": entry.expected, **changes}
        expected = own.pop("expected")
        arguments = validated(model, own, place=f"{entry.id}{place}: ").plain()
        fields = {"expected": expected, "arguments": arguments}
        expected_text(replace(entry, **fields))
        return fields

    elsewhere = {
        tier: checked(changes, f" elsewhere.{tier}") for tier, changes in entry.elsewhere.items()
    }
    return replace(entry, elsewhere=elsewhere, **checked({}, ""))


def _fields_of(kind: type[Statement], given: Mapping[str, Any]) -> dict[str, Any]:
    own = {each.name for each in dataclasses.fields(kind)}
    return {name: tuple(v) if name in LISTS else v for name, v in given.items() if name in own}
