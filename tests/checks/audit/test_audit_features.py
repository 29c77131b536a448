"""The audit of feature_learning's releases: the attack is exact, and faults are caught."""

import math

import numpy as np
import pytest
from scipy import stats
from small_audits import audited

from dpatlas.checks.audit import settings as specs
from dpatlas.checks.audit.jobs import feature_releases as audit_features
from dpatlas.checks.audit.jobs.feature_releases import (
    CANARY,
    FEATURES,
    MAX_NORM,
    MU,
    RECORDS,
    STEPS,
    SecondLayer,
)
from dpatlas.checks.audit.jobs.mechanism import audit
from dpatlas.checks.audit.jobs.mechanisms import MECHANISMS
from dpatlas.checks.audit.records.mechanism import Spec
from dpatlas.config.load import load_config
from dpatlas.core.seeds import Noise
from dpatlas.papers.feature_learning.jobs import layers as feature_layers
from dpatlas.papers.feature_learning.jobs.draws import Records
from dpatlas.privacy.accounting import Phase, guarantee
from dpatlas.privacy.gaussian_dp import gaussian_delta
from dpatlas.privacy.mean_release import noise_deviation
from dpatlas.privacy.samplers import FullBatch

# In simulations 58 of 60 audits of 150 + 150 runs catch half the noise, all of 200 + 200.
ENOUGH = 300
RELEASES = {"feature-matrix": 1, "feature-direction": 1, "feature-second-layer": STEPS}
SENSITIVITY = 2 * MAX_NORM / RECORDS
SIGNS = (1.0, -1.0)


def nothing():
    """Progress that nobody looks at."""


def silent(size, run, step, use):
    return np.zeros(size, np.float32)


def drawn(root):
    """Noise of a test's own, another for every run, step and use."""

    def normal(size, run, step, use):
        return Noise(root, "keyed").normal(size, repetition=run, step=step, use=use)

    return normal


@pytest.fixture
def seen(monkeypatch):
    """Every noisy mean that is released from here on, (runs, numbers), in order."""
    found = []
    for name in ("released_gradient", "released_direction"):
        honest = getattr(feature_layers, name)

        def keep(*given, honest=honest):
            mean = honest(*given)
            found.append(mean.reshape(len(mean), -1).copy())
            return mean

        monkeypatch.setattr(feature_layers, name, keep)
    descend = SecondLayer.descend_privately

    def watched(self, steps, max_norm, deviation, normal, use, see):
        def keep_too(mean):
            found.append(mean.copy())
            see(mean)

        return descend(self, steps, max_norm, deviation, normal, use, keep_too)

    monkeypatch.setattr(SecondLayer, "descend_privately", watched)
    return found


@pytest.fixture
def gradient_norms(monkeypatch):
    """Norms of all records' gradients, (runs, records), and their labels, of every neighbour."""
    found = []
    gradient, direction = feature_layers.released_gradient, feature_layers.released_direction
    descend = SecondLayer.descend_privately

    def of_matrix(start, records, *given):
        found.append((feature_layers.first_norms(start, records), records))
        return gradient(start, records, *given)

    def of_direction(records, *given):
        found.append((feature_layers.direction_norms(records), records))
        return direction(records, *given)

    def of_head(self, *given):
        found.append((self.norms_at_zero(), Records(self.phi, self.y)))
        return descend(self, *given)

    monkeypatch.setattr(feature_layers, "released_gradient", of_matrix)
    monkeypatch.setattr(feature_layers, "released_direction", of_direction)
    monkeypatch.setattr(SecondLayer, "descend_privately", of_head)
    return found


@pytest.fixture
def scale_noise(monkeypatch):
    honest = Noise.normal

    def set_scale(factor):
        def scaled(self, size, **axes):
            return factor * honest(self, size, **axes)

        monkeypatch.setattr(Noise, "normal", scaled)

    return set_scale


@pytest.fixture
def no_clip(monkeypatch):
    monkeypatch.setattr(feature_layers, "clip_factors", lambda norms, bound: np.ones_like(norms))


@pytest.mark.parametrize("name", FEATURES)
def test_an_honest_release_is_not_contradicted_and_shows_most_of_what_it_guarantees(name):
    found = audited(name, 4000)
    assert not found.contradicted
    assert 0.5 * found.guaranteed < found.lower.epsilon <= found.guaranteed
    assert found.claimed is found.claim_test is found.claim_contradicted is None


