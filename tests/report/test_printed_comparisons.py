import functools
import math
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student_t
from scipy.stats import ttest_ind

from dpatlas.base.files import read_rows
from dpatlas.errors import InputError
from dpatlas_workflow.evidence.claims import read_claims
from dpatlas_workflow.evidence.printed import PrintedComparison, printed_comparisons
from dpatlas_workflow.registry import all_blocks
from dpatlas_workflow.report.page_tables import read_parts
from dpatlas_workflow.statistics import Estimate

PROJECT = Path(__file__).resolve().parents[2]
PUBLISHED = PROJECT / "docs" / "results"
ENTRIES = [entry for claim in read_claims().claims for entry in claim.entries]


def compare(name, rows):
    """Pairs for a table of any block."""
    blocks = all_blocks().values()
    return [pair for block in blocks for pair in printed_comparisons(block, name, rows)]


@functools.cache
def rows_of(tier, name):
    (path,) = (PUBLISHED / tier).rglob(f"tables/{name}.csv")
    return read_rows(path)


def test_an_accuracy_of_ours_stands_beside_the_printed_one_in_percent():
    rows = rows_of("embedded", "sgld_accuracy_constant")
    found = {(pair.what, pair.setting): pair for pair in compare("sgld_accuracy_constant", rows)}
    pair = found["CIFAR10, alexnet, DP-SGD: accuracy, %", "fonts, strokes-mlp, n = 16000"]
    wanted = {"data": "fonts", "backbone": "strokes-mlp", "method": "dp-sgd", "n_train": "16000"}
    wanted |= {"features": "penultimate", "reading": "paper", "epsilon": "1.0"}
    (ours,) = (
        row for row in rows if wanted.items() <= row.items() and row["weight_decay"] != "0.0"
    )
    assert pair.printed == 56.4
    assert pair.ours.value == pytest.approx(100 * float(ours["accuracy_mean"]))
    assert pair.difference is pair.difference_interval is None
    low, high = pair.interval
    quantile = student_t.ppf(0.975, int(ours["runs_used"]) - 1)
    half = quantile * 100 * float(ours["accuracy_standard_error"])
    assert (high - low) / 2 == pytest.approx(half, rel=1e-5)
    on_its_data = replace(pair, same_data=True)
    assert on_its_data.difference == pytest.approx(pair.ours.value - 56.4)
    assert on_its_data.difference_interval == pytest.approx((low - 56.4, high - 56.4))


