"""lp_fft: simulated losses against Thms 4.2 to 4.5, and the head norm against Eq. 161."""

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any, Literal

import numpy as np

from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.formulas.lp_fft.linear import (
    fft_linear_loss_bound,
    fft_linear_rate,
    least_lp_loss,
    lp_head_norm,
    lp_loss,
    lp_loss_bound,
)
from dpatlas.formulas.lp_fft.relu import (
    data_coherence,
    fft_relu_loss_bounds,
    lp_relu_loss_bounds,
)
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.lp_fft.jobs import linear, relu
from dpatlas_workflow.papers.lp_fft.jobs.theory import LEDGER, draws, means_with_errors
from dpatlas_workflow.papers.lp_fft.records.dynamics import (
    RECORD,
    DynamicsPhase,
    DynamicsSpec,
    Heads,
    LinearFineTuning,
    LinearProbing,
    Phase,
    ReluNets,
)

# Heads from which each phase is simulated; aligned ones are as linear probing leaves them.
HEADS: dict[Phase, tuple[Heads, ...]] = {"head": ("random",), "all": ("random", "aligned")}
CLASSES = (1, -1)
# A mean over paths counts as outside a bracket beyond this many standard errors.
SURELY = 5.0
# Relative error that rounding and the integrator may add to the zeroth-order model.
SLACK = 1e-6


def dynamics(job: Job) -> Outcome:
    """Brackets of Thms 4.2 and 4.3 on ReLU networks; Eq. 161, Thms 4.4 and 4.5 on linear ones.

    ReLU: a row for every phase, kind of head, draw of data and network, sigma and class, and counts
    of the cases (draw, sigma) in which a loss leaves its bracket. Linear: head norm and loss of LP,
    and the loss of FFT for every d and h.
    """
    fields: DynamicsSpec = job.fields
    drawn = [
        (phase, heads, number)
        for phase, kinds in HEADS.items()
        for heads in kinds
        for number in range(getattr(fields.relu.phases, phase).draws)
    ]
    sizes = fields.fine_tuning.sizes
    with Progress(len(drawn) + 1 + len(sizes), job.spec.id) as progress:
        rows: list[Row] = []
        for draw in drawn:
            rows += _relu_rows(job, fields.relu, *draw)
            progress.advance(draw[0])
        probed = _probing(job, fields.probing)
        progress.advance("probing")
        tuned: list[Row] = []
        for d, h in sizes:
            tuned.append(_fine_tuning(job, fields.fine_tuning, d, h))
            progress.advance(f"d = {d}")
    facts = {"times": fields.relu.times, "probing": probed}
    tables = {"relu": rows, "counts": count_violations(rows), "fine_tuning": tuned}
    return Outcome({**facts, **tables}, LEDGER)


def _relu_rows(job: Job, fields: ReluNets, phase: Phase, heads: Heads, number: int) -> list[Row]:
    """Losses of both models and the bracket, at all times, for every sigma and class."""
    plan: DynamicsPhase = getattr(fields.phases, phase)
    x, y, net = _network(job, fields, phase, heads, number)
    sigmas, times = np.array(plan.sigmas, float)[:, None], np.array(fields.times)
    every = max(1, round(fields.times[0] / fields.step))
    clock: dict[str, Any] = {"step": fields.step, "every": every, "count": len(times)}
    zeroth = relu.zeroth_order_losses(net, x, y, phase, sigma=sigmas, **clock)
    names: dict[str, Any] = {"phase": phase, "heads": heads, "draw": number}
    rng = draws(job, "diffusion", **names)
    paths = (len(sigmas), plan.paths)
    v = np.broadcast_to(net.v, (*paths, *net.v.shape))
    W = net.W if phase == "head" else np.broadcast_to(net.W, (*paths, *net.W.shape))
    losses = relu.diffusion_losses(relu.ReluNet(v, W), x, y, phase, sigma=sigmas, rng=rng, **clock)
    mean, error = losses.mean(2), losses.std(2, ddof=1) / math.sqrt(plan.paths)
    starts = relu.class_sums(np.exp(relu.log_losses(net, x, y)), y)
    rows = []
    for i, sigma in enumerate(plan.sigmas):
        for k, label in enumerate(CLASSES):
            lower, upper = _bracket(net, x, y, label, phase, sigma, times)
            rows.append(
                {
                    **names,
                    "class": label,
                    "sigma": sigma,
                    "start": float(starts[k]),
                    "lower": lower.tolist(),
                    "upper": upper.tolist(),
                    "zeroth": zeroth[:, i, k].tolist(),
                    "diffusion": mean[:, i, k].tolist(),
                    "standard_error": error[:, i, k].tolist(),
                }
            )
    return rows


