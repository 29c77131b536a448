"""Two-layer linear networks on orthonormal inputs: exact linear probing, noisy full fine-tuning.

f(x) = v^T B x with head v (..., h) and features B (..., h, d); loss ||X B^T v - Y||^2 / 2 with
X^T X = I, so that gradients depend on the data through u = X^T Y alone. Noise as in the paper's
linear nets: theta moves by -grad dt + sqrt(2 sigma^2) dQ.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpatlas.errors import InputError

# Heads (paths, h) and features (paths, h, d).
State = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class LinearProblem:
    """Inputs X (n, d), labels Y (n,) and initial features B (h, d) with orthonormal rows."""

    X: np.ndarray
    Y: np.ndarray
    B: np.ndarray

    @property
    def u(self) -> np.ndarray:
        """X^T Y, (d,)."""
        return self.X.T @ self.Y

    @property
    def b(self) -> np.ndarray:
        """The head to which linear probing converges, B X^T Y, (h,)."""
        return self.B @ self.u

    def losses(self, v: np.ndarray, B: np.ndarray | None = None) -> np.ndarray:
        """Loss (paths,) of heads v (paths, h) on features B (paths, h, d) or the initial."""
        errors = v @ self.B @ self.X.T - self.Y if B is None else self.errors(v, B)
        return np.sum(errors**2, axis=-1) / 2

    def errors(self, v: np.ndarray, B: np.ndarray) -> np.ndarray:
        """What the outputs for the records are off their labels, (paths, n)."""
        return predictor(v, B) @ self.X.T - self.Y

    def residual(self, v: np.ndarray, B: np.ndarray) -> np.ndarray:
        """B^T v - u, from which the gradients of the loss follow, (paths, d)."""
        return predictor(v, B) - self.u

    def clipped_residual(self, v: np.ndarray, B: np.ndarray, norm: float) -> np.ndarray:
        """The residual of the sum of per-record gradients, each clipped to `norm`, (paths, d)."""
        errors = self.errors(v, B)
        sizes = np.hypot(
            np.linalg.norm(B @ self.X.T, axis=1),
            np.linalg.norm(v, axis=1, keepdims=True) * np.linalg.norm(self.X, axis=1),
        )
        norms = np.abs(errors) * sizes
        return (errors * np.minimum(1.0, norm / np.maximum(norms, norm))) @ self.X


def linear_problem(
    rng: np.random.Generator, n: int, d: int, h: int, *, reached: float, seen: float = 1.0
) -> LinearProblem:
    """A problem with ||Y|| = 1, ||X^T Y||^2 = `seen` and ||B X^T Y||^2 = `reached`.

    Raises InputError unless h <= d <= n and reached <= seen <= 1, and where no dimension is left
    for the rest of Y.
    """
    if not h <= d <= n:
        raise InputError("h, d, n", f"{h}, {d}, {n}", "h <= d <= n")
    if not 0 <= reached <= seen <= 1:
        raise InputError("reached, seen", f"{reached:g}, {seen:g}", "0 <= reached <= seen <= 1")
    if (reached < seen and h == d) or (seen < 1 and d == n):
        raise InputError("reached, seen", f"{reached:g}, {seen:g}", "equal parts where h = d = n")
    X, B = orthonormal(rng, n, d), orthonormal(rng, d, h).T
    within, inside = B.T @ _unit(rng, h), _unit(rng, d)
    inside = _orthogonal_part(inside, B.T) if h < d else np.zeros(d)
    outside = _orthogonal_part(_unit(rng, n), X) if d < n else np.zeros(n)
    parts = (reached, seen - reached, 1 - seen)
    sizes = [math.sqrt(part) for part in parts]
    Y = X @ (sizes[0] * within + sizes[1] * inside) + sizes[2] * outside
    return LinearProblem(X, Y, B)


def orthonormal(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """A matrix (rows, columns) with orthonormal columns, uniformly distributed."""
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    return q * np.sign(np.diagonal(r))


def probing(
    problem: LinearProblem,
    v: np.ndarray,
    sigma2: float,
    times: Sequence[float],
    rng: np.random.Generator,
) -> Iterator[np.ndarray]:
    """Heads (paths, h) at increasing `times`, from `v` at time 0: exact solutions of Eq. 121.

    The gradient of the loss is v - b, so transitions are Gaussian.
    """
    now = 0.0
    for time in times:
        decay = math.exp(-(time - now))
        spread = math.sqrt(sigma2 * (1 - decay**2))
        v = problem.b + decay * (v - problem.b) + spread * rng.standard_normal(v.shape)
        now = time
        yield v


def fine_tuning(
    v: np.ndarray,
    B: np.ndarray,
    residual: Callable[[np.ndarray, np.ndarray], np.ndarray],
    *,
    step: float,
    deviations: tuple[float, float],
    steps: int,
    rng: np.random.Generator,
    every: int = 1,
) -> Iterator[State]:
    """(v, B) after every `every` of `steps` noisy gradient steps on all layers.

    v (paths, h), B (paths, h, d). residual: gives g (paths, d), the gradients being B g and v g^T.
    deviations: standard deviations of the noise that a step adds to an entry of v and of B.
    """
    for taken in range(1, steps + 1):
        g = residual(v, B)
        head = (B @ g[..., None])[..., 0]
        features = v[..., None] * g[:, None, :]
        v = v - step * head + deviations[0] * rng.standard_normal(v.shape)
        B = B - step * features + deviations[1] * rng.standard_normal(B.shape)
        if taken % every == 0:
            yield v, B


def diffusion(
    problem: LinearProblem,
    start: State,
    noise: str,
    rng: np.random.Generator,
    *,
    sigma2: float,
    step: float,
    **count: Any,
) -> Iterator[State]:
    """The start, and states by Euler steps of Eq. 122 (uniform noise) or 127 (layer-wise).

    count: `steps` and `every` of `fine_tuning`.
    """
    deviation = math.sqrt(2 * sigma2 * step)
    head = deviation * (math.sqrt(problem.B.shape[1]) if noise == "layer-wise" else 1.0)
    sizes = (head, deviation)
    yield start
    yield from fine_tuning(*start, problem.residual, step=step, deviations=sizes, rng=rng, **count)


def predictor(v: np.ndarray, B: np.ndarray) -> np.ndarray:
    """B^T v, (paths, d)."""
    return (v[:, None, :] @ B)[:, 0]


def least_head_variance(h: int, d: int, xty_norm: float) -> float:
    """Lower limit of the head's variance in Assumption E.7."""
    root = math.sqrt(xty_norm**2 + 4 * (1 + d) * xty_norm + 4 * d)
    return (root - xty_norm) / (2 * h)


def largest_noise(h: int, d: int, head_var: float, xty_norm: float, b_norm2: float) -> float:
    """Upper limit of sigma^2 in Assumption E.7, Eq. 123."""
    head, spread = h * head_var, math.sqrt(2) * (1 + d)
    third = (head * (head + xty_norm) / ((1 + d) * xty_norm + d) - 1) / (1 + spread)
    return min((head + b_norm2) / (2 * h), (head - 1) / spread, third)


def _unit(rng: np.random.Generator, size: int) -> np.ndarray:
    vector = rng.standard_normal(size)
    return vector / np.linalg.norm(vector)


def _orthogonal_part(vector: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Unit vector along the part of `vector` orthogonal to the columns of `basis`."""
    rest = vector - basis @ (basis.T @ vector)
    return rest / np.linalg.norm(rest)
