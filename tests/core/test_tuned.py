"""Specs of tunings and of the runs that take their choice; outcomes that ship with the project."""

import json
import re

import pytest

from dpatlas.base.folders import command
from dpatlas.base.records import FIELDS, checked_fields
from dpatlas.errors import InputError
from dpatlas_workflow.commands import tune
from dpatlas_workflow.config import tuned
from dpatlas_workflow.config.atlas import Atlas, waits_for
from dpatlas_workflow.config.load import load_config, load_tier, read_config, tiers, validate
from dpatlas_workflow.config.types import class_names
from dpatlas_workflow.papers.dp_sgld.jobs import long_training
from dpatlas_workflow.registry import all_blocks
from dpatlas_workflow.report.tuned import outcome, text_of

TIERS = tiers()
SCANS = {"path": "scans", "classes": ["a", "b"], "image_shape": [1, 8, 8], "scaling": "unit"}
OWN = {"name": "my-scans", "classes": ["a", "b"], "n_train": 40, "n_test": 10, "n_validation": 12}


def with_long_training(**changes):
    config = read_config()
    config["dp_sgld"]["long_training"].update(changes)
    return Atlas(validate(config))


def reported(atlas):
    """Specs of the runs that take a tuning's choice."""
    return [spec for spec in atlas.specs.values() if "tuning" in spec.fields]


@pytest.mark.parametrize("tier", TIERS)
def test_all_runs_have_settings_or_wait_for_a_tuning_of_the_run(tier):
    atlas = Atlas(load_tier(tier))
    assert bool(reported(atlas)) == bool(atlas.tunings)
    for spec in reported(atlas):
        waiting = waits_for(spec)
        assert spec.fields["tuning"] in atlas.tunings
        assert (waiting is None) == (spec.fields["chosen"] is not None)
        files = [atlas.record(waiting)] if waiting else []
        assert atlas.job(spec.id).tuning == files
        assert ("--tuning" in atlas.job(spec.id).arguments) == bool(files)
    run_first = {name for spec in reported(atlas) if (name := waits_for(spec))}
    assert run_first == set(atlas.specs) & set(atlas.tunings)
    assert not {atlas.record(name) for name in atlas.tunings} & set(atlas.claim_records())


def test_the_embedded_tier_tunes_nothing():
    """What its runs take is in the papers' folders."""
    atlas = Atlas(load_tier("embedded"))
    assert {spec.fields["tuning"] for spec in reported(atlas)} == set(atlas.tunings)
    assert not set(atlas.tunings) & set(atlas.specs)


def test_no_outcome_ships_that_no_tier_takes():
    ours = {name for tier in TIERS for name in Atlas(load_tier(tier)).tunings}
    for block in all_blocks().values():
        assert set(tuned.outcomes(block.folder / tuned.FILE)) <= ours


def test_shipped_settings_are_the_best_of_those_that_were_tried():
    for block in all_blocks().values():
        for found in tuned.outcomes(block.folder / tuned.FILE).values():
            for arm in found.arms.values():
                # Of equal means, which round to one score, the order of adding up decides.
                (score,) = (each.score for each in arm.tried if each.settings == arm.chosen)
                assert score == max(each.score for each in arm.tried)


@pytest.mark.parametrize("change", [{"seed": 77}, {"tier": "other"}])
def test_neither_base_seed_nor_tier_change_what_is_tuned(change):
    before, after = Atlas(load_config()), Atlas(load_config(changes=change))
    assert set(before.tunings) == set(after.tunings)
    for old, new in zip(reported(before), reported(after), strict=True):
        assert old.fields["chosen"] == new.fields["chosen"]
        assert old.fields["backbone"] == new.fields["backbone"]


def test_how_runs_are_dealt_and_how_many_there_are_does_not_change_what_is_tuned():
    data = read_config()["dp_sgld"]["long_training"]["data"]
    before, after = (
        Atlas(load_config()),
        with_long_training(data={**data, "redeal": False}, runs=2, runs_per_job=1),
    )
    assert set(before.tunings) == set(after.tunings)
    assert before.data_sets == after.data_sets
    (first, *_), (other, *_) = (
        atlas.groups["dp_sgld"]["long_training"] for atlas in (before, after)
    )
    assert first.fields["data"]["redeal"] and not other.fields["data"]["redeal"]
    assert all("redeal" not in spec.fields["data"] for spec in before.tunings.values())


