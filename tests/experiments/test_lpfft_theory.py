"""lp_fft's simulated theory: integrators against closed forms, counts against hand-made rows."""

import copy
import math

import numpy as np
import pytest

from dpatlas.bounds.lp_fft import zeroth_order_loss_drift
from dpatlas.bounds.lp_fft_alignment import cosine_drift, distortion_probability
from dpatlas.bounds.lp_fft_imbalance import imbalance_drift
from dpatlas.core.canonical import canonical_json
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError
from dpatlas.experiments.job import Job
from dpatlas.experiments.lpfft_distortion import clopper_pearson, distortion
from dpatlas.experiments.lpfft_dynamics import SURELY, count_violations, dynamics
from dpatlas.experiments.lpfft_layers import (
    ball_sensitivities,
    imbalance,
    record_sensitivities,
    sensitivity,
)
from dpatlas.experiments.lpfft_linear import (
    fine_tuning,
    largest_noise,
    least_head_variance,
    linear_problem,
    probing,
)
from dpatlas.experiments.lpfft_relu import (
    ReluNet,
    cosine_rates,
    diffusion_losses,
    directions,
    flow,
    labels,
    log_losses,
    velocity,
    zeroth_order_losses,
)

DYNAMICS = {
    "relu": {
        "records": 4,
        "inputs": 3,
        "hidden": 4,
        "angle": 20.0,
        "head_variance": 0.25,
        "step": 0.02,
        "times": [0.5, 1.0, 1.5, 2.0],
        "phases": {
            "head": {"sigmas": [0.25, 1.5], "draws": 4, "paths": 500},
            "all": {"sigmas": [0.1], "draws": 2, "paths": 50},
        },
    },
    "probing": {
        "records": 10,
        "inputs": 6,
        "hidden": 3,
        "head_variance": 0.4,
        "sigma2": 0.05,
        "b_norm2": 0.19,
        "paths": 40_000,
        "times": [0.2, 1.0, 2.0],
    },
    "fine_tuning": {
        "sizes": [[10, 8]],
        "head_excess": 4.0,
        "noise_share": 0.5,
        "step": 0.02,
        "span": 3.0,
        "points": 4,
        "paths": 200,
    },
}
DISTORTION = {
    "clusters": {
        "records": 10,
        "inputs": 5,
        "angle": 40.0,
        "hs": [1, 3],
        "head_variances": [0.01, 100.0],
        "trials": 4000,
    },
    "two_records": {
        "spread": 0.2,
        "ratio": 2.0,
        "head_variances": [0.01, 100.0],
        "trials": 4000,
    },
    "after_probing": {
        "records": 10,
        "inputs": 5,
        "hidden": 4,
        "head_variance": 0.25,
        "feature_angle": 44.0,
        "angles": [1.0, 44.0],
        "runs": 60,
        "lp_span": 40.0,
        "lp_step": 0.1,
        "fft_spans": [0.1, 1.0],
        "step": 0.02,
    },
    "counterexample": {"lp_spans": [1.0, 16.0], "span": 2.0, "step": 0.02},
}
SENSITIVITY = {
    "start": {"hidden": 4, "records_per_input": 2, "dims": [10, 40], "seeds": 400},
    "drift": {
        "d": 10,
        "hidden": 4,
        "records_per_input": 2,
        "reading": "variance",
        "seeds": 50,
        "sigma2": 0.01,
        "step": 0.01,
        "steps": 20,
        "every": 10,
    },
}
IMBALANCE = {
    "gap": {
        "hidden": 8,
        "inputs": 10,
        "records": 20,
        "head_variance": 1.0,
        "sigmas": [100.0],
        "max_grad_norm": 1.0,
        "lr": 0.02,
        "steps": 20,
        "every": 20,
        "paths": 400,
    },
    "drift": {
        "hidden": 8,
        "inputs": 10,
        "records": 20,
        "head_variance": 0.25,
        "sigma2": 0.02,
        "step": 0.005,
        "steps": 100,
        "every": 100,
        "paths": 400,
    },
}


