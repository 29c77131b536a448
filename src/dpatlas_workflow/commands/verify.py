"""`python -m dpatlas verify`: is every result still what was made?

Of a run: csv files against manifest.txt; every file of a figure or table, and the records behind
it, against their checksums; the schema, settings, inputs and code of every record; arrays against
their manifests. Of a publication: every file against the paper's manifest.json, and the files
beside the papers against these. Of both: means and intervals of comparisons.csv against the values
of the runs in it. Prints a line for each difference; the exit code is 1 if there is any.

Not checked: config.json (`publish` compares it with the runs), cost.json, logs, pages and README.md
of a publication, all numbers of records that no figure or table shows, such as a tuning's, and
edits of a file together with its checksum. What has not been made yet is no difference, except
manifest.txt, which is made last.
"""

from collections.abc import Sequence
from pathlib import Path

from dpatlas.base.folders import DEFAULT_TIER, RESULTS
from dpatlas.errors import EXIT_FAILED_RUN, ArgumentParser, InputError
from dpatlas_workflow.report.verify import differences


def main(arguments: Sequence[str]) -> int:
    """Verify a tier's results, or a folder that holds such results or a published run."""
    parser = ArgumentParser(prog="dpatlas verify", description=__doc__, allow_abbrev=False)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tier", help=f"folder under results (default: {DEFAULT_TIER})")
    which.add_argument("path", nargs="?", type=Path, help="another folder of a tier's results")
    options = parser.parse_args(arguments)
    tier = DEFAULT_TIER if options.tier is None else options.tier
    folder = options.path or RESULTS / tier
    if not folder.is_dir():
        missing = "no folder" if folder.exists() else "no such folder"
        raise InputError(str(folder), missing, "the results of a run")
    lines = differences(folder)
    print(*(lines or [f"{folder}: everything is as it was made"]), sep="\n")
    return EXIT_FAILED_RUN if lines else 0
