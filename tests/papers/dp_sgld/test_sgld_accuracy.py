"""dp_sgld's tuned comparison: what is calibrated, tuned, counted and guaranteed."""

import json
import math
from itertools import product

import numpy as np
import pytest
import sgld_small as small
import torch
from sgld_small import (
    arms_in,
    chosen_of,
    long_chosen,
    metrics_of,
    run,
    save_backbone,
    save_data,
    spec_of,
)

from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.ledger import together
from dpatlas.accounting.samplers import Poisson
from dpatlas.base.seeds import Noise
from dpatlas.data import prepared
from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.theorems import claimed_epsilon_constant, claimed_epsilon_decreasing
from dpatlas.models import backbone
from dpatlas.privacy.langevin import LangevinRun
from dpatlas_workflow.papers.dp_sgld.jobs import arms as sgld_arms
from dpatlas_workflow.papers.dp_sgld.jobs.arms import LangevinPlan, RegressionProblem
from dpatlas_workflow.papers.dp_sgld.jobs.regression import THEOREM
from dpatlas_workflow.run.private_plan import calibrated, composed

# Accounting for batches without replacement takes seconds a calibration.
pytestmark = pytest.mark.slow

PROBLEM = RegressionProblem(n=1000, classes=10, feature_norm=1.0, delta=1e-5)


@pytest.fixture(scope="module")
def record(data, tmp_path_factory):
    """Of the small spec, made once for tests that only look at it."""
    return json.loads(run(spec_of("accuracy"), data, tmp_path_factory.mktemp("record")))


def plan(method="dp-sgld", comparison="guaranteed", schedule="constant", **changes):
    sizes = {"problem": PROBLEM, "lam": 0.01, "passes": 20, "batch": 100, **changes}
    return LangevinPlan(method=method, comparison=comparison, schedule=schedule, **sizes)


class TestCalibration:
    @pytest.mark.parametrize("schedule", ["constant", "decreasing"])
    @pytest.mark.parametrize(("comparison", "steps"), [("published", 20), ("theorem", 200)])
    def test_a_claimed_epsilon_is_the_paper_s_formula_at_the_counted_steps(
        self, schedule, comparison, steps
    ):
        arm = plan(comparison=comparison, schedule=schedule)
        sigma2, beta = arm.sigma2(1.0), 0.51
        setting = (math.sqrt(2), 0.01, beta, 1000, sigma2)
        if schedule == "constant":
            claimed = claimed_epsilon_constant(*setting, 0.5 / beta, steps, 1e-5)
        else:
            claimed = claimed_epsilon_decreasing(*setting, steps, 1e-5)
        assert claimed == pytest.approx(1.0)
        assert arm.stated(sigma2).claimed_epsilon == pytest.approx(1.0)

    @pytest.mark.parametrize(
        ("method", "schedule"),
        [
            *product(["dp-sgld", "repaired-full"], ["constant", "decreasing"]),
            ("repaired-cyclic", "constant"),
        ],
    )
    def test_a_guaranteed_epsilon_is_met_and_never_exceeded(self, method, schedule):
        arm = plan(method, schedule=schedule)
        for epsilon in (0.5, 8.0):
            stated = arm.stated(arm.sigma2(epsilon))
            assert 0.998 * epsilon < stated.guaranteed_epsilon <= epsilon
            assert stated.relation == "replace_one"
            bounds = (stated.ordinary_epsilon, stated.hidden_state_epsilon)
            assert stated.guaranteed_epsilon == min(bound for bound in bounds if bound is not None)

    def test_the_noise_is_the_least_of_either_accounting(self):
        long, short = plan(lam=0.3, passes=300, batch=500), plan()
        for epsilon in (0.7, 3.0):
            stated = long.stated(long.sigma2(epsilon))
            assert stated.guaranteed_by == sgld_arms.GIVEN_BATCHES
            assert (
                0.999 * epsilon < stated.hidden_state_epsilon <= epsilon < stated.ordinary_epsilon
            )
        assert short.stated(short.sigma2(2.0)).guaranteed_by == "every iterate, PLD"

    def test_ordinary_accounting_counts_every_step_with_no_less_than_its_own_noise(self):
        arm = plan(schedule="decreasing", lam=0.3, passes=4)
        sigma2 = arm.sigma2(4.0)
        steps = [Phase(arm.sampler, float(z), 1) for z in arm._multipliers(sigma2, arm.rates)]
        exact = guarantee(steps, 1e-5, "replace_one").epsilon
        assert exact <= arm.stated(sigma2).ordinary_epsilon <= 1.1 * exact

    def test_dp_sgd_meets_its_epsilon_under_its_own_relation(self):
        for relation in ("add_remove", "replace_one"):
            accounts = (1e-5, relation, "auto")
            noise = calibrated(Poisson(1000, 100), 50, 1.0, *accounts)
            stated = composed(Phase(Poisson(1000, 100), noise, 50), *accounts)
            assert 0.998 < stated.guaranteed_epsilon <= 1.0 and stated.relation == relation


