"""One index of what made what: the graph that explain, verify, publish, bundle and page walk.

A node is a figure, table, record, data set or set of features: its files with their sha256 as they
were recorded, the module and code digest that made it, and what it was made from. A run says this
in `lineage/NAME.json`, `runs/KEY/ID/record.json` and the `manifest.json` of arrays; a published
tier, which keeps no records, in one `manifest.json` by paper. Each file is checked here, once.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.costs import read_cost
from dpatlas.base.files import read_json
from dpatlas.base.records import read_record as read_json_record
from dpatlas.errors import InputError
from dpatlas_workflow.evidence.verdicts import CLAIMS, read_claims
from dpatlas_workflow.records import inputs_used
from dpatlas_workflow.registry import all_blocks, block_of
from dpatlas_workflow.report import state

RECORD, COST, MANIFEST, README = "record.json", "cost.json", "manifest.json", "README.md"
SUFFIXES = {"figures": ("pdf", "png", "csv", "json"), "tables": ("csv", "md", "tex")}
# The modules that make what is no record, by the folder where it lies.
MAKERS = {"data": "dpatlas.data.prepare", "features": "dpatlas_workflow.run.features"}
# The key of records that no block makes: of one's own trainings by a settings file; their module.
TRAIN, OWN_TRAINING = "train", "dpatlas.train.run"
# Digits of the digest by which a publication names what many records share.
DIGITS = 16
Content = dict[str, Any]


class Shape(BaseModel):
    """What a JSON file has to hold; it may hold more."""

    model_config = ConfigDict(strict=True, extra="allow", defer_build=True)


class _Used(Shape):
    path: str
    sha256: str


# lineage/NAME.json of a figure or table.
class _Lineage(Shape):
    name: str
    kind: Literal["figure", "table"]
    tier: str
    module: Annotated[str, Field(pattern=r"^\w+(\.\w+){2,}$")]
    code_digest: str
    settings: Content
    records: dict[str, _Used]
    outputs: dict[str, str]
    versions: Content


# What says of arrays which they are: by itself, or in what was made from them.
class _Arrays(Shape):
    sha256: str
    source: Content | None = None


# record.json of any kind.
class _Record(Shape):
    id: str
    key: str
    spec: Content
    spec_digest: str
    code_digest: str
    versions: Content
    device: str
    data: _Arrays | None
    seeds: Content | None
    ledger: Content | None
    metrics: Content


# manifest.json of a prepared data set, and of a backbone's features with what these were made from.
class _DataManifest(_Arrays):
    options: Content
    source: Content


class _Made(Shape):
    id: str
    sha256: str


class _FeaturesManifest(Shape):
    sha256: str
    data: _Made
    backbone: _Made


class _Cost(Shape):
    device: str
    finished: str


# A record as a publication says it; `data`, `ledger` and `versions` by digest.
class _PublishedRecord(Shape):
    sha256: str
    code_digest: str
    device: str
    spec: Content
    data: str | None
    seeds: Content | None = None
    ledger: str | None = None
    versions: str | None = None
    processor: str | None = None


# manifest.json of a publication, as of the first one.
class _Publication(Shape):
    products: dict[str, _Lineage]
    records: dict[str, _PublishedRecord]
    data: dict[str, Content]
    versions: list[Content]
    code: Content
    cost: Content
    files: dict[str, str]


def checked(shape: type[Shape], content: Any, path: Path | str) -> Content:
    """The content of a JSON file, as it is; InputError for its first field of another shape."""
    try:
        shape.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ": ".join(filter(None, [str(path), ".".join(map(str, first["loc"]))]))
        found = "nothing" if first["type"] == "missing" else repr(first["input"])
        # The class of an object says nothing to a reader.
        raise InputError(where, found, first["msg"].partition(" or instance of ")[0]) from None
    return dict(content)


def read_lineage(path: Path | str) -> Content:
    """A lineage file; InputError if it is missing, torn or of another shape."""
    return checked(_Lineage, read_json(path), path)


def read_record(path: Path) -> Content:
    """A record as the JSON that it is: one of before its kind had a class can be traced too."""
    return checked(_Record, read_json_record(path), path)


def read_publication(path: Path) -> Content:
    """The manifest of a publication; InputError for anything of another shape."""
    content = checked(_Publication, read_json(path), path)
    for name, lineage in content["products"].items():
        if lacking := sorted(set(lineage["records"]) - content["records"].keys()):
            found = f"{lacking[0]}, a record that it lacks"
            raise InputError(f"{path}: products.{name}", found, "the records of the manifest")
    return content


def publications(folder: Path) -> list[Path]:
    """Manifests of a published tier, one by paper; of an older publication one of the whole tier.

    Of the folder of one paper its own.
    """
    own = folder / MANIFEST
    below = [folder / key / MANIFEST for key in all_blocks()]
    return [path for path in ([own] if own.is_file() else below) if path.is_file()]


def cost_beside(record: Path) -> Content | None:
    """What the run of a record cost, from the file beside it; None without one."""
    path = record.with_name(COST)
    return checked(_Cost, read_cost(path), path) if path.is_file() else None


def job_module(key: str, kind: str | None) -> str:
    """Name of the module that makes records of this kind; of the block alone if it is not known."""
    if key == TRAIN:
        return OWN_TRAINING
    block = block_of(key)
    return block.job_module(kind) if kind else block.package


def module_now(name: str) -> str:
    """Today's name of a module of a block, which a result of before the two roots calls another."""
    return re.sub(r"^dpatlas\.(papers|checks)\.", r"dpatlas_workflow.\1.", name)


