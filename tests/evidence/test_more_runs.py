"""Which conditions get more runs: what decides most per CPU second, and what is affordable."""

import pytest

from dpatlas_workflow.evidence.more_runs import SLACK, Condition, OpenEntry, next_round


def entry(name, *conditions, look=12, **chances):
    """chances: by look, as `at24=0.5`; 0.9 at every later look if none is given."""
    given = {int(each[2:]): chance for each, chance in chances.items()}
    later = given or {each: 0.9 for each in (12, 24, 48, 96) if each > look}
    return OpenEntry(name, later, conditions)


def conditions(**cpu_s):
    return {name: Condition(12, 6, cost) for name, cost in cpu_s.items()}


UNLIKELY, SECOND = entry("unlikely", "a", at24=0.1), entry("second", "a", "b")
LATER = entry("slow", "a", at24=0.0, at48=0.0, at96=0.9)
SHARED = [entry(f"shared {n}", "b") for n in range(3)]
BLOCKS = {"a": Condition(runs=16, block=16, cpu_s=1.0), "b": Condition(18, 6, 1.0)}


@pytest.mark.parametrize(
    ("entries", "costs", "seconds", "chosen", "runs", "cpu_s"),
    [
        # The cheapest of equal entries comes first and goes one look further.
        ([entry("dear", "b"), entry("cheap", "a")], conditions(a=1, b=50), 100, [1], {"a": 24}, 12),
        # A likely decision comes before an unlikely one of the same cost.
        ([UNLIKELY, entry("x", "b", at24=0.8)], conditions(a=1, b=1), 20, [1], {"b": 24}, 12),
        # Runs that serve several entries count for all of them.
        ([entry("alone", "a"), *SHARED], conditions(a=1, b=2), 30, [1, 2, 3], {"b": 24}, 24),
        # An entry needs all the conditions that it reads.
        ([entry("both", "a", "b")], conditions(a=1, b=2), 100, [0], {"a": 24, "b": 24}, 36),
        # A promise at a later look leads there by the next one.
        ([LATER], conditions(a=1), 1000, [0], {"a": 24}, 12),
        # Runs come in whole blocks, and blocks that are there are not paid again.
        ([entry("x", "a", "b")], BLOCKS, 1000, [0], {"a": 32, "b": 24}, 16 + 6),
        # A raise for one entry is not paid again by another of the round.
        ([entry("x", "a"), SECOND], conditions(a=5, b=1), 10_000, [0, 1], {"a": 24, "b": 24}, 72),
    ],
)
def test_what_decides_most_for_its_cost_is_run_next(entries, costs, seconds, chosen, runs, cpu_s):
    found = next_round(entries, costs, seconds)
    assert found.entries == tuple(entries[place].id for place in chosen)
    assert (found.runs, found.cpu_s) == (runs, cpu_s)


def test_a_round_ends_at_half_of_the_time_and_the_rest_is_planned_by_what_it_shows():
    names = [*"abcdefghij"]
    entries, costs = [entry(name, name) for name in names], conditions(**dict.fromkeys(names, 1))
    assert [len(next_round(entries, costs, time).entries) for time in (80, 1000)] == [4, 10]


def test_what_does_not_fit_into_the_time_is_left_out_and_cheaper_entries_are_taken():
    entries = [entry("dear", "a"), entry("cheap", "b", at24=0.01)]
    costs = conditions(a=10, b=1)
    assert next_round(entries, costs, 119).entries == ("cheap",)
    assert next_round(entries, costs, 12 * SLACK).entries == ("cheap",)
    assert next_round(entries, costs, 12) is None
    assert next_round(entries[:1], costs, 120 * SLACK).runs == {"a": 24}


@pytest.mark.parametrize(
    "finished",
    [
        entry("at its last look", "a", look=96),
        entry("without spread", "a", at24=0.0, at48=0.0, at96=0.0),
        # Its runs are there, and something else keeps it from its next look.
        entry("kept back", "a", look=0),
    ],
)
def test_an_entry_that_more_runs_do_not_help_gets_none(finished):
    assert next_round([finished], conditions(a=1), 1e9) is None
