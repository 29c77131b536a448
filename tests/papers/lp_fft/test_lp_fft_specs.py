"""lp_fft's settings: which jobs a config asks for, and which settings are refused."""

import copy

import pytest

from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.backbones import backbone_spec
from dpatlas_workflow.config.load import read_config, validate
from dpatlas_workflow.papers.lp_fft.settings import KEY, groups


@pytest.fixture(scope="module")
def config():
    return read_config()


def changed(config, change):
    """A copy of the config with a changed block."""
    copied = copy.deepcopy(config)
    change(copied[KEY])
    return copied


def groups_of(config):
    return groups(validate(config))


def first(**changes):
    """A change of the first scenario."""
    return lambda block: block["scenarios"][0].update(changes)


def ids(config):
    return {spec.id for members in groups_of(config).values() for spec in members}


def conditions(config):
    """What is repeated, whatever the blocks of runs."""
    return {spec.condition for members in groups_of(config).values() for spec in members}


@pytest.mark.parametrize(("kind", "value"), [("noise_multipliers", 3), ("epsilons", 5)])
def test_another_level_is_one_more_condition_and_leaves_the_others_alone(config, kind, value):
    levels = config[KEY]["scenarios"][0][kind]
    more = changed(config, first(**{kind: [*levels, value]}))
    assert len(conditions(more) - conditions(config)) == 1 and ids(config) < ids(more)


def test_more_runs_are_more_blocks_and_leave_the_others_alone(config):
    scenario = config[KEY]["scenarios"][0]
    more = changed(config, first(runs=scenario["runs"] + scenario["runs_per_job"]))
    levels = len(scenario["noise_multipliers"]) + len(scenario["epsilons"])
    assert len(ids(more) - ids(config)) == levels and ids(config) < ids(more)
    assert conditions(more) == conditions(config)


def test_feature_quality_alone_reads_public_images_which_are_its_backbone_s_training_set(config):
    checked, specs = validate(config), groups_of(config)
    atlas = Atlas(checked)
    entries = [
        entry
        for entry in config[KEY]["feature_quality"]
        for _ in entry["noise_multipliers"]
        for _ in range(0, entry["runs"], min(entry["runs"], entry["runs_per_job"]))
    ]
    for spec, entry in zip(specs["feature_quality"], entries, strict=True):
        pretraining = backbone_spec(checked, entry["backbone"])
        assert spec.fields["public_data"] == pretraining.fields["data"]
        assert spec.fields["backbone"] == pretraining.id
        manifests = atlas.job(spec.id).public_data
        assert manifests == atlas.job(pretraining.id).data != atlas.job(spec.id).data
        assert manifests[0].split("/")[-2] in atlas.data_sets
    others = set(atlas.specs) - {spec.id for spec in specs["feature_quality"]}
    assert not any(atlas.job(spec_id).public_data for spec_id in others)
    for name in ("strategies", "lora", "clip_sweep", "feature_quality", "umap"):
        assert all(len(atlas.job(spec.id).backbones) == 1 for spec in specs[name])
