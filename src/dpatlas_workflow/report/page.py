"""The pages of a tier: an index, one by paper, and one of data, privacy and runs.

`python -m dpatlas_workflow.report.page`. Each is a file of its own that needs no network.
"""

import base64
import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from dpatlas import __version__
from dpatlas.base.files import read_text, remove_parts, write_atomic
from dpatlas.base.progress import duration
from dpatlas.base.yaml_files import read_yaml
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas_workflow.config.atlas import COUNTING
from dpatlas_workflow.config.load import project_root
from dpatlas_workflow.config.products import Product, all_products
from dpatlas_workflow.evidence import verdicts
from dpatlas_workflow.evidence.claim_file import STATISTICAL, Claims, Headline
from dpatlas_workflow.evidence.claim_file import read_claims as read_written_claims
from dpatlas_workflow.evidence.errata import Erratum, Status, read_errata
from dpatlas_workflow.evidence.printed import CONFIDENCE
from dpatlas_workflow.registry import all_blocks
from dpatlas_workflow.report.page_claims import (
    IN_SHORT,
    RUNS_WIDTH,
    Card,
    Takeaway,
    cards,
    takeaways,
    told_alike,
)
from dpatlas_workflow.report.page_findings import findings
from dpatlas_workflow.report.page_items import (
    LEDGER,
    Item,
    caption_html,
    data_sources,
    in_order_of_claims,
    ledgers,
    read_item,
    run_kinds,
)
from dpatlas_workflow.report.page_source import Source, commit_of_run, ran
from dpatlas_workflow.report.page_tables import NOTE_MATH, html, number
from dpatlas_workflow.report.text import days, source_text

TIERS = {
    "smoke": "tiny settings that run every rule once, for continuous integration; the numbers "
    "mean nothing",
    "embedded": "small real data sets from Python packages and small networks, minutes on a "
    "laptop; compare directions and orders with the papers, not absolute values",
    "pilot": "the embedded tier with a base seed that was looked at before the claims were frozen; "
    "its verdicts decide nothing",
    "workstation": "CIFAR-10, chest X-rays and MNIST, hours on a machine without a GPU",
    "printed": "every printed row, panel and table once, at the printed sizes, on the papers' own "
    "data",
    "printed-caption": "kl_privacy's Fig. 1 with the step size of its caption",
    "printed-stages": "kl_privacy's Fig. 2 at stages of training in place of the printed steps",
    "printed-stages-narrow": "kl_privacy's depths at stages of training, with networks of width 64",
    "photographs": "lp_fft alone, on halves of CIFAR-10's classes",
    "photographs-far": "lp_fft's strategies on private classes far from the public ones",
    "photographs-low-noise": "lp_fft on the far classes at low noise, and how features change",
    "photographs-controls": "lp_fft's strategies on photographs without noise, and on standardised "
    "features",
    "imagenet": "lp_fft alone, on CIFAR-10 with a network pre-trained on ImageNet",
    "imagenet-noiseless": "the same without noise",
    "shifted": "lp_fft alone, from half of CIFAR-10 to the other half, in grey or blurred",
    "random-process": "lp_fft's Fig. 2b, from images of untrained generators to CIFAR-10",
    "paper": "the papers' own data, networks and settings",
}
# Line breaks that no browser shows, a hundredth of the page.
BREAKS = re.compile(
    r"\n(?=</?(?:td|tr|th|thead|tbody|table|dt|dd|dl|div|details|summary|p|li|ul|section|h[2-5])\b)"
)
# Errata by status, in the words of the first sentence.
REMARKS: dict[Status, str] = {
    "proved": "wrong",
    "counter-example": "wrong",
    "misprint": "misprinted",
    "proof gap": "proved with a gap",
    "ambiguity": "open to two readings",
    "improvement": "true, and can be sharpened",
}
# What the first sentence says after one claim, and after several.
FIRST_WORDS = {
    verdicts.REPRODUCED: ("held", "held"),
    verdicts.MATHEMATICS: ("is refuted by computation", "are refuted by computation"),
    verdicts.OPPOSITE: ("failed with the opposite seen",) * 2,
    verdicts.SMALLER: ("failed with no effect beyond the margin",) * 2,
    verdicts.NOT_REPRODUCED: ("did not", "did not"),
    verdicts.NOT_CONTRADICTED: ("was not contradicted", "were not contradicted"),
    verdicts.INCONCLUSIVE: ("stays open", "stay open"),
    verdicts.NOT_RUN: ("was not run", "were not run"),
}
NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
PARTIAL = (
    "; a part of the run is there: figures that wait for runs are left out, tables have the rows "
    "whose runs are there"
)
OWN_TIER = "settings of the user's own; see config.json in the results folder"
# Parts of a data set beside its private records.
USES = {"x_add": "to add as neighbours", "x_validation": "for validation", "x_test": "for testing"}
# Of a record in the name of a comparison.
DIGEST = re.compile(r"-[0-9a-f]{8}\b")
# "a less b" of publications, where it is not "less than b"; "a less 1 - b" would need brackets.
DIFFERENCE = re.compile(r" less (?!than )(?!.* - )")
HERE = Path(__file__).parent
# The page with data, privacy and runs; in every page that was written.
INDEX, RUNS = "index", "runs"
TITLE = b"<title>dp-atlas: "


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

    @property
    def theirs(self) -> list[Card]:
        """The paper's own claims."""
        return [card for card in self.cards if not card.ours]

    @property
    def held(self) -> int:
        """How many of the paper's own claims held."""
        return sum(card.row["verdict"] == verdicts.REPRODUCED for card in self.theirs)

    @property
    def by_importance(self) -> list[Card]:
        """The main claims first, then the paper's others, then ours."""
        main = self.headline.main if self.headline else {}
        first = {card.id for card in self.cards if any(row["claim"] in main for row in card.rows)}
        return sorted(self.cards, key=lambda card: (card.id not in first, card.ours))

    def elsewhere(self, claim: str) -> dict[str, str]:
        """The outcomes of a claim or part in other tiers that judged the same."""
        for card in self.cards:
            if card.id == claim:
                return dict(card.others)
            for question in card.questions:
                if question.row["claim"] == claim:
                    return {name: verdicts.outcome(of.row) for name, of in question.others.items()}
        return {}

    @property
    def picture(self) -> str:
        """Where its first figure's png lies, from the pages; empty without one."""
        links = (dict(item.links).get("png") for item in self.items)
        return next((link for link in links if link), "")


