"""Intervals cover as often as they say, families of them too, and verdicts follow."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_ind

from dpatlas.errors import InputError
from dpatlas_workflow.statistics import (
    FAILS,
    HOLDS,
    OPEN,
    Comparison,
    Estimate,
    Judged,
    difference_estimate,
    judge,
    mean_estimate,
    simultaneous_confidence,
    weigh,
)

EXPERIMENTS = 3_000


def judged(low, high, above=0.0, below=math.inf):
    centre = Estimate((low + high) / 2, 1.0, 4.0, 5)
    return Judged(Comparison(f"[{low}, {high}]", centre, above=above, below=below), low, high)


def test_t_interval_covers_the_mean_of_five_runs_as_often_as_it_says():
    draws = np.random.default_rng(1).normal(3.0, 2.0, (EXPERIMENTS, 5))
    for confidence in (0.9, 0.999):
        intervals = np.array([mean_estimate(runs).interval(confidence) for runs in draws])
        covered = ((intervals[:, 0] < 3) & (intervals[:, 1] > 3)).mean()
        spread = math.sqrt(confidence * (1 - confidence) / EXPERIMENTS)
        assert abs(covered - confidence) < 4 * spread


def test_unpaired_runs_of_unequal_variances_and_counts_have_welch_s_interval():
    generator = np.random.default_rng(3)
    first, second = generator.normal(1, 3, 6), generator.normal(0, 1, 9)
    estimate = difference_estimate(first, second, paired=False)
    expected = ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert estimate.interval(0.95) == pytest.approx((expected.low, expected.high))
    assert estimate.runs == 6


def test_paired_interval_ignores_what_the_runs_of_both_conditions_share():
    shared = np.array([0.0, 10.0, -7.0, 3.0, 5.0])
    own = np.array([0.1, -0.1, 0.05, 0.0, -0.05])
    paired = difference_estimate(shared + 1 + own, shared, paired=True).interval(0.99)
    unpaired = difference_estimate(shared + 1 + own, shared, paired=False).interval(0.99)
    assert 0 < paired[0] < 1 < paired[1] < 2
    assert unpaired[0] < 0


def test_one_run_decides_nothing():
    assert mean_estimate([100.0]).interval(0.5) == (-math.inf, math.inf)
    assert judge(Comparison("", mean_estimate([100.0]), above=0.0), 0.5).answer == OPEN
    assert judge(Comparison("", mean_estimate([-100.0]), below=0.0), 0.5).answer == OPEN
    assert math.isinf(difference_estimate([1.0], [2.0, 3.0], paired=False).standard_error)


def test_error_of_a_family_stays_below_the_promise():
    generator = np.random.default_rng(4)
    level = simultaneous_confidence(0.05, 6, 2)
    assert level == pytest.approx(1 - 0.05 / 12)
    wrong = 0
    for _ in range(800):
        runs = generator.normal(size=(12, 5))
        answers = [judge(Comparison("", mean_estimate(r), above=0.0), level).answer for r in runs]
        wrong += any(answer != OPEN for answer in answers)
    assert wrong / 800 < 0.075


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [
        *((0.1, 0.9, HOLDS), (1.1, 1.3, FAILS), (-0.3, -0.1, FAILS)),
        *((0.5, 1.2, OPEN), (-1, 2, OPEN)),
        # The range is open: what touches its end neither holds nor lies beyond it.
        *((0.0, 0.9, OPEN), (0.1, 1.0, OPEN), (-0.3, 0.0, OPEN)),
    ],
)
def test_two_sided_range_holds_fails_or_stays_open(low, high, answer):
    assert judged(low, high, above=0.0, below=1.0).answer == answer


@pytest.mark.parametrize(
    ("intervals", "answer", "decisive"),
    [
        ([(2, 3), (1, 4)], HOLDS, (1, 4)),
        ([(2, 3), (-1, 1)], OPEN, (-1, 1)),
        ([(-1, 1), (-3, -2)], FAILS, (-3, -2)),
    ],
)
def test_all_comparisons_have_to_hold_and_the_most_critical_one_is_named(
    intervals, answer, decisive
):
    found, by = weigh([[judged(*interval) for interval in intervals]])
    assert (found, by.low, by.high) == (answer, *decisive)


def test_one_alternative_that_holds_is_enough():
    bad, good = [judged(-3, -2), judged(1, 2)], [judged(1, 2), judged(0.5, 4)]
    assert weigh([bad, good])[0] == HOLDS
    assert weigh([bad, bad])[0] == FAILS


def test_open_verdict_names_an_interval_that_holds_both_answers():
    refuted, undecided = [judged(-3, -2), judged(5, 6)], [judged(-9, 1), judged(4, 5)]
    found, by = weigh([refuted, undecided])
    assert found == OPEN
    assert by.low < 0 < by.high
    # Of several such alternatives, of the one that comes closest to holding.
    assert weigh([undecided, refuted, [judged(-2, 3)]])[1].low == -2


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, math.inf], [[1.0, 2.0]]])
def test_estimates_refuse_what_is_no_list_of_finite_runs(values):
    with pytest.raises(InputError, match="runs"):
        mean_estimate(values)
    with pytest.raises(InputError, match="equal numbers"):
        difference_estimate([1.0, 2.0], [1.0], paired=True)
    with pytest.raises(InputError, match="nothing to compare"):
        weigh([[]])


def test_a_veto_refutes_and_need_not_be_shown():
    def answer(values):
        comparison = Comparison("fall", mean_estimate(values), above=-0.1, veto=True)
        return judge(comparison, 0.95).answer

    assert answer([-1.0, -1.01, -0.99]) == FAILS
    assert answer([-1.0, 0.9, 0.1]) == HOLDS
    assert answer([1.0, 1.01, 0.99]) == HOLDS
    trend = Comparison("trend", mean_estimate([0.5, -0.4, 0.1]), above=0)
    veto = Comparison("fall", mean_estimate([-1.0, 0.9, 0.1]), above=-0.1, veto=True)
    assert weigh([[judge(trend, 0.95), judge(veto, 0.95)]])[0] == OPEN


@pytest.mark.parametrize("runs", [3, 20])
def test_the_detectable_distance_is_detected_with_its_power(runs):
    # The law that the distance is made of: a known spread, runs drawn anew.
    confidence, draws = 0.99, 6_000
    spread = 2.0
    estimate = Estimate(0.0, spread / math.sqrt(runs), runs - 1.0, runs)
    distance = estimate.detectable(confidence)
    assert estimate.power(confidence, distance) == pytest.approx(0.8)
    values = np.random.default_rng(1).normal(distance, spread, (draws, runs))
    lows = [mean_estimate(each).interval(confidence)[0] for each in values]
    assert np.mean(np.array(lows) > 0) == pytest.approx(0.8, abs=0.015)


def test_the_detectable_distance_of_many_draws_is_normal_and_of_one_run_infinite():
    many = Estimate(0.0, 0.5, math.inf, 1000)
    assert many.interval(0.95)[1] == pytest.approx(1.959964 * 0.5, rel=1e-5)
    assert many.detectable(0.95) == pytest.approx((1.959964 + 0.841621) * 0.5, rel=1e-5)
    assert mean_estimate([1.0]).detectable(0.95) == math.inf


def test_runs_far_from_the_others_are_counted():
    runs = list(range(24))
    assert mean_estimate(runs).outlying == 0
    assert mean_estimate([*runs, 100, -100]).outlying == 2
    assert mean_estimate([1.0] * 23 + [50.0]).outlying == 0  # their equality is what counts
    ones = [1.0 + 0.01 * value for value in runs]
    assert difference_estimate([*runs, 100], [*ones, 1], paired=True).outlying == 1
    assert difference_estimate([*runs, 100], [*ones, 9], paired=False).outlying == 2
    draws = np.random.default_rng(1).normal(size=(400, 24))
    assert sum(mean_estimate(draw).outlying for draw in draws) <= 4
