"""The errata as data and as a document:
`python -m dpatlas.evidence.errata --output docs/errata.md`.

What they say stands in workflow/errata.yaml.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpatlas.config.load import read_checked
from dpatlas.core.files import write_atomic
from dpatlas.errors import ArgumentParser, InputError, run_command

ERRATA = Path("workflow/errata.yaml")
SCHEMA = Path("workflow/schemas/errata.schema.yaml")
MEANINGS = {
    "proved": "the printed statement contradicts an exact computation",
    "counter-example": "it is false in general, by an explicit case",
    "proof gap": "the argument does not carry it; it may hold all the same",
    "misprint": "a slip that the paper's own steps or numbers correct",
    "improvement": "it holds as printed, and more can be said",
    "ambiguity": "the text can be read in two ways, which differ",
}


@dataclass(frozen=True)
class Erratum:
    """One place of a paper where our check came to another result.

    status: a key of `MEANINGS`. shown_by: tests, as pytest names them. products: figures and tables
    that show both sides.
    """

    id: str
    paper: str
    place: str
    status: str
    printed: str
    corrected: str
    consequence: str
    shown_by: tuple[str, ...]
    products: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The status beside a place, where `proved` alone would praise what it refutes."""
        return "proved wrong" if self.status == "proved" else self.status


def read_errata(path: Path = ERRATA, schema: Path = SCHEMA) -> list[Erratum]:
    """Read and check the errata; InputError for what the schema refuses or an id given twice."""
    content = read_checked(path, schema)
    found = [
        Erratum(**fields | {key: tuple(v) for key, v in fields.items() if isinstance(v, list)})
        for fields in content["errata"]
    ]
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
    parser.add_argument("--schema", type=Path, default=SCHEMA)
    parser.add_argument("--output", required=True, type=Path, help="Markdown to write")
    options = parser.parse_args(arguments)
    write_atomic(options.output, document(read_errata(options.errata, options.schema)))
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