def build_pages(
    source: Source,
    tier: str,
    products: Mapping[str, Product] | None = None,
    show: Collection[str] | None = None,
    *,
    errata: Mapping[str, Sequence[Erratum]] | None = None,
    about: str = "",
    written: Claims | None = None,
    beside: Mapping[str, Source] | None = None,
    published: Source | None = None,
    whole: bool = False,
    partial: bool = False,
    site: str = "",
    repository: str = "",
) -> dict[str, str]:
    """The HTML of a tier's pages by name, from its results.

    products: by name, for captions and what the papers show. show: names of the figures and tables
    to show; without it every one that is there, also what an earlier config left. errata: by paper.
    about: reStructuredText above the claims. written: the claims.yaml of all papers. beside: other
    tiers, by name, whose verdicts and comparisons stand beside those of this one; `whole`: so do
    their figures and tables. published: this tier's publication, for what more runs decided.
    partial: whether a part of the run is shown. site, repository: their addresses; empty where
    there is none.

    Raises InputError for a file that is missing or damaged, for a caption that is no
    reStructuredText, and for a verdict whose figure or table is not there.
    """
    beside = beside or {}
    items = in_order_of_claims(
        [
            replace(
                read_item(source, path, (products or {}).get(path.stem)),
                elsewhere={
                    name: read_item(other, other.shown[path.stem])
                    for name, other in beside.items()
                    if whole and path.stem in other.shown
                },
            )
            for path in source.files(show)
        ],
        source.rows,
    )
    records = {record["id"]: record for item in items for record in item.records}
    tables = {name: (other.rows, other.comparisons) for name, other in beside.items()}
    every = cards(source.rows, source.comparisons, written, tables)
    headlines = written.headlines if written else {}
    theirs = [card for card in every if not card.ours]
    # How many of the papers' own claims have which outcome; this tier first.
    tiers = {tier: Counter(verdicts.outcome(card.row) for card in theirs)} | {
        name: Counter(card.others.get(name, verdicts.NOT_RUN) for card in theirs)
        for name in told_alike(every)
    }
    sections = _sections(items, every, errata or {}, headlines)
    papers = len({card.row.get("paper", "") for card in every})
    number_of_papers = NUMBERS[papers] if papers < len(NUMBERS) else papers
    titles = {of.key: of.title for of in sections}
    authors = {of.key: of.headline.authors if of.headline else of.key for of in sections}
    first_days, last_days = ran(source, records.values())
    shared: dict[str, Any] = {
        "tier": tier,
        "version": __version__,
        "address": source.address,
        "addresses": {name: other.address for name, other in beside.items()},
        "places": {
            **{row["claim"]: of.key for of in sections for card in of.cards for row in card.rows},
            **{item.name: item.paper for item in items},
        },
        "pages": [(INDEX, "dp-atlas"), *authors.items(), (RUNS, "data, privacy, runs")],
        "titles": titles,
        "authors": authors,
        "in_short": IN_SHORT,
        "not_run": verdicts.NOT_RUN,
        "unsure": (verdicts.INCONCLUSIVE, verdicts.NOT_RUN),
        "site": site,
        "repository": repository,
        "commit": commit_of_run(source),
        "ran": days(first_days, last_days) if first_days else "",
        "picture": "",
    }
    what = f"{number_of_papers} paper{'s' if papers != 1 else ''}"
    claimed = sum(tiers[tier].values())
    index = {
        "page": INDEX,
        "title": f"what held ({tier})",
        "description": f"{what} on differentially private learning, reproduced: "
        f"{tiers[tier][verdicts.REPRODUCED]} of {claimed} claims held.",
        "picture": next((of.picture for of in sections if of.picture), ""),
        "meaning": TIERS.get(tier, OWN_TIER) + (PARTIAL if partial else ""),
        "outcomes": [
            kind
            for kind in verdicts.OUTCOMES
            if kind != verdicts.NOT_REPRODUCED or any(counts[kind] for counts in tiers.values())
        ],
        "first_words": FIRST_WORDS,
        "waiting": _waiting(every),
        "decided": _decided(published, theirs) if published else None,
        "ours": sum(card.ours for card in every),
        "remarks": Counter(REMARKS[erratum.status] for of in sections for erratum in of.errata),
        "papers_in_words": what,
        "tiers": tiers,
        "meanings": {name: TIERS.get(name, OWN_TIER) for name in tiers},
        "claims": [
            {**row, "depth": depth} for card in every for depth, row in enumerate(card.rows)
        ],
        "about": caption_html(about, "claims"),
        "sections": sections,
        "checks": [of for of in sections if not of.cards],
        "findings": findings(headlines, tier, {tier: (source.rows, source.comparisons), **tables}),
    }
    papers_pages = {
        of.key: {
            "page": of.key,
            "title": of.headline.text if of.headline else of.title,
            "description": f"{of.title}: {of.held} of {len(of.theirs)} claims held.",
            "picture": of.picture,
            "section": of,
            "confidence": f"{CONFIDENCE:.0%}",
        }
        for of in sections
    }
    runs = {
        "page": RUNS,
        "title": "data, privacy and runs",
        "description": "Data sets, privacy statements and jobs behind the numbers.",
        "sources": data_sources(records.values()),
        "without_data": sum(record["data"] is None for record in records.values()),
        "uses": USES.items(),
        "ledgers": ledgers(records.values()),
        "ledger_words": LEDGER,
        "kinds": run_kinds(records.values()),
    }
    environment = _environment()

    def rendered(template: str, context: dict[str, Any], *scripts: str) -> str:
        script = Markup("".join((HERE / name).read_text(encoding="utf-8") for name in scripts))
        page = environment.get_template(template).render({**shared, **context, "script": script})
        return BREAKS.sub("", page)

    return {
        INDEX: rendered("index.html.j2", index, "page.js"),
        **{
            key: rendered("paper.html.j2", of, "charts.js", "page.js")
            for key, of in papers_pages.items()
        },
        RUNS: rendered("runs.html.j2", runs, "page.js"),
    }


