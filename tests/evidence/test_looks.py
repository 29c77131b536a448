"""Verdicts at planned looks: what holds, what fails and why, what stands, and what more runs do."""

import math
from pathlib import Path

import numpy as np
import pytest

from dpatlas_workflow.evidence.comparisons import Evidence, Undecided
from dpatlas_workflow.evidence.looks import (
    AT_MOST,
    CLAIMED_SIDE,
    LOOKS,
    OUTSIDE,
    SEEN,
    Intervals,
    decide,
    decide_once,
    only_vetoes,
    runs_to_decide,
    with_margin,
)
from dpatlas_workflow.statistics import (
    FAILS,
    HOLDS,
    OPEN,
    Comparison,
    Estimate,
    difference_estimate,
    mean_estimate,
)

PROJECT = Path(__file__).resolve().parents[2]
ERROR = 0.05 / len(LOOKS) / 10


def runs_around(mean, spread, runs=96, seed=1):
    """Runs of exactly this mean and spread over the first of each look."""
    draws = np.random.default_rng(seed).normal(size=runs)
    blocks = np.split(draws, [look for look in LOOKS if look < runs])
    parts = [(block - block.mean()) / block.std(ddof=1) for block in blocks]
    return mean + spread * np.concatenate(parts)


def comparison(values, **limits):
    return Comparison("effect", mean_estimate(values), **limits)


def looking(values, margin=0.0, **limits):
    """The decision on the mean of `values`, looked at as they become more."""

    def at(look):
        return with_margin(Evidence([[comparison(values[:look], **limits)]]), margin)

    return decide(at, ERROR)


def point(value, error=1e-6, df=11.0, runs=12, **limits):
    return Comparison("effect", Estimate(value, error, df, runs), **limits)


def always(*alternatives, margin=0.0, error=ERROR):
    """The decision on comparisons that are the same at every look."""
    return decide(lambda look: with_margin(Evidence([*alternatives]), margin), error)


def needed(*alternatives, after=12):
    return runs_to_decide(Evidence([*alternatives]), ERROR, after)


@pytest.mark.parametrize(
    ("value", "answer", "because"),
    [
        (2.0, HOLDS, ""),
        (0.5, HOLDS, "estimated effect 0.5 is below the margin 1, as its interval shows"),
        (0.0, FAILS, AT_MOST),
        (-0.5, FAILS, SEEN),
    ],
)
def test_an_effect_is_compared_with_zero_and_with_the_margin(value, answer, because):
    for effect in (point(value, above=0.0), point(-value, below=0.0)):
        found = always([effect], margin=1.0)
        assert (found.answer, found.because) == (answer, because)


@pytest.mark.parametrize(
    ("mean", "margin", "answer", "because", "failure"),
    [
        # Between zero and beyond the margin it is open.
        (0.6, 1.0, OPEN, "", ""),
        (-0.6, 0.0, OPEN, "", ""),
        # Below the margin it is refuted.
        (-0.6, 1.0, FAILS, AT_MOST, "smaller"),
        (-0.6, 2.0, FAILS, AT_MOST, "smaller"),
        (0.1, 2.0, FAILS, CLAIMED_SIDE, "smaller"),
        (-6.0, 2.0, FAILS, SEEN, "opposite"),
        (1.5, 2.0, HOLDS, "estimated effect 1.5 is below the margin 2", ""),
    ],
)
def test_where_an_interval_lies_decides(mean, margin, answer, because, failure):
    found = looking(runs_around(mean, spread=1.0, runs=12), margin=margin, above=0.0)
    assert (found.answer, found.because, found.failure) == (answer, because, failure)


def test_two_sided_ranges_and_vetoes_have_no_margin():
    inside = {"above": -1.0, "below": 1.0}
    assert always([point(0.9, **inside)], margin=5.0).answer == HOLDS
    assert always([point(1.1, **inside)], margin=5.0).because == OUTSIDE
    assert always([point(0.5, above=0.0, veto=True)], margin=5.0).answer == HOLDS


