"""lp_fft: simulated losses against Thms 4.2 to 4.5, and the head norm against Eq. 161."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.base.seeds import generator, seed
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
from dpatlas_workflow.papers.lp_fft.jobs.linear import (
    LinearProblem,
    fine_tuning,
    largest_noise,
    least_head_variance,
    linear_problem,
    probing,
    step_deviations,
)
from dpatlas_workflow.papers.lp_fft.jobs.relu import (
    ReluNet,
    class_sums,
    diffusion_losses,
    directions,
    hidden,
    labels,
    log_losses,
    zeroth_order_losses,
)
from dpatlas_workflow.papers.lp_fft.jobs.theory import LEDGER, mean_with_error
from dpatlas_workflow.papers.lp_fft.records.dynamics import (
    RECORD,
    DynamicsPhase,
    DynamicsSpec,
    Heads,
    LinearFineTuning,
    LinearProbing,
    Phase,
    Phases,
    ReluNets,
)

# Heads from which each phase is simulated; aligned ones are as linear probing leaves them.
HEADS: dict[Phase, tuple[Heads, ...]] = {"head": ("random",), "all": ("random", "aligned")}
CLASSES = (1, -1)
# A mean over paths counts as outside a bracket beyond this many standard errors.
SURELY = 5.0
# Relative error that rounding and the integrator may add to the zeroth-order model.
SLACK = 1e-6


@dataclass(frozen=True)
class DynamicsDraw:
    """One draw of data and network, with the plan of its simulation."""

    phase: Phase
    heads: Heads
    number: int
    plan: DynamicsPhase


def dynamics(job: Job) -> Outcome:
    """Brackets of Thms 4.2 and 4.3 on ReLU networks; Eq. 161, Thms 4.4 and 4.5 on linear ones.

    ReLU: a row for every phase, kind of head, draw of data and network, sigma and class, and counts
    of the cases (draw, sigma) in which a loss leaves its bracket. Linear: head norm and loss of LP,
    and the loss of FFT for every d and h.
    """
    fields: DynamicsSpec = job.fields
    draws = list(_draws(fields.relu.phases))
    sizes = fields.fine_tuning.sizes
    with Progress(len(draws) + 1 + len(sizes), job.spec.id) as progress:
        rows: list[Row] = []
        for draw in draws:
            rows += _relu_rows(job, fields.relu, draw)
            progress.advance(draw.phase)
        probed = _probing(job, fields.probing)
        progress.advance("probing")
        tuned: list[Row] = []
        for d, h in sizes:
            tuned.append(_fine_tuning(job, fields.fine_tuning, d, h))
            progress.advance(f"d = {d}")
    facts = {"times": fields.relu.times, "probing": probed}
    tables = {"relu": rows, "counts": count_violations(rows), "fine_tuning": tuned}
    return Outcome({**facts, **tables}, LEDGER)


def _draws(phases: Phases) -> Iterator[DynamicsDraw]:
    plans: dict[Phase, DynamicsPhase] = {"head": phases.head, "all": phases.all}
    for phase, plan in plans.items():
        for heads in HEADS[phase]:
            for number in range(plan.draws):
                yield DynamicsDraw(phase, heads, number, plan)


def steps_between(times: Sequence[float], step: float) -> int:
    """Number of steps from 0 to the first of the times, at least one."""
    return max(1, round(times[0] / step))


def _relu_rows(job: Job, fields: ReluNets, draw: DynamicsDraw) -> list[Row]:
    """Losses of both models and the bracket, at all times, for every sigma and class."""
    x, y, net = _networks(job, fields, draw)
    phase, sigmas = draw.phase, np.array(draw.plan.sigmas, float)[:, None]
    every, count = steps_between(fields.times, fields.step), len(fields.times)
    clock: dict[str, Any] = {"step": fields.step, "every": every, "count": count}
    zeroth = zeroth_order_losses(net, x, y, phase, sigma=sigmas, **clock)
    names: dict[str, Any] = {"phase": phase, "heads": draw.heads, "draw": draw.number}
    keys = seed(job.spec.key, use="diffusion", base=job.fields.seed, **names)
    paths = draw.plan.paths
    starts = ReluNet(
        np.broadcast_to(net.v, (len(sigmas), paths, *net.v.shape)),
        net.W if phase == "head" else np.broadcast_to(net.W, (len(sigmas), paths, *net.W.shape)),
    )
    losses = diffusion_losses(starts, x, y, phase, sigma=sigmas, rng=generator(keys), **clock)
    mean, error = losses.mean(2), losses.std(2, ddof=1) / math.sqrt(paths)
    rows = []
    for number, sigma in enumerate(draw.plan.sigmas):
        for k, label in enumerate(CLASSES):
            case = {**names, "class": label}
            lower, upper = _bracket(net, x, y, label, phase, sigma, np.array(fields.times))
            rows.append(
                {
                    **case,
                    "sigma": sigma,
                    "start": float(class_sums(np.exp(log_losses(net, x, y)), y)[k]),
                    "lower": lower.tolist(),
                    "upper": upper.tolist(),
                    "zeroth": zeroth[:, number, k].tolist(),
                    "diffusion": mean[:, number, k].tolist(),
                    "standard_error": error[:, number, k].tolist(),
                }
            )
    return rows


def _networks(
    job: Job, fields: ReluNets, draw: DynamicsDraw
) -> tuple[np.ndarray, np.ndarray, ReluNet]:
    """Unit records and features in two opposite cones, the same for every phase and head.

    For FFT each class's head entries are scaled to the norm of its features (a balanced start).
    `aligned` heads have the signs of their classes.
    """
    keys = seed(job.spec.key, use="networks", base=job.fields.seed, draw=draw.number)
    rng = generator(keys)
    y, c = labels(fields.records), labels(fields.hidden)
    x = y[:, None] * directions(rng, y.shape, fields.inputs, fields.angle)
    W = c[:, None] * directions(rng, c.shape, fields.inputs, fields.angle)
    v = math.sqrt(fields.head_variance) * rng.standard_normal(c.shape)
    if draw.phase == "all":
        for label in CLASSES:
            members = c == label
            v[members] *= np.linalg.norm(W[members]) / np.linalg.norm(v[members])
    if draw.heads == "aligned":
        v = c * np.abs(v)
    return x, y, ReluNet(v, W)


def _bracket(
    net: ReluNet,
    x: np.ndarray,
    y: np.ndarray,
    label: int,
    phase: Phase,
    sigma: float,
    times: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Thm 4.2 or 4.3 for the loss of one class at all times."""
    records, neurons = y == label, labels(len(net.v)) == label
    start = float(np.exp(log_losses(net, x, y))[records].sum())
    if phase == "head":
        features = hidden(net, x)[records][:, neurons]
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
        outside = {
            f"{name}_{side}": len({_case(row) for row in matching if _outside(row, name, side)})
            for name in ("zeroth", "diffusion")
            for side in ("below", "above")
        }
        cases = len({_case(row) for row in matching})
        counts.append({"phase": phase, "heads": heads, "cases": cases, **outside})
    return counts


