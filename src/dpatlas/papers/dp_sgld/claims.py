"""dp_sgld: the comparisons behind each claim on accuracy, from the paper's records.

Accuracies are shares of the test records. Intervals are over runs, each with batches and noise of
its own; all runs of a record share the split of the data and the settings that were chosen on the
validation records. Regressions share no random numbers. Fine-tunings with the same run number start
from the same head and are compared in pairs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from dpatlas.core.statistics import Comparison, difference_estimate
from dpatlas.evidence.arguments import Group, Positive
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords
from dpatlas.papers.dp_sgld import claims_exact
from dpatlas.papers.dp_sgld.formulas.theorems import SCHEDULES
from dpatlas.papers.dp_sgld.records import Schedule
from dpatlas.papers.dp_sgld.records.accuracy import Metrics, Spec
from dpatlas.papers.dp_sgld.records.regression import Comparison as Calibration
from dpatlas.papers.dp_sgld.records.trained import ArmRow
from dpatlas.records import Record

Compared = Record[Spec, Metrics]
# The comparison of the DP-SGD row that DP-SGLD is compared with. One row accounts for add_remove,
# whichever way DP-SGLD counts K.
DP_SGD_UNDER = {"published": "published", "theorem": "published", "guaranteed": "guaranteed"}


def beats(
    records: PaperRecords,
    *,
    group: Group,
    schedule: Schedule,
    comparison: Calibration,
    epsilon: Positive,
    above: float,
) -> Evidence:
    """Accuracy of DP-SGLD less that of DP-SGD exceeds `above` in every record of the schedule."""
    opponent = {"method": "dp-sgd", "comparison": DP_SGD_UNDER[comparison], "epsilon": epsilon}
    comparisons = [
        _difference(
            record,
            _langevin(record, schedule, comparison, epsilon),
            _arm(record, **opponent),
            f"DP-SGLD ({schedule} steps) less DP-SGD",
            above=above,
        )
        for record in _with_schedule(records, group, schedule)
    ]
    return Evidence([comparisons])


def near_no_dp(
    records: PaperRecords,
    *,
    group: Group,
    comparison: Calibration,
    epsilon: Positive,
    within: Positive,
) -> Evidence:
    """Accuracy of DP-SGLD is less than `within` below that without privacy.

    This holds in every record for both schedules of step sizes.
    """
    comparisons = [
        _difference(
            record,
            _langevin(record, schedule, comparison, epsilon),
            _arm(record, method="no-dp"),
            f"DP-SGLD ({schedule} steps) less No DP",
            above=-within,
        )
        for schedule in SCHEDULES
        for record in _with_schedule(records, group, schedule)
    ]
    return Evidence([comparisons])


def gains_from_more_layers(
    records: PaperRecords,
    *,
    group: Group,
    method: Literal["no-dp", "dp-sgd"],
    epsilon: Positive | None = None,
    above: float = -math.inf,
    below: float = math.inf,
) -> Evidence:
    """Accuracy with the most trained parameters less that with the fewest, in pairs of runs.

    Lies between `above` and `below`. epsilon: None for `no-dp`.
    """
    comparisons = []
    for record in records.group(group):
        arms = _arms(record, method=method, epsilon=epsilon)
        if len(arms) < 2:
            raise NotRun(f"{record.id} trains one choice of layers; the claim needs two")
        arms = sorted(arms, key=lambda arm: arm.trained_parameters)
        label = f"{method}, {arms[-1].unfreeze} trained, less {arms[0].unfreeze} alone"
        comparisons.append(
            _difference(record, arms[-1], arms[0], label, paired=True, above=above, below=below)
        )
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


ACCURACY = (beats, near_no_dp, gains_from_more_layers, beats_after_long_training)
TESTS: dict[str, Callable[..., Evidence]] = {
    **{test.__name__: test for test in ACCURACY},
    **claims_exact.TESTS,
}


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
    paired: bool = False,
    above: float = -math.inf,
    below: float = math.inf,
) -> Comparison:
    estimate = difference_estimate(first.accuracy, second.accuracy, paired=paired)
    return Comparison(f"accuracy of {label} in {record.id}", estimate, above, below)
