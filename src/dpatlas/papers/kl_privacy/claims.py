"""kl_privacy: the comparisons behind each claim, from the paper's records.

KL of a condition at a step: per run, the largest cumulative KL of any record, as a natural
logarithm. (The figures show the largest mean over runs. Its record is often one whose KL is large
in a single run only, so the values of all runs at that record say little about a further run.)
Conditions share a run's initial weights, so differences between them are taken run by run where
both have the same runs. A diverged run leaves the entry undecided: divergence depends on what is
measured, so the remaining runs are a biased sample.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpatlas.core.statistics import (
    Comparison,
    Estimate,
    difference_estimate,
    mean_estimate,
    normal_estimate,
)
from dpatlas.errors import InputError
from dpatlas.evidence.arguments import Group, Positive, Some
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords, Undecided
from dpatlas.papers.kl_privacy.drift_constants import drift_constants
from dpatlas.papers.kl_privacy.kinds import ConstantsRecord, LinearizedRecord, TrainingRecord
from dpatlas.papers.kl_privacy.records import Init
from dpatlas.papers.kl_privacy.records.training import WorstCase

# A stage of training, in steps in the config (kl_privacy.horizons).
Horizon = Literal["early", "short", "long"]
Axis = Literal["depth", "width"]
LEAST_STEPS_FOR_DRIFT = 3
UNIT = {"depth": "layer", "width": "doubling of the width"}


def never_falls(
    records: PaperRecords, *, group: Group, inits: Some[Init], tolerance: Positive
) -> Evidence:
    """log of the worst-case KL falls at no step by more than `tolerance`.

    The smallest change from one step to the next of the mean over runs, without an interval.
    """
    comparisons = []
    for init in inits:
        record = _reference(records, group, init)
        worst = np.array(_curves(record).worst)
        if len(worst) < 2:
            raise NotRun(f"{init} has a single step")
        with np.errstate(divide="ignore", invalid="ignore"):
            changes = np.diff(np.log(worst))
        if np.isnan(changes).any():
            raise Undecided(f"KL of {init} is zero at some step", len(_kl_runs(record, 1)))
        step = int(changes.argmin()) + 2
        estimate = Estimate(float(changes.min()), 0.0, math.inf, len(_kl_runs(record, 1)))
        label = f"smallest change of log KL of {init}, at step {step}"
        comparisons.append(Comparison(label, estimate, above=-tolerance))
    return Evidence([comparisons])


def grows_linearly(
    records: PaperRecords,
    *,
    group: Group,
    inits: Some[Init],
    horizon: Horizon,
    target: float,
    tolerance: Positive,
) -> Evidence:
    """The growth exponent between half the horizon and the horizon is target +- tolerance."""
    end = _horizon(records, horizon)
    if end < 2:
        raise NotRun(f"horizon {horizon} has a single step")
    low, high = target - tolerance, target + tolerance
    return _exponents(records, group, inits, end // 2, end, above=low, below=high)


def grows_faster(
    records: PaperRecords,
    *,
    group: Group,
    inits: Some[Init],
    since: Horizon,
    horizon: Horizon,
    above: float,
) -> Evidence:
    """The growth exponent between two horizons exceeds `above`."""
    start, end = _horizon(records, since), _horizon(records, horizon)
    return _exponents(records, group, inits, start, end, above=above)


def exceeds(
    records: PaperRecords,
    *,
    group: Group,
    inits: Some[Init],
    than: Some[Init],
    horizon: Horizon,
    above: float,
) -> Evidence:
    """log KL of each of `inits` exceeds that of each of `than` by more than `above`."""
    step = _horizon(records, horizon)
    comparisons = []
    for init, other in itertools.product(inits, than):
        first, second = _reference(records, group, init), _reference(records, group, other)
        label = f"log KL of {init} less that of {other} at step {step}"
        comparisons.append(Comparison(label, _difference(first, second, step), above=above))
    return Evidence([comparisons])


def rises(
    records: PaperRecords,
    *,
    group: Group,
    axis: Axis,
    inits: Some[Init],
    tolerance: Positive,
    horizon: Horizon | None = None,
) -> Evidence:
    """KL rises along a sweep.

    Trend: the least-squares slope of log KL, per layer of depth or doubling of width, is above 0.
    Monotonicity: no two neighbours fall by surely more than a factor 1 + tolerance (a veto).
    Without a horizon it is read at the sweep's last step.
    """
    comparisons = []
    for init in inits:
        sweep, step = _sweep(records, group, axis, init, horizon, least=2)
        logs = np.array([_log_kl(record, step) for record in sweep])
        slope = mean_estimate(_slopes([_position(record, axis) for record in sweep], logs, axis))
        comparisons.append(
            Comparison(f"slope of log KL of {init} at step {step} per {UNIT[axis]}", slope, above=0)
        )
        for record, following in itertools.pairwise(sweep):
            change = _difference_along(axis, step, following, record, -math.log1p(tolerance))
            comparisons.append(dataclasses.replace(change, veto=True))
    return Evidence([comparisons])


def _slopes(positions: Sequence[float], logs: np.ndarray, axis: str) -> np.ndarray:
    """Least-squares slopes (runs,) of logs (positions, runs) on depth, or on log2 of the width."""
    x = np.array(positions, float)
    x = np.log2(x) if axis == "width" else x
    centred = x - x.mean()
    return centred @ logs / (centred @ centred)


def rises_then_falls(
    records: PaperRecords,
    *,
    group: Group,
    axis: Axis,
    inits: Some[Init],
    horizon: Horizon,
    above: float,
) -> Evidence:
    """log KL somewhere between the ends of a sweep exceeds that at both ends by more than `above`.

    One alternative per interior point. Raises InputError unless `inits` names a single one.
    """
    if len(inits) != 1:
        raise InputError("inits of rises_then_falls", ", ".join(inits), "one init per entry")
    init = inits[0]
    sweep, step = _sweep(records, group, axis, init, horizon, least=3)
    ends = (sweep[0], sweep[-1])
    return Evidence(
        [
            [_difference_along(axis, step, inner, end, above) for end in ends]
            for inner in sweep[1:-1]
        ]
    )


def below_drift_bound(records: PaperRecords, *, group: Group, inits: Some[Init]) -> Evidence:
    """Measured KL below Lemma 3.2, exact convention, with the constants seen on the trajectory.

    The step is the one where the mean log ratio is largest. That it is chosen on the same runs can
    only speak against the claim.
    """
    comparisons = []
    for init in inits:
        record = _reference(records, group, init)
        steps = record.spec.steps
        if steps < LEAST_STEPS_FOR_DRIFT:
            raise NotRun(f"{init} has {steps} steps; Lemma 3.2's constants need 3")
        times = record.spec.lr * np.arange(1, steps + 1)
        bound = drift_constants(record).kl_bound(times, "exact")
        label = f"log of KL over Lemma 3.2 for {init}"
        measured = _curves(record).run_max
        comparisons.append(_worst_ratio(label, measured, bound, range(1, steps + 1)))
    return Evidence([comparisons])


def below_linearized_bound(records: PaperRecords, *, group: Group, inits: Some[Init]) -> Evidence:
    """Measured KL of the linearised network below Cor. 4.2, exact convention, at every depth.

    The step is chosen as in `below_drift_bound`.
    """
    comparisons = [
        _worst_ratio(
            f"log of KL over Cor. 4.2 for {init} at depth {row.depth}",
            row.kl_worst_runs,
            row.kl_bound,
            row.shown_steps,
        )
        for init in inits
        for row in _linearized(records, group, init).metrics.depths
    ]
    return Evidence([comparisons])


def matches_monte_carlo(
    records: PaperRecords, *, group: Group, inits: Some[Init], target: float, tolerance: Positive
) -> Evidence:
    """Monte Carlo mean of the squared gradient norm over B (Eq. 7) is target +- tolerance.

    Every depth. The mean is over thousands of independent draws: normal intervals.
    """
    of_group: Sequence[ConstantsRecord] = records.group(group)
    rows = [row for record in of_group for row in record.metrics.rows]
    comparisons = []
    for init in inits:
        of_init = [row for row in rows if row.init == init]
        if not of_init:
            raise NotRun(f"group {group} has no {init}")
        for row in of_init:
            ratio, error = row.mean / row.B, row.standard_error / row.B
            comparisons.append(
                Comparison(
                    f"Monte Carlo mean over B for {init} at depth {row.depth}",
                    normal_estimate(ratio, error, row.draws),
                    above=target - tolerance,
                    below=target + tolerance,
                )
            )
    return Evidence([comparisons])


def does_not_fall(
    records: PaperRecords,
    *,
    group: Group,
    inits: Some[Init],
    inputs: Literal["sphere", "data"],
    tolerance: Positive,
) -> Evidence:
    """Slope of log(B R / n) on depth, per run, is above -tolerance per layer.

    inputs: `sphere`, drawn as the theory assumes them, or `data`, the records of the run.
    """
    comparisons = []
    for init in inits:
        rows = _linearized(records, group, init).metrics.depths
        if len(rows) < 2:
            raise NotRun(f"{init} has a single depth")
        values = [(row.sphere if inputs == "sphere" else row).BR_over_n_runs for row in rows]
        logs = _logs(values, f"B R / n of {init}")
        slopes = _slopes([row.depth for row in rows], logs, "depth")
        label = f"slope of log(B R / n) per layer for {init}"
        comparisons.append(Comparison(label, mean_estimate(slopes), above=-tolerance))
    return Evidence([comparisons])


TESTS: dict[str, Callable[..., Evidence]] = {
    test.__name__: test
    for test in (
        never_falls,
        grows_linearly,
        grows_faster,
        exceeds,
        rises,
        rises_then_falls,
        below_drift_bound,
        below_linearized_bound,
        matches_monte_carlo,
        does_not_fall,
    )
}


def _linearized(records: PaperRecords, group: str, init: str) -> LinearizedRecord:
    return _of_init(records, group, init)[0]


def _of_init(records: PaperRecords, group: str, init: str) -> list[Any]:
    """Records of one init in a group; NotRun if there is none."""
    of_init = [record for record in records.group(group) if record.spec.init == init]
    if not of_init:
        raise NotRun(f"group {group} has no {init}")
    return of_init


def _trained(records: PaperRecords, group: str, init: str) -> list[TrainingRecord]:
    """Training records of one init in a group, none of them with a diverged run."""
    trained: list[TrainingRecord] = _of_init(records, group, init)
    for record in trained:
        planned = len(record.metrics.diverged)
        diverged = planned - record.metrics.diverged.count(None)
        if diverged:
            reason = f"{diverged} of {planned} runs of {record.id} diverged"
            raise Undecided(reason, planned - diverged)
    return trained


def _reference(records: PaperRecords, group: str, init: str) -> TrainingRecord:
    return _trained(records, group, init)[0]


def _horizon(records: PaperRecords, name: str) -> int:
    horizons = records.settings.get("horizons", {})
    if name not in horizons:
        raise NotRun(f"the config has no horizon {name}")
    return horizons[name]


def _sweep(
    records: PaperRecords, group: str, axis: str, init: str, horizon: str | None, least: int
) -> tuple[list[TrainingRecord], int]:
    """Records of one init in order along the axis, and the step at which to read them."""
    sweep = sorted(_trained(records, group, init), key=lambda record: _position(record, axis))
    if len(sweep) < least:
        raise NotRun(f"{init} has {len(sweep)} values of {axis}; the claim needs {least}")
    step = _horizon(records, horizon) if horizon else min(record.spec.steps for record in sweep)
    return sweep, step


def _position(record: TrainingRecord, axis: str) -> int:
    """A record's value on the axis `depth` or `width`."""
    return {"depth": record.spec.depth, "width": record.spec.width}[axis]


