"""YAML 1.2 as plain values: 1e-5 is a number, 010 is ten, yes is a text; files as models."""

import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import BaseConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.resolver import VersionedResolver

from dpatlas.base.files import keys_once, read_text
from dpatlas.base.schema import M, check_shape, validated
from dpatlas.errors import InputError

ALLOWED = "YAML 1.2, in which no block has a key twice"


class _Yaml12(VersionedResolver):
    """Reads YAML 1.2 without asking for the version at every scalar, which takes as long again."""

    processing_version = (1, 2)


def parsed(text: str, where: str, *, as_written: bool = False) -> Any:
    """What a YAML text says: dicts, lists, texts, numbers, booleans, dates and None.

    as_written: every scalar is a text, so that 1.20 keeps its last digit.

    Raises InputError, with the file or argument `where` and the line, for what is no YAML, for a
    key that a block has twice and for every tag but YAML's own.
    """
    reader = YAML(typ="safe")
    reader.Resolver = _Yaml12
    if as_written:
        reader.Constructor = BaseConstructor
    try:
        return reader.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = where if mark is None else f"{where}, line {mark.line + 1}"
        raise InputError(place, (error.problem or "").removeprefix("found "), ALLOWED) from None
    # Constructors raise what they like: `!!bool x` a KeyError.
    except (YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(where, f"no YAML: {error}", ALLOWED) from None


def read_yaml(path: Path | str) -> dict[str, Any]:
    """One YAML file that holds a block of keys; a `.json` file is read as JSON."""
    text = read_text(path)
    if Path(path).suffix == ".json":
        try:
            value = json.loads(text, object_pairs_hook=keys_once(str(path)))
        except InputError:
            raise
        except (ValueError, RecursionError) as error:
            raise InputError(str(path), f"no JSON: {error}", "a JSON file") from None
    else:
        value = parsed(text, str(path))
    if not isinstance(value, dict):
        found = "nothing" if value is None else type(value).__name__
        raise InputError(str(path), found, "a YAML file with keys")
    return value


def read_checked(path: Path | str, model: type[M]) -> M:
    """One YAML file as a model; InputError for the first thing that it does not allow."""
    content = read_yaml(path)
    check_shape(content)
    return validated(model, content, place=f"{path}: ")
