"""What the papers' claims ask of columns of rows, on a table small enough to compute by hand.

Arm a has 1, 3, 4 and 4.5 at x = 1, 2, 4 and 8, arm b as much and x / 2 more; all values of a run
have its offset. That the entries of every paper ask the right questions is tests/contract's.
"""

import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from dpatlas.errors import InputError
from dpatlas_workflow.evidence.comparisons import NotRun, PaperRecords, Undecided
from dpatlas_workflow.evidence.tests import TESTS

Y = {1: 1.0, 2: 3.0, 4: 4.0, 8: 4.5}
OFFSETS = (0.25, -0.5, 0.125, 0.125)
X_OF_B = 0.5


def rows_of(arms=("a", "b"), runs=range(4), xs=tuple(Y)):
    rows = [{"arm": arm, "x": x, "run": run} for arm, x, run in product(arms, xs, runs)]
    for row in rows:
        row["y"] = Y[row["x"]] + OFFSETS[row["run"]] + X_OF_B * row["x"] * (row["arm"] == "b")
        row |= {"z": 2 * row["y"], "draws": 50, "error": 0.1}
    return rows


def record(rows, name="one", **spec):
    names = list(rows[0])
    shape = SimpleNamespace(tables={"rows": names}, readable=lambda table: names)
    spec = {"seed": 0, "steps": 8, **spec}
    parts = {"facts": {}, "tables": {"rows": rows}, "condition": name, "ids": (name,)}
    return SimpleNamespace(id=name, key="kl_privacy", spec=spec, shape=shape, **parts)


def alternatives(kind, *records, **arguments):
    """The comparisons of a test of column y; its label says the arm and x of a row."""
    given = {"group": "sweeps", "column": "y", "label": "{arm} at {x}", **arguments}
    horizons = {"horizons": {"early": 8}}
    groups = {"sweeps": records or [record(rows_of())]}
    return TESTS[kind](**given).evidence(PaperRecords(horizons, groups)).alternatives


A, B = {"where": {"arm": "a"}}, {"where": {"arm": "b"}}
ALONG = {**A, "axis": "x"}
LOG2 = np.polyfit(range(4), list(Y.values()), 1)[0]


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [
        ("mean", {**A, "by": ["x"]}, [1, 3, 4, 4.5]),
        ("mean", {"where": {"arm": ["b", "a"], "x": 2}}, [4, 3]),
        ("mean", {"where": {"arm": "a", "x": [8, 1]}}, [4.5, 1]),
        ("mean", {**A, "by": ["x"], "at_least": {"x": 2}, "at_most": {"x": 4}}, [3, 4]),
        ("mean", {"where": {"arm": "a", "x": "$largest"}}, [4.5]),
        ("mean", {"where": {"arm": "a", "x": "$last"}}, [4.5]),
        ("mean", {"where": {"arm": "a", "x": "$early/2"}}, [4]),
        ("mean", {"where": {"arm": "a", "x": "$any"}, "by": ["x"]}, [1, 3, 4, 4.5]),
        ("mean", {**A, "by": ["x"], "at_most": {"x": 1}, "log": True},
         [np.log(1 + np.array(OFFSETS)).mean()]),
        ("difference", {**B, "less": {"arm": "a"}, "by": ["x"]}, [0.5, 1, 2, 4]),
        ("difference", {"where": {"arm": "b", "x": 8}, "less": {"x": [1, 2]}}, [7, 4.5]),
        ("change", {**ALONG, "between": "neighbours"}, [2, 1, 0.5]),
        ("change", {**ALONG, "between": "neighbours", "falls": True}, [-2, -1, -0.5]),
        ("change", {**ALONG, "between": "ends"}, [3.5]),
        ("change", {**ALONG, "between": "neighbours", "values": [1, "$early"]}, [3.5]),
        ("slope", {**ALONG, "scale": "log2"}, [LOG2]),
        ("slope", {**ALONG, "scale": "log2", "falls": True}, [-LOG2]),
        ("slope", {**ALONG, "scale": "log"}, [LOG2 / math.log(2)]),
        ("slope", {**ALONG}, [np.polyfit(list(Y), list(Y.values()), 1)[0]]),
        ("rises", {**ALONG, "scale": "log2", "fall": 0.1, "pair_label": "{low} to {high}"},
         [LOG2, 2, 1, 0.5]),
        # Above the chords from 1 to 4 and from 2 to 8.
        ("concave", ALONG, [1, 0.5]),
        ("peak", {**ALONG, "peak": 4}, [3, 1, -0.5]),
        ("peak", {**ALONG, "peak": 4, "beyond": True}, [-0.5]),
        ("below", {"where": {"arm": "a", "x": 2}, "refuted_by": "z", "below": 3.5}, [3, 6]),
        ("normal", {"where": {"arm": "a", "x": 2, "run": 0}, "error": "error"}, [3.25]),
        ("exact", {"where": {"arm": "a", "x": 2, "run": 0}}, [3.25]),
    ],
)  # fmt: skip
def test_a_test_compares_what_its_words_say(kind, arguments, expected):
    (comparisons,) = alternatives(kind, **arguments)
    assert [each.estimate.value for each in comparisons] == pytest.approx(expected)