def _case(row: Row) -> tuple[int, float]:
    return row["draw"], row["sigma"]


def _outside(row: Row, name: str, side: str) -> bool:
    values = np.array(row[name])
    margin = SURELY * np.array(row["standard_error"]) if name == "diffusion" else SLACK * values
    if side == "below":
        return bool(np.any(values < np.array(row["lower"]) - margin))
    return bool(np.any(values > np.array(row["upper"]) + margin))


def _probing(job: Job, fields: LinearProbing) -> dict[str, list[float]]:
    """E ||v_t||^2 and E L(t) of linear probing from random heads, simulated and by formula."""
    rng = generator(seed(job.spec.key, use="linear", base=job.fields.seed))
    h, variance, sigma2 = fields.hidden, fields.head_variance, fields.sigma2
    times = np.array(fields.times, float)
    problem = linear_problem(rng, fields.records, fields.inputs, h, reached=fields.b_norm2)
    v = math.sqrt(variance) * rng.standard_normal((fields.paths, h))
    norms, losses = zip(
        *(
            (mean_with_error(np.sum(heads**2, axis=1)), mean_with_error(problem.losses(heads)))
            for heads in probing(problem, v, sigma2, fields.times, rng)
        ),
        strict=True,
    )
    y_norm2, b_norm2 = float(problem.Y @ problem.Y), float(problem.b @ problem.b)
    law = {"h": h, "head_var": variance, "sigma2": sigma2}

    def norm(convention: Literal["paper", "exact"]) -> list[float]:
        return lp_head_norm(times, b_norm2=b_norm2, convention=convention, **law).tolist()

    def loss_bound(convention: Literal["paper", "exact"]) -> list[float]:
        least = least_lp_loss(y_norm2, b_norm2, convention)
        return lp_loss_bound(times, y_norm2, least, **law).tolist()

    return {
        "times": times.tolist(),
        "norm": [mean for mean, _ in norms],
        "norm_standard_error": [error for _, error in norms],
        "norm_paper": norm("paper"),
        "norm_exact": norm("exact"),
        "loss": [mean for mean, _ in losses],
        "loss_standard_error": [error for _, error in losses],
        "loss_exact": lp_loss(times, y_norm2, b_norm2=b_norm2, **law).tolist(),
        "loss_bound_paper": loss_bound("paper"),
        "loss_bound_exact": loss_bound("exact"),
    }


