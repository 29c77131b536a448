"""What of a run or a publication is not as it was made: files, records, code, and intervals."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpatlas.base.arrays import read_arrays
from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.files import read_json
from dpatlas.data import features, prepared
from dpatlas.errors import InputError, refusal
from dpatlas_workflow.evidence.run_values import differences_from_values
from dpatlas_workflow.evidence.verdicts import CLAIMS, COMPARISONS, read_comparisons
from dpatlas_workflow.report import index
from dpatlas_workflow.report.bundle import NAME as BUNDLE
from dpatlas_workflow.report.manifest import NAME as CSV_MANIFEST
from dpatlas_workflow.report.manifest import csv_differences
from dpatlas_workflow.report.published_tier import summaries
from dpatlas_workflow.report.state import file_differences, sha256_now, unnamed

# Parts of runs/KEY/ID/record.json.
RECORD_DEPTH = 4
# Where the manifests lie of what records say that they were made from.
MADE_FROM = {
    "data": f"data/*/{index.MANIFEST}",
    "features": f"features/*/{index.MANIFEST}",
    "backbone": f"runs/*/*/backbone/{index.MANIFEST}",
}
WEIGHTS = "weights.npz"


def differences(folder: Path) -> list[str]:
    """A line for each difference in a run or a published run; InputError for any other folder."""
    if not any((folder / name).is_dir() for name in ("runs", "lineage")):
        if not index.publications(folder):
            raise InputError(str(folder), "neither runs nor a manifest", "the results of a run")
        return published_differences(folder)
    lines = [
        *refused(folder, folder / CSV_MANIFEST, lambda path: csv_differences(path.parent)),
        *interval_differences(folder),
        *product_differences(folder),
        *record_differences(folder),
    ]
    # They refuse damaged arrays.
    loads: dict[str, Callable[[Path], object]]
    loads = {"data": prepared.load, "features": features.load, "backbone": _check_weights}
    for what, load in loads.items():

        def check(path: Path, load: Callable[[Path], object] = load) -> list[str]:
            load(path.parent)
            return []

        for path in sorted(folder.glob(MADE_FROM[what])):
            lines += refused(folder, path, check)
    return list(dict.fromkeys(lines))  # manifest.txt and a lineage may both say it


def _check_weights(folder: Path) -> None:
    # models.backbone would load torch for it.
    path, recorded = folder / WEIGHTS, read_json(folder / index.MANIFEST)["sha256"]
    try:
        now = prepared.content_sha256(read_arrays(path))
    except (OSError, ValueError):
        raise InputError(str(path), "a missing or damaged file", "the weights") from None
    if now != recorded:
        raise InputError(str(path), f"sha256 {now[:16]}", f"{recorded[:16]} as in {index.MANIFEST}")


def product_differences(run: Path) -> list[str]:
    """A line for whatever a lineage in `run` (results/TIER) does not account for.

    That is a file of a figure or table, a record behind it, or the code that drew it; and a file
    among figures and tables that no lineage names.
    """
    nodes: dict[str, index.Node] = {}

    def check(path: Path) -> Iterator[str]:
        node = nodes[path.stem] = index.product_node(path, index.read_lineage(path))
        yield from file_differences(run, node.files)
        if changed := node.code_difference:
            yield f"{node.kind}s/{path.stem}: {changed}"

    paths = sorted(run.glob("lineage/*.json"))
    lines = [line for path in paths for line in refused(run, path, check)]
    named = {name for node in nodes.values() for name in node.files}
    torn = {path.stem for path in paths} - nodes.keys()
    files = [f"{folder}/{name}" for folder in index.SUFFIXES for name in _visible(run / folder)]
    others = (name for name in files if name not in named and Path(name).stem not in torn)
    return lines + [f"{name}: no lineage names it" for name in others]


def _visible(folder: Path, names: Iterable[str] = ()) -> list[str]:
    """What is `unnamed` and not hidden: what a killed writer left, or a desktop, is no result."""
    files = unnamed(folder, [*names])
    return [name for name in files if not any(part.startswith(".") for part in Path(name).parts)]


def record_differences(run: Path) -> list[str]:
    """A line for every record in `run` that is torn, out of place, or of other code or inputs.

    Inputs are data, features and backbone. An opened bundle has none to compare with.
    """
    made: dict[str, dict[str, Any]] = {}
    if not (run / BUNDLE).is_file():
        made = {what: _manifests(run, where) for what, where in MADE_FROM.items()}
    lines: list[str] = []
    for path in sorted(run.glob(f"runs/**/{index.RECORD}")):
        name = path.relative_to(run)
        if len(name.parts) == RECORD_DEPTH:
            lines += refused(run, path, lambda path: _of_record(path, made))
        else:
            lines.append(f"{name.as_posix()}: a record that is not at runs/KEY/ID/{index.RECORD}")
    return lines


def _manifests(run: Path, pattern: str) -> dict[str, Any]:
    """Manifests by the sha256 that they state."""
    known = {}
    for path in sorted(run.glob(pattern)):
        try:
            manifest = read_json(path)
            known[manifest["sha256"]] = manifest
        except (InputError, KeyError, TypeError):
            continue  # they have a check of their own
    return known


def _of_record(path: Path, made: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    record, name = index.read_record(path), "/".join(path.parts[-4:])
    yield from (f"{name}: {each}" for each in record_slips(record, path))
    node = index.record_node(path, record)
    if changed := node.code_difference:
        yield f"{name}: {changed}"
    for what, known in made.items():
        if used := node.facts[what]:
            manifest = known.get(used["sha256"])
            if manifest is None or (what == "data" and manifest != used):
                place, digest = MADE_FROM[what].partition("*")[0], used["sha256"][:16]
                yield f"{name}: {what} with sha256 {digest}, of which no manifest is in {place}"


def record_slips(record: Mapping[str, Any], path: Path) -> list[str]:
    """What a record in `path` contradicts: its spec's digest, its place, its own numbers."""
    lines = []
    recorded, now = record["spec_digest"], sha256(canonical_json(record["spec"]))
    if now != recorded or not record["id"].endswith(f"-{recorded[:8]}"):
        lines.append(f"spec digest {recorded[:16]} in place of {now[:16]}")
    if (record["key"], record["id"]) != (path.parent.parent.name, path.parent.name):
        lines.append(f"the record of {record['key']}/{record['id']}")
    # A tuning says the epsilon of every arm's trials twice, and none of all together.
    rows = record["metrics"].get("rows")
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if said := [row["trials_epsilon"] for row in rows if "trials_epsilon" in row]:
        ledger = record["ledger"]
        if [ledger["epsilon"], *(arm["epsilon"] for arm in ledger["arms"])] != [None, *said]:
            lines.append("a ledger with other epsilons than the trials of its arms have")
    return lines


