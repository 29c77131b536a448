"""lp_fft: the comparisons behind each claim on its theorems, from formulas and simulations.

A simulated mean has a standard error that counts as known; what has none counts as one run.
"""

import math
from collections.abc import Callable
from typing import Literal

from dpatlas.core.statistics import Comparison, Estimate, normal_estimate
from dpatlas.evidence.arguments import Group, Positive
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords
from dpatlas.papers.lp_fft.records import distortion, dynamics
from dpatlas.papers.lp_fft.records.dynamics import Heads, Phase
from dpatlas.records import Record

Dynamics = Record[dynamics.Spec, dynamics.Metrics]


def zeroth_order_stays_in_bracket(
    records: PaperRecords, *, group: Group, phase: Phase, heads: Heads, tolerance: Positive
) -> Evidence:
    """The zeroth-order loss lies beyond its bounds by less than `tolerance`, relative to it.

    Of every class, draw and sigma, at every time; phase `head` is Thm 4.2, `all` Thm 4.3.
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
            comparisons.append(_exact(label, excess, below=tolerance))
    return Evidence([comparisons])


def diffusion_stays_in_bracket(
    records: PaperRecords, *, group: Group, phase: Phase, heads: Heads, below: float
) -> Evidence:
    """No simulated expected loss lies surely beyond its bounds by `below`, relative to them.

    Of every class, draw and sigma, at every time, on both sides.
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
    """Simulated over computed E ||v_t||^2, less 1, is below `tolerance` in size at every time.

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
    """The share of distorted networks less 1 - 2^-h is below `tolerance` in size, for every h.

    On random clusters, at every variance of the head up to `largest_variance`.
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
    """The same for one feature and a class of two records, at one variance of the head."""
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


def _exact(label: str, value: float, *, below: float) -> Comparison:
    return Comparison(label, Estimate(value, 0.0, math.inf, 1), below=below)


def _brackets(record: Dynamics, phase: str, heads: str) -> list[dynamics.BracketRow]:
    """The rows of a phase and kind of head; NotRun if there is none."""
    rows = [row for row in record.metrics.relu if (row.phase, row.heads) == (phase, heads)]
    if not rows:
        raise NotRun(f"{record.id} has no {heads} heads of phase {phase}")
    return rows


def _sides(row: dynamics.BracketRow) -> tuple[tuple[str, int, list[float]], ...]:
    """Name of either side, sign of what lies beyond it, and its bounds at all times."""
    return ("lower", -1, row.lower), ("upper", 1, row.upper)


def _case(row: dynamics.BracketRow) -> str:
    return f"draw {row.draw}, sigma {row.sigma:g}, class {row.label}"


def _share(
    row: distortion.ClusterRow | distortion.TwoRecordRow, where: str, *, tolerance: float
) -> Comparison:
    """A share less the claimed one; its standard error is that of the claimed probability.

    An observed share of 0 or 1 would have none.
    """
    error = math.sqrt(row.claimed * (1 - row.claimed) / row.trials)
    estimate = normal_estimate(row.share - row.claimed, error, row.trials)
    label = f"share less 1 - 2^-h, {where}, head variance {row.head_variance:g}"
    return Comparison(label, estimate, above=-tolerance, below=tolerance)
