"""dp_sgld's long training: every number of steps has its own noise at one epsilon."""

import math

import pytest
from sgld_small import long_chosen, metrics_of, save_data, spec_of

from dpatlas.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from dpatlas.formulas.dp_sgld.guarantees import noisy_gd_gdp
from dpatlas.formulas.dp_sgld.theorems import claimed_epsilon_constant

# Accounting for batches without replacement takes seconds a calibration.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    steps = [1, 4, 400]
    spec = spec_of("long_training", steps=steps, chosen=long_chosen(steps))
    return metrics_of(spec, save_data(folder / "data"), folder)["arms"]


def by_method(rows, method):
    return [row for row in rows if row["method"] == method]


def test_every_number_of_steps_has_every_method(rows):
    methods = ("repaired-full", "dp-sgd", "noisy-gd")
    assert [(row["steps"], row["method"]) for row in rows] == [
        (steps, method) for steps in (1, 4, 400) for method in methods
    ]
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
