"""The result page of a tier: `python -m dpatlas.report.page`, one file that needs no network."""

import base64
import csv
import hashlib
import itertools
import math
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from dpatlas import __version__
from dpatlas.core.canonical import canonical_json
from dpatlas.core.files import read_json, write_atomic
from dpatlas.core.records import read_record
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas.report.claims import VERDICTS
from dpatlas.report.inline_svg import inline_svg
from dpatlas.report.lineage_text import in_words

TIERS = {
    "smoke": "tiny settings that run every rule once, for continuous integration; the numbers "
    "mean nothing",
    "embedded": "real data that ships inside Python packages, small networks, minutes on a laptop; "
    "shapes can be compared with the papers, heights cannot",
    "workstation": "real photographs at a size that a machine without a GPU manages in hours",
    "paper": "the papers' own data, networks and settings",
}
OWN_TIER = "settings of the user's own; see config.json in the results folder"
PAPERS = {
    "kl_privacy": "Initialization Matters: Privacy-Utility Analysis of Overparameterized Neural "
    "Networks (Ye, Zhu, Liu, Shokri, Cevher, 2023)",
    "dp_sgld": "Differential Privacy Guarantees for Stochastic Gradient Langevin Dynamics (Ryffel, "
    "Bach, Pointcheval, 2022)",
    "feature_learning": "Private feature learning with a two-layer net on single-index models (M1 "
    "report)",
    "lp_fft": "Differentially private fine-tuning distorts features: linear-probe first "
    "(DP-LP-FFT)",
    "max_information": "From Privacy to Generalization: Linear Max-Information Bounds for DP-SGD "
    "(Lampert, Zakerinia, 2026)",
    "pretrain": "Public backbones: what the features of the papers' networks are made of",
    "audit": "Audit: attacks on our own mechanisms, and a network trained by them",
}
# Parts of a data set beside its private records.
USES = {"x_add": "to add as neighbours", "x_validation": "for validation", "x_test": "for testing"}
FIGURE_LINKS = ("pdf", "png", "svg", "csv")
TABLE_LINKS = ("csv", "md", "tex")
ELSEWHERE = ("tier", "runs")
LEDGER = {
    "guaranteed": "Guaranteed",
    "claimed": "Only claimed or measured",
    "mechanism": "Mechanism",
    "neighbour_relation": "Neighbours",
    "sampler": "Batches",
    "chosen_on_private_data": "Chosen on private data",
    "holds_for": "Holds for",
}


@dataclass(frozen=True)
class Item:
    """A figure or a table as the page shows it."""

    name: str
    kind: str
    paper: str
    caption: Markup
    drawing: Markup
    tables: list[list[list[str]]]
    links: list[tuple[str, str]]
    claims: list[dict[str, str]]
    lineage: dict[str, Any]
    records: list[dict[str, Any]]

    @property
    def diverged(self) -> list[str]:
        """A sentence for every condition of which a run diverged."""
        sentences = []
        for record in self.records:
            runs = _diverged(record["metrics"])
            bad = sum(step is not None for step in runs)
            if bad:
                sentences.append(f"{record['id']}: {bad} of {len(runs)} runs diverged")
        return sentences


def _diverged(metrics: Mapping[str, Any]) -> list[int | None]:
    """By run, or by row of runs, the step at which it diverged, or None."""
    if "diverged" not in metrics:
        return [row["diverged"] for row in metrics.get("rows", []) if "diverged" in row]
    found = metrics["diverged"]
    return found if isinstance(found, list) else [found]


def build_page(
    results: Path,
    tier: str,
    captions: Path | None = None,
    show: Collection[str] | None = None,
) -> str:
    """The HTML of a tier's page, from what lies in its results folder.

    `show` names the figures and tables to show; without it every one that is there, also what an
    earlier config left.
    Reads claims.csv, figures/*.svg, tables/*.csv, lineage/*.json and the records that these name;
    captions: folder of NAME.rst. Raises InputError for a file that is missing or damaged.
    """
    rows = _read_csv(results / "claims.csv")
    if not rows or not {"claim", "verdict", "evidence"} <= set(rows[0]):
        raise InputError(str(results / "claims.csv"), "no claims", "the csv of the rule claims")
    items = [
        _item(results, path, kind, captions, rows)
        for kind, pattern in (("figure", "figures/*.svg"), ("table", "tables/*.csv"))
        for path in sorted(results.glob(pattern))
        if show is None or path.stem in show
    ]
    # In the order in which the claims call on them.
    places = [row["claim"] for row in rows]
    items.sort(key=lambda item: places.index(item.claims[0]["claim"]) if item.claims else math.inf)
    records = {record["id"]: record for item in items for record in item.records}
    counts = Counter(row["verdict"] for row in rows)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "script_hash": _script_hash}
    return environment.get_template("page.html.j2").render(
        tier=tier,
        meaning=TIERS.get(tier, OWN_TIER),
        version=__version__,
        counts=[(verdict, counts[verdict]) for verdict in VERDICTS],
        claims=_claims_first(rows),
        about=_caption(captions, "claims"),
        papers=[
            (key, PAPERS.get(key, key), [item for item in items if item.paper == key])
            for key in dict.fromkeys(item.paper for item in items)
        ],
        sources=_data_sources(records.values()),
        without_data=sum(record["data"] is None for record in records.values()),
        uses=USES.items(),
        ledgers=_ledgers(records.values()),
        ledger_words=LEDGER,
    )