def test_each_value_between_the_ends_is_an_alternative_peak_above_both():
    found = alternatives("peak", **ALONG)
    values = [[each.estimate.value for each in one] for one in found]
    assert values == [pytest.approx([2, -1.5]), pytest.approx([3, -0.5])]
    some = alternatives("difference", **B, less={"arm": "a"}, by=["x"], some=True)
    assert [len(each) for each in some] == [1] * 4


def test_limits_vetoes_and_known_errors_are_those_of_the_arguments():
    ((mean,),) = alternatives("mean", **A, at_most={"x": 1}, target=2.0, tolerance=0.5)
    assert (mean.above, mean.below, mean.label) == (1.5, 2.5, "a at 1")
    at = {"arm": "a", "x": 2, "run": 0}
    ((normal,),) = alternatives("normal", where=at, error="error", above=1.0, veto=True)
    estimate = normal.estimate
    assert (normal.above, normal.below, normal.veto) == (1.0, math.inf, True)
    assert (estimate.standard_error, estimate.degrees, estimate.runs) == (0.1, math.inf, 50)
    ((shows, refutes),) = alternatives(
        "below", where={"arm": "a", "x": 2}, refuted_by="z", below=3.5, refuting_label="z of {arm}"
    )
    assert (shows.shows_only, shows.veto, shows.below) == (True, False, 3.5)
    assert (refutes.shows_only, refutes.veto, refutes.label) == (False, True, "z of a")
    log = {"fall": 0.1, "log": True, "pair_label": "{low} to {high}"}
    ((_, *pairs),) = alternatives("rises", **ALONG, **log)
    assert [pair.label for pair in pairs] == ["1 to 2", "2 to 4", "4 to 8"]
    assert all(pair.veto for pair in pairs)
    assert [pair.above for pair in pairs] == [pytest.approx(-math.log(1.1))] * 3
    rows = [{"y": 1.0, "above": 0.5, "below": 2.0, "of_runs": 7, "arm": "a", "x": 1}]
    ((exact,),) = alternatives("exact", record(rows))
    assert (exact.above, exact.below, exact.estimate.runs) == (0.5, 2.0, 7)
    assert exact.estimate.exact


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("difference", {"where": {"arm": "b", "x": 4}, "less": {"arm": "a"}}),
        ("change", {**ALONG, "between": "ends"}),
        ("slope", ALONG),
        ("concave", {**ALONG, "at_most": {"x": 4}}),
    ],
)
def test_what_a_run_shares_is_subtracted_over_the_runs_that_all_values_have(kind, arguments):
    rows = [row for row in rows_of() if (row["run"], row["x"]) != (3, 4) or row["arm"] == "b"]
    for row in rows:
        row["y"] += 0.1 * row["run"] * (row["arm"] == "b")
    ((found,),) = alternatives(kind, record(rows[::-1]), **arguments)
    spread = np.diff(found.estimate.samples[0]) if len(found.estimate.samples) == 1 else [0]
    of_b = 0.1 if kind == "difference" else 0
    assert np.abs(spread) == pytest.approx(of_b)
    assert found.estimate.runs == (4 if kind == "change" else 3)


def test_what_rounding_leaves_of_curves_that_do_not_change_is_equal():
    levels = np.random.default_rng(0).uniform(0.5, 0.9, size=12)
    rows = [{"arm": "a", "x": x, "run": run} for x, run in product((0.5, 2.3, 2.4), range(12))]
    for row in rows:
        row["y"] = levels[row["run"]]
    ((found,),) = alternatives("slope", record(rows), **ALONG)
    assert found.estimate.equal == 1.0


