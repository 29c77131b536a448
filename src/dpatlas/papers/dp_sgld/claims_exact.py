"""dp_sgld: the comparisons behind each claim on privacy, from its curves and its printed numbers.

These numbers are exact: each counts as one run, with an interval of length 0. What follows from the
printed tables by arithmetic needs no record; its entry in claims.yaml names the group of records
behind the table that shows it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
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
from dpatlas.papers.dp_sgld.formulas.theorems import sum_of_steps, table4_ratio
from dpatlas.papers.dp_sgld.records import Schedule, counterexample, privacy_loss
from dpatlas.papers.dp_sgld.records.counterexample import Law
from dpatlas.records import Record

Curves = Record[privacy_loss.Spec, privacy_loss.Metrics]
Laws = Record[counterexample.Spec, counterexample.Metrics]
# Values, each with a label that says what it is and where.
LabelledValues = Iterable[tuple[float, str]]
Column = Literal["beta_over_lambda", "ratio_classes", "ratio_parameters"]


def rounded(value: float, digits: int = 2) -> tuple[float, float]:
    """The interval of the numbers that are printed as `value` with so many digits."""
    half = 10.0 ** (math.floor(math.log10(value)) + 1 - digits) / 2
    return value - half, value + half


def condition_interval(problem: Problem) -> tuple[float, float]:
    """beta / lambda where beta is any number that rounds to the printed whole one."""
    beta = PRINTED_TABLE_4[problem.dataset, problem.backbone][0]
    return (beta - 0.5) / problem.lam, (beta + 0.5) / problem.lam


def ratio_interval(problem: Problem, d: int) -> tuple[float, float]:
    """Table 4's last column from every beta / lambda that rounds to the printed one."""
    low, high = rounded(PRINTED_TABLE_4[problem.dataset, problem.backbone][1])
    at = [table4_ratio(problem.n, 1.0, 1e-5, d, condition) for condition in (high, low)]
    return float(at[0]), float(at[1])


# What each column of sgld_constants.csv that recomputes one of Table 4 may be, as inputs are
# rounded.
RECOMPUTED: dict[Column, Callable[[Problem], tuple[float, float]]] = {
    "beta_over_lambda": condition_interval,
    "ratio_classes": lambda problem: ratio_interval(problem, problem.classes),
    "ratio_parameters": lambda problem: ratio_interval(problem, problem.parameters),
}
# Curves of a `privacy_loss` record.
BOUND, QUADRATIC = "full batch, hidden state", "quadratic, fixed start"


def matches_printed_constants(
    records: PaperRecords, *, group: Group, column: Column, below: float
) -> Evidence:
    """In every row of Table 4, `column` is as printed, as far as rounding allows.

    The compared quantity is the gap between two intervals, in units of the printed number: of what
    rounds to it, and of what follows from the rounded inputs. It is negative where they overlap.
    """
    records.group(group)
    comparisons = []
    for problem in TABLE_4:
        low, high = RECOMPUTED[column](problem)
        _, condition, ratio = PRINTED_TABLE_4[problem.dataset, problem.backbone]
        printed = condition if column == "beta_over_lambda" else ratio
        low_in_print, high_in_print = rounded(printed)
        gap = max(low - high_in_print, low_in_print - high) / printed
        label = f"gap of {column} for {problem.dataset}, {problem.backbone}"
        comparisons.append(exact_comparison(label, gap, below=below))
    return Evidence([comparisons])


def closed_form_bounds_the_steps(records: PaperRecords, *, group: Group, below: float) -> Evidence:
    """Cor. 3.3 for the steps eta_1 .. eta_K that Thm 3.2 sums, at every point of a curve.

    The compared quantity is the largest relative excess of the divergence by the sum over that by
    the closed form, at the settings of each record, after as many steps as its longest curve.
    """
    comparisons = []
    for record in records.group(group):
        fields, beta = record.spec, record.metrics.beta
        steps = np.arange(1, max(curve.steps[-1] for curve in record.metrics.curves) + 1)
        summed = sum_of_steps(beta, fields.lam, steps + 1) - 1 / (2 * beta)
        bound = sum_of_steps(beta, fields.lam, steps, "closed-form")
        divergences = [-np.expm1(-fields.lam * total / 2) for total in (summed, bound)]
        excess = float(np.max(divergences[0] / divergences[1] - 1))
        label = f"largest excess over Cor. 3.3 in {steps[-1]} steps of {record.id}"
        comparisons.append(exact_comparison(label, excess, below=below))
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
        closed_form_bounds_the_steps,
        grows_over_last_doubling,
        exceeds_claimed_divergence,
        exceeds_promised_delta,
        holds_for_full_batches,
        recovers_printed_epsilon,
        claims_epsilon_between,
        quadratic_attains_bound,
    )
}


def counterexample_found(observed: Mapping[str, float]) -> str:
    """sgld-7 in a sentence; observed: its logarithms by part, as claims.csv has them."""
    divergence, delta = (
        f"{float(f'{ratio:.2g}'):,.0f} times"
        for ratio in (math.exp(observed["sgld-7a"]), 10 ** observed["sgld-7b"])
    )
    return (
        f"For mini-batches in one dimension the exact Rényi divergence is up to {divergence} what "
        f"dp_sgld's Thm 3.2 claims, and the exact delta up to {delta} what its Thm 4.2 promises."
    )


# What `evidence.first` writes of a claim.
FINDINGS = {"sgld-7": counterexample_found}


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
