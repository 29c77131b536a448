"""max_information: certificates with priors learned by DP-SGD (Lampert and Zakerinia, 2026).

Five kinds of job, spec in, record out:

- `certificates`: priors, posteriors and their certificates on private data (Tables 1 to 3).
- `agreement`: how risks are drawn for them, against drawing all weights.
- `coefficients`, `kappa`, `simulation`: Figs. 1 and 2, and the lemma behind kappa; no data.
"""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import sys
from collections.abc import Sequence
from typing import Any

from dpatlas.errors import run_command
from dpatlas.jobs.job import Job, by_kind, job_main
from dpatlas.papers.max_information.jobs.certificates import agreement, certificates
from dpatlas.papers.max_information.jobs.theory import coefficients, kappa, simulation

MODULE = "dpatlas.papers.max_information.jobs.dispatch"
PACKAGES = ("torch", "numpy", "scipy", "dp-accounting")
KINDS = {
    "certificates": certificates,
    "agreement": agreement,
    "coefficients": coefficients,
    "kappa": kappa,
    "simulation": simulation,
}


def run(job: Job) -> dict[str, Any]:
    """Metrics and ledger of the job's spec."""
    return by_kind(job, KINDS)


def main(arguments: Sequence[str]) -> int:
    """Run one spec from the command line."""
    return job_main(arguments, MODULE, PACKAGES, run)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
