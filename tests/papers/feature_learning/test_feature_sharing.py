"""feature_learning's privacy: the records that each layer sees, its noise, the ledger."""

import math
import re

import numpy as np
import pytest
from feature_small import BASE, drawn, record_of, spec_of
from figure_samples import select

from dpatlas.base.seeds import Noise
from dpatlas.formulas.feature_learning.rates import gaussian_dp_mu
from dpatlas_workflow.papers.feature_learning.jobs import layers
from dpatlas_workflow.papers.feature_learning.jobs import simulation as feature_simulation
from dpatlas_workflow.papers.feature_learning.jobs.simulation import DrawNetworks

MU = gaussian_dp_mu(2.0, 1e-5)
LEARNED = ("private", "direction")
ONE = {"points": [BASE], "runs": 2, "n_test": 10}
DATA = drawn(n=60)


class Watched:
    """What one job did, and its record with the facts on its one condition.

    By features: labels of the private read-out's records (`layers`), deviation of its noise
    (`deviations`). stepped: gradients of the first layer, the private one first. turned: weights
    before they are normalised, those along the direction first.
    """

    def __init__(self, folder, monkeypatch, **changes):
        self.layers, self.deviations, self.stepped, self.turned = {}, {}, [], []
        real_private, real_descend = DrawNetworks._private, layers.SecondLayer.descend_privately
        real_stepped, real_normalised = feature_simulation.stepped, feature_simulation.normalised

        def private(networks, rules, normal, features, weights, layer):
            self.features = features
            return real_private(networks, rules, normal, features, weights, layer)

        def descend(layer, steps, max_norm, deviation, normal, use):
            self.layers[self.features], self.deviations[self.features] = layer.y, deviation
            return real_descend(layer, steps, max_norm, deviation, normal, use)

        def stepped(start, gradient, rate):
            self.stepped.append(gradient.copy())
            return real_stepped(start, gradient, rate)

        def normalised(weights):
            self.turned.append(weights.copy())
            return real_normalised(weights)

        monkeypatch.setattr(DrawNetworks, "_private", private)
        monkeypatch.setattr(layers.SecondLayer, "descend_privately", descend)
        monkeypatch.setattr(feature_simulation, "stepped", stepped)
        monkeypatch.setattr(feature_simulation, "normalised", normalised)
        self.record = record_of(spec_of(**ONE, **changes), folder)
        (self.facts,) = self.record["metrics"]["conditions"]


@pytest.fixture(scope="module", params=["split", "shared"])
def watched(request, tmp_path_factory):
    """One condition with noise that is 1 everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Noise, "normal", lambda noise, size, **named: np.ones(size, np.float32))
        folder = tmp_path_factory.mktemp(request.param)
        return Watched(folder, patch, sharing=request.param)


def is_shared(watched):
    return watched.record["spec"]["sharing"] == "shared"


def by_arm(watched):
    """The ledger's arms by their kind of features."""
    return {arm["arm"].split(",")[0]: arm for arm in watched.record["ledger"]["arms"]}


def test_shared_records_cost_root_two_of_mu_where_both_layers_see_them(watched):
    mu = MU / math.sqrt(2) if is_shared(watched) else MU
    assert watched.facts["mu"] == pytest.approx(mu)
    for features, arm in by_arm(watched).items():
        learns = features in LEARNED
        assert len(arm["releases"]) == 1 + learns
        for release in arm["releases"]:
            assert release["mu"] == pytest.approx(mu if learns else MU)
        uses = arm["releases"] if is_shared(watched) else arm["releases"][-1:]
        assert math.hypot(*(release["mu"] for release in uses)) == pytest.approx(MU)


def test_the_second_layer_sees_the_records_of_its_data_set(watched):
    records = DATA.first if is_shared(watched) else DATA.second
    for features in (*LEARNED, "random"):
        np.testing.assert_array_equal(watched.layers[features], records.y)
    if not is_shared(watched):
        both = np.concatenate([DATA.second.y, DATA.first.y], axis=1)
        np.testing.assert_array_equal(watched.layers["random-both"], both)