def _network(
    job: Job, fields: ReluNets, phase: Phase, heads: Heads, number: int
) -> tuple[np.ndarray, np.ndarray, relu.ReluNet]:
    """Unit records and features in two opposite cones, the same for every phase and head.

    For FFT each class's head entries are scaled to the norm of its features (a balanced start).
    `aligned` heads have the signs of their classes.
    """
    rng = draws(job, "networks", draw=number)
    y, c = relu.labels(fields.records), relu.labels(fields.hidden)
    x = y[:, None] * relu.directions(rng, y.shape, fields.inputs, fields.angle)
    W = c[:, None] * relu.directions(rng, c.shape, fields.inputs, fields.angle)
    v = math.sqrt(fields.head_variance) * rng.standard_normal(c.shape)
    if phase == "all":
        for label in CLASSES:
            members = c == label
            v[members] *= np.linalg.norm(W[members]) / np.linalg.norm(v[members])
    return x, y, relu.ReluNet(c * np.abs(v) if heads == "aligned" else v, W)


def _bracket(
    net: relu.ReluNet,
    x: np.ndarray,
    y: np.ndarray,
    label: int,
    phase: Phase,
    sigma: float,
    times: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Thm 4.2 or 4.3 for the loss of one class at all times."""
    records, neurons = y == label, relu.labels(len(net.v)) == label
    start = float(np.exp(relu.log_losses(net, x, y))[records].sum())
    if phase == "head":
        features = relu.hidden(net, x)[records][:, neurons]
        return lp_relu_loss_bounds(features, start, sigma, times)
    v, W = net.v[neurons], net.W[neurons]
    return fft_relu_loss_bounds(1.0, data_coherence(x, y), v, W.T, start, sigma, times)


def count_violations(rows: Sequence[Row]) -> list[Row]:
    """Numbers of cases (draw, sigma), and of those in which the loss of a class leaves its bracket.

    Counted at any time: the zeroth-order loss beyond `SLACK`, the diffusion's mean loss beyond
    `SURELY` standard errors.
    """
    counts = []
    for phase, heads in dict.fromkeys((row["phase"], row["heads"]) for row in rows):
        matching = [row for row in rows if (row["phase"], row["heads"]) == (phase, heads)]
        cases = {
            f"{name}_{side}": {
                (row["draw"], row["sigma"]) for row in matching if _outside(row, name, side)
            }
            for name in ("zeroth", "diffusion")
            for side in ("below", "above")
        }
        outside = {name: len(found) for name, found in cases.items()}
        every = len({(row["draw"], row["sigma"]) for row in matching})
        counts.append({"phase": phase, "heads": heads, "cases": every, **outside})
    return counts


def _outside(row: Row, name: str, side: str) -> bool:
    values = np.array(row[name])
    margin = SURELY * np.array(row["standard_error"]) if name == "diffusion" else SLACK * values
    if side == "below":
        return bool(np.any(values < np.array(row["lower"]) - margin))
    return bool(np.any(values > np.array(row["upper"]) + margin))


def _probing(job: Job, fields: LinearProbing) -> dict[str, list[float]]:
    """E ||v_t||^2 and E L(t) of linear probing from random heads, simulated and by formula."""
    rng = draws(job, "linear")
    h, variance, sigma2 = fields.hidden, fields.head_variance, fields.sigma2
    times = np.array(fields.times, float)
    problem = linear.linear_problem(rng, fields.records, fields.inputs, h, reached=fields.b_norm2)
    v = math.sqrt(variance) * rng.standard_normal((fields.paths, h))
    heads = list(linear.probing(problem, v, sigma2, fields.times, rng))
    norms, norm_errors = means_with_errors(np.sum(each**2, axis=1) for each in heads)
    losses, loss_errors = means_with_errors(map(problem.losses, heads))
    y_norm2, b_norm2 = float(problem.Y @ problem.Y), float(problem.b @ problem.b)
    law = {"h": h, "head_var": variance, "sigma2": sigma2}

    def norm(convention: Literal["paper", "exact"]) -> list[float]:
        return lp_head_norm(times, b_norm2=b_norm2, convention=convention, **law).tolist()

    def loss_bound(convention: Literal["paper", "exact"]) -> list[float]:
        least = least_lp_loss(y_norm2, b_norm2, convention)
        return lp_loss_bound(times, y_norm2, least, **law).tolist()

    return {
        "times": times.tolist(),
        "norm": norms,
        "norm_standard_error": norm_errors,
        "norm_paper": norm("paper"),
        "norm_exact": norm("exact"),
        "loss": losses,
        "loss_standard_error": loss_errors,
        "loss_exact": lp_loss(times, y_norm2, b_norm2=b_norm2, **law).tolist(),
        "loss_bound_paper": loss_bound("paper"),
        "loss_bound_exact": loss_bound("exact"),
    }


def _fine_tuning(job: Job, fields: LinearFineTuning, d: int, h: int) -> Row:
    """E L of linear FFT under layer-wise noise against Thm 4.5, at times in units of 1/A.

    Assumption E.7 holds: the head's variance is `head_excess` times the smallest allowed, sigma^2
    `noise_share` of the largest. Euler steps have the size `step` / (h beta).
    """
    rng = draws(job, "fine-tuning", d=d, h=h)
    problem = linear.linear_problem(rng, d, d, h, reached=h / d)
    xty_norm, b_norm2 = float(np.linalg.norm(problem.u)), float(problem.b @ problem.b)
    variance = fields.head_excess * linear.least_head_variance(h, d, xty_norm)
    sigma2 = fields.noise_share * linear.largest_noise(h, d, variance, xty_norm, b_norm2)
    rate = float(fft_linear_rate(h * variance, sigma2, d))
    step = fields.step / (h * variance)
    every = max(1, round(fields.span / rate / step / fields.points))
    v = math.sqrt(variance) * rng.standard_normal((fields.paths, h))
    start = v, np.broadcast_to(problem.B, (fields.paths, h, d))
    plan: dict[str, Any] = {"sigma2": sigma2, "step": step, "steps": every * fields.points}
    states = linear.diffusion(problem, start, "layer-wise", rng, every=every, **plan)
    losses, errors = means_with_errors(problem.losses(*state) for state in islice(states, 1, None))
    times = step * every * np.arange(1, fields.points + 1)
    y_norm2 = float(problem.Y @ problem.Y)
    bound = fft_linear_loss_bound(times, h, variance, y_norm2, xty_norm, sigma2, d)
    ratios = np.array(losses) / bound
    worst = int(np.argmax(ratios))
    return {
        "d": d,
        "h": h,
        "head_variance": variance,
        "sigma2": sigma2,
        "rate": rate,
        "times": (rate * times).tolist(),
        "loss": losses,
        "standard_error": errors,
        "bound": bound.tolist(),
        "largest_ratio": float(ratios[worst]),
        "largest_ratio_error": errors[worst] / float(bound[worst]),
    }


KIND = Kind(dynamics, record=RECORD, packages=("numpy", "scipy"))
