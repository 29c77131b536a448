"""What an earlier publication of a tier has that is no part of the run to publish.

A tier of hours is run paper by paper, a tier of days figure by figure: publishing one must not take
away the others. Records, data and code behind what is kept follow from the index.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpatlas_workflow.evidence.claim_file import read_claims
from dpatlas_workflow.evidence.claims import conjunction_row
from dpatlas_workflow.evidence.verdicts import NOT_RUN, same_question
from dpatlas_workflow.report.index import Content, Index, block_key
from dpatlas_workflow.report.state import require_as_made

Row = Mapping[str, str]


@dataclass(frozen=True)
class Earlier:
    """The publication in the folder of `index`, and what is kept of it: lineages, sha256 of files.

    blocks: in the run to publish. partial: whether that run is one.
    """

    index: Index
    products: Mapping[str, Content]
    files: Mapping[str, str]
    blocks: Collection[str]
    partial: bool

    def keeps(self, row: Row) -> bool:
        """Whether the old verdict stands in the place of this one.

        A verdict by another procedure, or on what the claim does not ask any more, does not.
        """
        old = self.index.claims.get(row["claim"]) if self.products else None
        if old is None or not same_question(row, old):
            return False
        waits = self.partial and row["verdict"] == NOT_RUN != old["verdict"]
        return row["paper"] not in self.blocks or waits

    def claims(self, rows: Sequence[Row]) -> list[Row]:
        """Rows of claims.csv with the old verdicts on what is no part of the run.

        A claim with parts of which some are kept is judged by the parts that stand there now:
        neither the run nor the earlier publication had these.
        """
        kept = {row["claim"] for row in rows if self.keeps(row)}
        merged = {row["claim"]: row for row in rows}
        merged |= {name: self.index.claims[name] for name in kept}
        for claim in read_claims().claims if self.partial and kept else ():
            names = [entry.id for entry in claim.entries]
            ours = claim.paper in self.blocks and claim.has_parts
            if ours and kept & {claim.id, *names} and {claim.id, *names} <= merged.keys():
                parts = [{**merged[name], "runs": int(merged[name]["runs"])} for name in names]
                row = conjunction_row(claim, parts)
                # Of the claim's figures and tables some may not be there yet.
                files = ";".join(str(part["evidence"]) for part in parts).split(";")
                row["evidence"] = ";".join(dict.fromkeys(filter(None, files)))
                merged[claim.id] = {**merged[claim.id], **{k: str(v) for k, v in row.items()}}
        return [*merged.values()]

    def waiting(self, waits: Sequence[Content] | None, made: Collection[str]) -> list[Any] | None:
        """What waits in the run, but for what is kept, and what waited of that.

        made: every figure and table of the run's blocks. None if nothing was partial.
        """
        kept = self.products
        past = self.index.publication.get("waiting", ()) if kept else ()
        old = [entry for entry in past if entry["name"] in kept or entry["name"] not in made]
        new = [entry for entry in waits or () if entry["name"] not in kept]
        return new + old if old or waits is not None else None


def earlier_publication(
    target: Path, blocks: Collection[str], shown: Collection[str] | None = None
) -> Earlier:
    """What `target`, a published tier or nothing, has of blocks other than these.

    shown: figures and tables of a partial run, which leaves others of its blocks as they are.

    Raises InputError for a published file that was edited.
    """
    index = Index(target)
    products = {
        name: dict(node.facts)
        for name, node in index.products.items()
        if block_key(node.module) not in blocks or (shown is not None and name not in shown)
    }
    recorded = index.publication.get("files", {})
    files = {path: sha for path, sha in recorded.items() if Path(path).stem in products}
    require_as_made(target, files, "its manifest", "the file as it was published")
    return Earlier(index, products, files, blocks, shown is not None)
