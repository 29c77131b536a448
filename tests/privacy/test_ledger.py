import json

import pytest

from dpatlas.core.canonical import canonical_json
from dpatlas.errors import InputError
from dpatlas.experiments.kl_ledger import LEDGER
from dpatlas.privacy.accounting import Phase, guarantee
from dpatlas.privacy.ledger import ledger
from dpatlas.privacy.samplers import FixedSize, FullBatch, Poisson

LP = Phase(Poisson(1050, 100), 2.0, 40)
FFT = Phase(FullBatch(1050), 50.0, 30)
CLAIM = {"epsilon": 1.0, "delta": 1e-5, "by": "the paper"}


def of(*phases: Phase, **changes):
    asked = {
        "mechanism": "DP-SGD",
        "phases": phases,
        "max_grad_norm": 1.5,
        "delta": 1e-5,
        "relation": "add_remove",
        "constants": {"max_grad_norm": "public"},
    }
    return ledger(**{**asked, **changes})


def test_the_ledger_has_the_keys_of_every_paper_and_is_json():
    found = of(LP)
    assert set(LEDGER) <= set(found)
    assert json.loads(canonical_json(found)) == found


def test_the_ledger_states_what_the_accountant_guarantees():
    found, expected = of(LP), guarantee([LP], 1e-5, "add_remove")
    assert (found["epsilon"], found["delta"]) == (expected.epsilon, 1e-5)
    for name in ("accountant", "event", "cross_check"):
        assert found[name] == getattr(expected, name)
    assert found["guaranteed"] == f"epsilon {expected.epsilon:.6g} at delta 1e-05 (add_remove)"
    assert found["claimed"] is None
    assert found["chosen_on_private_data"] == "nothing"
    assert (found["clip"], found["noise_multiplier"], found["steps"]) == (1.5, 2.0, 40)
    assert found["sampler"] == {
        "name": "poisson",
        "n": 1050,
        "expected_batch": 100.0,
        "sample_rate": 100 / 1050,
    }


def test_phases_are_listed_and_composed():
    found = of(LP, FFT, max_grad_norm=[1.0, 0.5])
    assert found["epsilon"] == guarantee([LP, FFT], 1e-5, "add_remove").epsilon
    assert found["epsilon"] > max(of(LP)["epsilon"], of(FFT)["epsilon"])
    assert [sampler["name"] for sampler in found["sampler"]] == ["poisson", "full-batch"]
    assert found["clip"] == [1.0, 0.5]
    assert found["noise_multiplier"] == [2.0, 50.0]
    assert found["steps"] == [40, 30]


def test_the_neighbour_relation_is_part_of_every_ledger():
    added, replaced = of(FFT), of(FFT, relation="replace_one")
    assert "add or remove one record" in added["neighbour_relation"]
    assert "replace one record" in replaced["neighbour_relation"]
    assert replaced["epsilon"] > added["epsilon"]


def test_a_missing_second_accountant_is_said():
    found = of(Phase(FixedSize(1050, 100), 4.0, 5), relation="replace_one")
    assert (found["accountant"], found["cross_check"]) == ("rdp", "no cross-check")


def test_warnings_of_the_accountant_reach_the_ledger():
    assert of(LP)["warnings"] == []
    (warning,) = of(Phase(FullBatch(10), 1e4, 1), accountant="rdp")["warnings"]
    assert "ends the range" in warning


@pytest.mark.parametrize(
    "phases", [[Phase(Poisson(10, 2), 0.0, 5)], [LP, Phase(Poisson(10, 2), 0, 5)]]
)
def test_without_noise_nothing_is_guaranteed(phases):
    found = of(*phases)
    assert (found["epsilon"], found["delta"]) == (None, None)
    assert found["guaranteed"] == "nothing: no noise"
    canonical_json(found)


def test_noise_next_to_nothing_guarantees_nothing():
    found = of(Phase(FullBatch(10), 1e-5, 5))
    assert found["epsilon"] is None
    assert found["guaranteed"] == "nothing: hardly any noise"


@pytest.mark.parametrize("claim", [{"claimed": CLAIM}, {"require_private": True}])
def test_a_claim_of_privacy_without_noise_is_refused(claim):
    silent = Phase(Poisson(10, 2), 0.0, 5)
    with pytest.raises(InputError, match=r"noise_multiplier: found 0.0 with a claim of privacy"):
        of(silent, **claim)
    with pytest.raises(InputError, match=r"noise_multiplier: found \[2.0, 0.0\] with a claim"):
        of(LP, silent, **claim)
    assert of(LP, **claim)["epsilon"] > 0


def test_a_claim_stands_beside_the_guarantee_and_never_replaces_it():
    found = of(LP, claimed=CLAIM)
    assert found["claimed"] == CLAIM
    assert found["epsilon"] == of(LP)["epsilon"]


@pytest.mark.parametrize("name", ["max_grad_norm", "feature_norm", "smoothness"])
def test_a_constant_taken_from_private_data_is_refused_unless_declared_public(name):
    public = {"max_grad_norm": "public", name: "public"}
    assert of(LP, constants=public)["public_constants"] == sorted(public)
    with pytest.raises(InputError, match=f"origin of the constant {name}: found .*: one of public"):
        of(LP, constants={**public, name: "90th percentile of the private gradients"})


def test_a_clip_bound_of_unknown_origin_is_refused():
    with pytest.raises(InputError, match="constants: found no word on max_grad_norm"):
        of(LP, constants={"feature_norm": "public"})


def test_a_choice_on_private_data_is_listed_with_its_cost():
    choice = {"what": "learning rate", "cost": "unaccounted: 5 runs compared"}
    assert of(LP, chosen_on_private_data=[choice])["chosen_on_private_data"] == [choice]
    with pytest.raises(InputError, match="chosen_on_private_data: found keys what; allowed: what"):
        of(LP, chosen_on_private_data=[{"what": "learning rate"}])


def test_every_ledger_says_who_could_subtract_the_noise_and_what_is_released():
    keyed = of(LP)["holds_for"]
    assert "secret seeds and exact arithmetic" in keyed
    assert "whoever knows that can subtract it" in keyed
    assert keyed.endswith("released: the last iterate only")
    drawn = of(LP, noise_source="os", released="every iterate")["holds_for"]
    assert "subtract" not in drawn
    assert "exact arithmetic" in drawn
    assert drawn.endswith("released: every iterate only")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_grad_norm": 0}, "max_grad_norm: found 0; allowed: a number > 0"),
        ({"max_grad_norm": [1.0, 2.0]}, "max_grad_norm: found 2 values; allowed: one"),
        ({"delta": 1}, "delta: found 1; allowed: a number > 0 and < 1"),
        ({"relation": "zero_out"}, "relation: found 'zero_out'; allowed: one of add_remove"),
        ({"noise_source": "dice"}, "noise_source: found 'dice'; allowed: one of keyed, os"),
        ({"claimed": {"epsilon": 1.0}}, "claimed: found keys epsilon; allowed: epsilon and delta"),
        ({"claimed": {**CLAIM, "epsilon": 0}}, "claimed epsilon: found 0; allowed: a number > 0"),
    ],
)
def test_a_ledger_of_bad_input_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        of(LP, **changes)
