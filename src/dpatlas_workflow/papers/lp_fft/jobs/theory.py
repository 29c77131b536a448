"""The ledger of lp_fft's simulated theory, and means with standard errors."""

import math

import numpy as np

LEDGER = {"mechanism": "none: nothing is trained on data and nothing of any data is released"}


def mean_with_error(values: np.ndarray) -> tuple[float, float]:
    """Mean of independent values and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
