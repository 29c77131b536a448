"""Wrong configs by the thousand: a shipped tier, changed in one or two places."""

import datetime
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

from dpatlas_workflow.config.load import TIERS, project_root, read_tier

Path = tuple[Any, ...]
Choose = Callable[[Any], Any]

HOSTILE = (
    *("", " ", "-", "--flag", "../..", "a/b", "~nobody-at-all/x", "a\nb", "a\x00b", "\x1b[31mred"),
    *("\u2028", "\ud800", "ünï-çødé-数据-🜂", "'", '"; touch PWNED #', "$(touch PWNED)"),
    *("`touch PWNED`", "{wildcards.id}", "{{", "%s%n", "null", "1e-3", "x" * 5000),
)
NUMBERS = (
    *(0, 1, 2, 3, -1, 10**6, 10**9, 2**63, 10**30, -(10**30), 10**400),
    *(0.0, -0.0, 0.5, 1.0, 1.5, 1e-9, 1e9, 5e-324, 1e-300, 1e300, 1.7976931348623157e308),
    *(math.nan, math.inf, -math.inf),
)
ODD: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], [None], [1, 1], ["a", "a"], {"a": 1}, {1: 2}, {None: []}),
    *(
        datetime.date(2024, 1, 1),
        b"bytes",
        functools.reduce(lambda inner, _: [inner], range(60), 1),
    ),
)
KEYS = ("unknown", "", " ", "name", "data", "own", "ünï", "a\nb", "\ud800", 5, None, True, 1.5)
MANY = 1200


def bases() -> list[str]:
    """Names of the shipped tiers."""
    return ["embedded", *sorted(path.stem for path in (project_root() / TIERS).glob("*.yaml"))]


@functools.cache
def base(tier: str) -> dict[str, Any]:
    """The config of a tier, to be copied before it is changed."""
    return read_tier(tier)


def copied(value: Any) -> Any:
    """A copy in which nothing is shared: YAML's aliases are one object in several places."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def paths(value: Any, above: Path = ()) -> Iterator[Path]:
    """The place of every key and of every entry of a list."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield (*above, key)
        yield from paths(inner, (*above, key))


@functools.cache
def places(tier: str) -> list[list[Path]]:
    """Places of a tier; those that differ in positions within lists only lie together."""
    alike: dict[Path, list[Path]] = {}
    for path in paths(base(tier)):
        pattern = tuple("*" if isinstance(part, int) else part for part in path)
        alike.setdefault(pattern, []).append(path)
    return list(alike.values())


@functools.cache
def values_of(key: Any) -> list[Any]:
    """What this key stands for anywhere in the shipped tiers."""
    found = []
    for tier in bases():
        for group in places(tier):
            for path in group:
                value = at(base(tier), path)
                if path[-1] == key and value not in found:
                    found.append(value)
    return found


def at(config: Any, path: Path) -> Any:
    """The value at a place."""
    return functools.reduce(lambda value, part: value[part], path, config)


def mutate(choose: Choose) -> tuple[str, dict[str, Any], list[Path]]:
    """A tier, its config with one or two changes, and the places that were changed."""
    tier = choose(bases())
    config = copied(base(tier))
    changed = []
    for _ in range(choose([1, 1, 1, 2])):
        path = choose(choose(places(tier)))
        if has(config, path):
            changed.append(_change(choose, config, path))
    return tier, config, changed


def _change(choose: Choose, config: dict[str, Any], path: Path) -> Path:
    above, key = at(config, path[:-1]), path[-1]
    value = above[key]
    how = choose(["odd", "like", "like", "delete", "add", "elsewhere", "alike"])
    if how == "delete":
        del above[key]
        return path
    if how == "add" and isinstance(value, dict):
        new = choose(KEYS)
        value[new] = choose([1, "x", {}])
        return (*path, new)
    if how == "add" and isinstance(value, list):
        extra = choose([*value, *NUMBERS, *HOSTILE, *ODD])
        value.insert(choose(range(len(value) + 1)), copied(extra))
        return path
    if how == "elsewhere":
        tier = choose(bases())
        above[key] = copied(at(base(tier), choose(choose(places(tier)))))
    elif how == "alike" and isinstance(key, str):
        above[key] = copied(choose(values_of(key)))
    elif how == "like":
        above[key] = choose(_like(value))
    else:
        above[key] = copied(choose([*NUMBERS, *HOSTILE, *ODD]))
    return path


def has(config: Any, path: Path) -> bool:
    try:
        at(config, path)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _like(value: Any) -> list[Any]:
    """Values of the same kind, at and beyond the ends of what can be meant."""
    if isinstance(value, bool):
        return [not value, int(value), str(value)]
    if isinstance(value, int | float):
        near = [value + 1, value - 1, -value, 2 * value, value // 2, str(value)]
        near += [value / 2, float(value)] if abs(value) < MANY else []
        return [*near, [value], {"value": value}, *NUMBERS]
    if isinstance(value, str):
        return [value.upper(), value + " ", value[:-1], [value], {value: value}, *HOSTILE]
    if isinstance(value, list):
        many = [0.001 + each for each in range(MANY)], list(range(1, MANY))
        return [[], value[:1], value + value, value[::-1], [value], *many, dict.fromkeys("ab", 1)]
    if isinstance(value, dict):
        return [{}, [value], list(value), None, {key: None for key in value}, {0: 0}]
    return [0, 1, 0.5, "x", [], {}]
