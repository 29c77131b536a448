"""What the figures and tables of dp_sgld's theory show, on small synthetic records."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from figure_samples import csv_rows, in_style, maker, not_in_rows, shown_rows
from sgld_records import (
    SCHEDULES,
    accuracy_record,
    arm,
    growing_excess_record,
    privacy_loss_record,
    utility_record,
)

from dpatlas.core.statistics import mean_estimate
from dpatlas.errors import InputError
from dpatlas.papers.dp_sgld.figures import sgld_privacy_loss
from dpatlas.papers.dp_sgld.formulas.published import PRINTED_TABLE_4, PUBLISHED_RUNS
from dpatlas.papers.dp_sgld.formulas.theorems import table4_ratio

PAPERS = Path(__file__).parents[3] / "workflow" / "papers"
# What tells the lines of a panel apart.
KEYS = ("panel", "schedule", "calibration", "curve", "x_prime", "rest", "eta", "epsilon")
STEP_KEYS = ("K", "quantity")
OF_BOTH_SCHEDULES = (
    "claimed, steps",
    "claimed, epochs",
    "every iterate",
    "full batch, every iterate",
    "full batch, every iterate, rdp",
    "full batch, hidden state",
)
OF_CONSTANT_STEPS = (
    "given the batches",
    "cyclic, hidden state",
    "quadratic, fixed start",
    "quadratic, random start",
)


def growing_losses(**fields):
    """Curves that grow with the step, each from a height of its own."""
    at = [1, 5, 20]
    names = [
        (calibration, schedule, name)
        for schedule, calibration in product(SCHEDULES, ("published", "theorem"))
        for name in (*OF_BOTH_SCHEDULES, *(OF_CONSTANT_STEPS if schedule == "constant" else ()))
    ]
    names += [
        ("one dimension", "constant", name)
        for name in ("claimed, steps", "every iterate", "given the batches", "exact")
    ]
    heights = np.geomspace(0.01, 1, 40)
    curves = {
        name: (at, (height * np.sqrt(at)).tolist())
        for name, height in zip(names, heights, strict=False)
    }
    return privacy_loss_record(curves, **fields)


def compared(name="digits", classes=10, schedules=SCHEDULES, runs=(0.8, 0.9), schedule="both"):
    """Arms at epsilon 1; DP-SGLD was tuned to lambda 0.01 everywhere."""

    def row(method, comparison, accuracy, schedule=None, guaranteed=1.0):
        accuracies = [accuracy * value for value in runs]
        stated = {"guaranteed_epsilon": guaranteed, "accuracy": accuracies}
        return arm(method, comparison, schedule, **stated)

    rows = [row("dp-sgd", "published", 0.9), row("dp-sgd", "guaranteed", 0.85)]
    for each in schedules:
        rows += [
            row("dp-sgld", "published", 1.0, each, 300.0),
            row("dp-sgld", "theorem", 0.95, each, 30.0),
            row("dp-sgld", "guaranteed", 0.5, each),
        ]
    return accuracy_record(
        rows,
        {"n_train": 1000, "inputs": 64, "classes": classes},
        data={"name": name},
        schedule=schedule,
        feature_norm=2.0,
        runs=len(runs),
    )


RECORDS = {
    "sgld_privacy_loss": growing_losses,
    "sgld_counterexample": growing_excess_record,
    "sgld_utility": utility_record,
}


def show(name, records=None):
    return in_style(maker(name), records or [RECORDS[name]()], {})


def key_of(row):
    """The line that a row belongs to; of the comparison of neighbours K is not one."""
    keys = KEYS if row.get("panel") == "others" else (*KEYS, *STEP_KEYS)
    return tuple(row.get(name) for name in keys)


@pytest.mark.parametrize("name", RECORDS)
def test_csv_holds_exactly_the_lines_that_are_drawn(name):
    shown = show(name)
    rows = [row for row in shown_rows(shown) if row.get("panel") != "region"]
    if name == "sgld_utility":
        # What lies beyond the axis stands in the notes.
        rows = [row for row in rows if float(row["step"]) <= 50]
    series = {}
    for row in rows:
        series.setdefault(key_of(row), []).append(row)
    # Left are the line at one epsilon, at no excess or at zero weights, one a panel, and the marks
    # of where the claim is violated and where it holds.
    guides = {"sgld_privacy_loss": 6, "sgld_counterexample": 3 + 2, "sgld_utility": 2}
    assert len(not_in_rows(shown.figure, series.values())) == guides[name]


@pytest.mark.parametrize("name", RECORDS)
def test_a_figure_needs_exactly_one_record_of_its_kind(name):
    record = RECORDS[name]()
    with pytest.raises(InputError, match="2 of kind"):
        show(name, [record, record])
    with pytest.raises(InputError, match="0 of kind"):
        show(name, [compared()])


def test_a_single_schedule_leaves_no_empty_panel():
    figure = show("sgld_privacy_loss", [growing_losses(schedules=["decreasing"])]).figure
    assert len(figure.axes) == 4
    assert all(axes.get_lines()[:-1] for axes in figure.axes)


def test_no_two_curves_of_a_panel_have_both_marker_and_line_in_common():
    for panel in (sgld_privacy_loss.BATCHES, sgld_privacy_loss.FULL, sgld_privacy_loss.SMALL):
        shown = [sgld_privacy_loss.CURVES[name] for name in panel]
        assert len({(look.marker, look.linestyle) for look in shown}) == len(panel)


def test_the_region_shows_the_largest_excess_over_steps_and_orders():
    record = growing_excess_record()
    rows = [row for row in show("sgld_counterexample", [record]).rows if row["panel"] == "region"]
    assert len(rows) == 3 * 2
    names = ("x_prime", "rest", "eta", "m", "sigma2")
    laws = {tuple(getattr(law, name) for name in names): law for law in record.metrics.scan}
    for row in rows:
        law = laws[tuple(row[name] for name in names)]
        assert row["value"] == pytest.approx((np.array(law.exact) / law.claimed).max())
        assert row["value"] == row["exact"] / row["claimed"]


def test_lines_are_at_the_scanned_noise_next_to_that_of_the_theorem():
    rows = show("sgld_counterexample").rows
    assert {row["sigma2"] for row in rows if row["panel"] in ("divergence", "others")} == {0.1}
    assert {row["sigma2"] for row in rows if row["panel"] == "delta"} == {0.077}


def test_points_of_the_region_are_marked_by_whether_the_claim_holds():
    shown = show("sgld_counterexample")
    marks = {
        line.get_label(): set(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in shown.figure.axes[2].get_lines()
    }
    rows = [row for row in shown.rows if row["panel"] == "region"]
    for label, violated in (("violated", True), ("holds", False)):
        expected = {(row["ratio"], row["sigma2"]) for row in rows if (row["value"] > 1) == violated}
        assert marks[label] == expected


@pytest.mark.parametrize("scan", [{"ratios": (100,)}, {"sigma2s": (0.1,)}])
def test_a_scan_along_one_line_is_drawn_without_contours(scan):
    figure = show("sgld_counterexample", [growing_excess_record(**scan)]).figure
    assert not figure.axes[2].collections


def test_a_delta_of_zero_has_no_place_on_the_log_axis():
    rows = [row for row in show("sgld_counterexample").rows if row["panel"] == "delta"]
    assert {row["value"] for row in rows if row["ratio"] == 1} == {None}
    assert all(row["value"] > 0 for row in rows if row["ratio"] > 1)


def test_measured_risk_is_mean_and_t_interval_of_the_runs():
    def measured(record):
        rows = show("sgld_utility", [record]).rows
        return [row for row in rows if row["quantity"] == "measured"]

    record = utility_record()
    estimate = mean_estimate(np.array(record.metrics.rows[0].excess_risk_runs)[:, 1])
    condition = ("constant", 0.5, 7)
    (row,) = (
        row
        for row in measured(record)
        if (row["schedule"], row["epsilon"], row["step"]) == condition
    )
    assert (row["value"], row["runs_used"]) == (estimate.value, 3)
    assert (row["low"], row["high"]) == estimate.interval(0.95)
    assert {row.get("low") for row in measured(utility_record(runs=1))} == {None}


def test_theorems_beyond_the_last_step_stand_in_the_notes():
    note = show("sgld_utility").notes[-1]
    assert note.startswith("beyond the axis: Thm 4.3 at epsilon 0.5: 3 at K = 5e+02")
    assert "Thm 4.4" in note and "Thm 4.1" not in note
    near = utility_record()
    for row in near.metrics.rows:
        row.theorems[:] = [theorem.model_copy(update={"K": 7}) for theorem in row.theorems]
    assert not any("beyond" in note for note in show("sgld_utility", [near]).notes)


def constants(*records):
    return maker("sgld_constants")(list(records) or [compared()], {})


def test_printed_constants_are_those_of_table_4():
    printed = {
        (row["dataset"], row["backbone"]): tuple(
            float(row[name]) for name in ("beta", "beta_over_lambda", "ratio")
        )
        for row in csv_rows((PAPERS / "dp_sgld_table4_constants.csv").read_bytes())
    }
    assert printed == PRINTED_TABLE_4


def test_table_4_follows_where_d_counts_classes_and_not_where_it_counts_parameters():
    rows = [row for row in constants().rows if row["part"] == "printed"]
    assert len(rows) == 3
    for row in rows:
        assert row["beta_over_lambda"] == pytest.approx(row["beta_over_lambda_printed"], rel=0.01)
        assert row["ratio_classes"] == pytest.approx(row["ratio_printed"], rel=0.09)
        assert row["ratio_classes"] == pytest.approx(row["inputs"] * row["ratio_parameters"])


def test_our_constants_come_from_the_mean_eigenvalue_and_the_chosen_lambda():
    (row,) = (row for row in constants().rows if row["part"] == "ours")
    assert row["beta"] == pytest.approx(0.31)
    assert row["beta_public"] == pytest.approx(2.01)
    assert row["beta_over_lambda"] == pytest.approx(31)
    for name, d in (("ratio_classes", 10), ("ratio_parameters", 640)):
        assert row[name] == pytest.approx(table4_ratio(1000, 1.0, 1e-5, d, 31.0))


def test_one_problem_in_two_records_is_one_row():
    pair = [compared(schedule=schedule) for schedule in ("constant", "decreasing")]
    other = compared(name="cancer", classes=2)
    ours = [row for row in constants(*pair, other).rows if row["part"] == "ours"]
    assert [row["dataset"] for row in ours] == ["digits", "cancer"]


def test_constants_without_an_accuracy_record_are_refused():
    with pytest.raises(InputError, match="none of kind accuracy"):
        constants(growing_losses())


def published(*records):
    return maker("sgld_published")([growing_losses(), *records], {})


def test_published_rows_have_every_count_and_the_recorded_accounting():
    rows = published().rows
    assert len(rows) == len(PUBLISHED_RUNS)
    for place, (row, run) in enumerate(zip(rows, PUBLISHED_RUNS, strict=True)):
        assert row["claimed_epochs"] == pytest.approx(row["printed_epsilon"], rel=0.03)
        assert row["claimed_steps"] == run.claimed_epsilon("steps") > 7
        assert row["guaranteed_add_remove"] == 400.0 + place
        assert (row["dp_sgd_pld"], row["dp_sgd_rdp"]) == (0.91, 1.0)


def test_accounting_of_other_published_rows_is_refused():
    record = growing_losses()
    published = record.metrics.published
    published[0] = published[0].model_copy(update={"steps": 1})
    with pytest.raises(InputError, match="other published settings"):
        maker("sgld_published")([record], {})


def test_reached_accuracy_is_mean_and_error_of_the_arm_with_its_guarantee():
    rows = [row for row in published(compared()).rows if row["part"] == "ours"]
    assert [row["schedule"] for row in rows] == ["constant", "decreasing"]
    for row in rows:
        assert row["dp_sgld_published"] == pytest.approx(0.85)
        assert row["dp_sgld_published_standard_error"] == pytest.approx(0.05)
        assert row["dp_sgld_published_guaranteed_epsilon"] == 300.0
        assert row["dp_sgld_guaranteed"] == pytest.approx(0.425)
        assert row["dp_sgd_published"] == pytest.approx(0.765)
        assert row["dp_sgd_guaranteed_guaranteed_epsilon"] == 1.0


def test_a_single_run_has_no_standard_error_and_two_classes_stand_for_the_medical_data():
    *_, row = published(compared(classes=2, schedules=["constant"], runs=(0.9,))).rows
    assert row["dp_sgld_published_standard_error"] is None
    assert row["stands_for"] == "Pneumonia"
