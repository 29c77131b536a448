"""lp_fft's rules on training against runs whose truth is known, by the committed claims.yaml."""

import copy
import itertools

import numpy as np
import pytest
from committed_claims import CLAIMS
from lpfft_world import (
    RUNS,
    STEPS,
    arm_of,
    curves_of,
    quality_record,
    record_at,
    runs_of,
    strategies_record,
    verdicts,
    with_verdict,
    world,
)

from dpatlas.errors import InputError
from dpatlas.evidence.claims import (
    INCONCLUSIVE,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    check_evidence,
)
from dpatlas.evidence.comparisons import NotRun, PaperRecords
from dpatlas.papers.lp_fft import claims as claims_lp_fft

PARTS = {"1": "abcd", "2": "ab", "3": "ab", "4": "ab", "5": "", "6": "abc", "10": ""}
FLAT = np.full(len(STEPS), 0.9)


def named(*parts):
    """Ids of claims, with those of the claims that they are parts of."""
    return {f"lpfft-{part}" for part in parts} | {f"lpfft-{part.rstrip('abcd')}" for part in parts}


def test_a_world_in_which_every_claim_is_true_reproduces_every_claim():
    rows = verdicts(world())
    parts = [number + letter for number, own in PARTS.items() for letter in own or [""]]
    assert set(rows) == named(*parts)
    assert with_verdict(rows, REPRODUCED) == set(rows)
    assert {(row["runs"], row["kind"]) for row in rows.values()} == {(RUNS, "statistical")}


def test_evidence_is_what_the_paper_s_figures_and_tables_are():
    names = ("lpfft_privacy_utility", "lpfft_feature_quality", "lpfft_budget_sweep")
    products = {f"figures/{name}.pdf" for name in names}
    products |= {f"tables/{name}.csv" for name in ("lpfft_strategies", "lpfft_lora")}
    own = [claim for claim in CLAIMS.claims if claim.id in named(*PARTS)]
    assert {path for claim in own for path in claim.evidence} == products
    with pytest.raises(InputError, match="lpfft_lora"):
        check_evidence(CLAIMS, sorted(products - {"tables/lpfft_lora.csv"}), ["lp_fft"])


def set_arm(mean, noise, strategy, share=None, group="strategies"):
    """The change that gives a row another mean."""

    def change(groups):
        arm_of(groups, noise, strategy, share, group).accuracy[:] = runs_of(mean, 9)

    return change


def set_curve(curve, strategy="fft", head_scale=4.0):
    """The change that gives features another quality over the steps."""

    def change(groups):
        curves_of(groups, strategy, head_scale).private[:] = runs_of(curve, 9)

    return change


@pytest.mark.parametrize(
    ("change", "refuted"),
    [
        (set_arm(0.94, 1.0, "lp"), {"1a"}),
        (set_arm(0.785, 8.0, "fft"), {"1b", "4a"}),
        (set_arm(0.79, 8.0, "lp"), {"1b", "4a"}),
        (set_arm(0.79, 8.0, "lp-lp"), {"1d"}),
        (set_arm(0.79, 8.0, "fft-fft"), {"1d"}),
        (set_arm(0.62, 16.0, "fft"), {"1c"}),
        (set_arm(0.72, 8.0, "lp-fft", 0.5), {"1b", "1d", "4a", "4b"}),
        (set_arm(0.96, 0.0, "lp"), {"5"}),
        (set_arm(0.96, 0.0, "lp-fft", 0.5), {"5"}),
        (set_arm(0.86, 1.0, "lora", group="lora"), {"6a"}),
        (set_arm(0.86, 4.0, "lora", group="lora"), {"6b"}),
        (set_arm(0.86, 4.0, "lp", group="lora"), {"6b"}),
        (set_arm(0.49, 16.0, "lp", group="lora"), {"6c"}),
        # A fall between neighbouring levels, though accuracy grows on the whole.
        (set_arm(0.885, 4.0, "lp"), {"10"}),
        (set_arm(0.91, 4.0, "lp-fft", 0.5), {"10"}),
        (set_arm(0.92, 4.0, "fft"), {"10"}),
        (set_curve((0.9, 0.92, 0.95, 0.95, 0.95, 0.95, 0.95)), {"2a", "2b", "3a"}),
        # A dip of half a point is none; late in training it is not early.
        (set_curve(FLAT - [0, 0, 0.005, 0, 0, 0, 0]), {"2a", "2b", "3a"}),
        (set_curve(FLAT - [0, 0, 0, 0, 0.2, 0, 0]), {"2a", "2b"}),
        (set_curve((0.98, 0.9, 0.9, 0.9, 0.85, 0.82, 0.8)), {"2b"}),
        (set_curve((0.98, 0.98, 0.98, 0.8, 0.9, 0.94, 0.95), "lp-fft"), {"3a"}),
        (set_curve((0.98, 0.98, 0.98, 0.6, 0.9, 0.9, 0.9), "lp-fft", 1.0), {"3b"}),
    ],
)
def test_a_claim_made_false_is_refuted_and_the_others_stand(change, refuted):
    groups = world()
    change(groups)
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_REPRODUCED) == named(*refuted)
    assert with_verdict(rows, REPRODUCED) == set(rows) - named(*refuted)


