"""Two-layer ReLU networks on clustered data: gradient flow, zeroth-order loss, Langevin diffusion.

f(x) = sum_j v_j relu(w_j . x), exponential loss exp(-y f), summed over records, as in Sec. 3 of
lp_fft. Arrays: records x (..., n, d), labels y (n,) of +1 and -1, head v (..., h), features W
(..., h, d); leading axes are runs or paths. Noise as in the paper's ReLU proofs: theta moves by
-grad dt + sigma dQ.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from dpatlas.errors import InputError
from dpatlas.formulas.lp_fft.relu import tangent_kernel, zeroth_order_loss_drift

# The arrays of a state, or of its velocity.
State = tuple[np.ndarray, ...]


class ReluNet(NamedTuple):
    """Head `v` (..., h) and features `W` (..., h, d); also a velocity in the same space."""

    v: np.ndarray
    W: np.ndarray


def directions(
    rng: np.random.Generator, shape: tuple[int, ...], d: int, angle: float
) -> np.ndarray:
    """Unit vectors (*shape, d), at most `angle` degrees from the first axis.

    The angle is uniform, and so is the direction across the axis. Below 45 degrees any two of them
    are at an acute angle.
    """
    across = rng.standard_normal((*shape, d - 1))
    across /= np.linalg.norm(across, axis=-1, keepdims=True)
    turned = np.deg2rad(angle) * rng.random((*shape, 1))
    return np.concatenate([np.cos(turned), np.sin(turned) * across], axis=-1)


def labels(n: int) -> np.ndarray:
    """(n,): the first half +1, the others -1."""
    return np.where(np.arange(n) < n // 2, 1.0, -1.0)


def hidden(net: ReluNet, x: np.ndarray) -> np.ndarray:
    """relu(w_j . x_i), (..., n, h)."""
    return np.maximum(x @ net.W.swapaxes(-1, -2), 0.0)


def log_losses(net: ReluNet, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """-y_i f(x_i), (..., n)."""
    return -y * (hidden(net, x) @ net.v[..., None])[..., 0]


def class_sums(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sums over the records of each class, (..., 2), class +1 first."""
    return np.stack([values[..., y > 0].sum(-1), values[..., y < 0].sum(-1)], axis=-1)


def velocity(
    net: ReluNet, x: np.ndarray, y: np.ndarray, phase: str, *, unit_loss: bool = False
) -> ReluNet:
    """Minus the gradient of the loss in the parameters that the phase trains (`head` or `all`).

    unit_loss: divide it by the loss, which changes the speed along the flow and not its states.
    """
    phi = hidden(net, x)
    logs = -y * (phi @ net.v[..., None])[..., 0]
    pull = y * (softmax(logs, axis=-1) if unit_loss else np.exp(logs))
    head = (pull[..., None, :] @ phi)[..., 0, :]
    if phase == "head":
        return ReluNet(head, np.zeros_like(net.W))
    return ReluNet(head, net.v[..., None] * (((phi > 0) * pull[..., None]).swapaxes(-1, -2) @ x))


def flow(
    net: ReluNet, x: np.ndarray, y: np.ndarray, phase: str, span: float, steps: int
) -> Iterator[ReluNet]:
    """`steps` states of the gradient flow after `net`, over a span of s = integral of L dt.

    Runge-Kutta of order 4 in equal steps of s.
    """

    def rate(state: State) -> State:
        return velocity(ReluNet(*state), x, y, phase, unit_loss=True)

    for _ in range(steps):
        net = ReluNet(*_runge_kutta(net, rate, span / steps))
        yield net


def _moved(state: State, by: State, step: float) -> State:
    """state + step * by."""
    return tuple(part + step * of_part for part, of_part in zip(state, by, strict=True))


