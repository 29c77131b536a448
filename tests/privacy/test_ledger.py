import dataclasses
import json
import math

import pytest

from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.accounting.guarantees import Phase, calibrate, composition, guarantee
from dpatlas.accounting.ledger import (
    FLOATS,
    GAUSSIAN,
    GIVEN_BATCHES,
    LastIterate,
    Persons,
    Ran,
    ledger,
    private_selection,
    together,
    tuning_of,
)
from dpatlas.accounting.samplers import Cyclic, FixedSize, FullBatch, Poisson, Shuffled
from dpatlas.base.canonical import canonical_json
from dpatlas.base.rounding import rounded_up
from dpatlas.epsilon.ledgers import total_spent
from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.guarantees import conditional_epsilon, conditional_rdp
from dpatlas.formulas.dp_sgld.theorems import ORDERS, rdp_to_epsilon
from dpatlas.privacy.clipping import company_rounding
from dpatlas_workflow.papers.kl_privacy.jobs.ledger import LEDGER

LP = Phase(Poisson(1050, 100), 2.0, 40)
FFT = Phase(FullBatch(1050), 50.0, 30)
SILENT = Phase(Poisson(1050, 2), 0.0, 5)
CLAIM = {"epsilon": 1.0, "delta": 1e-5, "by": "the paper"}
ACCOUNTS = {"delta": 1e-5, "relation": "add_remove"}
NO_EPSILON = "no finite epsilon for those records"


def ran(*phases: Phase, clip=1.5, noise_source="keyed", **more) -> Ran:
    return Ran("DP-SGD", phases, (clip,) * len(phases), noise_source, **more)


def of(*phases: Phase, clip=1.5, noise_source="keyed", **changes):
    return ledger(ran(*phases, clip=clip, noise_source=noise_source), **{**ACCOUNTS, **changes})


def test_trainings_compose_and_each_shuffles_from_its_own_step_zero():
    assert composition([[LP]] * 3, 1e-5, "add_remove").epsilon == pytest.approx(
        guarantee([Phase(LP.sampler, 2.0, 120)], 1e-5, "add_remove").epsilon, rel=1e-9
    )
    # Eight steps of an epoch of ten: a second phase of the same run would reach into two epochs.
    part = Phase(Shuffled(1050, 100), 4.0, 8)
    one_run = guarantee([part, part], 1e-5, "replace_one")
    assert "2 x" in composition([[part], [part]], 1e-5, "replace_one").event
    assert composition([[part], [part]], 1e-5, "replace_one").epsilon == pytest.approx(
        guarantee([Phase(FullBatch(1050), 4.0, 2)], 1e-5, "replace_one").epsilon, rel=1e-6
    )
    assert one_run.epsilon > composition([[part], [part]], 1e-5, "replace_one").epsilon


def test_runs_that_share_noise_guarantee_nothing_together_and_one_alone_says_so():
    arms = [ran(LP, shared_noise="common draws")] * 2
    alone = ledger(arms[0], **ACCOUNTS)
    assert alone["epsilon"] == of(LP)["epsilon"]
    assert "common draws" in alone["holds_for"] and "all together have none" in alone["holds_for"]
    both = ledger(arms, **ACCOUNTS)
    assert both["epsilon"] is None and both["one_run"]["epsilon"] == alone["epsilon"]
    assert both["guaranteed"].startswith("nothing of all runs together")
    assert tuning_of(arms, [ran(LP)], **ACCOUNTS)["epsilon"] is None
    for runs in ([arms[0], ran(LP)], [ran(LP), arms[0]]):
        assert together(runs, **ACCOUNTS) == (math.inf, "the runs share noise (common draws)")


@pytest.mark.parametrize(
    ("n", "batch", "grid", "epsilon", "trials", "known"),
    [
        (1300, 260, (15, 50, 150), 1.0, 8, 5.88),
        (1300, 256, (60,), None, 8, 5.28),
        (1200, 600, (60,), 3.0, 10, 12.2),
    ],
)
def test_what_was_trained_to_choose_a_setting_is_composed(n, batch, grid, epsilon, trials, known):
    law, noises = Poisson(n, batch), []
    for steps in grid:

        def phases_at(noise, steps=steps):
            return [Phase(law, noise, steps)]

        noises.append(4.0 if epsilon is None else calibrate(phases_at, epsilon, **ACCOUNTS))
    settings = [ran(Phase(law, *pair)) for pair in zip(noises, grid, strict=True)]
    tuning = tuning_of(
        [each for each in settings for _ in range(trials)], settings[-1:], **ACCOUNTS
    )
    assert tuning["epsilon"] == pytest.approx(known, rel=0.005)
    assert tuning["trials"] == trials * len(grid)
    found = ledger(settings[-1], tuning=tuning, **ACCOUNTS)
    assert found["epsilon"] < known / 3 and found["tuning"] == tuning
    (choice,) = found["chosen_on_private_data"]
    assert choice["what"].startswith(f"settings, by the validation scores of {trials * len(grid)} ")
    assert f"epsilon {rounded_up(tuning['epsilon'])} at delta 1e-05 (add_remove)" in choice["cost"]
    assert NO_EPSILON in choice["cost"]


