"""feature_learning's block of the config: its jobs, their ids and memory, and what is refused."""

import copy
import itertools
import math

import pytest

from dpatlas_workflow.config.load import read_config, validate
from dpatlas_workflow.papers.feature_learning.cost import KINDS
from dpatlas_workflow.papers.feature_learning.records.simulation import FeatureSimulationSpec, Point
from dpatlas_workflow.papers.feature_learning.settings import KEY, groups

SIMULATION = KINDS["simulation"]


@pytest.fixture(scope="module")
def config():
    return read_config()


def changed(config, change):
    """A copy of the config with a changed block."""
    copied = copy.deepcopy(config)
    change(copied[KEY])
    return copied


LADDERS = {link: (f"{link}-ladder", f"{link}-vanishing") for link in ("mixed", "odd")}


def groups_of(config):
    return groups(validate(config))


def ids(config):
    return [spec.id for specs in groups_of(config).values() for spec in specs]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda b: b["links"].update(odd=[0, 1, 0, 1]), {"odd-n", *LADDERS["odd"]}),
        (lambda b: b["links"].update(odd=[-1, 0, 1]), {"odd-n", *LADDERS["odd"]}),
        (lambda b: b["links"].update(other=[0, 1]), set()),
        (lambda b: b["sweeps"].update(p=[32, 64]), {"mixed-p"}),
        (lambda b: b["table"].pop(), {"table"}),
        (lambda b: b["ladder"].update(p_power=1.5), {*LADDERS["mixed"], *LADDERS["odd"]}),
        (
            lambda b: b["ladder"]["vanishing"].update(delta_power=1),
            {"mixed-vanishing", "odd-vanishing"},
        ),
        (lambda b: b.update(runs=48), set()),
        (lambda b: b["base"].update(n=30_000), {"mixed-p", "mixed-d", "mixed-epsilon"}),
    ],
)
def test_a_change_of_one_link_or_axis_changes_its_jobs_alone(config, change, names):
    after = set(ids(changed(config, change)))
    gone = [name for name in ids(config) if name not in after]
    assert {name.rpartition("-run")[0] for name in gone} == names


def test_on_the_vanishing_ladder_epsilon_and_delta_fall_within_assumption_3(config):
    for spec in groups_of(config)["vanishing"]:
        points, delta = spec.fields["points"], spec.fields["delta"]
        assert points[0]["epsilon"] == 2 and delta == pytest.approx(1e-5 / 64)
        for before, after in itertools.pairwise(points):
            assert before["epsilon"] > after["epsilon"] > 8 / 9 * before["epsilon"]
        for point in points:
            assert point["epsilon"] / math.sqrt(math.log(1 / delta)) > 1 / math.log(point["d"])


def test_memory_is_that_of_the_largest_condition_and_no_more_than_2000_mb():
    """A job of one run and two steps at these sizes had a peak of 1051 MB."""
    large = {"d": 256, "n": 20_000, "p": 2000, "epsilon": 2.0}
    conditions = [Point(**large | smaller) for smaller in ({"n": 1000}, {}, {"p": 2})]
    alone, together = (
        SIMULATION.memory_mb(
            FeatureSimulationSpec.model_construct(runs=5, n_test=4000, points=points)
        )
        for points in (conditions[1:2], conditions)
    )
    assert 1051 < alone == together < 2000
