"""lp_fft: the comparisons behind each claim on training, from the paper's records.

Accuracies are shares of the test records. Intervals are over runs, each with its own random head,
batches and noise; backbone, data split and tuned learning rates are those of the record. Run i
starts from the same head for every strategy and noise, so all differences are taken run by run.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from dpatlas.core.statistics import Comparison, difference_estimate, mean_estimate
from dpatlas.errors import InputError
from dpatlas.evidence.arguments import Group, Positive, Share, Some
from dpatlas.evidence.comparisons import Evidence, NotRun, PaperRecords
from dpatlas.papers.lp_fft import claims_exact
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
# Share of the steps that counts as early.
Early = Annotated[float, Field(gt=0, lt=1)]
FFT, LP_FFT = "fft", "lp-fft"
# Share of the steps that train the head alone, by strategy of one phase.
SHARE_OF = {"lp": 1.0, FFT: 0.0, "lora": 0.0}
# Strategies at the ends of a curve over the share of LP.
ENDS = {0.0: FFT, 1.0: "lp"}


@dataclass(frozen=True)
class Quality:
    """kNN accuracies (runs, steps) of a strategy's features at `steps` of training."""

    name: str
    steps: Sequence[int]
    accuracy: np.ndarray

    def early(self, share: float) -> list[int]:
        """Indices of the steps between the start and `share` of the last step."""
        steps = self.steps
        early = [number for number, step in enumerate(steps[:-1]) if 0 < step <= share * steps[-1]]
        if not early:
            raise NotRun(f"{self.name}: no step within the share {share:g} of all")
        return early

    def difference(self, first: int, second: int, above: float) -> Comparison:
        """Accuracy at one number of `steps` less that at another, by their indices."""
        label = f"kNN accuracy at step {self.steps[first]} less step {self.steps[second]}"
        values = (self.accuracy[:, number] for number in (first, second))
        estimate = difference_estimate(*values, paired=True)
        return Comparison(f"{label}, {self.name}", estimate, above=above)

    def lower(self, early: float, above: float, than: Sequence[int]) -> Evidence:
        """Accuracy at some early step is lower by more than `above` than at the steps `than`.

        than: indices of `steps`. Every early step is an alternative of its own. (The depth of the
        lowest point would not do: every run has one, so it would show a dip where there is none.)
        """
        return Evidence(
            [[self.difference(other, step, above) for other in than] for step in self.early(early)]
        )

    def dip(self, until: int) -> np.ndarray:
        """Accuracy at the start less the lowest up to the step `until`, (runs,)."""
        accuracy = self.accuracy[:, np.array(self.steps) <= until]
        return accuracy[:, 0] - accuracy.min(1)


def beats(
    records: PaperRecords,
    *,
    group: Group,
    scenario: Scenario,
    noise: Noise,
    strategy: Strategy,
    opponents: Some[Strategy],
    above: float,
    share: Share | None = None,
) -> Evidence:
    """Accuracy of `strategy` less that of each of `opponents` exceeds `above`.

    share: of the steps in the first phase, for every strategy of two phases.
    """
    record = _strategies_at(records, group, scenario, noise)
    first = _row(record, strategy, share)
    comparisons = []
    for opponent in opponents:
        second = _row(record, opponent, share)
        estimate = difference_estimate(first.accuracy, second.accuracy, paired=True)
        label = f"accuracy of {_name(first)} less {_name(second)} in {record.id}"
        comparisons.append(Comparison(label, estimate, above=above))
    return Evidence([comparisons])


def is_concave(
    records: PaperRecords,
    *,
    group: Group,
    scenario: Scenario,
    noise: Noise,
    shares: Annotated[Some[Share], Field(min_length=3)],
    below: float,
) -> Evidence:
    """The slope of accuracy over the LP share changes by less than `below` at each inner share.

    Shares 0 and 1 are FFT and LP; a slope joins neighbouring shares.
    """
    record = _strategies_at(records, group, scenario, noise)
    shares = sorted(shares)
    rows = [_row(record, ENDS.get(share, LP_FFT), share) for share in shares]
    slopes = np.diff(_accuracies(rows), axis=0) / np.diff(shares)[:, None]
    comparisons = [
        Comparison(
            f"change of the slope of accuracy at LP share {share:g} in {record.id}",
            mean_estimate(change),
            below=below,
        )
        for share, change in zip(shares[1:-1], np.diff(slopes, axis=0), strict=True)
    ]
    return Evidence([comparisons])


