"""dp_sgld without data: accountings that hold stay above exact values, claims do not."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
import yaml
from scipy.optimize import approx_fprime

from dpatlas.base.records import checked_fields
from dpatlas.base.seeds import Noise
from dpatlas.base.specs import Spec
from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.published import PUBLISHED_RUNS
from dpatlas.jobs.job import Job
from dpatlas_workflow.papers.dp_sgld.jobs import privacy_loss as losses_job
from dpatlas_workflow.papers.dp_sgld.jobs import utility as utility_job
from dpatlas_workflow.papers.dp_sgld.jobs.counterexample import counterexample
from dpatlas_workflow.run.command import kind_of
from dpatlas_workflow.show.rows import where
from dpatlas_workflow.statistics import mean_estimate

BOTH = ["constant", "decreasing"]
LOSS, SCAN, RISK = yaml.safe_load("""
- {n: 400, batch: 40, classes: 3, feature_norm: 1.0, lambda: 0.2, epsilon: 1.0, delta: 1.0e-5,
   epochs: 6, schedules: [constant, decreasing]}
- {n: 100, ratios: [1, 100], sigma2s: [0.02], steps: [1, 2, 5], alphas: [2.0, 8.0], etas: [0.5],
   radius: 1.0, epsilon: 1.0, delta: 1.0e-5}
- {n: 300, inputs: 2, batch: 5, lambda: 0.3, epsilons: [1.0, 20.0], delta: 1.0e-5, steps: 40,
   runs: 5, schedules: [constant, decreasing]}
""")
ARMS = list(itertools.product(BOTH, RISK["epsilons"]))


def job(kind, fields, **changes):
    common = {"key": "dp_sgld", "kind": kind, "seed": 0, "noise_source": "keyed"}
    spec = Spec.of({**common, **fields, **changes}, kind)
    fields = checked_fields(kind_of(spec)[1].record.spec, spec.fields, "--spec: ")
    return Job(spec, fields, None, "cpu", checkpoints=None, stopwatch=None)


@pytest.fixture(scope="module")
def losses():
    """A `privacy_loss` record of few points: accounting without replacement takes its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses_job, "POINTS", 3)
        patch.setattr(losses_job, "SMALL_POINTS", 3)
        patch.setattr(losses_job, "PUBLISHED_RUNS", (PUBLISHED_RUNS[0], PUBLISHED_RUNS[5]))
        return losses_job.privacy_loss(job("privacy_loss", LOSS)).metrics


def epsilons(losses, curve, calibration="theorem", schedule="constant"):
    wanted = (curve, calibration, schedule)
    names = ("curve", "calibration", "schedule")
    of_curve = where(losses["curves"], **dict(zip(names, wanted, strict=True)))
    return np.array([row["epsilon"] for row in of_curve])


def test_claims_end_at_epsilon_by_their_own_count_and_lie_above_the_hidden_state(losses):
    for schedule in BOTH:
        full, of = "full batch, every iterate", {"schedule": schedule}
        hidden, every, rdp, claim = (
            epsilons(losses, name, **of)
            for name in ("full batch, hidden state", full, f"{full}, rdp", "claimed, steps")
        )
        assert all(np.all(values >= hidden * (1 - 1e-9)) for values in (claim, every, rdp))
        # One step leaves nothing hidden.
        assert every[0] == pytest.approx(hidden[0], rel=1e-3)
        assert claim[-1] == pytest.approx(1.0)
        assert epsilons(losses, "claimed, epochs", "published", **of)[-1] == pytest.approx(1.0)
        assert epsilons(losses, "claimed, steps", "published", **of)[-1] > 1.5
    # A quadratic attains the full-batch bound from a fixed start only.
    bound = epsilons(losses, "full batch, hidden state")
    np.testing.assert_allclose(epsilons(losses, "quadratic, fixed start"), bound, rtol=1e-9)
    assert np.all(epsilons(losses, "quadratic, random start") < bound)