def test_bounds_for_the_last_iterate_compose_by_their_own_laws():
    asked = (1e-5, "replace_one")
    noisy = Phase(Cyclic(1050, 100), 3.0, 40)
    mus = (0.3, 0.2, 0.2, 0.2, 0.2)
    gaussian = [ran(noisy, last_iterate=LastIterate(GAUSSIAN, (mu,))) for mu in mus]
    assert together(gaussian, *asked) == (pytest.approx(gaussian_epsilon(0.5, 1e-5)), GAUSSIAN)
    setting = (2**0.5, 0.5, 1.0, 1050, 100, 0.05, 0.4, 40)
    given = ran(
        Phase(FixedSize(1050, 100), 1.0, 400), last_iterate=LastIterate(GIVEN_BATCHES, setting)
    )
    one = conditional_epsilon(*setting, 1e-5)
    assert together([given], *asked)[0] == one < guarantee(given.phases, *asked).epsilon
    four = rdp_to_epsilon(4 * conditional_rdp(ORDERS, *setting), 1e-5)
    assert together([given] * 4, *asked) == (four, GIVEN_BATCHES)


def test_ordinary_accounting_wins_where_it_is_tighter_or_a_last_iterate_is_unknown():
    loose = ran(LP, last_iterate=LastIterate(GAUSSIAN, (50.0,)))
    expected = guarantee([LP], 1e-5, "replace_one").epsilon
    assert together([loose], 1e-5, "replace_one") == (expected, "every iterate, PLD")
    known = ran(LP, last_iterate=LastIterate(GAUSSIAN, (0.1,)))
    assert together([known], 1e-5, "replace_one")[1] == GAUSSIAN
    assert together([known, ran(LP)], 1e-5, "replace_one")[1] == "every iterate, PLD"
    # The bounds are for one replaced record.
    assert together([known], 1e-5, "add_remove")[1] == "every iterate, PLD"
    assert together([ran(SILENT)], 1e-5, "add_remove") == (math.inf, "no noise")


def test_a_composition_that_no_accountant_resolves_guarantees_nothing_and_stops_nobody():
    # PLD alone takes Poisson batches under replace_one, and its convolutions lose some of delta.
    accounts = {"delta": 1e-9, "relation": "replace_one"}
    long = ran(Phase(Poisson(1050, 100), 20.0, 50_000))
    tuning = tuning_of([long] * 10, [long], **accounts)
    assert tuning["epsilon"] is None and "delta: found 1e-09" in tuning["by"]
    assert ledger(long, tuning=tuning, **accounts)["epsilon"] > 0


def test_the_ledger_states_what_the_accountant_guarantees():
    found, expected = of(LP), guarantee([LP], 1e-5, "add_remove")
    assert set(LEDGER) <= set(found) and json.loads(canonical_json(found)) == found
    assert (found["epsilon"], found["delta"]) == (expected.epsilon, 1e-5)
    for name in ("accountant", "event", "cross_check"):
        assert found[name] == getattr(expected, name)
    assert (
        found["guaranteed"] == f"epsilon {rounded_up(expected.epsilon)} at delta 1e-05 (add_remove)"
    )
    assert (found["claimed"], found["warnings"]) == (None, [])
    assert found["chosen_on_private_data"] == "nothing"
    assert (found["clip"], found["noise_multiplier"], found["steps"]) == (1.5, 2.0, 40)
    poisson = {"name": "poisson", "n": 1050, "expected_batch": 100.0, "sample_rate": 100 / 1050}
    assert found["sampler"] == poisson
    fixed = of(Phase(FixedSize(1050, 100), 4.0, 5), relation="replace_one")
    assert fixed["accountant"] == "pld" and fixed["cross_check"].startswith("RDP: epsilon ")
    (warning,) = of(Phase(FullBatch(10), 1e4, 1), accountant="rdp")["warnings"]
    assert "ends the range" in warning


