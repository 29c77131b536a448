"""What follows from the models: the schema for editors, and reference pages of all keys."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpatlas.base.fields import Model
from dpatlas.base.schema import resolved, schema_of, sentence_of, walk
from dpatlas_workflow.config.load import project_root
from dpatlas_workflow.config.root import General, config_model
from dpatlas_workflow.registry import all_blocks

PAGE = "configuration.md"
MADE_BY = "python -m dpatlas config --write"
STAR = "A star marks a required key."
INTRODUCTION = f"""\
# Configuration

The general keys; a paper or check has its own in the `{PAGE}` of its folder. Made by
`{MADE_BY}`. {STAR} `NAME` is a name of your own, `[]` every entry of a list.

`config.yaml` has all required keys. A file after `--configfile` names the keys that it changes;
lists are replaced whole. Without `tier` its results go to `results/custom`.
"""
_TYPES = {
    "array": "list",
    "boolean": "true or false",
    "integer": "integer",
    "null": "null",
    "number": "number",
    "object": "block",
    "string": "text",
}
_ONE_END = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def written() -> dict[Path, str]:
    """The text of each reference page, by its path: a page of the general keys, one a block."""
    schema = schema_of(config_model())
    general = {name: schema["properties"][name] for name in General.model_fields}
    rows = _rows(schema, {**schema, "properties": general})
    pages = {project_root() / "docs" / PAGE: "\n".join([INTRODUCTION, *rows])}
    for key, block in all_blocks().items():
        heading = f"# Configuration of {key}\n\n{block.title}. Made by `{MADE_BY}`. {STAR}\n"
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
    """A row for every key, but for those of a block that has rows at another key."""
    yield "| key | type | meaning |\n|---|---|---|"
    shown: dict[tuple[str, ...], str] = {}
    hidden: str | None = None
    for place, inner, required in walk(schema, node):
        sentence = sentence_of(schema, inner)
        inside = hidden and (place == hidden or place.startswith((f"{hidden}.", f"{hidden}[")))
        if inside or ("const" in inner and not sentence):  # the row of its block has the constant
            continue
        hidden = None
        if (blocks := tuple(_blocks(inner))) and shown.setdefault(blocks, place) != place:
            hidden = place
            sentence += f" Keys as of `{shown[blocks]}`."
        star = "\\*" if required else ""
        yield f"| `{place}`{star} | {_text(_type(inner))} | {_text(sentence)} |"
    yield ""


def _blocks(node: Mapping[str, Any]) -> Iterator[str]:
    """Names of the blocks that a key, its entries or its alternatives are."""
    for each in (node, *node.get("anyOf", ())):
        for part in (each, each.get("items", {}), each.get("additionalProperties") or {}):
            if isinstance(part, Mapping) and "$ref" in part:
                yield part["$ref"]


def _type(node: Mapping[str, Any], many: str = "") -> str:
    """Type and range of a key in few words; many: "s" for the entries of a list."""
    if "anyOf" in node:
        first, *others = node["anyOf"]
        if "enum" in first and others[0].get("type") == "string":
            return f"{_type(first)}, or a name under data.own"
        return " or ".join(dict.fromkeys(map(_type, node["anyOf"])))
    if "enum" in node or "const" in node:
        return ", ".join(f"`{each}`" for each in node.get("enum", [node.get("const")]))
    if "items" in node:
        low, high = node.get("minItems", 0), node.get("maxItems")
        count = (
            f"{low}" if low == high else f"{low} to {high}" if high else f"{low}+" if low else ""
        )
        distinct = "distinct" if "uniqueItems" in node else ""
        return " ".join(filter(None, ("list of", count, distinct, _type(node["items"], "s"))))
    for name, inner in node.get("properties", {}).items():
        if "const" in inner:
            return f"block with {name} {_type(inner)}"
    types = node.get("type", "object")
    named = [_TYPES[name] + many for name in ([types] if isinstance(types, str) else types)]
    return " or ".join(named) + (f" like {node['pattern']}" if "pattern" in node else _range(node))


def _range(node: Mapping[str, Any]) -> str:
    """Range of a number: with its ends in square brackets, without them in round ones."""
    ends = {
        name: _number(node[name])
        for name in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
        if name in node
    }
    if not ends:
        return ""
    left, right = "[" if "minimum" in ends else "(", "]" if "maximum" in ends else ")"
    if len(ends) == 2:
        return f" {left}{', '.join(ends.values())}{right}"
    ((name, end),) = ends.items()
    return f" {_ONE_END[name]} {end}"


def _number(value: float) -> str:
    """The shortest form of a limit."""
    short = f"{value:g}".replace("e+", "e").replace("e0", "e").replace("e-0", "e-")
    return short if float(short) == value and len(short) < len(str(value)) else str(value)


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