def _runge_kutta(state: State, rate: Callable[[State], State], step: float) -> State:
    """One step of the classical method of order 4."""
    first = rate(state)
    second = rate(_moved(state, first, step / 2))
    third = rate(_moved(state, second, step / 2))
    fourth = rate(_moved(state, third, step))
    for slope, weight in ((first, 1), (second, 2), (third, 2), (fourth, 1)):
        state = _moved(state, slope, weight * step / 6)
    return state


def zeroth_order_losses(
    net: ReluNet,
    x: np.ndarray,
    y: np.ndarray,
    phase: str,
    *,
    sigma: np.ndarray,
    step: float,
    every: int,
    count: int,
) -> np.ndarray:
    """Losses (count, sigmas, 2) of both classes in the zeroth-order model, every `every` steps.

    Parameters follow the gradient flow, and losses the drift of `zeroth_order_loss_drift`. One
    network: v (h,), W (h, d), x (n, d); sigma (sigmas, 1). Raises InputError for a step size at
    which losses overflow or are no longer positive.
    """

    def rate(state: State) -> State:
        v, W, losses = state
        kernel = tangent_kernel(x, W.T, v, phase)
        # A stage of the method may have losses below zero, where the drift is not defined.
        drift = zeroth_order_loss_drift(np.maximum(losses, 0), y, kernel, sigma)
        return (*velocity(ReluNet(v, W), x, y, phase), drift)

    start = np.exp(log_losses(net, x, y))
    state: State = (*net, np.broadcast_to(start, (len(sigma), len(y))))
    at_times = []
    for _ in range(count):
        for _ in range(every):
            state = _runge_kutta(state, rate, step)
            if not np.isfinite(state[-1]).all() or (state[-1] <= 0).any():
                raise InputError("step", step, "a step at which the zeroth-order losses are stable")
        at_times.append(class_sums(state[-1], y))
    return np.stack(at_times)


def diffusion_losses(
    net: ReluNet,
    x: np.ndarray,
    y: np.ndarray,
    phase: str,
    *,
    sigma: np.ndarray,
    rng: np.random.Generator,
    step: float,
    every: int,
    count: int,
) -> np.ndarray:
    """Losses (count, ..., 2) of both classes on paths of the Langevin diffusion.

    Heun's method, of weak order 2 for additive noise. `net` has the axes (sigmas, paths), `sigma`
    the shape (sigmas, 1); the paths of all sigmas share their Brownian motion.
    """
    spread = np.asarray(sigma)[..., None] * np.sqrt(step)
    at_times = []
    for _ in range(count):
        for _ in range(every):
            v, W = net.v + spread * rng.standard_normal(net.v.shape[1:]), net.W
            if phase == "all":
                W = W + spread[..., None] * rng.standard_normal(W.shape[1:])
            first = velocity(net, x, y, phase)
            second = velocity(ReluNet(*_moved((v, W), first, step)), x, y, phase)
            net = ReluNet(*_moved(_moved((v, W), first, step / 2), second, step / 2))
        at_times.append(class_sums(np.exp(log_losses(net, x, y)), y))
    return np.stack(at_times)


def cosine_rates(net: ReluNet, x: np.ndarray, y: np.ndarray, c: np.ndarray) -> np.ndarray:
    """d cos(w_j, mean of class c_j) / dt under gradient flow, divided by the loss, (..., h).

    c: classes of the features (..., h). The rate is <m - cos w_j / ||w_j||, dw_j/dt> / ||w_j||
    for the unit mean m.
    """
    moves = velocity(net, x, y, "all", unit_loss=True).W
    norms = np.linalg.norm(net.W, axis=-1, keepdims=True)
    units, means = net.W / norms, class_means(x, y, c)
    across = means - np.sum(units * means, axis=-1, keepdims=True) * units
    return np.sum(across * moves, axis=-1) / norms[..., 0]


def class_means(x: np.ndarray, y: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Unit vector along the sum of the records of every feature's class, (..., h, d)."""
    sums = (c[..., None] == y).astype(float) @ x
    return sums / np.linalg.norm(sums, axis=-1, keepdims=True)
