"""Where the page reads the results of a tier: in the folder of a run, or in its publication."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpatlas.core.files import read_json
from dpatlas.core.records import read_record
from dpatlas.errors import InputError
from dpatlas.evidence.verdicts import check_files, read_claims, read_comparisons
from dpatlas.records import diverged_at
from dpatlas.report.lineage import MANIFEST, cost_beside, read_lineage

Record = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """The results of a tier. address: what leads from the page to their folder, with a slash.

    A publication has no records; its manifest says of each what it was made of.
    """

    folder: Path
    address: str = "../"

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """Rows of claims.csv; InputError for a folder without them."""
        return read_claims(self.folder, "evidence", "expected")

    @property
    def comparisons(self) -> list[dict[str, str]]:
        """Rows of comparisons.csv; none where the verdicts are of before there was one."""
        return read_comparisons(self.folder)

    @cached_property
    def manifest(self) -> Mapping[str, Any] | None:
        """What a publication says of itself; None for the folder of a run."""
        path = self.folder / MANIFEST
        return read_json(path) if path.is_file() else None

    def products(self, show: Collection[str] | None = None) -> list[Path]:
        """The chart of each figure and the csv of each table, of these names or of all.

        Raises InputError for a verdict whose figure or table is not there.
        """
        check_files(self.folder, self.rows)
        return [
            path
            for pattern in ("figures/*.json", "tables/*.csv")
            for path in sorted(self.folder.glob(pattern))
            if show is None or path.stem in show
        ]

    def lineage(self, name: str) -> dict[str, Any]:
        """Where a figure or table came from; InputError if nothing says so."""
        if self.manifest is None:
            return read_lineage(self.folder / "lineage" / f"{name}.json")
        try:
            return dict(self.manifest["products"][name])
        except (KeyError, TypeError):
            raise InputError(str(self.folder / MANIFEST), f"no {name}", "a manifest") from None

    def trace(self, name: str) -> str:
        """What leads from the page to the file that names the records behind a figure or table."""
        return self.address + (MANIFEST if self.manifest else f"lineage/{name}.json")

    def records(self, names: Mapping[str, Any]) -> list[Record]:
        """What is known of the records of a lineage, with their cost and where runs diverged.

        Raises InputError for a record that is missing or damaged.
        """
        if self.manifest is None:
            return [_of_run(self.folder / names[name]["path"]) for name in sorted(names)]
        return [_of_manifest(self.manifest, name) for name in sorted(names)]


def _of_run(path: Path) -> Record:
    record = read_record(path)
    return {**record, "cost": cost_beside(path), "diverged": diverged_at(record)}


def _of_manifest(manifest: Mapping[str, Any], name: str) -> Record:
    record = manifest["records"][name]
    data = manifest["data"].get(record["data"]) if record["data"] else None
    ledger = manifest.get("ledgers", {}).get(record.get("ledger"), {})
    return {
        "id": name,
        "key": record["spec"]["key"],
        "spec": record["spec"],
        "code_digest": record["code_digest"],
        "device": record["device"],
        "seeds": record.get("seeds", {}),
        "versions": _united(manifest["versions"]),
        "data": data,
        "ledger": ledger,
        "cost": None,
        "diverged": [],
    }


def _united(versions: Sequence[Mapping[str, str]]) -> dict[str, str]:
    names = dict.fromkeys(name for each in versions for name in each)
    return {
        name: " or ".join(dict.fromkeys(each[name] for each in versions if name in each))
        for name in names
    }
