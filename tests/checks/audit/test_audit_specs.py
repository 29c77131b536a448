from typing import get_args

from dpatlas.base.networks import NETWORKS
from dpatlas.base.specs import Spec
from dpatlas_workflow.checks.audit import settings as audit
from dpatlas_workflow.checks.audit.cost import KINDS
from dpatlas_workflow.checks.audit.mechanisms import MECHANISMS, MORE_RUNS
from dpatlas_workflow.config.load import load_config
from dpatlas_workflow.config.types import SmallNetwork


def specs(**changes) -> dict[str, list[Spec]]:
    return audit.groups(load_config(changes={"tier": "t", "audit": changes}))


def test_every_network_has_a_cost_and_only_training_moves_to_a_gpu():
    names, _ = get_args(SmallNetwork)
    assert set(get_args(names)) <= set(NETWORKS)
    on_gpu = {kind: cost.gpu for kind, cost in KINDS.items()}
    assert on_gpu == {"mechanism": False, "network": True}


def test_the_default_tier_attacks_every_mechanism_as_often_as_its_entry_says():
    runs = {spec.fields["mechanism"]: spec.fields["runs"] for spec in specs(runs=10)["mechanisms"]}
    assert list(runs.items()) == [(name, 10 * MORE_RUNS.get(name, 1)) for name in MECHANISMS]


def test_a_change_renews_the_jobs_that_it_concerns_and_no_other():
    base, less = specs(), specs(mechanisms=list(MECHANISMS)[1:])
    assert less == base | {"mechanisms": base["mechanisms"][1:]}
    surer = specs(verdict_level=0.9999)
    assert surer["training"] == base["training"]
    assert surer["canaries"] == base["canaries"]
    assert surer["mechanisms"] != base["mechanisms"]
    assert specs(level=0.9)["canaries"] != base["canaries"]
    assert specs(training={"epsilon": 3}) == specs(training={"epsilon": 3.0})
