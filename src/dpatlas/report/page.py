"""The result page of a tier: `python -m dpatlas.report.page`, one file that needs no network."""

import base64
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from dpatlas import __version__
from dpatlas.core.canonical import canonical_json
from dpatlas.core.files import read_rows, remove_parts, write_atomic
from dpatlas.core.products import Product
from dpatlas.core.progress import duration
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas.evidence.claims import (
    INCONCLUSIVE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    VERDICTS,
    Claims,
    Headline,
    check_files,
)
from dpatlas.evidence.claims import read_claims as read_written_claims
from dpatlas.evidence.errata import Erratum, read_errata
from dpatlas.evidence.printed import CONFIDENCE
from dpatlas.registry import all_blocks
from dpatlas.report.lineage import COMPARISONS, read_claims
from dpatlas.report.page_claims import (
    IN_SHORT,
    Card,
    Takeaway,
    cards,
    parent_of,
    protocols,
    takeaways,
    told_alike,
)
from dpatlas.report.page_items import (
    LEDGER,
    Item,
    caption_html,
    data_sources,
    in_order_of_claims,
    ledgers,
    read_item,
)
from dpatlas.report.page_tables import number
from dpatlas.report.text import cost_text, data_text, in_words, seeds_text, source_text

TIERS = {
    "smoke": "tiny settings that run every rule once, for continuous integration; the numbers "
    "mean nothing",
    "embedded": "real data that ships inside Python packages, small networks, minutes on a laptop; "
    "shapes can be compared with the papers, heights cannot",
    "pilot": "the embedded tier with a base seed that was looked at before the claims were frozen; "
    "its verdicts decide nothing",
    "workstation": "real photographs at a size that a machine without a GPU manages in hours",
    "printed": "every printed row, panel and table once, at the printed sizes, on the papers' own "
    "data",
    "printed-caption": "kl_privacy's Fig. 1 with the step size of its caption",
    "printed-stages": "kl_privacy's Fig. 2 at stages of training in place of the printed steps",
    "paper": "the papers' own data, networks and settings",
}
# What the first sentence says after one claim, and after several.
FIRST_WORDS = {
    REPRODUCED: ("held", "held"),
    NOT_REPRODUCED: ("did not", "did not"),
    NOT_CONTRADICTED: ("was not contradicted", "were not contradicted"),
    INCONCLUSIVE: ("stays open", "stay open"),
    NOT_RUN: ("was not run", "were not run"),
}
NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
PARTIAL = (
    "; a part of the run is there: figures that wait for runs are left out, tables have the rows "
    "whose runs are there"
)
OWN_TIER = "settings of the user's own; see config.json in the results folder"
# Parts of a data set beside its private records.
USES = {"x_add": "to add as neighbours", "x_validation": "for validation", "x_test": "for testing"}
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Section:
    """What the page has of a paper, or of another block of the config."""

    key: str
    title: str
    headline: Headline | None
    cards: list[Card]
    takeaways: list[Takeaway]
    items: list[Item]
    errata: list[Erratum]


def build_page(
    results: Path,
    tier: str,
    products: Mapping[str, Product] | None = None,
    show: Collection[str] | None = None,
    *,
    errata: Mapping[str, Sequence[Erratum]] | None = None,
    about: str = "",
    written: Claims | None = None,
    beside: Mapping[str, Sequence[Mapping[str, str]]] | None = None,
    partial: bool = False,
) -> str:
    """The HTML of a tier's page, from what lies in its results folder.

    products: by name, for captions and what the papers show. show: names of the figures and tables
    to show; without it every one that is there, also what an earlier config left. errata: by paper.
    about: reStructuredText above the claims. written: the claims.yaml of all papers. beside: rows
    of claims.csv of other tiers, by tier. partial: whether a part of the run is shown.
    Reads claims.csv, comparisons.csv where it is there, figures/*.svg and csv, tables/*.csv and md,
    lineage/*.json and the records that these name.

    Raises InputError for a file that is missing or damaged, for a caption that is no
    reStructuredText, and for a verdict whose figure or table is not there.
    """
    rows = read_claims(results, "evidence")
    check_files(results, rows)
    products = products or {}
    items = [
        read_item(
            results,
            path,
            product=products.get(path.stem),
            claims=rows,
        )
        for pattern in ("figures/*.svg", "tables/*.csv")
        for path in sorted(results.glob(pattern))
        if show is None or path.stem in show
    ]
    items = in_order_of_claims(items, rows)
    records = {record["id"]: record for item in items for record in item.records}
    path = results / COMPARISONS
    compared = read_rows(path) if path.is_file() else []
    every = cards(rows, compared, written, beside or {})
    headlines = written.headlines if written else {}
    return _template().render(
        tier=tier,
        meaning=TIERS.get(tier, OWN_TIER) + (PARTIAL if partial else ""),
        version=__version__,
        verdicts=VERDICTS,
        in_short=IN_SHORT,
        first_words=FIRST_WORDS,
        not_run=NOT_RUN,
        said=protocols(written) if written else {},
        ours=sum(card.ours for card in every),
        corrected=sum(map(len, (errata or {}).values())),
        papers_in_words=_papers_in_words(len({card.row.get("paper", "") for card in every})),
        tiers=_counts(tier, every),
        claims=_claims_first(rows),
        about=caption_html(about, "claims"),
        sections=_sections(items, every, errata or {}, headlines),
        confidence=f"{CONFIDENCE:.0%}",
        sources=data_sources(records.values()),
        without_data=sum(record["data"] is None for record in records.values()),
        uses=USES.items(),
        ledgers=ledgers(records.values()),
        ledger_words=LEDGER,
        records=sorted(records.values(), key=lambda record: (record["key"], record["id"])),
    )


