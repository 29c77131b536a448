"""dp_sgld: Langevin SGD against DP-SGD (Ryffel, Bach and Pointcheval 2022).

Six kinds of job, spec in, record out:

- `accuracy`, `finetune`, `long_training`: softmax regression or the last blocks of a network on
  private data, every arm tuned on validation records; with `--backbone` unless features are raw.
- `privacy_loss`, `counterexample`, `utility`: what is claimed, guaranteed and exact; no data.
"""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import sys
from collections.abc import Sequence
from typing import Any

from dpatlas.errors import run_command
from dpatlas.jobs.job import Job, by_kind, job_main
from dpatlas.papers.dp_sgld.features import takes_features
from dpatlas.papers.dp_sgld.jobs.accuracy import accuracy
from dpatlas.papers.dp_sgld.jobs.finetune import finetune
from dpatlas.papers.dp_sgld.jobs.long_training import long_training
from dpatlas.papers.dp_sgld.jobs.theory import counterexample, privacy_loss, utility

MODULE = "dpatlas.papers.dp_sgld.jobs.dispatch"
PACKAGES = ("torch", "numpy", "scipy", "dp-accounting")
KINDS = {
    "accuracy": accuracy,
    "finetune": finetune,
    "long_training": long_training,
    "privacy_loss": privacy_loss,
    "counterexample": counterexample,
    "utility": utility,
}


def run(job: Job) -> dict[str, Any]:
    """Metrics and ledger of the job's spec."""
    return by_kind(job, KINDS)


def main(arguments: Sequence[str]) -> int:
    """Run one spec from the command line."""
    return job_main(
        arguments,
        MODULE,
        PACKAGES,
        run,
        takes_backbones=True,
        takes_features=True,
        without_images=takes_features,
    )


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
