"""lp_fft: the comparisons behind each claim on training, from the paper's records.

Accuracies are shares of the test records. Intervals are over runs, each with its own deal of the
records, random head, batches and noise; the backbone and the learning rates are those of the
record. Run i has one deal and one head for all strategies, so differences are taken run by run.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from dpatlas.core.statistics import Comparison, difference_estimate, mean_estimate
from dpatlas.errors import InputError
from dpatlas.evidence.arguments import Group, Positive, Share, Some
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords
from dpatlas.papers.lp_fft import claims_exact
from dpatlas.papers.lp_fft.quality import early_losses
from dpatlas.papers.lp_fft.records import feature_quality, strategies
from dpatlas.papers.lp_fft.records.feature_quality import Task
from dpatlas.papers.lp_fft.records.strategies import Strategy
from dpatlas.records import Record

T = TypeVar("T")
Trained = Record[strategies.Spec, strategies.Metrics]
Followed = Record[feature_quality.Spec, feature_quality.Metrics]
# Name of a scenario in the config.
Scenario = Annotated[str, Field(pattern="^[a-z0-9-]+$")]
# Noise multiplier of DP-SGD; 0 for training without privacy.
Noise = Annotated[float, Field(ge=0)]
# Number of steps of training.
Step = Annotated[int, Field(ge=0)]
FFT, LP_FFT = "fft", "lp-fft"
# Share of the steps that train the head alone, by strategy of one phase.
SHARE_OF = {"lp": 1.0, FFT: 0.0, "lora": 0.0}
# Strategies at the ends of a curve over the share of LP.
ENDS = {0.0: FFT, 1.0: "lp"}


def beats(
    records: PaperRecords,
    *,
    group: Group,
    scenarios: Some[Scenario],
    noise: Noise,
    strategy: Strategy,
    opponents: Some[Strategy],
    above: float,
    share: Share | None = None,
) -> Evidence:
    """Accuracy of `strategy` less that of each of `opponents` exceeds `above`, in every scenario.

    share: of the steps in the first phase, for every strategy of two phases.
    """
    comparisons = []
    for scenario in scenarios:
        record = _strategies_at(records, group, scenario, noise)
        first = _row(record, strategy, share)
        comparisons += [
            _better(record, first, _row(record, opponent, share), above) for opponent in opponents
        ]
    return Evidence([comparisons])


def beats_another_scenario(
    records: PaperRecords,
    *,
    group: Group,
    scenario: Scenario,
    other: Scenario,
    noises: Some[Noise],
    strategy: Strategy,
    opponents: Some[Strategy],
    share: Share,
    above: float,
) -> Evidence:
    """At some noise some of `opponents` in `scenario` is better than `strategy` in `other`.

    Better by more than `above`. Both scenarios have the records and random heads of a run alike.
    share: of the steps in the first phase, for every strategy of two phases.
    """
    alternatives = []
    for noise in noises:
        here, there = (_strategies_at(records, group, name, noise) for name in (scenario, other))
        best = _row(there, strategy, share)
        for opponent in opponents:
            better = _better(here, _row(here, opponent, share), best, above)
            alternatives.append([replace(better, label=f"{better.label}, {other}")])
    return Evidence(alternatives)


def is_concave(
    records: PaperRecords,
    *,
    group: Group,
    scenario: Scenario,
    noise: Noise,
    shares: Annotated[Some[Share], Field(min_length=3)],
    above: float,
) -> Evidence:
    """Accuracy at each inner share exceeds the chord between its neighbours by more than `above`.

    Shares 0 and 1 are FFT and LP.
    """
    record = _strategies_at(records, group, scenario, noise)
    shares = sorted(shares)
    accuracies = _accuracies([_at_share(record, share) for share in shares])
    comparisons = []
    for number in range(1, len(shares) - 1):
        left, share, right = shares[number - 1 : number + 2]
        weight = (share - left) / (right - left)
        chord = (1 - weight) * accuracies[number - 1] + weight * accuracies[number + 1]
        height = mean_estimate(accuracies[number] - chord)
        where = f"LP share {share:g} less the chord of its neighbours in {record.condition}"
        comparisons.append(Comparison(f"accuracy at {where}", height, above=above))
    return Evidence([comparisons])


def has_best_share(
    records: PaperRecords,
    *,
    group: Group,
    scenarios: Some[Scenario],
    noise: Noise,
    share: Share,
    others: Some[Share],
    above: float,
) -> Evidence:
    """Accuracy at one share of LP less that at each of `others` exceeds `above`, everywhere.

    Everywhere: in every scenario. Shares 0 and 1 are FFT and LP.
    """
    comparisons = []
    for scenario in scenarios:
        record = _strategies_at(records, group, scenario, noise)
        best = _at_share(record, share)
        comparisons += [_better(record, best, _at_share(record, other), above) for other in others]
    return Evidence([comparisons])


def grows_with_epsilon(
    records: PaperRecords,
    *,
    group: Group,
    scenarios: Some[Scenario],
    strategies: Some[Strategy],
    share: Share,
    tolerance: Positive,
    above: float,
) -> Evidence:
    """Accuracy of every strategy grows with the guaranteed epsilon, in every scenario.

    Trend over all privacy levels: its least-squares slope per doubling of epsilon exceeds `above`.
    Monotonicity, as a veto: between no two neighbouring levels does it surely fall by more than
    `tolerance`. NotRun for a scenario with fewer than two levels.
    """
    comparisons = []
    for scenario in scenarios:
        for strategy in strategies:
            comparisons += _growth(records, group, scenario, strategy, share, tolerance, above)
    return Evidence([comparisons])


def quality_is_higher(
    records: PaperRecords,
    *,
    group: Group,
    noise: Noise,
    head_scale: Positive,
    lr: Positive,
    task: Task,
    step: Step,
    than: Step,
    above: float,
) -> Evidence:
    """kNN accuracy of FFT's features after `step` steps less that after `than` exceeds `above`."""
    record = _features_at(records, group, noise, head_scale, lr)
    row = _curves(record, head_scale, lr, FFT)
    quality = np.array(row.quality(task), float)
    for number in (step, than):
        if number not in row.steps:
            raise NotRun(f"{record.id} is not evaluated at step {number}")
    first, second = (quality[:, row.steps.index(number)] for number in (step, than))
    estimate = difference_estimate(first, second, paired=True)
    condition = f"{task} task, head scale {head_scale:g}, rate {lr:g}, in {record.condition}"
    label = f"kNN accuracy at step {step} less step {than}, {condition}"
    return Evidence([[Comparison(label, estimate, above=above)]])