def test_accuracy_that_falls_with_epsilon_by_little_at_a_time_is_refuted():
    """No step is larger than the tolerance; the trend is."""
    groups = world()
    for place, noise in enumerate((1.0, 2.0, 4.0, 8.0, 16.0)):
        set_arm(0.8 + 0.008 * place, noise, "lp")(groups)
    row = verdicts(groups)["lpfft-10"]
    assert row["verdict"] == NOT_REPRODUCED
    assert "slope per doubling of epsilon, accuracy of lp, inverted-t" in row["note"]


def blur(row):
    """Give each run's accuracy a noise of its own, of mean zero."""
    row.accuracy[:] = (np.array(row.accuracy) + 0.2 * (-1.0) ** np.arange(RUNS)).tolist()


@pytest.mark.parametrize(
    ("arm", "blurred"),
    [
        ((1.0, "fft"), {"1a", "10"}),
        ((8.0, "lp-fft", 0.5), {"1b", "1d", "4a", "4b"}),
        ((8.0, "fft-fft"), {"1d"}),
        ((16.0, "lp"), {"1c", "10"}),
        ((0.0, "fft"), {"5"}),
        ((1.0, "lora", None, "lora"), {"6a"}),
        ((4.0, "lp-lora", None, "lora"), {"6b"}),
        ((16.0, "lora", None, "lora"), {"6c"}),
    ],
)
def test_noise_between_runs_leaves_a_claim_on_accuracy_open(arm, blurred):
    groups = world()
    blur(arm_of(groups, *arm))
    rows = verdicts(groups)
    assert with_verdict(rows, INCONCLUSIVE) >= named(*blurred - {"10"})
    assert with_verdict(rows, INCONCLUSIVE) <= named(*blurred, "10")
    assert with_verdict(rows, NOT_REPRODUCED) == set()


def test_noise_between_steps_leaves_claims_on_features_open():
    groups = world()
    curve = curves_of(groups, "fft")
    noise = np.random.default_rng(2).normal(0, 0.3, (RUNS, len(STEPS)))
    curve.private[:] = (np.array(curve.private) + noise).tolist()
    rows = verdicts(groups)
    assert with_verdict(rows, INCONCLUSIVE) == named("2a", "2b", "3a")
    assert with_verdict(rows, NOT_REPRODUCED) == set()


def test_a_single_run_leaves_every_claim_open():
    groups = world()
    for record in itertools.chain(*groups.values()):
        for row in record.metrics.rows:
            for runs in (row.accuracy, getattr(row, "private", [])):
                del runs[1:]
    rows = verdicts(groups)
    assert with_verdict(rows, INCONCLUSIVE) == set(rows)


def test_what_runs_share_is_subtracted_within_a_record_and_between_noises():
    groups = world()
    shared = np.linspace(-0.3, 0.3, RUNS)
    for record in groups["strategies"] + groups["lora"]:
        for row in record.metrics.rows:
            row.accuracy[:] = (np.array(row.accuracy) + shared).tolist()
    for row in groups["feature_quality"][0].metrics.rows:
        row.private[:] = (np.array(row.private) + shared[:, None]).tolist()
    rows = verdicts(groups)
    assert with_verdict(rows, REPRODUCED) == set(rows)


def test_how_deep_the_dips_of_a_run_are_is_compared_within_the_run():
    groups = world()
    deeper = np.linspace(0, 0.5, RUNS)[:, None]
    for strategy in ("fft", "lp-fft"):
        curves = curves_of(groups, strategy)
        curves.private[:] = (np.array(curves.private) - deeper * [0, 0, 0, 1, 1, 0, 0]).tolist()
    lower = np.array(curves.private) - [0, 0, 0, 0.1, 0.1, 0, 0]
    curves_of(groups, "fft").private[:] = lower.tolist()
    row = verdicts(groups)["lpfft-3a"]
    assert row["verdict"] == REPRODUCED and row["observed"] == pytest.approx(0.1)


