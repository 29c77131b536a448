"""dp_sgld: the comparisons behind each claim on privacy, from its curves and its printed numbers.

None of these numbers has an interval: each counts as one run. What follows from the printed tables
by arithmetic needs no record; its entry names the group whose table shows it.
"""

import math
from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np

from dpatlas.core.statistics import Comparison, Estimate
from dpatlas.evidence.arguments import Group, Positive
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords, Undecided
from dpatlas.papers.dp_sgld.formulas.published import (
    PRINTED_TABLE_4,
    PUBLISHED_RUNS,
    TABLE_4,
    Problem,
    PublishedRun,
)
from dpatlas.papers.dp_sgld.records import Schedule, counterexample, privacy_loss
from dpatlas.papers.dp_sgld.records.counterexample import Law
from dpatlas.records import Record

Curves = Record[privacy_loss.Spec, privacy_loss.Metrics]
Laws = Record[counterexample.Spec, counterexample.Metrics]
# (value, where it is)
Points = Iterable[tuple[float, str]]
Column = Literal["beta_over_lambda", "ratio_classes", "ratio_parameters"]
# The columns of sgld_constants.csv that recompute a column of Table 4.
RECOMPUTED: dict[Column, Callable[[Problem], float]] = {
    "beta_over_lambda": lambda problem: problem.beta / problem.lam,
    "ratio_classes": lambda problem: problem.ratio(problem.classes),
    "ratio_parameters": lambda problem: problem.ratio(problem.parameters),
}
BOUND, QUADRATIC = "full batch, hidden state", "quadratic, fixed start"


def matches_printed_constants(
    records: PaperRecords, *, group: Group, column: Column, tolerance: Positive
) -> Evidence:
    """Table 4, recomputed as `column` says, deviates from print by less than `tolerance`.

    Relative to the printed value, in every row.
    """
    records.group(group)
    comparisons = []
    for problem in TABLE_4:
        _, condition, ratio = PRINTED_TABLE_4[problem.dataset, problem.backbone]
        printed = condition if column == "beta_over_lambda" else ratio
        deviation = abs(RECOMPUTED[column](problem) / printed - 1)
        label = f"deviation of {column} for {problem.dataset}, {problem.backbone}"
        comparisons.append(_exact(label, deviation, below=tolerance))
    return Evidence([comparisons])


def grows_over_last_doubling(
    records: PaperRecords,
    *,
    group: Group,
    curve: Literal["claimed, steps", "every iterate"],
    calibration: Literal["published", "theorem"],
    schedule: Schedule,
    above: float = -math.inf,
    below: float = math.inf,
) -> Evidence:
    """Relative growth of a curve of epsilon while the steps double for the last time.

    Half the steps lie between two of the curve's: epsilon there by the power law through both.
    """
    comparisons = []
    for record in records.group(group):
        steps, epsilons = _curve(record, curve, calibration, schedule)
        half = steps[-1] / 2
        if steps[0] > half:
            raise NotRun(f"{curve} of {record.id} has no point before step {half:g}")
        near = slice(int(np.searchsorted(steps, half, side="right")) - 1, None)
        if not (epsilons[near] > 0).all():
            raise Undecided(f"{curve} of {record.id} is zero at some step", 1)
        logs = np.log(epsilons[near])
        before = np.interp(math.log(half), np.log(steps[near]), logs)
        label = f"growth of {curve} from step {half:g} to {steps[-1]} in {record.id}"
        growth = math.expm1(logs[-1] - before)
        comparisons.append(_exact(label, growth, above=above, below=below))
    return Evidence([comparisons])


def exceeds_claimed_divergence(records: PaperRecords, *, group: Group, above: float) -> Evidence:
    """The largest log of exact over claimed Renyi divergence exceeds `above`; m < n."""
    return Evidence([[_largest(_divergences(records, group, full=False), above=above)]])


def exceeds_promised_delta(records: PaperRecords, *, group: Group, above: float) -> Evidence:
    """The largest log10 of exact over promised delta exceeds `above`; noise of Thm 4.2, m < n."""
    return Evidence([[_largest(_deltas(records, group, full=False), above=above)]])


def holds_for_full_batches(records: PaperRecords, *, group: Group, tolerance: Positive) -> Evidence:
    """For m = n neither of these logarithms is as large as `tolerance`."""
    parts = [points(records, group, full=True) for points in (_divergences, _deltas)]
    return Evidence([[_largest(points, below=tolerance) for points in parts]])


def recovers_printed_epsilon(
    records: PaperRecords, *, group: Group, count: Literal["epochs", "steps"], tolerance: Positive
) -> Evidence:
    """Thm 3.2 gives the printed epsilon at the published settings, K counted as `count` says.

    The relative deviation is below `tolerance` in every DP-SGLD row of Tables 1 and 2.
    """
    records.group(group)
    comparisons = [
        _exact(
            f"deviation from the printed epsilon, {_name(run)}",
            abs(run.claimed_epsilon(count) / run.printed_epsilon - 1),
            below=tolerance,
        )
        for run in PUBLISHED_RUNS
    ]
    return Evidence([comparisons])


