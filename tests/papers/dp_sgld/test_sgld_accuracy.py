"""dp_sgld's accuracy tables: what is calibrated, tuned, counted and guaranteed, and resumed."""

import json
import math

import numpy as np
import pytest
import sgld_small as small
import torch
from sgld_small import fields_of, metrics_of, run, save_backbone, save_data, spec_of
from small_jobs import Killed, counted, killed_at

from dpatlas.core.seeds import Noise
from dpatlas.data import prepared
from dpatlas.errors import InputError
from dpatlas.jobs import job as job_module
from dpatlas.jobs import search
from dpatlas.jobs.private_plan import DpSgdPlan
from dpatlas.models import backbone
from dpatlas.papers.dp_sgld.formulas.theorems import (
    claimed_epsilon_constant,
    claimed_epsilon_decreasing,
)
from dpatlas.papers.dp_sgld.jobs import arms as sgld_arms
from dpatlas.papers.dp_sgld.jobs.accuracy import arms_of
from dpatlas.papers.dp_sgld.jobs.arms import LangevinPlan, Problem
from dpatlas.privacy.accounting import Phase, guarantee
from dpatlas.privacy.langevin import LangevinRun
from dpatlas.privacy.ledger import together
from dpatlas.privacy.samplers import Poisson
from dpatlas.privacy.training import PrivateTraining

# Accounting for batches without replacement takes seconds a calibration.
pytestmark = pytest.mark.slow

# Per run: 8 steps of a mini-batch arm (2 epochs of 4), 3 of a full-batch one; 4 runs an arm.
TOTAL_STEPS = 4 * (7 * 8 + 2 * 3)
PROBLEM = Problem(n=1000, classes=10, feature_norm=1.0, delta=1e-5)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return save_data(tmp_path_factory.mktemp("small") / "data")


@pytest.fixture(scope="module")
def record(data, tmp_path_factory):
    """Of the small spec, made once for tests that only look at it."""
    return json.loads(run(spec_of("accuracy"), data, tmp_path_factory.mktemp("record")))


def plan(method="dp-sgld", comparison="guaranteed", schedule="constant", **changes):
    sizes = {"problem": PROBLEM, "lam": 0.01, "passes": 20, "batch": 100, **changes}
    return LangevinPlan(method=method, comparison=comparison, schedule=schedule, **sizes)


class TestCalibration:
    @pytest.mark.parametrize("schedule", ["constant", "decreasing"])
    @pytest.mark.parametrize("comparison", ["published", "theorem"])
    def test_a_claimed_epsilon_is_the_paper_s_formula_at_the_counted_steps(
        self, schedule, comparison
    ):
        arm = plan(comparison=comparison, schedule=schedule)
        sigma2, beta = arm.sigma2(1.0), 0.51
        steps = {"published": 20, "theorem": 200}[comparison]
        setting = (math.sqrt(2), 0.01, beta, 1000, sigma2)
        if schedule == "constant":
            claimed = claimed_epsilon_constant(*setting, 0.5 / beta, steps, 1e-5)
        else:
            claimed = claimed_epsilon_decreasing(*setting, steps, 1e-5)
        assert claimed == pytest.approx(1.0)
        assert arm.stated(sigma2).claimed == pytest.approx(1.0)

    @pytest.mark.parametrize("schedule", ["constant", "decreasing"])
    @pytest.mark.parametrize("method", ["dp-sgld", "repaired-full", "repaired-cyclic"])
    def test_a_guaranteed_epsilon_is_met_and_never_exceeded(self, method, schedule):
        arm = plan(method, schedule="constant" if method == "repaired-cyclic" else schedule)
        for epsilon in (0.5, 8.0):
            stated = arm.stated(arm.sigma2(epsilon))
            assert 0.998 * epsilon < stated.guaranteed <= epsilon
            assert stated.relation == "replace_one"
            bounds = (stated.ordinary, stated.hidden_state)
            assert stated.guaranteed == min(bound for bound in bounds if bound is not None)

    def test_the_noise_is_the_least_of_either_accounting(self):
        long, short = plan(lam=0.3, passes=300, batch=500), plan()
        for epsilon in (0.7, 3.0):
            stated = long.stated(long.sigma2(epsilon))
            assert stated.by == sgld_arms.GIVEN_BATCHES
            assert 0.999 * epsilon < stated.hidden_state <= epsilon < stated.ordinary
        assert short.stated(short.sigma2(2.0)).by == "every iterate, RDP"

    def test_ordinary_accounting_counts_every_step_with_no_less_than_its_own_noise(self):
        arm = plan(schedule="decreasing", lam=0.3, passes=4)
        sigma2 = arm.sigma2(4.0)
        steps = [Phase(arm.sampler, float(z), 1) for z in arm._multipliers(sigma2)]
        exact = guarantee(steps, 1e-5, "replace_one").epsilon
        assert exact <= arm.stated(sigma2).ordinary <= 1.1 * exact

    def test_dp_sgd_meets_its_epsilon_under_its_own_relation(self):
        for relation in ("add_remove", "replace_one"):
            stated = DpSgdPlan(Poisson(1000, 100), 50, 1.0, 1e-5, relation).calibrated(1.0).stated
            assert 0.998 < stated.guaranteed <= 1.0 and stated.relation == relation


