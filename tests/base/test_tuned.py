"""Specs of tunings and of the runs that take their choice; outcomes that ship with the project."""

from pathlib import Path

import pytest
from tier_atlases import atlas_of

from dpatlas.base.files import write_atomic, write_json
from dpatlas.base.records import FIELDS
from dpatlas.errors import InputError
from dpatlas_workflow.commands import tune
from dpatlas_workflow.config import tuned
from dpatlas_workflow.config.atlas import Atlas, waits_for
from dpatlas_workflow.config.load import load_config, load_tier, read_config, tiers, validate
from dpatlas_workflow.config.types import class_names
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
    atlas = atlas_of(tier)
    assert bool(reported(atlas)) == bool(atlas.tunings)
    for spec in reported(atlas):
        waiting = waits_for(spec)
        assert spec.fields["tuning"] in atlas.tunings
        assert (waiting is None) == (spec.fields["chosen"] is not None)
        files = [atlas.record(waiting)] if waiting else []
        assert atlas.job(spec.id).tuning == files
        assert ("--tuning" in atlas.job(spec.id).arguments) == bool(files)
    run_first = {name for spec in reported(atlas) if (name := waits_for(spec))}
    # What the default tier's runs take is in the papers' folders.
    assert not run_first or tier != "embedded"
    assert run_first == set(atlas.specs) & set(atlas.tunings)
    assert not {atlas.record(name) for name in atlas.tunings} & set(atlas.claim_records())


def test_no_outcome_ships_that_no_tier_takes():
    ours = {name for tier in TIERS for name in atlas_of(tier).tunings}
    for block in all_blocks().values():
        assert set(tuned.outcomes(block.folder / tuned.FILE)) <= ours


def test_shipped_settings_are_the_best_of_those_that_were_tried():
    for block in all_blocks().values():
        for found in tuned.outcomes(block.folder / tuned.FILE).values():
            for arm in found.arms.values():
                # Of equal means, which round to one score, the order of adding up decides.
                (score,) = (each.score for each in arm.tried if each.settings == arm.chosen)
                assert score == max(each.score for each in arm.tried)


def test_neither_base_seed_tier_deals_nor_numbers_of_runs_change_what_is_tuned():
    before = atlas_of("embedded")
    for change in ({"seed": 77}, {"tier": "other"}):
        after = Atlas(load_config(changes=change))
        assert set(before.tunings) == set(after.tunings)
        for old, new in zip(reported(before), reported(after), strict=True):
            for name in ("chosen", "backbone"):
                assert old.fields[name] == new.fields[name]
    data = read_config()["dp_sgld"]["long_training"]["data"]
    after = with_long_training(data={**data, "redeal": False}, runs=2, runs_per_job=1)
    assert set(before.tunings) == set(after.tunings) and before.data_sets == after.data_sets
    first, other = (each.groups["dp_sgld"]["long_training"][0] for each in (before, after))
    assert first.fields["data"]["redeal"] and not other.fields["data"]["redeal"]


@pytest.mark.parametrize(
    "change", [{"lrs": [0.1]}, {"epsilon": 2.0}, {"tuning_runs": 2}, {"normalise": False}]
)
def test_a_changed_setting_is_tuned_first(change):
    atlas = with_long_training(**change)
    specs = [spec for spec in reported(atlas) if spec.fields["kind"] == "long_training"]
    waiting = {waits_for(spec) for spec in specs}
    assert waiting <= set(atlas.specs) and None not in waiting


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


# Of the test split of the cleaned X-rays only the total is published.
@pytest.mark.parametrize(
    ("name", "expected"),
    [("digits", True), ("fonts", True), ("mnist", False), ("pneumonia-224-cleaned", False)],
)
def test_sets_with_test_records_of_their_own_are_not_dealt_anew_by_default(name, expected):
    data = {"name": name, "classes": [*class_names(name)][:2], "n_train": 60}
    data |= {"n_test": 20, "n_validation": 20}
    atlas = with_long_training(data=data, features="raw", backbone=None)
    assert atlas.groups["dp_sgld"]["long_training"][0].fields["data"]["redeal"] is expected


