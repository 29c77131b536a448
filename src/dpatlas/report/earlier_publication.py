"""What an earlier publication of a tier has that is no part of the run to publish.

A tier of hours is run paper by paper, a tier of days figure by figure: publishing one must not take
away the others.
"""

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpatlas.config.products import all_products
from dpatlas.core.files import read_json
from dpatlas.core.folders import CONFIG
from dpatlas.evidence.claims import Claim, conjunction_row
from dpatlas.evidence.claims import read_claims as written_claims
from dpatlas.evidence.verdicts import NOT_RUN, read_claims, read_comparisons, same_question
from dpatlas.registry import all_blocks
from dpatlas.report.lineage import MANIFEST, block_key
from dpatlas.report.publication import read_publication
from dpatlas.report.read_again import evidence_of, with_columns
from dpatlas.report.state import require_as_made


@dataclass(frozen=True)
class EarlierPublication:
    """What is kept of it: files by path, lineage of products; the old manifest, claims and config.

    blocks: in the run to publish. partial: whether that run is one. comparisons: rows of the old
    comparisons.csv.
    """

    files: Mapping[str, bytes]
    products: Mapping[str, Mapping[str, Any]]
    manifest: Mapping[str, Any]
    claims: Mapping[str, Mapping[str, str]]
    blocks: Collection[str]
    partial: bool
    comparisons: Sequence[Mapping[str, str]]
    config: Mapping[str, Any]

    def names(self, kind: str) -> list[str]:
        """Names of the kept figures or tables."""
        return [name for name, lineage in self.products.items() if lineage["kind"] == kind]

    def into(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The new manifest with what is kept, and the commit that each kept product is from."""
        old = self.manifest
        records = {
            name: old["records"][name]
            for lineage in self.products.values()
            for name in lineage["records"]
        }
        modules = {lineage["module"] for lineage in self.products.values()}
        blocks = {block_key(module) for module in modules}
        blocks |= {record["spec"]["key"] for record in records.values()}
        data = {record["data"] for record in records.values()} - {None}
        waiting = self._waiting(manifest)
        return {
            **manifest,
            **({} if waiting is None else {"waiting": waiting}),
            **({"read_again": old["read_again"]} if "read_again" in old else {}),
            "products": {**self.products, **manifest["products"]},
            "records": {**records, **manifest["records"]},
            "data": {**{name: old["data"][name] for name in data}, **manifest["data"]},
            "ledgers": {**old.get("ledgers", {}), **manifest["ledgers"]},
            "code": self._code(blocks, manifest["code"]),
            "files": {
                **{path: old["files"][path] for path in self.files},
                **manifest["files"],
            },
            # What was kept before comes from further back still.
            "kept": {name: old.get("kept", {}).get(name, old["commit"]) for name in self.products},
        }

    def _code(
        self, blocks: Collection[str], made: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Digests of both, for the modules of these blocks and of the run."""
        old = {
            name: each for name, each in self.manifest["code"].items() if block_key(name) in blocks
        }
        both = {
            name: {**made[name], "in_run": sorted({*old[name]["in_run"], *made[name]["in_run"]})}
            for name in old.keys() & made.keys()
        }
        return {**old, **made, **both}

    def _waiting(self, manifest: Mapping[str, Any]) -> list[Any] | None:
        """What waits in the run, but for what is kept, and what waited of that.

        None if neither publication is of a partial run.
        """
        made = {name for name, (_, block) in all_products().items() if block.key in self.blocks}
        old = [
            each
            for each in self.manifest.get("waiting", ())
            if each["name"] in self.products or each["name"] not in made
        ]
        new = [each for each in manifest.get("waiting", ()) if each["name"] not in self.products]
        return new + old if old or "waiting" in manifest else None

    def into_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """config.json with the old settings of papers that are no part of the run."""
        others = self.config.keys() & all_blocks().keys() - {*self.blocks}
        return {**config, **{key: self.config[key] for key in others}}

    def keeps(self, row: Mapping[str, str]) -> bool:
        """Whether the old verdict stands in the place of this one."""
        old = self.claims.get(row["claim"])
        # A verdict by another procedure, or on what the claim does not ask any more, is none.
        if old is None or not same_question(row, old):
            return False
        if row["paper"] not in self.blocks:
            return True
        return self.partial and row["verdict"] == NOT_RUN != old["verdict"]

    def into_claims(self, rows: list[dict[str, str]]) -> bytes:
        """claims.csv with the old verdicts on what is no part of the run.

        A claim with parts of which some are kept is judged by the parts that stand there now:
        neither the run nor the earlier publication had these.
        """
        kept = {row["claim"] for row in rows if self.keeps(row)}
        merged: dict[str, Mapping[str, str]] = {
            row["claim"]: self.claims[row["claim"]] if row["claim"] in kept else row for row in rows
        }
        if self.partial and kept:
            for claim in written_claims().claims:
                every = {claim.id, *(each.id for each in claim.entries)}
                ours = claim.paper in self.blocks and claim.has_parts
                if ours and kept & every and every <= merged.keys():
                    merged[claim.id] = _judged_again(claim, merged)
        return _csv(list(rows[0]), merged.values())

    def into_comparisons(self, content: bytes, rows: Iterable[Mapping[str, str]]) -> bytes:
        """comparisons.csv with the old comparisons of what is no part of the run.

        rows: the claims of the run; comparisons are sorted by their order.
        """
        order = {row["claim"]: index for index, row in enumerate(rows)}
        kept = {row["claim"] for row in rows if self.keeps(row)}
        new = csv.DictReader(io.StringIO(content.decode()))
        columns = list(new.fieldnames or [])
        old = (row for row in self.comparisons if row["claim"] in kept)
        return _csv(columns, sorted([*new, *old], key=lambda row: order[row["claim"]]))


def _judged_again(claim: Claim, rows: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """The row of a claim by the rows of its parts. rows: by claim."""
    parts = [rows[each.id] for each in claim.entries]
    whole = conjunction_row(claim, [{**part, "runs": int(part["runs"])} for part in parts])
    # Of the claim's figures and tables some may not be there yet.
    whole["evidence"] = evidence_of(parts)
    return {**rows[claim.id], **{name: str(value) for name, value in whole.items()}}


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> bytes:
    """Rows in these columns; what an older file has no column for is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def earlier_publication(
    target: Path, blocks: Collection[str], shown: Collection[str] | None = None
) -> EarlierPublication | None:
    """What `target`, a published tier, has of blocks other than these; None for nothing.

    shown: figures and tables of a partial run, which leaves others of its blocks as they are.

    Raises InputError for a published file that was edited.
    """
    if not (target / MANIFEST).is_file():
        return None
    old = read_publication(target / MANIFEST)
    products = {
        name: lineage
        for name, lineage in old["products"].items()
        if block_key(lineage["module"]) not in blocks or (shown is not None and name not in shown)
    }
    if not products:
        return None
    recorded = {path: sha for path, sha in old["files"].items() if Path(path).stem in products}
    require_as_made(target, recorded, "its manifest", "the file as it was published")
    files = {path: (target / path).read_bytes() for path in recorded}
    rows, comparisons = read_claims(target), read_comparisons(target)
    if {"margin", "failure"} & rows[0].keys() == {"margin"}:
        rows = with_columns(rows, comparisons)
    config = read_json(target / CONFIG) if (target / CONFIG).is_file() else {}
    return EarlierPublication(
        files,
        products,
        old,
        {row["claim"]: row for row in rows},
        blocks,
        shown is not None,
        comparisons,
        config,
    )
