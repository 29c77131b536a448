"""The audit of feature_learning's releases: the attack is exact, and faults are caught."""

import math

import numpy as np
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
    SecondLayer,
)
from dpatlas_workflow.checks.audit.jobs.mechanism import audit
from dpatlas_workflow.checks.audit.records.mechanism import MechanismSpec
from dpatlas_workflow.config.load import load_config
from dpatlas_workflow.papers.feature_learning.jobs import layers

# In simulations 58 of 60 audits of 150 + 150 runs catch half the noise, all of 200 + 200.
ENOUGH = 300
RELEASES = {"feature-matrix": 1, "feature-direction": 1, "feature-second-layer": STEPS}
SENSITIVITY = 2 * MAX_NORM / RECORDS
SIGNS = (1.0, -1.0)
every_release = pytest.mark.parametrize("name", FEATURES)


def silent(size, run, step, use):
    return np.zeros(size, np.float32)


def drawn(root):
    """Noise of a test's own, another for every run, step and use."""

    def normal(size, run, step, use):
        return Noise(root, "keyed").normal(size, repetition=run, step=step, use=use)

    return normal


@pytest.fixture
def released(monkeypatch):
    """Every noisy mean that is released from here on, (runs, numbers), in order."""
    means = []
    for name in ("released_gradient", "released_direction"):
        honest = getattr(layers, name)

        def keep(*arguments, honest=honest):
            mean = honest(*arguments)
            means.append(mean.reshape(len(mean), -1).copy())
            return mean

        monkeypatch.setattr(layers, name, keep)
    descend = SecondLayer.descend_privately

    def descend_and_keep(self, steps, max_norm, deviation, normal, use, see):
        def keep_too(mean):
            means.append(mean.copy())
            see(mean)

        return descend(self, steps, max_norm, deviation, normal, use, keep_too)

    monkeypatch.setattr(SecondLayer, "descend_privately", descend_and_keep)
    return means


@pytest.fixture
def scale_noise(monkeypatch):
    honest = Noise.normal

    def set_scale(factor):
        def scaled(self, size, **axes):
            return factor * honest(self, size, **axes)

        monkeypatch.setattr(Noise, "normal", scaled)

    return set_scale


@every_release
def test_an_honest_release_is_not_contradicted_and_shows_most_of_what_it_guarantees(name):
    metrics = audited(name, 4000)
    assert not metrics["contradicted"]
    assert 0.5 * metrics["guaranteed"] < metrics["lower"]["epsilon"] <= metrics["guaranteed"]
    assert metrics["claimed"] is metrics["claim_test"] is metrics["claim_contradicted"] is None


@every_release
def test_noise_at_half_scale_is_caught(name, scale_noise):
    scale_noise(0.5)
    assert audited(name, ENOUGH)["contradicted"]


@every_release
def test_a_forgotten_clip_is_caught(name, monkeypatch):
    monkeypatch.setattr(layers, "clip_factors", lambda norms, bound: np.ones_like(norms))
    assert audited(name, 100)["contradicted"]


def test_noise_of_a_single_release_on_every_step_is_caught(monkeypatch):
    def without_composition(max_norm, n, mu, releases):
        return noise_deviation(max_norm, n, mu)

    monkeypatch.setattr(feature_releases, "noise_deviation", without_composition)
    assert audited("feature-second-layer", ENOUGH)["contradicted"]
    assert not audited("feature-matrix", ENOUGH)["contradicted"]


def test_runs_as_the_config_asks_for_catch_a_fifth_of_the_noise_missing(scale_noise):
    asked = {
        spec.fields["mechanism"]: MechanismSpec(**spec.fields)
        for spec in specs.groups(load_config(changes={"tier": "t"}))["mechanisms"]
    }
    scale_noise(0.8)
    for name in FEATURES:
        noise = Noise(f"a fifth less, {name}", "keyed")
        assert audit(asked[name], noise, no_progress)["contradicted"]


