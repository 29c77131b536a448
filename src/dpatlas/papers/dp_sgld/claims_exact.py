"""dp_sgld: the comparisons behind each claim on privacy, from its curves and its printed numbers.

These numbers are exact: each counts as one run, with an interval of length 0. What follows from the
printed tables by arithmetic needs no record; its entry in claims.yaml names the group of records
behind the table that shows it.
"""

import math
from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np

from dpatlas.core.statistics import Comparison
from dpatlas.evidence.arguments import Group, Positive
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords, Undecided, exact_comparison
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
# Values, each with a label that says what it is and where.
LabelledValues = Iterable[tuple[float, str]]
Column = Literal["beta_over_lambda", "ratio_classes", "ratio_parameters"]
# Columns of sgld_constants.csv that recompute one of Table 4.
RECOMPUTED: dict[Column, Callable[[Problem], float]] = {
    "beta_over_lambda": lambda problem: problem.beta / problem.lam,
    "ratio_classes": lambda problem: problem.ratio(problem.classes),
    "ratio_parameters": lambda problem: problem.ratio(problem.parameters),
}
# Curves of a `privacy_loss` record.
BOUND, QUADRATIC = "full batch, hidden state", "quadratic, fixed start"


def matches_printed_constants(
    records: PaperRecords, *, group: Group, column: Column, tolerance: Positive
) -> Evidence:
    """In every row of Table 4, `column` deviates from print by less than `tolerance`.

    The deviation is relative to the printed value.
    """
    records.group(group)
    comparisons = []
    for problem in TABLE_4:
        _, condition, ratio = PRINTED_TABLE_4[problem.dataset, problem.backbone]
        printed = condition if column == "beta_over_lambda" else ratio
        deviation = abs(RECOMPUTED[column](problem) / printed - 1)
        label = f"deviation of {column} for {problem.dataset}, {problem.backbone}"
        comparisons.append(exact_comparison(label, deviation, below=tolerance))
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
    """Relative growth of a curve of epsilon over its second half lies between the limits.

    Where half the number of steps lies between two points of the curve, epsilon there is that of
    the power law through both.
    """
    comparisons = []
    for record in records.group(group):
        steps, epsilons = _curve(record, curve, calibration, schedule)
        half = steps[-1] / 2
        if steps[0] > half:
            raise NotRun(f"{curve} of {record.id} has no point before step {half:g}")
        # From the last point at or before half the steps.
        first = int(np.searchsorted(steps, half, side="right")) - 1
        if not (epsilons[first:] > 0).all():
            raise Undecided(f"{curve} of {record.id} is zero at some step", 1)
        logs = np.log(epsilons[first:])
        log_at_half = np.interp(math.log(half), np.log(steps[first:]), logs)
        label = f"growth of {curve} from step {half:g} to {steps[-1]} in {record.id}"
        growth = math.expm1(logs[-1] - log_at_half)
        comparisons.append(exact_comparison(label, growth, above=above, below=below))
    return Evidence([comparisons])


def exceeds_claimed_divergence(records: PaperRecords, *, group: Group, above: float) -> Evidence:
    """For m < n, the largest log of exact over claimed Renyi divergence exceeds `above`."""
    return Evidence([[_largest(_divergences(records, group, full=False), above=above)]])


def exceeds_promised_delta(records: PaperRecords, *, group: Group, above: float) -> Evidence:
    """For m < n, the largest log10 of exact over promised delta exceeds `above`."""
    return Evidence([[_largest(_deltas(records, group, full=False), above=above)]])


def holds_for_full_batches(records: PaperRecords, *, group: Group, tolerance: Positive) -> Evidence:
    """For m = n, both of these logarithms are below `tolerance`."""
    logarithms = [ratios(records, group, full=True) for ratios in (_divergences, _deltas)]
    return Evidence([[_largest(values, below=tolerance) for values in logarithms]])


