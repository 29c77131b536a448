"""What lp_fft's simulated theory shares: its ledger, random draws, means with standard errors."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from dpatlas.base.seeds import generator, seed
from dpatlas.jobs.job import Job

LEDGER = {"mechanism": "none: nothing is trained on data and nothing of any data is released"}


def draws(job: Job, use: str, **axes: Any) -> np.random.Generator:
    """The random numbers of a job for a use, by the base seed and further axes."""
    return generator(seed(job.spec.key, use=use, base=job.fields.seed, **axes))


def mean_with_error(values: np.ndarray) -> tuple[float, float]:
    """Mean of independent values and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def means_with_errors(samples: Iterable[np.ndarray]) -> tuple[list[float], list[float]]:
    """The means of several samples, and their standard errors."""
    means, errors = zip(*map(mean_with_error, samples), strict=True)
    return list(means), list(errors)