class TestSettings:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"batch": 25}, "batch of the .* sampler: found 25; .* <= 24"),
            ({"accountant": "rdp"}, "accountant: found rdp for poisson"),
            ({"accountant": "pld"}, "accountant: found pld for fixed-size"),
            ({"features": "softmax"}, "--backbone"),
            # Longer steps expand: the theorems do not hold.
            ({"step_size": 1.0}, r"eta: found .*1/beta = 1.88679"),
        ],
    )
    def test_bad_settings_are_refused_by_name(self, data, tmp_path, changes, message):
        with pytest.raises(InputError, match=message):
            run(spec_of("accuracy", **changes), data, tmp_path)
        assert not (tmp_path / "record.json").exists()

    def test_a_step_size_above_one_over_two_beta_is_a_warning(self, data, tmp_path, capsys):
        metrics = metrics_of(spec_of("accuracy", step_size=0.6), data, tmp_path)
        assert metrics["warnings"] == [
            "step size 0.6/beta: the utility theorems cover steps up to 1/(2 beta)"
        ]
        assert "small-" in capsys.readouterr().err
        sgld = next(row for row in metrics["rows"] if row["method"] == "dp-sgld")
        assert sgld["lr"] == pytest.approx(0.6 / sgld["beta"])


class TestRecords:
    def test_features_above_the_declared_norm_are_scaled_down_and_counted(self, data, tmp_path):
        norms = np.linalg.norm(prepared.load(data.parent).x_train, axis=1)
        metrics = metrics_of(spec_of("accuracy", normalise=False, feature_norm=5.0), data, tmp_path)
        assert metrics["scaled_down"] == (norms > 5).sum() > 0

    def test_a_record_that_is_not_finite_becomes_zero_and_poisons_nothing(self, tmp_path):
        data = save_data(tmp_path / "nan", x_train=np.nan)
        metrics = metrics_of(spec_of("accuracy"), data, tmp_path)
        assert metrics["scaled_down"] == 1
        assert np.mean(metrics["rows"][0]["accuracy"]) > 0.5

    def test_softmax_features_are_the_head_s_probabilities_and_have_their_mean_eigenvalue(
        self, data, tmp_path
    ):
        folder = save_backbone(tmp_path / "backbone")
        given = {"features": "softmax", "backbone": small.BACKBONE, "normalise": False}
        spec = spec_of("accuracy", **given, feature_norm=1.0)
        metrics = metrics_of(spec, data, tmp_path, [folder])
        assert metrics["inputs"] == 3 and metrics["scaled_down"] == 0
        with torch.no_grad():
            images = torch.from_numpy(prepared.load(data.parent).x_train)
            x = torch.softmax(backbone.load(folder).network(images), 1)
        largest = float(torch.linalg.eigvalsh((x.T @ x / len(x)).double()).max())
        assert metrics["mean_eigenvalue"] == pytest.approx(largest, rel=1e-5)


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
    assert epsilon == pytest.approx(arm.stated(settings.sigma**2).guaranteed, rel=1e-9)
    if method == "repaired-cyclic":
        # Its bound is for whole passes.
        assert stopped.last_iterate is None and whole.last_iterate is not None
    else:
        assert together([stopped], PROBLEM.delta, "replace_one")[0] < epsilon