def main(arguments: Sequence[str]) -> int:
    """Write the page from the command line."""
    parser = ArgumentParser(prog="python -m dpatlas.report.page", description=__doc__)
    parser.add_argument("--tier", required=True)
    parser.add_argument("--results", required=True, type=Path, help="the tier's results folder")
    parser.add_argument("--about", type=Path, help="reStructuredText above the claims")
    parser.add_argument("--output", required=True, type=Path, help="index.html to write")
    parser.add_argument("--show", nargs="*", help="figures and tables to show; all if not given")
    parser.add_argument(
        "--beside", nargs="*", default=[], type=Path, help="folders of other published tiers"
    )
    parser.add_argument("--partial", action="store_true", help="a part of the run is shown")
    options = parser.parse_args(arguments)
    products = [each for block in all_blocks().values() for each in block.load("products").PRODUCTS]
    page = build_page(
        options.results,
        options.tier,
        {product.name: product for product in products},
        options.show,
        errata=read_errata(),
        about=_text(options.about) if options.about else "",
        written=read_written_claims(),
        beside={folder.name: read_claims(folder, "expected") for folder in options.beside},
        partial=options.partial,
    )
    remove_parts(options.output.parent, options.output.name)
    write_atomic(options.output, page)
    return 0


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "number": lambda value: number(str(value)),
        "short": lambda value: number(f"{value:.3g}"),
        "trim": lambda text, end: text.removesuffix(end),
        "script_hash": _script_hash,
        "in_words": in_words,
        "data_text": data_text,
        "source_text": source_text,
        "seeds_text": seeds_text,
        "cost_text": cost_text,
        "duration": duration,
        "json": canonical_json,
    }
    environment.filters |= filters
    script = Markup((HERE / "page.js").read_text(encoding="utf-8"))
    style = Markup((HERE / "page.css").read_text(encoding="utf-8"))
    environment.globals |= {"script": script, "style": style}
    return environment.get_template("page.html.j2")


def _sections(
    items: Sequence[Item],
    every: Sequence[Card],
    errata: Mapping[str, Sequence[Erratum]],
    headlines: Mapping[str, Headline],
) -> list[Section]:
    """By paper, in the order of the claims; blocks without claims behind."""
    blocks = all_blocks()
    papers = [card.row.get("paper", "") for card in every]
    sections = []
    for key in dict.fromkeys([*papers, *(item.paper for item in items)]):
        own = [card for card, paper in zip(every, papers, strict=True) if paper == key]
        rows = [card.row for card in own] + [q.row for card in own for q in card.questions]
        headline = headlines.get(key)
        sections.append(
            Section(
                key=key,
                title=blocks[key].title if key in blocks else key,
                headline=headline,
                cards=own,
                takeaways=takeaways(headline, rows) if headline else [],
                items=[item for item in items if item.paper == key],
                errata=list(errata.get(key, ())),
            )
        )
    return sections


def _papers_in_words(count: int) -> str:
    number = NUMBERS[count] if count < len(NUMBERS) else str(count)
    return f"{number} paper{'s' if count != 1 else ''}"


def _counts(tier: str, every: Sequence[Card]) -> dict[str, Counter[str]]:
    """How many of the papers' own claims have which verdict, by tier; this tier first."""
    theirs = [card for card in every if not card.ours]
    return {tier: Counter(card.row["verdict"] for card in theirs)} | {
        name: Counter(card.others.get(name, NOT_RUN) for card in theirs)
        for name in told_alike(every)
    }


def _claims_first(rows: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    """Rows with every conjunction before its parts; `depth` is 0 for a claim, 1 for a part."""
    names = [row["claim"] for row in rows]
    parents = [parent_of(name, names) for name in names]
    first = {parent: place for place, parent in reversed([*enumerate(parents)])}
    depths = [int(name != parent) for name, parent in zip(names, parents, strict=True)]
    order = sorted(range(len(rows)), key=lambda place: (first[parents[place]], depths[place]))
    return [{**rows[place], "depth": depths[place]} for place in order]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), error.strerror or "unreadable", "a text file") from None


def _script_hash(script: str) -> str:
    """What a content security policy asks for to let this one script run."""
    digest = hashlib.sha256(str(script).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
