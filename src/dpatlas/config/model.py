"""What every block of the config is made of: strict, frozen models, a sentence for every key.

A model is the single source of its block. Readers, messages, the schema for editors and the
reference pages, configuration.md, all follow from it.
"""

import difflib
import functools
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
)
from pydantic.json_schema import GenerateJsonSchema

from dpatlas.errors import InputError

T = TypeVar("T")
M = TypeVar("M", bound="Model")
# Of a file, aliases counted as often as they are met; no shipped one comes near.
DEEPEST, MOST_VALUES = 40, 200_000
LARGEST = sys.float_info.max
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


class Model(BaseModel):
    """A block of keys: unknown ones are refused, 5.0 and true are no integers, NaN is no number.

    A check of several keys is a validator that raises InputError, with `where` relative to the
    block.
    """

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        defer_build=True,
    )

    def plain(self, *names: str) -> dict[str, Any]:
        """The keys that were given, or those of `names` among them, as JSON values."""
        # Not `model_dump`, for which every model would be built by itself, a tenth of a second.
        return {
            field.alias or name: _plain(getattr(self, name))
            for name, field in type(self).model_fields.items()
            if name in self.model_fields_set and (not names or name in names)
        }

    def plain_without(self, *names: str) -> dict[str, Any]:
        """The keys that were given, but for `names`."""
        return {name: value for name, value in self.plain().items() if name not in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return value.plain()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def setting(sentence: str, **limits: Any) -> Any:
    """A key: its sentence, its range, and `default=None` where it may be left out."""
    return Field(description=sentence, **limits)


def optional() -> Any:
    """A key of a type with a sentence that may be left out; it is None then."""
    return Field(default=None)


def _once(values: list[T]) -> list[T]:
    if len(set(values)) < len(values):
        raise ValueError("an entry twice")
    return values


def _as_written(value: Any, check: Any) -> Any:
    check(value)
    return value


def _class_name(value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("neither a whole number nor text")
    return value


Once = Annotated[list[T], AfterValidator(_once), Field(json_schema_extra={"uniqueItems": True})]
# A number that stays a whole one if it is written as such: 1 and 1.0 are two specs.
AsWritten = WrapValidator(_as_written)
ClassName = Annotated[
    int | str, PlainValidator(_class_name), WithJsonSchema({"type": ["integer", "string"]})
]


class Schema(GenerateJsonSchema):
    """JSON schemas as an editor and a reader want them."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """No title that repeats the key."""
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """A key that may be left out has no default of its own: null is another value."""
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

    context: `own`, what the user says of data sets of his own, by name. place: before keys in
    messages.

    Raises InputError for the first thing that the model does not allow, the outermost one.
    """
    try:
        return model.model_validate(content, context=context)
    except ValidationError as error:
        where, found, allowed = explained(model, error)
        raise InputError(f"{place}{where}", found, allowed) from None


def check_shape(content: Mapping[str, Any]) -> None:
    """InputError for keys that are no text, and for more than a config can mean.

    YAML allows it: 5 as a key, a list that holds itself, aliases of aliases of aliases, and whole
    numbers of which neither a double nor a message can hold all digits.
    """
    waiting: list[tuple[str, int, Any]] = [("", 0, content)]
    count = 0
    while waiting:
        place, depth, value = waiting.pop()
        count += len(value)
        if count > MOST_VALUES or depth > DEEPEST:
            allowed = f"at most {DEEPEST} levels and {MOST_VALUES} values"
            raise InputError(place or "config", "more levels or values than a config has", allowed)
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            if isinstance(value, Mapping) and not isinstance(key, str):
                found = f"{key!r} ({type(key).__name__}) as a key"
                raise InputError(place or "config", found, "text: write it in quotes")
            where = joined(place, str(key))
            if not _is_unicode(str(key)):
                raise InputError(place or "config", f"{key!r} as a key", "Unicode text")
            if isinstance(inner, Mapping | list):
                waiting.append((where, depth + 1, inner))
            elif isinstance(inner, int) and abs(inner) > LARGEST:
                found = f"a whole number of {inner.bit_length()} bits"
                raise InputError(where, found, f"numbers up to {LARGEST:g}")


def _is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair alone, which YAML can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def explained(model: type[Model], error: ValidationError) -> tuple[str, str, str]:
    """Where the outermost complaint lies, what was found there and what is allowed."""
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
    if kind in ("int_type", "float_type") and isinstance(value, str) and is_number(value):
        words.append("YAML reads 1e-3 as text, write 1.0e-3")
    words.append(sentence_of(schema_of(model), node).rstrip("."))
    return where or "config", shown(value), "; ".join(filter(None, words))


def _outermost(error: Any) -> tuple[int, bool]:
    """Depth; of two that lie as deep, an unknown key or a wrong name explains what is missing."""
    name = error["loc"][-1:] == ("[key]",)
    return len(error["loc"]) - name, not name and error["type"] != "extra_forbidden"


def _located(
    schema: Mapping[str, Any], loc: tuple[int | str, ...]
) -> tuple[list[str], Mapping[str, Any], Mapping[str, Any]]:
    """Keys of a place, its part of the schema, and the part around it."""
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
    """A part of a schema with what it refers to."""
    if "$ref" not in node:
        return node
    return {**schema["$defs"][node["$ref"].rsplit("/", 1)[1]], **node}


def sentence_of(schema: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """What a key means."""
    for each in (node, *(resolved(schema, branch) for branch in node.get("anyOf", ()))):
        if "description" in each:
            return each["description"]
    return ""


def in_words(node: Mapping[str, Any]) -> str:
    """Type and range of a key, as messages and the reference page give them."""
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
    """Whether `text` reads as a float, infinities and NaN included."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def walk(
    schema: Mapping[str, Any], node: Mapping[str, Any], place: str = ""
) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Every key below a part of a schema: place, part, and whether it is required.

    Where a block is one of several, each of them comes before its keys.
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