def test_exact_epsilon_is_above_the_claim_and_below_what_holds(losses, monkeypatch):
    assert losses["small"]["batch"] == 20
    exact = epsilons(losses, "exact", "one dimension")
    for name in ("every iterate", "given the batches"):
        assert np.all(epsilons(losses, name, "one dimension") >= exact)
    monkeypatch.setattr(losses_job, "SMALL_POINTS", 2)
    sparse = losses_job.small_curves(job("privacy_loss", LOSS, batch=2).fields)
    sparse = {
        name: np.array([row["epsilon"] for row in where(sparse, curve=name)])
        for name in ("exact", "claimed, steps")
    }
    assert np.all(sparse["exact"] > 5 * sparse["claimed, steps"])


def test_published_rows_guarantee_hundreds_and_their_dp_sgd_one(losses):
    cifar, pneumonia = losses["published"]
    assert cifar["add_remove"] == pytest.approx(415, rel=5e-3)
    assert cifar["replace_one"] > cifar["add_remove"]
    assert cifar["dp_sgd_rdp"] == pytest.approx(1.00, abs=5e-3)
    assert cifar["dp_sgd_pld"] == pytest.approx(0.91, abs=5e-3)
    assert 1.5 < pneumonia["add_remove"] < pneumonia["replace_one"] < 13
    assert pneumonia["noise_multiplier"] > 10 * cifar["noise_multiplier"]


def test_the_scan_has_the_example_and_full_batches_that_keep_the_claim():
    """One record 1 among zeros against zeros only, m = 1: alpha = 2 and 8."""
    scanned = counterexample(job("counterexample", SCAN)).metrics
    example = where(scanned["scan"], x_prime=0, rest=0, m=1, K=1)
    exact, claimed = ([row[name] for row in example] for name in ("exact", "claimed"))
    np.testing.assert_allclose(exact, [0.2680, 6.984], rtol=1e-3)
    np.testing.assert_allclose(claimed, [0.0354, 0.1416], rtol=2e-3)
    full = where(scanned["scan"], m=SCAN["n"])
    assert len(full) == 3 * len(SCAN["steps"]) * len(SCAN["alphas"])
    for row in full:
        assert row["exact"] < row["claimed"]
    worst = {row["m"]: row["delta"] for row in where(scanned["calibrated"], x_prime=-1, K=5)}
    assert worst[1] > 100 * SCAN["delta"] and worst[SCAN["n"]] < SCAN["delta"]


@pytest.fixture(scope="module")
def measured():
    return utility_job.utility(job("utility", RISK)).metrics


@pytest.fixture(scope="module")
def objective():
    return utility_job.generated(job("utility", RISK).fields)


def test_risk_and_derivatives_are_those_of_the_regularised_cross_entropy(objective):
    weights = np.random.default_rng(1).standard_normal(objective.parameters)
    x, labels = torch.from_numpy(objective.x), torch.from_numpy(objective.labels)
    matrix = torch.from_numpy(weights).view(2, -1)
    fit = torch.nn.functional.cross_entropy(x @ matrix.T, labels)
    expected = float(fit + RISK["lambda"] / 2 * matrix.square().sum())
    assert objective.risk(weights[None])[0] == pytest.approx(expected, rel=1e-12)
    slope = approx_fprime(weights, lambda w: objective.risk(w[None])[0])
    np.testing.assert_allclose(objective.gradient(weights), slope, atol=1e-6)
    curvature = approx_fprime(weights, objective.gradient)
    np.testing.assert_allclose(objective.hessian(weights), curvature, atol=1e-6)


def test_the_optimum_is_exact_inside_the_ball_and_below_every_run(measured):
    assert measured["gradient_norm_at_minimiser"] < 1e-10
    assert measured["minimiser_norm"] < measured["radius"]
    assert min(row["excess_risk"] for row in measured["risks"]) > 0
    # No two runs of an arm share a draw.
    for schedule, epsilon in ARMS:
        first = where(measured["risks"], schedule=schedule, epsilon=epsilon, step=1)
        assert len({row["excess_risk"] for row in first}) == RISK["runs"]


