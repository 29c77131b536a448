"""What the figures of lp_fft show: training on made-up records, theory on small simulations."""

import re

import lpfft_sample_records as samples
import numpy as np
import pytest
from figure_samples import maker, select
from lpfft_sample_records import theory_record
from scipy import stats

from dpatlas.errors import InputError
from dpatlas_workflow.papers.lp_fft.figures import (
    arms,
    lpfft_feature_quality,
    lpfft_sensitivity,
    lpfft_theory,
    theory_series,
)
from dpatlas_workflow.papers.lp_fft.figures.lpfft_umap import class_looks
from dpatlas_workflow.papers.lp_fft.published import TABLE_1
from dpatlas_workflow.rows import arms as arms_over_runs
from dpatlas_workflow.show.panel import PRINTED
from dpatlas_workflow.show.rows import grouped
from dpatlas_workflow.statistics import FAILS, HOLDS, OPEN, Estimate


def show(name, *records):
    return maker(name)(list(records) or samples.RECORDS[name](), {})


def two_levels(**options):
    return [samples.strategies_record(noise, **options) for noise in (0.0, 4.0)]


def titles_of(shown):
    return [panel.title.partition("\n")[0] for panel in shown.panels]


@pytest.mark.parametrize(
    ("name", "record"),
    [("lpfft_feature_quality", samples.feature_record), ("lpfft_umap", samples.umap_record)],
)
def test_epsilon_is_not_said_to_cover_neighbours_that_are_private_records(name, record):
    (note,) = (note for note in show(name, record()).notes if "$\\varepsilon$ covers" in note)
    assert re.search(r"covers all .* and not .* where private records vote without noise", note)


@pytest.mark.parametrize(
    "looks",
    [
        arms.STRATEGIES.values(),
        lpfft_feature_quality.CURVES.values(),
        (lpfft_theory.SIMULATED, theory_series.PRINTED, theory_series.EXACT),
        (lpfft_theory.ZEROTH, lpfft_theory.BRACKET),
        theory_series.NOISES.values(),
        lpfft_sensitivity.LAYERS.values(),
        lpfft_sensitivity.READINGS.values(),
    ],
)
def test_series_differ_in_grey_print(looks):
    assert len({(look.marker, look.linestyle) for look in looks}) == len(looks)


class TestRows:
    def test_an_interval_is_that_of_student_over_runs_and_one_run_has_none(self):
        record = samples.strategies_record(4.0)
        for row, arm in zip(arms.arm_rows(record), arms_over_runs(record), strict=True):
            values = arm["accuracy"]
            expected = stats.t.interval(0.95, 7, np.mean(values), stats.sem(values))
            assert (row["low"], row["high"]) == pytest.approx(expected)
            assert row["standard_error"] == pytest.approx(stats.sem(values))
        row = arms.arm_rows(samples.strategies_record(runs=1))[0]
        assert (row["low"], row["high"], row["standard_error"]) == (None, None, None)

    def test_the_same_strategy_at_the_same_level_twice_is_refused(self):
        records = [samples.strategies_record(runs=4), samples.strategies_record(runs=5)]
        with pytest.raises(InputError, match="each strategy once at each level"):
            arms.arms(records, "strategies")
        assert arms.arms([*records[:1], *samples.clip_records()], "strategies")

    def test_a_name_of_two_phases_says_its_share_and_means_no_other(self):
        rows = [
            row
            for record in two_levels(arms=samples.MAIN_ARMS + samples.CONTROL_ARMS)
            for row in arms.arm_rows(record)
        ]
        looks = arms.series_looks(rows)
        assert set(looks) == {(row["strategy"], row["share"]) for row in rows}
        assert looks["lp-fft", 0.25].label == "LP-FFT, 25 % LP"
        assert looks["lp-fft", 0.5].label == "LP-FFT, 50 % LP"
        assert looks["lp", 1.0].label == "LP"
        drawn = {(look.label, look.color, look.marker) for look in looks.values()}
        assert len(drawn) == len({label for label, _, _ in drawn}) == len(looks)


