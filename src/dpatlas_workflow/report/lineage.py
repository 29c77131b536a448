"""Where a result came from: from a figure, table or record back to specs, code, data and commands.

A trace is a plain dict, the same that `explain --json` prints. Every trace has `kind`, `tier`,
`file`, `command` (what makes it again), and with the kind:

- `figure`, `table`: `name`, `sha256`, `as_made`, `module`, `code_digest`, `code_now`,
  `code_unchanged`, `settings`, `versions`, `outputs` (sha256 by file), `claims` that rest on it
  (`claim`, `verdict`), and `records`, a trace each;
- `record`, `data`, `features`: `id`, `key`, `present`, `sha256`, `sha256_in_lineage`, `as_used`,
  `module`, `code_digest`, `code_now`, `code_unchanged`, `spec`, `seeds`, `data`, `features`,
  `backbone`, `versions`, `device`, `processor`, `ledger`, `cost`, `extra`; asked for by itself also
  `used_by` (names) and `claims`. The sha256 of data and features is that of their arrays, as in
  their manifest; `present` says whether the file that tells all this is there;
- `claim`: `name`, `entry` (its row of claims.csv), `compared` (its rows of comparisons.csv),
  `parts`, `products`, `records`;
- `run`, a whole tier: `name`, `claims` (all of them), `products`, `records`.

What does not apply or is not known is null. All is read from the `Index` of a tier.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dpatlas.base.files import read_json
from dpatlas.base.folders import command
from dpatlas.errors import InputError
from dpatlas_workflow.evidence.verdicts import CLAIMS, is_part, read_comparisons
from dpatlas_workflow.report.index import (
    COST,
    MAKERS,
    MANIFEST,
    RECORD,
    Index,
    Node,
    above,
    arrays_node,
    cost_beside,
    evidence_of,
    product_node,
    read_lineage,
    read_record,
    record_node,
    verdict_of,
)
from dpatlas_workflow.report.state import as_made, file_sha256, sha256_now

TRACEABLE = "a figure, table or record of a run, its data or features"
KINDS = "a figure, table, record, claim, data set or features"
FACTS = (
    *("key", "spec", "seeds", "data", "versions", "device", "ledger", "code_digest"),
    *("features", "backbone", "extra"),
)
# So many names that come near are told.
NEAR = 3
Trace = dict[str, Any]


def find(target: str, results: Path, tier: str) -> Trace:
    """The trace of a name at `results`/`tier`, of a path, or of the folder of a tier's results.

    A name is that of a figure or table, or the id of a record, data set, features or claim.
    Raises InputError, with what comes near, for what is neither.
    """
    index, path = Index(results / tier), Path(target)
    if path.name == target and index.folder.is_dir() and (named := _by_name(target, index)):
        return named
    if path.is_dir() and Index(path).is_run:
        return trace_run(Index(path))
    if path.exists():
        return trace(path)
    if path.name != target:
        raise InputError(target, "no such file", _near_files(path))
    if not index.folder.is_dir():
        runs = sorted(run.name for run in results.glob("*/") if Index(run).is_run)
        allowed = f"--tier {' or '.join(runs)}" if runs else "a path, or a name after a run"
        if results.is_dir() and Index(results).is_run:
            run = results.resolve()
            allowed = f"--results {os.path.relpath(run.parent)} --tier {run.name}"
        missing = f"no such file, and no results of tier {tier} in {results}"
        raise InputError(target, missing, allowed)
    records = [*index.record_paths, *index.published.get("records", {})]
    near = _near(target, [*index.products, *index.claims, *records, *index.arrays])
    allowed = f"{', '.join(near)}; or another name of {KINDS}" if near else f"the name of {KINDS}"
    if not index.claims:
        allowed += f"; claims have a name after {command('claims', index.folder.name)}"
    raise InputError(target, f"no such file or name at tier {index.folder.name}", allowed)


def _by_name(name: str, index: Index) -> Trace | None:
    if name in index.products:
        return _trace_named(index, index.products[name])
    published = index.published.get("records", {})
    if name in index.record_paths or name in published:
        return _with_users(index.record(name), index, published.get(name, {}).get("sha256"))
    if name in index.arrays:
        return trace(index.arrays[name])
    return _trace_claim(index, name) if name in index.claims else None


def trace(path: Path | str) -> Trace:
    """The trace of a file of a figure or table, a record, data, features, backbone or lineage.

    For all but the first and the last the folder will do. Raises InputError for a path that does
    not exist or that nothing in its folder accounts for.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(str(path), "no such file", TRACEABLE)
    folder = path if path.is_dir() else path.parent
    if folder.resolve().name == "backbone" and (folder.resolve().parent / RECORD).is_file():
        folder = path = above(folder / MANIFEST, 1)
    if folder.resolve().parent.name in MAKERS and (folder / MANIFEST).is_file():
        return _with_users(arrays_node(folder / MANIFEST), Index(above(folder / MANIFEST, 2)))
    if path.is_dir() or path.name == COST:
        path = folder / RECORD
        if not path.is_file():
            raise InputError(str(folder), f"no {RECORD}", "the folder of a run")
    if path.suffix != ".json" or folder.resolve().name == "figures":
        return _trace_product(path)
    content = read_json(path)
    if isinstance(content, dict) and "spec_digest" in content:
        return _with_users(record_node(path, read_record(path)), Index(above(path, 3)))
    return _product(product_node(path, read_lineage(path)), path, Index(above(path, 1)))