def write_pages(folder: Path, pages: Mapping[str, str]) -> None:
    """Each page as a file of the folder, the index last: what it leads to is there."""
    for name, page in sorted(pages.items(), key=lambda page: page[0] == INDEX):
        path = folder / f"{name}.html"
        remove_parts(folder, path.name)
        write_atomic(path, page)


def _waiting(every: Sequence[Card]) -> dict[str, int] | None:
    """How many questions that need runs are open, of how many, and the most runs; None if none."""
    questions = [q.row for card in every for q in card.questions if q.row["kind"] == STATISTICAL]
    waiting = [row for row in questions if row["verdict"] == verdicts.INCONCLUSIVE]
    runs = max((int(row["look"]) for row in questions if row.get("look")), default=0)
    return {"open": len(waiting), "of": len(questions), "runs": runs} if waiting else None


def _decided(published: Source, theirs: Sequence[Card]) -> dict[str, Any]:
    """How many of the papers' own claims have which outcome there, and the most runs of a look."""
    ids = {card.id for card in theirs}
    looks = [int(row["look"]) for row in published.rows if row.get("look")]
    counts = Counter(verdicts.outcome(row) for row in published.rows if row["claim"] in ids)
    return {"counts": counts, "runs": max(looks, default=0)}


def check_site(published: Path) -> None:
    """InputError if a page that `write_site` writes would replace a file that it did not."""
    for name in (INDEX, RUNS, *all_blocks()):
        output = published.parent / f"{name}.html"
        if output.exists() and not (output.is_file() and TITLE in output.read_bytes()):
            found = "a file that no publication wrote"
            raise InputError(str(output), found, "another folder: --docs DIR")


