"""`python -m dpatlas explain`: trace a result back to what made it, or say why two differ.

TARGET is a file of a figure or table, a record, a folder of data, features or a backbone, the
folder of a whole tier; or a name: of a figure or table, the id of a record, of data or features, or
a claim such as kl-4. Two targets are compared: the first line names the first cause of what
differs, in the order settings, data, code, versions, device, machine.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from dpatlas.core.folders import RESULTS
from dpatlas.errors import ArgumentParser
from dpatlas.report.differences import compare
from dpatlas.report.lineage import DEFAULT_TIER, find
from dpatlas.report.text import describe, describe_comparison


def main(arguments: Sequence[str]) -> int:
    """Explain one target, or compare two; equal or not, the exit code is 0."""
    parser = ArgumentParser(prog="dpatlas explain", description=__doc__, allow_abbrev=False)
    parser.add_argument("target", help="path or name; the old one of two")
    parser.add_argument("new", nargs="?", help="say why this one differs from the first")
    parser.add_argument("--tier", default=DEFAULT_TIER, help="where names are looked up")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of all tiers")
    parser.add_argument("--all", action="store_true", help="every record, setting and checksum")
    parser.add_argument(
        "--json", action="store_true", help="for tools; report/lineage.py has the fields"
    )
    options = parser.parse_args(arguments)
    target = find(options.target, options.results, options.tier)
    if options.new is None:
        print(json.dumps(target, indent=1) if options.json else describe(target, full=options.all))
    else:
        result = compare(target, find(options.new, options.results, options.tier))
        said = describe_comparison(result, full=options.all)
        print(json.dumps(result, indent=1) if options.json else said)
    return 0
