"""Seconds per unit of work, fitted to past runs and regularised towards documented defaults.

The model is: seconds = (sum of counts times seconds per unit) times a factor of the kind of job. A
factor of the machine, a median over its runs, first scales all default rates. The fit then
minimises squared errors of log seconds, so that an estimate of twice the time is as wrong as one of
half, plus a penalty that pulls every rate towards its scaled default and every factor towards 1.
Without the penalty, a fit to many small runs would trade one feature against another and be far off
for large runs.
"""

import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.config.atlas import Atlas
from dpatlas.core.costs import SECONDS_AND_MB, read_cost
from dpatlas.core.records import read_record
from dpatlas.cost.counting import FEATURES, NO_DATA, Size, Work
from dpatlas.cost.work import cost_of, work, work_of, work_of_features
from dpatlas.errors import InputError
from dpatlas.records import parse_spec

# Seconds per unit on one core of an x86 server of the 2020s, and on a GPU that sustains 10 TFLOP/s
# in float32 (a data-centre card of 2020, products in full precision).
DEFAULTS = {
    "cpu": {
        "products": 1e-11,
        "layers": 4e-5,
        "steps": 1.5e-4,
        "elements": 7e-9,
        "normals": 1e-8,
        "dense": 2.5e-11,
        "streamed": 3e-10,
        "accountings": 0.2,
        "starts": 2.1,
    },
    "cuda": {
        "products": 1e-13,
        "layers": 1.5e-4,
        "steps": 3e-4,
        "elements": 5e-11,
        "normals": 2e-11,
        "dense": 2.5e-11,
        "streamed": 3e-10,
        "accountings": 0.2,
        "starts": 2.5,
    },
}
# Weight of the penalty: at 1, a rate of twice its default costs as much as a run estimated at twice
# its time.
PULL = 1.0
# Runs of less than this many seconds have less weight, in proportion to their length.
SMALL_SECONDS = 1.0
# Runs of this many seconds or more count alike for the factor of the machine.
LONG_SECONDS = 10.0
NEWEST_RUNS = 400
# Time to ask a scheduler for: `SLACK` times the estimate at default rates, within these bounds. A
# job that is stopped after a day goes on from its checkpoint.
SLACK, MIN_MINUTES, MAX_MINUTES = 5, 20, 24 * 60
# Cross-validation: a run is estimated by a fit to the runs of the other folds.
FOLDS = 10
PERCENTILES = (10, 50, 90)

# Block and kind of a job.
Kind = tuple[str, str]


@dataclass(frozen=True)
class PastRun:
    """A finished run: its work, and the time and memory that it took."""

    tier: str
    kind: Kind
    counts: Mapping[str, float]
    cpu_s: float
    wall_s: float
    memory_mb: float


@dataclass(frozen=True)
class Validated:
    """Seconds that a past run took, and the estimate of a fit to other runs."""

    tier: str
    actual: float
    estimate: float


@dataclass(frozen=True)
class Rates:
    """Seconds per unit on one device, and how well they predict past runs.

    `factors`: of the kinds of jobs that ran. `validated`: every past run of more than a second,
    estimated from other runs. `waiting`: median of wall time over CPU time.
    """

    device: str
    seconds: Mapping[str, float]
    factors: Mapping[Kind, float]
    runs: int
    validated: tuple[Validated, ...]
    waiting: float

    def estimate(self, counts: Mapping[str, float], kind: Kind) -> float:
        """Estimated seconds of this work: CPU time on a CPU, wall time on a GPU."""
        total = sum(self.seconds[name] * count for name, count in counts.items())
        return self.factors.get(kind, 1.0) * total

    def spread(self, tier: str | None = None) -> dict[str, float] | None:
        """Ratio of actual to estimated seconds, of all tiers or one; None without a run.

        Number of runs, median, 10 and 90 % points, and the ratio of the sums.
        """
        runs = [run for run in self.validated if tier in (None, run.tier)]
        if not runs:
            return None
        ratios = [run.actual / run.estimate for run in runs]
        low, median, high = np.percentile(ratios, PERCENTILES)
        return {
            "runs": len(runs),
            "median": float(median),
            "low": float(low),
            "high": float(high),
            "of_sum": sum(run.actual for run in runs) / sum(run.estimate for run in runs),
        }


