"""`python -m dpatlas explain`: trace a result back to what made it, or say why two differ.

TARGET is a file of a figure or table, a record, a folder of data, features or a backbone, the
folder of a whole tier; or a name: of a figure or table, the id of a record, of data or features, or
a claim such as kl-4. Two targets are compared: the first line names the first cause of what
differs, in the order settings, data, code, versions, device, machine.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from dpatlas.base.folders import DEFAULT_TIER, RESULTS
from dpatlas.base.guard import real
from dpatlas.errors import ArgumentParser, InputError
from dpatlas_workflow.report.differences import TOLERANCE, compare
from dpatlas_workflow.report.lineage import find
from dpatlas_workflow.report.text import describe, describe_comparison


def main(arguments: Sequence[str]) -> int:
    """Explain one target, or compare two; equal or not, the exit code is 0."""
    parser = ArgumentParser(prog="dpatlas explain", description=__doc__, allow_abbrev=False)
    parser.add_argument("target", help="path or name; of two, the old one")
    parser.add_argument("new", nargs="?", help="path or name to compare with the first")
    parser.add_argument("--tier", default=DEFAULT_TIER, help="tier in which names are looked up")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of all tiers")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        help="relative difference up to which numbers of two targets count as equal "
        f"(default: {TOLERANCE:g})",
    )
    parser.add_argument("--all", action="store_true", help="every record, setting and checksum")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    real(ge=0).check("--tolerance", options.tolerance)
    targets = [target for target in (options.target, options.new) if target is not None]
    try:
        traces = [find(target, options.results, options.tier) for target in targets]
        result = compare(traces[0], traces[1], options.tolerance) if traces[1:] else traces[0]
        text = describe_comparison if traces[1:] else describe
        print(json.dumps(result, indent=1) if options.json else text(result, full=options.all))
    except InputError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        found = f"JSON of another shape in it, or in a file that it leads to ({error!r})"
        allowed = "files as they were made: dpatlas verify FOLDER, of the run, names the others"
        raise InputError(" or ".join(targets), found, allowed) from None
    return 0
