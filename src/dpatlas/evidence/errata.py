"""The errata as data and as a document:
`python -m dpatlas.evidence.errata --output docs/errata.md`.

What they say stands in workflow/errata.yaml.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dpatlas.config.load import read_checked
from dpatlas.config.model import Model, Once, setting
from dpatlas.core.files import write_atomic
from dpatlas.core.guard import one_of
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas.registry import all_papers

ERRATA = Path("workflow/errata.yaml")
Status = Literal["proved", "counter-example", "proof gap", "misprint", "improvement", "ambiguity"]
MEANINGS: dict[Status, str] = {
    "proved": "the printed statement contradicts an exact computation",
    "counter-example": "it is false in general, by an explicit case",
    "proof gap": "the argument does not carry it; it may hold all the same",
    "misprint": "a slip that the paper's own steps or numbers correct",
    "improvement": "it holds as printed, and more can be said",
    "ambiguity": "the text can be read in two ways, which differ",
}


class Erratum(Model):
    """One place of a paper where our check came to another result."""

    id: str = setting("Name of the entry, on the page and in links.", pattern="^[a-z0-9-]+$")
    paper: str = setting("Key of the paper.")
    place: str = setting("Where it stands in the paper.", min_length=1)
    status: Status = setting("How sure it is, and of what kind.")
    printed: str = setting("What the paper says, in our words.", min_length=1)
    corrected: str = setting("What we found to hold.", min_length=1)
    consequence: str = setting("What follows for the paper's results.", min_length=1)
    shown_by: Once[Annotated[str, Field(pattern=r"^tests/[a-z0-9_/]+\.py::test_[a-z0-9_]+$")]] = (
        setting("Tests that show it, as pytest names them.", min_length=1)
    )
    products: Once[Annotated[str, Field(pattern="^[a-z0-9_]+$")]] = setting(
        "Figures and tables that show both sides, by name.", min_length=1, default=()
    )

    @property
    def said(self) -> str:
        """The status beside a place, where `proved` alone would praise what it refutes."""
        return "proved wrong" if self.status == "proved" else self.status

    @model_validator(mode="after")
    def _is_of_a_paper(self) -> "Erratum":
        one_of(*all_papers()).check("paper", self.paper)
        return self


class Errata(Model):
    """workflow/errata.yaml."""

    errata: list[Erratum] = setting("The entries.", min_length=1)


def read_errata(path: Path = ERRATA) -> list[Erratum]:
    """Read and check the errata; InputError for a wrong field or an id given twice."""
    found = read_checked(path, Errata).errata
    (repeated, times), *_ = Counter(erratum.id for erratum in found).most_common()
    if times > 1:
        raise InputError(str(path), f"id {repeated} twice", "each id once")
    return found


def document(errata: Sequence[Erratum]) -> str:
    """The errata in Markdown, by paper; links are relative to `docs`."""
    lines = [
        "# Errata",
        "",
        "Where our own check of the papers came to another result. Each entry says what follows "
        "for the paper's results, names the tests that show it (`pytest TEST` runs one in seconds) "
        "and the figures and tables that show both sides. Both conventions are in `python -m "
        "dpatlas bound` where a formula is concerned. What is not listed was found to hold where "
        "the tests look at it; not every statement of the papers was checked. We read them in "
        "copies of their text in which single symbols can be lost: a misprint may be one of the "
        "copy. Made of `workflow/errata.yaml` by `python -m dpatlas.evidence.errata`.",
        "",
        *_counts(errata),
    ]
    for paper in dict.fromkeys(erratum.paper for erratum in errata):
        lines += ["", f"## {paper}"]
        for erratum in errata:
            if erratum.paper == paper:
                lines += _entry(erratum)
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the document from the command line."""
    parser = ArgumentParser(prog="python -m dpatlas.evidence.errata", description=__doc__)
    parser.add_argument("--errata", type=Path, default=ERRATA, help="errata.yaml")
    parser.add_argument("--output", required=True, type=Path, help="Markdown to write")
    options = parser.parse_args(arguments)
    write_atomic(options.output, document(read_errata(options.errata)))
    return 0


def _counts(errata: Sequence[Erratum]) -> list[str]:
    """How many entries have which status, by paper."""
    papers = list(dict.fromkeys(erratum.paper for erratum in errata))
    counts = Counter((erratum.status, erratum.paper) for erratum in errata)
    heads = ["status", "meaning", *papers, "all"]
    lines = [f"| {' | '.join(heads)} |", "|---|---" + "|---:" * (len(papers) + 1) + "|"]
    for status, words in MEANINGS.items():
        found = [counts[status, paper] for paper in papers]
        lines.append(f"| {status} | {words} | {' | '.join(map(str, [*found, sum(found)]))} |")
    totals = [sum(counts[status, paper] for status in MEANINGS) for paper in papers]
    lines.append(f"| all | | {' | '.join(map(str, [*totals, sum(totals)]))} |")
    return lines


def _entry(erratum: Erratum) -> list[str]:
    tests = [
        f"[{test.partition('::')[2]}](../{test.partition('::')[0]})" for test in erratum.shown_by
    ]
    rows = {
        "Printed": erratum.printed,
        "Corrected": erratum.corrected,
        "Consequence": erratum.consequence,
        "Shown by": ", ".join(tests),
    }
    if erratum.products:
        rows["Seen in"] = ", ".join(f"`{name}`" for name in erratum.products)
    title = f"### {erratum.place}: {erratum.said}"
    return ["", title, "", *(f"- **{name}.** {text}" for name, text in rows.items())]


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
