"""What follows from the models of the config: checks, messages, and the schema for editors."""

import difflib
import functools
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema

from dpatlas.base.fields import BOOLEANS, Model
from dpatlas.base.guard import number_in
from dpatlas.errors import InputError

M = TypeVar("M", bound=Model)
# Limits on a config file, in which an alias counts at every use: levels, values, and numbers.
MAX_DEPTH, MAX_VALUES = 40, 200_000
MAX_NUMBER = sys.float_info.max
_TYPES = {
    "object": "a block of keys",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_LIMITS = {
    "exclusiveMinimum": "> {}",
    "minimum": ">= {}",
    "exclusiveMaximum": "< {}",
    "maximum": "<= {}",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
    "minProperties": "at least {} entries",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "like {}",
}


class Schema(GenerateJsonSchema):
    """JSON schemas for editors and for the reference page."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """No title that repeats the key."""
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """An optional key has no default: leaving it out differs from null."""
        return self.generate_inner(schema["schema"])

    def tagged_union_schema(self, schema: Any) -> dict[str, Any]:
        """Half a block may fit several."""
        found = super().tagged_union_schema(schema)
        return {"anyOf": found["oneOf"]}

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        """The names of entries as `propertyNames`, so that another name is refused."""
        found = super().dict_schema(schema)
        if "patternProperties" in found:
            ((pattern, entry),) = found.pop("patternProperties").items()
            found |= {"propertyNames": {"pattern": pattern}, "additionalProperties": entry}
        return found


@functools.cache
def schema_of(model: type[Model]) -> dict[str, Any]:
    """The JSON schema of a model and of all below it."""
    return model.model_json_schema(schema_generator=Schema)


def validated(model: type[M], content: Any, context: Any = None, place: str = "") -> M:
    """`content`, of a shape that `check_shape` allows, as a model.

    context: `own`, the definitions of the user's own data sets by name. place: prefix of keys in
    messages.

    Raises InputError for the outermost value that the model does not allow.
    """
    try:
        return model.model_validate(content, context=context)
    except ValidationError as error:
        where, found, allowed = explained(model, error)
        raise InputError(f"{place}{where}", found, allowed) from None


def check_shape(
    content: Mapping[str, Any] | list[Any], place: str = "", most: int = MAX_VALUES
) -> None:
    """InputError for what YAML allows and no config can mean.

    That is 5 as a key, a list that contains itself, aliases of aliases of aliases, and integers
    with more digits than a double or a message can hold. place: prefix of keys in messages. most:
    values, where an alias counts at every use.
    """
    waiting: list[tuple[tuple[str, ...], Any]] = [((), content)]
    count = 0
    while waiting:
        keys, value = waiting.pop()
        where = f"{place}{joined(*keys) or 'config'}"
        count += len(value)
        if count > most or len(keys) > MAX_DEPTH:
            allowed = f"at most {MAX_DEPTH} levels and {most:,} values"
            raise InputError(where, "more levels, or values with every use of an alias", allowed)
        has_names = isinstance(value, Mapping)
        for key, inner in value.items() if has_names else enumerate(value):
            if has_names and not isinstance(key, str):
                found = f"{key!r} ({type(key).__name__}) as a key"
                raise InputError(where, found, "text: write it in quotes")
            if has_names and not _is_unicode(str(key)):
                raise InputError(where, f"{key!r} as a key", "Unicode text")
            if isinstance(inner, int):
                if abs(inner) > MAX_NUMBER:
                    found = f"a whole number of {inner.bit_length()} bits"
                    where = f"{place}{joined(*keys, str(key))}"
                    raise InputError(where, found, f"numbers up to {MAX_NUMBER:g}")
            # What most values are first: asking for a mapping takes longest.
            elif not isinstance(inner, float | str) and isinstance(inner, list | Mapping):
                waiting.append(((*keys, str(key)), inner))


def _is_unicode(text: str) -> bool:
    """Whether a text has no lone half of a surrogate pair, which YAML can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def explained(model: type[Model], error: ValidationError) -> tuple[str, str, str]:
    """The key of the outermost error, what was found there and what is allowed."""
    first = min(error.errors(include_url=False), key=_outermost)
    keys, node, above = _located(schema_of(model), first["loc"])
    where, kind, value = joined(*keys), first["type"], first["input"]
    reason = first.get("ctx", {}).get("error")
    if isinstance(reason, InputError):
        return joined(where, reason.where.lstrip(".")), str(reason.found), reason.allowed
    if kind == "extra_forbidden":
        known = list(above.get("properties", ()))
        near = difflib.get_close_matches(keys[-1], known, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return where, "a key that does not exist", ", ".join(known) + hint
    if kind == "missing":
        return where, "nothing", "a value: this key is required"
    if first["loc"][-1:] == ("[key]",):
        return joined(*keys[:-1]), shown(value), in_words(above["propertyNames"])
    words = [in_words(node)]
    number = kind in ("int_type", "float_type")
    if isinstance(value, str) and (
        (number and is_number(value)) or (kind == "bool_type" and value.lower() in BOOLEANS)
    ):
        nested = "Snakemake passes nested values of --config as text: use --configfile"
        words.append(f"without quotes; {nested}")
    sentence = sentence_of(schema_of(model), node).rstrip(".")
    # A text is found: which texts are allowed, the sentence says.
    said = sentence and words == ["text"] and isinstance(value, str)
    words = [sentence] if said else [*words, sentence]
    return where or "config", shown(value), "; ".join(filter(None, words))


def _outermost(error: Any) -> tuple[int, bool]:
    """Sorts errors by depth; at one depth, unknown keys and wrong names come first."""
    name = error["loc"][-1:] == ("[key]",)
    return len(error["loc"]) - name, not name and error["type"] != "extra_forbidden"


def _located(
    schema: Mapping[str, Any], loc: tuple[int | str, ...]
) -> tuple[list[str], Mapping[str, Any], Mapping[str, Any]]:
    """Keys of a location, its part of the schema, and the part around it."""
    keys: list[str] = []
    around = node = schema
    for part in loc:
        if part == "[key]" and part == loc[-1]:  # of the name of an entry
            continue
        around = node
        branches = [resolved(schema, each) for each in node.get("anyOf", ())]
        tagged = [each for each in branches if each.get("title") == part]
        if tagged:  # which of several models was tried, and no key
            node = tagged[0]
            continue
        keys.append(str(part))
        if branches:
            around = node = branches[0]
        inner = node.get("items") if isinstance(part, int) else node.get("properties", {}).get(part)
        if inner is None:
            inner = node.get("additionalProperties") or {}
        node = resolved(schema, inner)
    return keys, node, around


def resolved(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part of a schema with its reference resolved."""
    if "$ref" not in node:
        return node
    return {**schema["$defs"][node["$ref"].rsplit("/", 1)[1]], **node}


def sentence_of(schema: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """The sentence that describes a key."""
    for each in (node, *(resolved(schema, branch) for branch in node.get("anyOf", ()))):
        if "description" in each:
            return each["description"]
    return ""


def in_words(node: Mapping[str, Any]) -> str:
    """Type and range of a key in words, for messages."""
    if "anyOf" in node:
        first, *others = node["anyOf"]
        if "enum" in first and others[0].get("type") == "string":
            return f"{in_words(first)}, or a name under data.own"
        null = {"type": "null"}
        words = dict.fromkeys(in_words(each) for each in node["anyOf"] if each != null)
        return " or ".join(words) + (", or null" if null in others else "")
    parts = []
    if "enum" in node:
        parts.append("one of " + ", ".join(map(str, node["enum"])))
    elif "const" in node:
        parts.append(str(node["const"]))
    elif "$ref" in node:
        parts.append(_TYPES["object"])
    elif "type" in node:
        types = node["type"] if isinstance(node["type"], list) else [node["type"]]
        parts.append(" or ".join(_TYPES[name] for name in types))
    parts += [words.format(node[name]) for name, words in _LIMITS.items() if name in node]
    if node.get("uniqueItems"):
        parts.append("no entry twice")
    return "; ".join(parts)


def joined(*parts: str) -> str:
    """Keys with dots between them."""
    return ".".join(part for part in parts if part)


def shown(value: Any) -> str:
    """A value as a message shows it."""
    text = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
    return f"{text} (text)" if isinstance(value, str) else text


def is_number(text: str) -> bool:
    """Whether `text` reads as a number, infinities and NaN included."""
    return not isinstance(number_in(text), str)


def walk(
    schema: Mapping[str, Any], node: Mapping[str, Any], place: str = ""
) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Every key below a part of a schema: its path, its part, and whether it is required.

    Where a block may be one of several models, each model comes before its keys.
    """
    node = resolved(schema, node)
    branches = [resolved(schema, each) for each in node.get("anyOf", ())]
    for branch in branches:
        if sum("properties" in each for each in branches) > 1:
            yield place, branch, True
        yield from walk(schema, branch, place)
    for name, inner in node.get("properties", {}).items():
        where = joined(place, name)
        yield where, resolved(schema, inner), name in node.get("required", ())
        yield from walk(schema, inner, where)
    if isinstance(node.get("additionalProperties"), Mapping):
        yield from walk(schema, node["additionalProperties"], joined(place, "NAME"))
    if "items" in node:
        yield from walk(schema, node["items"], f"{place}[]")
