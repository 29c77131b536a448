"""dp_sgld: the comparisons behind each claim on accuracy and risk, from the paper's records.

Accuracies are shares of the test records. Intervals are over runs, each with a deal of the records,
batches and noise of its own; settings were chosen before, on records of no run. All arms of a run
share its deal, so that they are compared in pairs; of DP-SGD with the L2 term and without it, the
former comes first in a record.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from dpatlas.core.statistics import Comparison, difference_estimate, mean_estimate
from dpatlas.evidence.arguments import Group, Positive
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords
from dpatlas.papers.dp_sgld import claims_exact
from dpatlas.papers.dp_sgld.formulas.theorems import SCHEDULES
from dpatlas.papers.dp_sgld.records import Count, Schedule
from dpatlas.papers.dp_sgld.records.regression import Comparison as Calibration
from dpatlas.papers.dp_sgld.records.trained import ArmRow
from dpatlas.records import Record

# Of kind protocol or accuracy.
Compared = Record[Any, Any]
Text = Annotated[str, Field(min_length=1)]
Schedules = Annotated[Sequence[Schedule], Field(min_length=1)]
# The comparison of the DP-SGD row that DP-SGLD is compared with. One row accounts for add_remove,
# whichever way DP-SGLD counts K.
DP_SGD_UNDER = {"published": "published", "theorem": "published", "guaranteed": "guaranteed"}


def at_least_as_accurate(
    records: PaperRecords,
    *,
    group: Group,
    reading: Text,
    schedule: Schedule,
    n_at_least: Count,
    above: float,
) -> Evidence:
    """Accuracy of DP-SGLD less that of DP-SGD exceeds `above` on every set of so many records."""
    return Evidence([_leads(records, group, reading, schedule, n_at_least, above=above)])


def more_accurate_on_some_set(
    records: PaperRecords,
    *,
    group: Group,
    reading: Text,
    schedule: Schedule,
    n_at_least: Count,
    above: float,
) -> Evidence:
    """Accuracy of DP-SGLD less that of DP-SGD exceeds `above` on some set of so many records."""
    leads = _leads(records, group, reading, schedule, n_at_least, above=above)
    return Evidence([[lead] for lead in leads])


def near_no_dp(
    records: PaperRecords,
    *,
    group: Group,
    reading: Text,
    n_at_least: Count,
    within: Positive,
) -> Evidence:
    """Accuracy of DP-SGLD is less than `within` below that without privacy.

    This holds on every set of so many records, for both schedules of step sizes.
    """
    comparisons = [
        _difference(
            record,
            _arm(record, method="dp-sgld", reading=reading, schedule=schedule),
            _arm(record, method="no-dp", reading=reading, schedule=schedule),
            f"DP-SGLD ({schedule} steps) less No DP",
            above=-within,
        )
        for schedule in SCHEDULES
        for record in _of_size(records, group, n_at_least)
    ]
    return Evidence([comparisons])


def lead_grows_with_n(
    records: PaperRecords, *, group: Group, reading: Text, schedule: Schedule, above: float
) -> Evidence:
    """The lead of DP-SGLD over DP-SGD on the largest set less that on the smallest, by run.

    Sets of one name, with features of one kind. Runs of one number are not independent: they draw
    the same test records, and the larger set contains the smaller one. Where one has fewer runs,
    over these.
    """
    by_data: dict[tuple[str, ...], list[Compared]] = {}
    for record in records.group(group):
        features = str(record.spec.backbone), record.spec.features
        by_data.setdefault((record.spec.data.name, *features), []).append(record)
    comparisons = []
    for (name, *_), sets in by_data.items():
        sets = sorted(sets, key=lambda record: record.metrics.n_train)
        if len(sets) < 2:
            continue
        small, large = (
            np.subtract(first.accuracy, second.accuracy)
            for first, second in (
                _opponents(record, reading, schedule) for record in (sets[0], sets[-1])
            )
        )
        sizes = f"n = {sets[-1].metrics.n_train} less n = {sets[0].metrics.n_train}"
        label = f"lead of DP-SGLD over DP-SGD on {name}, {sizes}"
        runs = min(len(small), len(large))
        estimate = difference_estimate(large[:runs], small[:runs], paired=True)
        comparisons.append(Comparison(label, estimate, above))
    if not comparisons:
        raise NotRun(f"group {group} has no set of two sizes")
    return Evidence([comparisons])


def gains_without_regulariser(
    records: PaperRecords,
    *,
    group: Group,
    reading: Text,
    schedule: Schedule,
    n_at_least: Count,
    above: float,
) -> Evidence:
    """Accuracy of DP-SGD without the L2 term less that of DP-SGLD, on every set of that size."""
    comparisons = [
        _difference(
            record,
            _arm(record, method="dp-sgd", reading=reading, schedule=schedule, weight_decay=0.0),
            _arm(record, method="dp-sgld", reading=reading, schedule=schedule),
            f"DP-SGD without L2 term less DP-SGLD ({schedule} steps)",
            above=above,
        )
        for record in _of_size(records, group, n_at_least)
    ]
    return Evidence([comparisons])


def tuned_beats(
    records: PaperRecords,
    *,
    group: Group,
    comparison: Calibration,
    epsilon: Positive,
    above: float,
    schedules: Schedules,
) -> Evidence:
    """Accuracy of tuned DP-SGLD less that of tuned DP-SGD exceeds `above`.

    This holds in every record, for each of these schedules of Langevin steps.
    """
    opponent = {"method": "dp-sgd", "comparison": DP_SGD_UNDER[comparison], "epsilon": epsilon}
    return _tuned(records, group, comparison, epsilon, opponent, schedules, above=above)


def tuned_near_no_dp(
    records: PaperRecords,
    *,
    group: Group,
    comparison: Calibration,
    epsilon: Positive,
    within: Positive,
    schedules: Schedules,
) -> Evidence:
    """Accuracy of tuned DP-SGLD is less than `within` below that of tuned SGD without privacy.

    This holds in every record, for each of these schedules of Langevin steps.
    """
    opponent = {"method": "no-dp"}
    return _tuned(records, group, comparison, epsilon, opponent, schedules, above=-within)


def gains_from_more_layers(
    records: PaperRecords,
    *,
    group: Group,
    method: Literal["no-dp", "dp-sgd"],
    epsilon: Positive | None = None,
    above: float = -math.inf,
    below: float = math.inf,
) -> Evidence:
    """Accuracy with the most trained parameters less that with the fewest.

    Lies between `above` and `below`. epsilon: None for `no-dp`.
    """
    comparisons = []
    for record in records.group(group):
        arms = _arms(record, method=method, epsilon=epsilon)
        if len(arms) < 2:
            raise NotRun(f"{record.id} trains one choice of layers; the claim needs two")
        arms = sorted(arms, key=lambda arm: arm.trained_parameters)
        label = f"{method}, {arms[-1].unfreeze} trained, less {arms[0].unfreeze} alone"
        comparisons.append(_difference(record, arms[-1], arms[0], label, above=above, below=below))
    return Evidence([comparisons])


def beats_after_long_training(
    records: PaperRecords, *, group: Group, epsilon: Positive, above: float
) -> Evidence:
    """Accuracy of repaired full-batch DP-SGLD less that of DP-SGD exceeds `above`.

    Both are taken after the largest number of steps of every record, and guarantee `epsilon`.
    """
    comparisons = []
    for record in records.group(group):
        steps = max(arm.steps for arm in record.metrics.rows)
        keys = {"comparison": "guaranteed", "epsilon": epsilon, "steps": steps}
        repaired, opponent = (
            _arm(record, method=method, **keys) for method in ("repaired-full", "dp-sgd")
        )
        label = f"repaired DP-SGLD less DP-SGD after {steps} steps"
        comparisons.append(_difference(record, repaired, opponent, label, above=above))
    return Evidence([comparisons])


def stays_below_its_bounds(
    records: PaperRecords, *, group: Group, schedule: Schedule, below: Positive
) -> Evidence:
    """Measured excess risk over the printed bounds of a schedule, each below `below`.

    The lemma at the last step that was run, and each theorem at the first shown step from its own
    number of steps on, which it bounds too, since its lemma falls; none where that lies beyond.
    """
    comparisons = []
    for record in records.group(group):
        for row in record.metrics.rows:
            if row.schedule != schedule:
                continue
            last = len(row.shown_steps) - 1
            bounds = [(row.lemma.name, last, row.lemma.paper[last])]
            for theorem in row.theorems:
                at = bisect_left(row.shown_steps, theorem.K)
                if at <= last:
                    bounds.append((theorem.name, at, theorem.paper))
            for name, at, bound in bounds:
                shares = [run[at] / bound for run in row.excess_risk_runs]
                label = f"excess risk over {name}, step {row.shown_steps[at]}, "
                label += f"epsilon {row.epsilon:g}, in {record.id}"
                comparisons.append(Comparison(label, mean_estimate(shares), below=below))
    if not comparisons:
        raise NotRun(f"group {group} has no {schedule} steps")
    return Evidence([comparisons])


OVER_RUNS = (
    at_least_as_accurate,
    more_accurate_on_some_set,
    near_no_dp,
    lead_grows_with_n,
    gains_without_regulariser,
    tuned_beats,
    tuned_near_no_dp,
    gains_from_more_layers,
    beats_after_long_training,
    stays_below_its_bounds,
)
TESTS: dict[str, Callable[..., Evidence]] = {
    **{test.__name__: test for test in OVER_RUNS},
    **claims_exact.TESTS,
}


def _opponents(record: Compared, reading: str, schedule: str) -> tuple[ArmRow, ArmRow]:
    """DP-SGLD, and DP-SGD with the same L2 term, in a `protocol` record."""
    steps = {"reading": reading, "schedule": schedule}
    return _arm(record, method="dp-sgld", **steps), _arm(record, method="dp-sgd", **steps)


def _leads(
    records: PaperRecords, group: str, reading: str, schedule: str, n: int, *, above: float
) -> list[Comparison]:
    """Accuracy of DP-SGLD less that of DP-SGD, on every set of at least n records."""
    label = f"DP-SGLD less DP-SGD ({schedule} steps, {reading})"
    return [
        _difference(record, *_opponents(record, reading, schedule), label, above=above)
        for record in _of_size(records, group, n)
    ]


def _tuned(
    records: PaperRecords,
    group: str,
    comparison: str,
    epsilon: float,
    opponent: Mapping[str, Any],
    schedules: Sequence[str],
    *,
    above: float,
) -> Evidence:
    """Accuracy of tuned DP-SGLD less that of the arm with the keys `opponent` exceeds `above`.

    In every record, for each of these schedules of Langevin steps.
    """
    name = {"dp-sgd": "DP-SGD", "no-dp": "No DP"}[opponent["method"]]
    comparisons = [
        _difference(
            record,
            _langevin(record, schedule, comparison, epsilon),
            _arm(record, **opponent),
            f"DP-SGLD ({schedule} steps) less {name}",
            above=above,
        )
        for schedule in schedules
        for record in _with_schedule(records, group, schedule)
    ]
    return Evidence([comparisons])


def _of_size(records: PaperRecords, group: str, n: int) -> list[Compared]:
    """Records of the group with at least n training records; NotRun if there is none."""
    large = [record for record in records.group(group) if record.metrics.n_train >= n]
    if not large:
        raise NotRun(f"group {group} has no set of {n} records")
    return large


def _with_schedule(records: PaperRecords, group: str, schedule: str) -> list[Compared]:
    """Records of the group that have arms of this schedule; NotRun if there is none."""
    matching = [
        record for record in records.group(group) if record.spec.schedule in (schedule, "both")
    ]
    if not matching:
        raise NotRun(f"group {group} has no {schedule} steps")
    return matching


def _langevin(record: Compared, schedule: str, comparison: str, epsilon: float) -> ArmRow:
    """The row of DP-SGLD on random batches."""
    keys = {"schedule": schedule, "comparison": comparison, "epsilon": epsilon}
    return _arm(record, method="dp-sgld", **keys)


def _arm(record: Record[Any, Any], **keys: Any) -> ArmRow:
    """The first row of a record that agrees with `keys`; NotRun if there is none."""
    return _arms(record, **keys)[0]


def _arms(record: Record[Any, Any], **keys: Any) -> Sequence[Any]:
    """Rows of a record that agree with `keys`; NotRun if there is none."""
    arms = [
        arm
        for arm in record.metrics.rows
        if all(getattr(arm, name) == value for name, value in keys.items())
    ]
    if not arms:
        description = ", ".join(f"{name} {value}" for name, value in keys.items())
        raise NotRun(f"{record.id} has no row with {description}")
    return arms


def _difference(
    record: Record[Any, Any],
    first: ArmRow,
    second: ArmRow,
    label: str,
    *,
    above: float = -math.inf,
    below: float = math.inf,
) -> Comparison:
    estimate = difference_estimate(first.accuracy, second.accuracy, paired=True)
    return Comparison(f"accuracy of {label} in {record.id}", estimate, above, below)
