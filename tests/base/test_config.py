"""Configs: files in, one checked model out, and a line with the key for everything wrong."""

import pytest
import yaml

from dpatlas.base.schema import schema_of, sentence_of, walk
from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config, merge, project_root, read_tier
from dpatlas_workflow.config.root import config_model


@pytest.fixture
def config_of(tmp_path):
    """A function that loads this text as a config."""

    def load(text, name="mine.yaml", encoding="utf-8"):
        (tmp_path / name).write_text(text, encoding=encoding)
        return load_config([tmp_path / name])

    return load


def test_a_config_without_a_tier_of_its_own_writes_to_custom(tmp_path, config_of):
    mine = tmp_path / "mine.yaml"
    assert config_of("kl_privacy: {runs: 5}\n").tier == "custom"
    paper = project_root() / "workflow/tiers/paper.yaml"
    assert load_config([paper]).tier == "paper"
    assert load_config([paper, mine]).tier == "custom"
    assert load_config([paper], {"seed": 3}).tier == "custom"
    config = config_of("tier: mine\nkl_privacy: {runs: 5}\n")
    assert (config.tier, config.kl_privacy.runs) == ("mine", 5)


def test_a_number_is_what_it_looks_like_and_needs_no_point_before_its_exponent(config_of):
    config = config_of("tier: '010'\nkl_privacy: {runs: 012}\nseed: 0xc\n")
    assert (config.tier, config.kl_privacy.runs, config.seed) == ("010", 12, 12)
    for text in ("1e-3", "1E-3", "1.e-3", "+.01e-1", "0.001", "1.0e-3"):
        assert config_of(f"kl_privacy: {{lr: {{he: {text}}}}}\n").kl_privacy.lr.he == 0.001
    for text in ("1:30", "yes"):
        with pytest.raises(InputError, match=f"seed: found '{text}' \\(text\\)"):
            config_of(f"tier: mine\nseed: {text}\n")


def test_another_data_set_does_not_inherit_the_keys_of_the_old_one():
    base = {"data": {"name": "digits", "norm": 8.0, "n_train": 3}}
    change = {"data": {"name": "cifar10", "n_train": 5}}
    assert merge(base, change) == change
    assert merge(base, {"data": {"n_train": 5}})["data"] == {**base["data"], "n_train": 5}


# What is changed, and words of the refusal.
WRONG = yaml.safe_load("""
- [{kl_privcy: {}}, kl_privcy, does not exist, did you mean kl_privacy]
- [{kl_privacy: {lr: {he: "1e-3"}}}, kl_privacy.lr.he, "'1e-3' (text)", without quotes]
- [{kl_privacy: {runs: "24"}}, kl_privacy.runs, "'24' (text)", use --configfile]
- [{kl_privacy: {inits: [he, glorot]}}, inits.1, glorot, "lecun, he, ntk"]
- [{kl_privacy: {runs: true}}, kl_privacy.runs, "True", a whole number]
- [{dp_sgld: {long_training: {data: {classes: [3, 10]}}}},
   dp_sgld.long_training.data.classes.1, "10", "one of 0, 1, 2"]
- [{kl_privacy: {horizons: {early: 60}}}, horizons.short]
- [{dp_sgld: {long_training: {data: {n_train: 1151}}}},
   dp_sgld.long_training.data, 1798 records, at most 1797 in all]
- [{pretrain: {backbones: {strokes-s: {options: {widths: [8]}}}}},
   pretrain.backbones.strokes-s.options.widths, pool]
- [{pretrain: {batch: 24001}}, pretrain.backbones.strokes-s.batch, at most n_train = 24000]
- [{pretrain: {transfer: {n_test: 1778}}}, pretrain.transfer.n_test, neighbours = 1777]
- [{max_information: {kappa: {axes: {n: [4999]}}}}, kappa.base.m, "5000", at most n = 4999]
- [{device: cpu, precision: tf32}, precision, tf32 with device cpu]
""")


@pytest.mark.parametrize(("change", "words"), [(change, words) for change, *words in WRONG])
def test_a_wrong_config_is_one_line_with_key_found_and_allowed(change, words):
    with pytest.raises(InputError) as caught:
        Atlas(load_config(changes=change))
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words)


def test_a_json_config_has_each_key_once_and_may_begin_with_a_mark(config_of):
    assert config_of('{"tier": "mine", "seed": 1}', "mine.json", "utf-8-sig").seed == 1
    with pytest.raises(InputError, match="seed twice"):
        config_of('{"tier": "mine", "seed": 1, "seed": 2}', "mine.json")


def test_every_key_has_a_sentence():
    schema = schema_of(config_model())
    keys = {place: sentence_of(schema, node) for place, node, _ in walk(schema, schema)}
    assert len(keys) > 400
    assert [place for place, sentence in keys.items() if not sentence] == []


@pytest.mark.parametrize("name", ["nope", "", "../tiers/smoke", "../../config"])
def test_a_tier_is_one_of_those_that_ship_and_no_path(name):
    with pytest.raises(InputError, match=r"^tier: found '.*'; allowed: one of embedded, "):
        read_tier(name)
