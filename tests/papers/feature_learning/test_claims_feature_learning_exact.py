"""feature_learning's exact rules: whether the printed layers are private, by their settings."""

import math

import pytest
from feature_records import change as change_part
from feature_world import (
    EXACT,
    LINKS,
    REFUTED,
    RUNS,
    SWEEPS,
    named,
    record,
    record_of,
    true_groups,
    verdicts,
    with_verdict,
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
    rows = verdicts(true_groups())
    assert {name for name, row in rows.items() if row["kind"] == "exact"} == EXACT | {"feat-6"}
    for name in EXACT:
        assert rows[name]["runs"] == 1
        assert {rows[name][column] for column in ("low", "high", "level")} == {""}
    assert rows["feat-5a"]["runs"] == RUNS


@pytest.mark.parametrize(
    ("axis", "number", "degree"), [("p", 0, 2), ("p", 2, 3), ("d", 1, 3), ("epsilon", 1, 2)]
)
def test_the_first_layer_is_refuted_from_the_width_on_that_its_noise_does_not_hide(
    axis, number, degree
):
    groups = true_groups()
    sweep = record_of(groups, axis)
    change_part(sweep.metrics.link, degree=degree)
    point = sweep.spec.points[number]
    width = printed_first_layer_width(point.d, point.n, degree, point.epsilon, sweep.spec.delta)
    change_part(point, p=math.floor(width))
    row = verdicts(groups)["feat-5b"]
    assert row["verdict"] == REPRODUCED and row["observed"] > 0
    change_part(point, p=math.floor(width) + 1)
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_REPRODUCED) == named("5b") | REFUTED
    assert rows["feat-5b"]["observed"] < 0
    condition = f"d {point.d}, n {point.n}, p {point.p}, epsilon {point.epsilon:g}"
    assert f"{condition}, in mixed-{axis}" in rows["feat-5b"]["note"]


def test_the_first_layer_is_held_against_the_delta_of_its_record():
    groups = true_groups()
    for each in groups["axes"]:
        change_part(each.spec, delta=1e-7)
    assert printed_first_layer_width(64, 20_000, 2, 2.0, 1e-7) < 256
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_REPRODUCED) == named("5b") | REFUTED
    assert rows["feat-5b"]["comparisons"] == sum(len(SWEEPS[axis]) for axis in "pd") + 2


def failing(relation):
    """(delta, share of the range) of every comparison that does not hold."""
    records = PaperRecords({}, {"links": [record("mixed", "n", SWEEPS["n"])]})
    evidence = second_layer_is_private(records, group="links", relation=relation, above=0.0)
    (comparisons,) = evidence.alternatives
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
    cells = failing("replace_one")
    least = [min(share for other, share in cells if other == delta) for delta in DELTAS]
    assert least == [0.1] * 4 + [0.25] * 3 + [0.5]


def test_the_second_layer_s_worst_place_is_the_end_of_the_range_at_the_smallest_delta():
    rows = verdicts(true_groups())
    assert rows["feat-6a"]["comparisons"] == rows["feat-6b"]["comparisons"] == 64
    assert rows["feat-6b"]["note"].endswith("epsilon 184, 0.999 of the range, delta 1e-10")
    assert rows["feat-6b"]["observed"] == pytest.approx(-13.2264, abs=1e-4)
    assert rows["feat-6a"]["note"].endswith("epsilon 0.147, 0.001 of the range, delta 1e-08")
    assert rows["feat-6a"]["observed"] == pytest.approx(0.0194, abs=1e-4)


def test_the_links_of_the_world_are_those_of_the_config():
    links = {name: link(each) for name, each in load_config().feature_learning.links.items()}
    assert {name: (each.degree, each.information_exponent) for name, each in links.items()} == LINKS