@pytest.mark.parametrize("name", FEATURES)
def test_noise_at_half_scale_is_caught(name, scale_noise):
    scale_noise(0.5)
    assert audited(name, ENOUGH).contradicted


@pytest.mark.parametrize("name", FEATURES)
def test_a_forgotten_clip_is_caught(name, no_clip):
    assert audited(name, 100).contradicted


def test_noise_of_a_single_release_on_every_step_is_caught(monkeypatch):
    def without_composition(max_norm, n, mu, releases):
        return noise_deviation(max_norm, n, mu)

    monkeypatch.setattr(audit_features, "noise_deviation", without_composition)
    assert audited("feature-second-layer", ENOUGH).contradicted
    assert not audited("feature-matrix", ENOUGH).contradicted


def test_runs_as_the_config_asks_for_catch_a_fifth_of_the_noise_missing(scale_noise):
    asked = {
        spec.fields["mechanism"]: Spec(**spec.fields)
        for spec in specs.groups(load_config(changes={"tier": "t"}))["mechanisms"]
    }
    scale_noise(0.8)
    for name in FEATURES:
        assert audit(asked[name], Noise(f"a fifth less, {name}", "keyed"), nothing).contradicted


@pytest.mark.parametrize("name", FEATURES)
def test_only_the_canary_has_a_gradient_and_only_its_label_differs(name, gradient_norms):
    for sign in SIGNS:
        FEATURES[name].release(3, 0.0, silent, sign)
    (norms, records), (other_norms, others) = gradient_norms
    for each in (norms, other_norms):
        assert not np.delete(each, CANARY, axis=1).any()
        # However the head moves, the clip goes on acting.
        assert each[:, CANARY].min() > 100 * MAX_NORM
    np.testing.assert_array_equal(records.x, others.x)
    assert ((records.y != others.y).sum(axis=1) == 1).all()
    assert (records.y != others.y)[:, CANARY].all()
    assert norms.shape == (3, RECORDS)


@pytest.mark.parametrize("name", FEATURES)
def test_without_noise_the_neighbours_are_opposite_and_a_whole_sensitivity_apart(name, seen):
    scores = [FEATURES[name].release(2, 0.0, silent, sign) for sign in SIGNS]
    first, other = seen[: RELEASES[name]], seen[RELEASES[name] :]
    for mean, turned in zip(first, other, strict=True):
        apart = np.linalg.norm(mean - turned, axis=1)
        np.testing.assert_allclose(apart, SENSITIVITY, rtol=1e-6)
        np.testing.assert_allclose(turned, -mean, rtol=0, atol=1e-6 * SENSITIVITY)
    expected = RELEASES[name] * MAX_NORM / RECORDS
    np.testing.assert_allclose(scores, [[expected] * 2, [-expected] * 2], rtol=1e-6)


@pytest.mark.parametrize("name", FEATURES)
def test_the_score_is_the_log_ratio_of_the_densities_of_all_that_is_released(name, seen):
    release, deviation, runs = FEATURES[name].release, FEATURES[name].deviation, 40
    for sign in SIGNS:
        release(1, 0.0, silent, sign)
    centres = np.stack(seen).reshape(2, RELEASES[name], -1)
    seen.clear()
    for sign in SIGNS:
        scores = release(runs, deviation, drawn(f"{name} {sign}"), sign)
        means = np.stack(seen, axis=1)
        assert means.shape[:2] == (runs, RELEASES[name])
        seen.clear()
        with_, without = (np.square(means - centre).sum(axis=(1, 2)) for centre in centres)
        log_ratio = (without - with_) / (2 * deviation**2)
        np.testing.assert_allclose(scores * SENSITIVITY / deviation**2, log_ratio, atol=1e-4)
        assert np.ptp(log_ratio) > 1


