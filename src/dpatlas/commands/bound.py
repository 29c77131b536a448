"""`python -m dpatlas bound`: evaluate the papers' formulas, one, many, or list them."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpatlas.base.formulas import REQUIRED
from dpatlas.base.guard import number_in
from dpatlas.catalogue import catalogue, evaluate
from dpatlas.errors import ArgumentParser, InputError, one_line

# Levels of nested lists and objects that are printed; beyond some hundreds Python fails.
LEVELS = 50
USAGE = """\
%(prog)s NAME key=value ... [--json]   prints one JSON object: bound, inputs, value, source
       %(prog)s --batch FILE.json [--json]    evaluates a list of {"bound": ..., "inputs": {...}}
       %(prog)s --list [--json]               names every bound with its arguments"""
EPILOG = """\
Values are whole numbers, decimals (1e-3) or words. JSON has no infinity: an infinite value is
printed as the string "inf", and "inf" is read as one. In a batch, an entry that cannot be
evaluated has "error" (one line) in place of "value"; further keys of an entry are ignored."""


def main(arguments: Sequence[str]) -> int:
    """Run the sub-command; raises `InputError` for everything that the contract refuses."""
    parser = ArgumentParser(prog="dpatlas bound", usage=USAGE, epilog=EPILOG, allow_abbrev=False)
    parser.add_argument("name", nargs="?", help="name of a bound, as --list prints it")
    parser.add_argument("values", nargs="*", metavar="key=value", help="its arguments")
    parser.add_argument("--list", action="store_true", help="list all bounds")
    parser.add_argument("--json", action="store_true", help="the list as JSON, as all else is")
    parser.add_argument("--batch", metavar="FILE.json", help="evaluate a list of entries")
    options = parser.parse_args(arguments)
    if sum((options.name is not None, options.list, options.batch is not None)) != 1:
        parser.error("not exactly one of NAME, --list and --batch")
    if options.list:
        print(strict_json(listing()) if options.json else listing_text())
    elif options.batch is not None:
        print(strict_json([evaluate_entry(entry) for entry in read_batch(options.batch)]))
    else:
        print(strict_json(evaluate(options.name, read_pairs(options.values))))
    return 0


def read_pairs(pairs: Sequence[str]) -> dict[str, int | float | str]:
    """`["eta=0.1", "convention=paper"]` as a dict; raises `InputError` for other shapes."""
    values: dict[str, int | float | str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not (key and equals and text):
            raise InputError("arguments of dpatlas bound", repr(pair), "key=value")
        if key in values:
            raise InputError(f"argument {key}", f"{values[key]} and {text}", "one value")
        values[key] = number_in(text)
    return values


def read_batch(path: str) -> list[Any]:
    """The list in the JSON file `path`; raises `InputError` where there is none."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        entries = json.loads(text, parse_int=_whole_number, object_pairs_hook=_Object)
    except OSError as error:
        raise InputError(f"--batch {path}", error.strerror, "a readable JSON file") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"--batch {path}", str(error), "a JSON file") from None
    if not isinstance(entries, list):
        found = "an object" if isinstance(entries, dict) else f"a {type(entries).__name__}"
        raise InputError(f"--batch {path}", found, "a JSON list")
    return entries


class _Object(dict[str, Any]):
    """A JSON object, and the first of its keys that it has twice, if one is."""

    def __init__(self, pairs: list[tuple[str, Any]]):
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs)
        self.twice = next((name for name, count in counts.items() if count > 1), None)


def _whole_number(text: str) -> int | str:
    """The number, or its text where Python reads none of so many digits: its entry is refused."""
    try:
        return int(text)
    except ValueError:
        return text


def evaluate_entry(entry: object) -> dict[str, Any]:
    """One result of a batch; a failure of any kind becomes its `error`, and the rest goes on."""
    given: dict[str, Any] = entry if isinstance(entry, dict) else {}
    name: Any = given.get("bound")
    inputs: Any = given.get("inputs")
    try:
        if not isinstance(entry, dict):
            raise InputError("entry", type(entry).__name__, "an object with bound and inputs")
        for each in (entry, inputs):
            if twice := getattr(each, "twice", None):
                raise InputError(f"argument {twice}" if each is inputs else twice, "twice", "once")
        return evaluate(name, inputs)
    except Exception as error:
        message = str(error) if isinstance(error, InputError) else repr(error)
        known = catalogue().get(name) if isinstance(name, str) else None
        return {
            "bound": name,
            "inputs": inputs,
            "error": one_line(message),
            "source": known.source if known else None,
        }


def listing() -> list[dict[str, Any]]:
    """Every bound with its arguments, as `--list --json` prints it."""
    return [
        {
            "bound": entry.name,
            "source": entry.source,
            "summary": entry.summary,
            "arguments": [
                {"name": argument.name, "allowed": argument.domain.describe()}
                | ({} if argument.default is REQUIRED else {"default": argument.default})
                for argument in entry.arguments.values()
            ],
        }
        for entry in catalogue().values()
    ]


def listing_text() -> str:
    """Every bound with its arguments, for a reader."""
    blocks = []
    for entry in catalogue().values():
        width = max(map(len, entry.arguments))
        blocks.append(f"{entry.name}   [{entry.source}]\n  {entry.summary}")
        blocks.extend(
            f"    {argument.name:<{width}}  {argument.describe()}"
            for argument in entry.arguments.values()
        )
    return "\n".join(blocks)


def strict_json(value: object) -> str:
    """`value` as JSON that any parser takes.

    Numbers that JSON lacks become strings, and so does what is nested deeper than `LEVELS`.
    """
    return json.dumps(_plain(value, LEVELS), allow_nan=False)


def _plain(value: object, levels: int) -> object:
    if isinstance(value, dict | list) and not levels:
        return "..."
    if isinstance(value, dict):
        return {key: _plain(member, levels - 1) for key, member in value.items()}
    if isinstance(value, list):
        return [_plain(member, levels - 1) for member in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
