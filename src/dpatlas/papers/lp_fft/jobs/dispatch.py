"""lp_fft: linear probing before full fine-tuning, in private.

Seven kinds of job, spec in, record out:

- `strategies`: LP, LP-FFT, FFT, LoRA and their controls at one privacy level; with `--backbone`.
- `feature_quality`, `umap`: what fine-tuning does to features; the former with `--public-data`.
- `dynamics`, `distortion`, `sensitivity`, `imbalance`: the theory beside simulations; no data.
"""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import sys
from collections.abc import Sequence
from typing import Any

from dpatlas.errors import run_command
from dpatlas.jobs.job import Job, by_kind, job_main
from dpatlas.papers.lp_fft.jobs.distortion import distortion
from dpatlas.papers.lp_fft.jobs.dynamics import dynamics
from dpatlas.papers.lp_fft.jobs.features import feature_quality, umap
from dpatlas.papers.lp_fft.jobs.layers import imbalance, sensitivity
from dpatlas.papers.lp_fft.jobs.strategies import strategies

MODULE = "dpatlas.papers.lp_fft.jobs.dispatch"
PACKAGES = ("torch", "numpy", "scipy", "dp-accounting", "scikit-learn", "umap-learn")
KINDS = {
    "strategies": strategies,
    "feature_quality": feature_quality,
    "umap": umap,
    "dynamics": dynamics,
    "distortion": distortion,
    "sensitivity": sensitivity,
    "imbalance": imbalance,
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
        takes_public_data=True,
        takes_features=True,
    )


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
