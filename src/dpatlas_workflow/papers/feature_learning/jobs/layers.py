"""feature_learning: the two layers of the corrected Algorithm 1, private and not, for several runs.

First layer: one large gradient step on W, for which a matrix is released, or the mean of y x, a
vector. Second layer: full-batch gradient descent on a, with a ridge penalty. The loss is the mean
of (f(x) - y)^2, plus lambda ||a||^2. The first axis of every array is the run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpatlas.accounting.mean_release import clip_factors
from dpatlas_workflow.papers.feature_learning.jobs.draws import REAL, Records, Start

# Number of records whose features are in memory at once in the first layer.
BLOCK = 4096
# normal(size, run, step, use): `size` standard normal numbers of one run.
Normal = Callable[[int, int, int, str], np.ndarray]


def first_gradient(start: Start, records: Records, max_grad_norm: float | None) -> np.ndarray:
    """Mean over records of the gradient in W, (runs, d, p); each clipped to `max_grad_norm` if any.

    A record's gradient is x u' with u = 2 (f(x) - y) a_0 (1 - tanh^2): its norm is ||x|| ||u||.
    """
    runs, n, d = records.x.shape
    total = np.zeros((runs, d, start.p))
    for begin in range(0, n, BLOCK):
        x = records.x[:, begin : begin + BLOCK]
        slopes, residuals = _gradient_factors(start, x, records.y[:, begin : begin + BLOCK])
        if max_grad_norm is not None:
            residuals *= clip_factors(_gradient_norms(x, slopes, residuals), max_grad_norm)
        slopes *= residuals[:, :, None].astype(REAL)
        total += x.transpose(0, 2, 1) @ slopes
    return total / n


def released_gradient(
    start: Start, records: Records, max_grad_norm: float, deviation: float, normal: Normal
) -> np.ndarray:
    """The mean clipped gradient in W with noise of that deviation on every entry, (runs, d, p)."""
    gradient = first_gradient(start, records, max_grad_norm)
    for run, matrix in enumerate(gradient):
        matrix += deviation * neurons_noise(matrix.shape, run, "matrix", normal)
    return gradient


def neurons_noise(shape: tuple[int, ...], run: int, use: str, normal: Normal) -> np.ndarray:
    """Standard normal numbers for every neuron, `shape` (d, p), drawn neuron by neuron.

    So fewer neurons have the numbers of the first of more.
    """
    d, p = shape
    return normal(d * p, run, 0, use).reshape(p, d).T


def first_norms(start: Start, records: Records) -> np.ndarray:
    """Norm of every record's gradient in W, (runs, n)."""
    return _gradient_norms(records.x, *_gradient_factors(start, records.x, records.y))


