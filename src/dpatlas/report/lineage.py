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
- `claim` (see lineage_whole): `name`, `entry` (its row of claims.csv), `parts`, `products`,
  `records`;
- `run`, a whole tier: `name`, `claims`, `products`, `records`.

What does not apply or is not known is null.
"""

import functools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dpatlas.core.canonical import sha256
from dpatlas.core.digest import code_digest
from dpatlas.core.files import read_json
from dpatlas.core.records import read_record
from dpatlas.errors import InputError
from dpatlas.registry import block_of
from dpatlas.report.page_tables import read_rows

RECORD, COST, MANIFEST, CLAIMS = "record.json", "cost.json", "manifest.json", "claims.csv"
DEFAULT_TIER = "embedded"
TIERS = Path("workflow/tiers")
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
# The modules that make what is no record, by the folder where it lies.
MAKERS = {"data": "dpatlas.data.prepare", "features": "dpatlas.jobs.features"}
TRACEABLE = "a figure, table or record of a run, its data or features"
Trace = dict[str, Any]


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
        return _asked_for(_made_beside_runs(folder))
    if path.is_dir() or path.name == COST:
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
    return _asked_for(_record(Path(path), read_record(path), None))


def products_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Lineage by name of every figure and table of a tier's results, or of a published run."""
    if (folder / "lineage").is_dir():
        return {path.stem: read_lineage(path) for path in sorted(folder.glob("lineage/*.json"))}
    path = folder / MANIFEST
    return dict(read_json(path).get("products", {})) if path.is_file() else {}


def trace_named(folder: Path, name: str, lineage: Mapping[str, Any]) -> Trace:
    """The trace of a figure or table of `products_of(folder)`; of an edited file of it, if any.

    Raises InputError if no file of it is there.
    """
    paths = [folder / f"{lineage['kind']}s" / output for output in lineage["outputs"]]
    paths = [path for path in paths if path.is_file()]
    if not paths:
        raise InputError(str(folder), f"no file of {name}", "its results, which snakemake makes")
    edited = [path for path in paths if file_sha256(path) != lineage["outputs"][path.name]]
    return _trace_product((edited or paths)[0])


def claims_on(folder: Path, names: Collection[str]) -> list[dict[str, str]]:
    """Claims of `folder` whose evidence is one of the figures or tables `names`, with verdicts."""
    return [
        {"claim": row["claim"], "verdict": row["verdict"]}
        for row in read_claims(folder)
        if set(names) & set(evidence_of(row))
    ]


def read_claims(folder: Path) -> list[dict[str, str]]:
    """Rows of a tier's claims.csv, none without one; InputError for a csv of another shape."""
    path = folder / CLAIMS
    rows = read_rows(path) if path.is_file() else []
    if rows and not {"claim", "verdict"} <= set(rows[0]):
        raise InputError(str(path), "no claims", "the csv of the rule claims")
    return rows


def evidence_of(row: Mapping[str, str]) -> list[str]:
    """Names of the figures and tables that a row of claims.csv rests on."""
    return [Path(each).stem for each in (row.get("evidence") or "").split(";") if each]


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


def job_module(key: str, kind: str | None) -> str:
    """Name of the module that makes records of this kind; of the block alone if it is not known."""
    block = block_of(key)
    return block.job_module(kind) if kind else block.package


def block_key(module: str) -> str:
    """Key of the block that a module of a figure or of jobs belongs to.

    Publications of before blocks had folders name a module after the key.
    """
    parts = module.split(".")
    return parts[2] if parts[1] in ("papers", "checks") else parts[-1]


@functools.cache
def digest_now(module: str) -> str | None:
    """Code digest of `module` as it is on disk, or None if it is gone."""
    try:
        return code_digest(module)
    except InputError:
        return None


def command(target: str, tier: str) -> str:
    """The command that makes `target`, or all if it is empty, at `tier` in the project's folder."""
    words = ["snakemake", "--cores", "1", *([target] if target else [])]
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
        raise InputError(str(path), f"no lineage of {path.stem} beside it", TRACEABLE)
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
        "claims": claims_on(results, {lineage["name"]}),
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
    found = file_sha256(path) if path.is_file() else None
    metrics = facts.get("metrics") or {}
    features, backbone = (metrics.get(name) for name in ("features", "backbone"))
    if isinstance(features, dict):
        folder = _above(path, 3) / "features" / features["id"]
        features = {**features, "manifest": str(folder / MANIFEST)}
    return _node(
        path,
        _above(path, 3),
        job_module(facts["key"], (facts.get("spec") or {}).get("kind")),
        found,
        {
            **facts,
            # A backbone's own record counts its features.
            "features": features if isinstance(features, dict) else None,
            "backbone": backbone if isinstance(backbone, dict) else None,
            "extra": _weights(path.parent / "backbone" / MANIFEST),
        },
        recorded,
    )


def _node(
    path: Path,
    folder: Path,
    module: str,
    sha: str | None,
    facts: Mapping[str, Any],
    recorded: str | None = None,
    kind: str = "record",
) -> Trace:
    """What records, data sets and features have in common; `folder` is that of their tier."""
    present = path.is_file()
    cost = path.with_name(COST)
    now, digest = digest_now(module), facts.get("code_digest")
    tier = folder.resolve().name
    in_place = folder.resolve().parent.name == "results"
    place = f"results/{tier}/{path.resolve().relative_to(folder.resolve()).as_posix()}"
    return {
        "kind": kind,
        "id": facts["id"],
        "tier": tier,
        "file": str(path),
        "present": present,
        "sha256": sha,
        "sha256_in_lineage": recorded,
        "as_used": None if recorded is None or not present else sha == recorded,
        "command": command(place, tier) if in_place else None,
        "module": module,
        "code_now": now,
        "code_unchanged": None if digest is None else now == digest,
        **{name: facts.get(name) for name in (*FACTS, "features", "backbone", "extra")},
        "cost": read_json(cost) if kind == "record" and present and cost.is_file() else None,
    }


def _above(path: Path, levels: int) -> Path:
    """The folder `levels` above that of `path`, as short as `path` says it; the root at most."""
    parents = path.parents if len(path.parts) > levels else path.resolve().parents
    return parents[min(levels, len(parents) - 1)]


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


def _asked_for(found: Trace) -> Trace:
    """`found` with what uses it, and the claims on that."""
    folder = _above(Path(found["file"]), 3 if found["kind"] == "record" else 2)
    users = []
    if found["kind"] != "record":
        users = [name for name, uses in _inputs(folder).items() if found["sha256"] in uses]
        products: list[str] = []
    else:
        lineages = products_of(folder).items()
        products = [name for name, lineage in lineages if found["id"] in lineage["records"]]
        users = list(products)
        if found["extra"]:
            weights = found["extra"]["weights"]["sha256"]
            users += [name for name, uses in _inputs(folder).items() if weights in uses]
    return {**found, "used_by": users, "claims": claims_on(folder, products)}


def _inputs(folder: Path) -> dict[str, set[str]]:
    """By id of each record and each set of features: the sha256 of what it was made from."""
    found = {}
    for path in sorted(folder.glob(f"features/*/{MANIFEST}")):
        content = read_json(path)
        found[path.parent.name] = {content[name]["sha256"] for name in ("data", "backbone")}
    for path in sorted(folder.glob(f"runs/*/*/{RECORD}")):
        record = read_record(path)
        inputs = [record["data"], *(record["metrics"].get(n) for n in ("features", "backbone"))]
        found[path.parent.name] = {
            each["sha256"] for each in inputs if isinstance(each, dict) and "sha256" in each
        }
    return found
