"""`python -m dpatlas config`: the config that results of files; its schema and reference pages."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from dpatlas.base.files import write_atomic
from dpatlas.errors import ArgumentParser, InputError
from dpatlas_workflow.config.load import load_config, load_tier, project_root
from dpatlas_workflow.config.reference import MADE_BY, STAR, editor_schema, page_of, written

OF_TRAININGS = f"""\
# Settings of a training of your own

Every key of `dpatlas train FILE.yaml` and of `dpatlas.train.train`, made by `{MADE_BY}`.
[Train privately](training.md#from-a-file) has an example. {STAR} Files are relative to the
settings' folder.
"""


def pages() -> dict[Path, str]:
    """The text of each reference page, by its path."""
    from dpatlas.train.settings import TrainSettings

    return {
        **written(),
        project_root() / "docs" / "settings.md": page_of(TrainSettings, OF_TRAININGS),
    }


def main(arguments: Sequence[str]) -> int:
    """Print a config as YAML or the schema for editors, or write the reference pages."""
    parser = ArgumentParser(prog="dpatlas config", description=__doc__, allow_abbrev=False)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tier", help="a tier that ships with the project; by default embedded")
    which.add_argument("--config", nargs="+", type=Path, help="files over config.yaml instead")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--write", action="store_true", help="write the reference pages instead")
    instead.add_argument("--schema", action="store_true", help="print the JSON schema for editors")
    options = parser.parse_args(arguments)
    for name, form in itertools.product(("tier", "config"), ("write", "schema")):
        if getattr(options, name) is not None and getattr(options, form):
            raise InputError(f"--{name}", f"--{form} as well", "one of the two")
    if options.write:
        for path, text in pages().items():
            write_atomic(path, text)
            print(path)
        return 0
    if options.schema:
        print(json.dumps(editor_schema(), indent=1))
        return 0
    tier = "embedded" if options.tier is None else options.tier
    config = load_config(options.config) if options.config else load_tier(tier)
    print(yaml.safe_dump(config.plain(), sort_keys=False, allow_unicode=True), end="")
    return 0
