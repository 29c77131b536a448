"""lp_fft: the comparisons behind each claim on its theorems, from formulas and simulations.

The standard error of a simulated mean counts as known. An exact value counts as one run.
"""

import itertools
import math
from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from dpatlas.core.statistics import Comparison, normal_estimate
from dpatlas.errors import InputError
from dpatlas.evidence.arguments import Group, Positive, Some
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords, exact_comparison
from dpatlas.papers.lp_fft.formulas.alignment import lp_alignment_time
from dpatlas.papers.lp_fft.formulas.linear import lp_head_norm, lp_time_threshold
from dpatlas.papers.lp_fft.formulas.relu import lp_relu_coefficients
from dpatlas.papers.lp_fft.records import distortion, dynamics, sensitivity
from dpatlas.papers.lp_fft.records.dynamics import Heads, Phase
from dpatlas.papers.lp_fft.records.sensitivity import Reading
from dpatlas.records import Record

Dynamics = Record[dynamics.Spec, dynamics.Metrics]
Several = Annotated[Some[Positive], Field(min_length=2)]


def zeroth_order_stays_in_bracket(
    records: PaperRecords, *, group: Group, phase: Phase, heads: Heads, tolerance: Positive
) -> Evidence:
    """The zeroth-order loss exceeds its bounds by less than `tolerance`, relative to the loss.

    For every class, draw and sigma, at every time. Phase `head` is Thm 4.2, `all` Thm 4.3.
    """
    comparisons = []
    for record in records.group(group):
        for row in _brackets(record, phase, heads):
            excess, side = max(
                (sign * (loss - bound) / loss, side)
                for side, sign, bounds in _sides(row)
                for loss, bound in zip(row.zeroth, bounds, strict=True)
            )
            label = f"relative excess over the {side} bound, {_case(row)}, in {record.id}"
            comparisons.append(exact_comparison(label, excess, below=tolerance))
    return Evidence([comparisons])


def diffusion_stays_in_bracket(
    records: PaperRecords, *, group: Group, phase: Phase, heads: Heads, below: float
) -> Evidence:
    """No simulated expected loss surely exceeds a bound by more than `below`, relative to it.

    For both bounds and every class, draw and sigma, at every time.
    """
    comparisons = []
    for record in records.group(group):
        paths = getattr(record.spec.relu.phases, phase).paths
        for row in _brackets(record, phase, heads):
            for k, time in enumerate(record.metrics.times):
                for side, sign, bounds in _sides(row):
                    estimate = normal_estimate(
                        sign * (row.diffusion[k] / bounds[k] - 1),
                        row.standard_error[k] / bounds[k],
                        paths,
                    )
                    label = f"excess over the {side} bound at t = {time:g}, {_case(row)}"
                    comparisons.append(Comparison(label, estimate, below=below, veto=True))
    return Evidence([comparisons])


def head_norm_follows(
    records: PaperRecords,
    *,
    group: Group,
    convention: Literal["paper", "exact"],
    tolerance: Positive,
) -> Evidence:
    """The ratio of simulated and computed E ||v_t||^2 is 1 up to `tolerance`, at every time.

    convention: `paper`, Eq. 161 as printed, or `exact`, with the sign corrected.
    """
    comparisons = []
    for record in records.group(group):
        probed, paths = record.metrics.probing, record.spec.probing.paths
        computed = probed.norm_paper if convention == "paper" else probed.norm_exact
        columns = (probed.times, probed.norm, probed.norm_standard_error, computed)
        for time, mean, error, value in zip(*columns, strict=True):
            label = f"simulated over computed squared norm less 1, t = {time:g}, {record.id}"
            estimate = normal_estimate(mean / value - 1, error / value, paths)
            comparisons.append(Comparison(label, estimate, above=-tolerance, below=tolerance))
    return Evidence([comparisons])


