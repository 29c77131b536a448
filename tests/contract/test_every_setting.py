"""Every key of every block's settings refuses what it cannot be, by its name."""

import json
import math

import pytest

from dpatlas.base.schema import validated
from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import PAPERS
from dpatlas_workflow.config.load import read_config, validate
from dpatlas_workflow.registry import all_blocks

CONFIG = read_config()
# Shorter, and as good where a block is not looked at.
SMOKE = read_config(["workflow/tiers/smoke.yaml"])
BLOCKS = pytest.mark.parametrize("key", all_blocks())


def settings_of(key):
    return all_blocks()[key].load("settings").SETTINGS


def leaves(value, path=()):
    """(path, value) of every value that is no mapping and no list of mappings.

    Of mappings beside one another with the same keys the first, as they have one model.
    """
    items, seen = (value.items() if isinstance(value, dict) else enumerate(value)), []
    for name, inner in items:
        if isinstance(inner, dict):
            if inner.keys() in seen:
                continue
            seen.append(inner.keys())
        nested = isinstance(inner, dict) or (
            isinstance(inner, list) and inner and isinstance(inner[0], dict)
        )
        if nested:
            yield from leaves(inner, (*path, name))
        else:
            yield (*path, name), inner


def refusal(path, value):
    """The message for `value` at `path`, None if it is allowed."""
    # As JSON, in which what YAML repeats is written out.
    key, *folders, name = path
    node = block = json.loads(json.dumps(CONFIG[key]))
    for folder in folders:
        node = node[folder]
    node[name] = value
    off = {other: {**SMOKE[other], "enabled": False} for other in set(PAPERS) - {key}}
    try:
        # Most is refused by the block itself, which takes a tenth of the time.
        validated(settings_of(key), block, {"own": {}}, place=f"{key}.")
        validate({**SMOKE, **off, key: block})
    except InputError as error:
        return str(error)
    return None


@BLOCKS
def test_a_value_of_another_form_is_refused_by_the_name_of_its_key(key):
    for path, value in leaves(CONFIG[key], (key,)):
        named = ".".join(map(str, path))
        for wrong in ({"unexpected": 1}, math.nan):
            message = refusal(path, wrong)
            assert message is not None, (named, wrong)
            assert message.startswith(named), message
        if isinstance(value, bool | int | float):
            assert refusal(path, "text").startswith(named)


@BLOCKS
def test_no_number_is_unbounded(key):
    for path, value in leaves(CONFIG[key], (key,)):
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert refusal(path, -1e300) or refusal(path, 1e300), path
            assert refusal(path, math.inf), path


@BLOCKS
def test_an_unknown_key_is_refused_by_name(key):
    assert "unexpected" in refusal((key, "unexpected"), 1)
    for name, value in CONFIG[key].items():
        if isinstance(value, dict) and value and not isinstance(next(iter(value.values())), dict):
            message = refusal((key, name, "unexpected"), {"unexpected": 1})
            assert message is not None and f"{key}.{name}" in message


TYPES = {"integer": int, "number": int | float, "string": str, "array": list, "object": dict}


def schemas(schema, value, definitions):
    """The parts of a JSON schema that are of this value, or of any if it is none."""
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    for part in schema.get("anyOf") or schema.get("oneOf") or ():
        yield from schemas(part, value, definitions)
    kind = schema.get("type")
    if (
        isinstance(kind, str)
        and kind in TYPES
        and (value is None or isinstance(value, TYPES[kind]))
    ):
        fields = schema.get("properties", {}).items()
        if all(value[name] == part["const"] for name, part in fields if "const" in part):
            yield schema


def bounds(schema, value, path, definitions):
    """(path, value just beyond a bound) of every bound of every field, in lists of their first."""
    for part in schemas(schema, value, definitions):
        step = 1 if part.get("type") == "integer" else 1e-9
        for name, by in (("minimum", -step), ("maximum", step)):
            if name in part:
                yield path, part[name] + by * max(1, abs(part[name]) if step < 1 else 1)
        for name in ("exclusiveMinimum", "exclusiveMaximum"):
            if name in part:
                yield path, part[name]
        if part.get("type") == "array" and value:
            for name, number in (("minItems", -1), ("maxItems", 1)):
                if name in part:
                    yield path, (value * 1000)[: part[name] + number]
            yield from bounds(part.get("items", {}), value[0], (*path, 0), definitions)
        if part.get("type") == "string" and "maxLength" in part:
            yield path, "a" * (part["maxLength"] + 1)
        if part.get("type") == "string" and "minLength" in part:
            yield path, "a" * (part["minLength"] - 1)
        if part.get("type") == "object" and value:
            for name, of_name in part.get("properties", {}).items():
                yield from bounds(of_name, value.get(name), (*path, name), definitions)
            if isinstance(part.get("additionalProperties"), dict) and "properties" not in part:
                name, first = next(iter(value.items()))
                yield from bounds(part["additionalProperties"], first, (*path, name), definitions)


@BLOCKS
def test_a_value_just_beyond_any_bound_of_any_field_is_refused_by_name(key):
    schema = settings_of(key).model_json_schema()
    found = list(bounds(schema, CONFIG[key], (key,), schema.get("$defs", {})))
    assert len(found) > 5
    for path, value in found:
        message = refusal(path, value)
        assert message is not None, (path, value)
        assert message.startswith(".".join(map(str, path))), (path, value, message)