def test_runs_of_other_seeds_are_no_pairs():
    def difference(seed):
        pair = [record(rows_of("a"), "a"), record(rows_of("b"), "b", seed=seed)]
        ((found,),) = alternatives(
            "difference", *pair, where={"arm": "b", "x": 4}, less={"arm": "a"}
        )
        return found.estimate

    paired, unpaired = difference(0), difference(1)
    assert paired.value == unpaired.value == pytest.approx(2)
    assert paired.standard_error < 1e-9
    assert unpaired.standard_error == pytest.approx(np.std(OFFSETS, ddof=1) / math.sqrt(2))


def test_every_record_is_asked_where_claims_go_by_record():
    pair = [record(rows_of(), "one", depth=2), record(rows_of(xs=(1, 2)), "two", depth=3)]
    words = {"by": ["record"], "label": "{record}"}
    ((*means,),) = alternatives("mean", *pair, where={"arm": "a", "x": 2}, **words)
    assert [each.label for each in means] == ["one", "two"]
    with pytest.raises(NotRun, match="two has no row with arm a, x 8"):
        alternatives("mean", *pair, where={"arm": "a", "x": 8}, **words)
    ((found,),) = alternatives("mean", *pair, where={"arm": "a", "x": 8}, may_lack=["x"], **words)
    assert found.label == "one"
    # A field of the spec: the others are not read.
    ((found,),) = alternatives("mean", *pair, where={"arm": "a", "x": 2, "depth": 3}, **words)
    assert found.label == "two"
    largest = alternatives("mean", *pair, where={"arm": "a", "x": "$largest"}, **words)
    assert [each.estimate.value for each in largest[0]] == pytest.approx([4.5, 3])


def lost(rows, value=math.nan):
    rows[2]["y"] = value
    return [record(rows)]


@pytest.mark.parametrize(
    ("kind", "records", "arguments", "error", "message"),
    [
        ("mean", [], {"where": {"arm": "c"}}, NotRun, "group sweeps has no c"),
        ("mean", [], {**A, "at_least": {"x": 9}}, NotRun, "group sweeps has no x 9"),
        ("mean", [], {"where": {"x": 3}, "lacking": "no {value}!"}, NotRun, "no 3!"),
        ("mean", [], {"where": {"x": 3}, "lacking": {"x": "{x} in {group}"}}, NotRun, "3 in "),
        ("mean", [], {"where": {"x": "$late"}}, NotRun, "the config has no horizon late"),
        ("mean", [], {"where": {"depth": 3}}, InputError, "where of .*: found depth"),
        ("slope", [record(rows_of(xs=[2]))], ALONG, NotRun, "a has 1 values of x; .* needs 2"),
        ("concave", [record(rows_of(xs=[1, 2]))], ALONG, NotRun, "2 values of x; .* needs 3"),
        ("slope", [], {**ALONG, "values": [1, 3]}, NotRun, "group sweeps has no x 3"),
        ("peak", [], {**ALONG, "peak": 3}, NotRun, "a has x 1, 2, 4, 8, not x 3 and a greater one"),
        ("peak", [], {"axis": "x", "by": ["arm"]}, InputError, "several cells"),
        ("mean", lost(rows_of()), {**A, "by": ["x"]}, Undecided, "1 of 4 runs of one diverged"),
        ("mean", lost(rows_of(), 0.0), {**A, "log": True, "by": ["x"]}, Undecided, "is zero"),
        ("exact", lost(rows_of()), A, Undecided, "one diverged in some run"),
        ("exact", [record([{"y": 1.0, "undecided": "why"}])], {}, Undecided, "why"),
        ("normal", lost(rows_of()), {**A, "error": "error", "veto": True}, Undecided, "has no y"),
        ("difference", [], {"where": {"x": 8}, "less": {"x": 1}, "by": ["z"]}, NotRun, "with z"),
        ("mean", [], A, InputError, "found run 0 twice"),
        ("mean", [record(rows_of(), n) for n in "ab"], {**A, "by": ["x"]}, InputError, "twice"),
    ],
)  # fmt: skip
def test_what_gives_no_interval_says_why(kind, records, arguments, error, message):
    with pytest.raises(error, match=message) as caught:
        alternatives(kind, *records, **arguments)
    if "diverged" in message and kind == "mean":
        assert caught.value.runs == 3
