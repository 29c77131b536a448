"""max_information: the comparisons behind each claim on its formulas and its printed numbers.

These numbers have no interval: each counts as one run. What follows from the printed table by
arithmetic needs no record; an entry of this kind names the group of runs whose table shows it.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from dpatlas.evidence.arguments import Group, Positive
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords, exact_comparison
from dpatlas.papers.max_information.formulas.kappa import Form
from dpatlas.papers.max_information.formulas.mechanisms import leading_term_ratio
from dpatlas.papers.max_information.formulas.published import TABLE_1, PublishedCertificates
from dpatlas.papers.max_information.records import coefficients, kappa
from dpatlas.papers.max_information.records.certified import unlimited
from dpatlas.records import Record

KappaRecord = Record[kappa.Spec, kappa.Metrics]
CoefficientsRecord = Record[coefficients.Spec, coefficients.Metrics]

# Half a unit of the last printed digit of risks and bounds, and of kappa and KL.
HALF_CENT, HALF_NAT = 0.005, 0.5
# Lemma 6 covers alpha and beta up to these values.
LARGEST_ALPHA, LARGEST_BETA = 3.0, 0.5
PRINTED_FORM = "optimised"
SIGNAL_TO_NOISE = "zeta_over_sigma"


def recovers_printed_kappa(
    records: PaperRecords,
    *,
    group: Group,
    dataset: Literal["MNIST", "CIFAR-10"],
    tolerance: Positive,
) -> Evidence:
    """kappa of the tuple behind a row of Table 1 is less than `tolerance` nats from print."""
    records.group(group)
    comparisons = [
        exact_comparison(
            f"kappa less print, {dataset}, zeta {row.zeta:g}, E {row.E}, T {row.T}",
            row.kappa_of_form(PRINTED_FORM) - row.kappa,
            above=-tolerance,
            below=tolerance,
        )
        for row in TABLE_1
        if row.dataset == dataset and row.zeta is not None
    ]
    return Evidence([comparisons])


def recovers_printed_bounds(
    records: PaperRecords, *, group: Group, equation: Literal[97, 98], below: float
) -> Evidence:
    """The gap between a printed bound and what its rounded inputs allow is below `below`.

    The gap of each of the eight bounds of Table 1 is negative where the two ranges overlap.
    equation: 97, or 98 for Eq. 97 at the upper limit of Eq. 98.
    """
    records.group(group)
    comparisons = [
        exact_comparison(f"gap of {what}, {row.dataset}, {row.prior}", gap, below=below)
        for row in TABLE_1
        for what, gap in _gaps(row, monte_carlo=equation == 98)
    ]
    return Evidence([comparisons])


def changes_slowly(
    records: PaperRecords, *, group: Group, axis: kappa.Axis, below: float
) -> Evidence:
    """The absolute log-log slope of kappa/n between the ends of a panel is below `below`."""
    comparisons = []
    for record in records.group(group):
        slope = _slope(record, axis)
        label = f"slope of log(kappa/n) in log({axis}) in {record.id}"
        comparisons.append(exact_comparison(label, slope, above=-below, below=below))
    return Evidence([comparisons])


def depends_most_on_noise(records: PaperRecords, *, group: Group, above: float) -> Evidence:
    """The slope in log(zeta/sigma) exceeds the absolute slope along any other axis by `above`."""
    comparisons = []
    for record in records.group(group):
        slope = _slope(record, SIGNAL_TO_NOISE)
        others = [panel.axis for panel in record.metrics.panels]
        comparisons += [
            exact_comparison(
                f"slope of log(kappa/n) in log(zeta/sigma), less that in log({axis}) in "
                f"{record.id}",
                slope - abs(_slope(record, axis)),
                above=above,
            )
            for axis in others
            if axis != SIGNAL_TO_NOISE
        ]
    return Evidence([comparisons])


def confidence_exceeds_kappa(
    records: PaperRecords, *, group: Group, axis: kappa.Axis, above: float
) -> Evidence:
    """log(4 sqrt(n) / delta) over kappa exceeds `above` at the smallest value of a panel."""
    comparisons = []
    for record in records.group(group):
        panel = _panel(record, axis)
        x, kappa_per_record, confidence = min(
            zip(panel.x, panel.optimised, panel.confidence, strict=True)
        )
        label = f"confidence term over kappa/n at {axis} {x:g} in {record.id}"
        ratio = confidence / unlimited(kappa_per_record)
        comparisons.append(exact_comparison(label, ratio, above=above))
    return Evidence([comparisons])


def scales_like_log(records: PaperRecords, *, group: Group, above: float, below: float) -> Evidence:
    """The log-log slope of kappa/n in log(1/delta) lies between `above` and `below`.

    It is taken between the ends of the panel against delta.
    """
    comparisons = []
    for record in records.group(group):
        (first, start), *_, (last, end) = _against_log(record)
        slope = math.log(end / start) / math.log(last / first)
        label = f"slope of log(kappa/n) in log(log(1/delta)) in {record.id}"
        comparisons.append(exact_comparison(label, slope, above=above, below=below))
    return Evidence([comparisons])


def is_straight_in_log(records: PaperRecords, *, group: Group, below: float) -> Evidence:
    """The steepest over the flattest slope of kappa/n in log(1/delta) is below `below`."""
    comparisons = []
    for record in records.group(group):
        slopes = [
            (after - before) / (x_after - x_before)
            for (x_before, before), (x_after, after) in itertools.pairwise(_against_log(record))
        ]
        label = f"steepest over flattest slope of kappa/n in log(1/delta) in {record.id}"
        ratio = max(slopes) / min(slopes) if min(slopes) > 0 else math.inf
        comparisons.append(exact_comparison(label, ratio, below=below))
    return Evidence([comparisons])


def stays_below_form(
    records: PaperRecords, *, group: Group, form: Form, reference: Form, below: float
) -> Evidence:
    """The relative excess of one form of kappa over another is below `below` in every panel."""
    comparisons = []
    for record in records.group(group):
        for panel in record.metrics.panels:
            values, others = (np.array(getattr(panel, name), float) for name in (form, reference))
            ratios = values / others
            largest = int(ratios.argmax())
            label = f"{form} over {reference} less 1 at {panel.axis} {panel.x[largest]:g}"
            comparisons.append(exact_comparison(label, float(ratios[largest] - 1), below=below))
    return Evidence([comparisons])


def form_at_printed_settings(
    records: PaperRecords, *, group: Group, form: Form, reference: Form, below: float
) -> Evidence:
    """One form of kappa over another, at the tuples behind Table 1, is below `below`."""
    records.group(group)
    comparisons = [
        exact_comparison(
            f"{form} over {reference}, {row.dataset}",
            row.kappa_of_form(form) / row.kappa_of_form(reference),
            below=below,
        )
        for row in TABLE_1
        if row.zeta is not None
    ]
    return Evidence([comparisons])


def ratio_lies_between(
    records: PaperRecords, *, group: Group, above: float, below: float
) -> Evidence:
    """In the domain of Lemma 6 the ratio of leading coefficients is between `above` and `below`."""
    comparisons = []
    for record in records.group(group):
        points = list(_ratios(record))
        for name, choose in (("smallest", min), ("largest", max)):
            value, alpha, beta = choose(points)
            label = f"{name} ratio in {record.id}, at alpha {alpha:g}, beta {beta:g}"
            comparisons.append(exact_comparison(label, value, above=above, below=below))
    return Evidence([comparisons])


def ratio_at_corner(
    records: PaperRecords, *, group: Group, target: float, tolerance: Positive
) -> Evidence:
    """The ratio at the largest alpha and beta of Lemma 6 is `target` up to `tolerance`."""
    records.group(group)
    value = float(leading_term_ratio(LARGEST_ALPHA, LARGEST_BETA))
    limits = {"above": target - tolerance, "below": target + tolerance}
    return Evidence(
        [[exact_comparison(f"R({LARGEST_ALPHA:g}, {LARGEST_BETA:g})", value, **limits)]]
    )


def ratio_rises(records: PaperRecords, *, group: Group, above: float) -> Evidence:
    """The smallest growth of the ratio between neighbours in alpha or in beta exceeds `above`."""
    comparisons = []
    for record in records.group(group):
        points = list(_ratios(record))
        for name, moving, fixed in (("alpha", 1, 2), ("beta", 2, 1)):
            ordered = sorted(points, key=lambda point: (point[fixed], point[moving]))
            growth = [
                (after[0] - before[0], after[1:])
                for before, after in itertools.pairwise(ordered)
                if before[fixed] == after[fixed]
            ]
            if not growth:
                raise NotRun(f"{record.id} has one {name} only in the domain of Lemma 6")
            value, (alpha, beta) = min(growth)
            label = f"growth of the ratio in {name}, up to alpha {alpha:g}, beta {beta:g}"
            comparisons.append(exact_comparison(label, value, above=above))
    return Evidence([comparisons])


TESTS: dict[str, Callable[..., Evidence]] = {
    test.__name__: test
    for test in (
        recovers_printed_kappa,
        recovers_printed_bounds,
        changes_slowly,
        depends_most_on_noise,
        confidence_exceeds_kappa,
        scales_like_log,
        is_straight_in_log,
        stays_below_form,
        form_at_printed_settings,
        ratio_lies_between,
        ratio_at_corner,
        ratio_rises,
    )
}


def _gaps(row: PublishedCertificates, *, monte_carlo: bool) -> Iterator[tuple[str, float]]:
    """Gaps between each printed bound and the range that its rounded inputs allow, by name."""
    for name, risk, kl, printed in (
        ("B(pi)", row.risk_prior, 0.0, row.bound_prior),
        ("B(rho)", row.risk_posterior, row.kl, row.bound_posterior),
    ):
        ends = []
        for sign in (-1, 1):
            rounded = risk + sign * HALF_CENT
            # A printed zero is exact.
            nats, kappa_nats = (value + sign * HALF_NAT * (value > 0) for value in (kl, row.kappa))
            ends.append(row.bound(rounded, nats, kappa_nats, monte_carlo=monte_carlo))
        low, high = ends
        yield name, max(low - (printed + HALF_CENT), (printed - HALF_CENT) - high)


def _slope(record: KappaRecord, axis: str) -> float:
    """log-log slope of the optimised kappa/n between the ends of a panel."""
    (first, start), *_, (last, end) = _points(record, axis)
    return math.log(end / start) / math.log(last / first)


def _against_log(record: KappaRecord) -> list[tuple[float, float]]:
    """(log(1/delta), optimised kappa/n), in ascending order."""
    return [(-math.log(delta), value) for delta, value in reversed(_points(record, "delta"))]


def _points(record: KappaRecord, axis: str) -> list[tuple[float, float]]:
    """(x, optimised kappa/n) of a panel in ascending order; NotRun for fewer than two points."""
    panel = _panel(record, axis)
    points = zip(panel.x, panel.optimised, strict=True)
    finite = sorted((x, value) for x, value in points if value is not None)
    if len(finite) < 2:
        raise NotRun(f"{record.id} has one value of {axis} only")
    return finite


def _panel(record: KappaRecord, axis: str) -> kappa.Panel:
    for panel in record.metrics.panels:
        if panel.axis == axis:
            return panel
    raise NotRun(f"{record.id} has no panel against {axis}")


def _ratios(record: CoefficientsRecord) -> Iterator[tuple[float, float, float]]:
    """(ratio, alpha, beta) at every point in the domain of Lemma 6; NotRun without one."""
    in_domain = False
    for curve in record.metrics.curves:
        columns = (curve.beta, curve.gaussian_leading, curve.pure_dp_leading)
        for beta, ours, theirs in zip(*columns, strict=True):
            if curve.alpha <= LARGEST_ALPHA and beta <= LARGEST_BETA:
                in_domain = True
                yield ours / theirs, curve.alpha, beta
    if not in_domain:
        raise NotRun(f"{record.id} has no point in the domain of Lemma 6")
