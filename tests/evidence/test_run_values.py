"""What a verdict rests on can be made again from the values of runs in comparisons.csv."""

from types import SimpleNamespace

import numpy as np
import pytest

from dpatlas.base.files import read_rows
from dpatlas.errors import InputError
from dpatlas_workflow.commands.verify import differences
from dpatlas_workflow.evidence.claims import COMPARISON_COLUMNS, comparison_rows, write_claims
from dpatlas_workflow.evidence.comparisons import Evidence
from dpatlas_workflow.evidence.looks import decide, decide_once
from dpatlas_workflow.evidence.run_values import differences_from_values, samples_of
from dpatlas_workflow.report.verify import interval_differences
from dpatlas_workflow.statistics import Comparison, Estimate, difference_estimate, mean_estimate


def written(folder, *decisions):
    """Rows of comparisons.csv for these decisions, as they are read again."""
    judged = {f"kl-{n}": SimpleNamespace(decision=each) for n, each in enumerate(decisions)}
    write_claims(folder / "comparisons.csv", comparison_rows(judged), COMPARISON_COLUMNS)
    return read_rows(folder / "comparisons.csv")


def once(estimate):
    return decide_once(Evidence([[Comparison("it", estimate, above=0.0)]]), 0.05)


def decided(estimate, limit=0.0):
    """The decision on one quantity; estimate: of its first so many runs."""
    return decide(lambda look: Evidence([[Comparison("it", estimate(look), limit)]]), 0.01)


@pytest.mark.parametrize("runs", [1, 2, 5, 12, 17, 24, 50, 96])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 3e7])
def test_observed_and_interval_follow_from_the_values(tmp_path, runs, scale):
    random = np.random.default_rng(runs)
    first, second = scale * (1000 + random.normal(size=(2, runs)))
    # Limits at the middle leave most of these open until their last look.
    rows = written(
        tmp_path,
        decided(lambda look: difference_estimate(first[:look], second[:look], paired=True)),
        decided(lambda look: difference_estimate(first[:look], second[:look], paired=False)),
        decided(lambda look: mean_estimate(first[:look]), limit=1000 * scale),
    )
    assert [len(samples_of(row)) for row in rows] == [1, 2, 1]
    assert {len(sample) for row in rows for sample in samples_of(row)} <= {12, 24, 48, runs}
    assert not interval_differences(tmp_path)
    whole = difference_estimate(first, second, paired=False)
    assert not differences_from_values(written(tmp_path, once(whole))[0])


@pytest.mark.parametrize("column", ["observed", "low", "high"])
def test_a_number_that_does_not_follow_is_named(tmp_path, column):
    values = np.random.default_rng(1).normal(size=24)
    (row,) = written(tmp_path, decided(lambda look: mean_estimate(values[:look])))
    other = f"{float(row[column]) + 1e-4 * (1 if column == 'high' else -1):.6g}"
    path = tmp_path / "comparisons.csv"
    path.write_text(path.read_text().replace(row[column], other))
    (line,) = interval_differences(tmp_path)
    assert line.startswith(f"comparisons.csv: kl-0, it: {column} {float(other):g} in place of ")
    (tmp_path / "runs").mkdir()
    assert line in differences(tmp_path)


@pytest.mark.parametrize(
    "ends", [{"low": ""}, {"high": ""}, {"low": "", "high": ""}, {"low": "-inf"}]
)
def test_an_end_that_is_left_out_is_named(tmp_path, ends):
    values = np.random.default_rng(1).normal(size=24)
    (row,) = written(tmp_path, decided(lambda look: mean_estimate(values[:look])))
    assert len(differences_from_values(row | ends)) == len(ends)


def test_of_runs_that_became_equal_the_earlier_interval_counts(tmp_path):
    values = [1.0, 1.0, 1.0, 0.9, 1.05, 0.8] + [1.0] * 6
    (row,) = written(tmp_path, decided(lambda look: mean_estimate(values[:look]), limit=0.9))
    assert row["runs"] == "12" and row["low"] and not differences_from_values(row)


def test_of_a_name_that_changes_with_the_runs_earlier_intervals_need_not_count(tmp_path):
    values = np.concatenate([np.random.default_rng(3).normal(size=12), 1 + 9 * np.arange(12) % 5])

    def evidence(look):
        name = f"of {look} runs"
        return Evidence([[Comparison(name, mean_estimate(values[:look]), above=0.0)]])

    rows = written(tmp_path, decide(evidence, 0.01))
    assert rows[0]["runs"] == "24"
    assert not differences_from_values(rows[0])


def test_what_has_no_runs_has_no_values(tmp_path):
    known, many = Estimate(1.0, 0.1, float("inf"), 100), mean_estimate(np.arange(97.0))
    for row in written(tmp_path, once(known), once(many)):
        assert row["values"] == "" and not differences_from_values(row)
        # As in what was published before there was such a column.
        assert not differences_from_values({key: row[key] for key in row if key != "values"})


@pytest.mark.parametrize("text", ["1 two", "1 2 |", "1 | 2 | 3"])
def test_values_that_are_none_are_refused(text):
    with pytest.raises(InputError, match=r"comparisons\.csv, kl-1, values: found"):
        samples_of({"claim": "kl-1", "values": text})