def distorts_on_clusters(
    records: PaperRecords, *, group: Group, largest_variance: Positive, tolerance: Positive
) -> Evidence:
    """On clusters, the share of distorted networks is 1 - 2^-h up to `tolerance`, for every h.

    For every variance of the head up to `largest_variance`.
    """
    comparisons = []
    for record in records.group(group):
        rows = [row for row in record.metrics.clusters if row.head_variance <= largest_variance]
        if not rows:
            raise NotRun(f"{record.id} has no head variance up to {largest_variance:g}")
        comparisons += [_share(row, f"clusters, h = {row.h}", tolerance=tolerance) for row in rows]
    return Evidence([comparisons])


def distorts_two_records(
    records: PaperRecords, *, group: Group, head_variance: Positive, tolerance: Positive
) -> Evidence:
    """For one feature and a class of two records, the share of distorting heads is 1/2.

    Up to `tolerance`, at one variance of the head.
    """
    comparisons = []
    for record in records.group(group):
        rows = [row for row in record.metrics.two_records if row.head_variance == head_variance]
        if not rows:
            raise NotRun(f"{record.id} has no head variance {head_variance:g}")
        comparisons += [_share(row, "two records, h = 1", tolerance=tolerance) for row in rows]
    return Evidence([comparisons])


def no_cosine_falls(records: PaperRecords, *, group: Group, below: Positive) -> Evidence:
    """The share of networks in which some cosine falls during FFT after LP is less than `below`.

    For every width of the classes and length of FFT, among networks whose heads LP has aligned.
    """
    comparisons = []
    for record in records.group(group):
        for row in record.metrics.after_probing:
            label = f"share of networks with a falling cosine, {_width(row)}, in {record.id}"
            comparisons.append(exact_comparison(label, 1 - row.share, below=below))
    return Evidence([comparisons])


def probing_protects(
    records: PaperRecords, *, group: Group, largest_span: Positive, above: float
) -> Evidence:
    """LP lowers the share of networks with a falling cosine by more than `above`.

    The share at the beginning of FFT without LP, less that within the shortest span of FFT after
    it, which has to be at most `largest_span`; for every width of the classes.
    """
    comparisons = []
    for record in records.group(group):
        rows = [row for row in record.metrics.after_probing if row.fft_span <= largest_span]
        if not rows:
            raise NotRun(f"{record.id} has no span of FFT up to {largest_span:g}")
        shortest = min(row.fft_span for row in rows)
        for row in (row for row in rows if row.fft_span == shortest):
            shares = row.distorted_at_once / row.networks, 1 - row.share
            errors = map(_share_error, shares, (row.networks, row.trials))
            estimate = normal_estimate(shares[0] - shares[1], math.hypot(*errors), row.trials)
            label = f"share of distorted networks without LP less with it, {_width(row)}"
            comparisons.append(Comparison(label, estimate, above=above))
    return Evidence([comparisons])


def probing_loss_is_bounded(
    records: PaperRecords,
    *,
    group: Group,
    convention: Literal["paper", "exact"],
    tolerance: Positive,
) -> Evidence:
    """The expected loss of linear probing exceeds Thm 4.4 by less than `tolerance`, relative to it.

    At every time. convention: the least loss of LP as printed in Eq. 24, `paper`, or half of it.
    """
    comparisons = []
    for record in records.group(group):
        probed = record.metrics.probing
        bounds = probed.loss_bound_paper if convention == "paper" else probed.loss_bound_exact
        for time, loss, bound in zip(probed.times, probed.loss_exact, bounds, strict=True):
            label = f"expected loss over the bound less 1, t = {time:g}, {record.id}"
            comparisons.append(exact_comparison(label, loss / bound - 1, below=tolerance))
    return Evidence([comparisons])


