"""Runs in blocks: specs that more runs leave as they are, records that add up, first runs alone."""

import json

import pytest
from figure_samples import blocks_of
from sgld_records import utility_record

from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.common import run_blocks
from dpatlas_workflow.config.load import load_tier
from dpatlas_workflow.cost.estimate import seconds_per_run
from dpatlas_workflow.cost.plan import jobs_of, make_plan
from dpatlas_workflow.records import joined, noting


def test_facts_of_blocks_may_differ_in_their_last_digits_alone():
    """As between processors."""
    first, *others = blocks_of(utility_record(), 1)
    others[0].facts["excess_risk_at_zero"] *= 1 + 1e-9
    assert joined([first, *others])[0].facts == first.facts
    others[0].facts["classes"] = 3
    with pytest.raises(
        InputError, match=r"metrics\.facts\.classes: found 2 in one block of runs, 3"
    ):
        joined([first, *others])


def test_blocks_become_one_record_whatever_their_order():
    record = utility_record()
    first, *others = blocks = blocks_of(record, 1)
    assert joined([first]) == [first] and first.ids == (first.id,)
    (whole,) = joined([*others, first])
    assert whole.ids == tuple(block.id for block in blocks)
    assert whole.id == whole.condition == first.condition != first.id
    assert (whole.spec.first_run, whole.spec.runs, whole.spec_digest) == (0, 3, first.spec_digest)
    by_run = sorted(record.tables["risks"], key=lambda row: row["run"])
    assert whole.tables == {**record.tables, "risks": by_run} and whole.facts == record.facts
    assert whole.cut(1).tables == first.tables and list(whole.cut(1).spec.run_numbers) == [0]
    assert whole.cut(3) is whole.cut(4) is whole
    with noting() as ids:
        assert whole.cut(2).facts
    assert ids == {first.id}


def test_a_missing_and_a_doubled_block_are_refused_by_its_name():
    first, second, third = blocks_of(utility_record(), 1)
    for blocks in ([first, third], [second, third], [first, second, second]):
        with pytest.raises(InputError, match=r"utility-run\d-\w{8}: found runs from \d on after"):
            joined(blocks)


def blocks(config, runs, runs_per_job):
    return run_blocks(config, "dp_sgld", "utility", {"n": 7}, "x", runs, runs_per_job)


def test_more_runs_are_more_blocks_and_change_no_earlier_one():
    config = load_tier("smoke")
    first, second = blocks(config, 8, 4)
    assert first.condition == second.condition
    assert (first.fields["first_run"], second.fields["first_run"]) == (0, 4)
    assert first.id.startswith("x-run0-") and second.id.startswith("x-run4-")
    assert blocks(config, 12, 4)[:2] == [first, second]
    more = config.with_more_runs({first.condition: 13, "gone-01234567": 99})
    assert blocks(more, 8, 4)[:2] == [first, second]
    assert [spec.fields["first_run"] for spec in blocks(more, 8, 4)] == [0, 4, 8, 12]
    assert blocks(config.with_more_runs({first.condition: 3}), 8, 4) == [first, second]
    # A block that the config makes smaller than a job's stays as it is.
    (small,) = blocks(config, 3, 4)
    more = config.with_more_runs({small.condition: 4})
    assert [spec.fields["runs"] for spec in blocks(more, 3, 4)] == [3, 3]
    assert blocks(more, 3, 4)[0] == small
    assert config.more_runs == {} and "more_runs" not in more.plain()
    with pytest.raises(InputError, match="dp_sgld: runs of x: found 9 with runs_per_job 4"):
        blocks(config, 9, 4)


@pytest.mark.parametrize("text", ["", "[]", "5", '{"a": 0}', '{"a": 1.5}', '{"a": true}', "{"])
def test_a_damaged_file_of_more_runs_is_refused_in_a_line(tmp_path, text):
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke/more_runs.json").write_text(text)
    with pytest.raises(InputError, match=r"more_runs\.json") as raised:
        Atlas(load_tier("smoke"), tmp_path)
    assert "\n" not in str(raised.value)


def test_a_tiers_file_asks_for_more_runs_which_cost_what_runs_cost(tmp_path):
    """Whatever block a run is in: jobs are of equal size."""
    config = load_tier("smoke")
    atlas = Atlas(config, tmp_path)
    (first, *_) = atlas.groups["dp_sgld"]["utility"]
    more = {first.condition: 24, "gone-01234567": 9}
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke/more_runs.json").write_text(json.dumps(more))
    asked = Atlas(config, tmp_path)
    runs = [spec.fields["first_run"] for spec in asked.groups["dp_sgld"]["utility"]]
    assert runs == [*range(24)] and set(atlas.specs) < set(asked.specs)
    before, after = seconds_per_run(atlas), seconds_per_run(asked)
    added = after.keys() - before.keys()
    assert len(added) == 22
    assert before.items() <= after.items()
    assert sum(after[name] for name in added) == pytest.approx(22 * before[first.id], rel=1e-9)
    assert not any(name.startswith(("theory", "kappa")) for name in before)
    planned = [
        make_plan(jobs_of(each), "cpu", (), 1, "smoke")["total"]["cpu_hours"]
        for each in (atlas, asked)
    ]
    assert 3600 * (planned[1] - planned[0]) == pytest.approx(22 * before[first.id], rel=1e-6)
