"""feature_learning: the comparisons behind each claim, from the simulations.

Intervals are over runs, which draw the direction, weights, records and noise anew. Conditions of
a sweep, and kinds of features, share a run's draws and are compared in pairs. Tests are on every
link of information exponent 1, or on one of them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from dpatlas.accounting.gaussian_dp import gaussian_mu
from dpatlas.core.statistics import Comparison, difference_estimate, mean_estimate
from dpatlas.evidence.arguments import Group, Positive
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords, exact_comparison
from dpatlas.papers.feature_learning.formulas.rates import (
    largest_epsilon,
    printed_first_layer_mu,
    printed_least_risk,
    second_layer_mu,
)
from dpatlas.papers.feature_learning.records import simulation
from dpatlas.records import Record as RecordOf

Record = RecordOf[simulation.Spec, simulation.Metrics]
Axis = Literal["n", "p", "d", "epsilon", "ladder"]
# Name of the one link that is tested; None for every link of information exponent 1.
OneLink = str | None
Measure = Literal["overlap", "risk_private", "risk"]
# Kinds of features, as claims.yaml explains them.
Features = Literal["private", "direction", "nonprivate", "random", "random-both", "printed"]
# The grid on which a formula is compared with exact accounting: delta, and eps as a share of its
# range up to 8 log(1 / delta).
DELTAS = (1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)
SHARES = (1e-3, 1e-2, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999)


@dataclass(frozen=True)
class Sweep:
    """A record as a sweep along its axis."""

    record: Record

    @property
    def axis(self) -> str:
        """The quantity that varies."""
        return self.record.spec.axis

    @property
    def along(self) -> str:
        """The quantity on the axis, d on a ladder."""
        return self.record.spec.along

    @property
    def exponent(self) -> int:
        """Information exponent of the link."""
        return self.record.metrics.link.information_exponent

    @cached_property
    def values(self) -> list[float]:
        """The values on the axis, ascending."""
        return sorted({getattr(row, self.along) for row in self.record.metrics.rows})

    def fall(self, name: str, features: str, values: Sequence[float]) -> np.ndarray:
        """The power of the quantity on the axis with which a measure falls along values, by run.

        Less the slope of its logarithm in that of the quantity, by least squares.
        """
        if len(values) < 2:
            raise NotRun(f"{self.record.id} has one value of {self.along}")
        measured = np.log([self.measure(name, features, value) for value in values])
        return -np.polyfit(np.log(values), measured, 1)[0]

    def measure(self, name: str, features: str, value: float) -> list[float]:
        """A measure of every run at one value of the axis; NotRun where it was not taken."""
        for row in self.record.metrics.rows:
            matches = getattr(row, self.along) == value and row.features == features
            if matches and (values := getattr(row, name)):
                return values
        raise NotRun(f"{self.record.id} has no {_words(name)} of {features} features")

    def label(self, text: str, *values: float) -> str:
        """The label of a comparison at these values of the axis."""
        between = " to ".join(f"{value:g}" for value in values)
        return f"{text}, {self.record.spec.link} link, {self.along} {between}"


def _ends(values: Sequence[float]) -> list[tuple[float, float]]:
    """The least and the largest of ascending values."""
    return [(values[0], values[-1])]


def _test_of_changes(
    name: str,
    pairs: Callable[[Sequence[float]], Iterable[tuple[float, float]]],
    *,
    rises: bool,
) -> Callable[..., Evidence]:
    """The test that a measure rises, or falls, by more than `above` within `pairs` of values.

    pairs: of an axis's ascending values.
    """

    def test(
        records: PaperRecords,
        *,
        group: Group,
        axis: Axis,
        measure: Measure,
        features: Features,
        above: float,
        link: OneLink = None,
    ) -> Evidence:
        text = f"{'rise' if rises else 'fall'} of the {_words(measure)} of {features} features"
        comparisons = []
        for sweep in _learnable(records, group, axis, link):
            if len(sweep.values) < 2:
                raise NotRun(f"{sweep.record.id} has one value of {axis}")
            for low, high in pairs(sweep.values):
                before, after = (sweep.measure(measure, features, value) for value in (low, high))
                change = (after, before) if rises else (before, after)
                estimate = difference_estimate(*change, paired=True)
                comparisons.append(Comparison(sweep.label(text, low, high), estimate, above=above))
        return Evidence([comparisons])

    test.__name__ = name
    return test


# From every value on the axis to the next.
rises_along = _test_of_changes("rises_along", pairwise, rises=True)
falls_along = _test_of_changes("falls_along", pairwise, rises=False)
# From the least value on the axis to the largest.
falls_overall = _test_of_changes("falls_overall", _ends, rises=False)


def is_better_than(
    records: PaperRecords,
    *,
    group: Group,
    axis: Axis,
    features: Features,
    against: Features,
    above: float,
    link: OneLink = None,
) -> Evidence:
    """The private risk with other features less that with `features` exceeds `above`.

    At the largest value on the axis.
    """
    comparisons = []
    for sweep in _learnable(records, group, axis, link):
        value = sweep.values[-1]
        risks = [sweep.measure("risk_private", kind, value) for kind in (against, features)]
        label = sweep.label(f"private risk with {against} less {features} features", value)
        estimate = difference_estimate(*risks, paired=True)
        comparisons.append(Comparison(label, estimate, above=above))
    return Evidence([comparisons])


def falls_as_a_power(
    records: PaperRecords,
    *,
    group: Group,
    axis: Axis,
    measure: Measure,
    features: Features,
    above: float,
    link: OneLink = None,
) -> Evidence:
    """The power of the quantity on the axis with which a measure falls exceeds `above`."""
    comparisons = []
    for sweep in _learnable(records, group, axis, link):
        text = f"power with which the {_words(measure)} of {features} features falls"
        estimate = mean_estimate(sweep.fall(measure, features, sweep.values))
        label = sweep.label(text, *_ends(sweep.values)[0])
        comparisons.append(Comparison(label, estimate, above=above))
    return Evidence([comparisons])


def falls_at_the_rate(
    records: PaperRecords,
    *,
    group: Group,
    features: Features,
    above: float,
    link: OneLink = None,
    last: Annotated[int, Field(ge=2)] | None = None,
) -> Evidence:
    """The private risk falls along a ladder by a larger factor than d^(-eps_p / (8 q)).

    Theorem 1's rate where n and p are powers of d: 3 eps_p / 16 < eps_n makes its first term the
    larger one. Compared is the logarithm of the factor, the risk's less the rate's; the risk's is
    that of a power of d, fitted run by run. last: how many of the largest d are taken; all if None.
    """
    comparisons = []
    for sweep in _learnable(records, group, "ladder", link):
        values = sweep.values[-last:] if last else sweep.values
        fall = sweep.fall("risk_private", features, values)
        largest = max(sweep.record.spec.points, key=lambda point: point.d)
        rate = math.log(largest.p) / math.log(largest.d) / (8 * sweep.record.metrics.link.degree)
        growth = math.log(values[-1] / values[0])
        text = f"log of the fall of the private risk of {features} features less that of the rate"
        label = sweep.label(text, *_ends(values)[0])
        comparisons.append(Comparison(label, mean_estimate((fall - rate) * growth), above=above))
    return Evidence([comparisons])


def sees_nothing(
    records: PaperRecords, *, group: Group, axis: Axis, features: Features, tolerance: Positive
) -> Evidence:
    """The overlap less that of random features is within `tolerance` for larger exponents.

    At the largest value on the axis, for every link of information exponent 2 or more.
    """
    comparisons = []
    for sweep in _sweeps(records, group, axis):
        if sweep.exponent > 1:
            value = sweep.values[-1]
            overlaps = [sweep.measure("overlap", kind, value) for kind in (features, "random")]
            label = sweep.label(f"overlap of {features} less random features", value)
            estimate = difference_estimate(*overlaps, paired=True)
            comparisons.append(Comparison(label, estimate, above=-tolerance, below=tolerance))
    if not comparisons:
        raise NotRun("the config has no link of information exponent 2 or more")
    return Evidence([comparisons])


def loses_direction(
    records: PaperRecords, *, group: Group, axis: Axis, tolerance: Positive
) -> Evidence:
    """With the printed sigma_W the mean cosine of neurons with mu is within `tolerance` of 0.

    At the largest value on the axis, for every link of information exponent 1.
    """
    comparisons = []
    for sweep in _learnable(records, group, axis, None):
        value = sweep.values[-1]
        estimate = mean_estimate(sweep.measure("cosine", "printed", value))
        label = sweep.label("cosine of printed neurons", value)
        comparisons.append(Comparison(label, estimate, above=-tolerance, below=tolerance))
    return Evidence([comparisons])


def first_layer_is_private(records: PaperRecords, *, group: Group, above: float) -> Evidence:
    """mu allowed by (eps, delta) less that of the printed layer's worst pair exceeds `above`.

    In every condition along p, d and epsilon; q is the link's degree, eps_B = 0.
    """
    comparisons = []
    for record in records.group(group):
        delta, degree = record.spec.delta, record.metrics.link.degree
        for point in record.spec.points:
            mu = printed_first_layer_mu(point.d, point.n, degree, point.p)
            label = (
                f"mu allowed less mu of the worst pair, d {point.d}, n {point.n}, "
                f"p {point.p}, epsilon {point.epsilon:g}, in {record.id}"
            )
            margin = gaussian_mu(point.epsilon, delta) - mu
            comparisons.append(exact_comparison(label, margin, above=above))
    return Evidence([comparisons])


def second_layer_is_private(
    records: PaperRecords,
    *,
    group: Group,
    relation: Literal["add_remove", "replace_one"],
    above: float,
) -> Evidence:
    """mu allowed by (eps, delta) less that of the printed second layer exceeds `above`.

    On a grid of delta and of eps up to 8 log(1 / delta); relation: whether the sensitivity of a
    mean of clipped gradients is C_a / n (add_remove) or 2 C_a / n (replace_one).
    """
    records.group(group)
    comparisons = []
    for delta in DELTAS:
        for share in SHARES:
            epsilon = share * largest_epsilon(delta)
            margin = gaussian_mu(epsilon, delta) - second_layer_mu(epsilon, delta, relation)
            label = (
                f"mu allowed less mu of layer 2, epsilon {epsilon:.3g}, {share:g} of the range, "
                f"delta {delta:g}"
            )
            comparisons.append(exact_comparison(label, margin, above=above))
    return Evidence([comparisons])


def risk_can_vanish(
    records: PaperRecords,
    *,
    group: Group,
    d: Annotated[int, Field(ge=2)],
    n_power: Positive,
    p_power: Positive,
    q: Annotated[int, Field(ge=1)],
    below: float,
) -> Evidence:
    """The risk that the printed first layer leaves to any second layer is less than `below`.

    At d inputs, n = d^n_power records and p = d^p_power neurons, rounded; as a share of the labels'
    variance, with eps_B = 0.
    """
    records.group(group)
    n, p = round(d**n_power), max(1, round(d**p_power))
    label = f"least risk on the printed first layer, d {d}, n {n}, p {p}, degree {q}"
    least = printed_least_risk(d, n, p, q)
    return Evidence([[exact_comparison(label, least, below=below)]])


TESTS: dict[str, Callable[..., Evidence]] = {
    test.__name__: test
    for test in (
        rises_along,
        falls_along,
        falls_overall,
        is_better_than,
        falls_as_a_power,
        falls_at_the_rate,
        sees_nothing,
        loses_direction,
        first_layer_is_private,
        second_layer_is_private,
        risk_can_vanish,
    )
}


def _sweeps(records: PaperRecords, group: str, axis: str) -> Iterator[Sweep]:
    """The group's sweeps along the axis."""
    for record in records.group(group):
        sweep = Sweep(record)
        if sweep.axis == axis:
            yield sweep


def _learnable(records: PaperRecords, group: str, axis: str, link: str | None) -> list[Sweep]:
    """Sweeps of links of information exponent 1, or of `link` alone; NotRun if there is none."""
    sweeps = list(_sweeps(records, group, axis))
    if not sweeps:
        raise NotRun(f"the config has no runs along {axis}")
    learnable = [sweep for sweep in sweeps if sweep.exponent == 1]
    if link is not None:
        learnable = [sweep for sweep in learnable if sweep.record.spec.link == link]
    if not learnable:
        which = "" if link is None else f" by the name {link}"
        raise NotRun(f"the config has no link of information exponent 1{which} along {axis}")
    return learnable


def _words(measure: str) -> str:
    return "private risk" if measure == "risk_private" else measure
