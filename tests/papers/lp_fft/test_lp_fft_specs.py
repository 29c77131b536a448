import copy
import re

import pytest

from dpatlas.config.atlas import Atlas
from dpatlas.config.backbones import backbone_spec
from dpatlas.config.load import load_config, load_tier, read_config, validate
from dpatlas.errors import InputError
from dpatlas.papers.lp_fft.settings import KEY, groups
from dpatlas.papers.lp_fft.strategies import STRATEGIES

TRAINED = ("strategies", "lora", "clip_sweep", "feature_quality", "umap")


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
    return {spec.id for specs in groups_of(config).values() for spec in specs}


def levels_of(chosen):
    return [
        *({"noise_multiplier": float(noise)} for noise in chosen["noise_multipliers"]),
        *({"epsilon": float(epsilon)} for epsilon in chosen["epsilons"]),
    ]


def test_there_is_one_job_for_every_scenario_and_level(config):
    for group, place in (("strategies", "scenarios"), ("lora", "lora")):
        found = [
            (spec.fields["scenario"], spec.fields["level"]) for spec in groups_of(config)[group]
        ]
        expected = [(c["name"], level) for c in config[KEY][place] for level in levels_of(c)]
        assert found == expected
        assert {spec.fields["group"] for spec in groups_of(config)[group]} == {group}
    every = [spec.id for name in TRAINED for spec in groups_of(config)[name]]
    assert len(every) == len(set(every))


def test_a_job_s_name_says_its_scenario_and_level(config):
    for spec in groups_of(config)["strategies"]:
        ((kind, value),) = spec.fields["level"].items()
        level = f"{'noise' if kind == 'noise_multiplier' else 'eps'}{value:g}"
        assert re.fullmatch(f"{spec.fields['scenario']}-{level}-[0-9a-f]{{8}}", spec.id)


@pytest.mark.parametrize(("kind", "value"), [("noise_multipliers", 3), ("epsilons", 5)])
def test_another_level_is_one_more_job_and_leaves_the_others_alone(config, kind, value):
    own = config[KEY]["scenarios"][0][kind]
    more = changed(config, first(**{kind: [*own, value]}))
    assert len(ids(more) - ids(config)) == 1 and ids(config) < ids(more)


def test_another_scenario_leaves_the_others_alone(config):
    def add(block):
        block["scenarios"].append({**block["scenarios"][0], "name": "another"})

    found = ids(changed(config, add)) - ids(config)
    assert len(found) == len(levels_of(config[KEY]["scenarios"][0]))
    assert all(spec_id.startswith("another-") for spec_id in found)


def as_reals(value):
    """Every whole number as a real, but for counts."""
    reals = ("noise", "lrs", "epsilon", "shares", "scale", "max_grad", "lr_", "lp_lr", "delta")
    if not isinstance(value, dict):
        return [as_reals(each) for each in value] if isinstance(value, list) else value
    found = {}
    for name, each in value.items():
        if isinstance(each, dict | list) and not name.startswith(reals):
            found[name] = as_reals(each)
        elif any(part in name for part in reals):
            found[name] = floats(each)
        else:
            found[name] = each
    return found


def floats(value):
    if isinstance(value, dict):
        return {name: floats(each) for name, each in value.items()}
    if isinstance(value, list):
        return [floats(each) for each in value]
    return float(value) if isinstance(value, int) else value


def test_1_and_1_0_are_one_run(config):
    trained = {spec.id for name in TRAINED for spec in groups_of(config)[name]}
    real = copy.deepcopy(config)
    for place in ("scenarios", "lora", "clip_sweep", "feature_quality", "umap"):
        real[KEY][place] = as_reals(real[KEY][place])
    for name in ("lrs", "max_grad_norm", "head_scale"):
        real[KEY][name] = floats(real[KEY][name])
    assert real[KEY]["feature_quality"][0]["lp_lr"] == 3
    assert isinstance(real[KEY]["feature_quality"][0]["lp_lr"], float)
    assert {spec.id for name in TRAINED for spec in groups_of(real)[name]} == trained