def recovers_printed_epsilon(
    records: PaperRecords, *, group: Group, count: Literal["epochs", "steps"], tolerance: Positive
) -> Evidence:
    """Thm 3.2 gives the printed epsilon at the published settings where K is the number of `count`.

    The relative deviation is below `tolerance` in every DP-SGLD row of Tables 1 and 2.
    """
    records.group(group)
    comparisons = [
        exact_comparison(
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
    """Thm 3.2's epsilon at the published settings lies between `above` and `below` in every row."""
    records.group(group)
    comparisons = [
        exact_comparison(
            f"claimed epsilon, {_name(run)}", run.claimed_epsilon(count), above=above, below=below
        )
        for run in PUBLISHED_RUNS
    ]
    return Evidence([comparisons])


def quadratic_attains_bound(
    records: PaperRecords, *, group: Group, tolerance: Positive
) -> Evidence:
    """Epsilon of the full-batch bound and of the quadratic deviate by less than `tolerance`.

    The deviation is relative to the larger of the two, at every step of every calibration with
    constant steps. The quadratic has curvature lambda and contracts by 1 - eta lambda, which is the
    bound's c at every step since eta = 1 / (2 beta) and lambda <= beta.
    """
    comparisons = []
    for record in records.group(group):
        quadratics = [curve for curve in record.metrics.curves if curve.curve == QUADRATIC]
        if not quadratics:
            raise NotRun(f"{record.id} has no curve {QUADRATIC}")
        for quadratic in quadratics:
            calibration, schedule = quadratic.calibration, quadratic.schedule
            steps, exact = _curve(record, QUADRATIC, calibration, schedule)
            _, bound = _curve(record, BOUND, calibration, schedule)
            distance, larger = np.abs(bound - exact), np.maximum(bound, exact)
            deviations = np.divide(distance, larger, out=np.zeros_like(distance), where=larger > 0)
            worst = int(deviations.argmax())
            label = f"deviation at step {steps[worst]}, noise {calibration}, in {record.id}"
            comparisons.append(exact_comparison(label, float(deviations[worst]), below=tolerance))
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


def _curve(
    record: Curves, name: str, calibration: str, schedule: str
) -> tuple[np.ndarray, np.ndarray]:
    """Steps and epsilons of a curve; NotRun without it, Undecided if some epsilon is infinite."""
    for curve in record.metrics.curves:
        if (curve.curve, curve.calibration, curve.schedule) == (name, calibration, schedule):
            if None in curve.epsilon:
                raise Undecided(f"{name} of {record.id} is infinite at some step", 1)
            return np.array(curve.steps), np.array(curve.epsilon, float)
    raise NotRun(f"{record.id} has no curve {name} for {schedule} steps, noise {calibration}")


def _divergences(records: PaperRecords, group: str, *, full: bool) -> LabelledValues:
    """Log of exact over claimed Renyi divergence of all scanned laws: m = n if `full`, or m < n."""
    record: Laws
    for record in records.group(group):
        fields = record.spec
        for law in record.metrics.scan:
            if (law.m == record.metrics.n) != full:
                continue
            for K, true_values, claimed in zip(fields.steps, law.exact, law.claimed, strict=True):
                for alpha, p, q in zip(fields.alphas, true_values, claimed, strict=True):
                    point = f"sigma2 {law.sigma2:g}, K {K}, order {alpha:g}"
                    yield _log(p / q), f"log of exact over claimed divergence, {_law(law)}, {point}"


def _deltas(records: PaperRecords, group: str, *, full: bool) -> LabelledValues:
    """log10 of exact over promised delta of all laws: m = n if `full`, or m < n."""
    record: Laws
    for record in records.group(group):
        for law in record.metrics.calibrated:
            if (law.m == record.metrics.n) == full:
                label = f"log10 of exact over promised delta, {_law(law)}, K {law.K}"
                yield _log(law.delta / record.spec.delta) / math.log(10), label


def _law(law: Law) -> str:
    """A pair of data sets with batch and step size, in words."""
    return f"1 against {law.x_prime:g} among {law.rest:g}s, m {law.m}, eta {law.eta:g}"


def _log(ratio: float) -> float:
    """The logarithm, -inf at 0."""
    return math.log(ratio) if ratio > 0 else -math.inf


def _largest(
    values: LabelledValues, above: float = -math.inf, below: float = math.inf
) -> Comparison:
    """The comparison of the largest value; NotRun if there is none."""
    value, label = max(values, default=(math.nan, ""))
    if not label:
        raise NotRun("the counterexample has no batches of that size")
    return exact_comparison(label, value, above=above, below=below)


def _name(run: PublishedRun) -> str:
    """A row of Tables 1 and 2 in words."""
    return f"Table {run.table}, {run.dataset}, {run.backbone}"
