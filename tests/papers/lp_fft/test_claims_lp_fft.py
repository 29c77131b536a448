"""lp_fft's tests of claims on training, where runs are noisy or records lack something.

That every claim holds and fails where it should is a contract test over worlds.py.
"""

import copy
import itertools

import numpy as np
import pytest
from lpfft_world import (
    RUNS,
    STEPS,
    arm_of,
    curves_of,
    groups,
    quality_record,
    record_at,
    runs_of,
    set_arm,
    set_curve,
    strategies_record,
    verdicts,
    with_verdict,
)

from dpatlas.errors import InputError
from dpatlas.evidence.claims import INCONCLUSIVE, NOT_REPRODUCED, NOT_RUN, REPRODUCED
from dpatlas.evidence.comparisons import PaperRecords
from dpatlas.papers.lp_fft import claims

FLAT = np.full(len(STEPS), 0.9)
TRAINING = ("strategies", "lora", "feature_quality")
AT_8 = {"group": "strategies", "scenario": "inverted-t", "noise": 8.0}


def named(*parts):
    """Ids of claims, with those of the claims that they are parts of."""
    return {f"lpfft-{part}" for part in parts} | {f"lpfft-{part.rstrip('abcd')}" for part in parts}


def test_a_gradual_fall_of_accuracy_with_epsilon_is_refuted():
    """No step is larger than the tolerance; the trend is."""
    records = groups()
    for number, noise in enumerate((1.0, 2.0, 4.0, 8.0, 16.0)):
        set_arm(0.8 + 0.008 * number, noise, "lp")(records)
    row = verdicts(records)["lpfft-10"]
    assert row["verdict"] == NOT_REPRODUCED
    assert "slope per doubling of epsilon, accuracy of lp, inverted-t" in row["note"]


@pytest.mark.parametrize(
    ("curve", "refuted"),
    [
        # A dip of half a point is none; one in the second half of training is not early.
        (FLAT - [0, 0, 0.005, 0, 0, 0, 0], ("2a", "2b", "3a")),
        (FLAT - [0, 0, 0, 0, 0.2, 0, 0], ("2a", "2b")),
    ],
)
def test_a_small_or_late_fall_of_feature_quality_is_no_early_dip(curve, refuted):
    records = groups()
    set_curve(curve)(records)
    assert with_verdict(verdicts(records), NOT_REPRODUCED) == named(*refuted)


def blur(row):
    """Add noise of mean zero to the accuracy of every run."""
    row.accuracy[:] = (np.array(row.accuracy) + 0.2 * (-1.0) ** np.arange(RUNS)).tolist()


@pytest.mark.parametrize(
    ("arm", "blurred"),
    [
        ((1.0, "fft"), {"1a", "10"}),
        ((8.0, "lp-fft", 0.5), {"1b", "1d", "4a", "4b"}),
        ((0.0, "fft"), {"5"}),
        ((4.0, "lp-lora", None, "lora"), {"6b"}),
    ],
)
def test_noise_between_runs_leaves_a_claim_on_accuracy_open(arm, blurred):
    records = groups()
    blur(arm_of(records, *arm))
    rows = verdicts(records)
    assert with_verdict(rows, INCONCLUSIVE) >= named(*blurred - {"10"})
    assert with_verdict(rows, INCONCLUSIVE) <= named(*blurred, "10")
    assert with_verdict(rows, NOT_REPRODUCED) == set()


def test_noise_between_steps_leaves_claims_on_features_open():
    records = groups()
    curve = curves_of(records, "fft")
    noise = np.random.default_rng(2).normal(0, 0.3, (RUNS, len(STEPS)))
    curve.private[:] = (np.array(curve.private) + noise).tolist()
    rows = verdicts(records)
    assert with_verdict(rows, INCONCLUSIVE) == named("2a", "2b", "3a")
    assert with_verdict(rows, NOT_REPRODUCED) == set()


def test_a_single_run_leaves_every_claim_on_training_open():
    records = {name: groups()[name] for name in TRAINING}
    for record in itertools.chain(*records.values()):
        for row in record.metrics.rows:
            for runs in (row.accuracy, getattr(row, "private", [])):
                del runs[1:]
    rows = verdicts(records)
    assert with_verdict(rows, INCONCLUSIVE) | with_verdict(rows, NOT_RUN) == set(rows)