class TestBudgetSweep:
    def test_scenarios_with_another_best_share_stand_in_front_on_the_same_axes(self):
        best = {"a": 1.0, "b": 1.0, "c": 0.0}
        records = [samples.strategies_record(4.0, name, arms=samples.FEW_ARMS) for name in best]
        for record in records:
            shares = {row["arm"]: row["share"] for row in record.tables["arms"]}
            for row in record.tables["runs"]:
                is_best = shares[row["arm"]] == best[record.spec.scenario]
                row["accuracy"] = 0.9 if is_best else 0.1
        shown = show("lpfft_budget_sweep", *records)
        assert titles_of(shown) == ["a", "c", "b"]
        assert len(set(shown.ends("y"))) == 1
        assert titles_of(show("lpfft_budget_sweep", *records[:2])) == ["a", "b"]

    def test_a_clip_sweep_has_the_clip_of_the_scenario_itself_too(self):
        swept = [each for each in samples.clip_records() if each.spec.max_grad_norm != 1.0]
        shown = show("lpfft_budget_sweep", *two_levels(), samples.strategies_record(1.0), *swept)
        clip = select(shown.rows, panel="clip", strategy="lp-fft")
        assert sorted(row["max_grad_norm"] for row in clip) == [0.1, 0.3, 1.0, 3.0, 10.0]
        assert {row["share"] for row in clip} == {0.5}
        (unswept,) = select(clip, max_grad_norm=1.0)
        assert (unswept["group"], unswept["noise_multiplier"]) == ("strategies", 4.0)


class TestPrivacyUtility:
    def test_printed_accuracies_stand_beside_ours_on_the_paper_s_data_and_backbone_alone(self):
        theirs = samples.BACKBONE | {"architecture": "resnet18", "source": "cifar10"}
        shown = {
            name: show(
                "lpfft_privacy_utility",
                *(
                    samples.strategies_record(
                        noise, arms=samples.FEW_ARMS, data=data, backbone=backbone
                    )
                    for noise in (0.0, 4.0)
                ),
            )
            for name, data, backbone in (
                ("theirs", "stl10-32", theirs),
                ("other data", "cifar10", theirs),
                ("other backbone", "stl10-32", samples.BACKBONE),
            )
        }
        for name, each in shown.items():
            labels = [look.label for look in each.looks]
            assert ("printed in the paper" in labels) == (name == "theirs")
        printed = select(shown["theirs"].rows, source="printed")
        accuracies = {(row["strategy"], row["epsilon"]): row["value"] for row in printed}
        assert len(accuracies) == len(TABLE_1) / 3
        assert accuracies["lp", None] == 0.6854
        assert accuracies["lp-fft", 1.29] == 0.6865
        diamonds = [
            y
            for each in shown["theirs"].panels[0].series
            for y in each.y
            if each.look.label == PRINTED.label
        ]
        assert set(diamonds) == set(accuracies.values())


class TestFeatureQuality:
    def test_a_curve_is_the_mean_of_the_runs_at_every_step(self):
        record = samples.feature_record()
        rows = lpfft_feature_quality.curve_rows(record)
        of = {"strategy": "lp-fft", "head_scale": 1.0, "lr": 5.0}
        found = select(record.tables["curves"], **of)
        shown = select(rows, **of, task="public")
        assert [row["step"] for row in shown] == record.spec.at
        for row in shown:
            values = [each["public"] for each in found if each["step"] == row["step"]]
            assert row["value"] == pytest.approx(np.mean(values))

    def test_differences_of_early_losses_are_paired_and_hold_together(self):
        record = samples.feature_record()
        rows = lpfft_feature_quality.loss_rows([record])
        # 5 and 10 steps of FFT lie within a fifth of 60; LP-FFT trains the head in 20 before them.
        losses = []
        for strategy, first in (("fft", 5), ("lp-fft", 25)):
            of = {"strategy": strategy, "head_scale": 1.0, "lr": 5.0}
            start, one, other = (
                np.array([r["private"] for r in select(record.tables["curves"], **of, step=step)])
                for step in (0, first, first + 5)
            )
            losses.append(start - (one + other) / 2)
        difference = losses[0] - losses[1]
        row = select(rows, task="private", head_scale=1.0, lr=5.0)[0]
        expected = stats.t.interval(
            1 - 0.05 / 4, len(difference) - 1, difference.mean(), stats.sem(difference)
        )
        assert (row["low"], row["high"]) == pytest.approx(expected)
        assert row["confidence"] == pytest.approx(1 - 0.05 / 4)

    def test_where_lp_first_helps_and_where_it_hurts_is_told_apart(self):
        rows = select(lpfft_feature_quality.loss_rows([samples.feature_record()]), task="private")
        answers = {(row["head_scale"], row["lr"]): row["answer"] for row in rows}
        assert answers[4.0, 10.0] == HOLDS
        assert answers[1.0, 10.0] == FAILS
        alone = lpfft_feature_quality.loss_rows([samples.feature_record(runs=1)])
        assert {row["answer"] for row in alone} == {OPEN}
        assert {row["low"] for row in alone} == {None}

    def test_backbones_are_told_apart_and_their_noises_stand_together(self):
        few = ((4.0, 10.0),)
        records = [
            samples.feature_record(noise, few, backbone=backbone)
            for noise in (4.0, 1.0)
            for backbone in ("strokes-xs", "fonts-s")
        ]
        shown = show("lpfft_feature_quality", *records)
        titles = [panel.title.split("\n")[:2] for panel in shown.panels[:4]]
        assert [(name, noise.partition(" (")[0]) for name, noise in titles] == [
            (name, noise) for name in ("strokes-xs", "fonts-s") for noise in ("noise 1", "noise 4")
        ]
        assert shown.panels[4].y.words[2] == "fonts-s: noise 1, head scale 4, rate 10"
        assert len([note for note in shown.notes if note.startswith("digits from")]) == 2

    @pytest.mark.parametrize(("per_noise", "in_a_line"), [(1, 4), (2, 4), (3, 3), (5, 4), (6, 3)])
    def test_a_noise_starts_a_line_where_it_can(self, per_noise, in_a_line):
        assert lpfft_feature_quality._in_a_line(per_noise) == in_a_line


