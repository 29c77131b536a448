"""What a unit of work costs: fitted to past runs, held near documented defaults where they are few.

Seconds = sum of counts times seconds per unit, non-negative. One factor for the machine scales all
default rates (the median over its runs); then the fit minimises squared relative errors plus a
pull of every rate to its scaled default. Without the pull, a fit to many small runs would trade one
feature against another and be far off for large ones.
"""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.core.files import read_json
from dpatlas.core.records import read_record
from dpatlas.errors import InputError
from dpatlas.report.work import COUNTS, FEATURES, NO_DATA, Size, work

# Seconds per unit of one core of a 2020s x86 server; and of a GPU that sustains 10 TFLOP/s in
# float32 (a data-centre card of 2020, products in full precision).
DEFAULTS = {
    "cpu": {
        "products": 1e-11,
        "layers": 4e-5,
        "steps": 1.5e-4,
        "elements": 7e-9,
        "normals": 1e-8,
        "resamples": 5e-9,
        "dense": 2.5e-11,
        "streamed": 3e-10,
        "accountings": 0.2,
        "starts": 2.5,
    },
    "cuda": {
        "products": 1e-13,
        "layers": 1.5e-4,
        "steps": 3e-4,
        "elements": 5e-11,
        "normals": 2e-11,
        "resamples": 5e-9,
        "dense": 2.5e-11,
        "streamed": 3e-10,
        "accountings": 0.2,
        "starts": 2.5,
    },
}
# A rate twice or none of its default costs as much as one run estimated at twice or nothing.
PULL = 1.0
# Errors below a second do not matter, so they are not divided by less.
SMALL_SECONDS = 1.0
NEWEST_RUNS = 400
TOLERANCE = 1e-9


@dataclass(frozen=True)
class PastRun:
    """What a finished run was and cost."""

    counts: Mapping[str, float]
    cpu_s: float
    wall_s: float
    memory_mb: float


@dataclass(frozen=True)
class Rates:
    """Seconds per unit on one device, and how well they would have told each past run.

    `errors`: actual over estimate of every past run of more than a second, each estimated from the
    others. `waiting`: median of wall over CPU time.
    """

    device: str
    seconds: Mapping[str, float]
    runs: int
    errors: tuple[float, ...]
    waiting: float

    def estimate(self, counts: Mapping[str, float]) -> float:
        """Seconds for this work: CPU time on a CPU, wall time on a GPU."""
        return sum(self.seconds[name] * count for name, count in counts.items())

    def spread(self) -> dict[str, float] | None:
        """Median and 10 and 90 % points of `errors`."""
        if not self.errors:
            return None
        low, median, high = np.percentile(self.errors, (10, 50, 90))
        return {"median": float(median), "low": float(low), "high": float(high)}


def past_runs(results: Path, device: str) -> list[PastRun]:
    """The newest runs under `results` (every tier) on this kind of machine and on `device`.

    A record that cannot be read, or whose backbone's cannot, or of a kind without a count, is
    passed over: an estimate must not fail for an old file.
    """
    costs = sorted(
        results.glob("*/runs/*/*/cost.json"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    return [run for path in costs[:NEWEST_RUNS] for run in _read(path, device)]


def fit(runs: Sequence[PastRun], device: str) -> Rates:
    """Rates of `device` from its past runs; the defaults if there are none."""
    defaults = DEFAULTS[device]
    if not runs:
        return Rates(device, defaults, 0, (), 1.0)
    actual = np.array([run.cpu_s if device == "cpu" else run.wall_s for run in runs])
    unit = np.array([defaults[name] for name in FEATURES])
    counts = np.array([[run.counts.get(name, 0.0) for name in FEATURES] for run in runs])
    errors = []
    for index in np.flatnonzero(actual > SMALL_SECONDS):
        others = np.arange(len(runs)) != index
        if others.any():
            seconds = _solve(counts[others], actual[others], unit)
            errors.append(float(actual[index] / (counts[index] @ seconds)))
    return Rates(
        device,
        dict(zip(FEATURES, map(float, _solve(counts, actual, unit)), strict=True)),
        len(runs),
        tuple(errors),
        float(np.median([run.wall_s / run.cpu_s for run in runs])),
    )


def _solve(counts: np.ndarray, actual: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Seconds per unit from counts (runs, features), seconds (runs,) and the default rates."""
    unit = unit * np.median(actual / (counts @ unit))
    weight = 1 / np.maximum(actual, SMALL_SECONDS)
    rows, target = counts * unit * weight[:, None], actual * weight
    return unit * _non_negative(rows.T @ rows + PULL * np.eye(len(unit)), rows.T @ target + PULL)


def size_of(record: Mapping[str, Any]) -> Size:
    """Size of the data set that a record was made from, if any."""
    if record["data"] is None:
        return NO_DATA
    shapes = record["data"]["shapes"]
    (n_train, inputs), (n_add, _) = shapes["x_train"], shapes["x_add"]
    return Size(n_train, n_add, inputs)


def _non_negative(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """The x >= 0 that minimises x.matrix.x / 2 - vector.x, `matrix` positive definite.

    Active sets: solve on the free entries, fix those that come out negative, free the fixed entry
    that would help most, until none does.
    """
    free = np.ones(len(vector), dtype=bool)
    x = np.zeros(len(vector))
    for _ in range(10 * len(vector)):
        x[:] = 0
        x[free] = np.linalg.solve(matrix[np.ix_(free, free)], vector[free])
        if (x < 0).any():
            free &= x > 0
            continue
        slope = np.where(free, 0, vector - matrix @ x)
        if slope.max() <= TOLERANCE * np.abs(vector).max():
            break
        free[slope.argmax()] = True
    return x.clip(0)


def _read(path: Path, device: str) -> Iterator[PastRun]:
    try:
        cost, record = read_json(path), read_record(path.with_name("record.json"))
        fields = record["spec"]
        if fields.get("backbone"):
            trained = path.parents[2] / "pretrain" / fields["backbone"] / "record.json"
            fields["backbone"] = read_record(trained)["spec"]
        if cost["machine"] != platform.machine() or (fields["key"], fields["kind"]) not in COUNTS:
            return
        done = work(fields, size_of(record))
        # Work that stays on the CPU says nothing about the GPU of its host.
        where = cost["device"] if done.on_gpu else "cpu"
        numbers = [float(cost[name]) for name in ("cpu_s", "wall_s", "peak_memory_mb")]
    except (InputError, KeyError, TypeError, ValueError):
        return
    if where == device and min(numbers) > 0:
        yield PastRun(done.counts, *numbers)