def test_rates_of_the_clip_sweep_go_with_the_bound_from_the_scenario_s_own(config):
    def halve(block):
        for chosen in block["scenarios"]:
            chosen["max_grad_norm"] = 0.5

    for usual, each in ((1.0, config), (0.5, changed(config, halve))):
        block = each[KEY]
        base = next(c for c in block["scenarios"] if c["name"] == block["clip_sweep"]["scenario"])
        tuned = base.get("lrs", block["lrs"])
        for spec in groups_of(each)["clip_sweep"]:
            bound = spec.fields["max_grad_norm"]
            for part, lrs in spec.fields["lrs"].items():
                expected = [lr * usual / bound for lr in tuned[part]]
                assert lrs == pytest.approx(expected, rel=1e-12)


def test_a_sweep_of_clip_bounds_changes_its_scenario_in_nothing_else(config):
    sweep = config[KEY]["clip_sweep"]
    base = next(
        spec.fields
        for spec in groups_of(config)["strategies"]
        if spec.fields["scenario"] == sweep["scenario"]
    )
    own = {"group", "level", "strategies", "shares", "control_shares", "runs", "lrs"}
    for spec in groups_of(config)["clip_sweep"]:
        differing = {name for name, value in spec.fields.items() if value != base[name]}
        assert differing <= own | {"max_grad_norm"}
        assert spec.fields["level"] == {"noise_multiplier": sweep["noise_multiplier"]}


def test_public_images_are_the_backbone_s_own_training_set(config):
    for spec, chosen in zip(
        groups_of(config)["feature_quality"],
        [each for each in config[KEY]["feature_quality"] for _ in each["noise_multipliers"]],
        strict=True,
    ):
        trained = backbone_spec(validate(config), chosen["backbone"])
        assert spec.fields["public_data"] == trained.fields["data"]
        assert spec.fields["backbone"] == trained.id
        atlas = Atlas(validate(config))
        assert atlas.public_manifest(spec.id) == atlas.data_manifest(trained.id)
        assert atlas.public_manifest(spec.id) != atlas.data_manifest(spec.id)


def test_only_the_quality_of_features_looks_at_public_images(config):
    atlas = Atlas(validate(config))
    looking = {spec.id for spec in groups_of(config)["feature_quality"]}
    for spec_id in atlas.specs:
        assert bool(atlas.public_manifest(spec_id)) == (spec_id in looking)


def test_public_images_are_prepared_even_where_nothing_trains_on_them(config):
    atlas = Atlas(validate(config))
    for spec in groups_of(config)["feature_quality"]:
        (manifest,) = atlas.public_manifest(spec.id)
        assert manifest.split("/")[-2] in atlas.data_sets()


def test_every_trained_job_takes_one_backbone(config):
    atlas = Atlas(validate(config))
    for name in TRAINED:
        for spec in groups_of(config)[name]:
            assert len(atlas.backbones(spec.id)) == 1


@pytest.mark.parametrize("tier", ["embedded", "smoke", "workstation"])
def test_controls_are_given_as_many_rates_as_lp_fft(tier):
    for name in ("strategies", "clip_sweep"):
        for spec in groups(load_tier(tier))[name]:
            last = {STRATEGIES[each][-1] for each in spec.fields["strategies"] if "-" in each}
            assert len({len(spec.fields["lrs"][part]) for part in last}) <= 1


