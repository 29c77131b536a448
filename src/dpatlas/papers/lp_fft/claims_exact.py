"""lp_fft: the comparisons behind each claim on its theorems, from formulas and simulations.

The standard error of a simulated mean counts as known. An exact value counts as one run.
"""

import math
from collections.abc import Callable
from typing import Literal

from dpatlas.core.statistics import Comparison, normal_estimate
from dpatlas.evidence.arguments import Group, Positive
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords, exact_comparison
from dpatlas.papers.lp_fft.records import distortion, dynamics
from dpatlas.papers.lp_fft.records.dynamics import Heads, Phase
from dpatlas.records import Record

Dynamics = Record[dynamics.Spec, dynamics.Metrics]


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


TESTS: dict[str, Callable[..., Evidence]] = {
    test.__name__: test
    for test in (
        zeroth_order_stays_in_bracket,
        diffusion_stays_in_bracket,
        head_norm_follows,
        distorts_on_clusters,
        distorts_two_records,
    )
}


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
