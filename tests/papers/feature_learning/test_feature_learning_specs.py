import copy

import pytest

from dpatlas.config.atlas import Atlas
from dpatlas.config.load import load_config, load_tier, read_config, validate
from dpatlas.errors import InputError
from dpatlas.papers.feature_learning.cost import KINDS
from dpatlas.papers.feature_learning.records.simulation import Point, Spec
from dpatlas.papers.feature_learning.settings import AXES, KEY, groups, settings
from dpatlas.records import parse_spec

SIMULATION = KINDS["simulation"]
BASE = {"link": "mixed", "d": 64, "n": 20_000, "p": 128, "epsilon": 2}


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


def ids(config):
    return [spec.id for specs in groups_of(config).values() for spec in specs]


def test_every_link_runs_along_n_and_the_base_link_along_the_other_axes(config):
    block, found = config[KEY], groups_of(config)
    assert [(s.fields["link"], s.fields["axis"]) for s in found["links"]] == [
        (name, "n") for name in block["links"]
    ]
    assert [(s.fields["link"], s.fields["axis"]) for s in found["axes"]] == [
        ("mixed", axis) for axis in ("p", "d", "epsilon")
    ]
    for spec in (*found["links"], *found["axes"]):
        axis, base = spec.fields["axis"], {name: block["base"][name] for name in AXES}
        assert spec.fields["points"] == [{**base, axis: v} for v in block["sweeps"][axis]]
        assert spec.fields["polynomial"] == block["links"][spec.fields["link"]]
    (table,) = found["table"]
    assert table.fields["points"] == [{"d": 64, "epsilon": 2.0, **pair} for pair in block["table"]]


def test_a_job_is_named_after_its_link_and_axis_once(config):
    names = [name.rpartition("-")[0] for name in ids(config)]
    assert names == ["mixed-n", "odd-n", "even-n", "mixed-p", "mixed-d", "mixed-epsilon", "table"]
    assert len(set(ids(config))) == len(names)
    assert {spec.id for spec in Atlas(validate(config)).specs.values() if spec.key == KEY} == set(
        ids(config)
    )


def test_an_axis_or_table_without_values_makes_no_job(config):
    def less(block):
        block["sweeps"].update(p=[], epsilon=[])
        block["table"] = []

    found = groups_of(changed(config, less))
    assert [spec.fields["axis"] for spec in found["axes"]] == ["d"]
    assert found["table"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 1e-6},
        {"runs": 7},
        {"steps": 101},
        {"penalty_per_neuron": None},
        {"penalty_per_neuron": 2e-3},
        {"clip_quantiles": {"first": 0.5, "second": 0.8}},
        {"clip_quantiles": {"first": 0.6, "second": 0.9}},
        {"sharing": "shared"},
        {"n_test": 4001},
    ],
)
def test_what_changes_every_number_changes_every_id(config, change):
    before, after = ids(config), ids(changed(config, lambda block: block.update(change)))
    assert len(before) == len(after)
    assert not set(before) & set(after)


@pytest.mark.parametrize(("name", "value"), [("seed", 1), ("noise_source", "os")])
def test_the_run_s_seed_and_noise_change_every_id(config, name, value):
    assert not set(ids(config)) & set(ids({**config, name: value}))


def test_a_change_of_one_link_or_axis_changes_its_jobs_alone(config):
    def names(change):
        after = set(ids(changed(config, change)))
        return {name.rpartition("-")[0] for name in ids(config) if name not in after}

    assert names(lambda b: b["links"].update(odd=[0, 1, 0, 1])) == {"odd-n"}
    assert names(lambda b: b["links"].update(other=[0, 1])) == set()
    assert names(lambda b: b["sweeps"].update(p=[32, 64])) == {"mixed-p"}
    assert names(lambda b: b["sweeps"].update(n=[1000])) == {"mixed-n", "odd-n", "even-n"}
    assert names(lambda b: b["table"].pop()) == {"table"}
    assert names(lambda b: b["base"].update(epsilon=3)) == {
        *("mixed-n", "odd-n", "even-n", "mixed-p", "mixed-d", "table")
    }
    assert names(lambda b: b["base"].update(n=30_000)) == {"mixed-p", "mixed-d", "mixed-epsilon"}