def tuned_loss_is_bounded(records: PaperRecords, *, group: Group, below: float) -> Evidence:
    """No mean loss of linear FFT surely exceeds the bound of Thm 4.5 by more than `below` of it."""
    comparisons = []
    for record in records.group(group):
        paths = record.spec.fine_tuning.paths
        for row in record.metrics.fine_tuning:
            columns = (row.times, row.loss, row.standard_error, row.bound)
            for time, loss, error, bound in zip(*columns, strict=True):
                estimate = normal_estimate(loss / bound - 1, error / bound, paths)
                label = f"mean loss over the bound less 1, d = {row.d}, t = {time:g}, {record.id}"
                comparisons.append(Comparison(label, estimate, below=below, veto=True))
    return Evidence([comparisons])


def probing_budget_grows(
    records: PaperRecords,
    *,
    features: list[list[Positive]],
    loss: Positive,
    head_variance: Positive,
    delta: Annotated[float, Field(gt=0, lt=1)],
    sigmas: Several,
    above: float,
) -> Evidence:
    """The budget of LP that aligns every feature is larger at the larger of two sigmas.

    By the steps of Thm 5.1's proof: the time of `lp_alignment_time` over
    sigma^2, for a class with `features` (records, neurons) and this loss at the start. Compared is
    the exponent of sigma between neighbouring values.
    """
    least = min(map(min, features))

    def budget(sigma: float) -> float:
        A1, B1, *_ = lp_relu_coefficients(np.array(features, float), sigma)
        time = lp_alignment_time(A1, B1, loss, least, head_variance, delta)
        return float(time) / sigma**2

    comparisons = []
    for low, high in itertools.pairwise(sorted(sigmas)):
        exponent = math.log(budget(high) / budget(low)) / math.log(high / low)
        label = f"exponent of sigma in the budget of LP between sigma {low:g} and {high:g}"
        comparisons.append(exact_comparison(label, exponent, above=above))
    return Evidence([comparisons])


def probing_grows_the_rate(
    records: PaperRecords,
    *,
    hidden: Annotated[int, Field(ge=1)],
    head_variance: Positive,
    b_norm2: Positive,
    sigma2s: Some[Positive],
    above: float,
) -> Evidence:
    """The rate of FFT's bound grows with the time of LP in the whole interval of Prop. 5.2.

    The rate is the expected squared norm of the head up to a constant. Compared is its gain over
    the first tenth of the printed interval, for every sigma^2; InputError where that is empty.
    """
    comparisons = []
    for sigma2 in sigma2s:
        world = {"h": hidden, "head_var": head_variance, "b_norm2": b_norm2, "sigma2": sigma2}
        end = float(lp_time_threshold(**world, convention="paper"))
        if end == 0:
            raise InputError("sigma2s", sigma2, "noise at which the printed interval has a length")
        start, later = lp_head_norm(np.array([0.0, end / 10]), **world)
        label = f"gain of the rate by t_lp = {end / 10:.3g}, sigma^2 = {sigma2:g}"
        comparisons.append(exact_comparison(label, float(later - start), above=above))
    return Evidence([comparisons])


def sensitivity_ratio_follows(
    records: PaperRecords, *, group: Group, reading: Reading, exponent: float, tolerance: Positive
) -> Evidence:
    """The head's sensitivity over the features' goes as d^exponent, up to `tolerance`.

    Sensitivities over all records of norm and label at most one; the exponent is that between the
    least and the largest d.
    """
    comparisons = []
    for record in records.group(group):
        rows = sorted(_starts(record, reading), key=lambda row: row.d)
        low, high = rows[0], rows[-1]
        if low.d == high.d:
            raise NotRun(f"{record.id} has one number of inputs, {low.d}")
        span = math.log(high.d / low.d)
        slope = math.log(high.ball_ratio / low.ball_ratio) / span
        error = math.hypot(*(row.ball_ratio_error / row.ball_ratio for row in (low, high))) / span
        estimate = normal_estimate(slope - exponent, error, low.seeds)
        label = f"exponent of d less {exponent:g} between d = {low.d} and {high.d}, {record.id}"
        comparisons.append(Comparison(label, estimate, above=-tolerance, below=tolerance))
    return Evidence([comparisons])