def job(kind, fields, **common):
    keys = {"key": "lp_fft", "kind": kind, "seed": 0, "noise_source": "keyed", **common}
    return Job(Spec.of({**keys, **fields}, kind), None, "cpu", checkpoints=None, stopwatch=None)


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
    return dynamics(job("dynamics", DYNAMICS))["metrics"]


@pytest.fixture(scope="module")
def distorted():
    return distortion(job("distortion", DISTORTION))["metrics"]


def network(rng, n=6, h=4, d=3):
    y, c = labels(n), labels(h)
    x = y[:, None] * directions(rng, (n,), d, 30)
    return x, y, c, ReluNet(rng.standard_normal(h), c[:, None] * directions(rng, (h,), d, 30))


class TestRelu:
    def test_directions_are_unit_vectors_within_their_angle(self):
        found = directions(np.random.default_rng(0), (2000,), 4, 30)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
        turned = np.rad2deg(np.arccos(found[:, 0]))
        assert 29.5 < turned.max() < 30.001 and turned.min() < 0.5

    @pytest.mark.parametrize("phase", ["head", "all"])
    def test_velocity_is_minus_the_numerical_gradient(self, phase):
        x, y, _, net = network(np.random.default_rng(1))

        def loss(v, W):
            return np.exp(log_losses(ReluNet(v, W), x, y)).sum()

        found = velocity(net, x, y, phase)
        for j in range(len(net.v)):
            moved = net.v + 1e-6 * (np.arange(len(net.v)) == j)
            slope = (loss(moved, net.W) - loss(net.v, net.W)) / 1e-6
            assert found.v[j] == pytest.approx(-slope, rel=1e-4)
        bump = np.zeros_like(net.W)
        bump[1, 2] = 1e-6
        slope = (loss(net.v, net.W + bump) - loss(net.v, net.W)) / 1e-6
        expected = 0 if phase == "head" else -slope
        assert found.W[1, 2] == pytest.approx(expected, rel=1e-4)

    def test_cosine_rates_are_those_of_the_exact_identity(self):
        x, y, c, net = network(np.random.default_rng(2))
        losses = np.exp(log_losses(net, x, y))
        expected = cosine_drift(x, y, net.W.T, net.v, losses) / losses.sum()
        np.testing.assert_allclose(cosine_rates(net, x, y, c), expected)

    def test_span_of_the_flow_is_the_integral_of_the_loss(self):
        """One record and feature: v rises by w.x for every unit of the integral."""
        x, y = np.array([[2.0, 0.0]]), np.array([1.0])
        start = ReluNet(np.array([-0.3]), np.array([[0.5, 0.0]]))
        *_, last = flow(start, x, y, "head", 3.0, 7)
        assert last.v[0] == pytest.approx(-0.3 + 3.0)

    def test_zeroth_order_loss_without_noise_is_that_of_gradient_flow(self):
        """One record under LP: dL/dt = -k L^2."""
        x, y = np.array([[2.0, 0.0]]), np.array([1.0])
        net = ReluNet(np.array([0.1]), np.array([[0.5, 0.0]]))
        found = zeroth_order_losses(
            net, x, y, "head", sigma=np.array([[0.0]]), step=0.02, every=50, count=1
        )
        start = math.exp(-0.1)
        assert found[0, 0, 0] == pytest.approx(start / (1 + start), rel=1e-6)

    def test_zeroth_order_loss_begins_with_the_drift_of_the_formula(self):
        x, y, _, net = network(np.random.default_rng(3))
        sigma = np.array([[0.5]])
        found = zeroth_order_losses(net, x, y, "all", sigma=sigma, step=1e-5, every=1, count=1)
        phi = np.maximum(x @ net.W.T, 0)
        gates = (phi > 0) * net.v
        kernel = phi @ phi.T + (gates @ gates.T) * (x @ x.T)
        losses = np.exp(log_losses(net, x, y))
        drift = zeroth_order_loss_drift(losses, y, kernel, 0.5)
        moved = (found[0, 0, 0] - losses[y > 0].sum()) / 1e-5
        assert moved == pytest.approx(drift[y > 0].sum(), rel=1e-3)

    def test_a_step_that_is_too_large_is_refused(self):
        x, y, _, net = network(np.random.default_rng(1))
        wild = ReluNet(-8 * labels(4), net.W)
        with pytest.raises(InputError, match="step"):
            zeroth_order_losses(
                wild, x, y, "head", sigma=np.array([[1.0]]), step=0.5, every=1, count=4
            )

    def test_diffusion_has_noise_of_variance_sigma2_t(self):
        """A record far on the right side: no drift, so -log L is normal with that variance."""
        x, y = np.array([[1.0, 0.0]]), np.array([1.0])
        starts = ReluNet(np.full((1, 4000, 1), 30.0), np.array([[[[1.0, 0.0]]]]))
        losses = diffusion_losses(
            starts, x, y, "head", sigma=np.array([[0.7]]), rng=np.random.default_rng(4),
            step=0.1, every=20, count=1,
        )[0, 0, :, 0]  # fmt: skip
        variance = np.log(losses).var(ddof=1)
        assert variance == pytest.approx(0.98, abs=5 * 0.98 * math.sqrt(2 / 4000))


