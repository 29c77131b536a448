"""dp_sgld's long training: every number of steps has its own noise at one epsilon."""

import math
from itertools import product

import pytest
from sgld_small import long_chosen, metrics_of, spec_of

from dpatlas.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from dpatlas.formulas.dp_sgld.guarantees import noisy_gd_gdp
from dpatlas.formulas.dp_sgld.theorems import claimed_epsilon_constant

# Accounting for batches without replacement takes seconds a calibration.
pytestmark = pytest.mark.slow
STEPS, METHODS = (1, 4, 400), ("repaired-full", "dp-sgd", "noisy-gd")


def test_every_method_has_its_noise_at_every_number_of_steps(data, tmp_path):
    """Of DP-SGD it grows with their square root, of the repaired method it stops growing."""
    spec = spec_of("long_training", steps=list(STEPS), chosen=long_chosen(STEPS))
    rows = metrics_of(spec, data, tmp_path)["arms"]
    assert [(row["steps"], row["method"]) for row in rows] == [*product(STEPS, METHODS)]
    for row in rows:
        assert (row["sampler"], row["relation"]) == ("full-batch", "replace_one")
        assert row["guaranteed_epsilon"] <= 8
        if row["method"] == "dp-sgd":
            # Composed Gaussians of sensitivity 2 C: mu = 2 sqrt(K) / noise multiplier, exactly.
            exact = 2 * math.sqrt(row["steps"]) / gaussian_mu(8.0, 1e-5)
            assert exact <= row["noise_multiplier"] < 1.01 * exact
            assert row["hidden_state_epsilon"] is None
            continue
        lam, beta, eta, sigma2 = row["lambda"], row["beta"], row["lr"], row["sigma"] ** 2
        if row["method"] == "repaired-full":
            mu = noisy_gd_gdp(eta, lam, beta, 2 * math.sqrt(2) / 24, sigma2, row["steps"])
            assert gaussian_epsilon(mu, 1e-5) == pytest.approx(8.0, rel=1e-9)
        else:
            setting = (math.sqrt(2), lam, beta, 24, sigma2, eta, row["steps"], 1e-5)
            assert claimed_epsilon_constant(*setting) == pytest.approx(8.0)
            assert row["guaranteed_epsilon"] < 8
    last = rows[-3]
    assert last["ordinary_epsilon"] > 3 * last["guaranteed_epsilon"]