@every_release
def test_without_noise_the_neighbours_are_opposite_and_a_whole_sensitivity_apart(name, released):
    """So no other record has a gradient, and the clip acts at every release."""
    scores = [FEATURES[name].release(2, 0.0, silent, sign) for sign in SIGNS]
    means, turned = released[: RELEASES[name]], released[RELEASES[name] :]
    for mean, opposite in zip(means, turned, strict=True):
        apart = np.linalg.norm(mean - opposite, axis=1)
        np.testing.assert_allclose(apart, SENSITIVITY, rtol=1e-6)
        np.testing.assert_allclose(opposite, -mean, rtol=0, atol=1e-6 * SENSITIVITY)
    expected = RELEASES[name] * MAX_NORM / RECORDS
    np.testing.assert_allclose(scores, [[expected] * 2, [-expected] * 2], rtol=1e-6)


@every_release
def test_the_score_is_the_log_ratio_of_the_densities_of_all_that_is_released(name, released):
    release, deviation, runs = FEATURES[name].release, FEATURES[name].deviation, 40
    for sign in SIGNS:
        release(1, 0.0, silent, sign)
    centres = np.stack(released).reshape(2, RELEASES[name], -1)
    released.clear()
    for sign in SIGNS:
        scores = release(runs, deviation, drawn(f"{name} {sign}"), sign)
        means = np.stack(released, axis=1)
        assert means.shape[:2] == (runs, RELEASES[name])
        released.clear()
        with_, without = (np.square(means - centre).sum(axis=(1, 2)) for centre in centres)
        log_ratio = (without - with_) / (2 * deviation**2)
        np.testing.assert_allclose(scores * SENSITIVITY / deviation**2, log_ratio, atol=1e-4)
        assert np.ptp(log_ratio) > 1


@every_release
def test_scores_are_normal_about_the_mean_of_all_releases(name):
    runs, releases, mechanism = 8000, RELEASES[name], FEATURES[name]
    assert mechanism.releases == releases
    deviation = math.sqrt(releases) * mechanism.deviation
    centre = releases * MAX_NORM / RECORDS
    # The distance of the two neighbours in deviations is mu.
    assert 2 * centre / deviation == pytest.approx(MU, rel=1e-12)
    all_scores = mechanism.scores(runs, Noise(name, "keyed"), no_progress)
    for sign, scores in zip(SIGNS, all_scores, strict=True):
        standard = (scores - sign * centre) / deviation
        assert abs(standard.mean()) < 4 / math.sqrt(runs)
        assert abs(standard.var() - 1) < 4 * math.sqrt(2 / runs)
        assert stats.kstest(standard, "norm").pvalue > 1e-3


@every_release
def test_the_ledger_states_the_guarantee_and_who_could_subtract_the_noise(name):
    mechanism = FEATURES[name]
    ledger = mechanism.ledger(1e-3)
    assert ledger["epsilon"] == mechanism.profile([1e-3])[0]
    assert (
        f"epsilon {rounded_up(ledger['epsilon'])} at delta 0.001 (replace_one)"
        == ledger["guaranteed"]
    )
    assert "secret of the operating system" not in ledger["holds_for"]
    assert "secret of the operating system" in mechanism.ledger(1e-3, "os")["holds_for"]


@every_release
@pytest.mark.parametrize("delta", [1e-5, 0.3])
def test_the_ledger_s_numbers_give_its_epsilon_to_another_accountant(name, delta):
    ledger = FEATURES[name].ledger(delta)
    assert gaussian_delta(MU, ledger["epsilon"]) == pytest.approx(delta, rel=1e-9)
    phase = Phase(FullBatch(RECORDS), ledger["noise_multiplier"], ledger["steps"])
    assert ledger["clip"] == MAX_NORM
    other = guarantee([phase], delta, "replace_one").epsilon
    assert ledger["epsilon"] == pytest.approx(other, rel=2e-3)