def test_what_runs_share_is_subtracted_within_a_record_and_between_noises():
    records = groups()
    shared = np.linspace(-0.3, 0.3, RUNS)
    for record in records["strategies"] + records["lora"]:
        for row in record.metrics.rows:
            row.accuracy[:] = (np.array(row.accuracy) + shared).tolist()
    for row in records["feature_quality"][0].metrics.rows:
        row.private[:] = (np.array(row.private) + shared[:, None]).tolist()
    rows = verdicts(records)
    assert with_verdict(rows, REPRODUCED) == set(rows)


def test_depths_of_dips_are_compared_within_each_run():
    records = groups()
    deeper = np.linspace(0, 0.5, RUNS)[:, None]
    for strategy in ("fft", "lp-fft"):
        curves = curves_of(records, strategy)
        curves.private[:] = (np.array(curves.private) - deeper * [0, 0, 0, 1, 1, 0, 0]).tolist()
    lower = np.array(curves.private) - [0, 0, 0, 0.1, 0.1, 0, 0]
    curves_of(records, "fft").private[:] = lower.tolist()
    row = verdicts(records)["lpfft-3a"]
    assert row["verdict"] == REPRODUCED and row["observed"] == pytest.approx(0.1)


def test_one_early_step_makes_a_dip_up_to_the_share_that_counts_as_early():
    records = groups()
    set_curve(FLAT - [0, 0, 0, 0.2, 0, 0, 0])(records)
    rows = verdicts(records)
    for part, alternatives in (("a", 3), ("b", 6)):
        row = rows[f"lpfft-2{part}"]
        assert row["verdict"] == REPRODUCED and row["comparisons"] == alternatives
        assert "step 30" in row["note"] and row["observed"] == pytest.approx(0.2, abs=1e-3)


def test_a_level_that_may_fall_by_chance_does_not_stop_a_sure_trend():
    records = groups()
    blur(arm_of(records, 4.0, "lp"))
    assert verdicts(records)["lpfft-10"]["verdict"] == REPRODUCED


def test_the_lowest_point_that_every_run_has_is_no_dip():
    records = groups()
    curve = runs_of(FLAT, 5, spread=0.05)
    curves_of(records, "fft").private[:] = curve
    assert (np.array(curve)[:, 0] - np.min(curve, 1)).min() > 0
    assert {verdicts(records)[f"lpfft-2{part}"]["verdict"] for part in "ab"} == {INCONCLUSIVE}


def test_the_dip_of_fft_counts_over_as_many_steps_as_lp_fft_trains_everything():
    records = groups()
    set_curve((0.98, 0.97, 0.97, 0.97, 0.97, 0.97, 0.5))(records)
    row = verdicts(records)["lpfft-3a"]
    assert row["verdict"] == NOT_REPRODUCED
    fft, lp_fft = (np.array(curves_of(records, name).private) for name in ("fft", "lp-fft"))
    depths = [fft[:, 0] - fft[:, :5].min(1), lp_fft[:, 0] - lp_fft.min(1)]
    assert row["observed"] == pytest.approx((depths[0] - depths[1]).mean())


def test_slopes_allow_for_unequal_distances_of_shares():
    """Differences of accuracy grow towards LP, slopes do not."""
    records = groups()
    means = {("fft", 0.0): 0.70, ("lp-fft", 0.25): 0.75, ("lp-fft", 0.5): 0.79, ("lp", 1.0): 0.85}
    for (strategy, share), mean in means.items():
        set_arm(mean, 8.0, strategy, share)(records)
    shares = [0.0, 0.25, 0.5, 1.0]
    evidence = claims.is_concave(PaperRecords({}, records), **AT_8, shares=shares, below=0.0)
    (comparisons,) = evidence.alternatives
    changes = [comparison.estimate.value for comparison in comparisons]
    np.testing.assert_allclose(changes, [-0.04, -0.04], atol=0.01)


def test_the_trend_is_per_doubling_of_epsilon():
    records = groups()
    for noise, epsilon in ((1.0, 16.0), (2.0, 8.0), (4.0, 2.0), (8.0, 1.0), (16.0, 0.5)):
        for strategy in ("lp", "fft", "lp-fft"):
            row = arm_of(records, noise, strategy, 0.5 if strategy == "lp-fft" else None)
            accuracy = runs_of(0.7 + 0.03 * np.log2(epsilon), 1, int(noise))
            rows = record_at(records, noise).metrics.rows
            changed = {"epsilon": epsilon, "accuracy": accuracy}
            rows[rows.index(row)] = row.model_copy(update=changed)
    row = verdicts(records)["lpfft-10"]
    assert row["observed"] == pytest.approx(0.03, abs=1e-3)
    assert row["comparisons"] == 3 * 5


