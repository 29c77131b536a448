"""Where a result came from: from a figure, table or record back to specs, code, data and commands.

A trace is a plain dict, the same that `explain --json` prints. Every trace has `kind`, `tier`,
`file`, `command` (what makes it again), and with the kind:

- `figure`, `table`: `name`, `sha256`, `as_made`, `module`, `code_digest`, `code_now`,
  `code_unchanged`, `settings`, `versions`, `outputs` (sha256 by file), `claims` that rest on it
  (`claim`, `verdict`), and `records`, a trace each;
- `record`, `data`, `features`: `id`, `key`, `present`, `sha256`, `sha256_in_lineage`, `as_used`,
  `module`, `code_digest`, `code_now`, `code_unchanged`, `spec`, `seeds`, `data`, `features`,
  `backbone`, `versions`, `device`, `ledger`, `cost`, `extra`; asked for by itself also `used_by`
  (names) and `claims`. The sha256 of data and features is that of their arrays, as in their
  manifest; `present` says whether the file that tells all this is there;
- `claim`: `name`, `entry` (its row of claims.csv), `compared` (its rows of comparisons.csv),
  `parts`, `products`, `records`;
- `run`, a whole tier: `name`, `claims` (all of them), `products`, `records`.

What does not apply or is not known is null. Records are read as the JSON that they are: one of
before its kind had a class can be traced too.
"""

import difflib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dpatlas.core.costs import read_cost
from dpatlas.core.files import read_json
from dpatlas.core.folders import command
from dpatlas.core.records import read_record
from dpatlas.errors import InputError
from dpatlas.evidence.verdicts import CLAIMS, read_claims, read_comparisons
from dpatlas.records import inputs_used
from dpatlas.registry import block_of
from dpatlas.report.state import code_state, file_state

RECORD, COST, MANIFEST = "record.json", "cost.json", "manifest.json"
JSON_TYPES = {str: "text", dict: "an object", list: "a list", type(None): "null"}
# What the fields of the files that a trace is read from hold.
LINEAGE_SHAPE: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "kind": (str,),
    "tier": (str,),
    "module": (str,),
    "code_digest": (str,),
    "settings": (dict,),
    "records": (dict,),
    "outputs": (dict,),
    "versions": (dict,),
}
RECORD_SHAPE: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "key", "spec_digest", "code_digest", "device"), (str,)),
    **dict.fromkeys(("spec", "versions", "metrics"), (dict,)),
    **dict.fromkeys(("data", "seeds", "ledger"), (dict, type(None))),
}
COST_SHAPE: dict[str, tuple[type, ...]] = {"device": (str,)}
PUBLISHED_SHAPE: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("products", "records", "data"), (dict,)),
    "versions": (list,),
}
LINEAGE_FIELDS = tuple(LINEAGE_SHAPE)
FACTS = ("key", "spec", "seeds", "data", "versions", "device", "ledger", "code_digest")
# The modules that make what is no record, by the folder where it lies.
MAKERS = {"data": "dpatlas.data.prepare", "features": "dpatlas.jobs.features"}
# The key of records that no block makes: of one's own trainings by a settings file; their module.
TRAIN, OWN_TRAINING = "train", "dpatlas.train.run"
TRACEABLE = "a figure, table or record of a run, its data or features"
KINDS = "a figure, table, record, claim, data set or features"
# So many names that come near are told.
NEAR = 3
Trace = dict[str, Any]


