"""kl_privacy: KL privacy loss of noisy gradient descent (Ye et al. 2023).

Three kinds of job, spec in, record out:

- `training`: one (init, depth, width), all runs; the cumulative KL of every record after every
  step (Theorem E.1), kept as worst case and mean; the constants that Lemma 3.2 asks for.
- `linearized`: the network linearised at its initialisation, trained by Langevin steps at a fixed
  KL budget (Cor. 6.4); B and R measured; every depth of one init.
- `constants`: Monte Carlo check of the gradient-norm constant B (Eq. 7).
"""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import sys
from collections.abc import Sequence
from typing import Any

from dpatlas.errors import run_command
from dpatlas.jobs.job import Job, by_kind, job_main
from dpatlas.papers.kl_privacy.jobs.linearized import constants, linearized
from dpatlas.papers.kl_privacy.jobs.training import training

MODULE = "dpatlas.papers.kl_privacy.jobs.dispatch"
PACKAGES = ("torch", "numpy")


def run(job: Job) -> dict[str, Any]:
    """Metrics and ledger of the job's spec."""
    return by_kind(job, {"training": training, "linearized": linearized, "constants": constants})


def main(arguments: Sequence[str]) -> int:
    """Run one spec from the command line."""
    return job_main(arguments, MODULE, PACKAGES, run)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
