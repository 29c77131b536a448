"""feature_learning's rules against runs whose truth is known, through the committed claims.yaml."""

import math
import re

import numpy as np
import pytest
from committed_claims import record_change
from feature_records import change as change_part
from feature_world import (
    MOST,
    REFUTED_BY_ARITHMETIC,
    RUNS,
    SWEEPS,
    changed,
    named,
    record,
    record_of,
    row_of,
    rows_of,
    shift,
    true_groups,
    values_of,
    verdicts,
)

from dpatlas.formulas.feature_learning.rates import (
    largest_epsilon,
    printed_first_layer_width,
    second_layer_delta,
)
from dpatlas_workflow.evidence.verdicts import (
    INCONCLUSIVE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
)
from dpatlas_workflow.papers.feature_learning.claims import DELTAS, SHARES, second_layer

IDENTITIES = ("feat-5a", "feat-6a")


def judged(change, verdict, *parts):
    """Verdicts after a change: `verdict` of these parts, and all others as in the true groups."""
    rows = verdicts(changed(change))
    expected = dict.fromkeys(rows, REPRODUCED) | dict.fromkeys(
        REFUTED_BY_ARITHMETIC, NOT_REPRODUCED
    )
    expected |= dict.fromkeys(IDENTITIES, NOT_CONTRADICTED)
    expected |= dict.fromkeys(named(*parts), verdict)
    # Other readings do not count for their claim.
    if {"3c", "3d"} & {*parts} and not {"3a", "3b"} & {*parts}:
        expected["feat-3"] = REPRODUCED
    assert {name: row["verdict"] for name, row in rows.items()} == expected
    return rows


@pytest.mark.parametrize(
    ("change", "part"),
    [
        # At the largest n, of another link of exponent 1, and on the other side of zero.
        (shift("overlap", -0.25, "private", MOST, "n", "odd"), "1a"),
        (shift("risk_private", 0.5, "direction", MOST, "n"), "2e"),
        (shift("cosine", -0.06, "printed", MOST, "n", "odd"), "5a"),
    ],
)
def test_one_value_of_one_link_refutes_what_is_claimed_of_all(change, part):
    judged(change, NOT_REPRODUCED, part)


@pytest.mark.parametrize(
    "change",
    [
        # Below the largest n; of a link of exponent 2 where 1 is asked for; along other axes.
        shift("risk_private", -0.3, "random", 5000),
        shift("risk_private", 0.9, "private", MOST, "n", "even"),
        shift("overlap", -0.9, "private", 256, "p"),
    ],
)
def test_what_no_claim_asks_about_changes_no_verdict(change):
    judged(change, REPRODUCED)


def test_the_fall_along_a_ladder_is_a_factor_less_that_of_the_rate():
    """Over the last doubling of d, where p = d, the rate falls by a factor 2^(1 / (8 q))."""
    groups = true_groups()
    before, after = (values_of(groups, "risk_private", "private", d, "ladder") for d in (64, 128))
    degree = record_of(groups, "ladder").facts["degree"]
    expected = np.mean(np.log(np.divide(before, after))) - math.log(2) / (8 * degree)
    assert row_of(groups, "feat-7c")["observed"] == pytest.approx(expected)


def test_what_conditions_and_kinds_of_features_of_a_run_share_is_subtracted():
    shared = np.linspace(-0.15, 0.15, RUNS)

    def add_shared(groups):
        for each in groups["links"]:
            for row in each.tables["rows"]:
                for name in ("overlap", "risk_private", "risk"):
                    if row[name] is not None:
                        row[name] += shared[row["run"]]

    def break_pairs(groups):
        add_shared(groups)
        for measure, *condition in (
            ("overlap", "private", 5000),
            ("risk_private", "direction", MOST),
        ):
            reversed_runs = values_of(groups, measure, *condition)[::-1]
            for row, value in zip(rows_of(groups, *condition), reversed_runs, strict=True):
                row[measure] = value

    judged(add_shared, REPRODUCED)
    # With the same means, pairs of runs that do not belong together show nothing.
    judged(break_pairs, INCONCLUSIVE, "1a", "2e")


@record_change
def only(groups, group, field, *values):
    """The change that leaves a group the records with one of these values in their spec."""
    groups[group] = [r for r in groups[group] if getattr(r.spec, field) in values]


