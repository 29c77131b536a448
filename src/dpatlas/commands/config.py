"""`python -m dpatlas config`: the config that results of files; its schema and reference page."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from dpatlas.config.load import load_config, load_tier, project_root
from dpatlas.config.reference import written
from dpatlas.core.files import write_atomic
from dpatlas.errors import ArgumentParser


def main(arguments: Sequence[str]) -> int:
    """Print a validated config as YAML, or write the schema for editors and the reference page."""
    parser = ArgumentParser(prog="dpatlas config", description=__doc__, allow_abbrev=False)
    parser.add_argument("--tier", default="embedded", help="a tier that ships with the project")
    parser.add_argument("--config", nargs="+", type=Path, help="files over config.yaml instead")
    parser.add_argument(
        "--write", action="store_true", help="write schema and reference page instead of printing"
    )
    options = parser.parse_args(arguments)
    if options.write:
        for path, text in written().items():
            write_atomic(project_root() / path, text)
            print(path)
        return 0
    config = load_config(options.config) if options.config else load_tier(options.tier)
    print(yaml.safe_dump(config.plain(), sort_keys=False, allow_unicode=True), end="")
    return 0