def test_one_early_step_makes_a_dip_up_to_the_share_that_counts_as_early():
    groups = world()
    set_curve(FLAT - [0, 0, 0, 0.2, 0, 0, 0])(groups)
    rows = verdicts(groups)
    for part, alternatives in (("a", 3), ("b", 6)):
        row = rows[f"lpfft-2{part}"]
        assert row["verdict"] == REPRODUCED and row["comparisons"] == alternatives
        assert "step 30" in row["note"] and row["observed"] == pytest.approx(0.2, abs=1e-3)


def test_a_level_that_may_fall_by_chance_does_not_stop_a_sure_trend():
    groups = world()
    blur(arm_of(groups, 4.0, "lp"))
    assert verdicts(groups)["lpfft-10"]["verdict"] == REPRODUCED


def test_every_run_has_a_lowest_point_and_that_alone_is_no_dip():
    groups = world()
    curve = runs_of(FLAT, 5, spread=0.05)
    curves_of(groups, "fft").private[:] = curve
    assert (np.array(curve)[:, 0] - np.min(curve, 1)).min() > 0
    assert {verdicts(groups)[f"lpfft-2{part}"]["verdict"] for part in "ab"} == {INCONCLUSIVE}


def test_the_dip_of_fft_is_looked_for_over_as_many_steps_as_lp_fft_trains_everything():
    groups = world()
    late = (0.98, 0.97, 0.97, 0.97, 0.97, 0.97, 0.5)
    set_curve(late)(groups)
    row = verdicts(groups)["lpfft-3a"]
    assert row["verdict"] == NOT_REPRODUCED
    fft, lp_fft = (np.array(curves_of(groups, name).private) for name in ("fft", "lp-fft"))
    depths = [fft[:, 0] - fft[:, :5].min(1), lp_fft[:, 0] - lp_fft.min(1)]
    assert row["observed"] == pytest.approx((depths[0] - depths[1]).mean())


def test_slopes_allow_for_unequal_distances_of_shares():
    """Differences of accuracy grow towards LP, slopes do not."""
    groups = world()
    means = {("fft", 0.0): 0.70, ("lp-fft", 0.25): 0.75, ("lp-fft", 0.5): 0.79, ("lp", 1.0): 0.85}
    for (strategy, share), mean in means.items():
        set_arm(mean, 8.0, strategy, share)(groups)
    keys = {"group": "strategies", "scenario": "inverted-t", "noise": 8.0, "below": 0.0}
    records = PaperRecords({}, groups)
    found = claims_lp_fft.is_concave(records, shares=[0.0, 0.25, 0.5, 1.0], **keys)
    (every,) = found.alternatives
    changes = [comparison.estimate.value for comparison in every]
    np.testing.assert_allclose(changes, [-0.04, -0.04], atol=0.01)


def test_the_trend_is_per_doubling_of_epsilon():
    groups = world()
    for noise, epsilon in ((1.0, 16.0), (2.0, 8.0), (4.0, 2.0), (8.0, 1.0), (16.0, 0.5)):
        for strategy in ("lp", "fft", "lp-fft"):
            row = arm_of(groups, noise, strategy, 0.5 if strategy == "lp-fft" else None)
            accuracy = runs_of(0.7 + 0.03 * np.log2(epsilon), 1, int(noise))
            rows = record_at(groups, noise).metrics.rows
            changed = {"epsilon": epsilon, "accuracy": accuracy}
            rows[rows.index(row)] = row.model_copy(update=changed)
    row = verdicts(groups)["lpfft-10"]
    assert row["observed"] == pytest.approx(0.03, abs=1e-3)
    assert row["comparisons"] == 3 * 5


@pytest.mark.parametrize(
    ("group", "missing"),
    [
        ("strategies", {"1a", "1b", "1c", "1d", "4a", "4b", "5", "10"}),
        ("lora", {"6a", "6b", "6c"}),
        ("feature_quality", {"2a", "2b", "3a", "3b"}),
    ],
)
def test_a_group_that_the_config_lacks_is_not_run(group, missing):
    groups = world()
    del groups[group]
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_RUN) == named(*missing)
    notes = [rows[name]["note"] for name in named(*missing)]
    assert all(group in note for note in notes if not note.startswith("parts"))


def test_a_scenario_that_the_config_lacks_is_not_run():
    groups = world() | {"strategies": [strategies_record(8.0, scenario="leaves")]}
    row = verdicts(groups)["lpfft-1b"]
    assert row["verdict"] == NOT_RUN
    assert row["note"] == "group strategies has no scenario inverted-t"


def drop_rows(**keys):
    def change(groups):
        for record in itertools.chain(*groups.values()):
            rows = record.metrics.rows
            rows[:] = [
                row
                for row in rows
                if any(getattr(row, key, None) != value for key, value in keys.items())
            ]

    return change


