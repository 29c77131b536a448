"""The constants of Lemma 3.2 that a training record shows, and the bound made of them."""

import dataclasses

import numpy as np
import pytest
from kl_sample_records import RUNS, training_record

from dpatlas.errors import InputError
from dpatlas.papers.kl_privacy.drift_constants import drift_constants
from dpatlas.papers.kl_privacy.formulas.theorems import kl_drift_integral
from dpatlas.papers.kl_privacy.records import training


def record(change, distance):
    """A training record with these probes, each a list per run."""
    sample = training_record("he", runs=len(change))
    steps = sample.metrics.probe.steps
    probe = training.Probe(steps=steps, gradient_change=change, distance=distance)
    return dataclasses.replace(sample, metrics=sample.metrics.model_copy(update={"probe": probe}))


RECORD = record([[0.5, 0.9, 1.2], [0.7, 0.6, 1.0]], [[0.1, 0.3, 0.5], [0.1, 0.3, 0.4]])


def test_constants_cover_every_change_that_was_probed():
    constants = drift_constants(RECORD)
    assert constants.c == 0.7
    assert constants.beta == pytest.approx(3.0)
    probe = RECORD.metrics.probe
    covered = np.maximum(constants.c, constants.beta * np.array(probe.distance))
    assert (np.array(probe.gradient_change) <= covered + 1e-12).all()


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
