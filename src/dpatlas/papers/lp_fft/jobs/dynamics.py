"""lp_fft's theorems on losses beside simulated dynamics: Thms 4.2 to 4.5 and Eq. 161."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dpatlas.core.guard import integer, one_of, real
from dpatlas.core.progress import Progress
from dpatlas.core.seeds import generator, seed
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, LegacyFields, legacy
from dpatlas.papers.lp_fft.formulas.linear import (
    fft_linear_loss_bound,
    fft_linear_rate,
    least_lp_loss,
    lp_head_norm,
    lp_loss,
    lp_loss_bound,
)
from dpatlas.papers.lp_fft.formulas.relu import (
    data_coherence,
    fft_relu_loss_bounds,
    lp_relu_loss_bounds,
)
from dpatlas.papers.lp_fft.jobs.linear import (
    LinearProblem,
    fine_tuning,
    largest_noise,
    least_head_variance,
    linear_problem,
    probing,
    step_deviations,
)
from dpatlas.papers.lp_fft.jobs.relu import (
    ReluNet,
    class_sums,
    diffusion_losses,
    directions,
    hidden,
    labels,
    log_losses,
    zeroth_order_losses,
)

LEDGER = {"mechanism": "none: nothing is trained on data and nothing of any data is released"}
HEADS = ("random", "aligned")
CLASSES = (1, -1)
# A mean of paths lies surely outside a bracket so many standard errors beyond it.
SURELY = 5.0
# Of what rounding and the integrator may add to the noise-free model.
SLACK = 1e-6
# Seeds of a spec's parts besides those of its ReLU networks.


def dynamics(job: Job) -> dict[str, Any]:
    """Brackets of Thms 4.2 and 4.3 on ReLU networks; Eq. 161, Thms 4.4 and 4.5 on linear ones.

    `relu`: a row for every phase, kind of head, draw of data and network, sigma and class, and
    counts of the cases (draw, sigma) in which a loss leaves its bracket. `probing`: the linear
    net's head norm and loss at `times`. `fine_tuning`: the loss beside Thm 4.5 for every d, h.
    """
    fields = job.spec.fields
    relu, linear, tuned = (fields[name] for name in ("relu", "probing", "fine_tuning"))
    plans = list(_plans(relu))
    with Progress(len(plans) + 1 + len(tuned["sizes"]), job.spec.id) as progress:
        rows = []
        for plan in plans:
            rows += _relu_rows(job, plan)
            progress.advance(plan["phase"])
        probed = _probing(job, linear)
        progress.advance("probing")
        bounded = []
        for d, h in tuned["sizes"]:
            bounded.append(_fine_tuning(job, tuned, d, h))
            progress.advance(f"d = {d}")
    metrics = {
        "times": list(relu["times"]),
        "relu": rows,
        "counts": count_violations(rows),
        "probing": probed,
        "fine_tuning": bounded,
    }
    return {"metrics": metrics, "ledger": LEDGER}


def _plans(relu: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What is simulated on each draw: phase, kind of head, its sigmas and number of paths."""
    _check_relu(relu)
    for phase, heads in (("head", ("random",)), ("all", HEADS)):
        part = relu["phases"][phase]
        for kind in heads:
            for draw in range(part["draws"]):
                yield {"phase": phase, "heads": kind, "draw": draw, **part}


def _check_relu(relu: Mapping[str, Any]) -> None:
    for name, least in (("records", 2), ("hidden", 2)):
        integer(ge=least).check(f"relu.{name}", relu[name])
        if relu[name] % 2:
            raise InputError(f"relu.{name}", relu[name], "an even number: half for either class")
    integer(ge=2).check("relu.inputs", relu["inputs"])
    real(gt=0, lt=45).check("relu.angle", relu["angle"])
    times, every = relu["times"], steps_between(relu["times"], relu["step"])
    if not np.allclose(np.diff([0, *times]), every * relu["step"]):
        raise InputError("relu.times", times, "equal distances, whole numbers of steps")


def steps_between(times: list[float], step: float) -> int:
    """Steps from 0 to the first of the times, at least one."""
    return max(1, round(times[0] / step))


