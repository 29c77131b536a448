"""lp_fft's Thms 3.3 and 3.4: how often a random head distorts features, and whether LP prevents it.

A network is distorted while, under gradient flow of all layers, the cosine of some feature with the
mean of its class falls. States of the flow depend on time only through s = integral of L dt, which
grows like the logarithm of the time; all durations (spans) are given as differences of s.
"""

import math
from collections import deque
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import betaincinv

from dpatlas.base.guard import checked, integer, real
from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.errors import InputError
from dpatlas.formulas.lp_fft.alignment import (
    distortion_probability,
    two_record_distortion_probability,
)
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.lp_fft.jobs.relu import (
    ReluNet,
    class_means,
    cosine_rates,
    directions,
    flow,
    labels,
)
from dpatlas_workflow.papers.lp_fft.jobs.theory import LEDGER, draws
from dpatlas_workflow.papers.lp_fft.records.distortion import (
    RECORD,
    AfterProbing,
    Clusters,
    DistortionCounterexample,
    DistortionSpec,
    TwoRecords,
)

CONFIDENCE = 0.95
# A cosine counts as falling only if its rate, divided by the loss, is below -ROUNDING.
ROUNDING = 1e-9
# The counter-example in a plane: length and angle in degrees of a class's two records, angle of its
# feature, and a head that has the other class's sign. The mean lies near the long record.
LONG, SHORT, FEATURE_ANGLE, WRONG_HEAD = (2.0, 0.0), (0.5, 40.0), 15.0, -0.5
# Two records x_1 = (1 + spread, -LOWER), x_2 = (1, ratio LOWER) around the feature (1, 0).
LOWER = 0.3
# Number of points recorded of a cosine's curve.
CURVE_POINTS = 40


def distortion(job: Job) -> Outcome:
    """Thm 3.3 on random clusters and on two records; Thm 3.4 on clusters and a counter-example.

    Thm 3.3: the share of trials (random records, features and head) distorted at the start, for
    every h and head variance; the same for one fixed class and feature, whose exact probability is
    known. Thm 3.4: the share of networks in which no cosine falls during FFT after LP, for clusters
    of every width; the cosine of the counter-example's feature during FFT after LP of every span.
    """
    fields: DistortionSpec = job.fields
    clusters: list[Row] = []
    after_probing: list[Row] = []
    count = len(fields.clusters.hs) + len(fields.after_probing.angles) + 2
    with Progress(count, job.spec.id) as progress:
        for h in fields.clusters.hs:
            clusters += _clusters(job, fields.clusters, h)
            progress.advance(f"h = {h}")
        two_records = _two_records(job, fields.two_records)
        progress.advance("two records")
        for angle in fields.after_probing.angles:
            after_probing += _after_probing(job, fields.after_probing, angle)
            progress.advance(f"{angle:g} degrees")
        counterexample = _counterexample(fields.counterexample)
        progress.advance("counter-example")
    tables = {
        "clusters": clusters,
        "two_records": two_records,
        "after_probing": after_probing,
        "counterexample": counterexample,
    }
    return Outcome(tables, LEDGER)


