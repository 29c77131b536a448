"""What a published run consists of, as its manifest.json says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpatlas.core.files import read_json
from dpatlas.errors import InputError
from dpatlas.evidence.verdicts import CLAIMS
from dpatlas.report.lineage import LINEAGE_FIELDS, MANIFEST
from dpatlas.report.state import unnamed

README = "README.md"
SUFFIXES = {"figures": ("pdf", "png", "csv", "json"), "tables": ("csv", "md", "tex")}
# Objects and lists that a manifest has had since the first publication.
FIELDS = ("code", "cost", "data", "files", "products", "records")
LISTS = ("versions",)
ALLOWED = "the manifest of a published run"


def read_publication(path: Path) -> dict[str, Any]:
    """The manifest of a published run; InputError for anything of another shape."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(str(path), f"a {type(content).__name__}", ALLOWED)
    missing = [name for name in FIELDS if not isinstance(content.get(name), dict)]
    missing += [name for name in LISTS if not isinstance(content.get(name), list)]
    if missing:
        raise InputError(str(path), f"no {', '.join(missing)}", ALLOWED)
    for name, lineage in content["products"].items():
        if not isinstance(lineage, dict) or not set(LINEAGE_FIELDS) <= lineage.keys():
            raise InputError(f"{path}: products.{name}", "no lineage", ALLOWED)
        if not set(lineage["records"]) <= content["records"].keys():
            raise InputError(f"{path}: products.{name}", "records that it lacks", ALLOWED)
    return content


def names_in(manifest: Mapping[str, Any]) -> set[str]:
    """Every file of a published run, itself and the README among them, which have no checksum."""
    return {*manifest["files"], MANIFEST, README}


def must_have(manifest: Mapping[str, Any]) -> set[str]:
    """Files that a published run has whatever its manifest says: its products' and the verdicts."""
    return {CLAIMS} | {
        f"{lineage['kind']}s/{name}"
        for lineage in manifest["products"].values()
        for name in lineage["outputs"]
        if name.rpartition(".")[2] in SUFFIXES[f"{lineage['kind']}s"]
    }


def require_replaceable(target: Path) -> None:
    """InputError if `target` holds anything that a publication would not have written."""
    allowed = "another folder: --docs DIR"
    if not target.is_dir():
        if target.exists() or target.is_symlink():
            raise InputError(str(target), "a file", allowed)
        return
    path = target / MANIFEST
    names = names_in(read_publication(path)) if path.is_file() else ()
    if others := unnamed(target, names):
        raise InputError(str(target / others[0]), "a file that no publication wrote", allowed)
