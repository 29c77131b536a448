"""What a paper's claims.yaml may hold: claims and their parts; tests say what else they take."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from dpatlas.base.fields import Model, Once, optional, setting
from dpatlas.errors import InputError
from dpatlas_workflow.evidence.verdicts import OURS, origin_of

STATISTICAL = "statistical"
Name = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")]
Text = Annotated[str, Field(min_length=1)]
Evidence = Annotated[
    str,
    Field(pattern=r"^(figures/[a-z0-9_]+\.(pdf|png|csv)|tables/[a-z0-9_]+\.(csv|md|tex))$"),
]


Place = Annotated[Text, setting("Where the paper says so; `ours` for a claim of our own.")]
Statement = Annotated[Text, setting("The claim in our words.")]
Kind = Annotated[
    Literal["exact", "statistical", "qualitative", "identity"],
    setting(
        "Exact and qualitative verdicts follow from the numbers alone, statistical ones from "
        "intervals over runs. An identity holds by construction, so that it can only be "
        "contradicted."
    ),
]
Files = Annotated[
    Once[Evidence],
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
Asserts = Annotated[
    Text,
    setting(
        "What the paper states, in our words, and for which settings; of a claim of our own, which "
        "question it answers."
    ),
]
Deviations = Annotated[
    list[Text], setting("How our protocol differs from the paper's for this claim.")
]
Pilots = Annotated[
    Text,
    setting("What had been run and seen when test, settings and margin of the claim were fixed."),
]
Margin = Annotated[
    float,
    setting(
        "Smallest effect that matters, in the unit of the compared quantity: half the smallest "
        "printed difference that the paper calls better, else 1 point of accuracy or 5 %. An "
        "effect that is surely smaller is not reproduced. Comparisons with two limits, and those "
        "that can only refute, have none.",
        gt=0,
    ),
]
MarginFrom = Annotated[Text, setting("Where the margin comes from; never from our own spread.")]
Printed = Annotated[
    dict[Text, float],
    setting(
        "Contrasts that the paper prints, by what they are of, in the unit of the compared "
        "quantity; the page shows them beside ours, and they decide nothing."
    ),
]
Elsewhere = Annotated[
    dict[Text, dict[Text, Any]],
    setting(
        "By tier, arguments of the test that take another value there: scenarios and levels that "
        "this tier has in the place of the others."
    ),
]
OldVerdict = Literal[
    "reproduced", "not reproduced", "not contradicted", "inconclusive", "not run at this tier"
]
Test = Annotated[
    Name, setting("A test of the paper's claims module; the fields below are its arguments.")
]


class Restated(Model):
    """What a claim or part said before its runs were seen, where it says something else now."""

    statement: Text = setting("The old statement.")
    verdict: OldVerdict = setting("The verdict on the old statement.")
    reason: Text = setting("Why it was changed, without a full stop.")
    runs: Literal["unseen", "seen"] = setting(
        "`unseen`: the verdict comes from runs on a base seed that nobody had seen; `seen`: it was "
        "read afterwards."
    )


class ClaimKeys(Model):
    """What claims and parts may say; keys that are not declared are arguments of the test."""

    model_config = ConfigDict(extra="allow")

    id: str
    statement: Statement
    asserts: Asserts = optional()
    deviations: Deviations = optional()
    pilots: Pilots = optional()
    margin: Margin = optional()
    margin_from: MarginFrom = optional()
    printed: Printed = optional()
    elsewhere: Elsewhere = optional()
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
        if parts and not any(self._counts(part) for part in parts):
            found = f"{self.id} with other readings alone, or ours"
            raise InputError("", found, "a part that counts")
        if self.kind == "identity" and any(part.kind not in (None, "identity") for part in parts):
            found = f"{self.id}, an identity, with a part of another kind"
            raise InputError("", found, "parts that are identities, or another kind")
        return self

    def _counts(self, part: WrittenPart) -> bool:
        """Whether a part is no other reading and, of a claim of the paper, not ours."""
        ours = [origin_of(place) == OURS for place in (part.place or self.place, self.place)]
        return not part.other_reading and ours[0] <= ours[1]

    def _require(self, name: str, parts: Sequence[WrittenPart], allowed: str) -> None:
        """Raise InputError unless the claim says this, or each of these parts, of which it has."""
        said = [getattr(part, name) is not None for part in parts]
        if getattr(self, name) is None and not (said and all(said)):
            raise InputError("", f"{self.id} without {name}", allowed)


class MainClaim(Model):
    """A claim that the first screen of the page tells in one clause."""

    claim: str = setting("Id of the claim, or of a part.", pattern="^[a-z]+-[1-9][0-9]*[a-z]?$")
    says: Text = setting("The claim as a short sentence in plain words, without its full stop.")


class WrittenClaims(Model):
    """A paper's claims.yaml."""

    headline: Text = setting("What the paper is known for, as a sentence without its full stop.")
    authors: Text = setting("Authors and year, as a reader would cite them.")
    main: list[MainClaim] = setting(
        "The claims that a reader should know first.", min_length=1, max_length=4
    )
    claims: list[WrittenClaim] = setting("The claims.", min_length=1)