@checked(count=integer(ge=0), trials=integer(ge=1), confidence=real(gt=0, lt=1))
def clopper_pearson(count: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Two-sided Clopper-Pearson interval of a probability after `count` successes in `trials`.

    Raises InputError for more successes than trials.
    """
    if count > trials:
        raise InputError("count", count, f"at most {trials} trials")
    tail = (1 - confidence) / 2
    low = betaincinv(count, trials - count + 1, tail) if count else 0.0
    high = betaincinv(count + 1, trials - count, 1 - tail) if count < trials else 1.0
    return float(low), float(high)


def _share(outcomes: np.ndarray) -> dict[str, Any]:
    """Columns of a share: how many of the boolean outcomes are true, with the interval."""
    count, trials = int(outcomes.sum()), len(outcomes)
    low, high = clopper_pearson(count, trials)
    return {"trials": trials, "count": count, "share": count / trials, "low": low, "high": high}


def _distorts(
    net: ReluNet, x: np.ndarray, y: np.ndarray, c: np.ndarray, slack: float = 0.0
) -> np.ndarray:
    """Whether some cosine falls, at a rate over the loss below -slack, for every network."""
    return np.any(cosine_rates(net, x, y, c) < -slack, axis=-1)


def _clusters(job: Job, fields: Clusters, h: int) -> list[Row]:
    """Distortion at the start on random clusters; the same heads, scaled, for every variance."""
    rng = draws(job, "clusters", h=h)
    x, y, c, W = _problem(rng, fields, fields.trials, h, fields.angle, fields.angle)
    heads = rng.standard_normal(c.shape)
    rows = []
    for variance in fields.head_variances:
        net = ReluNet(math.sqrt(variance) * heads, W)
        distorted = _share(_distorts(net, x, y, c))
        claimed = float(distortion_probability(h))
        rows.append({"h": h, "head_variance": variance, "claimed": claimed, **distorted})
    return rows


def _problem(
    rng: np.random.Generator,
    fields: Clusters | AfterProbing,
    runs: int,
    h: int,
    angle: float,
    feature_angle: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Unit records x (runs, n, d), labels y, classes c (runs, h) and unit features W (runs, h, d).

    Records and features lie within their angles of an axis. Thus classes are separated (Assumption
    3.1), and a feature is activated by the records of its class alone (Assumption 3.2).
    """
    n, d = fields.records, fields.inputs
    y = labels(n)
    x = y[:, None] * directions(rng, (runs, n), d, angle)
    c = rng.choice([-1.0, 1.0], size=(runs, h))
    return x, y, c, c[..., None] * directions(rng, (runs, h), d, feature_angle)


def _two_records(job: Job, fields: TwoRecords) -> list[Row]:
    """Distortion of one feature by random heads, where one of two records activates it more.

    The other class is the mirror image of the first and does not activate the feature.
    """
    rng = draws(job, "two-records")
    spread, ratio = fields.spread, fields.ratio
    first_class = np.array([[1 + spread, -LOWER], [1.0, ratio * LOWER]])
    if first_class[0] @ first_class[1] <= 0:
        raise InputError("two_records.ratio", ratio, "records at an acute angle")
    x, y = np.concatenate([first_class, -first_class]), labels(4)
    W, c = np.array([[1.0, 0.0]]), np.array([1.0])
    heads = rng.standard_normal((fields.trials, 1))
    rows = []
    for variance in fields.head_variances:
        net = ReluNet(math.sqrt(variance) * heads, np.broadcast_to(W, (len(heads), 1, 2)))
        rows.append(
            {
                "head_variance": variance,
                "claimed": float(distortion_probability(1)),
                "exact": float(two_record_distortion_probability(variance, spread, ratio)),
                **_share(_distorts(net, x, y, c)),
            }
        )
    return rows


def _after_probing(job: Job, fields: AfterProbing, angle: float) -> list[Row]:
    """The share of networks without a falling cosine during FFT, of those that LP has aligned.

    A network is aligned if every head entry has the sign of its feature's class when LP ends.
    """
    rng = draws(job, "after-probing", angle=angle)
    runs, h = fields.runs, fields.hidden
    x, y, c, W = _problem(rng, fields, runs, h, angle, fields.feature_angle)
    net = ReluNet(math.sqrt(fields.head_variance) * rng.standard_normal(c.shape), W)
    at_once = int(_distorts(net, x, y, c, ROUNDING).sum())
    net = _probed(net, x, y, fields.lp_span, fields.lp_step)
    aligned = np.all(c * net.v > 0, axis=-1)
    if not aligned.any():
        raise InputError("lp_span", fields.lp_span, "a span that aligns heads with classes")
    counts = {"networks": runs, "aligned": int(aligned.sum()), "distorted_at_once": at_once}
    x, c, net = x[aligned], c[aligned], ReluNet(net.v[aligned], net.W[aligned])
    rows, rising = [], ~_distorts(net, x, y, c, ROUNDING)
    for before, span in pairwise([0.0, *fields.fft_spans]):
        steps = _steps(span - before, fields.step)
        for state in flow(net, x, y, "all", span - before, steps):
            rising &= ~_distorts(state, x, y, c, ROUNDING)
        net = state
        rows.append({"angle": angle, "fft_span": span, **counts, **_share(rising)})
    return rows


def _steps(span: float, step: float) -> int:
    real(gt=0).check("spans", span)
    return max(1, round(span / step))


def _probed(net: ReluNet, x: np.ndarray, y: np.ndarray, span: float, step: float) -> ReluNet:
    """The network after LP."""
    return deque(flow(net, x, y, "head", span, _steps(span, step)), maxlen=1).pop()


def _counterexample(fields: DistortionCounterexample) -> list[Row]:
    """Cosine of the counter-example's feature against s of FFT, after LP of every span."""
    first_class = np.array([_polar(*LONG), _polar(*SHORT)])
    x, y, c = np.concatenate([first_class, -first_class]), labels(4), np.array([1.0, -1.0])
    feature = _polar(1.0, FEATURE_ANGLE)
    start = ReluNet(WRONG_HEAD * c, c[:, None] * feature)
    span = fields.span
    steps = _steps(span, fields.step)
    rows = []
    for lp_span in fields.lp_spans:
        net = _probed(start, x, y, lp_span, fields.step)
        states = [net, *flow(net, x, y, "all", span, steps)]
        cosines = np.array([_cosine(state, x, y, c) for state in states])
        every = max(1, steps // CURVE_POINTS)
        rows.append(
            {
                "lp_span": lp_span,
                "aligned": bool(np.all(c * net.v > 0)),
                "s": np.linspace(0, span, steps + 1)[::every].tolist(),
                "cosine": cosines[::every].tolist(),
                "fall": float(cosines.max() - cosines[-1]),
            }
        )
    return rows


def _polar(length: float, degrees: float) -> np.ndarray:
    return length * np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])


def _cosine(net: ReluNet, x: np.ndarray, y: np.ndarray, c: np.ndarray) -> float:
    """Cosine of the first feature with the mean of its class."""
    return float(class_means(x, y, c)[0] @ net.W[0] / np.linalg.norm(net.W[0]))


KIND = Kind(distortion, record=RECORD, packages=("numpy", "scipy"))
