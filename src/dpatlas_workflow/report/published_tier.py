"""The folder of a published tier: a publication by paper, and what all of these say together.

Below docs/results/TIER each paper, or other block, has a folder with its own manifest. Beside them
are claims.csv, comparisons.csv and more_runs.json of all papers, and a README.md with links to
theirs. An older publication is one folder for a whole tier, which is read as if it were by paper.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpatlas.base.files import read_json, write_atomic
from dpatlas.base.folders import CONFIG, MORE_RUNS
from dpatlas.base.specs import FIRST_RUN, RUNS, condition_id
from dpatlas_workflow.config.products import all_products
from dpatlas_workflow.evidence.claims import csv_text
from dpatlas_workflow.evidence.verdicts import (
    CLAIMS,
    COMPARISONS,
    OURS,
    counted,
    read_claims,
    read_comparisons,
)
from dpatlas_workflow.report.index import (
    MANIFEST,
    README,
    Content,
    Index,
    block_key,
    publications,
    read_publication,
)
from dpatlas_workflow.report.state import require_as_made

# Manifest of a paper's publication, and its files but that and README.md.
Part = tuple[Content, dict[str, bytes]]
Rows = Sequence[Mapping[str, str]]


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def _tables(claims: Rows, compared: Rows) -> dict[str, bytes]:
    """Those of claims.csv and comparisons.csv that have a row, with all columns of some row."""
    return {
        name: csv_text(rows, [*dict.fromkeys(column for row in rows for column in row)]).encode()
        for name, rows in ((CLAIMS, claims), (COMPARISONS, compared))
        if rows
    }


def published_parts(tier: Path, replaced: Collection[str]) -> dict[str, Part]:
    """The publications of a tier by paper, without those that are replaced.

    Raises InputError for a published file that was edited.
    """
    parts: dict[str, Part] = {}
    for path in publications(tier):
        manifest, folder = read_publication(path), path.parent
        key, of = manifest.get("block"), manifest["products"].values()
        keys = {key} if key else {block_key(product["module"]) for product in of}
        if keys <= {*replaced}:
            continue
        require_as_made(folder, manifest["files"], MANIFEST, "the file as it was published")
        if key:
            files = {name: (folder / name).read_bytes() for name in manifest["files"]}
            parts[key] = manifest, files
        else:
            parts |= by_paper(manifest, folder, manifest["files"])
    return parts


def by_paper(manifest: Content, folder: Path, paths: Iterable[str]) -> dict[str, Part]:
    """Manifest and files of a tier in `folder`, a run or an older publication, by paper.

    paths: of the files of figures and tables.
    """
    blocks = {name: block_key(of["module"]) for name, of in manifest["products"].items()}
    for name in (each["name"] for each in manifest.get("waiting", ())):
        if name in all_products():
            blocks[name] = all_products()[name][1].key
    claims, comparisons = read_claims(folder, "paper", "statement"), read_comparisons(folder)
    config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else None
    parts = {}
    for key in dict.fromkeys(blocks.values()):
        part = _of_paper(manifest, key, {name for name in blocks if blocks[name] == key})
        own = [path for path in paths if Path(path).stem in part["products"]]
        files = {path: (folder / path).read_bytes() for path in own}
        rows = [row for row in claims if row["paper"] == key]
        names = {row["claim"] for row in rows}
        files |= _tables(rows, [row for row in comparisons if row["claim"] in names])
        files[MORE_RUNS] = _json(_more_runs(part["records"]))
        files |= {} if config is None else {CONFIG: public_config(config)}
        if reading := part.get("read_again"):
            of_paper = {what: sorted(names & {*reading[what]}) for what in ("judged", "withdrawn")}
            part["read_again"] = {**reading, **of_paper}
        parts[key] = part, files
    return parts


def _of_paper(manifest: Content, key: str, own: set[str]) -> Content:
    """What the manifest of a tier says of these figures and tables of a paper, there or waiting.

    The cost stays that of the whole run.
    """

    def some(what: str, names: set[Any]) -> Content:
        return {what: {name: of for name, of in manifest[what].items() if name in names}}

    part: Content = {"block": key, **manifest, **some("products", own)}
    part |= some("records", {id_ for of in part["products"].values() for id_ in of["records"]})
    records = part["records"].values()
    used = {record.get(what) for what in ("data", "ledger") for record in records}
    keys = {key, *(record["spec"]["key"] for record in records)}
    part |= some("code", {name for name in manifest["code"] if block_key(name) in keys})
    for what in {"data", "ledgers", "kept"} & manifest.keys():
        part |= some(what, own if what == "kept" else used)
    if "waiting" in manifest:
        part["waiting"] = [each for each in manifest["waiting"] if each["name"] in own]
    return part


def public_config(config: Content) -> bytes:
    """The config without the places of local data: they say something about one machine only."""
    sources = config.get("data", {})
    data = {**sources, "root": None}
    if "own" in sources:
        data["own"] = {name: {**mine, "path": name} for name, mine in sources["own"].items()}
    return _json({**config, "data": data})


def _more_runs(records: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Runs by condition, of records by id: where `decide` added any, the config alone has fewer."""
    runs: dict[str, int] = defaultdict(int)
    for name, spec in ((name, record["spec"]) for name, record in records.items()):
        if FIRST_RUN in spec:
            condition = condition_id(name.rpartition("-")[0], spec)
            runs[condition] = max(runs[condition], spec[FIRST_RUN] + spec[RUNS])
    return runs


def summaries(tier: Path) -> dict[str, bytes]:
    """claims.csv, comparisons.csv and more_runs.json of all papers published below a folder."""
    rows: list[dict[str, str]] = []
    compared: list[dict[str, str]] = []
    more: dict[str, int] = {}
    for folder in (path.parent for path in publications(tier)):
        for row in Index(folder).claims.values():
            files = (f"{folder.name}/{file}" for file in row.get("evidence", "").split(";") if file)
            rows.append({**row, "evidence": ";".join(files)})
        compared += read_comparisons(folder)
        more |= read_json(folder / MORE_RUNS)
    return {**_tables(rows, compared), MORE_RUNS: _json(more)}


def write_beside(papers: Path, tier: str) -> None:
    """Write what stands beside the papers of a tier: what they say together, and README.md."""
    for name, content in summaries(papers).items():
        write_atomic(papers / name, content)
    lines = [
        "| paper | figures and tables | wait for runs | claims of the paper | claims of our own |",
        "|---|---|---|---|---|",
    ]
    rows: list[dict[str, str]] = []
    for path in publications(papers):
        key, manifest = path.parent.name, read_publication(path)
        claims = [*Index(path.parent).claims.values()]
        numbers = (len(manifest["products"]), len(manifest.get("waiting", ())))
        cells = (f"[{key}]({key}/{README})", *numbers, counted(claims), counted(claims, OURS))
        lines.append(f"| {' | '.join(map(str, cells))} |")
        rows += claims
    head = f"""# Results of tier {tier}

Each paper has its figures, tables, verdicts, and a manifest of what made them. claims.csv,
comparisons.csv and more_runs.json are of all of these together. `python -m dpatlas explain NAME
--results docs/results --tier {tier}` traces a figure, table or claim.

Of the papers' claims: {counted(rows)}. Claims of our own stand apart: {counted(rows, OURS)}. \
Parts are not counted.

"""
    write_atomic(papers / README, head + "\n".join(lines) + "\n")
