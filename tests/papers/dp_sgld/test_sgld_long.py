"""dp_sgld's long training: every number of steps has its own noise at one epsilon."""

import math

import pytest
from sgld_small import metrics_of, run, save_data, spec_of
from small_jobs import killed_at

from dpatlas.errors import InputError
from dpatlas.jobs import job as job_module
from dpatlas.papers.dp_sgld.formulas.guarantees import noisy_gd_gdp
from dpatlas.papers.dp_sgld.formulas.theorems import claimed_epsilon_constant
from dpatlas.privacy.gaussian_dp import gaussian_epsilon, gaussian_mu
from dpatlas.privacy.langevin import LangevinRun
from dpatlas.privacy.training import PrivateTraining

# Accounting for batches without replacement takes seconds a calibration.
pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path):
    return save_data(tmp_path / "data")


@pytest.fixture
def rows(data, tmp_path):
    return metrics_of(spec_of("long_training", steps=[1, 4, 400]), data, tmp_path)["rows"]


def by_method(rows, method):
    return [row for row in rows if row["method"] == method]


def test_every_number_of_steps_has_every_method(rows):
    methods = ("repaired-full", "dp-sgd", "noisy-gd")
    assert [(row["steps"], row["method"]) for row in rows] == [
        (steps, method) for steps in (1, 4, 400) for method in methods
    ]
    assert all(len(row["accuracy"]) == 2 and row["settings_tried"] == 2 for row in rows)
    assert {row["sampler"] for row in rows} == {"full-batch"}


def test_dp_sgd_noise_grows_like_the_square_root_of_the_steps(rows):
    """Composed Gaussians of sensitivity 2 C: mu = 2 sqrt(K) / noise multiplier, exactly."""
    for row in by_method(rows, "dp-sgd"):
        exact = 2 * math.sqrt(row["steps"]) / gaussian_mu(8.0, 1e-5)
        assert exact <= row["noise_multiplier"] < 1.01 * exact
        assert row["hidden_state_epsilon"] is None and row["relation"] == "replace_one"


def test_repaired_noise_is_the_exact_one_and_stops_growing(rows):
    for row in by_method(rows, "repaired-full"):
        mu = noisy_gd_gdp(
            row["lr"], row["lambda"], row["beta"], 2 * math.sqrt(2) / 24, row["sigma"] ** 2,
            row["steps"],
        )  # fmt: skip
        assert gaussian_epsilon(mu, 1e-5) == pytest.approx(8.0, rel=1e-9)
        assert row["guaranteed_epsilon"] <= 8
    last = by_method(rows, "repaired-full")[-1]
    assert last["ordinary_epsilon"] > 3 * last["guaranteed_epsilon"]


def test_noisy_gd_has_the_theorem_s_noise_and_guarantees_more_than_it_claims(rows):
    for row in by_method(rows, "noisy-gd"):
        claimed = claimed_epsilon_constant(
            math.sqrt(2), row["lambda"], row["beta"], 24, row["sigma"] ** 2, row["lr"],
            row["steps"], 1e-5,
        )  # fmt: skip
        assert claimed == pytest.approx(8.0)
        assert row["guaranteed_epsilon"] < 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": []}, r"--spec: steps: found \[\]"),
        ({"lambdas": [0.0]}, "lambdas"),
        ({"step_size": 1.5}, "1/beta"),
    ],
)
def test_bad_settings_are_refused_by_name(data, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        run(spec_of("long_training", **changes), data, tmp_path)
    assert not (tmp_path / "record.json").exists()


def test_a_job_killed_at_any_step_resumes_to_the_same_bytes(data, tmp_path, monkeypatch):
    spec = spec_of("long_training")
    whole = run(spec, data, tmp_path / "whole")
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    # The last of the 3 methods x 4 runs x (2 + 5) steps is number 83.
    for kill_at in (0, 30, 83):
        folder = tmp_path / f"killed-{kill_at}"
        with killed_at(kill_at, (PrivateTraining, "step"), (LangevinRun, "step")):
            run(spec, data, folder)
        assert run(spec, data, folder) == whole