@pytest.mark.parametrize(
    "change", [{"lrs": [0.1]}, {"epsilon": 2.0}, {"tuning_runs": 2}, {"normalise": False}]
)
def test_a_changed_setting_is_tuned_first(change):
    atlas = with_long_training(**change)
    specs = [spec for spec in reported(atlas) if spec.fields["kind"] == "long_training"]
    assert {waits_for(spec) for spec in specs} <= set(atlas.specs)
    assert None not in {waits_for(spec) for spec in specs}


def test_an_own_data_set_is_tuned_first_on_its_own_fixed_part():
    config = read_config()
    config["data"]["own"] = {"my-scans": SCANS}
    part = config["dp_sgld"]["long_training"]
    part.update(data=OWN, features="raw", backbone=None)
    atlas = Atlas(validate(config))
    specs = [spec for spec in reported(atlas) if spec.fields["kind"] == "long_training"]
    (name,) = {waits_for(spec) for spec in specs}
    tuning = atlas.specs[name].fields
    assert tuning["data"]["n_validation"] == 12 and tuning["data"]["own"]["classes"] == ["a", "b"]
    # Who split it may have had a reason, such as several images of a person.
    assert {spec.fields["data"]["redeal"] for spec in specs} == {False}
    assert atlas.job(name).data == atlas.job(specs[0].id).data
    part["data"] = {**OWN, "redeal": True}
    dealt = Atlas(validate(config)).groups["dp_sgld"]["long_training"]
    assert {spec.fields["data"]["redeal"] for spec in dealt} == {True}


def test_one_record_to_tune_on_is_refused_before_any_job():
    data = {**read_config()["dp_sgld"]["long_training"]["data"], "n_validation": 1}
    with pytest.raises(InputError, match="n_validation of long-training-digits"):
        with_long_training(data=data)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("digits", True),
        ("fonts", True),
        ("breast_cancer", True),
        ("mnist", False),
        # Of its test split only the total is published.
        ("pneumonia-224-cleaned", False),
    ],
)
def test_sets_with_test_records_of_their_own_are_not_dealt_anew_by_default(name, expected):
    config = read_config()
    classes = [*class_names(name)][:2]
    counts = {"n_train": 60, "n_test": 20, "n_validation": 20}
    config["dp_sgld"]["long_training"].update(
        data={"name": name, "classes": classes, **counts}, features="raw", backbone=None
    )
    (spec, *_) = Atlas(validate(config)).groups["dp_sgld"]["long_training"]
    assert spec.fields["data"]["redeal"] is expected