class TestUmap:
    def test_csv_holds_exactly_the_points_that_are_drawn_within_limits_of_one_length(self):
        shown = show("lpfft_umap", samples.umap_record(classes=3, points=30))
        panels = grouped(select(shown.rows, part="point"), "lp_steps", "moment").values()
        assert len(panels) == 3 + 2 + 2
        ends = zip(shown.ends("x"), shown.ends("y"), strict=True)
        for panel, rows, ((left, right), (low, high)) in zip(
            shown.panels, panels, ends, strict=True
        ):
            points = {
                (each.look.label, x, y)
                for each in panel.series
                for x, y in zip(each.x, each.y, strict=True)
            }
            assert points == {(row["class"], row["x"], row["y"]) for row in rows}
            assert right - left == pytest.approx(high - low)
            assert left < min(row["x"] for row in rows) and max(row["x"] for row in rows) < right
            assert low < min(row["y"] for row in rows) and max(row["y"] for row in rows) < high
        epsilons = [row["epsilon_of_all_steps"] for row in select(shown.rows, part="panel")]
        assert epsilons == pytest.approx([4.0] * 3 + [4.3] * 2 + [4.6] * 2)

    def test_classes_differ_in_colour_and_marker(self):
        looks = class_looks([str(name) for name in range(110)])
        assert len({(look.color, look.marker) for look in looks.values()}) == 110
        ten = list(class_looks([str(name) for name in range(10)]).values())
        assert len({look.marker for look in ten}) == 10
        assert len({look.color for look in ten}) == 10

    def test_data_sets_stand_below_each_other_with_their_own_classes(self):
        records = (
            samples.umap_record(3, 30, (0, 10)),
            samples.umap_record(10, 30, (0,), data="letters"),
        )
        shown = show("lpfft_umap", *records)
        legends = [panel.legend for panel in shown.panels if panel.legend]
        assert [legend.heading for legend in legends] == ["digits", "letters"]
        assert [len(legend.looks) for legend in legends] == [3, 10]


@pytest.fixture(scope="module", name="theory")
def rows_of_the_theory_figure():
    return show("lpfft_theory").rows


def values(rows, column="value", **keys):
    return [row[column] for row in select(rows, **keys)]


def test_simulated_means_have_the_intervals_of_their_standard_errors(theory):
    probing = theory_record("dynamics").facts["probing"]
    rows = select(theory, panel="head norm", series="simulated")
    for row, norm, error in zip(rows, probing["norm"], probing["norm_standard_error"], strict=True):
        assert (row["low"], row["high"]) == Estimate(norm, error, np.inf, 2).interval(0.95)


def test_brackets_are_those_of_the_last_noise_but_one_and_of_the_worst_draw():
    record = theory_record("dynamics")
    losses = select(record.tables["relu"], phase="head", draw=0)
    worst = select(record.tables["relu"], phase="all", heads="random", **{"class": -1})[0]
    worst["zeroth"][0] = 100 * worst["upper"][0]
    rows = show("lpfft_theory", record).rows
    first = next(row for row in losses if row["sigma"] == 0.5)
    assert values(rows, panel="LP bracket", series="lower") == [first["start"], *first["lower"]]
    assert values(rows, panel="FFT bracket", series="zeroth") == [worst["start"], *worst["zeroth"]]
    assert values(rows, panel="FFT bracket", series="diffusion") == worst["diffusion"]
    assert values(rows, "x", panel="FFT bracket", series="zeroth") == [0.0, *record.facts["times"]]