@pytest.mark.parametrize("name", FEATURES)
def test_scores_are_normal_about_the_mean_of_all_releases(name):
    runs, releases, mechanism = 8000, RELEASES[name], FEATURES[name]
    assert mechanism.releases == releases
    deviation = math.sqrt(releases) * mechanism.deviation
    centre = releases * MAX_NORM / RECORDS
    # The distance of the two worlds in deviations is mu.
    assert 2 * centre / deviation == pytest.approx(MU, rel=1e-12)
    for sign, scores in zip(
        SIGNS, mechanism.scores(runs, Noise(name, "keyed"), nothing), strict=True
    ):
        standard = (scores - sign * centre) / deviation
        assert abs(standard.mean()) < 4 / math.sqrt(runs)
        assert abs(standard.var() - 1) < 4 * math.sqrt(2 / runs)
        assert stats.kstest(standard, "norm").pvalue > 1e-3


@pytest.mark.parametrize("name", FEATURES)
def test_worlds_runs_and_steps_never_share_noise(monkeypatch, name):
    keys, advanced = [], []
    honest = Noise.key

    def remember(self, repetition, step, use):
        keys.append((repetition, step, use))
        return honest(self, repetition, step, use)

    monkeypatch.setattr(Noise, "key", remember)
    scores = FEATURES[name].scores(3, Noise("x", "keyed"), lambda: advanced.append(1))
    assert len(keys) == len(set(keys)) == 2 * 3 * RELEASES[name]
    assert {repetition for repetition, _, _ in keys} == set(range(6))
    assert {step for _, step, _ in keys} == set(range(RELEASES[name]))
    assert len({use for _, _, use in keys}) == 1
    assert len(np.unique(np.concatenate(scores))) == len(advanced) == 6


@pytest.mark.parametrize("name", FEATURES)
def test_runs_repeat_from_the_same_noise_and_from_no_other(name):
    mechanism = FEATURES[name]
    first, again, other = (mechanism.scores(4, Noise(root, "keyed"), nothing) for root in "xxy")
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first, other).any()


@pytest.mark.parametrize("name", FEATURES)
def test_the_ledger_has_the_fields_of_every_private_run_s(name):
    mechanism = FEATURES[name]
    found, usual = mechanism.ledger(1e-3), MECHANISMS["dp-sgd-full-batch"].ledger(1e-3)
    assert list(found) == list(usual)
    assert found["epsilon"] == mechanism.profile([1e-3])[0]
    assert f"epsilon {found['epsilon']:.6g} at delta 0.001 (replace_one)" == found["guaranteed"]
    assert found["delta"] == 1e-3 and found["claimed"] is None
    replaced = MECHANISMS["logistic-full-batch"].ledger(1e-3)["neighbour_relation"]
    assert found["neighbour_relation"] == replaced
    assert found["holds_for"] != mechanism.ledger(1e-3, "os")["holds_for"]
    assert "secret of the operating system" in mechanism.ledger(1e-3, "os")["holds_for"]


@pytest.mark.parametrize("name", FEATURES)
def test_the_ledger_names_its_sampler_as_the_audit_s_table_reads_it(name):
    usual = MECHANISMS["dp-sgd-full-batch"].ledger(1e-3)["sampler"]
    expected = usual | {"n": RECORDS, "expected_batch": RECORDS}
    assert FEATURES[name].ledger(1e-3)["sampler"] == expected


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("delta", [1e-5, 1e-2, 0.3])
def test_the_ledger_s_numbers_give_its_epsilon_to_another_accountant(name, delta):
    found = FEATURES[name].ledger(delta)
    assert gaussian_delta(MU, found["epsilon"]) == pytest.approx(delta, rel=1e-9)
    phase = Phase(FullBatch(RECORDS), found["noise_multiplier"], found["steps"])
    assert found["clip"] == MAX_NORM
    other = guarantee([phase], delta, "replace_one").epsilon
    assert found["epsilon"] == pytest.approx(other, rel=2e-3)


def test_the_profile_is_that_of_mu_at_every_delta():
    deltas = [1e-6, 1e-3, 0.1, 0.38, 0.39]
    for mechanism in FEATURES.values():
        epsilons = mechanism.profile(deltas)
        for epsilon, delta in zip(epsilons[:4], deltas, strict=False):
            assert gaussian_delta(MU, epsilon) == pytest.approx(delta, rel=1e-9)
        # At epsilon 0 delta is 2 Phi(mu / 2) - 1 = 0.3829.
        assert epsilons[4] == 0
