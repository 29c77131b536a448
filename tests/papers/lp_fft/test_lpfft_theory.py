"""lp_fft's simulated theory: records against closed forms, counts against hand-made rows.

That the smoke tier's simulations stay what they are is what test_shown.py keeps.
"""

import math

import numpy as np
import pytest
from lpfft_sample_records import run_theory, smoke_fields
from scipy.stats import binom

from dpatlas.errors import InputError
from dpatlas.formulas.lp_fft.alignment import distortion_probability
from dpatlas.formulas.lp_fft.imbalance import imbalance_drift
from dpatlas_workflow.papers.lp_fft.jobs.distortion import clopper_pearson
from dpatlas_workflow.papers.lp_fft.jobs.dynamics import SURELY, count_violations
from dpatlas_workflow.papers.lp_fft.jobs.linear import linear_problem
from dpatlas_workflow.papers.lp_fft.jobs.sensitivity import record_sensitivities


def run_kind(kind, seed=0, **parts):
    """The outcome of the smoke tier's job; parts: changes of its parts by name."""
    fields = smoke_fields()[kind]
    changed = {name: {**fields[name], **changes} for name, changes in parts.items()}
    return run_theory({**fields, "seed": seed, **changed})


def test_head_norm_and_loss_follow_the_corrected_formulas():
    probed = run_kind("dynamics", probing={"paths": 40_000}).metrics["probing"]
    for name in ("norm", "loss"):
        gap = np.subtract(probed[name], probed[f"{name}_exact"])
        assert np.all(np.abs(gap) < 4.5 * np.array(probed[f"{name}_standard_error"]))
    excess = np.subtract(probed["norm_paper"], probed["norm"])
    assert np.all(excess > 10 * np.array(probed["norm_standard_error"]))
    assert np.all(np.array(probed["loss"]) < probed["loss_bound_exact"])
    assert np.all(np.less(probed["loss_bound_exact"], probed["loss_bound_paper"]))


def test_cases_are_counted_once_for_all_classes_and_times():
    row = {"phase": "head", "heads": "random", "draw": 0, "sigma": 1.0, "start": 1.0}
    row |= {"lower": [1.0, 1.0], "upper": [2.0, 2.0], "standard_error": [0.01, 0.01]}
    far = 1 - (SURELY + 0.1) * 0.01
    rows = [
        row | {"class": 1, "zeroth": [0.9, 1.5], "diffusion": [far, far]},
        row | {"class": -1, "zeroth": [0.9, 2.1], "diffusion": [1.5, 0.96]},
        row | {"class": 1, "draw": 1, "zeroth": [1.5, 1.5], "diffusion": [1.5, 2.06]},
    ]
    (count,) = count_violations(rows)
    assert (count["cases"], count["zeroth_below"], count["zeroth_above"]) == (2, 1, 1)
    assert (count["diffusion_below"], count["diffusion_above"]) == (1, 1)


@pytest.mark.parametrize("count", [0, 3, 20])
def test_clopper_pearson_ends_have_the_tails_that_define_them(count):
    low, high = clopper_pearson(count, 20, 0.9)
    above, below = binom.sf(count - 1, 20, low), binom.cdf(count, 20, high)
    assert above == pytest.approx(0.05) if count else low == 0
    assert below == pytest.approx(0.05) if count < 20 else high == 1
    with pytest.raises(InputError, match="at most 4 trials"):
        clopper_pearson(5, 4)


@pytest.fixture(scope="module")
def distorted():
    many, sizes = {"trials": 4000}, {"records": 10, "inputs": 5}
    probed = {**sizes, "hidden": 4, "runs": 60, "lp_span": 40.0, "step": 0.02}
    clusters = {**many, **sizes, "hs": [1, 3]}
    parts = {"clusters": clusters, "two_records": many, "after_probing": probed}
    return run_kind("distortion", **parts).metrics


def test_small_heads_distort_with_the_claimed_probability_and_large_ones_seldom(distorted):
    small, large = distorted["two_records"]
    assert small["exact"] == pytest.approx(0.5) and large["exact"] < 0.14
    shares = [(row, row["exact"]) for row in (small, large)]
    for row in distorted["clusters"]:
        assert row["claimed"] == distortion_probability(row["h"])
        assert row["low"] < row["share"] < row["high"]
        shares.append((row, row["claimed"]))
    for row, expected in shares:
        error = math.sqrt(expected * (1 - expected) / row["trials"])
        assert abs(row["share"] - expected) < 4.5 * error


def test_cosines_fall_after_probing_unless_clusters_are_narrow(distorted):
    shares = {(row["angle"], row["fft_span"]): row for row in distorted["after_probing"]}
    assert shares[1.0, 0.1]["count"] == shares[1.0, 0.1]["aligned"]
    assert shares[44.0, 1.0]["share"] < 0.5
    for angle in (1.0, 44.0):
        assert shares[angle, 1.0]["count"] <= shares[angle, 0.1]["count"]


def test_record_sensitivities_are_the_largest_gradient_norms():
    rng = np.random.default_rng(0)
    problem = linear_problem(rng, 12, 6, 3, reached=0.2, seen=0.5)
    v, B = rng.standard_normal((1, 3)), rng.standard_normal((1, 3, 6))
    errors = [v[0] @ B[0] @ x - y for x, y in zip(problem.X, problem.Y, strict=True)]
    norms = [
        (np.linalg.norm(error * (B[0] @ x)), np.linalg.norm(error * np.outer(v[0], x)))
        for error, x in zip(errors, problem.X, strict=True)
    ]
    found = np.ravel(record_sensitivities(problem, v, B))
    np.testing.assert_allclose(found, np.max(norms, axis=0))


def test_imbalance_drifts_at_the_corrected_rate():
    sizes = {"paths": 400, "step": 0.005, "steps": 100, "every": 100}
    found = run_kind("imbalance", drift={**sizes, "inputs": 10, "records": 20}).metrics["drift"]
    assert {row["noise"] for row in found} == {"uniform", "layer-wise"}
    for row in found:
        expected = imbalance_drift(10, 0.02, row["noise"], "exact") * row["times"][-1]
        assert row["exact"][-1] == pytest.approx(expected)
        # Euler steps add a little of their own.
        assert abs(row["change"][-1] - expected) < 4.5 * row["error"][-1] + 0.01


@pytest.mark.parametrize("kind", ["sensitivity", "imbalance"])
def test_a_spec_gives_the_same_record_again_and_another_seed_another(kind):
    first = run_kind(kind)
    assert run_kind(kind) == first
    assert run_kind(kind, seed=1).metrics != first.metrics


@pytest.mark.parametrize(
    ("kind", "part", "changes", "message"),
    [
        ("dynamics", "relu", {"records": 5}, r"relu\.records: found 5; allowed: an even number"),
        ("dynamics", "relu", {"times": [0.5, 1.2]}, "equal distances"),
        ("dynamics", "relu", {"step": 5e-324}, "times: found .* equal distances"),
        ("dynamics", "probing", {"times": [1.0, 1.0]}, "increasing times"),
        ("distortion", "two_records", {"ratio": 20.0}, "acute angle"),
        ("sensitivity", "start", {"hidden": 10}, "dims: .* more than hidden = 10"),
    ],
)
def test_bad_settings_are_refused(kind, part, changes, message):
    with pytest.raises(InputError, match=message):
        run_kind(kind, **{part: changes})
