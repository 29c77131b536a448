"""feature_learning: private features of single-index models (M1 report); simulation alone, no data.

One kind of job, spec in, record out: `simulation`, overlaps and risks along one axis.
"""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy)

import sys
from collections.abc import Sequence
from typing import Any

from dpatlas.core.guard import one_of
from dpatlas.errors import run_command
from dpatlas.jobs.job import Job, job_main
from dpatlas.papers.feature_learning.jobs.simulation import simulation

MODULE = "dpatlas.papers.feature_learning.jobs.dispatch"
PACKAGES = ("numpy", "scipy")


def run(job: Job) -> dict[str, Any]:
    """Metrics and ledger of the job's spec."""
    one_of("simulation").check("kind", job.spec.fields["kind"])
    return simulation(job)


def main(arguments: Sequence[str]) -> int:
    """Run one spec from the command line."""
    return job_main(arguments, MODULE, PACKAGES, run)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