def test_fewer_runs_than_the_first_look_decide_nothing_and_are_shown():
    few = LOOKS[0] - 1
    found = looking(runs_around(100.0, 1.0, runs=few), above=0.0)
    assert (found.answer, found.look) == (OPEN, 0)
    assert found.decisive.comparison.estimate.value == pytest.approx(100.0)
    assert looking(runs_around(100.0, 1.0, runs=LOOKS[0]), above=0.0).answer == HOLDS
    # Of several comparisons the one with the fewest runs counts.
    values = runs_around(100.0, 1.0, runs=24)
    assert always([comparison(values, above=0.0), comparison(values[:few], above=0.0)]).look == 0


def test_the_first_verdict_stands_whatever_later_runs_say():
    values = np.concatenate([runs_around(5.0, 1.0, runs=12), np.full(84, -50.0)])
    found = looking(values, above=0.0)
    assert (found.answer, found.look) == (HOLDS, LOOKS[0])


def test_runs_between_two_looks_wait_for_the_next_one():
    for runs, look in ((23, 12), (24, 24), (95, 48)):
        assert looking(runs_around(0.0, 1.0, runs=runs), above=0.0).look == look


def test_intervals_of_looks_are_intersected():
    values = runs_around(0.3, 1.0)
    expected = [mean_estimate(values[:look]).interval(1 - ERROR) for look in LOOKS]
    # A veto alone decides at no look.
    found = looking(values, above=-10.0, veto=True)
    assert found.look == 96
    assert found.decisive.low == max(low for low, _ in expected)
    assert found.decisive.high == min(high for _, high in expected)


def test_intervals_of_different_quantities_are_not_intersected():
    intervals = Intervals()
    first = [[point(1.0, error=1e-3, above=0.0)]]
    other = [[Comparison("another effect", Estimate(5.0, 1e-3, 11.0, 12), above=0.0)]]
    intervals.judge(first, 0.95)
    ((judged,),) = intervals.judge(other, 0.95)
    assert judged.low < 5.0 < judged.high
    # The same quantity far from where it was seen: both intervals cannot be right.
    for each in ([[point(5.0, error=1e-3, above=0.0)]], first):
        ((judged,),) = intervals.judge(each, 0.95)
        assert (judged.low, judged.high) == (-math.inf, math.inf)


def test_looks_that_exclude_each_other_leave_an_entry_open_and_say_so():
    values = np.concatenate([runs_around(-1.0, 1.0, runs=12), runs_around(30.0, 0.1, runs=84)])
    found = looking(values, above=-2.0, below=2.0)
    assert found.answer == OPEN and "exclude each other" in found.without_interval


def test_equal_runs_decide_nothing_and_an_exact_number_does():
    for value in (3.0, -3.0):
        found = looking(np.full(96, value), above=0.0)
        assert found.answer == OPEN and "equal" in found.without_interval
    assert looking(np.full(5, 3.0), above=0.0).decisive.low == -math.inf
    assert looking(runs_around(0.0, 1.0), above=0.0).without_interval == ""
    exact = point(3.0, error=0.0, df=math.inf, runs=1, above=0.0)
    assert always([exact, point(1.0, above=0.0)]).answer == HOLDS
    equal = Evidence([[comparison([3.0] * 12, above=0.0)]])
    assert decide_once(equal, ERROR).answer == HOLDS


@pytest.mark.parametrize(("differing", "answer"), [(5, OPEN), (6, HOLDS)])
def test_runs_most_of_which_are_equal_decide_nothing(differing, answer):
    values = np.full(12, 3.0)
    values[12 - differing :] += np.linspace(0.1, 0.2, differing)
    found = looking(values, above=0.0)
    assert found.answer == answer
    assert bool(found.without_interval) == (answer == OPEN)
    # As differences of two arms, which round.
    first = np.linspace(0.1, 0.9, 12)
    lead = Comparison("lead", difference_estimate(values + first, first, paired=True), above=0.0)
    assert always([lead]).answer == answer
    assert (needed([lead]) is None) == (answer == OPEN)