def find(target: str, results: Path, tier: str) -> Trace:
    """The trace of a name at `results`/`tier`, of a path, or of the folder of a tier's results.

    A name is that of a figure or table, or the id of a record, data set, features or claim.
    Raises InputError, with what comes near, for what is neither.
    """
    folder, path = results / tier, Path(target)
    if path.name == target and folder.is_dir():
        named = _by_name(target, folder)
        if named is not None:
            return named
    if _is_run(path):
        return trace_run(path)
    if path.exists():
        return trace(path)
    if path.name != target:
        raise InputError(target, "no such file", _near_files(path))
    if not folder.is_dir():
        missing = f"no such file, and no results of tier {tier} in {results}"
        if _is_run(results):
            itself = results.resolve()
            allowed = f"--results {os.path.relpath(itself.parent)} --tier {itself.name}"
        elif tiers := sorted(each.name for each in results.glob("*/") if _is_run(each)):
            allowed = f"--tier {' or '.join(tiers)}"
        else:
            allowed = "a path, or a name after a run"
        raise InputError(target, missing, allowed)
    near = _near(target, _names(folder))
    allowed = f"{', '.join(near)}; or another name of {KINDS}" if near else f"the name of {KINDS}"
    if not (folder / CLAIMS).is_file():
        allowed += f"; claims have a name after {command('claims', folder.name)}"
    raise InputError(target, f"no such file or name at tier {folder.name}", allowed)


def _is_run(folder: Path) -> bool:
    """Whether it is the folder of a tier's results, as made or as published."""
    return folder.is_dir() and ((folder / "lineage").is_dir() or "products" in _manifest(folder))


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
        folder = path = _above(folder / MANIFEST, 1)
    if folder.resolve().parent.name in MAKERS and (folder / MANIFEST).is_file():
        return _with_users(_made_beside_runs(folder))
    if path.is_dir() or path.name == COST:
        if not (folder / RECORD).is_file():
            raise InputError(str(path), f"no {RECORD}", "the folder of a run")
        return _trace_record(folder / RECORD)
    if path.suffix != ".json" or folder.resolve().name == "figures":
        return _trace_product(path)
    content = read_json(path)
    if isinstance(content, dict) and "spec_digest" in content:
        return _trace_record(path)
    return _product(read_lineage(path), path, _above(path, 1), {}, None)


def trace_run(folder: Path) -> Trace:
    """The trace of all results of a tier, or of a published run."""
    lineages = products_of(folder)
    tier = folder.resolve().name
    whole = _together([_trace_named(folder, *each) for each in lineages.items()])
    known = {record["id"] for record in whole["records"]}
    whole["records"] += [
        _record(path, _read_record(path))
        for path in _records(folder)
        if path.parent.name not in known
    ]
    return {
        "kind": "run",
        "name": tier,
        "tier": tier,
        "file": str(folder),
        "command": command("", tier),
        "claims": [_verdict(row) for row in _claims(folder)],
        **whole,
    }


def read_lineage(path: Path | str) -> dict[str, Any]:
    """A lineage file; InputError if it is missing, torn or of another shape."""
    content = read_json(path)
    fields = content if isinstance(content, dict) else {}
    missing = [name for name in LINEAGE_FIELDS if name not in fields]
    if missing:
        raise InputError(str(path), f"no {', '.join(missing)}", "a lineage file")
    return _shaped(path, fields, LINEAGE_SHAPE)


def products_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Lineage by name of every figure and table of a tier's results, or of a published run."""
    if (folder / "lineage").is_dir():
        return {path.stem: read_lineage(path) for path in sorted(folder.glob("lineage/*.json"))}
    return dict(_manifest(folder).get("products", {}))


def cost_beside(record: Path) -> dict[str, Any] | None:
    """What the run of a record cost, from the file beside it; None without one."""
    path = record.with_name(COST)
    return _shaped(path, read_cost(path), COST_SHAPE) if path.is_file() else None


def _read_record(path: Path) -> dict[str, Any]:
    return _shaped(path, read_record(path), RECORD_SHAPE)


def _shaped(
    path: Path | str, content: dict[str, Any], shape: Mapping[str, tuple[type, ...]]
) -> dict[str, Any]:
    """The content of a JSON file; InputError for a field that holds something of another type."""
    for name, types in shape.items():
        if not isinstance(content.get(name), types):
            found = "nothing" if name not in content else f"{content[name]!r}"
            kinds = [JSON_TYPES[each] for each in types]
            raise InputError(f"{path}: {name}", found, " or ".join(kinds))
    return content