def trace_run(index: Index) -> Trace:
    """The trace of all results of a tier, or of a published run."""
    tier = index.tier
    behind = _together(_trace_named(index, node) for node in index.products.values())
    known = {record["id"] for record in behind["records"]}
    behind["records"] += [_node(index.record(n)) for n in index.record_paths if n not in known]
    return {
        "kind": "run",
        "name": tier,
        "tier": tier,
        "file": str(index.folder),
        "command": command("", tier),
        "claims": [verdict_of(row) for row in index.claims.values()],
        **behind,
    }


def _trace_named(index: Index, node: Node) -> Trace:
    paths = {node.folder / f"{node.kind}s" / name: s for name, s in node.facts["outputs"].items()}
    there = {path: sha256_now(path) == sha for path, sha in paths.items() if path.is_file()}
    if not there:
        found = f"no file of {node.name}"
        raise InputError(str(index.folder), found, "its results, which snakemake makes")
    return _product(node, min(there, key=lambda path: there[path]), index)


def _trace_product(path: Path) -> Trace:
    index = Index(above(path, 1))
    node = index.products.get(path.stem)
    if node is None:
        raise InputError(str(path), f"no lineage of {path.stem} beside it", TRACEABLE)
    if path.name not in node.facts["outputs"]:
        made = ", ".join(sorted(node.facts["outputs"]))
        raise InputError(str(path), "a file that its lineage does not name", f"one of {made}")
    return _product(node, path, index)


def _product(node: Node, path: Path, index: Index) -> Trace:
    sha, lineage = file_sha256(path), node.facts
    return {
        "kind": node.kind,
        "name": node.name,
        "tier": lineage["tier"],
        "file": str(path),
        "sha256": sha,
        "as_made": as_made(lineage["outputs"].get(path.name), sha),
        "command": command(node.name, lineage["tier"]),
        **node.code,
        **_some(lineage, "settings", "versions", "outputs"),
        "claims": index.claims_on({node.name}),
        "records": [
            _node(index.record(name, index.tier_folder / used["path"]), used["sha256"])
            for name, used in lineage["records"].items()
        ],
    }


