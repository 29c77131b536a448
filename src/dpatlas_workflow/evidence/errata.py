"""The errata as data and as documents: `python -m dpatlas_workflow.evidence.errata`.

Each paper's folder has its own, `errata.yaml`, of which `errata.md` is made. `MEANINGS`
says what a status means; `shown_by` names tests that anyone can run; `products` are figures and
tables that show both sides.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from dpatlas.base.fields import Model, Once, setting
from dpatlas.base.files import write_atomic
from dpatlas.base.yaml_files import read_checked
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas_workflow.registry import all_papers

FILE, PAGE = "errata.yaml", "errata.md"
MADE_BY = "python -m dpatlas_workflow.evidence.errata"
# The project, from the folder of a paper.
ROOT = "../../../.."
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
    """One place of a paper where our check came to another result, as a file has it."""

    id: str = setting("Name of the entry, on the page and in links.", pattern="^[a-z0-9-]+$")
    place: str = setting("Where it stands in the paper.", min_length=1)
    status: Status = setting("How sure it is, and of what kind.")
    printed: str = setting("What the paper says, in our words.", min_length=1)
    corrected: str = setting("What we found to hold.", min_length=1)
    derivation: str = setting("Our derivation, in two lines.", default="")
    consequence: str = setting("What follows for the paper's results.", min_length=1)
    would_change: str = setting("What would change our mind.", default="")
    shown_by: Once[Annotated[str, Field(pattern=r"^tests/[a-z0-9_/]+\.py::test_[a-z0-9_]+$")]] = (
        setting("Tests that show it, as pytest names them.", min_length=1)
    )
    products: Once[Annotated[str, Field(pattern="^[a-z0-9_]+$")]] = setting(
        "Figures and tables that show both sides, by name.", min_length=1, default=()
    )
    claims: Once[Annotated[str, Field(pattern="^[a-z]+-[0-9]+$")]] = setting(
        "Claims that rest on it, or that it is tested with.", min_length=1, default=()
    )

    @property
    def said(self) -> str:
        """The status beside a place, where `proved` alone would praise what it refutes."""
        return "proved wrong" if self.status == "proved" else self.status


class Errata(Model):
    """A paper's errata.yaml."""

    errata: list[Erratum] = setting("The entries.", min_length=1)


def read_errata(files: Mapping[str, Path] | None = None) -> dict[str, list[Erratum]]:
    """The errata by paper: of every paper that has a file, or of those with a path in `files`.

    Raises InputError for a wrong field, or an id given twice.
    """
    if files is None:
        by_default = {key: paper.folder / FILE for key, paper in all_papers().items()}
        files = {key: path for key, path in by_default.items() if path.is_file()}
    errata = {key: read_checked(path, Errata).errata for key, path in files.items()}
    ids = Counter(erratum.id for entries in errata.values() for erratum in entries)
    for repeated, times in ids.most_common(1):
        if times > 1:
            raise InputError(FILE, f"id {repeated} twice", "each id once")
    return errata


def document(key: str, errata: Sequence[Erratum]) -> str:
    """The errata of a paper in Markdown; links are relative to the paper's folder."""
    lines = [
        f"# Errata of {key}",
        "",
        f"What they rest on and what a status means: [errata]({ROOT}/docs/errata.md). Made of "
        f"`{FILE}` by `{MADE_BY}`.",
    ]
    return "\n".join([*lines, *(line for erratum in errata for line in _entry(erratum)), ""])


def written() -> dict[Path, str]:
    """The text of every paper's document, by its path."""
    errata = read_errata()
    folders = {key: all_papers()[key].folder for key in errata}
    return {folders[key] / PAGE: document(key, entries) for key, entries in errata.items()}


def main(arguments: Sequence[str]) -> int:
    """Write the documents, beside the files that they are made of."""
    ArgumentParser(prog=MADE_BY, description=__doc__).parse_args(arguments)
    for path, text in written().items():
        write_atomic(path, text)
        print(path)
    return 0


def _entry(erratum: Erratum) -> list[str]:
    tests = [test.partition("::") for test in erratum.shown_by]
    rows = {
        "Printed": erratum.printed,
        "Corrected": erratum.corrected,
        "Derivation": erratum.derivation,
        "Consequence": erratum.consequence,
        "What would change our mind": erratum.would_change,
        "Shown by": ", ".join(f"[{name}]({ROOT}/{file})" for file, _, name in tests),
        "Seen in": ", ".join(f"`{name}`" for name in erratum.products),
        "Claims": ", ".join(erratum.claims),
    }
    title = f"## {erratum.place}: {erratum.said}"
    return ["", title, "", *(f"- **{name}.** {text}" for name, text in rows.items() if text)]


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
