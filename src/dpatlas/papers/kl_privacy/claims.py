"""kl_privacy: the comparisons behind each claim, from the paper's records.

KL of a condition at a step: per run, the largest cumulative KL of any record, as a natural
logarithm; bounds, which are for expectations, are compared with means. Runs of one number share
their records and initial weights, so differences between conditions are taken run by run. A
diverged run leaves the entry undecided: divergence depends on what is measured, so the remaining
runs are a biased sample.
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
from dpatlas.evidence.comparisons import (
    Evidence,
    NotRun,
    PaperRecords,
    Undecided,
    exact_comparison,
)
from dpatlas.papers.kl_privacy.drift_constants import constants_by_run
from dpatlas.papers.kl_privacy.kinds import ConstantsRecord, LinearizedRecord, TrainingRecord
from dpatlas.papers.kl_privacy.readings import RiskBound, at_step, risk_bound, used
from dpatlas.papers.kl_privacy.records import Init
from dpatlas.papers.kl_privacy.records.linearized import AtDepth, AtWidth

# A stage of training, in steps in the config (kl_privacy.horizons).
Horizon = Literal["early", "short", "long"]
Axis = Literal["depth", "width"]
Inputs = Literal["sphere", "data"]
LEAST_STEPS_FOR_DRIFT = 3
UNIT = {"depth": "layer", "width": "doubling of the width"}


def never_falls(
    records: PaperRecords, *, group: Group, inits: Some[Init], tolerance: Positive
) -> Evidence:
    """log of a run's largest KL falls by more than `tolerance` between no two shown steps."""
    comparisons = []
    for init in inits:
        record = _reference(records, group, init)
        steps = record.spec.shown_steps
        if len(steps) < 2:
            raise NotRun(f"{init} has a single step")
        changes = np.diff([_log_kl(record, step) for step in steps], axis=0)
        label = f"smallest change of log KL of {init} from one shown step to the next"
        smallest = exact_comparison(label, float(changes.min()), above=-tolerance)
        runs = dataclasses.replace(smallest.estimate, runs=changes.shape[1])
        comparisons.append(dataclasses.replace(smallest, estimate=runs))
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


def peaks(
    records: PaperRecords,
    *,
    group: Group,
    axis: Axis,
    inits: Some[Init],
    horizon: Horizon,
    peak: int,
    beyond: bool,
    above: float,
) -> Evidence:
    """log KL at `peak` exceeds that at the other values of a sweep by more than `above`.

    beyond: at the greater values alone.
    """
    comparisons = []
    for init in inits:
        sweep, step = _sweep(records, group, axis, init, horizon, least=2)
        by_position = {_position(record, axis): record for record in sweep}
        others = [at for at in by_position if at > peak or (at < peak and not beyond)]
        if peak not in by_position or not others:
            needed = f"{axis} {peak} and a greater one"
            raise NotRun(f"{init} has {axis} {', '.join(map(str, by_position))}, not {needed}")
        comparisons += [
            _difference_along(axis, step, by_position[peak], by_position[at], above)
            for at in others
        ]
    return Evidence([comparisons])


def below_drift_bound(
    records: PaperRecords, *, group: Group, inits: Some[Init], below: float
) -> Evidence:
    """KL over Lemma 3.2, exact convention, run by run, at every shown step.

    Each run has a bound of its own: the lemma given its initial weights, with the largest c and
    beta that its trajectory shows.
    """
    comparisons: list[Comparison] = []
    for init in inits:
        record = _reference(records, group, init)
        spec, start = record.spec, record.metrics.start
        if spec.steps < LEAST_STEPS_FOR_DRIFT:
            raise NotRun(f"{init} has {spec.steps} steps; Lemma 3.2's constants need 3")
        largest = constants_by_run(record)
        watched = dataclasses.replace(largest, gdiff0=used(start.gap_watched))
        for step in spec.shown_steps:
            time = spec.lr * step
            bounds = [each.kl_bound(time, "exact") for each in (largest, watched)]
            if np.isfinite(bounds).all():
                comparisons += _at_most(
                    f"KL over Lemma 3.2 for {init} at step {step}",
                    at_step(record, "kl_max", step) / bounds[0],
                    at_step(record, "kl_watched", step) / bounds[1],
                    below,
                )
    if not comparisons:
        raise Undecided("the bound overflows at every step")
    return Evidence([comparisons])


