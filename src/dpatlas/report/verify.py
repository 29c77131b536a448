"""What of a run is not as it was made: figures, tables, records and the code behind them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.core.files import read_json
from dpatlas.core.records import read_record
from dpatlas.errors import InputError, refusal
from dpatlas.evidence.run_values import differences_from_values
from dpatlas.evidence.verdicts import COMPARISONS, read_comparisons
from dpatlas.records import inputs_used
from dpatlas.report.bundle import NAME as BUNDLE
from dpatlas.report.lineage import MANIFEST, RECORD, job_module, read_lineage
from dpatlas.report.manifest import FOLDERS
from dpatlas.report.publication import must_have, names_in, read_publication
from dpatlas.report.state import State, code_state, file_differences, files_of, unnamed

# Parts of runs/KEY/ID/record.json.
RECORD_DEPTH = 4
# Where the manifests lie of what records say that they were made from.
MADE_FROM = {
    "data": f"data/*/{MANIFEST}",
    "features": f"features/*/{MANIFEST}",
    "backbone": f"runs/*/*/backbone/{MANIFEST}",
}


def product_differences(run: Path) -> list[str]:
    """A line for whatever a lineage in `run` (results/TIER) does not account for.

    That is a file of a figure or table, a record behind it, or the code that drew it; and a file
    among figures and tables that no lineage names. Hidden files are not looked at.
    """
    lines: list[str] = []
    named: dict[str, set[str]] = {}

    def check(path: Path) -> list[str]:
        lineage = read_lineage(path)
        files = files_of(lineage)
        named[path.stem] = {*files}
        return [*file_differences(run, files), *_code_of_product(lineage, path.stem)]

    torn = set()
    for path in sorted(run.glob("lineage/*.json")):
        lines += refused(run, path, check)
        torn |= {path.stem} - named.keys()
    names = {name for files in named.values() for name in files}
    shown = [f"{folder}/{name}" for folder in FOLDERS for name in _shown(run / folder)]
    others = (name for name in shown if name not in names and Path(name).stem not in torn)
    return lines + [f"{name}: no lineage names it" for name in others]


def _shown(folder: Path, names: Collection[str] = ()) -> list[str]:
    """What is `unnamed` and not hidden: what a killed writer left, or a desktop, is no result."""
    return [
        name
        for name in unnamed(folder, names)
        if not any(part.startswith(".") for part in Path(name).parts)
    ]


def record_differences(run: Path) -> list[str]:
    """A line for every record in `run` that is torn, out of place, or of other code or inputs.

    Inputs are data, features and backbone. An opened bundle has none to compare with.
    """
    opened = (run / BUNDLE).is_file()
    there = None if opened else {what: _manifests(run, where) for what, where in MADE_FROM.items()}
    lines: list[str] = []
    for path in sorted(run.glob(f"runs/**/{RECORD}")):
        name = path.relative_to(run)
        if len(name.parts) == RECORD_DEPTH:
            lines += refused(run, path, lambda path: _of_record(path, there))
        else:
            lines.append(f"{name.as_posix()}: a record that is not at runs/KEY/ID/{RECORD}")
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


def published_differences(folder: Path) -> list[str]:
    """A line for every file of a published run that is not what its manifest says, or not in it.

    Hidden files are not looked at.
    """

    def check(path: Path) -> Iterable[str]:
        manifest = read_publication(path)
        yield from file_differences(folder, manifest["files"])
        extra = {*_shown(folder, names_in(manifest))}
        others = extra | (must_have(manifest) - manifest["files"].keys())
        yield from (f"{name}: not in {MANIFEST}" for name in sorted(others))

    return refused(folder, folder / MANIFEST, check)


def interval_differences(folder: Path) -> list[str]:
    """A line for every number of comparisons.csv that does not follow from the runs beside it."""

    def check(path: Path) -> Iterable[str]:
        for row in read_comparisons(path.parent):
            for line in differences_from_values(row):
                yield f"{COMPARISONS}: {row['claim']}, {row['comparison']}: {line} by its values"

    return refused(folder, folder / COMPARISONS, check)


def refused(run: Path, path: Path, check: Callable[[Path], Iterable[str] | None]) -> list[str]:
    """The lines that `check` finds about the file `path`, or one if it cannot make sense of it."""
    name = path.relative_to(run).as_posix()
    try:
        return list(check(path) or [])
    except InputError as error:
        return [str(error).removeprefix(f"{run}/")]
    except OSError as error:
        return [refusal(error).removeprefix(f"{run}/")]
    except (AttributeError, KeyError, TypeError):
        return [f"{name}: content of another shape"]


def _code_of_product(lineage: Mapping[str, Any], name: str) -> list[str]:
    code = _of_code(lineage["module"], lineage["code_digest"])
    return [f"{lineage['kind']}s/{name}: {each}" for each in code]


def record_slips(record: Mapping[str, Any], path: Path) -> list[str]:
    """What a record in `path` contradicts: its spec's digest, its place, its own numbers."""
    lines = []
    spec = State(record["spec_digest"], sha256(canonical_json(record["spec"])))
    if not spec.as_made or not record["id"].endswith(f"-{record['spec_digest'][:8]}"):
        lines.append(f"spec digest {record['spec_digest'][:16]} in place of {str(spec.now)[:16]}")
    if (record["key"], record["id"]) != (path.parent.parent.name, path.parent.name):
        lines.append(f"the record of {record['key']}/{record['id']}")
    # A tuning says the epsilon of every arm's trials twice, and none of all together.
    said = [row["trials_epsilon"] for row in _rows(record) if "trials_epsilon" in row]
    if said:
        ledger = record["ledger"]
        if [ledger["epsilon"], *(arm["epsilon"] for arm in ledger["arms"])] != [None, *said]:
            lines.append("a ledger with other epsilons than the trials of its arms have")
    return lines


def _rows(record: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    rows = record["metrics"].get("rows")
    return (row for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()


def _of_record(path: Path, known: Mapping[str, Mapping[str, Any]] | None) -> list[str]:
    record, name = read_record(path), "/".join(path.parts[-4:])
    lines = record_slips(record, path)
    lines += _of_code(job_module(record["key"], record["spec"].get("kind")), record["code_digest"])
    made_from = inputs_used(record) | {"data": record["data"]}
    for what, used in made_from.items():
        if used is None or known is None:
            continue
        manifest = known[what].get(used["sha256"])
        if manifest is None or (what == "data" and manifest != used):
            place, digest = MADE_FROM[what].partition("*")[0], used["sha256"][:16]
            lines.append(f"{what} with sha256 {digest}, of which no manifest is in {place}")
    return [f"{name}: {each}" for each in lines]


def _of_code(module: str, recorded: str) -> list[str]:
    code = code_state(module, recorded)
    return [] if code.as_made else [f"made by {module} {recorded}, which is {code.now} now"]
