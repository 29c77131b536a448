"""feature_learning's job: its rows and what they mean, its draws and noise, and resuming."""

import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest
from feature_small import (
    BASE,
    FEATURES,
    FIELDS,
    MIXED,
    drawn,
    noise_keys,
    one_run_at_a_time,
    record_of,
    spec_of,
)
from figure_samples import select
from small_jobs import counted

from dpatlas.formulas.feature_learning import rates
from dpatlas.formulas.feature_learning.single_index import link
from dpatlas_workflow.papers.feature_learning.jobs import layers, simulation
from dpatlas_workflow.papers.feature_learning.jobs.draws import draw
from dpatlas_workflow.papers.feature_learning.jobs.rules import REHEARSED
from dpatlas_workflow.papers.feature_learning.jobs.simulation import (
    MEASURES,
    SHARED_BY,
)

MU = rates.gaussian_dp_mu(2.0, 1e-5)
# What is None in the rows of these features.
NEVER = {
    "private": {"risk"},
    "direction": {"risk"},
    "nonprivate": {"risk_private", "clipped"},
    "random": set(),
    "random-both": {"risk", "risk_floor"},
    "printed": {"risk_private", "risk", "risk_floor", "clipped"},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(record, keys of noise) of one job."""
    with noise_keys() as keys:
        record = record_of(spec_of(), tmp_path_factory.mktemp("whole"))
    return record, keys


@pytest.fixture(scope="module")
def sizeable(tmp_path_factory):
    """Rows by features of one condition that is large enough to learn in."""
    point = {"n": 4000, "p": 128, "d": 16, "epsilon": 2.0}
    spec = spec_of(points=[point], runs=4, steps=40, n_test=1000)
    return by_features(record_of(spec, tmp_path_factory.mktemp("sizeable")))


def by_features(record):
    """Measures, each with the values of all runs, or None, by kind of features."""
    rows = record["metrics"]["rows"]
    return {features: measures(select(rows, features=features)) for features in FEATURES}


def measures(rows):
    """By name the values of all runs, None of a measure that was not taken."""
    values = {name: [row[name] for row in rows] for name in MEASURES}
    return {name: None if None in of_runs else of_runs for name, of_runs in values.items()}


def by_condition(record):
    """`measures` of every condition and kind of features in the order of the rows."""
    groups = itertools.groupby(
        record["metrics"]["rows"], key=lambda row: {name: row[name] for name in (*BASE, "features")}
    )
    return [{**at, **measures(list(rows))} for at, rows in groups]


def mean(row, measure):
    return float(np.mean(row[measure]))


def test_every_condition_has_a_row_of_every_kind_of_features_with_its_measures_in_order(whole):
    """A number for every run, or None where the features are not read out that way."""
    assert [row["run"] for row in whole[0]["metrics"]["rows"]] == [0, 1, 2] * 12
    rows = by_condition(whole[0])
    assert [({name: row[name] for name in BASE}, row["features"]) for row in rows] == [
        (point, features) for point in FIELDS["points"] for features in FEATURES
    ]
    for row in rows:
        for measure in MEASURES:
            values = row[measure]
            if measure in NEVER[row["features"]]:
                assert values is None
            else:
                assert np.isfinite(values).all() and len(values) == 3
                assert len(set(values)) == 3 or measure == "clipped"
        assert all(
            0 <= abs(cosine) <= overlap <= 1
            for cosine, overlap in zip(row["cosine"], row["overlap"], strict=True)
        )


def test_features_are_learned_best_without_noise_worst_by_the_matrix_and_else_by_chance(sizeable):
    chance = math.sqrt(2 / (math.pi * 16))
    for features in ("random", "random-both", "printed"):
        assert mean(sizeable[features], "overlap") == pytest.approx(chance, rel=0.1)
    assert sizeable["random"]["overlap"] == sizeable["random-both"]["overlap"]
    order = ("printed", "private", "direction")
    overlaps = [mean(sizeable[features], "overlap") for features in order]
    assert overlaps[0] + 0.1 < overlaps[1] < overlaps[2] - 0.1
    assert overlaps[1] < mean(sizeable["nonprivate"], "overlap")
    assert min(sizeable["direction"]["cosine"]) > 0.8


def test_learned_features_and_more_records_lower_the_risk(sizeable):
    """The label has variance 1."""
    assert mean(sizeable["direction"], "risk_private") < mean(sizeable["random"], "risk_private")
    assert mean(sizeable["nonprivate"], "risk") < mean(sizeable["random"], "risk") < 1
    for row in sizeable.values():
        for above in ("risk_private", "risk"):
            if row[above] and row["risk_floor"]:
                assert mean(row, "risk_floor") < mean(row, above)


def test_settings_of_the_record_are_the_rules_and_clip_bounds_depend_on_no_record(whole):
    for point, facts in zip(FIELDS["points"], whole[0]["metrics"]["conditions"], strict=True):
        n, d, p = (point[name] for name in "ndp")
        assert {name: facts[name] for name in BASE} == point
        assert facts["mu"] == pytest.approx(MU)
        assert facts["rate"] == pytest.approx(rates.first_layer_rate(n, d, p))
        assert facts["penalty"] == pytest.approx(1e-3 * p)
        assert facts["printed_noise"] == pytest.approx(rates.printed_first_layer_noise(d, n, 2))
    # Nor on their number.
    norms = ("matrix_norm", "direction_norm", "head_norm")
    one, other = ([facts[n] for n in norms] for facts in whole[0]["metrics"]["conditions"])
    assert one == other and min(one) > 0


def test_a_penalty_that_is_left_out_is_assumption_4_s(tmp_path):
    conditions = record_of(spec_of(penalty_per_neuron=None), tmp_path)["metrics"]["conditions"]
    assert [facts["penalty"] for facts in conditions] == [rates.penalty(n, 5, 6) for n in (40, 60)]


def test_clip_quantiles_are_shares_of_records_that_are_not_clipped(tmp_path):
    """Norms of y x have one law in every run; the other ones vary with the network."""
    first, second = 0.25, 0.6
    point = {"n": 4000, "p": 16, "d": 5, "epsilon": 1e4}
    quantiles = {"first": first, "second": second}
    record = record_of(spec_of(points=[point], steps=1, runs=4, clip_quantiles=quantiles), tmp_path)
    clips = record["metrics"]["conditions"][0]
    share = np.mean(layers.direction_norms(drawn(n=4000, p=16).first) <= clips["direction_norm"])
    assert share == pytest.approx(first, abs=0.05)
    assert 1 - mean(by_features(record)["random"], "clipped") == pytest.approx(second, abs=0.1)
    rehearsal = draw(link(MIXED), 5, 16, REHEARSED, 1, [0], 0, use=" of a rehearsal")
    share = np.mean(layers.first_norms(rehearsal.start, rehearsal.first) <= clips["matrix_norm"])
    assert share == pytest.approx(first, abs=1e-3)


def test_conditions_that_differ_in_epsilon_share_all_but_what_is_private(tmp_path):
    """Also one run at a time; noise is in proportion to 1 / mu of epsilon, but for the printed."""
    points = [{**BASE, "epsilon": 0.5}, {**BASE, "n": 40}, {**BASE, "epsilon": 2.0}]
    record = record_of(spec_of(points=points), tmp_path / "blocks")
    with one_run_at_a_time(), noise_keys() as keys, counted((simulation, "draw")) as draws:
        assert record_of(spec_of(points=points), tmp_path / "runs") == record
    # Once for every number of records and run; the noise of a run is that of both.
    assert len(draws) == 2 * 3 and set(Counter(keys).values()) == {2}
    strict, loose = by_condition(record)[:6], by_condition(record)[12:]
    for first, second in zip(strict, loose, strict=True):
        assert first["risk"] == second["risk"]
        assert (first["risk_private"] == second["risk_private"]) == (first["risk_private"] is None)
    alone = by_condition(record_of(spec_of(points=points[:1]), tmp_path / "one"))
    assert [row["risk_floor"] for row in alone[2:4]] == [row["risk_floor"] for row in strict[2:4]]
    first, _, second = record["metrics"]["conditions"]
    for name in ("matrix_noise", "direction_noise", "head_noise"):
        assert first[name] * rates.gaussian_dp_mu(0.5, 1e-5) == pytest.approx(second[name] * MU)
    assert first["printed_noise"] == second["printed_noise"]


def test_noise_is_named_by_run_step_and_layer_and_shared_by_what_a_run_compares(whole):
    """Two conditions share all noise; in each of them one draw serves four private descents."""
    record, keys = whole
    expected = Counter()
    for run in range(3):
        expected.update({(run, 0, use): 2 for use in ("matrix", "direction", "printed")})
        expected.update({(run, step, "head"): 2 for step in range(4)})
    assert Counter(keys) == expected
    assert record["seeds"]["shared_noise"] == [SHARED_BY]
    assert SHARED_BY in record["ledger"]["holds_for"]


def test_a_run_is_the_same_in_whatever_block_it_is_but_for_its_noise(whole, tmp_path):
    """Noise is keyed by the block; all else by the run's number."""
    with noise_keys() as keys:
        record = record_of(spec_of(first_run=1, runs=2), tmp_path)
    assert {run for run, _, _ in keys} == {1, 2}
    for block, all_runs in zip(by_condition(record), by_condition(whole[0]), strict=True):
        for measure in ("risk", "risk_floor"):
            if block["features"] in ("nonprivate", "random") and all_runs[measure]:
                np.testing.assert_allclose(block[measure], all_runs[measure][1:], rtol=1e-4)
        if private := all_runs["risk_private"]:
            assert not set(block["risk_private"]) & set(private)


def test_fewer_neurons_have_the_noise_of_the_first_of_more():
    def normal(size, run, step, use):
        return np.random.default_rng(run).normal(size=size)

    more, fewer = (layers.neurons_noise((5, p), 1, "matrix", normal) for p in (7, 3))
    assert more.shape == (5, 7)
    np.testing.assert_array_equal(fewer, more[:, :3])


def test_noise_of_the_system_is_another_every_time_and_in_no_record(tmp_path, monkeypatch):
    secrets = iter([b"\0" * 16, b"\1" * 16])
    monkeypatch.setattr("os.urandom", lambda size: next(secrets))
    spec = spec_of(noise_source="os")
    one, two = (record_of(spec, tmp_path / name) for name in ("one", "two"))
    for first, second in zip(by_condition(one), by_condition(two), strict=True):
        assert first["risk"] == second["risk"]
        if first["features"] in ("private", "direction"):
            assert not set(first["overlap"]) & set(second["overlap"])
    assert "00" * 16 not in json.dumps(one)
    # It needs no secret seeds.
    assert one["ledger"]["holds_for"].startswith("exact arithmetic")


def test_fewer_records_or_neurons_are_the_first_of_more():
    large, fewer, narrow = drawn(n=40, p=6), drawn(n=25, p=6), drawn(n=40, p=4)
    for name in ("first", "second"):
        more, less = getattr(large, name), getattr(fewer, name)
        np.testing.assert_array_equal(less.x, more.x[:, :25])
        np.testing.assert_array_equal(less.y, more.y[:, :25])
    np.testing.assert_array_equal(narrow.start.weights, large.start.weights[:, :, :4])
    np.testing.assert_array_equal(narrow.start.biases, large.start.biases[:, :4])
    for other in (fewer, narrow):
        np.testing.assert_array_equal(other.start.mu, large.start.mu)
        np.testing.assert_array_equal(other.test.x, large.test.x)
    np.testing.assert_array_equal(narrow.first.x, large.first.x)
    alone = drawn(runs=[1])
    np.testing.assert_array_equal(alone.first.x[0], large.first.x[1])


def test_draws_have_the_laws_of_the_model():
    data = drawn(d=8, p=400, n=4000, runs=(0, 1, 2))
    start = data.start
    np.testing.assert_allclose(np.linalg.norm(start.mu, axis=1), 1, rtol=1e-6)
    assert start.weights.std() == pytest.approx(8**-0.5, rel=0.03)
    assert start.biases.std() == pytest.approx(1, rel=0.08)
    assert data.first.x.std() == pytest.approx(1, rel=0.02)
    u = np.einsum("rnd,rd->rn", data.first.x, start.mu)
    np.testing.assert_allclose(data.first.y, (-0.5 + u + 0.5 * u**2) / 1.5**0.5, atol=1e-4)
    assert data.first.y.var() == pytest.approx(1, rel=0.1)
    assert len({part.x[0, 0, 0] for part in (data.first, data.second, data.test)}) == 3
    assert len(set(data.first.x[:, 0, 0])) == len(set(start.mu[:, 0])) == 3
    assert not np.array_equal(drawn(seed=1).first.x, drawn(seed=0).first.x)