def _fine_tuning(job: Job, fields: LinearFineTuning, d: int, h: int) -> Row:
    """E L of linear FFT under layer-wise noise against Thm 4.5, at times in units of 1/A.

    Assumption E.7 holds: the head's variance is `head_excess` times the smallest allowed, sigma^2
    `noise_share` of the largest. Euler steps have the size `step` / (h beta).
    """
    rng = generator(seed(job.spec.key, use="fine-tuning", base=job.fields.seed, d=d, h=h))
    problem = linear_problem(rng, d, d, h, reached=h / d)
    xty_norm, b_norm2 = float(np.linalg.norm(problem.u)), float(problem.b @ problem.b)
    variance = fields.head_excess * least_head_variance(h, d, xty_norm)
    sigma2 = fields.noise_share * largest_noise(h, d, variance, xty_norm, b_norm2)
    rate = float(fft_linear_rate(h * variance, sigma2, d))
    step = fields.step / (h * variance)
    every = max(1, round(fields.span / rate / step / fields.points))
    simulated = _tuned_losses(problem, fields, variance, sigma2, step, every, rng)
    times = step * every * np.arange(1, len(simulated) + 1)
    bound = fft_linear_loss_bound(
        times, h, variance, float(problem.Y @ problem.Y), xty_norm, sigma2, d
    )
    ratios = [float(mean / limit) for (mean, _), limit in zip(simulated, bound, strict=True)]
    worst = int(np.argmax(ratios))
    return {
        "d": d,
        "h": h,
        "head_variance": variance,
        "sigma2": sigma2,
        "rate": rate,
        "times": (rate * times).tolist(),
        "loss": [mean for mean, _ in simulated],
        "standard_error": [error for _, error in simulated],
        "bound": bound.tolist(),
        "largest_ratio": ratios[worst],
        "largest_ratio_error": simulated[worst][1] / float(bound[worst]),
    }


def _tuned_losses(
    problem: LinearProblem,
    fields: LinearFineTuning,
    variance: float,
    sigma2: float,
    step: float,
    every: int,
    rng: np.random.Generator,
) -> list[tuple[float, float]]:
    """Mean loss over paths from random heads, with its standard error, at `points` times."""
    h, d = problem.B.shape
    v = math.sqrt(variance) * rng.standard_normal((fields.paths, h))
    states = fine_tuning(
        v,
        np.broadcast_to(problem.B, (fields.paths, h, d)),
        problem.residual,
        step=step,
        deviations=step_deviations("layer-wise", sigma2, step, d),
        steps=every * fields.points,
        rng=rng,
    )
    return [
        mean_with_error(problem.losses(*state))
        for taken, state in enumerate(states, 1)
        if taken % every == 0
    ]


KIND = Kind(dynamics, record=RECORD, packages=("numpy", "scipy"))