def block_key(module: str) -> str:
    """Key of the block that a module of a figure or of jobs belongs to."""
    return module.split(".")[2]


def short_digest(value: Any) -> str:
    """By what a publication names a value that many records share."""
    return sha256(canonical_json(value))[:DIGITS]


@dataclass(frozen=True)
class Node:
    """A figure, table, record, data set or set of features.

    path: of the file that tells of it. facts: what that file says, or a publication in its place.
    files: recorded sha256 by path from the folder of the tier. inputs: names of a product's
    records; else the sha256 of data, features and weights.
    """

    kind: str
    name: str
    path: Path
    module: str
    facts: Mapping[str, Any]
    files: Mapping[str, str]
    inputs: frozenset[str]

    @property
    def folder(self) -> Path:
        """The folder that has the product's files."""
        return above(self.path, 0 if self.path.name == MANIFEST else 1)

    @property
    def code(self) -> Content:
        """The module, its digest when it ran, and as it is on disk: None if it is gone."""
        digest, now = self.facts.get("code_digest"), state.digest_now(self.module)
        code = {"module": self.module, "code_digest": digest, "code_now": now}
        return {**code, "code_unchanged": state.as_made(digest, now)}

    @property
    def code_difference(self) -> str | None:
        """In words, how the code of today is not that of then."""
        module, digest, now, _ = self.code.values()
        return None if digest == now else f"made by {module} {digest}, which is {now} now"


def product_node(path: Path, lineage: Mapping[str, Any]) -> Node:
    """A figure or table. path: of its lineage, or of the manifest that has it."""
    outputs = {f"{lineage['kind']}s/{name}": sha for name, sha in lineage["outputs"].items()}
    used = {entry["path"]: entry["sha256"] for entry in lineage["records"].values()}
    name, records = lineage["name"], frozenset(lineage["records"])
    module = module_now(lineage["module"])
    return Node(lineage["kind"], name, path, module, lineage, outputs | used, records)


def record_node(path: Path, facts: Mapping[str, Any]) -> Node:
    """A record at `path`, which may be gone; facts: its fields, or those that are known."""
    inputs = inputs_used(facts)
    used = (facts.get("data"), *inputs.values())
    shas = frozenset(made["sha256"] for made in used if made and "sha256" in made)
    module = job_module(facts["key"], (facts.get("spec") or {}).get("kind"))
    return Node("record", facts["id"], path, module, {**facts, **inputs}, {}, shas)


def arrays_node(path: Path) -> Node:
    """A prepared data set or a backbone's features, by the manifest beside the arrays."""
    kind, content = path.resolve().parent.parent.name, read_json(path)
    checked(_DataManifest if kind == "data" else _FeaturesManifest, content, path)
    made_from = () if kind == "data" else (content["data"], content["backbone"])
    shas = frozenset(made["sha256"] for made in made_from)
    return Node(kind, path.resolve().parent.name, path, MAKERS[kind], content, {}, shas)


def above(path: Path, levels: int) -> Path:
    """The folder `levels` above that of `path`, as short as `path` says it; the root at most."""
    named = len(path.parts) > levels and ".." not in path.parts[-levels - 1 :]
    parents = path.parents if named else path.resolve().parents
    return parents[min(levels, len(parents) - 1)]