def test_phases_are_listed_and_composed_under_the_named_relation():
    found = ledger(Ran("DP-SGD", (LP, FFT), (1.0, 0.5), "keyed"), **ACCOUNTS)
    assert found["epsilon"] == guarantee([LP, FFT], 1e-5, "add_remove").epsilon
    assert [sampler["name"] for sampler in found["sampler"]] == ["poisson", "full-batch"]
    assert (found["clip"], found["noise_multiplier"]) == ([1.0, 0.5], [2.0, 50.0])
    assert found["steps"] == [40, 30]
    added, replaced = of(FFT), of(FFT, relation="replace_one")
    assert "add or remove one record" in added["neighbour_relation"]
    assert "replace one record" in replaced["neighbour_relation"]
    assert replaced["epsilon"] > added["epsilon"]


FAINT = Phase(FullBatch(10), 1e-5, 5)


@pytest.mark.parametrize(
    ("phases", "why"), [([SILENT], "no"), ([LP, SILENT], "no"), ([FAINT], "hardly any")]
)
def test_without_noise_nothing_is_guaranteed_and_a_claim_is_refused(phases, why):
    found = of(*phases)
    assert (found["epsilon"], found["delta"]) == (None, None)
    assert found["guaranteed"] == f"nothing: {why} noise"
    for claim in ({"claimed": CLAIM}, {"require_private": True}):
        with pytest.raises(InputError, match=r"noise_multiplier: .* with a claim of privacy"):
            of(*phases, **claim)


PUBLIC = {"max_grad_norm": "public"}


def test_what_is_declared_stands_beside_the_guarantee_and_never_replaces_it():
    choice = {"what": "learning rate", "cost": "unaccounted: 5 runs compared"}
    declared = {"claimed": CLAIM, "chosen_on_private_data": [choice], "require_private": True}
    found = of(LP, **declared, constants={**PUBLIC, "feature_norm": "public"})
    assert found["claimed"] == CLAIM and found["chosen_on_private_data"] == [choice]
    assert found["public_constants"] == ["feature_norm", "max_grad_norm"]
    assert found["epsilon"] == of(LP)["epsilon"]
    assert "whoever knows that can subtract it" in found["holds_for"]
    assert found["holds_for"].endswith("released: the last iterate only")
    drawn = of(LP, noise_source="os", released="every iterate")["holds_for"]
    assert "subtract" not in drawn and "exact arithmetic" in drawn
    assert drawn.endswith("released: every iterate only")
    selection = private_selection("logarithmic, mean 10", by="Liu, Talwar", epsilon=3.0, **ACCOUNTS)
    (choice,) = ledger(ran(LP), tuning=selection, **ACCOUNTS)["chosen_on_private_data"]
    assert "random number of trials, logarithmic, mean 10" in choice["what"]
    assert choice["cost"].startswith("epsilon 3 at delta 1e-05 (add_remove)")