def _curves(record: TrainingRecord) -> WorstCase:
    """The KL curves of a record without a diverged run."""
    if record.metrics.kl is None:
        raise Undecided(f"no run of {record.id} is left")
    return record.metrics.kl


def _kl_runs(record: TrainingRecord, step: int) -> list[float]:
    """Every run's largest KL of a record after `step` steps."""
    over_steps = _curves(record).run_max
    if step > len(over_steps):
        raise NotRun(f"{record.id} has {len(over_steps)} steps, fewer than {step}")
    return over_steps[step - 1]


def _log_kl(record: TrainingRecord, step: int) -> np.ndarray:
    """log KL after `step` steps, shape (runs,)."""
    return _logs(_kl_runs(record, step), f"KL of {record.id} at step {step}")


def _logs(values: ArrayLike, what: str) -> np.ndarray:
    """Logarithms of values whose last axis is the runs; Undecided unless all are positive."""
    values = np.asarray(values, float)
    if not ((values > 0) & np.isfinite(values)).all():
        raise Undecided(f"{what} is zero or not finite in some run", values.shape[-1])
    return np.log(values)


def _difference(first: TrainingRecord, second: TrainingRecord, step: int) -> Estimate:
    """log KL of the first less that of the second, in pairs of runs with the same initial weights.

    Unpaired where seeds or numbers of runs differ.
    """
    logs = [_log_kl(record, step) for record in (first, second)]
    paired = len(logs[0]) == len(logs[1]) and first.spec.seed == second.spec.seed
    return difference_estimate(*logs, paired=paired)


