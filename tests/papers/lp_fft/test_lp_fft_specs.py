"""lp_fft's settings: which jobs a config asks for, and which settings are refused."""

import copy

import pytest

from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.backbones import backbone_spec
from dpatlas_workflow.config.load import load_tier, read_config, validate
from dpatlas_workflow.papers.lp_fft.settings import KEY, groups, tunings
from dpatlas_workflow.papers.lp_fft.strategies import STRATEGIES

TRAINED = ("strategies", "lora", "clip_sweep", "feature_quality", "umap")


@pytest.fixture(scope="module")
def config():
    return read_config()


@pytest.fixture(scope="module")
def specs(config):
    return groups_of(config)


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


def blocks_of(entry):
    """Numbers of the first run of every block."""
    return range(0, entry["runs"], min(entry["runs"], entry["runs_per_job"]))


def levels_of(scenario):
    return [
        *(("noise_multiplier", float(noise)) for noise in scenario["noise_multipliers"]),
        *(("epsilon", float(epsilon)) for epsilon in scenario["epsilons"]),
    ]


@pytest.mark.parametrize(("group", "key"), [("strategies", "scenarios"), ("lora", "lora")])
def test_there_is_a_job_for_every_scenario_level_and_block_of_runs(config, specs, group, key):
    expected = [
        (entry["name"], *level, first)
        for entry in config[KEY][key]
        for level in levels_of(entry)
        for first in blocks_of(entry)
    ]
    for spec, (scenario, kind, value, run) in zip(specs[group], expected, strict=True):
        fields = spec.fields
        assert (fields["group"], fields["scenario"], fields["level"]) == (
            *(group, scenario, {kind: value}),
        )
        level = f"{'noise' if kind == 'noise_multiplier' else 'eps'}{value:g}"
        assert spec.id.rpartition("-")[0] == f"{scenario}-{level}-run{run}"
        assert fields["first_run"] == run and fields["data"]["redeal"]


@pytest.mark.parametrize(("kind", "value"), [("noise_multipliers", 3), ("epsilons", 5)])
def test_another_level_is_one_more_condition_and_leaves_the_others_alone(config, kind, value):
    levels = config[KEY]["scenarios"][0][kind]
    more = changed(config, first(**{kind: [*levels, value]}))
    assert len(conditions(more) - conditions(config)) == 1 and ids(config) < ids(more)


def test_more_runs_are_more_blocks_and_leave_the_others_alone(config):
    scenario = config[KEY]["scenarios"][0]
    more = changed(config, first(runs=scenario["runs"] + scenario["runs_per_job"]))
    assert len(ids(more) - ids(config)) == len(levels_of(scenario)) and ids(config) < ids(more)
    assert conditions(more) == conditions(config)


def test_every_condition_has_a_tuning_that_does_not_depend_on_runs_or_seed(config, specs):
    tuned = {spec.id: spec for spec in tunings(validate(config))}
    for name in ("strategies", "lora", "clip_sweep"):
        for spec in specs[name]:
            tuning = tuned[spec.fields["tuning"]]
            assert tuning.fields["kind"] == "strategies_tuning"
            shared = spec.fields.keys() & tuning.fields.keys() - {"kind", "seed", "data"}
            assert all(spec.fields[field] == tuning.fields[field] for field in shared)
            assert not {"runs", "first_run", "chosen"} & tuning.fields.keys()
            assert not {"lrs", "tuning_runs"} & spec.fields.keys()
    assert {spec.fields["tuning"] for name in ("strategies", "lora", "clip_sweep")
            for spec in specs[name]} == set(tuned)  # fmt: skip
    other = copy.deepcopy(config)
    other["seed"] = config["seed"] + 1
    assert {spec.id for spec in tunings(validate(other))} == set(tuned)


def test_rates_of_the_clip_sweep_go_with_the_bound_from_the_scenario_s_own(config):
    def halve(block):
        for scenario in block["scenarios"]:
            scenario["max_grad_norm"] = 0.5

    for usual, edited in ((1.0, config), (0.5, changed(config, halve))):
        block = edited[KEY]
        swept = block["clip_sweep"]["scenario"]
        base = next(entry for entry in block["scenarios"] if entry["name"] == swept)
        tuned = base.get("lrs", block["lrs"])
        of_sweep = [
            spec for spec in tunings(validate(edited)) if spec.fields["group"] == "clip_sweep"
        ]
        assert len(of_sweep) == len(block["clip_sweep"]["max_grad_norms"])
        for spec in of_sweep:
            bound = spec.fields["max_grad_norm"]
            for part, lrs in spec.fields["lrs"].items():
                expected = [lr * usual / bound for lr in tuned[part]]
                assert lrs == pytest.approx(expected, rel=1e-12)


def test_a_sweep_of_clip_bounds_changes_its_scenario_in_nothing_else(config, specs):
    sweep = config[KEY]["clip_sweep"]
    base = next(
        spec.fields for spec in specs["strategies"] if spec.fields["scenario"] == sweep["scenario"]
    )
    swept = {"group", "level", "strategies", "shares", "control_shares", "runs", "tuning", "chosen"}
    for spec in specs["clip_sweep"]:
        differing = {name for name, value in spec.fields.items() if value != base[name]}
        assert differing <= swept | {"max_grad_norm"}
        assert spec.fields["level"] == {"noise_multiplier": sweep["noise_multiplier"]}


def test_feature_quality_alone_reads_public_images_which_are_its_backbone_s_training_set(
    config, specs
):
    checked = validate(config)
    atlas = Atlas(checked)
    entries = [
        entry
        for entry in config[KEY]["feature_quality"]
        for _ in entry["noise_multipliers"]
        for _ in blocks_of(entry)
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
    assert all(len(atlas.job(spec.id).backbones) == 1 for name in TRAINED for spec in specs[name])


@pytest.mark.parametrize("tier", ["embedded", "smoke", "workstation"])
def test_controls_are_given_as_many_rates_as_lp_fft(tier):
    for spec in tunings(load_tier(tier)):
        if spec.key == KEY:
            last = {STRATEGIES[each][-1] for each in spec.fields["strategies"] if "-" in each}
            assert len({len(spec.fields["lrs"][part]) for part in last}) <= 1