def write_site(published: Path) -> Path:
    """Write the pages of all published tiers beside their folder; returns the index.

    The first of `COUNTING` that is published leads, the others stand beside. Addresses of the site
    and the repository are those of mkdocs.yml. Raises InputError as `build_pages` does, and where
    no tier is published.
    """
    names = [name for name in COUNTING if (published / name / verdicts.CLAIMS).is_file()]
    if not names:
        raise InputError(str(published), "no published tier", f"one of {', '.join(COUNTING)}")
    lead, *others = (Source(published / name, f"{published.name}/{name}/") for name in names)
    settings = read_yaml(project_root() / "mkdocs.yml")
    pages = build_pages(
        lead,
        names[0],
        _products(),
        errata=read_errata(),
        about=read_text(project_root() / "workflow/report/claims.rst", "a text file"),
        written=read_written_claims(),
        beside=dict(zip(names[1:], others, strict=True)),
        whole=True,
        site=settings["site_url"],
        repository=settings["extra"]["repository"],
    )
    write_pages(published.parent, pages)
    return published.parent / f"{INDEX}.html"


def _products() -> dict[str, Product]:
    return {name: product for name, (product, _) in all_products().items()}


def main(arguments: Sequence[str]) -> int:
    """Write the pages from the command line."""
    parser = ArgumentParser(prog="python -m dpatlas_workflow.report.page", description=__doc__)
    parser.add_argument("--tier", required=True)
    parser.add_argument("--results", required=True, type=Path, help="the tier's results folder")
    parser.add_argument("--about", type=Path, help="reStructuredText above the claims")
    parser.add_argument(
        "--output", required=True, type=Path, help="index.html; the others go beside it"
    )
    parser.add_argument("--show", nargs="*", help="figures and tables to show; all if not given")
    parser.add_argument(
        "--beside", nargs="*", default=[], type=Path, help="folders of other published tiers"
    )
    parser.add_argument("--published", type=Path, help="folder of this tier's publication")
    parser.add_argument("--partial", action="store_true", help="a part of the run is shown")
    options = parser.parse_args(arguments)
    folder = options.output.parent
    pages = build_pages(
        Source(options.results),
        options.tier,
        _products(),
        options.show,
        errata=read_errata(),
        about=read_text(options.about, "a text file") if options.about else "",
        written=read_written_claims(),
        beside={of.name: Source(of, f"{os.path.relpath(of, folder)}/") for of in options.beside},
        published=options.published and Source(options.published),
        partial=options.partial,
    )
    write_pages(folder, pages)
    return 0


def _environment() -> jinja2.Environment:
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
        "source_text": source_text,
        "duration": duration,
        "outcome": verdicts.outcome,
        "compared": lambda text: DIFFERENCE.sub(" \u2212 ", DIGEST.sub("", text)),
        "formulas": lambda text: html(text, NOTE_MATH),
    }
    environment.filters |= filters
    style = Markup((HERE / "page.css").read_text(encoding="utf-8"))
    environment.globals |= {"style": style, "runs_width": RUNS_WIDTH}
    return environment


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
        rows = [row for card in own for row in card.rows]
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


def _script_hash(script: str) -> str:
    digest = hashlib.sha256(str(script).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
