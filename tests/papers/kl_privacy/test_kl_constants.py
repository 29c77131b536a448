import dataclasses

import numpy as np
import pytest

from dpatlas.errors import InputError
from dpatlas.papers.kl_privacy.formulas.theorems import kl_drift_integral
from dpatlas.papers.kl_privacy.gradient_norms import drift_constants


def record(change, distance, kind="training"):
    return {
        "id": "he-d3-w8-00000000",
        "spec": {"kind": kind, "sigma": 0.1, "steps": 8},
        "metrics": {
            "n_train": 20,
            "parameters": 100,
            "gradient_gap_at_start": 1e-3,
            "gradient_norm2_at_start": 0.5,
            "probe": None if change is None else {"gradient_change": change, "distance": distance},
        },
    }


RECORD = record([[0.5, 0.9, 1.2], [0.7, 0.6, 1.0]], [[0.1, 0.3, 0.5], [0.1, 0.3, 0.4]])


def test_constants_cover_every_change_that_was_probed():
    found = drift_constants(RECORD)
    assert found.c == 0.7
    assert found.beta == pytest.approx(3.0)
    probe = RECORD["metrics"]["probe"]
    covered = np.maximum(found.c, found.beta * np.array(probe["distance"]))
    assert (np.array(probe["gradient_change"]) <= covered + 1e-12).all()


def test_kl_bound_is_the_drift_integral_over_four_or_two_sigma2():
    found = drift_constants(RECORD)
    for convention, denominator in (("exact", 4), ("paper", 2)):
        integral = kl_drift_integral(0.2, **dataclasses.asdict(found), convention=convention)
        expected = integral / (denominator * 0.1**2)
        assert found.kl_bound(0.2, convention) == pytest.approx(expected)


def test_kl_bound_overflows_to_infinity():
    bound = drift_constants(RECORD).kl_bound(np.array([0.1, 1e3]), "exact")
    assert np.isfinite(bound[0])
    assert bound[1] == np.inf


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (record(None, None), "did not diverge"),
        (record([[0.5]], [[0.1]]), "at least 3 steps"),
        (record([[0.5, 0.9]], [[0.1, 0.3]], kind="linearized"), "kind training"),
    ],
)
def test_records_without_constants_are_refused(bad, words):
    with pytest.raises(InputError, match=words):
        drift_constants(bad)