@pytest.mark.parametrize(
    ("once", "noise", "answer"), [(5.0, 0.0, OPEN), (5.1, 0.0, OPEN), (5.1, 0.5, HOLDS)]
)
def test_of_two_arms_the_one_with_the_larger_error_must_differ(once, noise, answer):
    first, second = np.full(12, 5.0), np.full(12, 1.0) + np.linspace(0, noise, 12)
    first[0] = once
    estimate = difference_estimate(first, second, paired=False)
    assert always([Comparison("lead", estimate, above=0.0)]).answer == answer


def test_to_refute_one_of_several_the_error_is_shared_and_to_hold_all_it_is_not():
    values = runs_around(0.0, 1.0, runs=12)
    far = point(50.0, above=0.0)
    error = 0.01

    def decision(mean, others):
        return always([comparison(values + mean, above=0.0), *[far] * others], error=error)

    half = mean_estimate(values).interval(1 - error)[1]
    shared = mean_estimate(values).interval(1 - error / 6)[1]
    between = (half + shared) / 2
    assert decision(-between, 0).answer == FAILS
    refuted_alone = decision(-between, 5)
    assert refuted_alone.answer == OPEN
    # What is shown is an interval by which it is open.
    assert refuted_alone.decisive.low < 0 < refuted_alone.decisive.high
    assert decision(-1.01 * shared, 5).answer == FAILS
    assert decision(between, 5).answer == HOLDS
    # Of alternatives, any of which would do, the error is shared to hold.
    alone, others = [comparison(values + between, above=0.0)], [[point(-50.0, above=0.0)]] * 5
    assert always(alone, *others, error=error).answer == OPEN
    assert always(alone, error=error).answer == HOLDS


def test_each_comparison_holds_or_fails_by_the_interval_that_counts_for_that():
    values = runs_around(0.0, 1.0, runs=12)
    error = 0.01
    alone, shared = (mean_estimate(values).interval(1 - each)[1] for each in (error, error / 2))
    between = (alone + shared) / 2
    # Two alternatives: each interval that can reproduce has half the error, and contains 0.
    several = [comparison(values + between, above=0.0)], [point(-1.0, above=0.0)]
    decision = always(*several, margin=10.0, error=error)
    assert decision.answer == FAILS
    (close, *flags), (clear, *others) = decision.closest(2)
    assert close.low > 0 > clear.high and flags == others == [False, True]


def test_vetoes_alone_are_looked_at_again_and_may_still_refute():
    values = runs_around(-1.5, 1.0)
    first, found = (looking(values[:runs], above=-1.0, veto=True) for runs in (12, 96))
    assert first.answer == HOLDS and only_vetoes(first.evidence, first.answer)
    assert first.decisive.low < -1.0 < first.decisive.high
    assert (found.answer, found.because) == (FAILS, SEEN)
    assert not only_vetoes(found.evidence, found.answer)


def test_a_sure_fall_is_the_opposite_though_the_slope_is_closer_to_its_margin():
    slope = Comparison("slope", Estimate(0.0, 1e-6, 11.0, 12), above=0.0)
    fall = point(-0.06, above=-0.05, veto=True)
    found = always([slope, fall], margin=0.05)
    assert (found.failure, found.because, found.decisive.comparison) == ("opposite", SEEN, fall)


def test_what_can_only_show_never_refutes():
    for value, answer in ((-5.0, OPEN), (5.0, HOLDS)):
        assert always([point(value, above=0.0, shows_only=True)]).answer == answer


def test_a_run_that_diverges_after_a_verdict_does_not_undo_it():
    values = runs_around(5.0, 1.0, runs=12)

    def at(look):
        if look > 12:
            raise Undecided("a run diverged")
        return Evidence([[comparison(values, above=0.0)]])

    assert decide(at, ERROR).answer == HOLDS
    values = values - 5
    with pytest.raises(Undecided):
        decide(at, ERROR)


