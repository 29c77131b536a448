"""What the page shows of a results folder: figures, tables, runs, data sets and ledgers."""

import base64
import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dpatlas.base.canonical import canonical_json
from dpatlas.base.files import read_json, read_rows
from dpatlas.errors import InputError
from dpatlas_workflow.config.products import Product
from dpatlas_workflow.evidence.printed import PrintedComparison, printed_comparisons
from dpatlas_workflow.records import condition_of
from dpatlas_workflow.registry import all_blocks
from dpatlas_workflow.report.index import block_key
from dpatlas_workflow.report.page_source import Source
from dpatlas_workflow.report.page_tables import NOTE_MATH, Shown, html, read_parts
from dpatlas_workflow.report.text import cost_text, in_words, seeds_text

# Length from which a text that privacy statements share is printed once, with links to it.
LONG = 100
FIGURE_LINKS = ("pdf", "png", "svg", "csv")
TABLE_LINKS = ("csv", "md", "tex")
LEDGER = {
    "guaranteed": "Guaranteed",
    "claimed": "Only claimed or measured",
    "mechanism": "Mechanism",
    "neighbour_relation": "Neighbours",
    "sampler": "Batches",
    "chosen_on_private_data": "Chosen on private data",
    "holds_for": "Holds for",
    "floats": "What floats leave open",
}


@dataclass(frozen=True)
class Item:
    """A figure or a table as the page shows it.

    shows: what the paper shows there, in words. parts: of a table. notes: of a figure. pairs:
    printed numbers beside ours. trace: what leads to the file that names its records. elsewhere:
    the same of other tiers.
    """

    name: str
    kind: str
    paper: str
    title: str
    caption: Markup
    chart: str
    links: list[tuple[str, str]]
    claims: list[dict[str, str]]
    lineage: Mapping[str, Any]
    records: list[dict[str, Any]]
    trace: str = ""
    shows: str = ""
    parts: list[Shown] = field(default_factory=list)
    notes: list[Markup] = field(default_factory=list)
    pairs: list[PrintedComparison] = field(default_factory=list)
    elsewhere: "dict[str, Item]" = field(default_factory=dict)

    @property
    def made_of(self) -> str:
        """How many jobs of each kind are behind it."""
        kinds = Counter(record["spec"]["kind"] for record in self.records)
        return ", ".join(f"{count} {kind}" for kind, count in kinds.items())

    @property
    def diverged(self) -> list[str]:
        """A sentence for every condition of which a run diverged."""
        conditions: dict[str, list[int | None]] = defaultdict(list)
        for record in self.records:
            if record["diverged"]:
                conditions[condition_of(record)] += record["diverged"]
        return [
            f"{name}: {bad} of {len(runs)} runs diverged"
            for name, runs in conditions.items()
            if (bad := len(runs) - runs.count(None))
        ]


def read_item(source: Source, path: Path, product: Product | None = None) -> Item:
    """The figure or table of a tier behind a chart or a csv.

    Raises InputError for a file that is missing or damaged, and for a caption that is no
    reStructuredText.
    """
    name, folder = path.stem, path.parent.relative_to(source.folder).as_posix()
    kind = "figure" if path.suffix == ".json" else "table"
    node = source.product(name)
    endings = FIGURE_LINKS if kind == "figure" else TABLE_LINKS
    files = [path.with_suffix(f".{ending}") for ending in endings]
    paths = {f"{folder}/{file.name}" for file in files}
    rows = read_rows(path.with_suffix(".csv"))
    chart = read_json(path) if kind == "figure" else {}
    key = block_key(node.module)
    return Item(
        name=name,
        kind=kind,
        paper=key,
        title=product.title if product else name,
        caption=caption_html(product.caption, name) if product else Markup(""),
        chart=packed({key: part for key, part in chart.items() if key != "notes"}),
        links=[
            (file.suffix[1:], f"{source.address}{folder}/{file.name}")
            for file in files
            if file.exists()
        ],
        claims=[row for row in source.rows if paths & set(row["evidence"].split(";"))],
        lineage=node.facts,
        records=source.records(node.facts["records"]),
        trace=source.address + node.path.relative_to(source.folder).as_posix(),
        shows=product.paper_shows if product else "",
        parts=read_parts(path.with_suffix(".md")) if kind == "table" else [],
        notes=[html(note, NOTE_MATH) for note in chart.get("notes", [])],
        pairs=printed_comparisons(all_blocks()[key], name, rows) if key in all_blocks() else [],
    )


def caption_html(caption: str, name: str) -> Markup:
    """reStructuredText as HTML. Files and raw HTML cannot be included."""
    # Only the page needs docutils; importing the module for its constants should not.
    from docutils.core import publish_parts
    from docutils.utils import SystemMessage

    settings: dict[str, Any] = {"file_insertion_enabled": False, "raw_enabled": False}
    settings |= {"halt_level": 2, "report_level": 5}
    try:
        parts = publish_parts(caption, writer="html5", settings_overrides=settings)
    except SystemMessage as error:
        raise InputError(f"caption of {name}", str(error), "reStructuredText") from None
    return Markup(parts["body"])


def data_sources(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each data set once, with the number of jobs that used it; attacks need none."""
    by_digest: dict[str, dict[str, Any]] = {}
    for data in (record["data"] for record in records if record["data"] is not None):
        by_digest.setdefault(data["sha256"], {**data, "jobs": 0})["jobs"] += 1
    return list(by_digest.values())


def ledgers(records: Iterable[Mapping[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Each distinct privacy statement, with the number of jobs that make it.

    A long text that an earlier statement has too is the number of that statement, from 1.
    """
    statements: dict[str, dict[str, Any]] = {}
    counts: Counter[str] = Counter()
    for record in records:
        ledger = record["ledger"]
        statement = {key: in_words(ledger[key]) for key in LEDGER if ledger.get(key)}
        statements[text := canonical_json(statement)] = statement
        counts[text] += 1
    shown, first_uses = [], dict[tuple[str, str], int]()
    for number, (text, count) in enumerate(counts.most_common(), 1):
        entries = {}
        for key, words in statements[text].items():
            first = first_uses.setdefault((key, words), number)
            repeated = first < number and len(words) >= LONG and key != "guaranteed"
            entries[key] = first if repeated else words
        shown.append((count, entries))
    return shown


def run_kinds(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What made the numbers: a row per block and kind of jobs, with everything that they share."""
    kinds: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        kinds[record["key"], record["spec"]["kind"]].append(record)
    return [
        {
            "key": key,
            "kind": kind,
            "jobs": len(jobs),
            "seeds": _distinct(seeds_text(job["seeds"]) for job in jobs),
            "code": _distinct(job["code_digest"][:16] for job in jobs),
            "versions": _distinct(in_words(job["versions"]) for job in jobs),
            "devices": _distinct(job["device"] for job in jobs),
            "cost": cost_text(jobs),
        }
        for (key, kind), jobs in sorted(kinds.items())
    ]


def _distinct(values: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values if value is not None))


def in_order_of_claims(items: Sequence[Item], claims: Sequence[Mapping[str, str]]) -> list[Item]:
    """The items in the order in which the claims call on them, the others behind."""
    names = [row["claim"] for row in claims]
    return sorted(
        items, key=lambda i: names.index(i.claims[0]["claim"]) if i.claims else len(names)
    )


def packed(chart: Mapping[str, Any]) -> str:
    """JSON by gzip in base64: a quarter of its size, and no HTML can be hidden in it."""
    return base64.b64encode(gzip.compress(canonical_json(chart).encode(), mtime=0)).decode()
