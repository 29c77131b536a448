"""Specs that dp_sgld's settings give, and settings that are refused."""

import re

import pytest

from dpatlas.config.atlas import Atlas
from dpatlas.config.load import load_config, read_config, validate
from dpatlas.errors import InputError
from dpatlas.papers.dp_sgld.settings import KEY


def test_another_backbone_setting_renews_what_takes_its_features_and_nothing_else():
    config = read_config()
    config["pretrain"]["backbones"]["strokes-mlp"]["epochs"] = 9
    new = set(Atlas(validate(config)).ids(KEY)) - set(Atlas(load_config()).ids(KEY))
    assert {re.sub("-[0-9a-f]{8}$", "", spec_id) for spec_id in new} == {
        "accuracy-digits-strokes-mlp",
        "accuracy-fonts-strokes-mlp",
        "long-training-digits-strokes-mlp",
    }


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
        (lambda c: c["pretrain"].update(enabled=False), "pretrain.enabled: found false"),
        (lambda c: c[KEY]["utility"].update(batch=2001), "dp_sgld.utility.batch: found 2001"),
        (lambda c: c[KEY]["accuracy"].update(step_size=1.0), "dp_sgld.accuracy.step_size"),
        (
            lambda c: c[KEY]["finetune"][0].update(relation="replace_one", accountant="rdp"),
            "dp_sgld.finetune.0.accountant: found rdp for Poisson batches under replace_one",
        ),
    ],
)
def test_settings_that_cannot_go_together_are_refused_before_any_job(change, words):
    config = read_config()
    change(config)
    with pytest.raises(InputError) as caught:
        Atlas(validate(config))
    assert words in str(caught.value)
