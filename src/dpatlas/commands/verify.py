"""`python -m dpatlas verify`: is every result still what was made?

Checked: the csv files against manifest.txt; every file of a figure or table, and the records behind
it, against its lineage, and that a lineage names every file there; every record's schema, place and
spec, whether its data set, features and backbone are there, and whether today's code would make it;
the arrays of data sets, features and backbones against their manifests. Of a published run: every
file against manifest.json, which has to name them all. Of both: the means and intervals of
comparisons.csv against the values of runs beside them. A line for each difference; exit code 1 if
there is any.

Not checked: config.json, which publish compares with the runs; cost.json, logs, the page and
README.md of a publication, which no checksum covers; of
a record that no figure or table shows, such as a tuning's, anything but the above and that its
ledger agrees with its rows; and whoever edits a checksum as well. What has not been made yet is no
difference, but for manifest.txt, which comes last.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from dpatlas.core.arrays import read_arrays
from dpatlas.core.files import read_json
from dpatlas.core.folders import DEFAULT_TIER, RESULTS
from dpatlas.data import features, prepared
from dpatlas.errors import EXIT_FAILED_RUN, ArgumentParser, InputError
from dpatlas.report.lineage import MANIFEST
from dpatlas.report.manifest import NAME as CSV_MANIFEST
from dpatlas.report.manifest import csv_differences
from dpatlas.report.state import State
from dpatlas.report.verify import (
    interval_differences,
    product_differences,
    published_differences,
    record_differences,
    refused,
)

WEIGHTS = "weights.npz"


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


def differences(folder: Path) -> list[str]:
    """A line for each difference in a run or a published run; InputError for any other folder."""
    if not any((folder / name).is_dir() for name in ("runs", "lineage")):
        if not (folder / MANIFEST).is_file():
            raise InputError(str(folder), "neither runs nor a manifest", "the results of a run")
        return published_differences(folder) + interval_differences(folder)
    lines = [
        *refused(folder, folder / CSV_MANIFEST, lambda path: csv_differences(path.parent)),
        *interval_differences(folder),
        *product_differences(folder),
        *record_differences(folder),
        *_unreadable(folder, f"data/*/{MANIFEST}", prepared.load),
        *_unreadable(folder, f"features/*/{MANIFEST}", features.load),
        *_unreadable(folder, f"runs/*/*/backbone/{MANIFEST}", _check_weights),
    ]
    return list(dict.fromkeys(lines))  # manifest.txt and a lineage may both say it


def _unreadable(folder: Path, pattern: str, load: Callable[[Path], object]) -> list[str]:
    """A line for every folder with a manifest whose content `load` refuses."""

    def check(path: Path) -> None:
        load(path.parent)

    return [line for path in sorted(folder.glob(pattern)) for line in refused(folder, path, check)]


def _check_weights(folder: Path) -> None:
    # models.backbone would load torch for it.
    path, recorded = folder / WEIGHTS, read_json(folder / MANIFEST)["sha256"]
    try:
        state = State(recorded, prepared.content_sha256(read_arrays(path)))
    except (OSError, ValueError):
        raise InputError(str(path), "a missing or damaged file", "the weights") from None
    if not state.as_made:
        now = f"sha256 {str(state.now)[:16]}"
        raise InputError(str(path), now, f"{recorded[:16]} as in {MANIFEST}")
