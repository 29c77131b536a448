"""lp_fft's simulated theory: records against closed forms, counts against hand-made rows."""

import copy
import math

import numpy as np
import pytest
import yaml
from lpfft_sample_records import run_theory

from dpatlas.errors import InputError
from dpatlas.formulas.lp_fft.alignment import distortion_probability
from dpatlas.formulas.lp_fft.imbalance import imbalance_drift
from dpatlas_workflow.papers.lp_fft.jobs.distortion import clopper_pearson
from dpatlas_workflow.papers.lp_fft.jobs.dynamics import SURELY, count_violations
from dpatlas_workflow.papers.lp_fft.jobs.linear import linear_problem
from dpatlas_workflow.papers.lp_fft.jobs.sensitivity import record_sensitivities
from dpatlas_workflow.show.rows import where

FIELDS = yaml.safe_load("""
dynamics:
  relu:
    {records: 4, inputs: 3, hidden: 4, angle: 20.0, head_variance: 0.25, step: 0.02,
     times: [0.5, 1.0, 1.5, 2.0]}
  probing:
    {records: 10, inputs: 6, hidden: 3, head_variance: 0.4, sigma2: 0.05, b_norm2: 0.19,
     paths: 40000, times: [0.2, 1.0, 2.0]}
  fine_tuning:
    {sizes: [[10, 8]], head_excess: 4.0, noise_share: 0.5, step: 0.02, span: 3.0, points: 4,
     paths: 200}
distortion:
  clusters:
    {records: 10, inputs: 5, angle: 40.0, hs: [1, 3], head_variances: [0.01, 100.0], trials: 4000}
  two_records: {spread: 0.2, ratio: 2.0, head_variances: [0.01, 100.0], trials: 4000}
  after_probing:
    {records: 10, inputs: 5, hidden: 4, head_variance: 0.25, feature_angle: 44.0,
     angles: [1.0, 44.0], runs: 60, lp_span: 40.0, lp_step: 0.1, fft_spans: [0.1, 1.0], step: 0.02}
  counterexample: {lp_spans: [1.0, 16.0], span: 2.0, step: 0.02}
sensitivity:
  start: {hidden: 4, records_per_input: 2, dims: [10, 40], seeds: 400}
  drift:
    {d: 10, hidden: 4, records_per_input: 2, reading: variance, seeds: 50, sigma2: 0.01,
     step: 0.01, steps: 20, every: 10}
imbalance:
  gap:
    {hidden: 8, inputs: 10, records: 20, head_variance: 1.0, sigmas: [100.0], max_grad_norm: 1.0,
     lr: 0.02, steps: 20, every: 20, paths: 400}
  drift:
    {hidden: 8, inputs: 10, records: 20, head_variance: 0.25, sigma2: 0.02, step: 0.005,
     steps: 100, every: 100, paths: 400}
""")
FIELDS["dynamics"]["relu"]["phases"] = {
    "head": {"sigmas": [0.25, 1.5], "draws": 4, "paths": 500},
    "all": {"sigmas": [0.1], "draws": 2, "paths": 50},
}


def run_kind(kind, seed=0, **changes):
    """The outcome of the job of a kind with these fields, changed."""
    named = {"key": "lp_fft", "kind": kind, "seed": seed, "noise_source": "keyed"}
    return run_theory({**named, **FIELDS[kind], **changes})


def changed(fields, place, value):
    """A copy with one value, at a path of keys, replaced."""
    fields = copy.deepcopy(fields)
    inside = fields
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return fields


@pytest.fixture(scope="module")
def simulated():
    return run_kind("dynamics").metrics


@pytest.fixture(scope="module")
def distorted():
    return run_kind("distortion").metrics


class TestDynamics:
    def test_thm_4_2_encloses_the_zeroth_order_model_and_not_the_diffusion(self, simulated):
        (count,) = where(simulated["counts"], phase="head")
        assert count["cases"] == 8
        assert count["zeroth_below"] == count["zeroth_above"] == count["diffusion_above"] == 0
        assert count["diffusion_below"] >= 2

    def test_head_norm_and_loss_follow_the_corrected_formulas(self, simulated):
        probed = simulated["probing"]
        for mean, formula, error in (
            (probed["norm"], probed["norm_exact"], probed["norm_standard_error"]),
            (probed["loss"], probed["loss_exact"], probed["loss_standard_error"]),
        ):
            assert np.all(np.abs(np.subtract(mean, formula)) < 4.5 * np.array(error))
        excess = np.subtract(probed["norm_paper"], probed["norm"])
        assert np.all(excess > 10 * np.array(probed["norm_standard_error"]))
        assert np.all(np.array(probed["loss"]) < probed["loss_bound_exact"])
        assert np.all(np.less(probed["loss_bound_exact"], probed["loss_bound_paper"]))

    def test_thm_4_5_is_exceeded(self, simulated):
        (row,) = simulated["fine_tuning"]
        assert row["largest_ratio"] - 5 * row["largest_ratio_error"] > 1.5
        assert row["times"][-1] == pytest.approx(3, rel=0.1)
        assert row["largest_ratio"] == np.divide(row["loss"], row["bound"]).max()

    def test_cases_are_counted_once_for_all_classes_and_times(self):
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


