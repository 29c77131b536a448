"""A tiny results folder in the shape of a real one: two records, a figure, a table, claims."""

import copy
from pathlib import Path
from typing import Any

from page_world import CHART

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.files import read_json, write_atomic, write_json
from dpatlas.base.records import make_record
from dpatlas.base.specs import Spec
from dpatlas_workflow.report import manifest
from dpatlas_workflow.report.state import file_sha256

DATA = {
    "name": "digits",
    "what": "small handwritten digits",
    "sha256": "d" * 64,
    "source": {"kind": "package", "file": None, "checksum": "sha256:" + "5" * 64},
    "shapes": {"x_train": [30, 64], "x_add": [6, 64]},
}
FIELDS = {
    "key": "kl_privacy",
    "kind": "training",
    "seed": 0,
    "noise_source": "keyed",
    "data": {"name": "digits", "classes": [3, 8], "n_train": 30, "norm": 8.0},
    "init": "he",
    "depth": 2,
    "width": 8,
    "outputs": 1,
    "lr": 0.05,
    "sigma": 0.01,
    "steps": 5,
    "networks": 1,
    "shown_steps": [1, 2, 3, 4, 5],
    "record_steps": [5],
    "watched": 0,
    "runs": 2,
}
CODE_NOW = "c0de" * 4
FIGURE, TABLE = "kl_vs_depth", "kl_constants"


def spec_of(**changes: Any) -> Spec:
    fields = {**copy.deepcopy(FIELDS), **changes}
    return Spec.of(fields, f"{fields['init']}-d{fields['depth']}-w{fields['width']}")


def write_run(folder: Path, spec: Spec, cost: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A record and its cost below `folder` (results/TIER); returns the record's path."""
    facts = {
        "code_digest": CODE_NOW,
        "versions": {"python": "3.11.7", "torch": "2.15.0"},
        "device": "cpu",
        "data": copy.deepcopy(DATA),
        "seeds": {"base": 0, "runs": 2},
        "ledger": {"mechanism": "noisy descent", "guaranteed": "nothing", "claimed": "a KL"},
        "metrics": {"kl": {"worst": [0.5, 1.0]}},
    }
    path = folder / "runs" / spec.key / spec.id / "record.json"
    write_json(path, make_record(spec, **(facts | changes)))
    spent = {
        "cpu_s": 7.0,
        "wall_s": 8.0,
        "peak_memory_mb": 500.0,
        "machine": "x86_64",
        "processor": "Some CPU, avx2",
        "device": "cpu",
        "host": "some-host",
        "cores": 2,
        "finished": "2026-01-02T03:04:05Z",
    }
    write_json(path.with_name("cost.json"), spent | (cost or {}))
    return path


def entries(folder: Path, records: list[Path]) -> dict[str, Any]:
    """What a lineage says of these records."""
    return {
        read_json(path)["id"]: {
            "path": path.relative_to(folder).as_posix(),
            "sha256": file_sha256(path),
        }
        for path in records
    }


def write_product(folder: Path, kind: str, name: str, records: list[Path], text: str = "") -> Path:
    """A figure or table and its lineage; returns the path of its csv."""
    suffixes = {"figure": ("pdf", "png", "svg", "csv", "json"), "table": ("csv", "md", "tex")}[kind]
    outputs = [f"{name}.{suffix}" for suffix in suffixes]
    files = {each: f"{each} {text}".encode() for each in outputs}
    if kind == "figure":
        files[f"{name}.json"] = canonical_json(CHART).encode()
    for each, content in files.items():
        write_atomic(folder / f"{kind}s" / each, content)
    lineage = {
        "name": name,
        "kind": kind,
        "tier": folder.name,
        "module": f"dpatlas_workflow.papers.{read_json(records[0])['key']}.figures.{name}",
        "code_digest": CODE_NOW,
        "settings": {"horizons": {"long": 5}},
        "records": entries(folder, records),
        "outputs": {each: sha256(content) for each, content in files.items()},
        "versions": {"matplotlib": "3.11.2"},
    }
    write_json(folder / "lineage" / f"{name}.json", lineage)
    return folder / f"{kind}s" / f"{name}.csv"


def write_manifest(folder: Path) -> None:
    """Checksums of all csv files, as the rule `manifest` writes them."""
    write_atomic(folder / manifest.NAME, manifest.manifest_of(folder, folder.rglob("*.csv")))


def small_run(results: Path, tier: str = "embedded", text: str = "", **changes: Any) -> Path:
    """The whole folder; `changes` go to every record. Returns results/TIER."""
    folder = results / tier
    records = [write_run(folder, spec_of(depth=depth), **changes) for depth in (2, 4)]
    write_product(folder, "figure", FIGURE, records, text)
    write_product(folder, "table", TABLE, records[:1], text)
    claims = "claim,paper,verdict,statement\n"
    claims += "kl-1,kl_privacy,reproduced,It grows.\nkl-2,kl_privacy,inconclusive,A | B.\n"
    write_atomic(folder / "claims.csv", claims)
    write_atomic(folder / "comparisons.csv", "claim,comparison\nkl-1,slope\nkl-2,slope\n")
    write_manifest(folder)
    return folder