def probing_saves_quality(
    records: PaperRecords,
    *,
    group: Group,
    noise: Noise,
    head_scale: Positive,
    lr: Positive,
    task: Task,
    early: Annotated[float, Field(gt=0, lt=1)],
    above: float,
) -> Evidence:
    """FFT's features lose more kNN accuracy in its first steps than LP-FFT's, by over `above`.

    Lost is the accuracy at the start less the mean over the first `early` of all steps of full
    fine-tuning (`early_losses`).
    """
    record = _features_at(records, group, noise, head_scale, lr)
    fft, lp_fft = (_curves(record, head_scale, lr, name) for name in (FFT, LP_FFT))
    losses = early_losses(record.spec, fft, lp_fft, task, early)
    if losses is None:
        raise NotRun(f"{record.id} has no early steps after which both are evaluated")
    condition = f"{task} task, head scale {head_scale:g}, rate {lr:g}, in {record.condition}"
    label = f"accuracy that FFT loses early less what LP-FFT loses, {condition}"
    estimate = difference_estimate(*losses, paired=True)
    return Evidence([[Comparison(label, estimate, above=above)]])


TRAINING = (
    beats,
    beats_another_scenario,
    is_concave,
    has_best_share,
    grows_with_epsilon,
    quality_is_higher,
    probing_saves_quality,
)
TESTS: dict[str, Callable[..., Evidence]] = {
    **{test.__name__: test for test in TRAINING},
    **claims_exact.TESTS,
}
TABLES = claims_exact.TABLES


def _better(
    record: Trained, first: strategies.Row, second: strategies.Row, above: float
) -> Comparison:
    estimate = difference_estimate(first.accuracy, second.accuracy, paired=True)
    label = f"accuracy of {_name(first)} less {_name(second)} in {record.condition}"
    return Comparison(label, estimate, above=above)