class TestDistortion:
    @pytest.mark.parametrize("count", [0, 3, 20])
    def test_clopper_pearson_ends_have_the_tails_that_define_them(self, count):
        low, high = clopper_pearson(count, 20, 0.9)

        def tail(p, counts):
            return sum(math.comb(20, k) * p**k * (1 - p) ** (20 - k) for k in counts)

        if count:
            assert tail(low, range(count, 21)) == pytest.approx(0.05)
        else:
            assert low == 0
        if count < 20:
            assert tail(high, range(count + 1)) == pytest.approx(0.05)
        else:
            assert high == 1

    def test_more_successes_than_trials_are_refused(self):
        with pytest.raises(InputError, match="at most 4 trials"):
            clopper_pearson(5, 4)

    def test_small_heads_distort_clusters_with_the_claimed_probability(self, distorted):
        for row in distorted["clusters"]:
            assert row["claimed"] == distortion_probability(row["h"])
            error = math.sqrt(row["claimed"] * (1 - row["claimed"]) / row["trials"])
            assert abs(row["share"] - row["claimed"]) < 4.5 * error
            assert row["low"] < row["share"] < row["high"]

    def test_large_heads_seldom_distort_two_records(self, distorted):
        small, large = distorted["two_records"]
        assert small["exact"] == pytest.approx(0.5)
        assert large["exact"] < 0.14
        for row in (small, large):
            error = math.sqrt(row["exact"] * (1 - row["exact"]) / row["trials"])
            assert abs(row["share"] - row["exact"]) < 4.5 * error

    def test_cosines_fall_after_probing_unless_clusters_are_narrow(self, distorted):
        shares = {(row["angle"], row["fft_span"]): row for row in distorted["after_probing"]}
        assert shares[1.0, 0.1]["count"] == shares[1.0, 0.1]["aligned"]
        assert shares[44.0, 1.0]["share"] < 0.5
        for angle in (1.0, 44.0):
            assert shares[angle, 1.0]["count"] <= shares[angle, 0.1]["count"]

    def test_a_cosine_falls_after_probing_of_any_length(self, distorted):
        for row in distorted["counterexample"]:
            assert row["aligned"]
            assert row["fall"] > 1e-3
            assert row["s"][-1] == pytest.approx(2.0)
            assert len(row["s"]) == len(row["cosine"])


class TestLayers:
    def test_record_sensitivities_are_the_largest_gradient_norms(self):
        rng = np.random.default_rng(0)
        problem = linear_problem(rng, 12, 6, 3, reached=0.2, seen=0.5)
        v, B = rng.standard_normal((1, 3)), rng.standard_normal((1, 3, 6))
        found = record_sensitivities(problem, v, B)
        errors = [v[0] @ B[0] @ x - y for x, y in zip(problem.X, problem.Y, strict=True)]
        heads = [np.linalg.norm(e * (B[0] @ x)) for e, x in zip(errors, problem.X, strict=True)]
        features = [
            np.linalg.norm(e * np.outer(v[0], x)) for e, x in zip(errors, problem.X, strict=True)
        ]
        np.testing.assert_allclose(found, [[max(heads)], [max(features)]])

    def test_only_one_reading_of_prop_e10_grows_like_the_root_of_d(self):
        rows = run_kind("sensitivity").metrics["start"]
        growth = {}
        for reading in ("variance", "deviation"):
            first, last = where(rows, reading=reading)
            ratios = {
                "record": last["record_ratio"] / first["record_ratio"],
                "ball": last["ball_ratio"] / first["ball_ratio"],
            }
            for kind, ratio in ratios.items():
                growth[kind, reading] = math.log(ratio) / math.log(4)
        assert growth["ball", "deviation"] == pytest.approx(0.5, abs=0.08)
        assert growth["ball", "variance"] == pytest.approx(0.25, abs=0.08)
        assert growth["record", "variance"] < 0 < growth["record", "deviation"] < 0.3

    def test_imbalance_drifts_at_the_corrected_rate(self):
        found = run_kind("imbalance").metrics
        assert {row["noise"] for row in found["drift"]} == {"uniform", "layer-wise"}
        for row in found["drift"]:
            time = row["times"][-1]
            expected = imbalance_drift(10, 0.02, row["noise"], "exact") * time
            assert row["exact"][-1] == pytest.approx(expected)
            # Euler steps add a little of their own.
            assert abs(row["change"][-1] - expected) < 4.5 * row["error"][-1] + 0.01
        (gap,) = found["gap"]
        assert gap["gap"][0] == pytest.approx(0, abs=1e-12)
        assert gap["eigenvalue"][0] == pytest.approx(-1)
        assert 0.007 < gap["gap"][-1] < 0.015


@pytest.mark.parametrize("kind", ["sensitivity", "imbalance"])
def test_a_spec_gives_the_same_record_again_and_another_seed_another(kind):
    first = run_kind(kind)
    assert run_kind(kind) == first
    assert run_kind(kind, seed=1).metrics != first.metrics


@pytest.mark.parametrize(
    ("kind", "place", "value", "message"),
    [
        ("dynamics", ("relu", "records"), 5, r"relu\.records: found 5; allowed: an even number"),
        ("dynamics", ("relu", "times"), [0.5, 1.2], "equal distances"),
        ("dynamics", ("relu", "step"), 5e-324, "times: found .* equal distances"),
        ("dynamics", ("probing", "times"), [1.0, 1.0], "increasing times"),
        ("distortion", ("two_records", "ratio"), 20.0, "acute angle"),
        ("sensitivity", ("start", "hidden"), 10, "dims: .* more than hidden = 10"),
    ],
)
def test_bad_settings_are_refused(kind, place, value, message):
    fields = FIELDS[kind]
    if kind == "distortion":
        fields = changed(fields, ("clusters", "trials"), 10)
    with pytest.raises(InputError, match=message):
        run_kind(kind, **changed(fields, place, value))