def without_full(block):
    block["scenarios"][0].update(strategies=["lp", "lora"], lora_rank=None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            first(strategies=["fft", "lp-fft"]),
            "lp_fft.scenarios.0.strategies: found lp-fft without lp; allowed: lp too",
        ),
        (first(strategies=["lp", "fft-fft"]), "found fft-fft without fft"),
        (without_full, "lp_fft.scenarios.0.strategies: found lora; allowed: a lora_rank with it"),
        (
            lambda block: block["lora"][0].update(strategies=["lp", "fft"]),
            "lp_fft.lora.0.strategies: found fft; allowed: no lora_rank with it",
        ),
        (
            lambda block: block["clip_sweep"].update(strategies=["fft", "lp-fft"]),
            "lp_fft.clip_sweep.strategies: found lp-fft without lp",
        ),
        (first(batch=1301), "lp_fft.scenarios.0.batch: found 1301; allowed: at most n_train"),
        (
            lambda block: block["umap"][0].update(batch=1301),
            "lp_fft.umap.0.batch: found 1301; allowed: at most n_train",
        ),
        (
            first(backbone="resnet"),
            "lp_fft.scenarios.0.backbone: found 'resnet'; allowed: one of pretrain.train",
        ),
        (
            lambda block: block["clip_sweep"].update(scenario="nothing"),
            "lp_fft.clip_sweep.scenario: found 'nothing'; allowed: one of inverted-t",
        ),
        (
            first(noise_multipliers=[], epsilons=[]),
            "lp_fft.scenarios.0.noise_multipliers: found none; allowed: a privacy level",
        ),
        (
            lambda block: block.update(relation="replace_one", accountant="rdp"),
            "lp_fft.accountant: found rdp for Poisson batches under replace_one",
        ),
    ],
)
def test_settings_that_cannot_go_together_are_refused_before_any_job(config, change, words):
    with pytest.raises(InputError) as caught:
        Atlas(validate(changed(config, change)))
    assert words in str(caught.value)


def alone(block):
    """Two entries of one name, alike."""
    one = {**block["scenarios"][0], "name": "twice"}
    block["scenarios"] += [one, dict(one)]


def apart(block):
    """Two entries of one name, with backbones of their own."""
    one = {**block["scenarios"][0], "name": "twice"}
    other = {**one, "backbone": "strokes-xs", "noise_multipliers": [77], "epsilons": []}
    block["scenarios"] += [one, other]


@pytest.mark.parametrize(("change", "words"), [(alone, "again"), (apart, "strokes-xs")])
def test_two_scenarios_of_one_name_are_refused(config, change, words):
    with pytest.raises(InputError, match="lp_fft") as caught:
        Atlas(validate(changed(config, change)))
    assert words in str(caught.value)


def test_a_backbone_that_was_not_trained_here_has_no_public_task(config):
    imported = copy.deepcopy(config)
    imported["pretrain"]["backbones"]["published"] = {
        "source": "imagenet",
        "model": "imagenet-resnet18",
        "options": {},
        "image_shape": [1, 8, 8],
    }
    imported["pretrain"]["train"].append("published")
    imported[KEY]["feature_quality"][0]["backbone"] = "published"
    with pytest.raises(InputError, match="feature_quality: found 'published'"):
        Atlas(validate(imported))


def test_a_paper_that_starts_from_backbones_needs_them(config):
    off = copy.deepcopy(config)
    off["pretrain"]["enabled"] = False
    with pytest.raises(InputError, match="pretrain"):
        groups_of(off)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("lp_fft: {augmentation: {views: 0, padding: 1, flip: true}}", "lp_fft.augmentation"),
        ("lp_fft: {ema_decay: 1}", "lp_fft.ema_decay"),
        ("lp_fft: {scenarios: []}", "lp_fft.scenarios"),
        ("lp_fft: {clip_sweep: {strategies: [ftt]}}", "lp_fft.clip_sweep.strategies"),
        ("lp_fft: {clip_sweep: {shares: [1.5]}}", "lp_fft.clip_sweep.shares"),
    ],
)
def test_values_outside_their_ranges_are_refused(tmp_path, change, words):
    path = tmp_path / "wrong.yaml"
    path.write_text(change)
    with pytest.raises(InputError, match=words):
        load_config([path])


def test_a_backbone_that_was_trained_on_private_classes_is_refused(config):
    """Of one data set, on other classes; a class that both hold may hold the same records."""

    def give_own_source(block):
        block["scenarios"][0] |= {
            "data": {**block["scenarios"][0]["data"], "name": "letters", "classes": ["A", "B"]},
            "backbone": "letters-t",
        }

    with pytest.raises(InputError) as caught:
        groups_of(changed(config, give_own_source))
    assert "lp_fft.scenarios.0.backbone: found letters-t, trained on" in str(caught.value)


def test_every_strategy_of_a_scenario_tries_as_many_rates(config):
    def fewer(block):
        block["lrs"]["full"] = block["lrs"]["full"][:-1]

    with pytest.raises(InputError, match=r"scenarios\.0\.lrs: found 4 for head, 3 for full"):
        groups_of(changed(config, fewer))
