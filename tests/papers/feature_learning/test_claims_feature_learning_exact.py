"""feature_learning's exact rules: whether the printed layers are private, by their settings."""

import math

import pytest
from feature_records import change as change_part
from feature_world import (
    EXACT,
    FALSE,
    LINKS,
    RUNS,
    SWEEPS,
    named,
    record,
    record_of,
    verdicts,
    with_verdict,
    world,
)

from dpatlas.config.load import load_config
from dpatlas.evidence.claims import NOT_REPRODUCED, REPRODUCED
from dpatlas.evidence.comparisons import PaperRecords
from dpatlas.papers.feature_learning.claims import DELTAS, SHARES, second_layer_is_private
from dpatlas.papers.feature_learning.formulas.rates import (
    largest_epsilon,
    printed_first_layer_width,
    second_layer_delta,
)
from dpatlas.papers.feature_learning.formulas.single_index import link


def test_what_follows_from_formulas_counts_as_one_run_without_an_interval():
    rows = verdicts(world())
    assert {name for name, row in rows.items() if row["kind"] == "exact"} == EXACT | {"feat-6"}
    for name in EXACT:
        assert rows[name]["runs"] == 1
        assert {rows[name][column] for column in ("low", "high", "level")} == {""}
    assert rows["feat-5a"]["runs"] == RUNS


def with_width(place, p):
    """The change that gives one condition of a record in `axes` another width."""
    axis, number = place

    def change(groups):
        change_part(record_of(groups, axis).spec.points[number], p=p)

    return change


@pytest.mark.parametrize("place", [("p", 0), ("p", 2), ("d", 1), ("epsilon", 1)])
@pytest.mark.parametrize("degree", [2, 3])
def test_the_first_layer_is_refuted_from_the_width_on_that_its_noise_does_not_hide(place, degree):
    groups = world()
    sweep = record_of(groups, place[0])
    change_part(sweep.metrics.link, degree=degree)
    point = sweep.spec.points[place[1]]
    width = printed_first_layer_width(point.d, point.n, degree, point.epsilon, sweep.spec.delta)
    with_width(place, math.floor(width))(groups)
    rows = verdicts(groups)
    assert rows["feat-5b"]["verdict"] == REPRODUCED and rows["feat-5b"]["observed"] > 0
    with_width(place, math.floor(width) + 1)(groups)
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_REPRODUCED) == named("5b") | FALSE
    assert rows["feat-5b"]["observed"] < 0
    condition = f"d {point.d}, n {point.n}, p {point.p}, epsilon {point.epsilon:g}"
    assert f"{condition}, in mixed-{place[0]}" in rows["feat-5b"]["note"]


def test_the_first_layer_is_held_against_the_delta_of_its_record():
    groups = world()
    for each in groups["axes"]:
        change_part(each.spec, delta=1e-7)
    assert printed_first_layer_width(64, 20_000, 2, 2.0, 1e-7) < 256
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_REPRODUCED) == named("5b") | FALSE
    assert rows["feat-5b"]["comparisons"] == sum(len(SWEEPS[axis]) for axis in "pd") + 2


def failing(relation):
    """(delta, share of the range) of every comparison that does not hold."""
    records = PaperRecords({}, {"links": [record("mixed", "n", SWEEPS["n"])]})
    found = second_layer_is_private(records, group="links", relation=relation, above=0.0)
    (comparisons,) = found.alternatives
    cells = [(delta, share) for delta in DELTAS for share in SHARES]
    values = [comparison.estimate.value for comparison in comparisons]
    return {cell for cell, value in zip(cells, values, strict=True) if value <= 0}


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_second_layer_fails_where_its_delta_exceeds_the_claimed_one(relation):
    expected = {
        (delta, share)
        for delta in DELTAS
        for share in SHARES
        if second_layer_delta(share * largest_epsilon(delta), delta, relation) > delta
    }
    assert failing(relation) == expected
    assert bool(expected) == (relation == "replace_one")


def test_for_replaced_records_the_second_layer_fails_from_a_tenth_to_half_of_the_range_on():
    found = failing("replace_one")
    least = {delta: min(share for each, share in found if each == delta) for delta in DELTAS}
    assert [least[delta] for delta in (1e-10, 1e-8, 1e-6, 1e-5)] == [0.1] * 4
    assert [least[delta] for delta in (1e-4, 1e-3, 1e-2, 0.1)] == [0.25, 0.25, 0.25, 0.5]


def test_the_second_layer_s_worst_place_is_the_end_of_the_range_at_the_smallest_delta():
    rows = verdicts(world())
    assert rows["feat-6a"]["comparisons"] == rows["feat-6b"]["comparisons"] == 64
    assert rows["feat-6b"]["note"].endswith("epsilon 184, 0.999 of the range, delta 1e-10")
    assert rows["feat-6b"]["observed"] == pytest.approx(-13.2264, abs=1e-4)
    assert rows["feat-6a"]["note"].endswith("epsilon 0.147, 0.001 of the range, delta 1e-08")
    assert rows["feat-6a"]["observed"] == pytest.approx(0.0194, abs=1e-4)


def test_the_links_of_the_world_are_those_of_the_config():
    given = load_config().feature_learning.links
    found = {name: link(given[name]) for name in given}
    assert {name: (each.degree, each.information_exponent) for name, each in found.items()} == LINKS
