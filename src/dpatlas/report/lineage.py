"""Where a result came from: from a figure, table or record back to specs, code, data and commands.

A trace is a plain dict, the same that `explain --json` prints. `kind` is figure, table (or whatever
else a lineage file says) or record; a product's trace holds the traces of its records.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpatlas.core.canonical import sha256
from dpatlas.core.digest import code_digest
from dpatlas.core.files import read_json
from dpatlas.core.records import read_record
from dpatlas.errors import InputError

RECORD, COST, MANIFEST = "record.json", "cost.json", "manifest.json"
DEFAULT_TIER = "embedded"
TIERS = Path("workflow/tiers")
EXPERIMENTS = "dpatlas.experiments"
LINEAGE_FIELDS = (
    "name",
    "kind",
    "tier",
    "module",
    "code_digest",
    "settings",
    "records",
    "outputs",
    "versions",
)
FACTS = ("key", "spec", "seeds", "data", "versions", "device", "ledger", "code_digest")
Trace = dict[str, Any]


def trace(path: Path | str) -> Trace:
    """The trace of a figure, table or record file, a record's folder or a lineage file.

    Raises InputError for a path that does not exist or that nothing in its folder accounts for.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(str(path), "no such file", "a figure, table or record of a run")
    if path.is_dir() or path.name == COST:
        folder = path if path.is_dir() else path.parent
        if not (folder / RECORD).is_file():
            raise InputError(str(path), f"no {RECORD}", "the folder of a run")
        return trace_record(folder / RECORD)
    if path.suffix != ".json":
        return _trace_product(path)
    content = read_json(path)
    if isinstance(content, dict) and "spec_digest" in content:
        return trace_record(path)
    return _product(read_lineage(path), path, path.parent.parent, {}, None)


def trace_record(path: Path | str) -> Trace:
    """The trace of a record that no lineage was asked about."""
    return _record(Path(path), read_record(path), None)


def read_lineage(path: Path | str) -> dict[str, Any]:
    """A lineage file; InputError if it is missing, torn or of another shape."""
    content = read_json(path)
    found = content if isinstance(content, dict) else {}
    missing = [name for name in LINEAGE_FIELDS if name not in found]
    if missing:
        raise InputError(str(path), f"no {', '.join(missing)}", "a lineage file")
    return found


def file_sha256(path: Path | str) -> str:
    """Hex sha256 of a file's bytes."""
    return sha256(Path(path).read_bytes())


@functools.cache
def digest_now(module: str) -> str | None:
    """Code digest of `module` as it is on disk, or None if it is gone."""
    try:
        return code_digest(module)
    except InputError:
        return None


def command(target: str, tier: str) -> str:
    """The command that makes `target` at `tier` from the project's folder."""
    words = ["snakemake", "--cores", "1", target]
    if (TIERS / f"{tier}.yaml").is_file():
        words += ["--configfile", str(TIERS / f"{tier}.yaml")]
    elif tier != DEFAULT_TIER:
        words += ["--configfile", f"results/{tier}/config.json"]
    return " ".join(words)


def _trace_product(path: Path) -> Trace:
    results = path.parent.parent
    lineage = results / "lineage" / f"{path.stem}.json"
    published = results / MANIFEST
    if lineage.is_file():
        content, known = read_lineage(lineage), {}
    elif published.is_file():
        manifest = read_json(published)
        content = manifest.get("products", {}).get(path.stem)
        known = _published_facts(manifest)
    else:
        content, known = None, {}
    if content is None:
        raise InputError(
            str(path), f"no lineage of {path.stem} beside it", "a figure, table or record of a run"
        )
    if path.name not in content["outputs"]:
        made = ", ".join(sorted(content["outputs"]))
        raise InputError(str(path), "a file that its lineage does not name", f"one of {made}")
    return _product(content, path, results, known, content["outputs"][path.name])


def _published_facts(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What a published run still says about each record, by id."""
    versions = manifest["versions"]
    shared = {"versions": versions[0]} if len(versions) == 1 else {}
    return {
        name: {**shared, **record, "data": manifest["data"].get(record["data"])}
        for name, record in manifest["records"].items()
    }


def _product(
    lineage: Mapping[str, Any],
    path: Path,
    results: Path,
    known: Mapping[str, Mapping[str, Any]],
    expected: str | None,
) -> Trace:
    now = digest_now(lineage["module"])
    found = file_sha256(path)
    return {
        "kind": lineage["kind"],
        "name": lineage["name"],
        "tier": lineage["tier"],
        "file": str(path),
        "sha256": found,
        "as_made": None if expected is None else found == expected,
        "command": command(lineage["name"], lineage["tier"]),
        "module": lineage["module"],
        "code_digest": lineage["code_digest"],
        "code_now": now,
        "code_unchanged": now == lineage["code_digest"],
        "settings": lineage["settings"],
        "versions": lineage["versions"],
        "outputs": lineage["outputs"],
        "records": [
            _record_behind(results / entry["path"], name, entry["sha256"], known.get(name, {}))
            for name, entry in lineage["records"].items()
        ],
    }


def _record_behind(path: Path, name: str, recorded: str, known: Mapping[str, Any]) -> Trace:
    if path.is_file():
        return _record(path, read_record(path), recorded)
    return _record(path, {"id": name, "key": path.parent.parent.name, **known}, recorded)


def _record(path: Path, facts: Mapping[str, Any], recorded: str | None) -> Trace:
    """The trace of the record at `path`; `facts` are its fields, or those known without the file.

    `recorded` is the sha256 that a lineage gives it.
    """
    present = path.is_file()
    found = file_sha256(path) if present else None
    cost = path.with_name(COST)
    module = f"{EXPERIMENTS}.{facts['key']}"
    now, digest = digest_now(module), facts.get("code_digest")
    place = path.resolve().parts[-6:]
    in_place = len(place) == 6 and (place[0], place[2]) == ("results", "runs")
    tier = path.resolve().parents[3].name if len(place) == 6 else None
    return {
        "kind": "record",
        "id": facts["id"],
        "tier": tier,
        "file": str(path),
        "present": present,
        "sha256": found,
        "sha256_in_lineage": recorded,
        "as_used": None if recorded is None or not present else found == recorded,
        "command": command("/".join(place), tier) if in_place else None,
        "module": module,
        "code_now": now,
        "code_unchanged": None if digest is None else now == digest,
        **{name: facts.get(name) for name in FACTS},
        "features": _features(path, facts),
        "cost": read_json(cost) if present and cost.is_file() else None,
    }


def _features(path: Path, facts: Mapping[str, Any]) -> dict[str, str] | None:
    """What frozen backbone's features the run took, and their manifest; None for most runs."""
    found = (facts.get("metrics") or {}).get("features")
    if not isinstance(found, dict):
        return None
    folder = path.parents[3] / "features" / found["id"]
    return {**found, "manifest": str(folder / MANIFEST)}