def test_whole_numbers_and_their_reals_are_one_run(config):
    def reals(block):
        block["base"]["epsilon"] = 2.0
        block["sweeps"]["epsilon"] = [float(v) for v in block["sweeps"]["epsilon"]]
        block["links"] = {k: [float(v) for v in c] for k, c in block["links"].items()}

    def whole(block):
        block["penalty_per_neuron"] = 1

    def whole_real(block):
        block["penalty_per_neuron"] = 1.0

    assert ids(config) == ids(changed(config, reals))
    assert ids(changed(config, whole)) == ids(changed(config, whole_real))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda b: b["links"].update(odd=[1, 1]),
            "feature_learning.links.odd: found [1.0, 1.0], whose mean under N(0, 1) is 1",
        ),
        (
            lambda b: b["links"].update(mixed=[0, 0]),
            "feature_learning.links.mixed: found [0.0, 0.0]; allowed: one that is not constant",
        ),
        (
            lambda b: b["base"].update(link="cubic"),
            "feature_learning.base.link: found 'cubic'; allowed: one of mixed, odd, even",
        ),
        (
            lambda b: b["base"].update(n=64),
            "feature_learning.base: found n = 64 with d = 64; allowed: n > d",
        ),
        (
            lambda b: b["sweeps"].update(n=[1000, 60]),
            "feature_learning.sweeps.n.1: found n = 60 with d = 64",
        ),
        (
            lambda b: b["sweeps"].update(d=[20_000]),
            "feature_learning.sweeps.d.0: found n = 20000 with d = 20000",
        ),
        (
            lambda b: b["table"].append({"p": 8, "n": 3}),
            "feature_learning.table.2: found n = 3 with d = 64",
        ),
    ],
)
def test_settings_that_cannot_go_together_are_refused_before_any_job(config, change, words):
    with pytest.raises(InputError) as caught:
        Atlas(validate(changed(config, change)))
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"base": {"n": 0}}, "feature_learning.base.n: found 0"),
        ({"base": {"p": 0}}, "feature_learning.base.p: found 0"),
        ({"base": {"d": 1}}, "feature_learning.base.d: found 1"),
        ({"base": {"epsilon": 0}}, "feature_learning.base.epsilon: found 0"),
        ({"sweeps": {"n": [0]}}, "feature_learning.sweeps.n.0: found 0"),
        ({"sweeps": {"n": []}}, "feature_learning.sweeps.n: found"),
        ({"sweeps": {"p": [8, 0]}}, "feature_learning.sweeps.p.1: found 0"),
        ({"table": [{"p": 0, "n": 100}]}, "feature_learning.table.0.p: found 0"),
        ({"table": [{"p": 8}]}, "feature_learning.table.0"),
        ({"runs": 0}, "feature_learning.runs: found 0"),
        ({"steps": 0}, "feature_learning.steps: found 0"),
        ({"delta": 1}, "feature_learning.delta: found 1"),
        ({"clip_quantiles": {"first": 0}}, "feature_learning.clip_quantiles.first: found 0"),
        ({"clip_quantiles": {"second": 1}}, "feature_learning.clip_quantiles.second: found 1"),
        ({"penalty_per_neuron": 0}, "feature_learning.penalty_per_neuron: found 0"),
        ({"sharing": "both"}, "feature_learning.sharing: found 'both'"),
        ({"links": {"odd": [1]}}, "feature_learning.links.odd: found"),
        ({"rate": 1.0}, "feature_learning.rate: found"),
    ],
)
def test_values_outside_their_ranges_are_refused_in_one_line(change, words):
    with pytest.raises(InputError) as caught:
        load_config(changes={KEY: change})
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


def test_jobs_run_on_the_cpu_alone_and_need_no_data(config):
    assert not SIMULATION.gpu
    for specs in groups_of(config).values():
        for spec in specs:
            assert not {"data", "public_data"} & set(spec.fields)


def test_another_base_renews_no_figure_by_itself(config):
    assert settings(validate(config)) == {}


def with_points(*points, runs=5):
    base = {"d": 256, "n": 20_000, "p": 2000, "epsilon": 2.0}
    conditions = [Point(**{**base, **point}) for point in points]
    return Spec.model_construct(runs=runs, n_test=4000, points=conditions)


def test_memory_holds_the_features_of_both_data_sets_and_no_more_than_2000_mb():
    """A job that was run there with one run and two steps had a peak of 1051 MB."""
    found = SIMULATION.memory_mb(with_points({}))
    assert 1051 < found < 2000
    assert found > 3 * 20_000 * 2000 * 4 / 1e6
    assert SIMULATION.memory_mb(with_points({"n": 1000}, {}, {"p": 2})) == found


def test_memory_grows_linearly_in_the_records_and_not_with_runs_that_do_not_fit():
    found = [SIMULATION.memory_mb(with_points({"n": n})) for n in (20_000, 40_000, 60_000)]
    assert found[1] - found[0] == pytest.approx(found[2] - found[1], abs=2)
    assert found[1] - found[0] > 2 * 20_000 * 2000 * 4 / 1e6
    assert SIMULATION.memory_mb(with_points({}, runs=1)) == SIMULATION.memory_mb(
        with_points({}, runs=100)
    )


@pytest.mark.parametrize("tier", ["embedded", "smoke", "workstation", "paper"])
def test_every_tier_s_jobs_are_distinct_and_have_their_memory(tier):
    found = [spec for specs in groups(load_tier(tier)).values() for spec in specs]
    assert found
    assert len({spec.id for spec in found}) == len(found)
    for spec in found:
        assert 300 <= SIMULATION.memory_mb(parse_spec(spec.fields, spec.id)) < 32_000
        assert all(point["n"] > point["d"] for point in spec.fields["points"])
