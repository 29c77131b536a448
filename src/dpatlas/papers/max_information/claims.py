"""max_information: the comparisons behind each claim on certificates, from the paper's records.

For every kind of prior a run selects, among all priors that were tried and paid for, the one with
the smallest certificate; claims are about the certificates of these priors. Intervals are over
runs. A run has its own deal or draw of the records, initial weights, batches, noise and risk
estimates. The priors of a run share its records, initial weights, batches and noise, and are
compared in pairs.
"""

import math
from collections.abc import Callable
from itertools import product
from operator import attrgetter
from typing import Any, Literal

from dpatlas.core.statistics import Comparison, Estimate, difference_estimate, mean_estimate
from dpatlas.evidence.arguments import Group, Positive, Some
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords, Undecided
from dpatlas.papers.max_information import claims_exact
from dpatlas.papers.max_information.formulas.universe import PriorKind
from dpatlas.papers.max_information.records import agreement, simulation
from dpatlas.papers.max_information.records.certificates import Row
from dpatlas.papers.max_information.records.certified import Method
from dpatlas.papers.max_information.selection import (
    HYPERPARAMETERS,
    PAID,
    RIGOROUS,
    UNIVERSE,
    Setting,
    settings_of,
)
from dpatlas.records import Record

AgreementRecord = Record[agreement.Spec, agreement.Metrics]
SimulationRecord = Record[simulation.Spec, simulation.Metrics]
# The certificate of a prior; of a posterior with the form of kappa that the config chooses, with
# kappa-tight, or with a kappa whose proof has no gap.
Certificate = Literal[
    "certificate_prior", "certificate_posterior", "certificate_tight", "certificate_rigorous"
]
PRIOR = "certificate_prior"
# The measured test error that each certificate must not fall below.
TEST_ERRORS = {
    PAID: "test_error",
    "certificate_tight": "test_error",
    RIGOROUS: "test_error",
    UNIVERSE: "test_error",
    PRIOR: "prior_test_error",
}
METHODS: tuple[Method, ...] = ("reparametrisation", "sampling")


def tightens(
    records: PaperRecords,
    *,
    group: Group,
    prior: PriorKind,
    control: PriorKind,
    certificate: Certificate,
    above: float,
    data: str | None = None,
) -> Evidence:
    """The certificate with the `control` prior less that with `prior` exceeds `above`.

    This holds in every setting, or in those on `data`, for the mean over paired runs. Priors are
    selected and compared by `certificate`.
    """
    comparisons = []
    for setting in _settings(records, group, data):
        values = [
            [getattr(row, certificate) for row in _selected(setting, kind, certificate)]
            for kind in (control, prior)
        ]
        label = (
            f"{_certificate_name(certificate)}, {control} prior less {prior} prior, "
            f"{_setting_name(setting)}"
        )
        estimate = difference_estimate(*values, paired=True)
        comparisons.append(Comparison(label, estimate, above=above))
    return Evidence([comparisons])


def is_not_vacuous(
    records: PaperRecords,
    *,
    group: Group,
    priors: Some[PriorKind],
    below: float,
    data: str | None = None,
) -> Evidence:
    """Every certificate of the selected priors and of their posteriors is below `below`.

    This holds in every run, in every setting, or in those on `data`.
    """
    comparisons = []
    for setting in _settings(records, group, data):
        for kind, name in product(priors, (PRIOR, PAID)):
            largest = max(_selected(setting, kind), key=attrgetter(name))
            label = (
                f"largest {_certificate_name(name)}, {kind} prior, run {largest.run}, "
                f"{_setting_name(setting)}"
            )
            estimate = Estimate(getattr(largest, name), 0.0, math.inf, setting.spec.runs)
            comparisons.append(Comparison(label, estimate, below=below))
    return Evidence([comparisons])


def is_better_than_guessing(
    records: PaperRecords, *, group: Group, priors: Some[PriorKind], below: float
) -> Evidence:
    """The mean certificate of the selected posteriors, less 1 - 1/classes, is below `below`."""
    comparisons = []
    for setting in _settings(records, group):
        guessing = 1 - 1 / setting.metrics.classes
        for kind in priors:
            excess = [row.certificate_posterior - guessing for row in _selected(setting, kind)]
            label = f"certificate less the risk of guessing, {kind} prior, {_setting_name(setting)}"
            comparisons.append(Comparison(label, mean_estimate(excess), below=below))
    return Evidence([comparisons])


def covers_test_error(
    records: PaperRecords, *, group: Group, certificate: Certificate, above: float
) -> Evidence:
    """Every selected certificate of every run less the measured test error exceeds `above`."""
    comparisons = [
        _over_test_error(setting, row, certificate, 0.0, above=above)
        for setting in _settings(records, group)
        for kind in setting.kinds
        for row in _selected(setting, kind)
    ]
    return Evidence([comparisons])


def is_not_exceeded(
    records: PaperRecords, *, group: Group, certificate: Certificate, above: float
) -> Evidence:
    """No certificate of the grid is significantly smaller than the measured test error.

    The standard error of the test error is that of as many independent test records at a risk equal
    to the certificate. Testing a record repeatedly with fresh weights can only reduce it.
    """
    comparisons = []
    for setting in _settings(records, group):
        n_test = setting.metrics.n_test
        for row in _tested(setting, certificate):
            bound = getattr(row, certificate)
            error = math.sqrt(bound * (1 - bound) / n_test)
            comparison = _over_test_error(setting, row, certificate, error, above=above, veto=True)
            comparisons.append(comparison)
    return Evidence([comparisons])


