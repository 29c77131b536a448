"""Checksums of a tier's csv files, as `sha256sum -c` reads them from the tier's folder.

It covers claims.csv, comparisons.csv and the csv of every figure and table: all numbers that people
read. Equal runs have equal manifests. It never covers cost.json, which differs from run to run.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from dpatlas.base.files import read_json, read_text, remove_parts, write_atomic
from dpatlas.base.folders import command
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas_workflow.report.state import RERUN, file_differences, require_as_made, sha256_now

NAME = "manifest.txt"
VERDICTS, FOLDERS = ("claims.csv", "comparisons.csv"), ("figures", "tables")


def manifest_of(folder: Path, files: Iterable[Path]) -> str:
    """A line per file, sorted by path from `folder`; InputError for one that is elsewhere."""
    lines = []
    for path in files:
        if not path.is_relative_to(folder) or (digest := sha256_now(path)) is None:
            raise InputError(str(path), "no such file below it", f"files below {folder}")
        lines.append((path.relative_to(folder).as_posix(), digest))
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(lines))


def read_manifest(path: Path) -> dict[str, str]:
    """sha256 by path from the manifest's folder; InputError for what is no manifest."""
    digests = {}
    for line in read_text(path, "a manifest").splitlines():
        digest, separator, name = line.partition("  ")
        if len(digest) != 64 or not separator or not name:
            raise InputError(str(path), repr(line[:80]), "lines of sha256, two spaces and a path")
        digests[name] = digest
    return digests


def csv_differences(folder: Path) -> list[str]:
    """A line for every csv file of the tier in `folder` that is not what its manifest says."""
    path = folder / NAME
    if not path.is_file():
        return [f"{NAME}: missing; a complete run writes it: {command('', folder.name)}"]
    try:
        expected = read_manifest(path)
    except InputError as error:
        return [f"{NAME}: {error.found}; run snakemake again with the same --configfile"]
    lines = file_differences(folder, expected)
    present = [folder / name for name in VERDICTS]
    for name in FOLDERS:
        present += (folder / name).glob("*.csv")
    names = {path.relative_to(folder).as_posix() for path in present if path.is_file()}
    return lines + [f"{name}: not in {NAME}" for name in sorted(names - set(expected))]


def require_numbers_as_made(folder: Path, names: Iterable[str]) -> None:
    """InputError for the first of these csv files that is not what the tier's manifest says."""
    if not (folder / NAME).is_file():
        raise InputError(str(folder / NAME), "no such file", RERUN)
    expected = read_manifest(folder / NAME)
    require_as_made(folder, {name: expected.get(name, "") for name in names}, NAME)


def require_products_as_made(folder: Path, files: Iterable[Path]) -> None:
    """InputError for the first csv of a figure or table that is not what its lineage says.

    Its checksum would make an edit look like a result.
    """
    for path in files:
        lineage = folder / "lineage" / f"{path.stem}.json"
        if path.parent.name not in FOLDERS or not lineage.is_file():
            continue
        again = f"{command(f'--force {path.stem}', folder.name)} makes it again"
        content = read_json(lineage)
        outputs = content.get("outputs") if isinstance(content, dict) else None
        if not isinstance(outputs, dict) or path.name not in outputs:
            raise InputError(str(lineage), f"no outputs with {path.name}", f"a lineage: {again}")
        recorded = {path.relative_to(folder).as_posix(): outputs[path.name]}
        allowed = f"the file as it was made: {again}"
        require_as_made(folder, recorded, f"lineage/{lineage.name}", allowed)


def main(arguments: Sequence[str]) -> int:
    """Write the manifest of the given csv files."""
    parser = ArgumentParser(prog="python -m dpatlas_workflow.report.manifest", description=__doc__)
    parser.add_argument("--results", required=True, type=Path, help="folder of the tier")
    parser.add_argument("--output", required=True, type=Path, help="file to write")
    parser.add_argument("--files", required=True, nargs="+", type=Path, help="csv files")
    options = parser.parse_args(arguments)
    text = manifest_of(options.results, options.files)
    require_products_as_made(options.results, options.files)
    remove_parts(options.output.parent, options.output.name)
    write_atomic(options.output, text)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
