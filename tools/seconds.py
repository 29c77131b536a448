"""Write `src/dpatlas_workflow/cost/seconds.csv` from finished runs: seconds of jobs by kind.

    python tools/seconds.py results          the folder of all tiers; a run of smoke should be there

A kind's `start_s` is the time of its quickest job; the rest of the time of its longer jobs, divided
by their units of work, is `unit_s`, or on a GPU `gpu_unit_s`. What no run speaks of stays as it is.
"""

import csv
import platform
import sys
from collections import defaultdict
from pathlib import Path

import dpatlas_workflow.cost
from dpatlas_workflow.cost.estimate import PastRun, past_runs

TABLE = Path(dpatlas_workflow.cost.__file__).with_name("seconds.csv")
COLUMNS = ("block", "kind", "start_s", "unit_s", "gpu_unit_s")
# Jobs that take at least this many times as long as the quickest tell the time of a unit.
LONGER = 4


def main(results: Path) -> None:
    """Write the table anew."""
    with TABLE.open(encoding="utf-8", newline="") as stream:
        rows = {(row["block"], row["kind"]): row for row in csv.DictReader(stream)}
    runs: dict[tuple[str, str], list[PastRun]] = defaultdict(list)
    for run in past_runs(results, platform.machine()):
        runs[run.kind].append(run)
    for kind, members in runs.items():
        row = rows.setdefault(kind, {"block": kind[0], "kind": kind[1], "unit_s": "0"})
        start = min(run.actual_s for run in members)
        row["start_s"] = f"{start:.2g}"
        for name, gpu in (("unit_s", False), ("gpu_unit_s", True)):
            longer = [run for run in members if run.gpu == gpu and run.actual_s >= LONGER * start]
            if longer:
                seconds = sum(run.actual_s - start for run in longer)
                row[name] = f"{seconds / sum(run.units for run in longer):.2g}"
        row.setdefault("gpu_unit_s", row["unit_s"])
    with TABLE.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[kind] for kind in sorted(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