def job_module(key: str, kind: str | None) -> str:
    """Name of the module that makes records of this kind; of the block alone if it is not known."""
    if key == TRAIN:
        return OWN_TRAINING
    block = block_of(key)
    return block.job_module(kind) if kind else block.package


def block_key(module: str) -> str:
    """Key of the block that a module of a figure or of jobs belongs to.

    Publications of before blocks had folders name a module after the key.
    """
    parts = module.split(".")
    return parts[2] if parts[1] in ("papers", "checks") else parts[-1]


def _by_name(name: str, folder: Path) -> Trace | None:
    lineages = products_of(folder)
    if name in lineages:
        return _trace_named(folder, name, lineages[name])
    for path in _records(folder):
        if path.parent.name == name:
            return _trace_record(path)
    if name in (known := _published_facts(_manifest(folder))):
        facts = known[name]
        path = folder / "runs" / facts["spec"]["key"] / name / RECORD
        return _with_users(_record_behind(path, name, facts["sha256"], facts))
    for kind in MAKERS:
        if (folder / kind / name / MANIFEST).is_file():
            return trace(folder / kind / name)
    rows = {row["claim"]: row for row in _claims(folder)}
    return _trace_claim(folder, rows, name, lineages) if name in rows else None


def _trace_named(folder: Path, name: str, lineage: Mapping[str, Any]) -> Trace:
    """The trace of a figure or table of `products_of(folder)`; of an edited file of it, if any."""
    outputs = {
        folder / f"{lineage['kind']}s" / each: sha for each, sha in lineage["outputs"].items()
    }
    states = {path: file_state(path, sha) for path, sha in outputs.items() if path.is_file()}
    if not states:
        raise InputError(str(folder), f"no file of {name}", "its results, which snakemake makes")
    edited = [path for path, state in states.items() if not state.as_made]
    return _trace_product([*edited, *states][0])


def _trace_product(path: Path) -> Trace:
    results = _above(path, 1)
    lineage = results / "lineage" / f"{path.stem}.json"
    published = _manifest(results)
    if lineage.is_file():
        content, known = read_lineage(lineage), {}
    elif path.stem in published.get("products", {}):
        content, known = published["products"][path.stem], _published_facts(published)
    else:
        raise InputError(str(path), f"no lineage of {path.stem} beside it", TRACEABLE)
    if path.name not in content["outputs"]:
        made = ", ".join(sorted(content["outputs"]))
        raise InputError(str(path), "a file that its lineage does not name", f"one of {made}")
    return _product(content, path, results, known, content["outputs"][path.name])