def below_linearized_bound(
    records: PaperRecords, *, group: Group, inits: Some[Init], below: float
) -> Evidence:
    """KL of the linearised network over Cor. 4.2, exact convention.

    At every depth and shown share of the training time.
    """
    comparisons: list[Comparison] = []
    for init in inits:
        record = _linearized(records, group, init)
        for row in record.metrics.depths:
            for share, largest, watched in zip(
                row.shares, row.kl_max_runs, row.kl_watched_runs, strict=True
            ):
                # A run's noise is such that the bound is the budget at the end of its time.
                bound = share * record.spec.epsilon
                label = f"KL over Cor. 4.2 for {init} at depth {row.depth} and {share:.0%} of time"
                comparisons += _at_most(
                    label, np.array(largest) / bound, np.array(watched) / bound, below
                )
    return Evidence([comparisons])


def below_risk_bound(
    records: PaperRecords,
    *,
    group: Group,
    inits: Some[Init],
    bound: RiskBound,
    below: float,
) -> Evidence:
    """Each run's excess risk over its bound, mean over runs, at every depth.

    bound: as `readings.risk_bound`.
    """
    comparisons: list[Comparison] = []
    for init in inits:
        record = _linearized(records, group, init)
        for row in record.metrics.depths:
            ratios = [
                risk / risk_bound(record, row, run, bound)
                for run, risk in enumerate(row.excess_risk_runs)
            ]
            # A bound has no margin: it may be attained.
            label = f"excess risk over bound for {init} at depth {row.depth}"
            comparisons += [_shows(label, ratios, below), _refutes(label, ratios, below)]
    return Evidence([comparisons])


def matches_monte_carlo(
    records: PaperRecords, *, group: Group, inits: Some[Init], target: float, tolerance: Positive
) -> Evidence:
    """Monte Carlo mean of the squared gradient norm over B (Eq. 33) is target +- tolerance.

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


def trade_off_slope(
    records: PaperRecords, *, group: Group, inits: Some[Init], inputs: Inputs, above: float
) -> Evidence:
    """Slope of log(B R / n) on depth, per run, is above `above` per layer.

    inputs: `sphere`, drawn as the theory assumes them, or `data`, the records of the run.
    """
    comparisons = []
    for init in inits:
        rows = _linearized(records, group, init).metrics.depths
        values = [getattr(row, inputs).BR_over_n_runs for row in rows]
        comparisons.append(_slope(f"B R / n of {init}", rows, "depth", values, above=above))
    return Evidence([comparisons])


def constant_moves(
    records: PaperRecords, *, group: Group, falls: Some[Init], rises: Some[Init]
) -> Evidence:
    """B of Eq. 7 falls from each depth to the next for `falls`, and rises for `rises`."""
    comparisons = []
    for init in (*falls, *rises):
        rows = _linearized(records, group, init).metrics.depths
        for row, following in itertools.pairwise(sorted(rows, key=lambda row: row.depth)):
            change = math.log(following.B / row.B)
            label = f"log B of {init} at depth {following.depth} less depth {row.depth}"
            limit: dict[str, float] = {"below": 0.0} if init in falls else {"above": 0.0}
            comparisons.append(exact_comparison(label, change, **limit))
    if not comparisons:
        raise NotRun("a single depth")
    return Evidence([comparisons])


def linearized_slope(
    records: PaperRecords,
    *,
    group: Group,
    inits: Some[Init],
    quantity: Literal["kl", "risk"],
    above: float = -math.inf,
    below: float = math.inf,
) -> Evidence:
    """Slope on depth, per run, of a logarithm: of KL at fixed time and noise, or of excess risk."""
    comparisons = []
    for init in inits:
        rows = _linearized(records, group, init).metrics.depths
        name = {"kl": "kl_fixed_runs", "risk": "excess_risk_runs"}[quantity]
        values = [getattr(row, name) for row in rows]
        what = f"{'KL' if quantity == 'kl' else 'excess risk'} of {init}"
        comparisons.append(_slope(what, rows, "depth", values, above=above, below=below))
    return Evidence([comparisons])


def distance_falls(
    records: PaperRecords,
    *,
    group: Group,
    axis: Axis,
    inits: Some[Init],
    inputs: Inputs,
    below: float,
) -> Evidence:
    """Slope of log R on depth or doubling of the width, per run, is below `below`."""
    comparisons = []
    for init in inits:
        metrics = _linearized(records, group, init).metrics
        rows = metrics.depths if axis == "depth" else metrics.widths
        values = [getattr(row, inputs).R_runs for row in rows]
        comparisons.append(_slope(f"R of {init}", rows, axis, values, below=below))
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
        peaks,
        below_drift_bound,
        below_linearized_bound,
        below_risk_bound,
        matches_monte_carlo,
        trade_off_slope,
        constant_moves,
        linearized_slope,
        distance_falls,
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


def _log_kl(record: TrainingRecord, step: int) -> np.ndarray:
    """log of every run's largest KL after `step` steps, shape (runs,)."""
    if step not in record.spec.shown_steps:
        raise NotRun(f"{record.condition} shows no step {step}")
    values = at_step(record, "kl_max", step)
    return _logs(values, f"KL of {record.condition} at step {step}")


