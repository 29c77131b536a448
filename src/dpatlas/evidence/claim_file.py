"""What a paper's claims.yaml may hold: claims and their parts; tests say what else they take."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from dpatlas.config.model import Model, Once, optional, setting
from dpatlas.errors import InputError

Name = Annotated[str, Field(pattern="^[a-z_]+$")]
Text = Annotated[str, Field(min_length=1)]
Evidence = Annotated[
    str,
    Field(pattern=r"^(figures/[a-z0-9_]+\.(pdf|png|csv)|tables/[a-z0-9_]+\.(csv|md|tex))$"),
]


class Entry(Model):
    """What is asked; keys that are not declared are arguments of the test."""

    model_config = ConfigDict(extra="allow")


Place = Annotated[Text, setting("Where the paper says so; `ours` for a claim of our own.")]
Statement = Annotated[Text, setting("The claim in our words.")]
Kind = Annotated[
    Literal["exact", "statistical", "qualitative"],
    setting(
        "Exact and qualitative verdicts follow from the numbers alone, statistical ones from "
        "intervals over runs."
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
Test = Annotated[
    Name, setting("A test of the paper's claims module; the fields below are its arguments.")
]


class WrittenPart(Entry):
    """One question of a claim; what it does not say of itself, the claim says."""

    id: str = setting("The claim's id and a letter.", pattern="^[a-z]+-[1-9][0-9]*[a-z]$")
    statement: Statement
    test: Test
    expected: Expected
    place: Place = optional()
    kind: Kind = optional()
    evidence: Files = optional()


class WrittenClaim(Entry):
    """A claim, with a test or with parts that have a test each."""

    id: str = setting("The paper's short name and a number.", pattern="^[a-z]+-[1-9][0-9]*$")
    place: Place
    statement: Statement
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
        return self


class WrittenClaims(Model):
    """A paper's claims.yaml."""

    claims: list[WrittenClaim] = setting("The claims.", min_length=1)