def _node(node: Node, recorded: str | None = None) -> Trace:
    """The trace of a record, data set or features; recorded: the sha256 that a lineage gives it.

    That of a record elsewhere, as of one's own training, names no tier and no command.
    """
    path, facts = node.path, dict(node.facts)
    is_record, present = node.kind == "record", path.is_file()
    folder = above(path, 3 if is_record else 2)
    if is_record:
        weights = path.parent / "backbone" / MANIFEST
        names = ("architecture", "features", "parameters", "sha256")
        given = {"weights": _some(read_json(weights), *names)} if weights.is_file() else None
        facts["extra"] = given
        if features := facts["features"]:
            manifest = folder / "features" / features["id"] / MANIFEST
            facts["features"] = {**features, "manifest": str(manifest)}
    else:
        facts |= {"key": node.kind, **_of_arrays(node)}
    sha = sha256_now(path) if is_record else facts["sha256"]
    in_tier = not is_record or above(path.resolve(), 2).name == "runs"
    tier = folder.resolve().name if in_tier else None
    in_results = folder.resolve().parent.name == "results"
    target = f"results/{tier}/{path.resolve().relative_to(folder.resolve()).as_posix()}"
    cost = cost_beside(path) if is_record and present else None
    return {
        "kind": node.kind,
        "id": node.name,
        "tier": tier,
        "file": str(path),
        "present": present,
        "sha256": sha,
        "sha256_in_lineage": recorded,
        "as_used": None if recorded is None or not present else sha == recorded,
        "command": command(target, tier) if tier and in_results else None,
        **{name: facts.get(name) for name in FACTS},
        **node.code,
        "processor": cost.get("processor") if cost else facts.get("processor"),
        "cost": cost,
    }


def _some(content: Mapping[str, Any], *names: str) -> Trace:
    return {name: content.get(name) for name in names}


def _of_arrays(node: Node) -> Trace:
    content = node.facts
    if node.kind == "data":
        return {
            "spec": {**content["options"], **_some(content, "preprocessing")},
            "data": _some(content, "name", "what", "source"),
            "extra": _some(content, "licence", "counts", "shapes"),
        }
    return {
        "spec": {name: content[name]["id"] for name in ("data", "backbone")},
        "data": {"name": content["data"]["id"], "sha256": content["data"]["sha256"]},
        "extra": _some(content, "arrays"),
        "features": None,
        "backbone": content["backbone"],
    }


def _with_users(node: Node, index: Index, recorded: str | None = None) -> Trace:
    users = index.users(node)
    claims = index.claims_on(set(users) & index.products.keys())
    return {**_node(node, recorded), "used_by": users, "claims": claims}


def _trace_claim(index: Index, name: str) -> Trace:
    tier, row = index.tier, index.claims[name]
    behind = [index.products[each] for each in evidence_of(row) if each in index.products]
    return {
        "kind": "claim",
        "name": name,
        "tier": tier,
        "file": str(index.folder / CLAIMS),
        "command": command("claims", tier),
        "entry": row,
        "compared": [row for row in read_comparisons(index.folder) if row["claim"] == name],
        # A part is named after its claim, with a letter.
        "parts": [
            verdict_of(part)
            for part in index.claims.values()
            if part["claim"][:-1] == name and is_part(part)
        ],
        **_together(_trace_named(index, node) for node in behind),
    }


def _together(products: Iterable[Trace]) -> dict[str, list[Trace]]:
    """Products without records, and every record behind them once."""
    bare = [{**product} for product in products]
    records = {record["id"]: record for product in bare for record in product.pop("records")}
    return {"products": bare, "records": list(records.values())}


def _near(target: str, names: list[str]) -> list[str]:
    holding = [name for name in names if target.lower() in name.lower()]
    alike = difflib.get_close_matches(target, names, NEAR)
    return list(dict.fromkeys([*holding[:NEAR], *alike]))[:NEAR]


def _near_files(path: Path) -> str:
    if not path.parent.is_dir():
        return f"a path that exists: there is no folder {path.parent}"
    near = _near(path.name, sorted(file.name for file in path.parent.iterdir()))
    return f"{', '.join(near)} of that folder" if near else f"a file or the name of {KINDS}"
