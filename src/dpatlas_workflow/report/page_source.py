"""Where the page reads the results of a tier: in the folder of a run, or in its publication."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpatlas.errors import InputError
from dpatlas_workflow.evidence.verdicts import check_files, read_claims, read_comparisons
from dpatlas_workflow.records import diverged_at
from dpatlas_workflow.report.index import Index, Node, cost_beside, read_record

Record = dict[str, Any]


@dataclass(frozen=True)
class Source(Index):
    """The results of a tier. address: what leads from the page to their folder, with a slash.

    A publication has no records; its manifest says of each what it was made of.
    """

    address: str = "../"

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """Rows of claims.csv; InputError for a folder without them."""
        return read_claims(self.folder, "evidence", "expected")

    @property
    def comparisons(self) -> list[dict[str, str]]:
        """Rows of comparisons.csv; none where the verdicts are of before there was one."""
        return read_comparisons(self.folder)

    def files(self, show: Collection[str] | None = None) -> list[Path]:
        """The chart of each figure and the csv of each table, of these names or of all.

        Raises InputError for a verdict whose figure or table is not there.
        """
        check_files(self.folder, self.rows)
        return [path for name, path in self.shown.items() if show is None or name in show]

    @cached_property
    def shown(self) -> dict[str, Path]:
        """The chart of each figure and the csv of each table, by name."""
        folders = [path.parent for path in self.manifests] or [self.folder]
        return {
            path.stem: path
            for pattern in ("figures/*.json", "tables/*.csv")
            for folder in folders
            for path in sorted(folder.glob(pattern))
        }

    def product(self, name: str) -> Node:
        """A figure or table by name; InputError if nothing says where it came from."""
        if name not in self.products:
            raise InputError(str(self.folder), f"no lineage of {name}", "one by figure and table")
        return self.products[name]

    def records(self, names: Mapping[str, Any]) -> list[Record]:
        """What is known of the records of a lineage, with their cost and where runs diverged.

        Raises InputError for a record that is missing or damaged.
        """
        records = []
        for name in sorted(names):
            path = self.folder / names[name]["path"]
            if self.manifests:
                record = self.record(name, path).facts
                # Of an older publication it may be unknown which record has which versions.
                known = {what: record[what] or {} for what in ("ledger", "versions")}
                more: Record = {**known, "cost": None, "diverged": []}
            else:
                record = read_record(path)
                more = {"cost": cost_beside(path), "diverged": diverged_at(record)}
            records.append({**record, **more})
        return records


def ran(source: Source, records: Iterable[Record]) -> tuple[str | None, str | None]:
    """When the first and the last job ended whose time is known, in UTC."""
    costs = [of["cost"] for of in source.manifests.values()]
    ends = [cost[f"{end}_finished"] for cost in costs for end in ("first", "last")]
    ends += [record["cost"]["finished"] for record in records if record["cost"]]
    known = [end for end in ends if end]
    return min(known, default=None), max(known, default=None)


def commit_of_run(source: Source) -> str:
    """The commit that a publication names, if all its papers name the same; else empty."""
    commits = {of["commit"] or "" for of in source.manifests.values()}
    return commits.pop() if len(commits) == 1 else ""
