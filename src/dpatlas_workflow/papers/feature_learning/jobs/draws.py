"""feature_learning: single-index data and initial networks, for several runs at once.

The first axis of every array is the run. Run r draws its direction, weights and records from its
own seeds, which depend on no size but d: a condition with fewer records or neurons has the first of
those that a larger one draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpatlas.base.seeds import generator, seed
from dpatlas.formulas.feature_learning.single_index import Link

KEY = "feature_learning"
# Precision of inputs, weights, features and their products; sums of these are in double.
REAL = np.float32


@dataclass(frozen=True)
class Records:
    """Inputs x (runs, n, d) and labels y (runs, n)."""

    x: np.ndarray
    y: np.ndarray

    def joined(self, other: "Records") -> "Records":
        """Concatenate along records."""
        x, y = (np.concatenate(pair, axis=1) for pair in ((self.x, other.x), (self.y, other.y)))
        return Records(x, y)


@dataclass(frozen=True)
class Start:
    """The network f(x) = a' tanh(W' x + b) before training, and the direction mu of its labels.

    mu (runs, d) of unit norm; weights W_0 (runs, d, p) ~ N(0, 1/d); biases b (runs, p) ~ N(0, 1);
    head a_0 = 1/sqrt(p) everywhere.
    """

    mu: np.ndarray
    weights: np.ndarray
    biases: np.ndarray

    @property
    def p(self) -> int:
        """Number of neurons."""
        return self.weights.shape[2]

    @property
    def head(self) -> float:
        """Every entry of a_0."""
        return self.p**-0.5

    def features(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """tanh(W' x + b), (runs, records, p), of `weights` (runs, d, p)."""
        outputs = x @ weights
        outputs += self.biases[:, None, :]
        return np.tanh(outputs, out=outputs)


@dataclass(frozen=True)
class FeatureDraw:
    """Initial networks, the data sets of both layers, and fresh records to test on."""

    start: Start
    first: Records
    second: Records
    test: Records


def draw(
    link: Link, d: int, p: int, n: int, n_test: int, runs: Sequence[int], base: int, use: str = ""
) -> FeatureDraw:
    """Data and initial networks of `runs`; `use` is added to the seeds' names for other draws."""
    mu = np.stack([_unit(_numbers("direction" + use, run, base, (d,), d=d)) for run in runs])
    weights = [_numbers("weights" + use, run, base, (p, d), d=d).T / d**0.5 for run in runs]
    biases = [_numbers("biases" + use, run, base, (p,)) for run in runs]
    start = Start(mu.astype(REAL), np.stack(weights).astype(REAL), np.stack(biases))
    parts = {"first": n, "second": n, "test": n_test}
    sets = {
        name: _records(link, mu, [_numbers(name + use, run, base, (size, d), d=d) for run in runs])
        for name, size in parts.items()
    }
    return FeatureDraw(start, **sets)


def _numbers(use: str, run: int, base: int, shape: tuple[int, ...], **axes: int) -> np.ndarray:
    key = seed(KEY, use=use, run=run, base=base, **axes)
    return generator(key).standard_normal(shape, dtype=REAL)


def _unit(vector: np.ndarray) -> np.ndarray:
    double = vector.astype(float)
    return double / np.linalg.norm(double)


def _records(link: Link, mu: np.ndarray, inputs: Sequence[np.ndarray]) -> Records:
    x = np.stack(inputs)
    return Records(x, link(np.einsum("rnd,rd->rn", x, mu)).astype(REAL))