def agrees_with_weight_sampling(
    records: PaperRecords, *, group: Group, tolerance: Positive
) -> Evidence:
    """Risks by local reparametrisation and by sampled weights differ by less than `tolerance`.

    This holds for every network, by a normal interval for the difference of two proportions over
    independent pairs of a record and weights.
    """
    comparisons = []
    for record in records.group(group):
        for what in dict.fromkeys(row.what for row in record.metrics.rows):
            (first, first_draws), (second, second_draws) = (
                _proportion(record, what, method) for method in METHODS
            )
            variance = first * (1 - first) / first_draws + second * (1 - second) / second_draws
            estimate = Estimate(
                first - second, math.sqrt(variance), math.inf, min(first_draws, second_draws)
            )
            label = f"risk of the {what} by reparametrisation less sampling in {record.id}"
            comparisons.append(Comparison(label, estimate, above=-tolerance, below=tolerance))
    return Evidence([comparisons])


def lies_above_simulated_moment(records: PaperRecords, *, group: Group, below: float) -> Evidence:
    """No simulated moment over its tight bound surely exceeds `below`, for any law and x."""
    comparisons = []
    for record in records.group(group):
        for row in record.metrics.rows:
            label = (
                f"simulated moment over the tight bound, {row.law}, nu {row.nu:g}, "
                f"nu x {row.y:g}, in {record.id}"
            )
            value, error = row.simulated / row.tight, row.standard_error / row.tight
            estimate = Estimate(value, error, math.inf, record.metrics.draws)
            comparisons.append(Comparison(label, estimate, below=below, veto=True))
    return Evidence([comparisons])


CERTIFICATES = (
    tightens,
    is_not_vacuous,
    is_better_than_guessing,
    covers_test_error,
    is_not_exceeded,
    agrees_with_weight_sampling,
    lies_above_simulated_moment,
)
TESTS: dict[str, Callable[..., Evidence]] = {
    **{test.__name__: test for test in CERTIFICATES},
    **claims_exact.TESTS,
}


def _settings(records: PaperRecords, group: str, data: str | None = None) -> list[Setting]:
    """The settings of a group, or those on one data set; NotRun if there is none."""
    settings = settings_of(records.group(group))
    found = [setting for setting in settings if data in (None, setting.spec.data.name)]
    if not found:
        raise NotRun(f"the config has no certificates on {data}")
    return found


def _selected(setting: Setting, kind: str, by: str = PAID) -> list[Row]:
    """The selected row of every run.

    Raises NotRun without a prior of the kind, Undecided where all posteriors of a run diverged.
    """
    rows = setting.selected(kind, by)
    if not rows:
        raise NotRun(f"{_setting_name(setting)} has no {kind} prior")
    diverged = sum(row.diverged is not None for row in rows)
    if diverged:
        reason = f"every posterior of the {kind} prior diverged in {diverged} of {len(rows)} runs"
        raise Undecided(f"{reason} of {_setting_name(setting)}", len(rows) - diverged)
    return rows


def _certificate_name(field: str) -> str:
    """What a label calls a certificate, given its field in a row."""
    noun, _, qualifier = field.partition("_")
    if qualifier in ("tight", "rigorous", "universe"):
        return f"{qualifier} {noun}"
    return f"{noun} of the {qualifier}"


def _setting_name(setting: Setting) -> str:
    others = len(setting.ids) - 1
    return setting.ids[0] + (f" and {others} more" if others else "")


def _tested(setting: Setting, certificate: str) -> list[Row]:
    """Rows with a test error; a diverged posterior has a certificate of 1 and no test error."""
    error = TEST_ERRORS[certificate]
    rows = [row for row in setting.rows if getattr(row, error) is not None]
    if not rows:
        raise Undecided(f"every posterior of {_setting_name(setting)} diverged")
    return rows


def _over_test_error(
    setting: Setting, row: Row, certificate: str, error: float, **limits: Any
) -> Comparison:
    """Certificate less measured test error of a row; error: standard error of the latter."""
    values = [(name, getattr(row, name)) for name in HYPERPARAMETERS]
    settings = [f"{name} {value:g}" for name, value in values if value is not None]
    where = ", ".join([f"{row.prior} prior", *settings, f"tau {row.tau:g}, run {row.run}"])
    label = f"{_certificate_name(certificate)} less test error, {where}, {_setting_name(setting)}"
    value = getattr(row, certificate) - getattr(row, TEST_ERRORS[certificate])
    estimate = Estimate(value, error, math.inf, setting.spec.runs)
    return Comparison(label, estimate, **limits)


def _proportion(record: AgreementRecord, what: str, method: str) -> tuple[float, int]:
    """Risk and number of pairs over all repetitions; NotRun if there is none."""
    rows = [row for row in record.metrics.rows if (row.what, row.method) == (what, method)]
    if not rows:
        raise NotRun(f"{record.id} has no {method} of the {what}")
    draws = sum(row.draws for row in rows)
    return sum(row.errors for row in rows) / draws, draws
