"""Every key of every block's settings refuses what it cannot be, by its name."""

import json
import math

import pytest

from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import PAPERS
from dpatlas_workflow.config.load import read_config, validate
from dpatlas_workflow.registry import all_blocks

CONFIG = read_config()
# Shorter, and as good where a block is not looked at.
SMOKE = read_config(["workflow/tiers/smoke.yaml"])
BLOCKS = pytest.mark.parametrize("key", all_blocks())


def leaves(value, path=()):
    """(path, value) of every value that is no mapping and no list of mappings."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in items:
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
    changed = json.loads(json.dumps({**SMOKE, path[0]: CONFIG[path[0]]}))
    for key in set(PAPERS) - {path[0]}:
        changed[key]["enabled"] = False
    *folders, name = path
    node = changed
    for folder in folders:
        node = node[folder]
    node[name] = value
    try:
        validate(changed)
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