OTHER = Phase(Poisson(10, 2), 2.0, 5)
MIXED = ran(Phase(FixedSize(1050, 100), 4.0, 5), Phase(FullBatch(1050), 4.0, 5))
REFUSED = [
    (lambda: of(LP, clip=0), "max_grad_norm: found 0; allowed: a number > 0"),
    (lambda: of(LP, delta=1), "delta: found 1; allowed: a number > 0 and < 1"),
    (lambda: of(LP, relation="zero_out"), "relation: found 'zero_out'; allowed: one of add_remove"),
    (lambda: of(LP, noise_source="dice"), "noise_source: found 'dice'; allowed: one of keyed, os"),
    (lambda: of(LP, claimed={"epsilon": 1.0}), "claimed: found keys epsilon; allowed: epsilon and"),
    (lambda: of(LP, claimed={**CLAIM, "epsilon": 0}), "claimed epsilon: found 0; allowed: .* > 0"),
    (lambda: of(LP, chosen_on_private_data=[{"what": "lr"}]), "chosen_on_private_data: found keys"),
    (lambda: of(LP, constants={"norm": "public"}), "constants: found no entry for max_grad_norm"),
    (lambda: of(LP, constants={"max_grad_norm": "median"}), "origin of the constant max_grad_norm"),
    (
        lambda: of(LP, constants={**PUBLIC, "smoothness": "90th percentile"}),
        "origin of the constant smoothness: found '90th percentile'; allowed: one of public",
    ),
    (lambda: Ran("DP-SGD", (LP,), (1.0, 2.0), "keyed"), "max_grad_norm: found 2 .* one a phase"),
    (
        lambda: ledger(MIXED, delta=1e-5, relation="replace_one", accountant="pld"),
        "accountant: found pld for fixed-size",
    ),
    (
        lambda: ledger([ran(LP), ran(LP, persons=Persons(1050, 2, 2000))], **ACCOUNTS),
        "ran: found trainings with other units of privacy",
    ),
    (lambda: guarantee([LP, OTHER], 1e-5, "add_remove"), "found batches of 10 and of 1050 records"),
    (
        lambda: calibrate(lambda _: [LP, OTHER], 1.0, 1e-5, "add_remove"),
        "batches of 10 and of 1050",
    ),
    (lambda: composition([[LP], [OTHER]], 1e-5, "add_remove"), "batches of 10 and of 1050 records"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_would_make_a_ledger_wrong_is_refused_by_name(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_what_ran_survives_json():
    last = LastIterate(GIVEN_BATCHES, (1.4, 0.01, 0.5, 1050, 100, 0.1, 0.3, 40))
    one = ran(LP, FFT, noise_source="os", shared_noise="arms", last_iterate=last)
    assert Ran.of(json.loads(canonical_json(one.facts()))) == one


def test_several_released_runs_and_trials_compose():
    found = ledger([ran(LP)] * 3, **ACCOUNTS)
    assert found["epsilon"] == composition([[LP]] * 3, 1e-5, "add_remove").epsilon
    assert found["one_run"] == {"epsilon": of(LP)["epsilon"], "delta": 1e-5}
    alone = rounded_up(of(LP)["epsilon"])
    assert found["guaranteed"].endswith(f", all 3 runs together; one alone: epsilon {alone}")
    assert "one_run" not in of(LP)
    tuning = tuning_of([ran(LP)] * 2, [ran(LP)] * 3, **ACCOUNTS)
    assert tuning["epsilon"] == composition([[LP]] * 3, 1e-5, "add_remove").epsilon
    assert tuning["epsilon_of_all"] == composition([[LP]] * 5, 1e-5, "add_remove").epsilon
    assert (tuning["trials"], tuning["reported_runs"]) == (2, 3)
    silent = tuning_of([ran(LP), ran(SILENT)], [ran(LP)], **ACCOUNTS)
    assert silent["epsilon"] is silent["epsilon_of_all"] is None
    (choice,) = ledger(ran(LP), tuning=silent, **ACCOUNTS)["chosen_on_private_data"]
    assert choice["cost"].startswith("nothing: no noise; ") and NO_EPSILON in choice["cost"]


def test_trainings_that_differ_are_counted_by_what_they_are():
    less = Phase(LP.sampler, 6.0, 40)
    for runs in ([ran(LP), ran(less), ran(less)], [ran(less), ran(LP), ran(less)]):
        found = ledger(runs, **ACCOUNTS)
        whole = composition([[LP], [less], [less]], 1e-5, "add_remove").epsilon
        assert found["epsilon"] == pytest.approx(whole, rel=1e-9)
        assert found["one_run"] == {"epsilon": of(LP)["epsilon"], "delta": 1e-5}
        assert found["event"].startswith("3 trainings: ")
        for number, phase in ((1, LP), (2, less)):
            assert f"{number} of {of(phase)['event']}" in found["event"]
        # What checks ledgers takes it for what it is: no training that is repeated.
        spent = total_spent({"it": found, "more": of(LP)}).spent[0]
        assert (spent.epsilon, spent.trainings, spent.phases) == (found["epsilon"], 1, ())


def test_the_ledger_of_a_last_iterate_names_its_bound():
    last = ran(Phase(FullBatch(1050), 50.0, 30), last_iterate=LastIterate(GAUSSIAN, (0.1,)))
    found = ledger(last, delta=1e-5, relation="replace_one")
    assert found["accountant"] == "gdp" and found["event"] == "last of 30 iterates, 0.1-GDP"
    assert found["epsilon"] == gaussian_epsilon(0.1, 1e-5)
    assert found["cross_check"].startswith("every iterate, PLD: epsilon")
    # One of several arms alone has its noise to itself.
    arm = dataclasses.replace(last, shared_noise="arms")
    assert ledger(arm, delta=1e-5, relation="replace_one")["epsilon"] == found["epsilon"]


def test_what_floats_leave_open_is_stated_with_the_engines_own_bound():
    assert f"C (1 + {company_rounding(1):.1e} n)".replace("e-0", "e-") in FLOATS
    assert company_rounding(3) == 3 * company_rounding(1)