def without_rows(**keys):
    def change(records):
        for name in TRAINING:
            for record in records[name]:
                rows = record.metrics.rows
                rows[:] = [
                    row
                    for row in rows
                    if any(getattr(row, key, None) != value for key, value in keys.items())
                ]

    return change


def without_noise(noise, group):
    return lambda records: records[group].remove(record_at(records, noise, group))


def with_ends_only(records):
    for record in records["feature_quality"]:
        for row in record.metrics.rows:
            row.steps[:] = [0, 60]
            row.private[:] = [[run[0], run[-1]] for run in row.private]


def with_another_scenario(records):
    records["strategies"] = [strategies_record(8.0, scenario="leaves")]


OF_STRATEGIES = {"1a", "1b", "1c", "1d", "4a", "4b", "5", "10"}


@pytest.mark.parametrize(
    ("change", "missing", "note"),
    [
        (lambda records: records.pop("strategies"), OF_STRATEGIES, "strategies"),
        (with_another_scenario, OF_STRATEGIES, "group strategies has no scenario inverted-t"),
        (without_noise(16.0, "strategies"), {"1c", "10"}, "noise 16"),
        (without_noise(4.0, "lora"), {"6b"}, "scenario lora of group lora has no noise 4"),
        (without_noise(1.0, "feature_quality"), {"2a", "2b", "3a", "3b"}, "no noise 1"),
        (without_rows(strategy="fft-fft"), {"1d"}, "no fft-fft at share 0.5"),
        (without_rows(head_scale=4.0, lr=10.0), {"2a", "2b", "3a"}, "head scale 4, rate 10"),
        (with_ends_only, {"2a", "2b"}, "no step within the share 0.5"),
    ],
)
def test_what_the_records_lack_is_not_run_and_named(change, missing, note):
    records = groups()
    change(records)
    rows = verdicts(records)
    assert with_verdict(rows, NOT_RUN) == named(*missing)
    assert all(note in rows[f"lpfft-{part}"]["note"] for part in missing)


@pytest.mark.parametrize(
    ("test", "arguments", "message"),
    [
        ("beats", {"strategy": "lp-fft", "opponents": ["lp"], "above": 0.0}, "share of lp-fft"),
        (
            "grows_with_epsilon",
            {"noises": [0.0, 1.0], "strategies": ["lp"], "share": 0.5, "tolerance": 0.01},
            "noises: found 0, which guarantees no epsilon",
        ),
    ],
)
def test_a_claim_without_a_needed_share_or_epsilon_is_refused(test, arguments, message):
    setting = AT_8 if test == "beats" else {name: AT_8[name] for name in ("group", "scenario")}
    with pytest.raises(InputError, match=message):
        claims.TESTS[test](PaperRecords({}, groups()), **setting, **arguments)


def test_records_that_answer_one_question_twice_are_refused():
    records = groups()
    records["strategies"].append(copy.deepcopy(record_at(records, 8.0)))
    with pytest.raises(InputError, match="noise 8 in scenario inverted-t"):
        verdicts(records)
    with pytest.raises(InputError, match="noise 1 of group feature_quality: found 2 of them"):
        verdicts(groups() | {"feature_quality": [quality_record(), quality_record()]})


def test_other_rates_at_the_same_noise_may_have_a_record_of_their_own():
    apart = [quality_record(lrs=(5.0,)), quality_record(lrs=(10.0,)), quality_record(4.0)]
    rows = verdicts(groups() | {"feature_quality": apart})
    assert with_verdict(rows, REPRODUCED) == set(rows)


def test_levels_are_compared_over_the_runs_that_all_have():
    records = groups()
    for row in record_at(records, 4.0).metrics.rows:
        row.accuracy.extend([0.0] * 3)
    rows = verdicts(records)
    assert with_verdict(rows, REPRODUCED) == set(rows)
    assert int(rows["lpfft-10"]["runs"]) == RUNS
