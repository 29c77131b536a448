"""What the accuracy tables and the long training show, on synthetic records."""

from itertools import product

import numpy as np
import pytest
from figure_samples import csv_rows
from scipy import stats
from sgld_records import (
    accuracy_record,
    arm,
    finetune_arm,
    finetune_record,
    long_arm,
    long_training_record,
)

from dpatlas.errors import InputError
from dpatlas.papers.dp_sgld.figures.sgld_accuracy_constant import sgld_accuracy_constant
from dpatlas.papers.dp_sgld.figures.sgld_accuracy_decreasing import sgld_accuracy_decreasing
from dpatlas.papers.dp_sgld.figures.sgld_finetune import sgld_finetune
from dpatlas.papers.dp_sgld.figures.sgld_long_training import sgld_long_training
from dpatlas.papers.dp_sgld.jobs.long_training import METHODS
from dpatlas.show.output import figure_files, table_files

ROWS = [
    arm("no-dp", epsilon=None),
    arm("dp-sgd", "published", relation="add_remove"),
    arm("dp-sgd", "guaranteed"),
    *(
        arm("dp-sgld", comparison, schedule)
        for comparison in ("published", "theorem", "guaranteed")
        for schedule in ("constant", "decreasing")
    ),
    arm("noisy-gd", "theorem", "constant"),
    arm("repaired-cyclic", "guaranteed", "constant"),
]


def rows_of(name, shown):
    return csv_rows(table_files(name, shown, "trial")[f"{name}.csv"])


class TestAccuracy:
    def test_each_table_has_its_own_schedule_and_both_have_dp_sgd(self):
        """DP-SGD that accounts for add_remove stands in both comparisons that allow it."""
        constant = rows_of("t", sgld_accuracy_constant([accuracy_record(ROWS)], {}))
        decreasing = rows_of("t", sgld_accuracy_decreasing([accuracy_record(ROWS)], {}))
        assert len(constant) == 1 + 3 + 3 + 2 and len(decreasing) == 1 + 3 + 3
        for rows, schedule in ((constant, "constant"), (decreasing, "decreasing")):
            assert {row["schedule"] for row in rows} == {"", schedule}
            dp_sgd = [row for row in rows if row["method"] == "dp-sgd"]
            assert [row["comparison"] for row in dp_sgd] == ["published", "theorem", "guaranteed"]
            assert dp_sgd[0] == dp_sgd[1] | {"comparison": "published"}

    def test_means_and_standard_errors_are_over_runs_and_one_run_has_no_error(self):
        shown = sgld_accuracy_constant([accuracy_record(ROWS)], {})
        row = rows_of("t", shown)[0]
        assert float(row["accuracy_mean"]) == pytest.approx(0.85)
        assert float(row["accuracy_standard_error"]) == pytest.approx(0.05 / np.sqrt(3))
        assert "85.0 ± 2.9" in table_files("t", shown, "trial")["t.md"].decode()
        single = [row.model_copy(update={"accuracy": [0.5]}) for row in ROWS]
        row = rows_of("t", sgld_accuracy_constant([accuracy_record(single)], {}))[0]
        assert row["accuracy_standard_error"] == "" and row["accuracy_mean"] == "0.5"

    def test_each_problem_has_a_part_that_says_what_is_compared(self):
        raw = {"data": {"name": "breast_cancer"}, "backbone": None, "features": "raw"}
        without = {"backbone": None, "features": None}
        records = [accuracy_record(ROWS), accuracy_record(ROWS, without, **raw)]
        shown = sgld_accuracy_constant(records, {})
        first, second = (part.caption for part in shown.parts)
        assert "features of strokes-s:" in first and "7 records scaled down" in first
        assert "breast_cancer, raw columns:" in second
        text = table_files("t", shown, "trial")["t.md"].decode()
        assert all(word in text for word in ("K = epochs", "K = steps", "equal guarantee"))

    def test_records_of_the_other_schedule_alone_are_refused(self):
        with pytest.raises(InputError, match="none of kind accuracy, decreasing"):
            sgld_accuracy_decreasing([accuracy_record(ROWS, schedule="constant")], {})


def test_rows_of_fine_tuning_say_what_is_trained_and_what_is_guaranteed():
    arms = [
        finetune_arm("no-dp", "head", 21, None),
        finetune_arm("dp-sgd", "last block", 75, 1.0),
    ]
    head, block = rows_of("t", sgld_finetune([finetune_record(arms)], {}))
    assert (head["unfreeze"], head["trained_parameters"]) == ("head", "21")
    assert head["guaranteed_epsilon"] == "" and block["guaranteed_epsilon"] == "4.0"
    assert block["noise_multiplier"] == "6.6" and block["architecture"] == "small-cnn-s"
    with pytest.raises(InputError, match="none of kind finetune"):
        sgld_finetune([accuracy_record(ROWS)], {})


class TestLongTraining:
    def shown(self):
        rows = [
            long_arm(method, comparison, steps)
            for steps, (method, comparison) in product((10, 100), METHODS.items())
        ]
        return sgld_long_training([long_training_record(rows)], {})

    def test_points_have_the_t_interval_of_their_runs(self):
        rows = [row for row in self.shown().rows if row["quantity"] == "accuracy"]
        half = stats.t.ppf(0.975, 2) * 0.05 / np.sqrt(3)
        assert len(rows) == 6
        for row in rows:
            assert row["value"] == pytest.approx(0.85)
            assert (row["low"], row["high"]) == pytest.approx((0.85 - half, 0.85 + half))

    def test_the_csv_has_the_cost_of_all_iterates_beside_the_guarantee(self):
        files = figure_files("f", self.shown(), "trial")
        rows = csv_rows(files["f.csv"])
        cost = [row for row in rows if row["quantity"] == "ordinary epsilon"]
        assert len(cost) == 6 and {row["value"] for row in cost} == {"4.0"}
        assert {row["guaranteed_epsilon"] for row in cost} == {"4.0"}
