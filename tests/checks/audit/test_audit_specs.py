from typing import get_args

import pytest

from dpatlas.checks.audit import settings as audit
from dpatlas.checks.audit.cost import KINDS
from dpatlas.checks.audit.mechanisms import MECHANISMS
from dpatlas.config.atlas import Atlas
from dpatlas.config.load import load_config
from dpatlas.config.types import SmallNetwork
from dpatlas.core.specs import Spec
from dpatlas.cost.training import NETWORKS
from dpatlas.errors import InputError


def specs(**changes) -> dict[str, list[Spec]]:
    return audit.groups(load_config(changes={"tier": "t", "audit": changes}))


def test_every_network_has_a_cost():
    names, _ = get_args(SmallNetwork)
    assert set(get_args(names)) <= set(NETWORKS)


def test_the_default_tier_attacks_every_mechanism():
    names = [spec.fields["mechanism"] for spec in specs()["mechanisms"]]
    assert names == list(MECHANISMS)


def test_a_mechanism_whose_runs_are_cheap_runs_more_often():
    runs = {spec.fields["mechanism"]: spec.fields["runs"] for spec in specs(runs=10)["mechanisms"]}
    assert runs == {name: 10 * entry.runs for name, entry in MECHANISMS.items()}
    assert max(entry.runs for entry in MECHANISMS.values()) > 1


def test_one_mechanism_less_changes_no_other_job():
    base, less = specs(), specs(mechanisms=list(MECHANISMS)[1:])
    assert less["mechanisms"] == base["mechanisms"][1:]
    assert (less["training"], less["canaries"]) == (base["training"], base["canaries"])


def test_the_confidence_of_verdicts_does_not_train_the_network_again():
    base, other = specs(), specs(verdict_level=0.9999)
    assert other["training"] == base["training"]
    assert other["canaries"] != base["canaries"]
    assert other["mechanisms"] != base["mechanisms"]


def test_a_setting_means_the_same_as_a_whole_number_and_with_a_point():
    assert specs(training={"epsilon": 3}) == specs(training={"epsilon": 3.0})


def test_only_training_moves_to_a_gpu():
    found = {kind: cost.gpu for kind, cost in KINDS.items()}
    assert found == {"mechanism": False, "training": True, "selection": True}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"verdict_level": 0.9}, "audit.verdict_level"),
        ({"training": {"batch": 1201}}, "audit.training.batch"),
        ({"training": {"optimizer": "adam"}}, "audit.training.momentum"),
        ({"canaries": {"canaries": 301}}, "audit.canaries.canaries"),
        ({"canaries": {"delta": 0.01}}, "audit.canaries.delta"),
        ({"mechanisms": ["dp-sgd"]}, "audit.mechanisms.0"),
        ({"delta": 1}, "audit.delta"),
        ({"training": {"model": "resnet18"}}, "audit.training.model"),
    ],
)
def test_what_cannot_run_stops_before_any_job(change, key):
    with pytest.raises(InputError, match=key):
        Atlas(load_config(changes={"tier": "t", "audit": change}))