def _relu_rows(job: Job, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Both losses and the bracket at all times for every sigma and class of one draw."""
    fields = job.spec.fields["relu"]
    x, y, net = _draw(job, plan)
    phase, sigmas = plan["phase"], np.array(plan["sigmas"], float)[:, None]
    real(gt=0).check("sigmas", sigmas)
    every, count = steps_between(fields["times"], fields["step"]), len(fields["times"])
    clock = {"step": fields["step"], "every": every, "count": count}
    zeroth = zeroth_order_losses(net, x, y, phase, sigma=sigmas, **clock)
    names = {name: plan[name] for name in ("phase", "heads", "draw")}
    keys = seed(job.spec.key, use="diffusion", base=job.spec.fields["seed"], **names)
    paths = plan["paths"]
    integer(ge=2).check("paths", paths)
    starts = ReluNet(
        np.broadcast_to(net.v, (len(sigmas), paths, *net.v.shape)),
        net.W if phase == "head" else np.broadcast_to(net.W, (len(sigmas), paths, *net.W.shape)),
    )
    losses = diffusion_losses(starts, x, y, phase, sigma=sigmas, rng=generator(keys), **clock)
    mean, error = losses.mean(2), losses.std(2, ddof=1) / math.sqrt(paths)
    rows = []
    for place, sigma in enumerate(plan["sigmas"]):
        for k, label in enumerate(CLASSES):
            lower, upper = _bracket(net, x, y, label, phase, sigma, np.array(fields["times"]))
            rows.append(
                {
                    **names,
                    "sigma": sigma,
                    "class": label,
                    "start": float(class_sums(np.exp(log_losses(net, x, y)), y)[k]),
                    "lower": lower.tolist(),
                    "upper": upper.tolist(),
                    "zeroth": zeroth[:, place, k].tolist(),
                    "diffusion": mean[:, place, k].tolist(),
                    "standard_error": error[:, place, k].tolist(),
                }
            )
    return rows


def _draw(job: Job, plan: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, ReluNet]:
    """Unit records and features in the same two cones; the same for every phase and head.

    For FFT every class's head is scaled to the norm of its features, which balances the start.
    `aligned` heads have the signs of their classes, as linear probing leaves them.
    """
    fields = job.spec.fields
    relu = fields["relu"]
    keys = seed(job.spec.key, use="networks", base=fields["seed"], draw=plan["draw"])
    rng = generator(keys)
    y, c = labels(relu["records"]), labels(relu["hidden"])
    x = y[:, None] * directions(rng, y.shape, relu["inputs"], relu["angle"])
    W = c[:, None] * directions(rng, c.shape, relu["inputs"], relu["angle"])
    v = math.sqrt(relu["head_variance"]) * rng.standard_normal(c.shape)
    if plan["phase"] == "all":
        for label in CLASSES:
            own = c == label
            v[own] *= np.linalg.norm(W[own]) / np.linalg.norm(v[own])
    if plan["heads"] == "aligned":
        v = c * np.abs(v)
    return x, y, ReluNet(v, W)


def _bracket(
    net: ReluNet,
    x: np.ndarray,
    y: np.ndarray,
    label: int,
    phase: str,
    sigma: float,
    times: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Thm 4.2 or 4.3 for the loss of one class at all times."""
    one_of("head", "all").check("phase", phase)
    records, neurons = y == label, labels(len(net.v)) == label
    start = float(np.exp(log_losses(net, x, y))[records].sum())
    if phase == "head":
        features = hidden(net, x)[records][:, neurons]
        return lp_relu_loss_bounds(features, start, sigma, times)
    own = ReluNet(net.v[neurons], net.W[neurons])
    return fft_relu_loss_bounds(1.0, data_coherence(x, y), own.v, own.W.T, start, sigma, times)


def count_violations(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cases (draw, sigma) by phase and head, and those in which a class's loss leaves its bracket.

    The zeroth-order model's by more than rounding, the diffusion's mean by `SURELY` standard
    errors, at any time.
    """
    counts = []
    for phase, heads in dict.fromkeys((row["phase"], row["heads"]) for row in rows):
        own = [row for row in rows if (row["phase"], row["heads"]) == (phase, heads)]
        count = {"phase": phase, "heads": heads, "cases": len({_case(row) for row in own})}
        for name in ("zeroth", "diffusion"):
            for side in ("below", "above"):
                outside = {_case(row) for row in own if _outside(row, name, side)}
                count[f"{name}_{side}"] = len(outside)
        counts.append(count)
    return counts


def _case(row: Mapping[str, Any]) -> tuple[int, float]:
    return row["draw"], row["sigma"]


def _outside(row: Mapping[str, Any], name: str, side: str) -> bool:
    values, lower, upper, errors = (
        np.array(row[column]) for column in (name, "lower", "upper", "standard_error")
    )
    margin = SURELY * errors if name == "diffusion" else SLACK * values
    return bool(np.any(values < lower - margin if side == "below" else values > upper + margin))


def _probing(job: Job, fields: Mapping[str, Any]) -> dict[str, Any]:
    """E ||v_t||^2 and E L(t) of linear probing from random heads, simulated and by formula."""
    rng = generator(seed(job.spec.key, use="linear", base=job.spec.fields["seed"]))
    h, variance, sigma2 = fields["hidden"], fields["head_variance"], fields["sigma2"]
    integer(ge=2).check("probing.paths", fields["paths"])
    times = np.array(fields["times"], float)
    if np.any(np.diff(times, prepend=0) <= 0):
        raise InputError("probing.times", fields["times"], "increasing times above 0")
    problem = linear_problem(rng, fields["records"], fields["inputs"], h, reached=fields["b_norm2"])
    v = math.sqrt(variance) * rng.standard_normal((fields["paths"], h))
    norms, losses = zip(
        *(
            (_mean(np.sum(heads**2, axis=1)), _mean(problem.losses(heads)))
            for heads in probing(problem, v, sigma2, times, rng)
        ),
        strict=True,
    )
    y_norm2, b_norm2 = float(problem.Y @ problem.Y), float(problem.b @ problem.b)
    law = {"h": h, "head_var": variance, "sigma2": sigma2}
    bounds = {
        f"loss_bound_{convention}": lp_loss_bound(
            times, y_norm2, least_lp_loss(y_norm2, b_norm2, convention), **law
        ).tolist()
        for convention in ("paper", "exact")
    }
    return {
        "times": times.tolist(),
        "norm": [mean for mean, _ in norms],
        "norm_standard_error": [error for _, error in norms],
        "norm_paper": lp_head_norm(times, b_norm2=b_norm2, convention="paper", **law).tolist(),
        "norm_exact": lp_head_norm(times, b_norm2=b_norm2, convention="exact", **law).tolist(),
        "loss": [mean for mean, _ in losses],
        "loss_standard_error": [error for _, error in losses],
        "loss_exact": lp_loss(times, y_norm2, b_norm2=b_norm2, **law).tolist(),
        **bounds,
    }


def _fine_tuning(job: Job, fields: Mapping[str, Any], d: int, h: int) -> dict[str, Any]:
    """E L of linear FFT under layer-wise noise beside Thm 4.5, at times in units of 1/A.

    Under Assumption E.7: the head's variance is `head_excess` times its least value, sigma^2
    `noise_share` of its largest. Euler steps of `step` over the head's curvature h beta.
    """
    real(gt=1).check("fine_tuning.head_excess", fields["head_excess"])
    real(gt=0, lt=1).check("fine_tuning.noise_share", fields["noise_share"])
    rng = generator(seed(job.spec.key, use="fine-tuning", base=job.spec.fields["seed"], d=d, h=h))
    problem = linear_problem(rng, d, d, h, reached=h / d)
    xty_norm, b_norm2 = float(np.linalg.norm(problem.u)), float(problem.b @ problem.b)
    variance = fields["head_excess"] * least_head_variance(h, d, xty_norm)
    sigma2 = fields["noise_share"] * largest_noise(h, d, variance, xty_norm, b_norm2)
    rate = float(fft_linear_rate(h * variance, sigma2, d))
    step = fields["step"] / (h * variance)
    every = max(1, round(fields["span"] / rate / step / fields["points"]))
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
    fields: Mapping[str, Any],
    variance: float,
    sigma2: float,
    step: float,
    every: int,
    rng: np.random.Generator,
) -> list[tuple[float, float]]:
    """Mean loss and its error at `points` times, over paths from random heads."""
    paths, points = fields["paths"], fields["points"]
    integer(ge=2).check("fine_tuning.paths", paths)
    h, d = problem.B.shape
    v = math.sqrt(variance) * rng.standard_normal((paths, h))
    states = fine_tuning(
        v,
        np.broadcast_to(problem.B, (paths, h, d)),
        problem.residual,
        step=step,
        deviations=step_deviations("layer-wise", sigma2, step, d),
        steps=every * points,
        rng=rng,
    )
    return [
        _mean(problem.losses(*state)) for place, state in enumerate(states, 1) if place % every == 0
    ]


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Mean of independent values and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


KIND = Kind(
    legacy(dynamics),
    spec=LegacyFields,
    packages=("torch", "numpy", "scipy", "dp-accounting", "scikit-learn", "umap-learn"),
)