def _logs(values: ArrayLike, what: str) -> np.ndarray:
    """Logarithms of values whose last axis is the runs; Undecided unless all are positive."""
    values = np.asarray(values, float)
    if not ((values > 0) & np.isfinite(values)).all():
        raise Undecided(f"{what} is zero or not finite in some run", values.shape[-1])
    return np.log(values)


def _difference(first: TrainingRecord, second: TrainingRecord, step: int) -> Estimate:
    """log KL of the first less that of the second, run by run: runs of one number share records
    and initial weights.

    Where one has fewer runs, over these. Unpaired where seeds differ.
    """
    logs = [_log_kl(record, step) for record in (first, second)]
    runs = min(map(len, logs))
    paired = first.spec.seed == second.spec.seed
    return difference_estimate(logs[0][:runs], logs[1][:runs], paired=paired)


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


def _at_most(
    label: str, largest: ArrayLike, watched: ArrayLike, below: float
) -> tuple[Comparison, Comparison]:
    """What shows that expectations over a limit are below it, and what refutes it.

    largest: by run, of the run's largest record, whose mean is at least the largest expectation of
    a record: it can show the claim and not refute it. watched: of one record named before the runs,
    which can refute it and not show it.
    """
    return (
        _shows(f"{label}, largest record", largest, below),
        _refutes(f"{label}, watched record", watched, below),
    )


def _shows(label: str, values: ArrayLike, below: float) -> Comparison:
    return Comparison(label, mean_estimate(np.asarray(values)), below=below, shows_only=True)


def _refutes(label: str, values: ArrayLike, below: float) -> Comparison:
    return Comparison(label, mean_estimate(np.asarray(values)), below=below, veto=True)


def _slope(
    what: str,
    rows: Sequence[AtDepth] | Sequence[AtWidth],
    axis: Axis,
    values: Sequence[Sequence[float]],
    above: float = -math.inf,
    below: float = math.inf,
) -> Comparison:
    """The slope over rows, per run, of the logarithm of `values` (rows, runs)."""
    if len(rows) < 2:
        raise NotRun(f"{what} at a single {axis}")
    slopes = _slopes([getattr(row, axis) for row in rows], _logs(values, what), axis)
    label = f"slope of log({what}) per {UNIT[axis]}"
    return Comparison(label, mean_estimate(slopes), above=above, below=below)