def _growth(
    records: PaperRecords,
    group: str,
    scenario: str,
    strategy: str,
    share: float,
    tolerance: float,
    above: float,
) -> list[Comparison]:
    """The trend over privacy levels, and a veto for every two neighbouring ones."""
    rows = [_row(record, strategy, share) for record in _scenario(records, group, scenario)]
    levels = {row.epsilon: row for row in rows if row.epsilon is not None}
    if len(levels) < 2:
        raise NotRun(f"scenario {scenario} of group {group} has fewer than two privacy levels")
    epsilons = sorted(levels)
    rows = [levels[epsilon] for epsilon in epsilons]
    accuracies = _accuracies(rows)
    name = f"accuracy of {_name(rows[0])}, {scenario}"
    slope = mean_estimate(np.polyfit(np.log2(epsilons), accuracies, 1)[0])
    comparisons = [Comparison(f"slope per doubling of epsilon, {name}", slope, above=above)]
    for (less, lower), (more, higher) in itertools.pairwise(zip(rows, accuracies, strict=True)):
        ends = f"noise {more.noise_multiplier:g} less noise {less.noise_multiplier:g}"
        rise = difference_estimate(higher, lower, paired=True)
        comparisons.append(Comparison(f"{name}, {ends}", rise, above=-tolerance, veto=True))
    return comparisons


def _scenario(records: PaperRecords, group: str, scenario: str) -> list[Trained]:
    """The records of a scenario; NotRun if there are none."""
    in_scenario = [record for record in records.group(group) if record.spec.scenario == scenario]
    if not in_scenario:
        raise NotRun(f"group {group} has no scenario {scenario}")
    return in_scenario


def _strategies_at(records: PaperRecords, group: str, scenario: str, noise: float) -> Trained:
    in_scenario = _scenario(records, group, scenario)
    at_level = [record for record in in_scenario if record.spec.level.noise_multiplier == noise]
    return _only(at_level, f"scenario {scenario} of group {group}", f"noise {noise:g}")


def _features_at(
    records: PaperRecords, group: str, noise: float, head_scale: float, lr: float
) -> Followed:
    """The record at this noise that has rows of this head scale and learning rate."""
    at_noise = [record for record in records.group(group) if record.spec.noise_multiplier == noise]
    if not at_noise:
        raise NotRun(f"group {group} has no noise {noise:g}")
    where, what = f"noise {noise:g} of group {group}", f"head scale {head_scale:g}, rate {lr:g}"
    matching = [
        record
        for record in at_noise
        if any((row.head_scale, row.lr) == (head_scale, lr) for row in record.metrics.rows)
    ]
    return _only(matching, where, what)


def _row(record: Trained, strategy: str, share: float | None) -> strategies.Row:
    """The row of a strategy, at `share` if it has two phases."""
    share = SHARE_OF.get(strategy, share)
    if share is None:
        raise InputError(f"share of {strategy}", "none", "one, as it has two phases")
    rows = [row for row in record.metrics.rows if (row.strategy, row.share) == (strategy, share)]
    return _only(rows, record.id, f"{strategy} at share {share:g}")


def _at_share(record: Trained, share: float) -> strategies.Row:
    """The row of FFT, LP-FFT or LP at a share of LP."""
    return _row(record, ENDS.get(share, LP_FFT), share)


def _curves(record: Followed, head_scale: float, lr: float, strategy: str) -> feature_quality.Row:
    """The row of a strategy at this head scale and learning rate."""
    condition = (head_scale, lr, strategy)
    rows = [
        row for row in record.metrics.rows if (row.head_scale, row.lr, row.strategy) == condition
    ]
    return _only(rows, record.id, f"{strategy} at head scale {head_scale:g}, rate {lr:g}")


def _only(matching: Sequence[T], where: str, what: str) -> T:
    """The only element of `matching`; NotRun if there is none, InputError if several."""
    if not matching:
        raise NotRun(f"{where} has no {what}")
    if len(matching) > 1:
        raise InputError(f"{what} in {where}", f"{len(matching)} of them", "one")
    return matching[0]


def _name(row: strategies.Row) -> str:
    one_phase = row.strategy in SHARE_OF
    return row.strategy if one_phase else f"{row.strategy} (share {row.share:g})"


def _accuracies(rows: Sequence[strategies.Row]) -> np.ndarray:
    """Accuracies (rows, runs) over the runs that all rows have; run i has the same head in all."""
    shared = min(len(row.accuracy) for row in rows)
    return np.array([row.accuracy[:shared] for row in rows], float)
