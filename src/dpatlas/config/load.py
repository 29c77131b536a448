"""Configs: read, merged over the default tier, and checked against the schema."""

import difflib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend

from dpatlas.errors import InputError

# libyaml's reader where there is one: the other takes a tenth of a second for the schema alone.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SCHEMA = Path("workflow/schemas/config.schema.yaml")
DEFAULT = Path("config.yaml")
TIERS = Path("workflow/tiers")
CUSTOM_TIER = "custom"
# Of a config, aliases counted as often as they are met; no shipped one comes near.
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


def project_root() -> Path:
    """The folder of config.yaml: the working folder if it has one, else the checkout's."""
    for folder in (Path.cwd(), Path(__file__).resolve().parents[3]):
        if (folder / DEFAULT).is_file() and (folder / SCHEMA).is_file():
            return folder
    raise InputError(str(DEFAULT), "no such file", "a checkout of dp-atlas as working folder")


def read_yaml(path: Path | str) -> dict[str, Any]:
    """One YAML file that holds a block of keys.

    A `.json` file is read as JSON: its 1e-05 is a number, which YAML would take for text.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        value = json.loads(text) if Path(path).suffix == ".json" else _parsed(str(path), text)
    except InputError:
        raise
    except OSError as error:
        raise InputError(str(path), error.strerror or "unreadable", "a readable file") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        # PyYAML's own constructors raise what they like: `!!bool x` a KeyError.
        raise InputError(str(path), f"not YAML: {error}", "a YAML file") from None
    if not isinstance(value, dict):
        raise InputError(str(path), type(value).__name__, "a YAML file with keys")
    return value


def _parsed(path: str, text: str) -> Any:
    """The value of a YAML text; InputError for a key that a block has twice."""
    loader = LOADER(text)
    try:
        root = loader.get_single_node()
        for block in _blocks(root):
            _refuse_twice(path, [key for key, _ in block.value])
        return None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


def _blocks(root: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    """Every block of keys, once, though an alias may hold itself."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        block = isinstance(node, yaml.MappingNode)
        waiting += [value for _, value in node.value] if block else node.value
        if block:
            yield node


def _refuse_twice(path: str, keys: Sequence[yaml.Node]) -> None:
    lines: dict[str, int] = {}
    for key in keys:
        if isinstance(key, yaml.ScalarNode):
            line = key.start_mark.line + 1
            if key.value in lines:
                found = f"{key.value} in lines {lines[key.value]} and {line} of one block"
                raise InputError(path, found, "each key once")
            lines[key.value] = line


def read_checked(path: Path | str, schema: Path | str) -> dict[str, Any]:
    """One YAML file that a schema allows; InputError for the first thing that it does not."""
    content = read_yaml(path)
    error = best_match(Draft202012Validator(read_yaml(schema)).iter_errors(content))
    if error:
        where = ".".join(map(str, error.absolute_path)) or "the file"
        raise InputError(f"{path}: {where}", error.message[:200], f"see {Path(schema).name}")
    return content


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `change` laid over it, block by block; lists and values are replaced.

    A block that names another data set (`name`) replaces the old one whole: its other keys belong
    to that data set.
    """
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            other = "name" in value and value["name"] != old.get("name")
            merged[key] = dict(value) if other else merge(old, value)
        else:
            merged[key] = value
    return merged


def load_config(
    files: Sequence[Path | str] = (),
    changes: Mapping[str, Any] | None = None,
    root: Path | None = None,
) -> dict[str, Any]:
    """The validated config: config.yaml, then each of `files`, then `changes`.

    Whatever comes last has to name its own tier, else the tier is `custom`: a changed setting
    never writes over another tier's results.
    """
    root = root or project_root()
    config = read_yaml(root / DEFAULT)
    layers = [read_yaml(path) for path in files]
    if changes:
        layers.append(dict(changes))
    for layer in layers:
        config = merge(config, layer)
    if layers and "tier" not in layers[-1]:
        config["tier"] = CUSTOM_TIER
    validate(config, root / SCHEMA)
    return config


def load_tier(name: str, root: Path | None = None) -> dict[str, Any]:
    """The config of a tier that ships with the project."""
    root = root or project_root()
    default = read_yaml(root / DEFAULT).get("tier")
    if name == default:
        return load_config(root=root)
    path = root / TIERS / f"{name}.yaml"
    if not path.is_file():
        known = [default, *sorted(file.stem for file in (root / TIERS).glob("*.yaml"))]
        raise InputError("tier", repr(name), "one of " + ", ".join(known))
    return load_config([path], root=root)


def validate(config: Mapping[str, Any], schema_path: Path | str) -> None:
    """Raise InputError for the first thing that the schema does not allow.

    Where the schema lists names of data sets with `or_own`, those of `data.own` are allowed too.
    """
    _check_shape(config)
    data = config.get("data")
    own = data.get("own") if isinstance(data, Mapping) else None
    names = [name for name in own if isinstance(name, str)] if isinstance(own, Mapping) else []
    schema = _with_own(read_yaml(schema_path), names)
    error = best_match(_Validator(schema).iter_errors(config))
    if error is not None:
        raise InputError(*_explain(error))


def _with_own(node: Any, names: Sequence[str]) -> Any:
    """The schema with `names` in every list of names that is open to a user's own data sets."""
    if isinstance(node, list):
        return [_with_own(each, names) for each in node]
    if not isinstance(node, Mapping):
        return node
    found = {key: _with_own(value, names) for key, value in node.items()}
    return {**found, "enum": [*found["enum"], *names]} if "or_own" in found else found