ARM = {"chosen": {"lr": 1.0e-05}, "tried": [{"settings": {"lr": 1.0e-05}, "score": 0.5}]}
FACTS = {"code": "0" * 16, "finished": "2026", "processor": "x", "trials": 1, "arms": {"a": ARM}}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A tier whose tunings have run, and a folder to write to, as if it were each paper's."""
    atlas = Atlas(load_tier("embedded"), tmp_path / "results")
    monkeypatch.setattr(tune, "load_tier", str)
    monkeypatch.setattr(tune, "Atlas", lambda tier, *results: atlas if results else atlas_of(tier))
    monkeypatch.setattr(tune, "code_digest", lambda module: "0" * 16)
    monkeypatch.setattr(tune, "commit_of", lambda folder: "a" * 40)
    monkeypatch.setattr(type(atlas.blocks["dp_sgld"]), "folder", tmp_path)
    for key in atlas.tuned_papers:
        put(atlas, key, text_of(dict.fromkeys(atlas.tunings_of(key), FACTS)))
    tuned.outcomes.cache_clear()
    yield atlas
    tuned.outcomes.cache_clear()


def put(atlas, key, text):
    write_atomic(Path(atlas.tuned_file(key)), text)


def write(atlas):
    return tune.main(["--write", "--results", str(atlas.folder.parent)])


def test_outcomes_are_written_with_their_commit_beside_those_of_other_tiers(made, tmp_path, capsys):
    (other, *_) = atlas_of("smoke").tunings
    entry = {"commit": "b" * 40, **FACTS}
    path = tmp_path / tuned.FILE
    path.write_text(text_of({other: entry, "of-no-tier-01234567": entry}))
    assert write(made) == 0 and str(path) in capsys.readouterr().out
    tuned.outcomes.cache_clear()
    written = tuned.outcomes(path)
    names = made.tunings_of(made.tuned_papers[-1])
    assert set(written) == {other, *names} and written[other].commit == "b" * 40
    for name in names:
        assert written[name].commit == "a" * 40
        assert tuned.shipped(made.tunings[name]) == {"a": {"lr": 1.0e-05}}


def test_outcomes_that_cannot_be_are_refused_and_no_paper_changes(made, tmp_path, monkeypatch):
    assert len(made.tuned_papers) > 1
    key = made.tuned_papers[-1]
    other_code = dict.fromkeys(made.tunings_of(key), FACTS | {"code": "1" * 16})
    for content, words in (
        ("other: 1\n", "other: found a key that does not exist"),
        ("tuned: {a: {code: x}}\n", "tuned.a.finished: found nothing"),
        ("tuned: {}\n", "allowed: all tunings: snakemake"),
        (text_of(other_code), "by code 1111111111111111"),
        (None, "no such file; allowed: all tunings: snakemake"),
    ):
        if content is None:
            Path(made.tuned_file(key)).unlink()
        else:
            put(made, key, content)
        with pytest.raises(InputError) as caught:
            write(made)
        assert str(caught.value).startswith(made.tuned_file(key)) and words in str(caught.value)
    for commit in (None, "abc with changes"):
        monkeypatch.setattr(tune, "commit_of", lambda folder, commit=commit: commit)
        with pytest.raises(InputError, match="a commit without changes"):
            write(made)
    assert not (tmp_path / tuned.FILE).exists()


def test_an_outcome_is_that_of_the_record(tmp_path):
    tried = [{"settings": {"lr": 1}, "scores": [0.5, 0.6]}]
    tried.append({"settings": {"lr": 3}, "scores": [0.7, 0.8]})
    row = {"arm": "a", "chosen": {"lr": 3}, "trials_epsilon": 2.5, "tried": tried}
    record = dict.fromkeys(FIELDS) | {"schema_version": 1, "id": "t-01234567", "code_digest": "c"}
    write_json(tmp_path / "record.json", record | {"metrics": {"rows": [row]}})
    (tmp_path / "cost.json").write_text('{"finished": "today", "processor": "p"}')
    name, found = outcome(tmp_path / "record.json")
    assert name == "t-01234567" and (found["trials"], found["processor"]) == (4, "p")
    assert [each["score"] for each in found["arms"]["a"]["tried"]] == [0.55, 0.75]
    assert found["arms"]["a"]["epsilon"] == 2.5
