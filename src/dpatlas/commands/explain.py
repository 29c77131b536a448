"""`python -m dpatlas explain`: trace a result back to what made it, or say how two differ."""

import json
from collections.abc import Sequence

from dpatlas.errors import ArgumentParser
from dpatlas.report.differences import compare, describe_comparison
from dpatlas.report.lineage import trace
from dpatlas.report.lineage_text import describe


def main(arguments: Sequence[str]) -> int:
    """Explain one path, or compare two; equal or not, the exit code is 0."""
    parser = ArgumentParser(prog="dpatlas explain", description=__doc__, allow_abbrev=False)
    parser.add_argument("path", help="figure, table, record.json or its folder; OLD of two")
    parser.add_argument("new", nargs="?", help="name what differs from the first")
    parser.add_argument("--json", action="store_true", help="for tools")
    options = parser.parse_args(arguments)
    if options.new is None:
        found = trace(options.path)
        print(json.dumps(found, indent=1) if options.json else describe(found))
    else:
        result = compare(trace(options.path), trace(options.new))
        print(json.dumps(result, indent=1) if options.json else describe_comparison(result))
    return 0