class TestLinear:
    @pytest.mark.parametrize(("n", "d", "h", "reached", "seen"), [
        (10, 6, 3, 0.2, 0.7), (6, 6, 6, 1.0, 1.0), (8, 8, 3, 0.4, 1.0),
    ])  # fmt: skip
    def test_a_problem_has_the_norms_that_were_asked_for(self, n, d, h, reached, seen):
        problem = linear_problem(np.random.default_rng(0), n, d, h, reached=reached, seen=seen)
        np.testing.assert_allclose(problem.X.T @ problem.X, np.eye(d), atol=1e-12)
        np.testing.assert_allclose(problem.B @ problem.B.T, np.eye(h), atol=1e-12)
        assert np.sum(problem.Y**2) == pytest.approx(1)
        assert problem.u @ problem.u == pytest.approx(seen)
        assert problem.b @ problem.b == pytest.approx(reached)

    @pytest.mark.parametrize("sizes", [(5, 6, 3), (6, 6, 7), (6, 6, 6)])
    def test_problems_without_room_are_refused(self, sizes):
        with pytest.raises(InputError):
            linear_problem(np.random.default_rng(0), *sizes, reached=0.5)

    def test_probing_without_noise_is_gradient_flow(self):
        problem = linear_problem(np.random.default_rng(0), 8, 6, 3, reached=0.5)
        v = np.ones((1, 3))
        *_, last = probing(problem, v, 0.0, [0.5, 2.0], np.random.default_rng(1))
        step, state = 1e-4, v
        for _ in range(20_000):
            error = state @ problem.B @ problem.X.T - problem.Y
            state = state - step * error @ problem.X @ problem.B.T
        np.testing.assert_allclose(last, state, atol=1e-3)

    def test_residual_gives_the_gradients_of_the_loss(self):
        rng = np.random.default_rng(0)
        problem = linear_problem(rng, 8, 6, 3, reached=0.5)
        v, B = rng.standard_normal((1, 3)), rng.standard_normal((1, 3, 6))
        quiet = {"step": 1e-6, "deviations": (0.0, 0.0), "steps": 1, "rng": rng}
        ((moved_v, moved_B),) = fine_tuning(v, B, problem.residual, **quiet)
        fallen = problem.losses(v, B) - problem.losses(moved_v, moved_B)
        squares = np.sum((moved_v - v) ** 2) + np.sum((moved_B - B) ** 2)
        assert fallen[0] == pytest.approx(squares / 1e-6, rel=1e-4)

    def test_clipped_gradients_are_the_sum_of_clipped_records(self):
        rng = np.random.default_rng(0)
        problem = linear_problem(rng, 8, 6, 3, reached=0.5)
        v, B = rng.standard_normal((1, 3)), rng.standard_normal((1, 3, 6))
        head = np.zeros(3)
        for x, y in zip(problem.X, problem.Y, strict=True):
            error = v[0] @ B[0] @ x - y
            parts = error * (B[0] @ x), error * np.outer(v[0], x)
            norm = math.sqrt(sum(np.sum(part**2) for part in parts))
            head += parts[0] * min(1, 0.3 / norm)
        found = B[0] @ problem.clipped_residual(v, B, 0.3)[0]
        np.testing.assert_allclose(found, head)
        loose = problem.clipped_residual(v, B, 1e9)
        np.testing.assert_allclose(loose, problem.residual(v, B), atol=1e-12)

    def test_assumption_e7_leaves_room_for_noise_just_above_its_least_variance(self):
        for d, h in ((4, 3), (40, 40)):
            least = least_head_variance(h, d, 1.0)
            assert largest_noise(h, d, 1.01 * least, 1.0, 0.5) > 0
            assert largest_noise(h, d, 0.99 * least, 1.0, 0.5) < 0


