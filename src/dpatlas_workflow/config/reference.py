"""What follows from the models: the schema for editors, and reference pages of all keys."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpatlas.base.fields import Model
from dpatlas.base.schema import in_words, resolved, schema_of, sentence_of, walk
from dpatlas_workflow.config.load import project_root
from dpatlas_workflow.config.root import General, config_model
from dpatlas_workflow.registry import all_blocks

PAGE = "configuration.md"
MADE_BY = "python -m dpatlas config --write"
INTRODUCTION = f"""\
# Configuration

Every key of the config: its type and range, whether it has to be there, and what it means. This
page has the general keys; `{PAGE}` in the folder of each paper and check, such as [that of
kl_privacy](../src/dpatlas_workflow/papers/kl_privacy/{PAGE}), those of its block. All are made by
`{MADE_BY}` of the models that check a config, the `SETTINGS` of each
block's `settings.py`. `python -m dpatlas config --schema > config.schema.json` writes the same for
editors that know JSON schemas.

`config.yaml` gives every required key a value and is the default. A file of your own, given after
`--configfile`, names the keys that it changes, block by block; lists are replaced whole, and an
entry of a list has all required keys. Unknown keys are refused. `NAME` stands for a name of your
own, `[]` for every entry of a list.
`python -m dpatlas config --config FILE` prints the config that results.
"""


def written() -> dict[Path, str]:
    """The text of each reference page, by its path: a page of the general keys, one a block."""
    schema = schema_of(config_model())
    general = {name: schema["properties"][name] for name in General.model_fields}
    heading = "## General\n\nWhat all blocks share.\n"
    rows = _rows(schema, {**schema, "properties": general})
    pages = {project_root() / "docs" / PAGE: "\n".join([INTRODUCTION, heading, *rows])}
    for key, block in all_blocks().items():
        heading = f"# Configuration of {key}\n\n{block.title}. Made by `{MADE_BY}`.\n"
        rows = _rows(schema, resolved(schema, schema["properties"][key]))
        pages[block.folder / PAGE] = "\n".join([heading, *rows])
    return pages


def page_of(model: type[Model], introduction: str) -> str:
    """The text of a page with every key of a model."""
    schema = schema_of(model)
    return "\n".join([introduction, *_rows(schema, schema)])


def editor_schema() -> dict[str, Any]:
    """The schema of config.yaml and of any file that is merged over it.

    Such a file may leave out what it does not change: nothing is required but in entries of lists.
    """
    schema = copy.deepcopy(schema_of(config_model()))
    for node in _merged(schema, schema):
        node.pop("required", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _rows(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[str]:
    yield "| key | type and range | | meaning |\n|---|---|---|---|"
    for place, inner, required in walk(schema, node):
        needed = "required" if required else "optional"
        words, sentence = in_words(inner), sentence_of(schema, inner)
        if of_item := in_words(inner.get("items", {})):
            words += f"; of each: {of_item}"
        yield f"| `{place}` | {_text(words)} | {needed} | {_text(sentence)} |"
    yield ""


def _text(words: str) -> str:
    """Words as they stand, for a cell of a table."""
    return words.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _merged(schema: dict[str, Any], node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Parts of a schema that are merged key by key: all but what lies in lists."""
    waiting, seen = [node], set()
    while waiting:
        node = waiting.pop()
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        waiting += [*node.get("properties", {}).values(), *node.get("anyOf", ())]
        if isinstance(node.get("additionalProperties"), dict):
            waiting.append(node["additionalProperties"])