@record_change
def one_value(groups, axis, link="mixed"):
    """The change that leaves a sweep its largest value."""
    for records in groups.values():
        for index, each in enumerate(records):
            if (each.spec.axis, each.spec.link) == (axis, link):
                records[index] = record(link, axis, [max(SWEEPS[axis])])


def without_features_of_both(groups):
    """As where both layers share one data set."""
    for each in groups["links"] + groups["axes"]:
        rows = each.tables["rows"]
        rows[:] = [row for row in rows if row["features"] != "random-both"]


@pytest.mark.parametrize(
    ("change", "missing", "note"),
    [
        (
            only("links", "link", "even"),
            {"1a", *(f"2{part}" for part in "abcde"), *(f"3{part}" for part in "abcd"), "5a"},
            "no (link of information exponent 1|mixed|odd)",
        ),
        (only("links", "link", "mixed", "even"), {"2b", "2d", "3b", "3d"}, "links has no odd"),
        (one_value("n", "odd"), {"1a", "3b", "3d"}, "odd.* has 1 values of n; the claim needs 2"),
        (only("axes", "axis", "d", "epsilon"), {"4a", "4b", "4c"}, "group axes has no p"),
        (without_features_of_both, {"2c", "2d"}, "group links has no random-both"),
    ],
)
def test_what_the_records_lack_is_not_run_and_named(change, missing, note):
    rows = judged(change, NOT_RUN, *missing)
    assert all(re.search(note, rows[f"feat-{part}"]["note"]) for part in missing)


@pytest.mark.parametrize(
    ("axis", "number", "degree"), [("p", 2, 3), ("d", 1, 3), ("epsilon", 1, 2)]
)
def test_the_first_layer_is_refuted_from_the_width_on_that_its_noise_does_not_hide(
    axis, number, degree
):
    def widened(beyond):
        """The change that gives a condition the last private width and so many neurons more."""

        def change(groups):
            sweep = record_of(groups, axis)
            sweep.facts["degree"] = degree
            point, delta = sweep.spec.points[number], sweep.spec.delta
            width = printed_first_layer_width(point.d, point.n, degree, point.epsilon, delta)
            change_part(point, p=math.floor(width) + beyond)

        return change

    assert judged(widened(0), REPRODUCED)["feat-5b"]["observed"] > 0
    row = judged(widened(1), NOT_REPRODUCED, "5b")["feat-5b"]
    assert row["observed"] < 0
    assert f"in mixed-{axis}" in row["note"]


def test_the_first_layer_is_compared_with_the_delta_of_its_record():
    assert printed_first_layer_width(64, 20_000, 2, 2.0, 1e-7) < 256

    def change(groups):
        for each in groups["axes"]:
            change_part(each.spec, delta=1e-7)

    row = judged(change, NOT_REPRODUCED, "5b")["feat-5b"]
    assert row["comparisons"] == sum(len(SWEEPS[axis]) for axis in "pd") + 2


def failing(relation):
    """(delta, share of the range) of every comparison that does not hold."""
    rows = second_layer([]).query("relation == @relation and margin <= 0")
    return set(zip(rows.delta, rows.share, strict=True))


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_second_layer_fails_where_its_delta_exceeds_the_claimed_one(relation):
    """Where a record is replaced, from a tenth to half of the range of epsilon on."""
    expected = {
        (delta, share)
        for delta in DELTAS
        for share in SHARES
        if second_layer_delta(share * largest_epsilon(delta), delta, relation) > delta
    }
    assert failing(relation) == expected
    least = [min((s for d, s in expected if d == delta), default=None) for delta in DELTAS]
    replaced = [0.1] * 4 + [0.25] * 3 + [0.5]
    assert least == (replaced if relation == "replace_one" else [None] * len(DELTAS))


def test_the_second_layer_is_worst_at_the_end_of_the_range_at_the_smallest_delta():
    rows = verdicts(true_groups())
    assert rows["feat-6a"]["comparisons"] == rows["feat-6b"]["comparisons"] == 64
    assert rows["feat-6b"]["note"].endswith("epsilon 184, 0.999 of the range, delta 1e-10")
    assert rows["feat-6b"]["observed"] == pytest.approx(-13.2264, abs=1e-4)
    assert "epsilon 0.147, 0.001 of the range, delta 1e-08" in rows["feat-6a"]["note"]
    assert rows["feat-6a"]["observed"] == pytest.approx(0.0194, abs=1e-4)
