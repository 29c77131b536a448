"""The command of every figure and table: `python -m dpatlas_workflow.show MODULE ...`, records in.

The function named like the module makes it; its files and their lineage come out.
"""

import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from dpatlas.base.canonical import sha256
from dpatlas.base.digest import code_digest
from dpatlas.base.files import read_lines, remove_parts, write_atomic, write_json
from dpatlas.base.records import versions
from dpatlas.errors import ArgumentParser, InputError
from dpatlas_workflow.records import joined, read_record
from dpatlas_workflow.show.output import ShownTable, figure_files, table_files
from dpatlas_workflow.show.rows import Settings

# Whose versions a lineage states.
PACKAGES = ("matplotlib", "numpy", "pandas")


def main(arguments: Sequence[str]) -> int:
    """Make a figure or table and write its files and lineage."""
    parser = ArgumentParser(prog="python -m dpatlas_workflow.show", description=__doc__)
    parser.add_argument("module", help="of the figure or table, with a function of its name")
    parser.add_argument("--tier", required=True, help="printed on the figure or table")
    parser.add_argument("--settings", required=True, help="its settings from the config, as JSON")
    parser.add_argument("--output", required=True, type=Path, help="folder for the files")
    parser.add_argument("--lineage", required=True, type=Path, help="lineage file to write")
    parser.add_argument("--records", required=True, type=Path, help="file with a record per line")
    options = parser.parse_args(arguments)
    name = options.module.rpartition(".")[2]
    digest = code_digest(options.module)
    make = getattr(importlib.import_module(options.module), name)
    settings = _settings(options.settings)
    paths = [Path(line) for line in read_lines(options.records)]
    records = joined(read_record(path) for path in paths)
    shown = make(records, settings)
    is_table = isinstance(shown, ShownTable)
    files = (table_files if is_table else figure_files)(name, shown, options.tier)
    for file, content in files.items():
        remove_parts(options.output, file)
        write_atomic(options.output / file, content)
    remove_parts(options.lineage.parent, options.lineage.name)
    lineage = {
        "name": name,
        "kind": "table" if is_table else "figure",
        "tier": options.tier,
        "module": options.module,
        "code_digest": digest,
        "settings": settings,
        "records": {
            path.parent.name: {
                "path": Path(os.path.relpath(path, options.lineage.parent.parent)).as_posix(),
                "sha256": sha256(path.read_bytes()),
            }
            for path in paths
        },
        "outputs": {file: sha256(content) for file, content in files.items()},
        "versions": versions(*PACKAGES),
    }
    write_json(options.lineage, lineage)
    return 0


def _settings(text: str) -> Settings:
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise InputError("--settings", repr(text[:80]), "a JSON object")
    return settings
