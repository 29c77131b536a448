"""What an earlier publication of a tier has of papers that are no part of the run to publish.

A tier of hours is run paper by paper: publishing one must not take away the others.
"""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpatlas.core.files import read_json
from dpatlas.evidence.verdicts import read_claims
from dpatlas.report.lineage import COMPARISONS, MANIFEST, block_key
from dpatlas.report.state import require_as_made


@dataclass(frozen=True)
class EarlierPublication:
    """What is kept of it: files by path, lineage of products; the old manifest and old claims.

    comparisons: lines of the old comparisons.csv.
    """

    files: Mapping[str, bytes]
    products: Mapping[str, Mapping[str, Any]]
    manifest: Mapping[str, Any]
    claims: Mapping[str, Mapping[str, str]]
    comparisons: Sequence[str] = ()

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
        return {
            **manifest,
            "products": {**self.products, **manifest["products"]},
            "records": {**records, **manifest["records"]},
            "data": {**{name: old["data"][name] for name in data}, **manifest["data"]},
            "ledgers": {**old.get("ledgers", {}), **manifest["ledgers"]},
            "code": {
                **{name: code for name, code in old["code"].items() if block_key(name) in blocks},
                **manifest["code"],
            },
            "files": {
                **{path: old["files"][path] for path in self.files},
                **manifest["files"],
            },
            # What was kept before comes from further back still.
            "kept": {name: old.get("kept", {}).get(name, old["commit"]) for name in self.products},
        }

    def into_claims(self, rows: list[dict[str, str]], blocks: Collection[str]) -> bytes:
        """claims.csv with the old verdicts on papers that are no part of the run."""
        text = io.StringIO()
        writer = csv.DictWriter(
            text, list(rows[0]), lineterminator="\n", restval="", extrasaction="ignore"
        )
        writer.writeheader()
        for row in rows:
            kept = row["paper"] not in blocks and row["claim"] in self.claims
            writer.writerow(self.claims[row["claim"]] if kept else row)
        return text.getvalue().encode()

    def into_comparisons(self, content: bytes, blocks: Collection[str]) -> bytes:
        """comparisons.csv with the old comparisons of papers that are no part of the run."""
        kept = {name for name, row in self.claims.items() if row["paper"] not in blocks}
        head, *lines = content.decode().splitlines(keepends=True)
        lines += [line for line in self.comparisons if line.partition(",")[0] in kept]
        return "".join([head, *lines]).encode()


def earlier_publication(target: Path, blocks: Collection[str]) -> EarlierPublication | None:
    """What `target`, a published tier, has of blocks other than these; None for nothing.

    Raises InputError for a published file that was edited.
    """
    if not (target / MANIFEST).is_file():
        return None
    old = read_json(target / MANIFEST)
    products = {
        name: lineage
        for name, lineage in old["products"].items()
        if block_key(lineage["module"]) not in blocks
    }
    if not products:
        return None
    recorded = {path: sha for path, sha in old["files"].items() if Path(path).stem in products}
    require_as_made(target, recorded, "its manifest", "the file as it was published")
    files = {path: (target / path).read_bytes() for path in recorded}
    rows = read_claims(target)
    path = target / COMPARISONS
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    return EarlierPublication(files, products, old, {row["claim"]: row for row in rows}, lines)
