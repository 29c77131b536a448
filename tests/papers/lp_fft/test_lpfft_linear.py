"""lp_fft's linear networks: problems with given norms, and the two integrators on them."""

import math

import numpy as np
import pytest

from dpatlas.errors import InputError
from dpatlas_workflow.papers.lp_fft.jobs import linear


@pytest.mark.parametrize(("n", "d", "h", "reached", "seen"), [
    (10, 6, 3, 0.2, 0.7), (6, 6, 6, 1.0, 1.0), (8, 8, 3, 0.4, 1.0),
])  # fmt: skip
def test_a_problem_has_the_norms_that_were_asked_for(n, d, h, reached, seen):
    problem = linear.linear_problem(np.random.default_rng(0), n, d, h, reached=reached, seen=seen)
    np.testing.assert_allclose(problem.X.T @ problem.X, np.eye(d), atol=1e-12)
    np.testing.assert_allclose(problem.B @ problem.B.T, np.eye(h), atol=1e-12)
    assert np.sum(problem.Y**2) == pytest.approx(1)
    assert problem.u @ problem.u == pytest.approx(seen)
    assert problem.b @ problem.b == pytest.approx(reached)


@pytest.mark.parametrize("sizes", [(5, 6, 3), (6, 6, 7), (6, 6, 6)])
def test_problems_without_room_are_refused(sizes):
    with pytest.raises(InputError):
        linear.linear_problem(np.random.default_rng(0), *sizes, reached=0.5)


def test_probing_without_noise_is_gradient_flow():
    problem = linear.linear_problem(np.random.default_rng(0), 8, 6, 3, reached=0.5)
    v = np.ones((1, 3))
    *_, last = linear.probing(problem, v, 0.0, [0.5, 2.0], np.random.default_rng(1))
    step, state = 1e-4, v
    for _ in range(20_000):
        error = state @ problem.B @ problem.X.T - problem.Y
        state = state - step * error @ problem.X @ problem.B.T
    np.testing.assert_allclose(last, state, atol=1e-3)


def test_residual_gives_the_gradients_of_the_loss():
    rng = np.random.default_rng(0)
    problem = linear.linear_problem(rng, 8, 6, 3, reached=0.5)
    v, B = rng.standard_normal((1, 3)), rng.standard_normal((1, 3, 6))
    quiet = {"step": 1e-6, "deviations": (0.0, 0.0), "steps": 1, "rng": rng}
    ((moved_v, moved_B),) = linear.fine_tuning(v, B, problem.residual, **quiet)
    fallen = problem.losses(v, B) - problem.losses(moved_v, moved_B)
    squares = np.sum((moved_v - v) ** 2) + np.sum((moved_B - B) ** 2)
    assert fallen[0] == pytest.approx(squares / 1e-6, rel=1e-4)


def test_clipped_gradients_are_the_sum_of_clipped_records():
    rng = np.random.default_rng(0)
    problem = linear.linear_problem(rng, 8, 6, 3, reached=0.5)
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


def test_assumption_e7_leaves_room_for_noise_just_above_its_least_variance():
    for d, h in ((4, 3), (40, 40)):
        least = linear.least_head_variance(h, d, 1.0)
        assert linear.largest_noise(h, d, 1.01 * least, 1.0, 0.5) > 0
        assert linear.largest_noise(h, d, 0.99 * least, 1.0, 0.5) < 0