def claims_epsilon_between(
    records: PaperRecords,
    *,
    group: Group,
    count: Literal["epochs", "steps"],
    above: float,
    below: float,
) -> Evidence:
    """The same epsilon lies between `above` and `below` in every row."""
    records.group(group)
    comparisons = [
        _exact(
            f"claimed epsilon, {_name(run)}", run.claimed_epsilon(count), above=above, below=below
        )
        for run in PUBLISHED_RUNS
    ]
    return Evidence([comparisons])


def quadratic_attains_bound(
    records: PaperRecords, *, group: Group, tolerance: Positive
) -> Evidence:
    """Epsilon of the full-batch bound and of the quadratic deviate by less than `tolerance`.

    Relative to the larger, at every step of every calibration; constant steps. The quadratic has
    curvature lambda and contracts by 1 - eta lambda, which is the bound's c at every step since
    eta = 1 / (2 beta) and lambda <= beta.
    """
    comparisons = []
    for record in records.group(group):
        curves = [each for each in record.metrics.curves if each.curve == QUADRATIC]
        if not curves:
            raise NotRun(f"{record.id} has no curve {QUADRATIC}")
        for quadratic in curves:
            calibration, schedule = quadratic.calibration, quadratic.schedule
            steps, exact = _curve(record, QUADRATIC, calibration, schedule)
            _, bound = _curve(record, BOUND, calibration, schedule)
            apart, larger = np.abs(bound - exact), np.maximum(bound, exact)
            deviations = np.divide(apart, larger, out=np.zeros_like(apart), where=larger > 0)
            worst = int(deviations.argmax())
            label = f"deviation at step {steps[worst]}, noise {calibration}, in {record.id}"
            comparisons.append(_exact(label, float(deviations[worst]), below=tolerance))
    return Evidence([comparisons])


TESTS: dict[str, Callable[..., Evidence]] = {
    test.__name__: test
    for test in (
        matches_printed_constants,
        grows_over_last_doubling,
        exceeds_claimed_divergence,
        exceeds_promised_delta,
        holds_for_full_batches,
        recovers_printed_epsilon,
        claims_epsilon_between,
        quadratic_attains_bound,
    )
}


def _exact(
    label: str, value: float, above: float = -math.inf, below: float = math.inf
) -> Comparison:
    return Comparison(label, Estimate(value, 0.0, math.inf, 1), above, below)


def _curve(
    record: Curves, curve: str, calibration: str, schedule: str
) -> tuple[np.ndarray, np.ndarray]:
    """Steps and epsilons of a `privacy_loss` curve."""
    wanted = (curve, calibration, schedule)
    for each in record.metrics.curves:
        if (each.curve, each.calibration, each.schedule) == wanted:
            if None in each.epsilon:
                raise Undecided(f"{curve} of {record.id} is infinite at some step", 1)
            return np.array(each.steps), np.array(each.epsilon, float)
    raise NotRun(f"{record.id} has no curve {curve} for {schedule} steps, noise {calibration}")


def _divergences(records: PaperRecords, group: str, *, full: bool) -> Points:
    """Log of exact over claimed Renyi divergence wherever the law was scanned, m = n or m < n."""
    record: Laws
    for record in records.group(group):
        fields = record.spec
        for law in record.metrics.scan:
            if (law.m == record.metrics.n) != full:
                continue
            for K, exact, claimed in zip(fields.steps, law.exact, law.claimed, strict=True):
                for alpha, p, q in zip(fields.alphas, exact, claimed, strict=True):
                    where = f"sigma2 {law.sigma2:g}, K {K}, order {alpha:g}"
                    yield _log(p / q), f"log of exact over claimed divergence, {_law(law)}, {where}"


def _deltas(records: PaperRecords, group: str, *, full: bool) -> Points:
    """log10 of exact over promised delta, m = n or m < n."""
    record: Laws
    for record in records.group(group):
        for law in record.metrics.calibrated:
            if (law.m == record.metrics.n) == full:
                label = f"log10 of exact over promised delta, {_law(law)}, K {law.K}"
                yield _log(law.delta / record.spec.delta) / math.log(10), label


def _law(law: Law) -> str:
    return f"1 against {law.x_prime:g} among {law.rest:g}s, m {law.m}, eta {law.eta:g}"


def _log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else -math.inf


def _largest(points: Points, above: float = -math.inf, below: float = math.inf) -> Comparison:
    value, label = max(points, default=(math.nan, ""))
    if not label:
        raise NotRun("the counterexample has no batches of that size")
    return _exact(label, value, above, below)


def _name(run: PublishedRun) -> str:
    return f"Table {run.table}, {run.dataset}, {run.backbone}"
