"""lp_fft's settings: which jobs a config asks for."""

import copy

import pytest

from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.backbones import backbone_spec
from dpatlas_workflow.config.load import read_config, validate
from dpatlas_workflow.papers.lp_fft.settings import KEY, groups

CONFIG = read_config()


@pytest.mark.parametrize(("kind", "value"), [("noise_multipliers", 3), ("epsilons", 5)])
def test_another_level_is_one_more_condition_and_leaves_the_others_alone(kind, value):
    more = copy.deepcopy(CONFIG)
    first = more[KEY]["scenarios"][0]
    first[kind] = [*first[kind], value]
    before, after = (
        [spec for members in groups(validate(config)).values() for spec in members]
        for config in (copy.deepcopy(CONFIG), more)
    )
    assert {spec.id for spec in before} < {spec.id for spec in after}
    new = {spec.condition for spec in after} - {spec.condition for spec in before}
    assert len(new) == 1


def test_feature_quality_alone_reads_public_images_which_are_its_backbone_s_training_set():
    checked = validate(copy.deepcopy(CONFIG))
    atlas = Atlas(checked)
    names = {
        backbone_spec(checked, entry["backbone"]).id: entry["backbone"]
        for entry in CONFIG[KEY]["feature_quality"]
    }
    readers = {spec_id for spec_id in atlas.specs if atlas.job(spec_id).public_data}
    specs = groups(checked)["feature_quality"]
    assert readers == {spec.id for spec in specs}
    for spec in specs:
        pretraining = backbone_spec(checked, names[spec.fields["backbone"]])
        assert spec.fields["public_data"] == pretraining.fields["data"]
        manifests = atlas.job(spec.id).public_data
        assert manifests == atlas.job(pretraining.id).data != atlas.job(spec.id).data
        assert manifests[0].split("/")[-2] in atlas.data_sets