class TestWriting:
    """Copying outcomes to a paper's folder."""

    @pytest.fixture
    def made(self, tmp_path, monkeypatch):
        """A tier whose tunings have run, and a paper's folder to write to."""
        atlas = Atlas(load_tier("embedded"), tmp_path / "results")
        papers = tmp_path / "paper"
        papers.mkdir()
        monkeypatch.setattr(tune, "code_digest", lambda module: "0" * 16)
        monkeypatch.setattr(tune, "commit_of", lambda folder: "a" * 40)
        blocks = {key: atlas.blocks[key] for key in atlas.tuned_papers}
        monkeypatch.setattr(type(next(iter(blocks.values()))), "folder", papers)
        return atlas

    def run_of(self, atlas, key):
        """Outcomes of a paper as `snakemake tune` would leave them."""
        arm = {
            "chosen": {"lr": 1.0e-05},
            "tried": [{"settings": {"lr": 1.0e-05}, "score": 0.5}],
        }
        facts = {"code": "0" * 16, "finished": "2026", "processor": "x", "trials": 1}
        return {name: {**facts, "arms": {"a": arm}} for name in atlas.tunings_of(key)}

    def put(self, atlas, change=lambda outcomes: None):
        for key in atlas.tuned_papers:
            outcomes = self.run_of(atlas, key)
            change(outcomes)
            path = atlas.folder / "tuned" / f"{key}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(outcomes))

    def write(self, atlas):
        return tune.main(["--write", "--results", str(atlas.folder.parent)])

    def test_outcomes_are_written_with_their_commit_and_read_back(self, made, capsys):
        self.put(made)
        assert self.write(made) == 0
        (path,) = {made.blocks[key].folder / tuned.FILE for key in made.tuned_papers}
        tuned.outcomes.cache_clear()
        found = tuned.outcomes(path)
        for name in made.tunings_of(made.tuned_papers[-1]):
            assert found[name].commit == "a" * 40
            assert tuned.shipped(made.tunings[name]) == {"a": {"lr": 1.0e-05}}
        tuned.outcomes.cache_clear()
        assert str(path) in capsys.readouterr().out

    def test_outcomes_of_other_tiers_stay_and_those_of_none_are_left_out(self, made):
        self.put(made)
        (path,) = {made.blocks[key].folder / tuned.FILE for key in made.tuned_papers}
        (other, *_) = Atlas(load_tier("smoke")).tunings
        outcome = next(iter(self.run_of(made, made.tuned_papers[-1]).values()))
        entry = {"commit": "b" * 40, **outcome}
        path.write_text(text_of({other: entry, "of-no-tier-01234567": entry}))
        tuned.outcomes.cache_clear()
        self.write(made)
        tuned.outcomes.cache_clear()
        found = tuned.outcomes(path)
        assert set(found) == {other, *made.tunings_of(made.tuned_papers[-1])}
        assert found[other].commit == "b" * 40
        tuned.outcomes.cache_clear()

    def test_results_of_other_code_are_refused(self, made):
        self.put(made, lambda outcomes: next(iter(outcomes.values())).update(code="1" * 16))
        with pytest.raises(InputError, match="by code 1111111111111111"):
            self.write(made)

    def test_results_that_are_not_there_are_refused(self, made):
        again = f"all tunings: {command('tune', made.tier)}"
        with pytest.raises(InputError, match=f"no such file; allowed: {again}"):
            self.write(made)
        self.put(made, lambda outcomes: outcomes.pop(next(iter(outcomes))))
        with pytest.raises(InputError, match=again):
            self.write(made)

    @pytest.mark.parametrize(
        ("content", "named"),
        [
            ("other: 1\n", "other: found a key that does not exist"),
            ("tuned: [1]\n", "tuned: found [1]"),
            ("tuned: {a: 1}\n", "tuned.a: found 1"),
            ("tuned: {a: {code: x}}\n", "tuned.a.finished: found nothing"),
        ],
    )
    def test_a_file_of_other_content_is_refused_and_no_paper_changes(self, made, content, named):
        self.put(made)
        assert len(made.tuned_papers) > 1
        path = made.folder / "tuned" / f"{made.tuned_papers[-1]}.yaml"
        path.write_text(content)
        with pytest.raises(InputError, match=re.escape(f"{path}: {named}")):
            self.write(made)
        for key in made.tuned_papers:
            assert not (made.blocks[key].folder / tuned.FILE).exists()

    @pytest.mark.parametrize("commit", [None, "abc with changes"])
    def test_a_folder_with_changes_is_refused(self, made, monkeypatch, commit):
        self.put(made)
        monkeypatch.setattr(tune, "commit_of", lambda folder: commit)
        with pytest.raises(InputError, match="a commit without changes"):
            self.write(made)


def test_an_outcome_is_that_of_the_record(tmp_path):
    record = dict.fromkeys(FIELDS) | {
        "schema_version": 1,
        "id": "t-01234567",
        "code_digest": "c",
        "metrics": {
            "rows": [
                {
                    "arm": "a",
                    "chosen": {"lr": 3.0},
                    "trials_epsilon": 2.5,
                    "tried": [
                        {"settings": {"lr": 1.0}, "scores": [0.5, 0.6]},
                        {"settings": {"lr": 3.0}, "scores": [0.7, 0.8]},
                    ],
                }
            ]
        },
    }
    (tmp_path / "record.json").write_text(json.dumps(record))
    (tmp_path / "cost.json").write_text('{"finished": "today", "processor": "p"}')
    name, found = outcome(tmp_path / "record.json")
    assert name == "t-01234567" and (found["trials"], found["processor"]) == (4, "p")
    assert [each["score"] for each in found["arms"]["a"]["tried"]] == [0.55, 0.75]
    assert found["arms"]["a"]["epsilon"] == 2.5


def test_shipped_settings_name_the_arms_of_their_jobs():
    """Of dp_sgld's long training; each job refuses settings that lack an arm."""
    for spec in Atlas(load_tier("embedded")).groups["dp_sgld"]["long_training"]:
        arms = long_training.compared(
            checked_fields(long_training.KIND.record.spec, spec.fields, "--spec: ")
        )
        assert set(spec.fields["chosen"]) == {arm.name for arm in arms}