def published_differences(folder: Path) -> list[str]:
    """A line for every file of a published tier or paper that is not as it was published.

    That is one that is not what its manifest says, or not in it, and a table of all papers that is
    not what those of each say together.
    """
    lines = []
    for path in index.publications(folder):
        start = f"{path.parent.name}/" if path.parent != folder else ""
        found = refused(path.parent, path, _publication_differences)
        lines += [start + line for line in [*found, *interval_differences(path.parent)]]
    if not (folder / index.MANIFEST).is_file():
        lines += refused(folder, folder / CLAIMS, _tier_differences)
    return lines


def _publication_differences(path: Path) -> Iterator[str]:
    manifest, folder = index.read_publication(path), path.parent
    files = manifest["files"]
    yield from file_differences(folder, files)
    # What a publication has whatever its manifest says: the verdicts, its products' files.
    must = {
        f"{lineage['kind']}s/{name}"
        for lineage in manifest["products"].values()
        for name in lineage["outputs"]
        if name.rpartition(".")[2] in index.SUFFIXES[f"{lineage['kind']}s"]
    }
    must |= set() if "block" in manifest else {CLAIMS}
    others = {*_visible(folder, [*files, index.MANIFEST, index.README])} | (must - files.keys())
    yield from (f"{name}: not in {index.MANIFEST}" for name in sorted(others))


def _tier_differences(claims: Path) -> Iterator[str]:
    tier = claims.parent
    contents = summaries(tier)
    for name, content in contents.items():
        if sha256_now(tier / name) != sha256(content):
            yield f"{name}: not what the papers have together"
    keys = {path.parent.name for path in index.publications(tier)}
    others = _visible(tier, [*contents, index.README])
    yield from (f"{name}: of no paper" for name in others if Path(name).parts[0] not in keys)


def interval_differences(folder: Path) -> list[str]:
    """A line for every number of comparisons.csv that does not follow from the runs beside it."""

    def check(path: Path) -> Iterator[str]:
        for row in read_comparisons(path.parent):
            for line in differences_from_values(row):
                yield f"{COMPARISONS}: {row['claim']}, {row['comparison']}: {line} by its values"

    return refused(folder, folder / COMPARISONS, check)


def refused(run: Path, path: Path, check: Callable[[Path], Iterable[str]]) -> list[str]:
    """The lines that `check` finds about the file `path`, or one if it cannot make sense of it."""
    try:
        return list(check(path))
    except InputError as error:
        return [str(error).removeprefix(f"{run}/")]
    except OSError as error:
        return [refusal(error).removeprefix(f"{run}/")]
    except (AttributeError, KeyError, TypeError, ValueError):
        return [f"{path.relative_to(run).as_posix()}: content of another shape"]