def _check_shape(config: Mapping[str, Any]) -> None:
    """InputError for keys that are no text, and for more than a config can mean.

    YAML allows it: 5 as a key, a list that holds itself, aliases of aliases of aliases, and whole
    numbers of which neither a double nor a message can hold all digits.
    """
    waiting: list[tuple[str, int, Any]] = [("", 0, config)]
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
            if isinstance(inner, Mapping | list):
                waiting.append((_path(place, str(key)), depth + 1, inner))
            elif isinstance(inner, int) and abs(inner) > LARGEST:
                found = f"a whole number of {inner.bit_length()} bits"
                raise InputError(_path(place, str(key)), found, f"numbers up to {LARGEST:g}")


def _is_integer(checker: Any, value: Any) -> bool:
    # JSON Schema takes 5.0 for an integer; range(5.0) does not.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite_number(checker: Any, value: Any) -> bool:
    # YAML has .nan and .inf; NaN passes every range check.
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


_Validator = extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer).redefine(
        "number", _is_finite_number
    ),
)


def _explain(error: ValidationError) -> tuple[str, str, str]:
    where = ".".join(str(part) for part in error.absolute_path)
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        unknown = next(key for key in error.instance if key not in known)
        near = difflib.get_close_matches(str(unknown), known, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return _path(where, str(unknown)), "a key that does not exist", ", ".join(known) + hint
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return _path(where, missing), "nothing", "a value: this key is required"
    return _path("config", where), _shown(error.instance), _allowed(error)


def _path(*parts: str) -> str:
    return ".".join(part for part in parts if part).removeprefix("config.") or "config"


def _shown(value: Any) -> str:
    kind = {str: "text", bool: "true or false"}.get(type(value))
    text = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
    return f"{text} ({kind})" if kind == "text" else text


def _allowed(error: ValidationError) -> str:
    schema, parts = error.schema, []
    if "enum" in schema:
        parts.append("one of " + ", ".join(map(str, schema["enum"])))
    if "const" in schema:
        parts.append(str(schema["const"]))
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        parts.append(" or ".join(_TYPES[name] for name in types))
    for name, words in (
        ("exclusiveMinimum", "> {}"),
        ("minimum", ">= {}"),
        ("exclusiveMaximum", "< {}"),
        ("maximum", "<= {}"),
        ("minItems", "at least {} entries"),
        ("maxItems", "at most {} entries"),
        ("minLength", "at least {} characters"),
        ("pattern", "like {}"),
    ):
        if name in schema:
            parts.append(words.format(schema[name]))
    if schema.get("uniqueItems"):
        parts.append("no entry twice")
    if error.validator == "type" and isinstance(error.instance, str) and is_number(error.instance):
        parts.append("YAML reads 1e-3 as text, write 1.0e-3")
    if "description" in schema:
        parts.append(schema["description"].rstrip("."))
    return "; ".join(parts)


def is_number(text: str) -> bool:
    """Whether `text` reads as a float, infinities and NaN included."""
    try:
        float(text)
    except ValueError:
        return False
    return True
