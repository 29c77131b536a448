"""`python -m dpatlas verify`: is every result still what was made?

Checked: the csv files against manifest.txt; every file of a figure or table, and the records behind
it, against its lineage, and that a lineage names every file there; every record's schema, place and
spec, whether its data set, features and backbone are there, and whether today's code would make it;
the arrays of data sets, features and backbones against their manifests. Of a published tier or
paper: every file against the paper's manifest.json, which has to name them all, and what stands
beside the papers against what they say together. Of all: the means and intervals of comparisons.csv
against the values of runs beside them. A line for each difference; exit code 1 if there is any.

Not checked: config.json, which publish compares with the runs; cost.json, logs, the page and
README.md of a publication, which no checksum covers; of
a record that no figure or table shows, such as a tuning's, anything but the above and that its
ledger agrees with its rows; and whoever edits a checksum as well. What has not been made yet is no
difference, but for manifest.txt, which comes last.
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
    which.add_argument("path", nargs="?", type=Path, help="folder of a tier's results elsewhere")
    options = parser.parse_args(arguments)
    tier = DEFAULT_TIER if options.tier is None else options.tier
    folder = options.path or RESULTS / tier
    if not folder.is_dir():
        missing = "no folder" if folder.exists() else "no such folder"
        raise InputError(str(folder), missing, "the results of a run")
    lines = differences(folder)
    print(*(lines or [f"{folder}: everything is as it was made"]), sep="\n")
    return EXIT_FAILED_RUN if lines else 0
