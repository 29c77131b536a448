"""What the figures and tables of dp_sgld's theory show, on small synthetic records."""

from importlib.resources import files

import numpy as np
import pytest
import sgld_records as samples
from figure_samples import csv_rows, maker, select

from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.published import PRINTED_TABLE_4, PUBLISHED_RUNS
from dpatlas.formulas.dp_sgld.theorems import table4_ratio
from dpatlas_workflow.papers.dp_sgld import printed
from dpatlas_workflow.statistics import mean_estimate

TABLE_4 = files(printed) / "table4_constants.csv"


def compared(schedule="both"):
    """Arms at epsilon 1; DP-SGLD was tuned to lambda 0.01 everywhere."""

    def row(method, comparison, accuracy, schedule=None, guaranteed=1.0):
        stated = {"guaranteed_epsilon": guaranteed, "accuracy": [0.8 * accuracy, 0.9 * accuracy]}
        return samples.arm(method, comparison, schedule, **stated)

    rows = [row("dp-sgd", "published", 0.9), row("dp-sgd", "guaranteed", 0.85)]
    for each in samples.SCHEDULES:
        rows += [
            row("dp-sgld", "published", 1.0, each, 300.0),
            row("dp-sgld", "theorem", 0.95, each, 30.0),
            row("dp-sgld", "guaranteed", 0.5, each),
        ]
    seen = {"n_train": 1000, "inputs": 64}
    return samples.accuracy_record(rows, seen, schedule=schedule, feature_norm=2.0, runs=2)


def test_the_region_shows_the_largest_excess_and_lines_the_scanned_noise_next_to_the_theorem_s():
    record = samples.growing_excess_record()
    shown = maker("sgld_counterexample")([record], {}).rows
    for panel, noise in {"divergence": 0.1, "others": 0.1, "delta": 0.077}.items():
        assert {row["sigma2"] for row in select(shown, panel=panel)} == {noise}
    rows = select(shown, panel="region")
    assert len(rows) == 3 * 2
    names = ("x_prime", "rest", "eta", "m", "sigma2")
    for row in rows:
        law = select(record.tables["scan"], **{name: row[name] for name in names})
        assert row["value"] == max(each["exact"] / each["claimed"] for each in law)
        assert row["value"] == row["exact"] / row["claimed"]


def test_measured_risk_is_mean_and_t_interval_of_its_logarithm():
    record = samples.utility_record()
    risks = select(record.tables["risks"], schedule="constant", epsilon=0.5, step=7)
    estimate = mean_estimate([each["excess_risk"] for each in risks])
    measured = select(maker("sgld_utility")([record], {}).rows, quantity="measured")
    (row,) = select(measured, schedule="constant", epsilon=0.5, step=7)
    assert (row["value"], row["runs_used"]) == (estimate.value, 3)
    half = (estimate.interval(0.95)[1] - estimate.value) / estimate.value
    in_logs = np.log([row["low"], row["high"]])
    np.testing.assert_allclose(in_logs - np.log(estimate.value), [-half, half])


def test_table_4_follows_where_d_counts_classes_and_not_where_it_counts_parameters():
    columns = ("beta", "beta_over_lambda", "ratio")
    assert {
        (row["dataset"], row["backbone"]): tuple(float(row[name]) for name in columns)
        for row in csv_rows(TABLE_4.read_bytes())
    } == PRINTED_TABLE_4
    rows = select(maker("sgld_constants")([compared()], {}).rows, part="printed")
    assert len(rows) == 3
    for row in rows:
        assert row["beta_over_lambda"] == pytest.approx(row["beta_over_lambda_printed"], rel=0.01)
        assert row["ratio_classes"] == pytest.approx(row["ratio_printed"], rel=0.09)
        assert row["ratio_classes"] == pytest.approx(row["inputs"] * row["ratio_parameters"])


def test_our_constants_come_from_the_mean_eigenvalue_and_the_chosen_lambda():
    """One problem in two records is one row."""
    pair = [compared(schedule=schedule) for schedule in samples.SCHEDULES]
    (row,) = select(maker("sgld_constants")(pair, {}).rows, part="ours")
    assert row["beta"] == pytest.approx(0.31)
    assert row["beta_public"] == pytest.approx(2.01)
    assert row["beta_over_lambda"] == pytest.approx(31)
    for name, d in (("ratio_classes", 10), ("ratio_parameters", 640)):
        assert row[name] == pytest.approx(table4_ratio(1000, 1.0, 1e-5, d, 31.0))


def test_published_rows_have_every_count_and_the_recorded_accounting():
    rows = maker("sgld_published")([samples.growing_losses_record()], {}).rows
    assert len(rows) == len(PUBLISHED_RUNS)
    for place, (row, run) in enumerate(zip(rows, PUBLISHED_RUNS, strict=True)):
        assert row["claimed_epochs"] == pytest.approx(row["printed_epsilon"], rel=0.03)
        assert row["claimed_steps"] == run.claimed_epsilon("steps") > 7
        assert row["guaranteed_add_remove"] == 400.0 + place
        assert (row["dp_sgd_pld"], row["dp_sgd_rdp"]) == (0.91, 1.0)


def test_accounting_of_other_published_rows_is_refused():
    record = samples.growing_losses_record()
    record.tables["published"][0]["steps"] = 1
    with pytest.raises(InputError, match="other published settings"):
        maker("sgld_published")([record], {})
