"""pretrain: public backbones, trained without privacy on generated images, and what they are worth.

Two kinds of job, spec in, record out:

- `backbone`: one network trained on one public data set; written to `--backbone`, and no private
  record is read.
- `transfer`: frozen features of finished backbones (`--backbone`, repeatable) against raw pixels,
  on the private data; for the reader only, nothing is chosen by it.
"""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import sys
from collections.abc import Sequence
from typing import Any

from dpatlas.errors import InputError, run_command
from dpatlas.experiments.job import Job, job_main
from dpatlas.experiments.pretraining import backbone
from dpatlas.experiments.transfer import transfer

MODULE = "dpatlas.experiments.pretrain"
PACKAGES = ("torch", "numpy", "scikit-learn")


def run(job: Job) -> dict[str, Any]:
    """Metrics, seeds and ledger of the job's spec."""
    kind = job.spec.fields["kind"]
    if kind == "backbone":
        if len(job.backbones) != 1:
            raise InputError("--backbone", f"{len(job.backbones)} folders", "one, to write to")
        return backbone(job, job.backbones[0])
    if kind == "transfer":
        return transfer(job, job.backbones)
    raise InputError("kind", repr(kind), "one of backbone, transfer")


def main(arguments: Sequence[str]) -> int:
    """Run one spec from the command line."""
    return job_main(arguments, MODULE, PACKAGES, run, takes_backbones=True)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