def _difference_along(
    axis: str, step: int, first: TrainingRecord, second: TrainingRecord, above: float
) -> Comparison:
    """The comparison of `_difference` of two records of one sweep with `above`."""
    ends = f"{axis} {_position(first, axis)} less {axis} {_position(second, axis)}"
    label = f"log KL of {first.spec.init} at step {step}, {ends}"
    return Comparison(label, _difference(first, second, step), above=above)


def _exponents(
    records: PaperRecords,
    group: str,
    inits: Sequence[str],
    start: int,
    end: int,
    *,
    above: float,
    below: float = math.inf,
) -> Evidence:
    """Growth exponent log(KL(end) / KL(start)) / log(end / start) of each init."""
    comparisons = []
    for init in inits:
        record = _reference(records, group, init)
        growth = (_log_kl(record, end) - _log_kl(record, start)) / math.log(end / start)
        label = f"growth exponent of {init} from step {start} to {end}"
        comparisons.append(Comparison(label, mean_estimate(growth), above=above, below=below))
    return Evidence([comparisons])


def _worst_ratio(
    label: str, measured: Sequence[Sequence[float]], bound: ArrayLike, steps: Sequence[int]
) -> Comparison:
    """Comparison of log(measured / bound) with 0, at the step where its mean is largest.

    measured (steps, runs), bound (steps,); where the bound overflows nothing is compared.
    """
    bound = np.asarray(bound, float)
    finite = np.isfinite(bound)
    if not finite.any():
        raise Undecided(f"{label}: the bound overflows at every step", len(measured[0]))
    logs = _logs(np.asarray(measured, float)[finite], label) - np.log(bound[finite])[:, None]
    largest = int(logs.mean(1).argmax())
    step = np.asarray(steps)[finite][largest]
    return Comparison(f"{label} at step {step}", mean_estimate(logs[largest]), below=0.0)