@dataclass(frozen=True)
class Index:
    """What the folder of a tier has, of a run or as published; files are read when asked.

    The folder may be that of one published paper.
    """

    folder: Path

    @cached_property
    def manifests(self) -> dict[Path, Content]:
        """Manifests of publications by path; none for a manifest of something else."""
        contents = {path: read_json(path) for path in publications(self.folder)}
        return {
            path: read_publication(path)
            for path, content in contents.items()
            if isinstance(content, dict) and "products" in content
        }

    @cached_property
    def published(self) -> Content:
        """Records, data, ledgers and versions of all manifests together; empty without one."""
        every = [*self.manifests.values()]
        by_name = {
            what: {name: of for each in every for name, of in each.get(what, {}).items()}
            for what in ("records", "data", "ledgers")
        }
        versions = [of for each in every for of in each["versions"]]
        return {**by_name, "versions": versions} if every else {}

    @cached_property
    def tier_folder(self) -> Path:
        """The folder itself, or that above a published paper's."""
        path = self.folder / MANIFEST
        return above(path, 1 if "block" in self.manifests.get(path, ()) else 0)

    @property
    def tier(self) -> str:
        """Name of the tier."""
        return self.tier_folder.resolve().name

    @property
    def is_run(self) -> bool:
        """Whether it is the folder of a tier's results, as made or as published."""
        return (self.folder / "lineage").is_dir() or bool(self.manifests)

    @cached_property
    def products(self) -> dict[str, Node]:
        """Figures and tables by name."""
        if (self.folder / "lineage").is_dir():
            paths = sorted(self.folder.glob("lineage/*.json"))
            return {path.stem: product_node(path, read_lineage(path)) for path in paths}
        return {
            name: product_node(path, facts)
            for path, manifest in self.manifests.items()
            for name, facts in manifest["products"].items()
        }

    @cached_property
    def record_paths(self) -> dict[str, Path]:
        """Of every record that is there, by id."""
        return {path.parent.name: path for path in sorted(self.folder.glob(f"runs/*/*/{RECORD}"))}

    @cached_property
    def arrays(self) -> dict[str, Path]:
        """Manifests of data sets and features by id."""
        paths = [path for kind in MAKERS for path in self.folder.glob(f"{kind}/*/{MANIFEST}")]
        return {path.parent.name: path for path in sorted(paths)}

    @cached_property
    def claims(self) -> dict[str, dict[str, str]]:
        """Rows of claims.csv by claim; none without the file."""
        rows = read_claims(self.folder) if (self.folder / CLAIMS).is_file() else []
        return {row["claim"]: row for row in rows}

    def record(self, name: str, path: Path | None = None) -> Node:
        """A record by its id; what is known of it where the file is gone. path: where it would lie.

        Raises InputError for an id of which nothing is known.
        """
        published = self.published.get("records", {}).get(name)
        path = self.record_paths.get(name) or path
        if path is not None and path.is_file():
            return record_node(path, read_record(path))
        if published is None:
            if path is None:
                raise InputError(name, "no such record", "one of the run")
            return record_node(path, {"id": name, "key": path.parent.parent.name})
        key = published["spec"]["key"]
        path = path or self.tier_folder / "runs" / key / name / RECORD
        shared = {
            "data": self.published["data"].get(published["data"]),
            "ledger": self.published["ledgers"].get(published.get("ledger")),
            "versions": self._versions.get(published.get("versions")),
        }
        return record_node(path, {"id": name, "key": key, **published, **shared})

    @cached_property
    def _versions(self) -> dict[str | None, Content]:
        """Versions of a publication by digest; None names those that all its records have.

        Older publications do not say which record has which.
        """
        every: dict[str | None, Content] = {
            short_digest(each): each for each in self.published["versions"]
        }
        return every | ({None: next(iter(every.values()))} if len(every) == 1 else {})

    def users(self, node: Node) -> list[str]:
        """Names of what a record, data set or set of features went into."""
        if node.kind == "record":
            names = [name for name, of in self.products.items() if node.name in of.inputs]
            weights = node.path.parent / "backbone" / MANIFEST
            sha = read_json(weights).get("sha256") if weights.is_file() else None
        else:
            names, sha = [], node.facts["sha256"]
        if sha:
            made = [arrays_node(path) for path in self.arrays.values()]
            made += [self.record(name) for name in self.record_paths]
            names += [user.name for user in made if sha in user.inputs]
        return names

    def claims_on(self, names: Iterable[str]) -> list[dict[str, str]]:
        """Claims whose evidence is one of these figures or tables, with verdicts."""
        wanted = set(names)
        return [verdict_of(row) for row in self.claims.values() if wanted & {*evidence_of(row)}]


def verdict_of(row: Mapping[str, str]) -> dict[str, str]:
    """A row of claims.csv in short."""
    return {"claim": row["claim"], "verdict": row["verdict"]}


def evidence_of(row: Mapping[str, str]) -> list[str]:
    """Names of the figures and tables that a row of claims.csv rests on."""
    return [Path(each).stem for each in (row.get("evidence") or "").split(";") if each]