def drop_noise(noise, group):
    def change(groups):
        groups[group].remove(record_at(groups, noise, group))

    return change


def look_at_the_ends_only(groups):
    for record in groups["feature_quality"]:
        for row in record.metrics.rows:
            row.steps[:] = [0, 60]
            row.private[:] = [[run[0], run[-1]] for run in row.private]


@pytest.mark.parametrize(
    ("change", "missing", "note"),
    [
        (drop_noise(16.0, "strategies"), {"1c", "10"}, "noise 16"),
        (drop_noise(4.0, "lora"), {"6b"}, "scenario lora of group lora has no noise 4"),
        (drop_noise(1.0, "feature_quality"), {"2a", "2b", "3a", "3b"}, "no noise 1"),
        (drop_rows(strategy="fft-fft"), {"1d"}, "no fft-fft at share 0.5"),
        (drop_rows(head_scale=1.0), {"3b"}, "head scale 1, rate 10"),
        (drop_rows(head_scale=4.0, lr=10.0), {"2a", "2b", "3a"}, "head scale 4, rate 10"),
        (look_at_the_ends_only, {"2a", "2b"}, "no step within the share 0.5"),
    ],
)
def test_what_the_records_lack_is_not_run_and_named(change, missing, note):
    groups = world()
    change(groups)
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_RUN) == named(*missing)
    assert all(note in rows[f"lpfft-{part}"]["note"] for part in missing)


AT_8 = {"group": "strategies", "scenario": "inverted-t", "noise": 8.0}
CURVES = {"group": "feature_quality", "noise": 1.0, "head_scale": 4.0, "lr": 10.0}


@pytest.mark.parametrize(
    ("test", "arguments", "named_in_error"),
    [
        ("beats", AT_8 | {"scenario": "inverted-s"}, "scenario inverted-s"),
        ("beats", AT_8 | {"noise": 7.0}, "noise 7"),
        ("beats", AT_8 | {"share": 0.4}, "lp-fft at share 0.4"),
        ("beats", AT_8 | {"strategy": "dp-sgd"}, "dp-sgd"),
        ("reduces_dip", CURVES | {"noise": 3.0}, "noise 3"),
        ("reduces_dip", CURVES | {"head_scale": 2.0}, "head scale 2"),
        ("reduces_dip", CURVES | {"lr": 7.0}, "rate 7"),
    ],
)
def test_an_argument_outside_the_records_is_named(test, arguments, named_in_error):
    others = {
        "beats": {"strategy": "lp-fft", "opponents": ["lp"], "share": 0.5},
        "reduces_dip": {"task": "private"},
    }
    with pytest.raises(NotRun, match=named_in_error):
        claims_lp_fft.TESTS[test](
            PaperRecords({}, world()), **{**others[test], **arguments, "above": 0.0}
        )


def test_two_phases_without_a_share_are_refused():
    records = PaperRecords({}, world())
    with pytest.raises(InputError, match="share of lp-fft: found none"):
        claims_lp_fft.beats(records, **AT_8, strategy="lp-fft", opponents=["lp"], above=0.0)


def test_epsilon_without_noise_is_refused_as_a_level_of_a_trend():
    setting = {"group": "strategies", "scenario": "inverted-t", "tolerance": 0.01, "share": 0.5}
    with pytest.raises(InputError, match="noises: found 0, which guarantees no epsilon"):
        claims_lp_fft.grows_with_epsilon(
            PaperRecords({}, world()), **setting, noises=[0.0, 1.0], strategies=["lp"]
        )


def test_records_that_answer_one_question_twice_are_refused():
    groups = world()
    groups["strategies"].append(copy.deepcopy(record_at(groups, 8.0)))
    with pytest.raises(InputError, match="noise 8 in scenario inverted-t"):
        verdicts(groups)
    with pytest.raises(InputError, match="noise 1 of group feature_quality: found 2 of them"):
        verdicts(world() | {"feature_quality": [quality_record(), quality_record()]})


def test_other_rates_at_the_same_noise_may_have_a_record_of_their_own():
    apart = [quality_record(lrs=(5.0,)), quality_record(lrs=(10.0,)), quality_record(4.0)]
    rows = verdicts(world() | {"feature_quality": apart})
    assert with_verdict(rows, REPRODUCED) == set(rows)


def test_levels_are_compared_over_the_runs_that_all_have():
    groups = world()
    for row in record_at(groups, 4.0).metrics.rows:
        row.accuracy.extend([0.0] * 3)
    rows = verdicts(groups)
    assert with_verdict(rows, REPRODUCED) == set(rows)
    assert int(rows["lpfft-10"]["runs"]) == RUNS
