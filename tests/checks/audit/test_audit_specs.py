from typing import get_args

from dpatlas.base.networks import NETWORKS
from dpatlas_workflow.checks.audit import settings as audit
from dpatlas_workflow.checks.audit.cost import KINDS
from dpatlas_workflow.checks.audit.mechanisms import MECHANISMS
from dpatlas_workflow.config.load import load_config
from dpatlas_workflow.config.types import SmallNetwork


def specs(**changes):
    return audit.groups(load_config(changes={"tier": "t", "audit": changes}))


def test_every_network_has_a_cost_and_only_training_moves_to_a_gpu():
    names, _ = get_args(SmallNetwork)
    assert set(get_args(names)) <= set(NETWORKS)
    assert {kind: cost.gpu for kind, cost in KINDS.items()} == {"mechanism": False, "network": True}


def test_a_change_renews_the_jobs_that_it_concerns_and_no_other():
    base, less = specs(), specs(mechanisms=list(MECHANISMS)[1:])
    assert [spec.fields["mechanism"] for spec in base["mechanisms"]] == list(MECHANISMS)
    assert less == base | {"mechanisms": base["mechanisms"][1:]}
    surer = specs(verdict_level=0.9999)
    assert {group for group in base if surer[group] != base[group]} == {"mechanisms"}
    assert specs(level=0.9)["canaries"] != base["canaries"]
    assert specs(training={"epsilon": 3}) == specs(training={"epsilon": 3.0})