def main(arguments: Sequence[str]) -> int:
    """Write the page from the command line."""
    parser = ArgumentParser(prog="python -m dpatlas.report.page", description=__doc__)
    parser.add_argument("--tier", required=True)
    parser.add_argument("--results", required=True, type=Path, help="the tier's results folder")
    parser.add_argument("--captions", type=Path, help="folder with a NAME.rst per figure and table")
    parser.add_argument("--output", required=True, type=Path, help="index.html to write")
    parser.add_argument("--show", nargs="*", help="figures and tables to show; all if not given")
    options = parser.parse_args(arguments)
    page = build_page(options.results, options.tier, options.captions, options.show)
    write_atomic(options.output, page)
    return 0


def _item(
    results: Path, path: Path, kind: str, captions: Path | None, claims: list[dict[str, str]]
) -> Item:
    name = path.stem
    folder = path.parent.name
    lineage = read_json(results / "lineage" / f"{name}.json")
    endings = FIGURE_LINKS if kind == "figure" else TABLE_LINKS
    files = [path.with_suffix(f".{ending}") for ending in endings]
    paths = {f"{folder}/{file.name}" for file in files}
    drawing = inline_svg(path, f"{name}-", f"Figure {name}") if kind == "figure" else ""
    return Item(
        name=name,
        kind=kind,
        paper=lineage["module"].rpartition(".")[2],
        caption=_caption(captions, name),
        drawing=Markup(drawing),
        tables=_tables(_read_rows(path)) if kind == "table" else [],
        links=[(file.suffix[1:], f"../{folder}/{file.name}") for file in files if file.exists()],
        claims=[row for row in claims if paths & set(row["evidence"].split(";"))],
        lineage=lineage,
        records=[_record(results, run_id) for run_id in sorted(lineage["records"])],
    )


def _tables(rows: list[list[str]]) -> list[list[list[str]]]:
    """A csv as one table per value of its column `part`, each without its empty columns.

    The columns that the page shows elsewhere (the tier, the ids of the runs) are left to the csv.
    """
    head, *body = rows or [[]]
    part = head.index("part") if "part" in head else None
    tables = []
    for _, lines in itertools.groupby(body, key=lambda row: None if part is None else row[part]):
        lines = list(lines)
        shown = [
            column
            for column, name in enumerate(head)
            if name not in ELSEWHERE and column != part and any(row[column] for row in lines)
        ]
        tables.append([[row[column] for column in shown] for row in (head, *lines)])
    return tables


def _record(results: Path, run_id: str) -> dict[str, Any]:
    found = list(results.glob(f"runs/*/{run_id}/record.json"))
    return read_record(found[0] if found else results / "runs" / run_id / "record.json")


def _claims_first(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Rows with every conjunction before its parts; `level` is 0 for a claim, 1 for a part."""
    names = {row["claim"] for row in rows}
    ordered: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for row in rows:
        parent = row["claim"][:-1]
        if parent in names:
            waiting.append({**row, "depth": 1})
        else:
            ordered += [{**row, "depth": 0}, *waiting]
            waiting = []
    return ordered + waiting


def _caption(folder: Path | None, name: str) -> Markup:
    """The caption as HTML; empty without a folder. Files and raw HTML cannot be included."""
    if folder is None:
        return Markup("")
    # Only the page needs docutils; importing the module for its constants should not.
    from docutils.core import publish_parts
    from docutils.utils import SystemMessage

    path = folder / f"{name}.rst"
    try:
        text = path.read_text(encoding="utf-8")
        parts = publish_parts(
            text,
            writer="html5",
            settings_overrides={
                "file_insertion_enabled": False,
                "raw_enabled": False,
                "halt_level": 2,
                "report_level": 5,
            },
        )
    except OSError as error:
        raise InputError(str(path), error.strerror or "unreadable", "a caption") from None
    except SystemMessage as error:
        raise InputError(str(path), str(error), "reStructuredText") from None
    return Markup(parts["body"])


def _data_sources(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each data set once, with the number of runs that used it; attacks need none."""
    by_digest: dict[str, dict[str, Any]] = {}
    for record in records:
        if record["data"] is None:
            continue
        source = by_digest.setdefault(record["data"]["sha256"], {**record["data"], "runs": 0})
        source["runs"] += 1
    return list(by_digest.values())


def _ledgers(records: Iterable[Mapping[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Each distinct privacy statement, with the number of runs that make it."""
    statements: dict[str, dict[str, Any]] = {}
    counts: Counter[str] = Counter()
    for record in records:
        said = {key: in_words(record["ledger"][key]) for key in LEDGER if record["ledger"].get(key)}
        text = canonical_json(said)
        statements[text] = said
        counts[text] += 1
    return [(count, statements[text]) for text, count in counts.most_common()]


def _read_csv(path: Path) -> list[dict[str, str]]:
    head, *rows = _read_rows(path) or [[]]
    return [dict(zip(head, row, strict=False)) for row in rows]


def _read_rows(path: Path) -> list[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return list(csv.reader(stream))
    except OSError as error:
        raise InputError(str(path), error.strerror or "unreadable", "a csv file") from None


def _number(text: str) -> str:
    """A number with four significant digits; other text as it is."""
    try:
        value = float(text)
    except ValueError:
        return text
    shown = "∞" if math.isinf(value) else f"{abs(value):.4g}"
    return f"−{shown}" if value < 0 else shown


def _script_hash(script: str) -> str:
    """What a content security policy asks for to let this one script run."""
    digest = hashlib.sha256(str(script).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