def runtime_minutes(atlas: Atlas, spec_id: str) -> int:
    """Minutes to ask a scheduler for, on the spec's device; `auto` counts as a GPU.

    Estimated at default rates, so that the request does not depend on past runs.
    """
    return _minutes(job_seconds(atlas, spec_id))


def features_minutes(atlas: Atlas, features_id: str) -> int:
    """Minutes to ask a scheduler for, for features of a frozen backbone; as `runtime_minutes`."""
    return _minutes(features_seconds(atlas, features_id))


def job_seconds(atlas: Atlas, spec_id: str) -> float:
    """Estimated seconds of a job at default rates, on the spec's device; `auto` counts as a GPU."""
    return _seconds(work_of(atlas, spec_id), atlas.device(spec_id))


def features_seconds(atlas: Atlas, features_id: str) -> float:
    """As `job_seconds`, for features of a frozen backbone."""
    return _seconds(work_of_features(atlas.frozen_features[features_id]), atlas.features_device())


def seconds_per_run(atlas: Atlas) -> dict[str, float]:
    """Estimated seconds of one core for a run, by id of every spec with runs that are repeated.

    At default rates, as `runtime_minutes`, so that verdicts do not depend on past runs. A block's
    runs share the start of its job.
    """
    return {
        # Finite, as JSON has to be; `_minutes` says where it is not.
        spec_id: min(job_seconds(atlas, spec_id), 1e12) / fields.runs
        for spec_id in atlas.specs
        if hasattr(fields := atlas.typed(spec_id), "runs")
    }


def _seconds(work: Work, device: str) -> float:
    unit = DEFAULTS["cpu" if device == "cpu" else "cuda"]
    return sum(unit[name] * count for name, count in work.counts.items())


def _minutes(seconds: float) -> int:
    # Infinite where a tiny step size asks for infinitely many steps.
    return math.ceil(min(max(MIN_MINUTES, SLACK * seconds / 60), MAX_MINUTES))


