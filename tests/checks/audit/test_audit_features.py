"""The audit of feature_learning's releases: the attack is exact, and faults are caught."""

import math

import pytest
from scipy import stats
from small_audits import audited, no_progress

from dpatlas.accounting.gaussian_dp import gaussian_delta
from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.mean_release import noise_deviation
from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.rounding import rounded_up
from dpatlas.base.seeds import Noise
from dpatlas_workflow.checks.audit import settings as specs
from dpatlas_workflow.checks.audit.jobs import feature_releases
from dpatlas_workflow.checks.audit.jobs.feature_releases import (
    FEATURES,
    MAX_NORM,
    MU,
    RECORDS,
    STEPS,
)
from dpatlas_workflow.checks.audit.jobs.mechanism import audit
from dpatlas_workflow.checks.audit.records.mechanism import MechanismSpec
from dpatlas_workflow.config.load import load_config

RELEASES = {"feature-matrix": 1, "feature-direction": 1, "feature-second-layer": STEPS}
every_release = pytest.mark.parametrize("name", FEATURES)


@every_release
def test_an_honest_release_is_not_contradicted_and_shows_most_of_what_it_guarantees(name):
    metrics = audited(name, 4000)
    assert not metrics["contradicted"]
    assert 0.5 * metrics["guaranteed"] < metrics["lower"]["epsilon"] <= metrics["guaranteed"]
    assert metrics["claimed"] is metrics["claim_test"] is metrics["claim_contradicted"] is None


def test_noise_of_a_single_release_on_every_step_is_caught(monkeypatch):
    def without_composition(max_norm, n, mu, releases):
        return noise_deviation(max_norm, n, mu)

    monkeypatch.setattr(feature_releases, "noise_deviation", without_composition)
    assert audited("feature-second-layer", 300)["contradicted"]
    assert not audited("feature-matrix", 300)["contradicted"]


def test_runs_as_the_config_asks_for_catch_a_fifth_of_the_noise_missing(scale_noise):
    asked = {
        spec.fields["mechanism"]: MechanismSpec(**spec.fields)
        for spec in specs.groups(load_config(changes={"tier": "t"}))["mechanisms"]
    }
    # Once for all of them: they draw from one place.
    scale_noise("feature-matrix", 0.8)
    for name in FEATURES:
        noise = Noise(f"a fifth less, {name}", "keyed")
        assert audit(asked[name], noise, no_progress)["contradicted"]


@every_release
def test_scores_are_normal_about_the_mean_of_all_releases(name):
    """As far apart as the guarantee allows for: no attack on what is released tells more."""
    runs, releases, mechanism = 8000, RELEASES[name], FEATURES[name]
    assert mechanism.releases == releases
    deviation = math.sqrt(releases) * mechanism.deviation
    centre = releases * MAX_NORM / RECORDS
    # The distance of the two neighbours in deviations is mu.
    assert 2 * centre / deviation == pytest.approx(MU, rel=1e-12)
    all_scores = mechanism.scores(runs, Noise(name, "keyed"), no_progress)
    for sign, scores in zip((1.0, -1.0), all_scores, strict=True):
        standard = (scores - sign * centre) / deviation
        assert abs(standard.mean()) < 4 / math.sqrt(runs)
        assert abs(standard.var() - 1) < 4 * math.sqrt(2 / runs)
        assert stats.kstest(standard, "norm").pvalue > 1e-3


@every_release
@pytest.mark.parametrize("delta", [1e-5, 0.3])
def test_the_ledger_s_numbers_give_its_epsilon_to_another_accountant(name, delta):
    ledger = FEATURES[name].ledger(delta)
    assert ledger["epsilon"] == FEATURES[name].profile([delta])[0]
    assert gaussian_delta(MU, ledger["epsilon"]) == pytest.approx(delta, rel=1e-9)
    phase = Phase(FullBatch(RECORDS), ledger["noise_multiplier"], ledger["steps"])
    assert ledger["clip"] == MAX_NORM
    other = guarantee([phase], delta, "replace_one").epsilon
    assert ledger["epsilon"] == pytest.approx(other, rel=2e-3)
    stated = f"epsilon {rounded_up(ledger['epsilon'])} at delta {delta:g} (replace_one)"
    assert ledger["guaranteed"] == stated
    # Who could subtract the noise.
    secret = "secret of the operating system"
    assert secret not in ledger["holds_for"]
    assert secret in FEATURES[name].ledger(delta, "os")["holds_for"]
