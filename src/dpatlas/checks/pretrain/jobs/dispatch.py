"""pretrain: public backbones, trained without privacy or imported, and what they are worth.

Three kinds of job, spec in, record out:

- `backbone`: one network trained on one public data set; written to `--backbone`, and no private
  record is read.
- `imported`: one network whose weights others published; found under `--data-root` or fetched with
  `--allow-download`, and written to `--backbone`. No data set is read.
- `transfer`: frozen features of finished backbones (`--backbone`, repeatable) against raw pixels,
  on the private data; for the reader only, nothing is chosen by it.
"""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dpatlas.checks.pretrain.jobs.backbone import backbone
from dpatlas.checks.pretrain.jobs.imported import Places, imported, places_of
from dpatlas.checks.pretrain.jobs.transfer import transfer
from dpatlas.errors import InputError, run_command
from dpatlas.jobs.job import Job, job_main

MODULE = "dpatlas.checks.pretrain.jobs.dispatch"
PACKAGES = ("torch", "torchvision", "numpy", "scikit-learn")


def run(job: Job, places: Places) -> dict[str, Any]:
    """Metrics and ledger of the job's spec."""
    match job.spec.fields["kind"]:
        case "backbone":
            return backbone(job, _to_write(job))
        case "imported":
            return imported(job, _to_write(job), places)
        case "transfer":
            return transfer(job)
        case kind:
            raise InputError("kind", repr(kind), "one of backbone, imported, transfer")


def main(arguments: Sequence[str]) -> int:
    """Run one spec from the command line."""
    places, rest = places_of(arguments)
    return job_main(rest, MODULE, PACKAGES, partial(run, places=places), takes_backbones=True)


def _to_write(job: Job) -> Path:
    if len(job.backbones) != 1:
        raise InputError("--backbone", f"{len(job.backbones)} folders", "one, to write to")
    return job.backbones[0]


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