def past_runs(results: Path, device: str) -> list[PastRun]:
    """The newest runs under `results` (every tier) on this kind of machine and on `device`.

    Skips records of unknown kinds and those that, like their backbone's, cannot be read: an
    estimate must not fail for an old file.
    """
    costs = sorted(
        results.glob("*/runs/*/*/cost.json"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    return [run for path in costs[:NEWEST_RUNS] for run in _read(path, device)]


def fit(runs: Sequence[PastRun], device: str) -> Rates:
    """Rates of `device` from its past runs; the defaults if there are none."""
    defaults = DEFAULTS[device]
    if not runs:
        return Rates(device, defaults, {}, 0, (), 1.0)
    actual = np.array([run.cpu_s if device == "cpu" else run.wall_s for run in runs])
    kinds = sorted({run.kind for run in runs})
    problem = _Problem(
        np.array([[run.counts.get(name, 0.0) for name in FEATURES] for run in runs]),
        np.array([kinds.index(run.kind) for run in runs]),
        np.log(actual),
        np.minimum(1, actual / SMALL_SECONDS),
        np.array([defaults[name] for name in FEATURES]),
    )
    indices = np.arange(len(runs))
    fold_of = indices % min(FOLDS, len(runs))
    estimates = np.full(len(runs), np.nan)
    for fold in range(fold_of.max() + 1 if len(runs) > 1 else 0):
        left_out = fold_of == fold
        estimates[left_out] = problem.estimates(problem.solve(~left_out), left_out)
    validated = np.flatnonzero((actual > SMALL_SECONDS) & np.isfinite(estimates)).tolist()
    seconds, factors = problem.solve(indices >= 0)
    return Rates(
        device,
        dict(zip(FEATURES, map(float, seconds), strict=True)),
        dict(zip(kinds, map(float, factors), strict=True)),
        len(runs),
        tuple(Validated(runs[i].tier, float(actual[i]), float(estimates[i])) for i in validated),
        float(np.median([run.wall_s / run.cpu_s for run in runs])),
    )


@dataclass(frozen=True)
class _Problem:
    """Past runs as arrays: counts (runs, features); kind, log seconds and weight (runs,).

    unit: default seconds per unit, (features,).
    """

    counts: np.ndarray
    kind: np.ndarray
    log_actual: np.ndarray
    weight: np.ndarray
    unit: np.ndarray

    def solve(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Seconds per unit, and the factor of every kind, from the runs of a mask."""
        # Imported here since it takes half a second, and a plan without past runs does not need it.
        from scipy.optimize import least_squares

        counts, kind = self.counts[mask], self.kind[mask]
        target, weight = self.log_actual[mask], self.weight[mask]
        unit = self.unit * self._machine(mask)
        features, kinds = len(unit), int(self.kind.max()) + 1
        is_kind = np.eye(kinds)[kind]

        def seconds(logs: np.ndarray) -> np.ndarray:
            return counts * (unit * np.exp(logs[:features]))

        def errors(logs: np.ndarray) -> np.ndarray:
            residuals = np.log(seconds(logs).sum(1)) + logs[features:][kind] - target
            return np.concatenate([weight * residuals, PULL * logs])

        def slopes(logs: np.ndarray) -> np.ndarray:
            parts = seconds(logs)
            shares = np.hstack([parts / parts.sum(1, keepdims=True), is_kind])
            return np.vstack([weight[:, None] * shares, PULL * np.eye(len(logs))])

        start = np.zeros(features + kinds)
        logs = least_squares(errors, start, slopes, method="lm").x
        return unit * np.exp(logs[:features]), np.exp(logs[features:])

    def _machine(self, mask: np.ndarray) -> float:
        """Factor of the machine: the weighted median of actual over default seconds.

        A run counts in proportion to its seconds without its start, up to `LONG_SECONDS`: what
        starts quickly need not compute quickly, so a tier of tiny runs says nothing. One long run
        at the default rates counts as well.
        """
        parts = self.counts[mask] * self.unit
        total = parts.sum(1)
        actual, starts = np.exp(self.log_actual[mask]), parts[:, FEATURES.index("starts")] / total
        weights = np.minimum(1, actual * (1 - starts) / LONG_SECONDS)
        ratios = np.append(self.log_actual[mask] - np.log(total), 0.0)
        order = np.argsort(ratios)
        below = np.cumsum(np.append(weights, 1)[order])
        return float(np.exp(ratios[order][np.searchsorted(below, below[-1] / 2)]))

    def estimates(self, solution: tuple[np.ndarray, np.ndarray], mask: np.ndarray) -> np.ndarray:
        """Estimated seconds of the runs of a mask, from what `solve` returned."""
        seconds, factors = solution
        return (self.counts[mask] @ seconds) * factors[self.kind[mask]]


def size_of(record: Mapping[str, Any]) -> Size:
    """Size of the data set behind a record, `NO_DATA` without one."""
    if record["data"] is None:
        return NO_DATA
    shapes = record["data"]["shapes"]
    (n_train, inputs), (n_add, _) = shapes["x_train"], shapes["x_add"]
    return Size(n_train, n_add, inputs)


def _read(path: Path, device: str) -> Iterator[PastRun]:
    try:
        cost, record = read_cost(path), read_record(path.with_name("record.json"))
        fields, backbone = parse_spec(record["spec"], str(path)), None
        if name := getattr(fields, "backbone", None):
            trained = path.parents[2] / "pretrain" / name / "record.json"
            backbone = parse_spec(read_record(trained)["spec"], str(trained))
        if cost["machine"] != platform.machine():
            return
        past_work = work(fields, size_of(record), backbone)
        # Work that stays on the CPU says nothing about the host's GPU.
        gpu = cost_of(fields.key, fields.kind).gpu
        where = cost["device"] if gpu else "cpu"
        numbers = [float(cost[name]) for name in SECONDS_AND_MB]
    except (InputError, KeyError, TypeError, ValueError):
        return
    if where == device and min(numbers) > 0:
        tier = path.parents[3].name
        yield PastRun(tier, (fields.key, fields.kind), past_work.counts, *numbers)