def head_is_more_sensitive(
    records: PaperRecords, *, group: Group, reading: Reading, above: float
) -> Evidence:
    """The head's sensitivity over the features', less 1, exceeds `above`, for every d."""
    comparisons = []
    for record in records.group(group):
        for row in _starts(record, reading):
            estimate = normal_estimate(row.ball_ratio - 1, row.ball_ratio_error, row.seeds)
            label = f"sensitivity of the head over the features' less 1, d = {row.d}, {record.id}"
            comparisons.append(Comparison(label, estimate, above=above))
    return Evidence([comparisons])


def jensen_gap_is_small(records: PaperRecords, *, group: Group, below: Positive) -> Evidence:
    """The relative Jensen gap of the least eigenvalue is within `below` of 0, at every step."""
    comparisons = []
    for record in records.group(group):
        for row in record.metrics.gap:
            if not any(row.steps):
                raise NotRun(f"{record.id} measures the gap at no step of training")
            for step, gap, error in zip(row.steps, row.gap, row.error, strict=True):
                if step == 0:
                    continue
                label = f"Jensen gap at noise {row.sigma:g}, step {step}, {record.id}"
                estimate = normal_estimate(gap, error, row.paths)
                comparisons.append(Comparison(label, estimate, above=-below, below=below))
    return Evidence([comparisons])


TESTS: dict[str, Callable[..., Evidence]] = {
    test.__name__: test
    for test in (
        zeroth_order_stays_in_bracket,
        diffusion_stays_in_bracket,
        head_norm_follows,
        distorts_on_clusters,
        distorts_two_records,
        no_cosine_falls,
        probing_protects,
        probing_loss_is_bounded,
        tuned_loss_is_bounded,
        probing_budget_grows,
        probing_grows_the_rate,
        sensitivity_ratio_follows,
        head_is_more_sensitive,
        jensen_gap_is_small,
    )
}


def _width(row: distortion.AfterProbingRow) -> str:
    return f"classes of {row.angle:g} degrees, until s = {row.fft_span:g}"


def _starts(
    record: Record[sensitivity.Spec, sensitivity.Metrics], reading: str
) -> list[sensitivity.StartRow]:
    return [row for row in record.metrics.start if row.reading == reading]


def _brackets(record: Dynamics, phase: str, heads: str) -> list[dynamics.BracketRow]:
    """The rows of a phase and kind of head; NotRun if there are none."""
    rows = [row for row in record.metrics.relu if (row.phase, row.heads) == (phase, heads)]
    if not rows:
        raise NotRun(f"{record.id} has no {heads} heads of phase {phase}")
    return rows


def _sides(row: dynamics.BracketRow) -> tuple[tuple[str, int, list[float]], ...]:
    """For both sides the name, the sign of an excess over the bound, and the bounds."""
    return ("lower", -1, row.lower), ("upper", 1, row.upper)


def _case(row: dynamics.BracketRow) -> str:
    return f"draw {row.draw}, sigma {row.sigma:g}, class {row.label}"


def _share_error(share: float, trials: int) -> float:
    """Standard error of an observed share, as if it had a success and a failure more.

    Without them it would be 0 where all trials agree, however few they are.
    """
    share = (share * trials + 1) / (trials + 2)
    return math.sqrt(share * (1 - share) / trials)


def _share(
    row: distortion.ClusterRow | distortion.TwoRecordRow, where: str, *, tolerance: float
) -> Comparison:
    """A share less the claimed one, with the standard error of the claimed probability.

    That of the observed share would be 0 where the share is 0 or 1.
    """
    error = math.sqrt(row.claimed * (1 - row.claimed) / row.trials)
    estimate = normal_estimate(row.share - row.claimed, error, row.trials)
    label = f"share less 1 - 2^-h, {where}, head variance {row.head_variance:g}"
    return Comparison(label, estimate, above=-tolerance, below=tolerance)