def _gradient_factors(start: Start, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a_0 (1 - tanh^2), (runs, records, p), and 2 (f(x) - y), (runs, records)."""
    slopes = start.features(x, start.weights)
    residuals = 2 * (slopes.sum(axis=2, dtype=float) * start.head - y)
    np.square(slopes, out=slopes)
    np.subtract(1, slopes, out=slopes)
    slopes *= REAL(start.head)
    return slopes, residuals


def _gradient_norms(x: np.ndarray, slopes: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    return np.abs(residuals) * np.linalg.norm(x, axis=2) * np.linalg.norm(slopes, axis=2)


def stepped(start: Start, gradient: np.ndarray, rate: float) -> np.ndarray:
    """W_0 - eta_W gradient with columns of unit norm, (runs, d, p)."""
    return normalised(start.weights - rate * gradient)


def normalised(weights: np.ndarray) -> np.ndarray:
    """Weights with columns of unit norm. Post-processing of a release, which costs no privacy."""
    double = weights.astype(float)
    return (double / np.linalg.norm(double, axis=1, keepdims=True)).astype(REAL)


def mean_direction(records: Records, max_norm: float) -> np.ndarray:
    """Mean of y x, each clipped to `max_norm`, (runs, d); it points along alpha*_1 mu."""
    factors = clip_factors(direction_norms(records), max_norm)
    labels = np.multiply(records.y, factors, dtype=float)
    return np.einsum("rn,rnd->rd", labels, records.x) / records.x.shape[1]


def released_direction(
    records: Records, max_norm: float, deviation: float, normal: Normal
) -> np.ndarray:
    """The mean of clipped y x with noise of that deviation on every entry, (runs, d)."""
    mean = mean_direction(records, max_norm)
    for run, vector in enumerate(mean):
        vector += deviation * normal(vector.size, run, 0, "direction")
    return mean


def direction_norms(records: Records) -> np.ndarray:
    """||y x||, (runs, n)."""
    return np.abs(records.y) * np.linalg.norm(records.x, axis=2)


@dataclass
class SecondLayer:
    """Gradient descent on a, given features phi (runs, n, p) and labels y (runs, n) of n records.

    penalty: lambda. The step eta_a = 1 / (p + lambda) is at most 2 over the smoothness of the
    loss for any records, as |tanh| <= 1.
    """

    phi: np.ndarray
    y: np.ndarray
    penalty: float

    def __post_init__(self) -> None:
        """Set the sizes and the step eta_a."""
        self.runs, self.n, self.p = self.phi.shape
        self.rate = 1 / (self.p + self.penalty)

    def norms_at_zero(self) -> np.ndarray:
        """Norm of every record's gradient at a = 0, (runs, n)."""
        return 2 * np.abs(self.y) * self._norms()

    def _norms(self) -> np.ndarray:
        """Norm of every record's features, (runs, n), without a copy of phi."""
        return np.sqrt(np.einsum("rnp,rnp->rn", self.phi, self.phi))

    def descend(self, steps: int) -> np.ndarray:
        """a after `steps` steps from 0 without noise or clip, (runs, p), by second moments."""
        moments, targets = self.moments
        a = np.zeros((self.runs, self.p))
        for _ in range(steps):
            slope = (moments @ a[:, :, None])[:, :, 0] - targets + self.penalty * a
            a -= 2 * self.rate * slope
        return a

    def descend_privately(
        self,
        steps: int,
        max_grad_norm: float,
        deviation: float,
        normal: Normal,
        use: str,
        see: Callable[[np.ndarray], None] = lambda mean: None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """a after `steps` noisy steps from 0, (runs, p); share of clipped gradients, (runs,).

        deviation: standard deviation of the noise on each coordinate of a step's mean gradient.
        The penalty's gradient depends on no record and is not clipped. see: called with every
        step's noisy mean, (runs, p), from which all iterates follow.
        """
        norms = self._norms()
        a = np.zeros((self.runs, self.p))
        clipped = np.zeros(self.runs)
        for step in range(steps):
            residuals = 2 * ((self.phi @ a.astype(REAL)[:, :, None])[:, :, 0] - self.y)
            factors = clip_factors(np.abs(residuals) * norms, max_grad_norm)
            clipped += (factors < 1).mean(axis=1) / steps
            weighted = (residuals * factors).astype(REAL)
            mean = (weighted[:, None, :] @ self.phi)[:, 0] / self.n
            noise = [normal(self.p, run, step, use) for run in range(self.runs)]
            noisy = (mean + deviation * np.stack(noise)).astype(REAL)
            see(noisy)
            a -= self.rate * (noisy + 2 * self.penalty * a)
        return a, clipped

    def ridge(self) -> np.ndarray:
        """The minimiser of the penalised loss, (runs, p), to which descent without noise tends."""
        moments, targets = self.moments
        penalised = moments + self.penalty * np.eye(self.p)
        return np.linalg.solve(penalised, targets[:, :, None])[:, :, 0]

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """phi' phi / n, (runs, p, p), and phi' y / n, (runs, p)."""
        transposed = self.phi.transpose(0, 2, 1)
        targets = (transposed @ self.y[:, :, None])[:, :, 0]
        return (transposed @ self.phi).astype(float) / self.n, targets.astype(float) / self.n