def with_setting(schedule="both", **settings):
    """Settings of all arms, with these for the arms that have such."""
    return {
        arm: {name: settings.get(name, value) for name, value in chosen.items()}
        for arm, chosen in chosen_of("accuracy", schedule=schedule).items()
    }


class TestSettings:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"chosen": with_setting(batch=25)}, "batch of the .* sampler: found 25; .* <= 24"),
            ({"accountant": "rdp"}, "accountant: found rdp for poisson"),
            ({"features": "softmax"}, "--backbone"),
            # Longer steps expand: the theorems do not hold.
            ({"chosen": with_setting(step_size=1.0)}, r"eta: found .*1/beta = 1.88679"),
            ({"chosen": {}}, "small-tuning: found no settings of no-dp, without privacy"),
        ],
    )
    def test_bad_settings_are_refused_by_name(self, data, tmp_path, changes, message):
        with pytest.raises(InputError, match=message):
            run(spec_of("accuracy", **changes), data, tmp_path)
        assert not (tmp_path / "record.json").exists()

    def test_a_step_size_above_one_over_two_beta_is_a_warning(self, data, tmp_path, capsys):
        chosen = with_setting("constant", step_size=0.6)
        spec = spec_of("accuracy", schedule="constant", chosen=chosen)
        metrics = metrics_of(spec, data, tmp_path)
        (warning,) = metrics["warnings"]
        assert warning == "step size 0.6/beta: the utility theorems cover steps up to 1/(2 beta)"
        assert f"{spec.id}: {warning}\n" in capsys.readouterr().err
        sgld = next(row for row in metrics["arms"] if row["method"] == "dp-sgld")
        assert sgld["lr"] == pytest.approx(0.6 / sgld["beta"])


# Few steps of few arms, whose runs all have the prepared parts.
FEW = {"data": {"name": "small"}, "steps": [4], "chosen": long_chosen([4], lr=2.0)}


class TestRecords:
    def test_features_above_the_declared_norm_are_scaled_down_and_counted(self, data, tmp_path):
        norms = np.linalg.norm(prepared.load(data.parent).x_train, axis=1)
        spec = spec_of("long_training", normalise=False, feature_norm=5.0, **FEW)
        counts = [of_run["scaled_down"] for of_run in metrics_of(spec, data, tmp_path)["seen"]]
        assert counts == [(norms > 5).sum()] * 2 and counts[0] > 0

    def test_a_record_that_is_not_finite_becomes_zero_and_poisons_nothing(self, tmp_path):
        data = save_data(tmp_path / "nan", x_train=np.nan)
        metrics = metrics_of(spec_of("long_training", **FEW), data, tmp_path)
        assert [of_run["scaled_down"] for of_run in metrics["seen"]] == [1, 1]
        accuracies = {arm["method"]: np.mean(arm["accuracy"]) for arm in arms_in(metrics)}
        assert accuracies["dp-sgd"] > 0.5

    def test_softmax_features_are_the_head_s_probabilities_and_have_their_mean_eigenvalue(
        self, data, tmp_path
    ):
        folder = save_backbone(tmp_path / "backbone")
        given = {"features": "softmax", "backbone": small.BACKBONE, "normalise": False}
        metrics = metrics_of(spec_of("long_training", **given, **FEW), data, tmp_path, [folder])
        assert metrics["inputs"] == 3
        with torch.no_grad():
            images = torch.from_numpy(prepared.load(data.parent).x_train)
            x = torch.softmax(backbone.load(folder).network(images), 1)
        largest = float(torch.linalg.eigvalsh((x.T @ x / len(x)).double()).max())
        expected = {"scaled_down": 0, "mean_eigenvalue": pytest.approx(largest, rel=1e-5)}
        assert metrics["seen"] == [{"run": run, **expected} for run in (0, 1)]


