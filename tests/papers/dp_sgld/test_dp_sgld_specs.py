"""Specs that dp_sgld's settings give, and settings that are refused."""

import re

import pytest

from dpatlas.config.atlas import Atlas
from dpatlas.config.load import load_config, read_config, validate
from dpatlas.errors import InputError
from dpatlas.papers.dp_sgld.settings import KEY
from dpatlas.privacy.accounting import ACCOUNTANTS


def changed(change):
    """Ids of dp_sgld's specs that a changed config has and the default one has not."""
    config = read_config()
    change(config)
    return set(Atlas(validate(config)).ids(KEY)) - set(Atlas(load_config()).ids(KEY))


def refused(change):
    config = read_config()
    change(config)
    with pytest.raises(InputError) as caught:
        Atlas(validate(config))
    return str(caught.value)


def test_every_spec_names_its_data_and_its_features():
    names = [re.sub("-[0-9a-f]{8}$", "", spec_id) for spec_id in Atlas(load_config()).ids(KEY)]
    assert len(set(names)) == len(names)
    assert {"accuracy-digits-strokes-s-softmax", "accuracy-breast_cancer"} <= set(names)


def test_another_backbone_setting_renews_what_takes_its_features_and_nothing_else():
    def train_longer(config):
        config["pretrain"]["backbones"]["strokes-mlp"]["epochs"] = 9

    new = changed(train_longer)
    assert {re.sub("-[0-9a-f]{8}$", "", spec_id) for spec_id in new} == {
        "accuracy-digits-strokes-mlp",
        "accuracy-fonts-strokes-mlp",
        "long-training-digits-strokes-mlp",
    }


def test_a_wider_grid_renews_the_tables_and_no_figure():
    new = changed(lambda config: config[KEY]["accuracy"]["grid"]["lr"].append(81.0))
    assert len(new) == len(load_config().dp_sgld.accuracy.sets)
    assert all(spec_id.startswith("accuracy-") for spec_id in new)


def test_whole_numbers_and_their_reals_are_one_run():
    def whole(config):
        config[KEY]["accuracy"]["sets"][0]["epsilons"] = [1, 8]
        config[KEY]["feature_norm"] = 1
        config[KEY]["accuracy"]["grid"]["lr"] = [1, 3, 9, 27]

    assert not changed(whole)


def test_a_job_takes_the_backbone_of_its_features():
    atlas = Atlas(load_config())
    (job,) = (spec_id for spec_id in atlas.ids(KEY) if spec_id.startswith("accuracy-fonts"))
    (trained,) = (i for i in atlas.ids("pretrain") if i.startswith("strokes-mlp"))
    assert atlas.backbones(job) == [atlas.backbone(trained)]
    assert f"--backbone {atlas.backbone(trained)}" in atlas.input_arguments(job)
    assert len(atlas.backbone_files(job)) == 2
    (raw,) = (spec_id for spec_id in atlas.ids(KEY) if "breast_cancer" in spec_id)
    assert "--backbone" not in atlas.input_arguments(raw)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda c: c[KEY]["accuracy"]["sets"][0].update(batch=1301),
            "dp_sgld.accuracy.sets.0.batch: found 1301; allowed: at most n_train = 1300",
        ),
        (
            lambda c: c[KEY]["accuracy"]["sets"][0].update(backbone="resnet"),
            "sets.0.backbone: found 'resnet'; allowed: one of pretrain.train: strokes-s",
        ),
        (
            lambda c: c[KEY]["accuracy"]["sets"][3].update(features="softmax"),
            "dp_sgld.accuracy.sets.3.backbone: found none",
        ),
        (
            lambda c: c[KEY]["accuracy"]["sets"][0]["data"].update(n_test=500),
            "dp_sgld.accuracy.sets.0.data: found 1997 records; allowed: at most 1797",
        ),
        (lambda c: c["pretrain"].update(enabled=False), "pretrain.enabled: found false"),
        (lambda c: c[KEY]["utility"].update(batch=2001), "dp_sgld.utility.batch: found 2001"),
        (lambda c: c[KEY]["accuracy"].update(step_size=1.0), "dp_sgld.accuracy.step_size"),
        (lambda c: c[KEY]["accuracy"].update(radius=0), "dp_sgld.accuracy.radius"),
        (
            lambda c: c[KEY]["finetune"][0].update(relation="replace_one", accountant="rdp"),
            "dp_sgld.finetune.0.accountant: found rdp for Poisson batches under replace_one",
        ),
    ],
)
def test_settings_that_cannot_go_together_are_refused_before_any_job(change, words):
    assert words in refused(change)


def test_the_refused_accountant_is_the_one_that_the_engine_refuses():
    assert ACCOUNTANTS["poisson", "replace_one"] == ("pld",)
