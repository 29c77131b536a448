"""What of a run is not as it was made: figures, tables, records and the code behind them."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.core.files import read_json
from dpatlas.core.records import read_record
from dpatlas.errors import InputError
from dpatlas.report.bundle import NAME as BUNDLE
from dpatlas.report.lineage import MANIFEST, RECORD, job_module, read_lineage
from dpatlas.report.state import State, code_state, file_differences, files_of


def product_differences(run: Path) -> list[str]:
    """A line for whatever a lineage in `run` (results/TIER) does not account for.

    That is a file of a figure or table, a record behind it, or the code that drew it.
    """
    return [
        line
        for path in sorted(run.glob("lineage/*.json"))
        for line in refused(run, path, lambda path: _of_lineage(run, path))
    ]


def record_differences(run: Path) -> list[str]:
    """A line for every record in `run` that is torn, out of place, of other code or other data.

    An opened bundle has no data to compare with.
    """
    known = {}
    for path in sorted(run.glob(f"data/*/{MANIFEST}")):
        try:
            manifest = read_json(path)
            known[manifest["sha256"]] = manifest
        except (InputError, KeyError, TypeError):
            continue  # the data sets have a check of their own
    there = None if (run / BUNDLE).is_file() else known
    return [
        line
        for path in sorted(run.glob(f"runs/*/*/{RECORD}"))
        for line in refused(run, path, lambda path: _of_record(path, there))
    ]


def published_differences(folder: Path) -> list[str]:
    """A line for every file of a published run that is not what its manifest says."""
    return refused(
        folder, folder / MANIFEST, lambda path: file_differences(folder, read_json(path)["files"])
    )


def refused(run: Path, path: Path, check: Callable[[Path], Iterable[str] | None]) -> list[str]:
    """The lines that `check` finds about the file `path`, or one if it cannot make sense of it."""
    name = path.relative_to(run).as_posix()
    try:
        return list(check(path) or [])
    except InputError as error:
        return [str(error).removeprefix(f"{run}/")]
    except (AttributeError, KeyError, TypeError):
        return [f"{name}: JSON of another shape"]


def _of_lineage(run: Path, path: Path) -> list[str]:
    lineage = read_lineage(path)
    code = _of_code(lineage["module"], lineage["code_digest"])
    product = f"{lineage['kind']}s/{path.stem}"
    return [*file_differences(run, files_of(lineage)), *(f"{product}: {each}" for each in code)]


def _of_record(path: Path, known: Mapping[str, Any] | None) -> list[str]:
    record, name = read_record(path), "/".join(path.parts[-4:])
    lines = []
    spec = State(record["spec_digest"], sha256(canonical_json(record["spec"])))
    if not spec.as_made or not record["id"].endswith(f"-{record['spec_digest'][:8]}"):
        lines.append(f"spec digest {record['spec_digest'][:16]} in place of {str(spec.now)[:16]}")
    if (record["key"], record["id"]) != (path.parent.parent.name, path.parent.name):
        lines.append(f"the record of {record['key']}/{record['id']}")
    lines += _of_code(job_module(record["key"], record["spec"].get("kind")), record["code_digest"])
    data = record["data"]
    if data is not None and known is not None and known.get(data["sha256"]) != data:
        lines.append(f"data with sha256 {data['sha256'][:16]}, of which no manifest is in data/")
    return [f"{name}: {each}" for each in lines]


def _of_code(module: str, recorded: str) -> list[str]:
    code = code_state(module, recorded)
    return [] if code.as_made else [f"made by {module} {recorded}, which is {code.now} now"]