@pytest.mark.parametrize("method", ["dp-sgld", "repaired-full", "repaired-cyclic"])
def test_a_langevin_run_states_the_steps_that_it_took(method):
    arm = plan(method)
    settings = arm.with_noise(arm.sigma2(1.0))
    x, labels = torch.zeros(PROBLEM.n, 3), torch.zeros(PROBLEM.n, dtype=int)
    run = LangevinRun(settings, x, labels, PROBLEM.classes, noise=Noise("stopped"), repetition=0)
    run.step()
    stopped = arm.ran(run)
    assert [phase.steps for phase in stopped.phases] == [1]
    run.run()
    whole = arm.ran(run)
    assert sum(phase.steps for phase in whole.phases) == arm.steps
    epsilon = together([whole], PROBLEM.delta, "replace_one")[0]
    assert epsilon == pytest.approx(arm.stated(settings.sigma**2).guaranteed_epsilon, rel=1e-9)
    if method == "repaired-cyclic":
        # Its bound is for whole passes.
        assert stopped.last_iterate is None and whole.last_iterate is not None
    else:
        assert together([stopped], PROBLEM.delta, "replace_one")[0] < epsilon


class TestRows:
    def test_every_arm_has_a_row_and_schedules_share_those_of_dp_sgd(self, record):
        rows = arms_in(record["metrics"])
        arms = [(row["method"], row["comparison"], row["schedule"]) for row in rows]
        assert len(set(arms)) == len(arms) == 2 * 5 + 1 + 1 + 2
        shared = {("dp-sgd", "published", None), ("dp-sgd", "guaranteed", None)}
        assert {arm for arm in arms if arm[2] is None} == shared | {("no-dp", None, None)}
        for row in rows:
            assert len(row["accuracy"]) == 2
            assert (row["guaranteed_epsilon"] is None) == (row["method"] == "no-dp")
            if row["comparison"] == "guaranteed":
                assert 7.9 < row["guaranteed_epsilon"] <= 8
                assert row["relation"] == "replace_one"
        # Every run is dealt records of its own.
        assert len({of_run["mean_eigenvalue"] for of_run in record["metrics"]["seen"]}) == 2

    def test_arms_take_the_settings_that_their_tuning_chose(self, data, tmp_path):
        spec, path = spec_of("accuracy_tuning", schedule="constant"), tmp_path / "record.json"
        tuned = json.loads(run(spec, data, tmp_path))["metrics"]["rows"]
        waiting = spec_of("accuracy", schedule="constant", chosen=None, tuning=spec.id)
        made = run(waiting, data, tmp_path / "report", tuning=path)
        rows = json.loads(made)["metrics"]["arms"]
        reported = [each for each in tuned if "without L2 term" not in each["arm"]]
        assert len(tuned) == 12 and len(reported) == len(rows) == 9
        for each, row in zip(reported, rows, strict=True):
            chosen = {name: value for name, value in each["chosen"].items() if name != "step_size"}
            assert chosen.items() <= row.items()

    def test_every_row_and_its_arm_state_the_guarantee_of_one_run(self, record):
        ledger, rows = record["ledger"], record["metrics"]["arms"]
        assert ledger["sampler"] == ["cyclic", "fixed-size", "full-batch", "poisson"]
        assert "no finite epsilon" in ledger["chosen_on_private_data"][0]["cost"]
        assert "as they share noise" in ledger["guaranteed"]
        for arm, row in zip(ledger["arms"], rows, strict=True):
            if row["epsilon"] is None:
                assert arm["epsilon"] is None
                continue
            assert arm["epsilon"] == pytest.approx(row["guaranteed_epsilon"])
            # Thm 3.2 says nothing of DP-SGD, nor the paper of cyclic batches.
            theorem = row["method"] in ("dp-sgld", "noisy-gd", "repaired-full")
            by = {"epsilon": row["claimed_epsilon"], "delta": 1e-5, "by": THEOREM}
            assert arm["claimed"] == (by if theorem else None)
            steps = [arm["steps"]] if isinstance(arm["steps"], int) else arm["steps"]
            assert sum(steps) == row["steps"]