# By printed data set: the name and classes of ours that are the same.
SAME_DATA = {
    **{"CIFAR10": ("cifar10", "10"), "Pneumonia": ("pneumonia", "3")},
    **{"CIFAR-10": ("cifar10", "10"), "MNIST": ("mnist", "10"), "STL-10": ("stl10", "10")},
}


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*/tables/*.csv")), ids=str)
def test_no_published_number_is_subtracted_from_one_of_other_data(path):
    rows = read_rows(path)
    theirs = [row for row in rows if row.get("source") == "printed"]
    for row in rows:
        for pair in compare(path.stem, [row, *theirs]):
            printed = pair.what.partition(",")[0]
            same = (row["data"], row["classes"]) == SAME_DATA.get(printed, SAME_DATA["STL-10"])
            assert (pair.difference is not None) == same, (pair.what, pair.setting)


def test_the_interval_of_a_difference_is_welch_s():
    ours, theirs = np.random.default_rng(0).normal(0.9, [[0.01], [0.05]], (2, 3))
    error = ours.std(ddof=1) / 3**0.5
    estimate = Estimate(float(ours.mean()), float(error), 2.0, 3)
    spread = float(theirs.std(ddof=1) / 3**0.5)
    pair = PrintedComparison("", float(theirs.mean()), spread, "", estimate, 2, same_data=True)
    expected = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert pair.difference_interval == pytest.approx((expected.low, expected.high))


def test_the_paper_s_own_rows_are_paired_with_their_data_and_kind():
    found = compare("maxinf_certificates", rows_of("workstation", "maxinf_certificates"))
    assert {pair.setting for pair in found} == {"mnist, mlp"}
    kinds = [pair.what.partition(":")[0] for pair in found]
    assert all(kind.startswith("MNIST") for kind in kinds)
    assert kinds.count("MNIST, DP-SGD prior") == kinds.count("MNIST, data-independent prior") == 5
    # The printed error widens the interval of the difference.
    assert found[0].printed_error == pytest.approx(0.03 / 3**0.5)
    ours, both = (high - low for low, high in (found[0].interval, found[0].difference_interval))
    assert both > ours


@pytest.mark.parametrize(
    ("architecture", "rank", "printed"),
    [
        ("resnet18", "", "ResNet18"),
        ("small-cnn-t", "", "ResNet18"),
        ("vit-tiny", "8", "Mini-DeiT-Ti"),
    ],
)
def test_a_strategy_stands_beside_the_backbone_that_it_stands_for(architecture, rank, printed):
    rows = rows_of("embedded", "lpfft_strategies")
    (ours, *_) = (row for row in rows if row["source"] == "ours" and row["strategy"] == "fft")
    theirs = [row for row in rows if row["source"] == "printed"]
    changed = {**ours, "architecture": architecture, "lora_rank": rank, "noise_multiplier": "0.0"}
    found = compare("lpfft_strategies", [changed, *theirs])
    assert [pair.what for pair in found] == [f"{printed}, fft, epsilon inf: accuracy, %"]
    # Neither the noise nor the epsilon of any printed row.
    other = {**changed, "noise_multiplier": "3.0", "target_epsilon": ""}
    assert compare("lpfft_strategies", [other, *theirs]) == []
    same = {**changed, "noise_multiplier": "2.2", "target_epsilon": "1.29"}
    assert len(compare("lpfft_strategies", [same, *theirs])) == 1


def test_a_single_run_has_no_interval():
    rows = rows_of("embedded", "sgld_accuracy_constant")
    for pair in compare("sgld_accuracy_constant", [{**row, "runs_used": "1"} for row in rows]):
        assert pair.interval == (-float("inf"), float("inf"))


def test_every_published_table_is_read_as_people_see_it():
    for path in (PUBLISHED / "embedded").glob("*/tables/*.md"):
        parts = read_parts(path)
        assert parts, path.name
        for part in parts:
            assert part.caption
            assert part.rows, path.name
            assert all(len(row) == len(part.head) == len(part.numeric) for row in part.rows)


def test_a_table_is_read_with_bars_inside_its_cells_and_bytes_that_are_no_text_are_named(tmp_path):
    path = tmp_path / "t.md"
    path.write_text("**A \\\\| b**\n\n| x | y |\n| --- | ---: |\n| a \\| b | 2 |\n\n_tier t_\n")
    (part,) = read_parts(path)
    assert (part.rows, part.numeric) == ([["a | b", "2"]], [False, True])
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"t\.md: found bytes that are no text"):
        read_parts(path)


def test_printed_contrasts_of_claims_are_differences_of_printed_cells():
    columns = {"accuracy_percent": 100, "bound_posterior": 1}
    cells = {}
    for block in all_blocks().values():
        for path in (resources.files(block.package) / "printed").glob("*.csv"):
            for row in read_rows(path):
                for column, unit in columns.items():
                    if row.get(column):
                        cells.setdefault(block.key, set()).add(float(row[column]) / unit)
    contrasts = [(each.paper, *printed) for each in ENTRIES for printed in each.printed.items()]
    assert len(contrasts) > 30
    for paper, what, value in contrasts:
        differences = {round(one - two, 6) for one in cells[paper] for two in cells[paper]}
        assert value in differences, (paper, what)


def test_a_margin_is_what_its_reason_says():
    read = 0
    for entry in ENTRIES:
        reason = entry.margin_from
        if half := re.match(r"Half of .*?([\d.]*\d) points", reason):
            expected = float(half[1]) / 100 / 2
        elif re.match("(One|1) point", reason):
            expected = 0.01
        elif "log 1.05" in reason:
            expected = math.log(1.05) / (2 if "two layers" in reason else 1)
        else:
            continue
        read += 1
        assert entry.margin == pytest.approx(expected, abs=1e-4), entry.id
    assert read > 50
