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


def test_the_cheapest_of_equal_entries_comes_first_and_goes_one_look_further():
    found = next_round([entry("dear", "b"), entry("cheap", "a")], conditions(a=1, b=50), 100)
    assert found.entries == ("cheap",)
    assert found.runs == {"a": 24}
    assert found.cpu_s == 12


def test_a_likely_decision_comes_before_an_unlikely_one_of_the_same_cost():
    entries = [entry("unlikely", "a", at24=0.1), entry("likely", "b", at24=0.8)]
    assert next_round(entries, conditions(a=1, b=1), 20).entries == ("likely",)


def test_runs_that_serve_several_entries_count_for_all_of_them():
    entries = [entry("alone", "a"), *(entry(f"shared {n}", "b") for n in range(3))]
    found = next_round(entries, conditions(a=1, b=2), 30)
    assert found.entries == ("shared 0", "shared 1", "shared 2")
    assert found.runs == {"b": 24}


def test_an_entry_needs_all_the_conditions_that_it_reads():
    found = next_round([entry("both", "a", "b")], conditions(a=1, b=2), 100)
    assert found.runs == {"a": 24, "b": 24}
    assert found.cpu_s == 36


def test_a_promise_at_a_later_look_leads_there_by_the_next_one():
    found = next_round([entry("slow", "a", at24=0.0, at48=0.0, at96=0.9)], conditions(a=1), 1000)
    assert found.runs == {"a": 24}


def test_a_round_ends_at_half_of_the_time_and_the_rest_is_planned_by_what_it_shows():
    entries = [entry(str(n), str(n)) for n in range(10)]
    costs = conditions(**{str(n): 1 for n in range(10)})
    assert len(next_round(entries, costs, 80).entries) == 4
    assert len(next_round(entries, costs, 1000).entries) == 10


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


def test_runs_come_in_whole_blocks_and_blocks_that_are_there_are_not_paid_again():
    costs = {"a": Condition(runs=16, block=16, cpu_s=1.0), "b": Condition(18, 6, 1.0)}
    found = next_round([entry("x", "a", "b")], costs, 1000)
    assert found.runs == {"a": 32, "b": 24}
    assert found.cpu_s == 16 + 6


def test_a_raise_for_one_entry_is_not_paid_again_by_another_of_the_round():
    entries = [entry("first", "a"), entry("second", "a", "b")]
    found = next_round(entries, conditions(a=5, b=1), 10_000)
    assert found.entries == ("first", "second")
    assert found.cpu_s == 12 * 6