def test_the_noise_that_is_added_is_what_the_record_names_and_none_without_privacy(watched):
    facts = watched.facts
    # By the private step, by the one without privacy, and by the printed one on the sum.
    plain = layers.first_gradient(DATA.start, DATA.first, None)
    np.testing.assert_array_equal(watched.stepped[1], plain)
    np.testing.assert_array_equal(watched.stepped[2], plain * 60)
    added = watched.stepped[0] - layers.first_gradient(DATA.start, DATA.first, facts["matrix_norm"])
    np.testing.assert_allclose(added, facts["matrix_noise"], rtol=1e-5)
    mean = layers.mean_direction(DATA.first, facts["direction_norm"])
    added = watched.turned[0] - mean[:, :, None]
    np.testing.assert_allclose(added, facts["direction_noise"], rtol=1e-4)
    for features in LEARNED:
        assert watched.deviations[features] == facts["head_noise"]


def test_noise_is_sensitivity_over_mu_in_every_release_of_every_arm(watched):
    """Together with the mu above: T steps of the second layer at mu / sqrt(T) each."""
    for features, arm in by_arm(watched).items():
        assert (arm["epsilon"], arm["delta"]) == (2.0, 1e-5)
        for release in arm["releases"]:
            n = 120 if features == "random-both" else 60
            assert release["sensitivity"] == pytest.approx(2 * release["clip"] / n)
            mu = release["sensitivity"] / release["noise"] * math.sqrt(release["times"])
            assert mu == pytest.approx(release["mu"])
        head = arm["releases"][-1]
        assert head["times"] == 4
        assert head["noise"] == watched.deviations[features]


def test_risks_without_privacy_are_those_of_descent_and_of_ridge_on_the_weights(watched):
    records = DATA.first if is_shared(watched) else DATA.second
    gradient = layers.first_gradient(DATA.start, DATA.first, None)
    moved = DATA.start.weights - watched.facts["rate"] * gradient
    for features, weights in (("random", DATA.start.weights), ("nonprivate", moved)):
        weights = weights / np.linalg.norm(weights, axis=1, keepdims=True)
        phi, tested = (
            np.tanh(x @ weights + DATA.start.biases[:, None]) for x in (records.x, DATA.test.x)
        )
        layer = layers.SecondLayer(phi, records.y, watched.facts["penalty"])
        rows = select(watched.record["metrics"]["rows"], features=features)
        for name, heads in (("risk", layer.descend(4)), ("risk_floor", layer.ridge())):
            errors = (tested @ heads[:, :, None])[:, :, 0] - DATA.test.y
            expected = np.square(errors).mean(axis=1)
            np.testing.assert_allclose([row[name] for row in rows], expected, rtol=1e-3)


def test_the_ledger_says_who_is_whose_neighbour_and_how_the_layers_add(watched):
    ledger = watched.record["ledger"]
    assert ledger["neighbour_relation"].startswith("replace one")
    assert ("both layers use" in ledger["neighbour_relation"]) == is_shared(watched)
    assert ("add in quadrature" in ledger["accountant"]) == is_shared(watched)
    assert (ledger["epsilon"], ledger["delta"]) == (2.0, 1e-5)
    assert ledger["holds_for"].startswith("secret seeds and ")


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"points": [{**BASE, "epsilon": 92.0}]}, []),
        (
            {"polynomial": [-1.0, 0.0, 1.0], "points": [{**BASE, "epsilon": 1e3}]},
            ["information exponent 2", r"epsilon 1000 is not below 8 log\(1/delta\) = 92.1"],
        ),
    ],
)
def test_what_the_assumptions_exclude_is_run_with_a_warning(tmp_path, capfd, changes, messages):
    warnings = record_of(spec_of(**{**ONE, **changes}), tmp_path)["metrics"]["warnings"]
    said = capfd.readouterr().err
    for warning, message in zip(warnings, messages, strict=True):
        assert re.match(message, warning)
        assert warning in said and "\n" not in warning