def test_arms_of_a_run_share_its_noise_and_blocks_share_none(objective, measured):
    """At noise of equal variance, both schedules start from the same weights."""
    noise = Noise("a block", "keyed")
    fields = job("utility", RISK).fields
    constant, decreasing = (utility_job.langevin(fields, schedule, 0.1) for schedule in BOTH)
    first = utility_job.iterates(constant, objective, noise, 3)
    np.testing.assert_array_equal(
        utility_job.iterates(decreasing, objective, noise, 3)[0], first[0]
    )
    assert (utility_job.iterates(constant, objective, noise, 4) != first).all()
    block = utility_job.utility(job("utility", RISK, first_run=5, runs=1, epsilons=[1.0])).metrics
    other, these = ({row["excess_risk"] for row in found["risks"]} for found in (block, measured))
    assert not other & these


def test_batch_noise_is_its_mean_over_all_batches():
    problem = utility_job.generated(job("utility", RISK, n=7).fields)
    minimiser = problem.minimiser()
    gradients = problem.data_gradients(minimiser) + problem.lam * minimiser
    squares = [
        np.square(gradients[list(batch)].mean(axis=0)).sum()
        for batch in itertools.combinations(range(7), 3)
    ]
    assert problem.batch_noise(minimiser, 3) == pytest.approx(np.mean(squares), rel=1e-9)
    assert problem.batch_noise(minimiser, 7) == pytest.approx(0, abs=1e-20)


def test_theorems_stand_at_their_own_steps_and_measured_risk_is_below_the_corrected_lemmas(
    measured,
):
    K_of = {
        (row["schedule"], row["epsilon"], row["bound"]): row["step"]
        for row in measured["bounds"]
        if row["bound"].startswith("Thm")
    }
    names = {"constant": ("Thm 4.1", "Thm 4.2"), "decreasing": ("Thm 4.3", "Thm 4.4")}
    assert set(K_of) == {(*arm, name) for arm in ARMS for name in names[arm[0]]}
    condition = measured["beta"] / RISK["lambda"]
    ratio = 1.0 * RISK["n"] ** 2 / (4 * math.log(1e5) * measured["parameters"])
    K = math.ceil(2 * condition * math.log(ratio))
    assert K_of["constant", 1.0, "Thm 4.2"] == K <= RISK["steps"]
    # They are measured there if that is reached.
    assert where(measured["risks"], schedule="constant", epsilon=1.0, step=K)
    last = max(row["step"] for row in where(measured["risks"], schedule="decreasing", epsilon=20.0))
    assert K_of["decreasing", 20.0, "Thm 4.4"] > RISK["steps"] == last
    for bound in measured["bounds"]:
        if bound["bound"].startswith("Lemma"):
            at = {name: bound[name] for name in ("schedule", "epsilon", "step")}
            values = [row["excess_risk"] for row in where(measured["risks"], **at)]
            assert len(values) == RISK["runs"]
            assert mean_estimate(values).interval(0.999)[0] < bound["exact"]
            # The correction only adds.
            assert bound["exact"] >= bound["paper"]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilons": [1.0, 30.0]}, "dp_sgld.utility.epsilons: found eps = 30.0 at epsilon 30, "),
        ({"n": 20, "batch": 50}, "--spec: batch: found 50; allowed: at most n = 20"),
    ],
)
def test_settings_without_a_theorem_are_refused_by_their_key_before_any_run(
    monkeypatch, changes, words
):
    monkeypatch.setattr(utility_job, "iterates", lambda *given: pytest.fail("trained"))
    with pytest.raises(InputError, match=re.escape(words)):
        utility_job.utility(job("utility", RISK, **changes))


def test_decreasing_steps_are_measured_by_the_mean_of_the_iterates_before(objective):
    path = np.random.default_rng(2).standard_normal((6, objective.parameters))
    risks = objective.risk(path)
    decreasing = utility_job.risks_of(path, objective, "decreasing", [1, 5])
    np.testing.assert_allclose(decreasing, [risks[0], risks[:5].mean()])
    constant = utility_job.risks_of(path, objective, "constant", [1, 5])
    np.testing.assert_allclose(constant, risks[[1, 5]])
