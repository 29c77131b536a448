"""feature_learning's block of the config: its jobs, their ids and memory, and what is refused."""

import copy

import pytest

from dpatlas_workflow.config.load import read_config, validate
from dpatlas_workflow.papers.feature_learning.cost import KINDS
from dpatlas_workflow.papers.feature_learning.records.simulation import FeatureSimulationSpec, Point
from dpatlas_workflow.papers.feature_learning.settings import AXES, KEY, groups

SIMULATION = KINDS["simulation"]
# Of the block, in the spec of every job.
SHARED_FIELDS = ("delta", "steps", "n_test", "sharing", "clip_quantiles")


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
    block, blocks = config[KEY], groups_of(config)
    assert block["runs"] > block["runs_per_job"]
    for of_group in blocks.values():
        firsts = [*range(0, block["runs"], block["runs_per_job"])]
        jobs = len(of_group) // len(firsts)
        assert [s.fields["first_run"] for s in of_group] == firsts * jobs
        assert {s.fields["runs"] for s in of_group} == {block["runs_per_job"]}
    specs = {
        name: [spec for spec in of_group if not spec.fields["first_run"]]
        for name, of_group in blocks.items()
    }
    assert [(s.fields["link"], s.fields["axis"]) for s in specs["links"]] == [
        (name, "n") for name in block["links"]
    ]
    assert [(s.fields["link"], s.fields["axis"]) for s in specs["axes"]] == [
        ("mixed", axis) for axis in ("p", "d", "epsilon")
    ]
    # Not of the link of exponent 2, which Assumption 1 leaves out.
    assert [s.fields["link"] for s in specs["ladders"]] == ["mixed", "odd"]
    for spec in specs["ladders"]:
        assert spec.fields["axis"] == "ladder"
        assert spec.fields["points"] == [
            {"d": d, "n": d**2, "p": d, "epsilon": 2.0} for d in (16, 32, 64, 128)
        ]
    for spec in (*specs["links"], *specs["axes"]):
        axis, base = spec.fields["axis"], {name: block["base"][name] for name in AXES}
        assert spec.fields["points"] == [{**base, axis: v} for v in block["sweeps"][axis]]
        assert spec.fields["polynomial"] == block["links"][spec.fields["link"]]
        for name in SHARED_FIELDS:
            assert spec.fields[name] == block[name]
        assert spec.fields["penalty_per_neuron"] == block["penalty_per_neuron"]
        assert not {"data", "public_data"} & set(spec.fields)
    (table,) = specs["table"]
    assert table.fields["points"] == [{"d": 64, "epsilon": 2.0, **pair} for pair in block["table"]]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda b: b["links"].update(odd=[0, 1, 0, 1]), {"odd-n", "odd-ladder"}),
        (lambda b: b["links"].update(odd=[-1, 0, 1]), {"odd-n", "odd-ladder"}),
        (lambda b: b["links"].update(other=[0, 1]), set()),
        (lambda b: b["sweeps"].update(p=[32, 64]), {"mixed-p"}),
        (lambda b: b["table"].pop(), {"table"}),
        (lambda b: b["ladder"].update(p_power=1.5), {"mixed-ladder", "odd-ladder"}),
        (lambda b: b.update(runs=48), set()),
        (lambda b: b["base"].update(n=30_000), {"mixed-p", "mixed-d", "mixed-epsilon"}),
    ],
)
def test_a_change_of_one_link_or_axis_changes_its_jobs_alone(config, change, names):
    after = set(ids(changed(config, change)))
    gone = [name for name in ids(config) if name not in after]
    assert {name.rpartition("-run")[0] for name in gone} == names


def memory_mb(*points, runs=5):
    base = {"d": 256, "n": 20_000, "p": 2000, "epsilon": 2.0}
    conditions = [Point(**{**base, **point}) for point in points]
    return SIMULATION.memory_mb(
        FeatureSimulationSpec.model_construct(runs=runs, n_test=4000, points=conditions)
    )


def test_memory_holds_the_features_of_both_data_sets_and_no_more_than_2000_mb():
    """A job of one run and two steps at these sizes had a peak of 1051 MB."""
    assert 1051 < memory_mb({}) < 2000
    assert memory_mb({}) > 3 * 20_000 * 2000 * 4 / 1e6
    assert memory_mb({"n": 1000}, {}, {"p": 2}) == memory_mb({})
