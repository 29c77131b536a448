"""max_information without data: curves are the formulas', and simulated moments lie below them."""

import math

import numpy as np
import pytest
from maxinf_sample_records import job_record, typed

from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.kappa import kappa, kappa_explicit, kappa_tight
from dpatlas.papers.max_information.formulas.mechanisms import leading_term_ratio
from dpatlas.papers.max_information.jobs.simulation import LAWS

BASE = {"n": 60_000, "m": 5000, "zeta": 0.01, "sigma": 1.0, "E": 1, "delta": 0.05}
AXES = {
    "n": [5000, 60_000, 600_000],
    "zeta_over_sigma": [0.001, 0.01, 0.1],
    "E": [1, 20],
    "T": [1, 12, 60],
    "delta": [0.001, 0.05],
}


def run(folder, kind, **fields):
    """Metrics of a job."""
    (record,) = typed([job_record(folder, kind, **fields)])
    return record.metrics


@pytest.fixture(scope="module")
def panels(tmp_path_factory):
    metrics = run(tmp_path_factory.mktemp("kappa"), "kappa", base=BASE, axes=AXES)
    return {panel.axis: panel for panel in metrics.panels}


def test_leading_coefficients_have_the_ratio_of_lemma_6(tmp_path):
    betas = [1e-8, 1e-3, 0.5]
    metrics = run(tmp_path, "coefficients", alphas=[0.5, 3.0], betas=betas)
    assert metrics.alphas == [0.5, 3.0] == [curve.alpha for curve in metrics.curves]
    for curve in metrics.curves:
        ratio = np.divide(curve.gaussian_leading, curve.pure_dp_leading)
        expected = leading_term_ratio(curve.alpha, np.array(curve.beta))
        np.testing.assert_allclose(ratio, expected)
        assert np.all((ratio >= 0.25) & (ratio <= 2))
        assert len(curve.gaussian_root) == len(curve.pure_dp_root) == 3


def test_every_panel_meets_at_the_base_setting(panels):
    places = {"n": 60_000, "zeta_over_sigma": 0.01, "E": 1, "T": 12, "delta": 0.05}
    expected = {
        "optimised": float(kappa(5000, 0.01, 1.0, 12, 1, 0.025)) / 60_000,
        "explicit": float(kappa_explicit(5000, 0.01, 1.0, 12, 1, 0.025)) / 60_000,
        "tight": float(kappa_tight(5000, 0.01, 1.0, 12, 1, 0.025)) / 60_000,
        "confidence": math.log(4 * math.sqrt(60_000) / 0.05) / 60_000,
    }
    for axis, value in places.items():
        at = panels[axis].x.index(value)
        for name, wanted in expected.items():
            assert getattr(panels[axis], name)[at] == pytest.approx(wanted, rel=1e-12), (axis, name)


def test_forms_keep_their_order_along_every_axis(panels):
    for panel in panels.values():
        for tight, optimised, explicit, repaired in zip(
            *(panel.tight, panel.optimised, panel.explicit, panel.repaired), strict=True
        ):
            assert tight <= optimised < explicit
            assert repaired is None or repaired >= optimised * (1 - 1e-12)


def test_batches_on_the_axis_of_T_use_all_records(panels):
    expected = [float(kappa(60_000 // T, 0.01, 1.0, T, 1, 0.025)) / 60_000 for T in (1, 12, 60)]
    np.testing.assert_allclose(panels["T"].optimised, expected)


def test_what_is_beyond_all_numbers_is_null(tmp_path):
    (panel,) = run(tmp_path, "kappa", base={**BASE, "zeta": 0.1}, axes={"E": [1, 200]}).panels
    assert panel.repaired[0] is not None and panel.repaired[1] is None


@pytest.mark.parametrize(
    ("base", "axes", "message"),
    [
        ({}, {"sigma": [1.0]}, "axes.sigma"),
        ({}, {"n": [4999]}, "m: found 5000; allowed: at most n = 4999"),
        ({}, {"T": [60_001]}, "T: found 60001"),
        ({}, {"delta": [1.0]}, "delta"),
        ({"zeta": 0.0}, {"n": [60_000]}, "zeta"),
    ],
)
def test_bad_axes_are_refused(base, axes, message, tmp_path):
    with pytest.raises(InputError, match=message):
        run(tmp_path, "kappa", base={**BASE, **base}, axes=axes)


SIMULATED = {"m": 20, "draws": 20_000, "nus": [0.5, 2.0], "ys": [0.02, 0.1, 0.2]}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulation")
    return run(folder, "simulation", laws=list(LAWS), **SIMULATED).rows


def test_simulated_moments_lie_below_both_bounds(simulated):
    assert len(simulated) == len(LAWS) * 2 * 3
    for row in simulated:
        assert row.x == row.y / row.nu
        assert row.simulated - 5 * row.standard_error <= row.tight <= row.lemma_10
        # The bound on the mean alone: E e^(y D) >= 1.
        assert row.simulated > 1


def test_sums_of_signs_have_the_largest_variance_that_is_allowed(simulated):
    """E D = 1 for a mean of zero and unit vectors, by definition of nu; less for the others."""
    smallest = min(SIMULATED["ys"])
    for law, expected in (("signs", 1.0), ("sphere", 1.0), ("rare-signs", 0.36), ("axes", 0.48)):
        (value,) = (
            row.simulated for row in simulated if (row.law, row.nu, row.y) == (law, 0.5, smallest)
        )
        assert math.log(value) == pytest.approx(smallest * expected, rel=0.08)


def test_values_of_nu_have_draws_of_their_own(simulated):
    found = {row.nu: row.simulated for row in simulated if row.law == "sphere"}
    assert found[0.5] != found[2.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"laws": ["cauchy"]}, "'signs', 'rare-signs', 'sphere' or 'axes'"),
        ({"nus": [0.0]}, "nus"),
        ({"ys": [0.5]}, "ys.0: found"),
        ({"m": 0}, "m: found 0"),
        ({"draws": 1}, "draws"),
    ],
)
def test_bad_simulations_are_refused(changes, message, tmp_path):
    with pytest.raises(InputError, match=message):
        run(tmp_path, "simulation", **{"laws": ["signs"], **SIMULATED, **changes})