@pytest.mark.parametrize(("effect", "margin"), [(0.8, 0.0), (0.25, 0.0), (0.0, 0.5), (-0.4, 0.0)])
def test_so_many_runs_decide_four_times_in_five(effect, margin):
    estimate = point(effect, error=1 / math.sqrt(12), above=0.0)
    seen = with_margin(Evidence([[estimate]]), margin)
    runs = runs_to_decide(seen, ERROR, 12)
    assert runs in LOOKS or runs > LOOKS[-1]
    draws = np.random.default_rng(5).normal(effect, 1.0, (4000, runs))
    error = draws.std(1, ddof=1) / math.sqrt(runs)
    half = error * (mean_estimate(draws[0]).interval(1 - ERROR)[1] - draws[0].mean()) / error[0]
    decided = ((draws.mean(1) > half) | (draws.mean(1) + half < margin)).mean()
    # A look is the first of the planned numbers that suffices: it may do more.
    assert decided > 0.78 if runs in LOOKS else decided == pytest.approx(0.8, abs=0.02)
    if runs in LOOKS[1:]:
        fewer = LOOKS[LOOKS.index(runs) - 1]
        scaled = Estimate(effect, 1 / math.sqrt(fewer), fewer - 1.0, fewer)
        assert fewer == 12 or abs(effect) + margin < scaled.detectable(1 - ERROR)


def test_no_number_of_runs_decides_what_lies_on_its_limit_or_has_no_spread():
    assert needed([point(1.0, error=0.1, above=-1.0, below=1.0)]) is None
    assert needed([comparison([1.0] * 12, above=0.0)]) is None
    assert needed([comparison([1.0], above=0.0)], after=0) is None
    # What can only show is not decided by failing.
    assert needed([point(-5.0, error=0.1, above=0.0, shows_only=True)]) is None
    between = with_margin(Evidence([[point(0.5, error=0.4, above=0.0)]]), 1.0)
    assert runs_to_decide(between, ERROR, 12) > 12


def test_runs_to_decide_count_all_comparisons_to_hold_and_the_clearest_to_fail():
    near, far = point(0.3, error=0.2, above=0.0), point(3.0, error=0.2, above=0.0)
    alone = [needed([each], after=0) for each in (near, far)]
    assert needed([near, far], after=0) == alone[0] > alone[1]
    against = Comparison("against", Estimate(-3.0, 0.2, 11.0, 12), above=0.0)
    assert needed([near, against], after=0) == LOOKS[0]
    assert needed([near], [far], after=0) == LOOKS[0]
    # To fail, every alternative has to; a veto need not be shown.
    assert needed([against], [point(0.0, error=0.2, above=0.0)], after=0) is None
    veto = point(0.0, error=0.2, above=0.1, veto=True)
    assert needed([near, veto], after=0) == alone[0]
    # Where scipy has no value of the noncentral law.
    assert Estimate(0.0, 1.0, 47.0, 48).power(0.99999, 40.0) == 1.0


def test_draws_without_number_and_unpaired_runs_have_looks_as_well():
    assert always([point(1.0, error=0.01, df=math.inf, runs=2000, above=0.0)]).answer == HOLDS
    values = runs_around(0.0, 1.0)

    def at(look):
        estimate = difference_estimate(values[:look] + 0.9, values[::-1][:look], paired=False)
        return Evidence([[Comparison("difference", estimate, above=0.0)]])

    found = decide(at, ERROR)
    assert found.answer == HOLDS and found.look > 12


def test_a_look_costs_what_the_documentation_says():
    entries, runs = 20, 24
    values = runs_around(0.0, 1.0, runs=runs)
    veto = comparison(values, above=-9.0, below=9.0, veto=True)
    found = always([veto], error=0.05 / len(LOOKS) / entries)
    half = found.decisive.high - values.mean()
    alone = mean_estimate(values).interval(1 - 0.05 / entries)[1] - values.mean()
    quantiles = [scale * math.sqrt(runs) / values.std(ddof=1) for scale in (half, alone)]
    text = (PROJECT / "docs" / "verdicts.md").read_text()
    said = f"of {half / alone:.2f} (quantile {quantiles[0]:.2f} in place of {quantiles[1]:.2f})"
    assert said in " ".join(text.split())