class TestRows:
    def test_every_arm_has_a_row_and_schedules_share_those_of_dp_sgd(self, record):
        rows = record["metrics"]["rows"]
        arms = [(row["method"], row["comparison"], row["schedule"]) for row in rows]
        assert len(set(arms)) == len(arms) == 2 * 5 + 1 + 1 + 2
        shared = {("dp-sgd", "published", None), ("dp-sgd", "guaranteed", None)}
        assert {arm for arm in arms if arm[2] is None} == shared | {("no-dp", None, None)}
        for row in rows:
            assert len(row["accuracy"]) == 2 and row["settings_tried"] == 2
            assert (row["guaranteed_epsilon"] is None) == (row["method"] == "no-dp")
            if row["comparison"] == "guaranteed":
                assert 7.9 < row["guaranteed_epsilon"] <= 8
                assert row["relation"] == "replace_one"

    def test_settings_are_chosen_by_the_validation_records_alone(self, data, record, tmp_path):
        rows = record["metrics"]["rows"]
        wrong = (prepared.load(data.parent).y_test + 1) % 3
        other = metrics_of(spec_of("accuracy"), save_data(tmp_path / "d", y_test=wrong), tmp_path)
        for one, two in zip(rows, other["rows"], strict=True):
            assert one | {"accuracy": None} == two | {"accuracy": None}
        right, wrong = (np.mean(each[0]["accuracy"]) for each in (rows, other["rows"]))
        assert wrong < 0.3 and right > 0.7

    def test_no_two_runs_share_a_draw(self, data, tmp_path, monkeypatch):
        drawn = []
        real_key = Noise.key

        def key(noise, repetition, step, use):
            drawn.append((repetition, step, use))
            return real_key(noise, repetition, step, use)

        monkeypatch.setattr(Noise, "key", key)
        run(spec_of("accuracy"), data, tmp_path)
        per_layer = [each for each in drawn if not each[2].startswith("noise")]
        assert len(per_layer) == len(set(per_layer))
        arms, runs = len(list(arms_of(fields_of("accuracy")))), 2 + 2
        assert len({each[0] for each in drawn}) == arms * runs

    def test_every_row_and_its_arm_state_the_guarantee_of_what_was_trained_to_choose_it(
        self, record
    ):
        fields, ledger = record["spec"], record["ledger"]
        assert ledger["sampler"] == ["cyclic", "fixed-size", "full-batch", "poisson"]
        assert "no finite epsilon for those records" in ledger["chosen_on_private_data"]
        assert "released: one run of one arm only" in ledger["holds_for"]
        arms, rows = ledger["arms"], record["metrics"]["rows"]
        for arm, row in zip(arms, rows, strict=True):
            tuning = arm["tuning"]
            assert tuning["trials"] == row["settings_tried"] * fields["tuning_runs"]
            assert tuning["reported_runs"] == fields["runs"]
            assert row["with_tuning_epsilon"] == tuning["epsilon"]
            assert row["all_runs_epsilon"] == tuning["epsilon_of_all"]
            if row["epsilon"] is None:
                assert arm["epsilon"] is tuning["epsilon"] is None
                continue
            assert arm["epsilon"] == pytest.approx(row["guaranteed_epsilon"])
            steps = [arm["steps"]] if isinstance(arm["steps"], int) else arm["steps"]
            assert sum(steps) == row["steps"]
            assert arm["epsilon"] < tuning["epsilon"] <= tuning["epsilon_of_all"]


def test_a_job_killed_at_any_step_resumes_to_the_same_bytes(data, tmp_path, monkeypatch):
    spec = spec_of("accuracy", schedule="constant")
    whole = run(spec, data, tmp_path / "whole")
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    steps = [(PrivateTraining, "step"), (LangevinRun, "step")]
    for kill_at in (17, 200):
        folder = tmp_path / f"killed-{kill_at}"
        with killed_at(kill_at, *steps):
            run(spec, data, folder)
        with counted(*steps) as done:
            assert run(spec, data, folder) == whole
        # One step that was taken and not saved is taken again, none of the others.
        assert len(done) == TOTAL_STEPS - kill_at


def test_noise_of_the_operating_system_stays_one_secret_over_a_resume(data, tmp_path, monkeypatch):
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    spec = spec_of("accuracy", schedule="constant", noise_source="os")
    seen, real_arm = [], search.Search._arm

    def counted_arm(search, *arm):
        seen.append(search.noise.secret)
        if len(seen) == 2:
            raise Killed
        return real_arm(search, *arm)

    monkeypatch.setattr(search.Search, "_arm", counted_arm)
    with pytest.raises(Killed):
        run(spec, data, tmp_path)
    record = run(spec, data, tmp_path)
    assert len(set(seen)) == 1 and seen[0].encode() not in record
