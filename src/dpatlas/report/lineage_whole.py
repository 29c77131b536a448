"""Traces by name, and those of many results at once: a claim, a whole tier.

A name is that of a figure or table, or the id of a record, data set, features or claim, at one
tier.
"""

import difflib
from pathlib import Path
from typing import Any

from dpatlas.core.files import read_json
from dpatlas.errors import InputError
from dpatlas.report.lineage import (
    MAKERS,
    MANIFEST,
    RECORD,
    Trace,
    claims_on,
    command,
    evidence_of,
    products_of,
    read_claims,
    trace,
    trace_named,
    trace_record,
)

KINDS = "a figure, table, record, claim, data set or features"
NEAR = 3


def find(target: str, results: Path, tier: str) -> Trace:
    """The trace of a name at `results`/`tier`, of a path, or of the folder of a tier's results.

    Raises InputError, with what comes near, for what is neither.
    """
    folder, path = results / tier, Path(target)
    if path.name == target and folder.is_dir():
        found = _by_name(target, folder)
        if found is not None:
            return found
    if path.is_dir() and ((path / "lineage").is_dir() or "products" in _manifest(path)):
        return trace_run(path)
    if path.exists():
        return trace(path)
    if path.name != target:
        raise InputError(target, "no such file", _near_files(path))
    if not folder.is_dir():
        tiers = sorted(each.name for each in results.glob("*/") if (each / "lineage").is_dir())
        missing = f"no such file, and no results of tier {tier} in {results}"
        allowed = f"--tier {' or '.join(tiers)}" if tiers else "a path, or a name after a run"
        raise InputError(target, missing, allowed)
    near = _near(target, _names(folder))
    allowed = f"{', '.join(near)}; or another name of {KINDS}" if near else f"the name of {KINDS}"
    raise InputError(target, f"no such file or name at tier {folder.name}", allowed)


def trace_claim(folder: Path, name: str) -> Trace:
    """The trace of a claim, or of a part, of the results in `folder`.

    Raises InputError for a claim that claims.csv does not have.
    """
    rows = {row["claim"]: row for row in read_claims(folder)}
    if name not in rows:
        raise InputError(str(folder), f"no claim {name}", "one of claims.csv")
    row, lineages = rows[name], products_of(folder)
    products = [
        trace_named(folder, each, lineages[each]) for each in evidence_of(row) if each in lineages
    ]
    return {
        "kind": "claim",
        "name": name,
        "tier": folder.resolve().name,
        "file": str(folder / "claims.csv"),
        "command": command("claims", folder.resolve().name),
        "entry": row,
        "parts": [
            {"claim": each, "verdict": part["verdict"]}
            for each, part in rows.items()
            # A part is named after its claim, with a letter.
            if each[:-1] == name and each[-1].isalpha()
        ],
        **_without_their_records(products),
    }


def trace_run(folder: Path) -> Trace:
    """The trace of all results of a tier, or of a published run."""
    lineages = products_of(folder)
    products = [trace_named(folder, name, lineage) for name, lineage in lineages.items()]
    tier = folder.resolve().name
    whole = _without_their_records(products)
    known = {record["id"] for record in whole["records"]}
    beside = [path for path in _records(folder) if path.parent.name not in known]
    whole["records"] += [_plain(trace_record(path)) for path in beside]
    return {
        "kind": "run",
        "name": tier,
        "tier": tier,
        "file": str(folder),
        "command": command("", tier),
        "claims": claims_on(folder, set(lineages)),
        **whole,
    }


def _without_their_records(products: list[Trace]) -> dict[str, list[Trace]]:
    """Products without records, and every record behind them once."""
    records = {record["id"]: record for product in products for record in product["records"]}
    bare = [{k: v for k, v in product.items() if k != "records"} for product in products]
    return {"products": bare, "records": list(records.values())}


def _plain(record: Trace) -> Trace:
    return {name: value for name, value in record.items() if name not in ("used_by", "claims")}


def _by_name(name: str, folder: Path) -> Trace | None:
    lineages = products_of(folder)
    if name in lineages:
        return trace_named(folder, name, lineages[name])
    for path in _records(folder):
        if path.parent.name == name:
            return trace_record(path)
    for kind in MAKERS:
        if (folder / kind / name / MANIFEST).is_file():
            return trace(folder / kind / name)
    known = {row["claim"] for row in read_claims(folder)}
    return trace_claim(folder, name) if name in known else None


def _names(folder: Path) -> list[str]:
    made = [path.parent.name for kind in MAKERS for path in folder.glob(f"{kind}/*/{MANIFEST}")]
    claims = [row["claim"] for row in read_claims(folder)]
    records = [path.parent.name for path in _records(folder)]
    return [*products_of(folder), *claims, *records, *sorted(made)]


def _records(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"runs/*/*/{RECORD}"))


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    content = read_json(path) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def _near(target: str, names: list[str]) -> list[str]:
    """Names that `target` is a part of, then those that look like it."""
    holding = [name for name in names if target.lower() in name.lower()]
    alike = difflib.get_close_matches(target, names, NEAR)
    return list(dict.fromkeys([*holding[:NEAR], *alike]))[:NEAR]


def _near_files(path: Path) -> str:
    if not path.parent.is_dir():
        return f"a path that exists: there is no folder {path.parent}"
    near = _near(path.name, sorted(each.name for each in path.parent.iterdir()))
    return f"{', '.join(near)} of that folder" if near else f"a file or the name of {KINDS}"