class TestDynamics:
    def test_thm_4_2_encloses_the_zeroth_order_model_and_not_the_diffusion(self, simulated):
        (count,) = (each for each in simulated["counts"] if each["phase"] == "head")
        assert count["cases"] == 8
        assert count["zeroth_below"] == count["zeroth_above"] == count["diffusion_above"] == 0
        assert count["diffusion_below"] >= 2

    def test_diffusion_with_little_noise_follows_the_zeroth_order_model(self, simulated):
        for row in simulated["relu"]:
            if row["phase"] == "head" and row["sigma"] == 0.25:
                np.testing.assert_allclose(row["diffusion"], row["zeroth"], rtol=0.15)

    def test_aligned_and_random_heads_share_data_and_sizes(self, simulated):
        kinds = {row["heads"] for row in simulated["relu"] if row["phase"] == "all"}
        assert kinds == {"random", "aligned"}
        starts = [row["start"] for row in simulated["relu"] if row["heads"] == "aligned"]
        assert max(starts) < 2  # every record on its right side: below its class's two records

    def test_head_norm_and_loss_follow_the_corrected_formulas(self, simulated):
        found = simulated["probing"]
        for name, formula in (("norm", "norm_exact"), ("loss", "loss_exact")):
            apart = np.subtract(found[name], found[formula])
            assert np.all(np.abs(apart) < 4.5 * np.array(found[f"{name}_standard_error"]))
        excess = np.subtract(found["norm_paper"], found["norm"])
        assert np.all(excess > 10 * np.array(found["norm_standard_error"]))
        assert np.all(np.array(found["loss"]) < found["loss_bound_exact"])
        assert np.all(np.less(found["loss_bound_exact"], found["loss_bound_paper"]))

    def test_thm_4_5_is_exceeded(self, simulated):
        (row,) = simulated["fine_tuning"]
        assert row["largest_ratio"] - 5 * row["largest_ratio_error"] > 1.5
        assert row["times"][-1] == pytest.approx(3, rel=0.1)
        ratios = np.divide(row["loss"], row["bound"])
        assert row["largest_ratio"] == ratios.max()

    def test_cases_are_counted_once_for_all_classes_and_times(self):
        row = {"phase": "head", "heads": "random", "draw": 0, "sigma": 1.0, "class": 1}
        row |= {"lower": [1.0, 1.0], "upper": [2.0, 2.0], "standard_error": [0.01, 0.01]}
        far = 1 - (SURELY + 0.1) * 0.01
        rows = [
            {**row, "zeroth": [0.9, 1.5], "diffusion": [far, far]},
            {**row, "class": -1, "zeroth": [0.9, 2.1], "diffusion": [1.5, 0.96]},
            {**row, "draw": 1, "zeroth": [1.5, 1.5], "diffusion": [1.5, 2.06]},
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

    def test_no_record_of_the_unit_ball_exceeds_its_sensitivities(self):
        rng = np.random.default_rng(0)
        v, B = rng.standard_normal((1, 3)), np.linalg.qr(rng.standard_normal((6, 3)))[0].T[None]
        head, features = ball_sensitivities(v, B)
        x = -(v[0] @ B[0]) / np.linalg.norm(v)
        error = v[0] @ B[0] @ x - 1.0
        assert np.linalg.norm(error * (B[0] @ x)) == pytest.approx(head[0])
        assert np.linalg.norm(error * np.outer(v[0], x)) == pytest.approx(features[0])

    def test_only_one_reading_of_prop_e10_grows_like_the_root_of_d(self):
        rows = sensitivity(job("sensitivity", SENSITIVITY))["metrics"]["start"]
        growth = {}
        for reading in ("variance", "deviation"):
            first, last = (row for row in rows if row["reading"] == reading)
            for kind in ("record", "ball"):
                ratio = last[f"{kind}_ratio"] / first[f"{kind}_ratio"]
                growth[kind, reading] = math.log(ratio) / math.log(4)
        assert growth["ball", "deviation"] == pytest.approx(0.5, abs=0.08)
        assert growth["ball", "variance"] == pytest.approx(0.25, abs=0.08)
        assert growth["record", "variance"] < 0 < growth["record", "deviation"] < 0.3

    def test_imbalance_drifts_at_the_corrected_rate(self):
        found = imbalance(job("imbalance", IMBALANCE))["metrics"]
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


JOBS = {
    "dynamics": (dynamics, DYNAMICS),
    "distortion": (distortion, DISTORTION),
    "sensitivity": (sensitivity, SENSITIVITY),
    "imbalance": (imbalance, IMBALANCE),
}


@pytest.mark.parametrize("kind", ["sensitivity", "imbalance"])
def test_a_spec_gives_the_same_record_again_and_another_seed_another(kind):
    run, fields = JOBS[kind]
    first = canonical_json(run(job(kind, fields)))
    assert canonical_json(run(job(kind, fields))) == first
    assert canonical_json(run(job(kind, fields, seed=1))["metrics"]) != first


def test_records_hold_nothing_but_json(simulated, distorted):
    assert canonical_json(simulated) and canonical_json(distorted)


@pytest.mark.parametrize(
    ("kind", "place", "value", "message"),
    [
        ("dynamics", ("relu", "records"), 5, "an even number"),
        ("dynamics", ("relu", "angle"), 45.0, "relu.angle"),
        ("dynamics", ("relu", "times"), [0.5, 1.2], "equal distances"),
        ("dynamics", ("relu", "phases", "head", "sigmas"), [0.0], "sigmas"),
        ("dynamics", ("relu", "phases", "head", "paths"), 1, "paths"),
        ("distortion", ("clusters", "angle"), 50.0, "angle"),
        ("distortion", ("clusters", "head_variances"), [0.0], "head_variances"),
        ("distortion", ("two_records", "ratio"), 20.0, "acute angle"),
        ("sensitivity", ("start", "hidden"), 10, "hidden"),
        ("sensitivity", ("drift", "reading"), "mode", "reading"),
        ("imbalance", ("gap", "sigmas"), [0.0], "gap.sigmas"),
        ("imbalance", ("gap", "paths"), 1, "paths"),
    ],
)
def test_bad_settings_are_refused(kind, place, value, message):
    run, fields = JOBS[kind]
    if kind == "distortion":
        fields = changed(fields, ("clusters", "trials"), 10)
    with pytest.raises(InputError, match=message):
        run(job(kind, changed(fields, place, value)))