def _published_facts(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What a published run still says about each record, by id; nothing without a manifest."""
    if not manifest:
        return {}
    versions = manifest["versions"]
    shared = {"versions": versions[0]} if len(versions) == 1 else {}
    return {
        name: {
            **shared,
            **record,
            "data": manifest["data"].get(record["data"]),
            "ledger": manifest.get("ledgers", {}).get(record.get("ledger")),
        }
        for name, record in manifest["records"].items()
    }


def _product(
    lineage: Mapping[str, Any],
    path: Path,
    results: Path,
    known: Mapping[str, Mapping[str, Any]],
    recorded: str | None,
) -> Trace:
    """known: facts about records whose files may be gone. recorded: sha256 of `path`, if any is."""
    state = file_state(path, recorded)
    code = code_state(lineage["module"], lineage["code_digest"])
    return {
        "kind": lineage["kind"],
        "name": lineage["name"],
        "tier": lineage["tier"],
        "file": str(path),
        "sha256": state.now,
        "as_made": state.as_made,
        "command": command(lineage["name"], lineage["tier"]),
        "module": lineage["module"],
        "code_digest": lineage["code_digest"],
        "code_now": code.now,
        "code_unchanged": code.as_made,
        "settings": lineage["settings"],
        "versions": lineage["versions"],
        "outputs": lineage["outputs"],
        "claims": _claims_on(results, {lineage["name"]}),
        "records": [
            _record_behind(results / entry["path"], name, entry["sha256"], known.get(name, {}))
            for name, entry in lineage["records"].items()
        ],
    }


def _record_behind(path: Path, name: str, recorded: str, known: Mapping[str, Any]) -> Trace:
    if path.is_file():
        return _record(path, _read_record(path), recorded)
    return _record(path, {"id": name, "key": path.parent.parent.name, **known}, recorded)


def _trace_record(path: Path) -> Trace:
    return _with_users(_record(path, _read_record(path)))


def _record(path: Path, facts: Mapping[str, Any], recorded: str | None = None) -> Trace:
    """The trace of the record at `path`; `facts` are its fields, or those known without the file.

    recorded: the sha256 that a lineage gives it.
    """
    inputs, folder = inputs_used(facts), _above(path, 3)
    if features := inputs["features"]:
        manifest = folder / "features" / features["id"] / MANIFEST
        inputs["features"] = {**features, "manifest": str(manifest)}
    module = job_module(facts["key"], (facts.get("spec") or {}).get("kind"))
    state = file_state(path, recorded)
    weights = {"extra": _weights(path.parent / "backbone" / MANIFEST)}
    return _node(path, folder, module, state.now, {**facts, **inputs, **weights}, recorded)


def _node(
    path: Path,
    folder: Path,
    module: str,
    sha: str | None,
    facts: Mapping[str, Any],
    recorded: str | None = None,
    kind: str = "record",
) -> Trace:
    """What records, data sets and features have in common; `folder` is that of their tier.

    The trace of a record elsewhere, as of one's own training, names no tier and no command.
    """
    present = path.is_file()
    code = code_state(module, facts.get("code_digest"))
    in_tier = kind != "record" or _above(path.resolve(), 2).name == "runs"
    tier = folder.resolve().name if in_tier else None
    in_results = folder.resolve().parent.name == "results"
    target = f"results/{tier}/{path.resolve().relative_to(folder.resolve()).as_posix()}"
    return {
        "kind": kind,
        "id": facts["id"],
        "tier": tier,
        "file": str(path),
        "present": present,
        "sha256": sha,
        "sha256_in_lineage": recorded,
        "as_used": None if recorded is None or not present else sha == recorded,
        "command": command(target, tier) if tier and in_results else None,
        "module": module,
        "code_now": code.now,
        "code_unchanged": code.as_made,
        **{name: facts.get(name) for name in (*FACTS, "features", "backbone", "extra")},
        "cost": cost_beside(path) if kind == "record" and present else None,
    }


def _weights(manifest: Path) -> dict[str, Any] | None:
    """What a record that made a backbone says of it."""
    if not manifest.is_file():
        return None
    content = read_json(manifest)
    names = ("architecture", "features", "parameters", "sha256")
    return {"weights": {name: content.get(name) for name in names}}


def _made_beside_runs(folder: Path) -> Trace:
    """The trace of a prepared data set or of a frozen backbone's features."""
    path, kind = folder / MANIFEST, folder.resolve().parent.name
    content = read_json(path)
    needed = ("sha256", "options", "source") if kind == "data" else ("sha256", "backbone", "data")
    if not isinstance(content, dict) or not set(needed) <= set(content):
        raise InputError(str(path), "another shape", f"a manifest with {', '.join(needed)}")
    facts = {**content, "id": folder.resolve().name, "key": kind}
    if kind == "data":
        facts["spec"] = {**content["options"], "preprocessing": content.get("preprocessing")}
        facts["data"] = {name: content.get(name) for name in ("name", "what", "source")}
        facts["extra"] = {name: content.get(name) for name in ("licence", "counts", "shapes")}
    else:
        facts["spec"] = {name: content[name]["id"] for name in ("data", "backbone")}
        facts["data"] = {"name": content["data"]["id"], "sha256": content["data"]["sha256"]}
        facts["extra"] = {"arrays": content.get("arrays")}
    return _node(path, _above(path, 2), MAKERS[kind], content["sha256"], facts, kind=kind)


def _with_users(node: Trace) -> Trace:
    """A record, data or features with what uses it, and the claims on that."""
    folder = _above(Path(node["file"]), 3 if node["kind"] == "record" else 2)
    products: list[str] = []
    sha = node["sha256"]
    if node["kind"] == "record":
        lineages = products_of(folder).items()
        products = [name for name, lineage in lineages if node["id"] in lineage["records"]]
        sha = node["extra"] and node["extra"]["weights"]["sha256"]
    users = [name for name, inputs in _inputs(folder).items() if sha in inputs] if sha else []
    return {**node, "used_by": [*products, *users], "claims": _claims_on(folder, products)}


def _inputs(folder: Path) -> dict[str, set[str]]:
    """By id of each record and each set of features: the sha256 of what it was made from."""
    inputs: dict[str, set[str]] = {}
    for path in sorted(folder.glob(f"features/*/{MANIFEST}")):
        content = read_json(path)
        inputs[path.parent.name] = {content[name]["sha256"] for name in ("data", "backbone")}
    for path in _records(folder):
        record = _read_record(path)
        used = [record["data"], *inputs_used(record).values()]
        inputs[path.parent.name] = {each["sha256"] for each in used if each and "sha256" in each}
    return inputs


def _trace_claim(
    folder: Path,
    rows: Mapping[str, Mapping[str, str]],
    name: str,
    lineages: Mapping[str, Mapping[str, Any]],
) -> Trace:
    """The trace of a claim, or of a part; `rows` of claims.csv by claim."""
    tier = folder.resolve().name
    behind = [each for each in _evidence(rows[name]) if each in lineages]
    return {
        "kind": "claim",
        "name": name,
        "tier": tier,
        "file": str(folder / CLAIMS),
        "command": command("claims", tier),
        "entry": rows[name],
        "compared": [row for row in read_comparisons(folder) if row["claim"] == name],
        "parts": [
            {"claim": each, "verdict": part["verdict"]}
            for each, part in rows.items()
            # A part is named after its claim, with a letter.
            if each[:-1] == name and each[-1].isalpha()
        ],
        **_together([_trace_named(folder, each, lineages[each]) for each in behind]),
    }


def _together(products: list[Trace]) -> dict[str, list[Trace]]:
    """Products without records, and every record behind them once."""
    records = {record["id"]: record for product in products for record in product["records"]}
    bare = [{k: v for k, v in product.items() if k != "records"} for product in products]
    return {"products": bare, "records": list(records.values())}


def _claims(folder: Path) -> list[dict[str, str]]:
    return read_claims(folder) if (folder / CLAIMS).is_file() else []


def _claims_on(folder: Path, names: Collection[str]) -> list[dict[str, str]]:
    """Claims of `folder` whose evidence is one of the figures or tables `names`, with verdicts."""
    return [_verdict(row) for row in _claims(folder) if set(names) & set(_evidence(row))]


def _verdict(row: Mapping[str, str]) -> dict[str, str]:
    return {"claim": row["claim"], "verdict": row["verdict"]}


def _evidence(row: Mapping[str, str]) -> list[str]:
    """Names of the figures and tables that a row of claims.csv rests on."""
    return [Path(each).stem for each in (row.get("evidence") or "").split(";") if each]


def _records(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"runs/*/*/{RECORD}"))


def _manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a published run, empty without one or for one of something else."""
    path = folder / MANIFEST
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, dict) or "products" not in content:
        return {}
    return _shaped(path, content, PUBLISHED_SHAPE)


def _above(path: Path, levels: int) -> Path:
    """The folder `levels` above that of `path`, as short as `path` says it; the root at most."""
    named = len(path.parts) > levels and ".." not in path.parts[-levels - 1 :]
    parents = path.parents if named else path.resolve().parents
    return parents[min(levels, len(parents) - 1)]


def _names(folder: Path) -> list[str]:
    made = [path.parent.name for kind in MAKERS for path in folder.glob(f"{kind}/*/{MANIFEST}")]
    claims = [row["claim"] for row in _claims(folder)]
    records = [path.parent.name for path in _records(folder)]
    records += _manifest(folder).get("records", {})
    return [*products_of(folder), *claims, *records, *sorted(made)]


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
