"""`python -m dpatlas config`: the config that results of files; its schema and reference pages."""

import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from dpatlas.config.load import load_config, load_tier
from dpatlas.config.reference import editor_schema, written
from dpatlas.core.files import write_atomic
from dpatlas.errors import ArgumentParser


def main(arguments: Sequence[str]) -> int:
    """Print a config as YAML or the schema for editors, or write the reference pages."""
    parser = ArgumentParser(prog="dpatlas config", description=__doc__, allow_abbrev=False)
    parser.add_argument("--tier", default="embedded", help="a tier that ships with the project")
    parser.add_argument("--config", nargs="+", type=Path, help="files over config.yaml instead")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--write", action="store_true", help="write the reference pages instead")
    instead.add_argument("--schema", action="store_true", help="print the JSON schema for editors")
    options = parser.parse_args(arguments)
    if options.write:
        for path, text in written().items():
            write_atomic(path, text)
            print(path)
        return 0
    if options.schema:
        print(json.dumps(editor_schema(), indent=1))
        return 0
    config = load_config(options.config) if options.config else load_tier(options.tier)
    print(yaml.safe_dump(config.plain(), sort_keys=False, allow_unicode=True), end="")
    return 0
