"""What the accuracy tables and the long training show, on synthetic records."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import sgld_records as samples
from block_worlds import worlds_of
from figure_samples import csv_rows
from scipy import stats

from dpatlas_workflow.papers.dp_sgld.figures.sgld_accuracy_constant import sgld_accuracy_constant
from dpatlas_workflow.papers.dp_sgld.figures.sgld_accuracy_decreasing import (
    sgld_accuracy_decreasing,
)
from dpatlas_workflow.papers.dp_sgld.figures.sgld_along_n import sgld_along_n
from dpatlas_workflow.papers.dp_sgld.figures.sgld_long_training import sgld_long_training
from dpatlas_workflow.papers.dp_sgld.jobs.long_training import METHODS
from dpatlas_workflow.papers.dp_sgld.printed import TABLES
from dpatlas_workflow.show.output import figure_files, table_files
from dpatlas_workflow.show.panel import PRINTED
from dpatlas_workflow.show.rows import where

LEADS, protocol_record = worlds_of("dp_sgld").LEADS, worlds_of("dp_sgld").protocol_record
ROWS = [
    samples.arm("no-dp", epsilon=None),
    samples.arm("dp-sgd", "published", relation="add_remove"),
    samples.arm("dp-sgd", "guaranteed"),
    *(
        samples.arm("dp-sgld", comparison, schedule)
        for comparison in ("published", "theorem", "guaranteed")
        for schedule in ("constant", "decreasing")
    ),
    samples.arm("noisy-gd", "theorem", "constant"),
    samples.arm("repaired-cyclic", "guaranteed", "constant"),
]


def rows_of(name, shown):
    return csv_rows(table_files(name, shown, "trial")[f"{name}.csv"])


class TestAccuracy:
    def test_each_table_has_its_own_schedule_and_both_have_dp_sgd(self):
        """DP-SGD that accounts for add_remove stands in both comparisons that allow it."""
        constant = rows_of("t", sgld_accuracy_constant([samples.accuracy_record(ROWS)], {}))
        decreasing = rows_of("t", sgld_accuracy_decreasing([samples.accuracy_record(ROWS)], {}))
        assert len(constant) == 1 + 3 + 3 + 2 and len(decreasing) == 1 + 3 + 3
        for rows, schedule in ((constant, "constant"), (decreasing, "decreasing")):
            assert {row["schedule"] for row in rows} == {"", schedule}
            dp_sgd = [row for row in rows if row["method"] == "dp-sgd"]
            assert [row["comparison"] for row in dp_sgd] == ["published", "theorem", "guaranteed"]
            assert dp_sgd[0] == dp_sgd[1] | {"comparison": "published"}

    def test_means_and_standard_errors_are_over_runs_and_one_run_has_no_error(self):
        shown = sgld_accuracy_constant([samples.accuracy_record(ROWS)], {})
        row = rows_of("t", shown)[0]
        assert float(row["accuracy_mean"]) == pytest.approx(0.85)
        assert float(row["accuracy_standard_error"]) == pytest.approx(0.05 / np.sqrt(3))
        assert "85.0 ± 2.9" in table_files("t", shown, "trial")["t.md"].decode()
        single = [{**row, "accuracy": [0.5]} for row in ROWS]
        row = rows_of("t", sgld_accuracy_constant([samples.accuracy_record(single)], {}))[0]
        assert row["accuracy_standard_error"] == "" and row["accuracy_mean"] == "0.5"

    def test_rows_of_the_paper_s_protocol_stand_beside_the_printed_ones(self):
        shown = sgld_accuracy_decreasing([samples.accuracy_record(ROWS), protocol_record(4000)], {})
        pairs = list(TABLES["sgld_accuracy_decreasing"](rows_of("t", shown)))
        assert {pair.setting for pair in pairs} == {"digits, strokes-s, n = 4000"}
        found = {pair.what: (pair.printed, pair.ours.value) for pair in pairs}
        assert found == {
            "CIFAR10, resnet18, DP-SGLD: accuracy, %": (70.1, pytest.approx(89.5, abs=0.1)),
            "CIFAR10, resnet18, DP-SGD: accuracy, %": (68.1, pytest.approx(88.5, abs=0.1)),
            "CIFAR10, resnet18, No DP: accuracy, %": (70.2, pytest.approx(90.0, abs=0.1)),
        }


def test_the_headline_is_drawn_along_n_for_every_reading():
    shown = sgld_along_n([protocol_record(n) for n in LEADS], {})
    rows = csv_rows(figure_files("f", shown, "trial")["f.csv"])
    assert len(rows) == 3 * (2 * 4 + 3) + 3 * (2 * 3 + 2)
    constant = [row for row in rows if row["reading"] == "paper" and row["schedule"] == "constant"]
    value = {
        (row["source"], row["method"], int(row["n_train"])): float(row["value"]) for row in constant
    }
    for n, lead in LEADS.items():
        found = value["ours", "dp-sgld", n] - value["ours", "dp-sgd", n]
        assert found == pytest.approx(lead, abs=2e-3)
        assert value["ours less DP-SGD", "dp-sgld", n] == pytest.approx(found, abs=1e-9)
        assert value["ours", "dp-sgd, no L2 term", n] == pytest.approx(0.915, abs=2e-3)
    assert "of 12 runs" in shown.notes[1]
    assert "No DP, same L2 term" in [look.label for look in shown.looks]
    titles = ["settings: paper", "settings: unscaled lambda", "", ""]
    assert [panel.title for panel in shown.panels] == titles


def of_set(record, name):
    fields = record.spec.data.model_copy(update={"name": name})
    return replace(record, spec=record.spec.model_copy(update={"data": fields}))


def test_only_a_set_with_several_n_is_drawn_along_n_and_the_others_stand_side_by_side():
    several = [protocol_record(n) for n in LEADS]
    alone = [of_set(protocol_record(4000), name) for name in ("mnist", "cifar10")]
    above, below, *_, leads = sgld_along_n([*several, *alone], {}).grids[0].panels
    assert [panel.x.ticks for panel in (*above, *below)] == [sorted(LEADS)] * 4
    for panel in leads:
        assert [text.partition(",")[0] for text in panel.x.ticks.values()] == ["mnist", "cifar10"]
        # No line leads from one data set to another.
        assert panel.series and not any(each.look.linestyle for each in panel.series)


def test_a_lead_outside_the_axis_has_an_arrow_and_its_number():
    record = protocol_record(4000)
    for named in where(record.tables["arms"], method="dp-sgld"):
        for row in where(record.tables["runs"], arm=named["arm"]):
            row["accuracy"] = 0.2
    shown = sgld_along_n([record, protocol_record(16_000)], {})
    (lead,) = [
        row["value"]
        for row in shown.rows
        if (row["source"], row["method"], row["n_train"], row["reading"], row["schedule"])
        == ("ours less DP-SGD", "dp-sgld", 4000, "paper", "constant")
    ]
    below = shown.grids[0].panels[1][0]
    (words,) = [words for words in below.words if words.text.startswith("↓")]
    assert words.text == f"↓ {100 * lead:.3g}".replace("-", "\N{MINUS SIGN}")
    assert words.at[0] == 4000 and below.y.ends[0] < words.at[1] < 0


def test_printed_accuracies_stand_beside_ours_on_the_paper_s_data_and_backbone_alone():
    def shown(data, classes, backbone):
        record = of_set(protocol_record(4000), data)
        used = {**record.facts["backbone"], "id": f"{backbone}-01234567"}
        facts = {**record.facts, "classes": classes, "backbone": used}
        return sgld_along_n([replace(record, facts=facts)], {})

    theirs = shown("cifar10", 10, "cifar100-resnet18")
    printed = {
        row["method"]: (row["n_train"], row["epsilon"], row["value"])
        for row in theirs.rows
        if row["source"] == "printed"
    }
    assert printed == {
        "dp-sgld": (50_000, 1.0, 0.703),
        "dp-sgd": (50_000, 1.0, 0.68),
        "no-dp": (50_000, None, 0.707),
    }
    paper, code = (
        {y for each in panel.series if each.look.label == PRINTED.label for y in each.y}
        for panel in theirs.panels[:2]
    )
    assert paper == {0.703, 0.68, 0.707} and not code
    for other in (("cifar10", 5, "cifar100-resnet18"), ("cifar10", 10, "leaves-t")):
        assert all(row["source"] != "printed" for row in shown(*other).rows)


def test_points_of_long_training_have_the_t_interval_of_their_runs():
    arms = [
        samples.long_arm(method, comparison, steps)
        for steps, (method, comparison) in product((10, 100), METHODS.items())
    ]
    shown = sgld_long_training([samples.long_training_record(arms)], {})
    rows = [row for row in shown.rows if row["quantity"] == "accuracy"]
    half = stats.t.ppf(0.975, 2) * 0.05 / np.sqrt(3)
    assert len(rows) == 6
    for row in rows:
        assert row["value"] == pytest.approx(0.85)
        assert (row["low"], row["high"]) == pytest.approx((0.85 - half, 0.85 + half))
