"""The constants of Lemma 3.2 that a training record shows, and the bound made of them."""

import dataclasses

import pytest
from kl_sample_records import RUNS, training_record

from dpatlas.base.records import rows_of
from dpatlas.errors import InputError
from dpatlas.formulas.kl_privacy.theorems import kl_drift_integral
from dpatlas_workflow.papers.kl_privacy.readings import drift_constants


def record(change, distance):
    """A training record with these probes, each a list per run."""
    sample = training_record("he", runs=len(change))
    axes = {"run": range(len(change)), "step": [1, 2, 4]}
    probe = rows_of(axes, gradient_change=change, distance=distance)
    return dataclasses.replace(sample, tables={**sample.tables, "probe": probe})


RECORD = record([[0.5, 0.9, 1.2], [0.7, 0.6, 1.0]], [[0.1, 0.3, 0.5], [0.1, 0.3, 0.4]])


def test_constants_cover_every_change_that_was_probed():
    constants = drift_constants(RECORD)
    assert constants.c == 0.7
    assert constants.beta == pytest.approx(3.0)
    for row in RECORD.tables["probe"]:
        covered = max(constants.c, constants.beta * row["distance"])
        assert row["gradient_change"] <= covered + 1e-12


def test_kl_bound_is_the_drift_integral_over_four_or_two_sigma2():
    constants = drift_constants(RECORD)
    for convention, denominator in (("exact", 4), ("paper", 2)):
        integral = kl_drift_integral(0.2, **dataclasses.asdict(constants), convention=convention)
        expected = integral / (denominator * 0.1**2)
        assert constants.kl_bound(0.2, convention) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (training_record(diverged=RUNS), "did not diverge"),
        (training_record(steps=2), "at least 3 steps"),
    ],
)
def test_records_without_constants_are_refused(bad, message):
    with pytest.raises(InputError, match=message):
        drift_constants(bad)