def grows_with_epsilon(
    records: PaperRecords,
    *,
    group: Group,
    scenario: Scenario,
    noises: Annotated[Some[Positive], Field(min_length=2)],
    strategies: Some[Strategy],
    share: Share,
    tolerance: Positive,
) -> Evidence:
    """Accuracy of every strategy grows with the guaranteed epsilon.

    Trend: its least-squares slope per doubling of epsilon is above 0. Monotonicity, as a veto:
    between no two neighbouring levels does it surely fall by more than `tolerance`.
    """
    levels = [
        _strategies_at(records, group, scenario, noise) for noise in sorted(noises, reverse=True)
    ]
    comparisons = []
    for strategy in strategies:
        rows = [_row(record, strategy, share) for record in levels]
        accuracies = _accuracies(rows)
        name = f"accuracy of {_name(rows[0])}, {scenario}"
        slope = mean_estimate(np.polyfit(_doublings(rows), accuracies, 1)[0])
        comparisons.append(Comparison(f"slope per doubling of epsilon, {name}", slope, above=0))
        for (less, lower), (more, higher) in itertools.pairwise(zip(rows, accuracies, strict=True)):
            ends = f"noise {more.noise_multiplier:g} less noise {less.noise_multiplier:g}"
            rise = difference_estimate(higher, lower, paired=True)
            comparisons.append(Comparison(f"{name}, {ends}", rise, above=-tolerance, veto=True))
    return Evidence([comparisons])


def dips(
    records: PaperRecords,
    *,
    group: Group,
    noise: Noise,
    head_scale: Positive,
    lr: Positive,
    task: Task,
    early: Early,
    above: float,
) -> Evidence:
    """kNN accuracy of FFT at some early step is lower than at the start by more than `above`.

    early: share of the steps.
    """
    return _fft(records, group, noise, head_scale, lr, task).lower(early, above, than=(0,))


def recovers(
    records: PaperRecords,
    *,
    group: Group,
    noise: Noise,
    head_scale: Positive,
    lr: Positive,
    task: Task,
    early: Early,
    above: float,
) -> Evidence:
    """kNN accuracy of FFT at some early step is lower by more than `above` than at both ends."""
    return _fft(records, group, noise, head_scale, lr, task).lower(early, above, than=(0, -1))


def reduces_dip(
    records: PaperRecords,
    *,
    group: Group,
    noise: Noise,
    head_scale: Positive,
    lr: Positive,
    task: Task,
    above: float,
) -> Evidence:
    """The dip of FFT is deeper than that of LP-FFT by more than `above`.

    The dip of a run is its kNN accuracy at the start less its lowest. FFT counts for as many steps
    as LP-FFT trains all weights: the lowest of more values would be lower by chance alone.
    """
    record = _features_at(records, group, noise, head_scale, lr)
    fft, lp_fft = (_quality(record, head_scale, lr, task, name) for name in (FFT, LP_FFT))
    tuned = fft.steps[-1] - record.spec.lp_steps
    depths = fft.dip(until=tuned), lp_fft.dip(until=lp_fft.steps[-1])
    label = f"dip of {fft.name} less that of {LP_FFT}"
    estimate = difference_estimate(*depths, paired=True)
    return Evidence([[Comparison(label, estimate, above=above)]])


TRAINING = (beats, is_concave, grows_with_epsilon, dips, recovers, reduces_dip)
TESTS: dict[str, Callable[..., Evidence]] = {
    **{test.__name__: test for test in TRAINING},
    **claims_exact.TESTS,
}


def _strategies_at(records: PaperRecords, group: str, scenario: str, noise: float) -> Trained:
    in_scenario = [record for record in records.group(group) if record.spec.scenario == scenario]
    if not in_scenario:
        raise NotRun(f"group {group} has no scenario {scenario}")
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


def _quality(record: Followed, head_scale: float, lr: float, task: Task, strategy: str) -> Quality:
    condition = (head_scale, lr, strategy)
    rows = [
        row for row in record.metrics.rows if (row.head_scale, row.lr, row.strategy) == condition
    ]
    setting = f"head scale {head_scale:g}, rate {lr:g}"
    row = _only(rows, record.id, f"{strategy} at {setting}")
    name = f"{strategy} on the {task} task, {setting}, in {record.id}"
    return Quality(name, row.steps, np.array(row.quality(task), float))


def _fft(
    records: PaperRecords, group: str, noise: float, head_scale: float, lr: float, task: Task
) -> Quality:
    """Quality of FFT's features at this noise, head scale and learning rate."""
    return _quality(_features_at(records, group, noise, head_scale, lr), head_scale, lr, task, FFT)


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


def _doublings(rows: Sequence[strategies.Row]) -> np.ndarray:
    """log2 of the guaranteed epsilons (rows,)."""
    epsilons = []
    for row in rows:
        if row.epsilon is None:
            noise = f"{row.noise_multiplier:g}, which guarantees no epsilon"
            raise InputError("noises", noise, "numbers > 0")
        epsilons.append(row.epsilon)
    return np.log2(epsilons)
