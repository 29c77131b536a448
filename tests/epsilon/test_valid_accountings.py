"""Every number against a second computation: closed forms, quadrature, Opacus, other grids."""

import math

import dp_accounting
import pytest
from gaussian_profile import hockey_stick, step_densities
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant

from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.samplers import FixedSize, Poisson, Shuffled
from dpatlas.base.rounding import upward
from dpatlas.epsilon.check import check_epsilon
from dpatlas.epsilon.claim import RELATIONS, Printed, read_claim
from dpatlas.epsilon.valid import SQRT_5, event, optimistic, readings

POISSON = {"sampler": "poisson", "n": 1050, "batch": 100, "delta": 1e-5}
FIFTY = {**POISSON, "noise": 2.0, "steps": 50}


def numbers(relation=None, **settings):
    """Epsilon by accountant under one relation."""
    claim = read_claim({"relation": relation, "delta": 1e-5, **settings})
    return {each.accountant: each.epsilon for each in readings(claim, claim.relations)}


def tightest(report, relation):
    return min(each.epsilon for each in report.readings if each.relation == relation)


def analytic(mu, delta=1e-5):
    return dp_accounting.get_epsilon_gaussian(1 / mu, delta)


@pytest.mark.parametrize(
    ("relation", "moved"), [("add_remove", 1), ("zero_out", 1), ("replace_one", 2)]
)
def test_full_batch_is_the_analytic_gaussian(relation, moved):
    found = numbers(relation, sampler="full", noise=3.0, steps=20)
    exact = analytic(moved * math.sqrt(20) / 3)
    assert found["exact"] == pytest.approx(exact, rel=1e-6)
    assert exact <= found["pld"] <= exact * 1.003
    assert exact <= found["rdp"] <= exact * 1.3


@pytest.mark.parametrize(
    ("relation", "moved"), [("zero_out", 1), ("replace_one", 2), ("add_remove", SQRT_5)]
)
# The third epoch counts as soon as it has begun: a record may be in its first batch.
@pytest.mark.parametrize("length", [{"epochs": 3}, {"epochs": 2.1}, {"steps": 23}], ids=str)
def test_a_shuffled_epoch_is_one_gaussian(relation, moved, length):
    found = numbers(relation, sampler="shuffle", n=1050, batch=100, noise=6.0, **length)
    assert found["exact"] == pytest.approx(analytic(moved * math.sqrt(3) / 6), rel=1e-6)


def test_what_is_left_over_takes_the_place_of_a_removed_record():
    settings = {"sampler": "shuffled", "batch": 100, "noise": 6.0, "epochs": 1}
    left = numbers("add_remove", n=1050, drop_last=True, **settings)
    in_batches = numbers("add_remove", n=1000, **settings)
    assert left["exact"] == pytest.approx(analytic(2 / 6), rel=1e-6)
    assert in_batches["exact"] == pytest.approx(analytic(SQRT_5 / 6), rel=1e-6)


@pytest.mark.parametrize(
    ("n", "batch", "others"),
    [
        # A record less is a batch less.
        (1000, 100, {"sampler": "shuffled", "drop_last": True}),
        (1001, 100, {"sampler": "shuffled"}),
        (5, 1, {"sampler": "shuffled"}),
        (5, 5, {"sampler": "shuffled", "drop_last": True}),
        # It moves all records behind it.
        (1050, 100, {"sampler": "cyclic"}),
    ],
)
def test_nothing_is_proved_where_a_record_less_changes_other_batches(n, batch, others):
    settings = {"n": n, "batch": batch, "noise": 3.0, **others}
    report = check_epsilon(
        **settings, epochs=1, delta=1e-5, relation="add_remove", claimed="900", explain=False
    )
    assert (report.verdict, report.readings) == ("not guaranteed", ())
    assert "nothing is proved here under add_remove" in str(report)
    assert numbers("zero_out", epochs=1, **settings)


THIRTY = {"n": 1050, "batch": 100, "noise": 2.0, "steps": 30}


@pytest.mark.parametrize(
    ("sampler", "relation", "kind"),
    [
        ({"sampler": "poisson"}, "add_remove", Poisson),
        ({"sampler": "poisson"}, "replace_one", Poisson),
        ({"sampler": "fixed-size"}, "replace_one", FixedSize),
        ({"sampler": "shuffled", "drop_last": True}, "replace_one", Shuffled),
    ],
)
def test_engine_and_check_agree(sampler, relation, kind):
    ours = guarantee([Phase(kind(1050, 100), 2.0, 30)], 1e-5, relation)
    assert numbers(relation, **THIRTY, **sampler)[ours.accountant] == pytest.approx(ours.epsilon)


def test_blanking_a_record_of_a_fixed_batch_is_covered_by_replacing_it():
    settings = {**THIRTY, "sampler": "fixed"}
    assert numbers("zero_out", **settings) == numbers("replace_one", **settings)
    assert numbers("add_remove", **settings) == {}


@pytest.mark.parametrize(("batch", "noise", "steps"), [(256, 1.1, 3516), (600, 4.0, 10_000)])
def test_poisson_agrees_with_the_accountant_of_opacus(batch, noise, steps):
    prv = PRVAccountant()
    prv.history = [(noise, batch / 60_000, steps)]
    other = prv.get_epsilon(1e-5, eps_error=0.002)
    found = numbers(
        "add_remove", sampler="poisson", n=60_000, batch=batch, noise=noise, steps=steps
    )
    assert found["pld"] == pytest.approx(other, abs=0.004)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("batch", "noise"), [(210, 0.7), (53, 1.0), (945, 2.0)])
def test_one_step_lies_between_both_sides_of_the_exact_hockey_stick(relation, batch, noise):
    settings = {**POISSON, "batch": batch, "noise": noise, "steps": 1}
    upper, lower, cell = step_densities(batch / 1050, noise, relation)
    least = optimistic(read_claim(settings), relation)
    assert hockey_stick(upper, lower, least, cell) >= 1e-5 * (1 - 1e-6)
    assert least * 1.005 + 1e-3 >= numbers(relation, **settings)["pld"]


SAMPLED = {"sampler": "poisson", "batch": 100, "noise": 1.5, "steps": 40}


@pytest.mark.parametrize("second", [SAMPLED, {"sampler": "full", "noise": 8, "steps": 3}], ids=str)
def test_least_of_several_phases_and_of_mixtures_with_full_batches(second):
    report = check_epsilon(n=1050, phases=[SAMPLED, second], delta=1e-5)
    for relation in RELATIONS:
        above = tightest(report, relation)
        assert 0.998 * above <= report.least[relation] <= above


def test_rounding_of_many_cells_adds_nothing_to_the_lower_limit():
    # By binomial weights of the number of batches with the record, without FFT: 162.46 to 162.61.
    claim = {"sampler": "poisson", "n": 10**5, "batch": 6, "noise": 0.1094508557, "steps": 116}
    least = optimistic(read_claim({**claim, "delta": 3.0662561e-12}), "add_remove")
    assert 150 < least < 162.61


def test_trials_count_for_the_guarantee_and_not_for_the_refutation():
    alone = check_epsilon(**FIFTY)
    tuned = check_epsilon(**FIFTY, trials=4)
    four = check_epsilon(**POISSON, noise=2.0, steps=200)
    assert tuned.tightest.epsilon == pytest.approx(four.tightest.epsilon)
    assert tuned.least == alone.least
    assert check_epsilon(**FIFTY, runs=4).least == pytest.approx(four.least)


def test_a_refutation_holds_for_the_fewest_steps_that_epochs_may_mean():
    # Opacus: 11 steps an epoch, each record with probability 1 / 11.
    opacus = {**POISSON, "n": 11, "batch": 1, "noise": 2.0}
    for epochs, steps, fewest, of_opacus in ((2.5, 27, 25, 27), (3, 32, 30, 33)):
        whole = check_epsilon(**POISSON, noise=2.0, steps=fewest)
        rounded = check_epsilon(**opacus, steps=of_opacus)
        report = check_epsilon(**POISSON, noise=2.0, epochs=epochs)
        assert report.claim.phases[0].steps == steps
        for relation, least in report.least.items():
            assert least == min(whole.least[relation], rounded.least[relation])
        assert report.least != whole.least
    stated = {"relation": "add_remove", "claimed": f"{whole.tightest.epsilon:.6f}"}
    said = check_epsilon(**POISSON, noise=2.0, epochs=3, **stated, explain=False)
    assert said.verdict == "not guaranteed"
    full = {"sampler": "full", "noise": 2.0, "delta": 1e-5}
    assert check_epsilon(**full, epochs=1.5).least == check_epsilon(**full, steps=1).least


@pytest.mark.parametrize(
    ("n", "batch", "noise", "epochs", "claimed"),
    [(1010, 100, 1.0, 20, "9.451"), (105, 100, 2.0, 10, "5.69")],
)
def test_what_opacus_runs_is_not_refuted_and_is_named(n, batch, noise, epochs, claimed):
    """Its rate is one over the batches of an epoch, rounded up, and so many are its steps."""
    settings = {"sampler": "poisson", "n": n, "batch": batch, "noise": noise, "epochs": epochs}
    report = check_epsilon(**settings, delta=1e-5, claimed=claimed, relation="add_remove")
    whole = math.ceil(n / batch)
    run = {"sampler": "poisson", "n": whole, "batch": 1, "noise": noise, "steps": epochs * whole}
    reached = check_epsilon(**run, delta=1e-5, relation="add_remove").tightest.epsilon
    assert abs(reached - float(claimed)) < 1e-3 and report.verdict == "not guaranteed"
    assert any("(Opacus)" in "".join(hit.changes) for hit in report.searched.hits)


def test_a_guarantee_for_fewer_steps_than_common_loops_take_says_so():
    epochs = {"sampler": "poisson", "n": 100, "batch": 67, "noise": 2, "epochs": 20}
    common = {"delta": 1e-5, "relation": "add_remove", "explain": False}
    report = check_epsilon(**epochs, **common, claimed="9.68")
    (said,) = (each for each in report.warnings if "give steps" in each)
    longer = check_epsilon(**{**epochs, "epochs": None, "steps": 40}, **common)
    assert report.verdict == "guaranteed" and f"epsilon {upward(longer.tightest.epsilon)}" in said
    assert "30 steps" in said and "are 40, epsilon" in said
    tuned = {**FIFTY, "trials": [{"epochs": 5}], "explain": False}
    tuned = check_epsilon(**tuned, claimed=f"{check_epsilon(**tuned).tightest.epsilon:.6f}")
    assert "for the trials' epochs of n / batch steps" in " ".join(tuned.warnings)
    generous = check_epsilon(**epochs, **common, claimed="20")
    whole = check_epsilon(**{**epochs, "n": 134}, **common, claimed="12")
    assert not [each for each in (*generous.warnings, *whole.warnings) if "give steps" in each]


def test_a_claim_that_rounding_alone_supports_says_so():
    base = {**POISSON, "n": 1000, "noise": 1, "steps": 10, "relation": "add_remove"}
    rounded = check_epsilon(**base, claimed="2.85", explain=False)
    assert rounded.verdict == "guaranteed" and rounded.by_rounding
    assert "the release reaches more than 2.85" in " ".join(rounded.warnings)
    assert "which rounds to it" in " ".join(str(rounded).split())
    plain = check_epsilon(**base, claimed="2.86", explain=False)
    assert plain.verdict == "guaranteed" and not plain.by_rounding
    assert "rounded" not in " ".join(plain.warnings)
    # Few digits do not stretch it to more than half a percent.
    assert Printed("3").rounding == pytest.approx(0.015) and Printed("2.31").rounding == 0.005
    assert check_epsilon(**base, claimed="2.8", explain=False).verdict == "refuted"


@pytest.mark.parametrize(
    ("trials", "others"),
    [
        ([{"noise": 3.0}, {"noise": 4.0}], 2),
        # Trials that differ in what no key says are trainings of their own.
        ([{}, {}], 2),
        ([{}], 1),
        # The reported one, by its settings, once.
        ([{"noise": 2.0}, {"noise": 4.0}], 1),
        ([{"noise": 2.0}, {"noise": 2.0}], 1),
        ([{"epochs": 5}, {"noise": 4.0}], 1),
    ],
)
def test_a_list_of_trials_has_the_reported_one_only_where_it_says_its_settings(trials, others):
    claim = read_claim({**FIFTY, "n": 1000, "trials": trials})
    assert sum(count for _, count in claim.trials) == others


def test_a_grid_counts_the_reported_setting_once():
    grid = {"noise": [2.0, 4.0], "steps": [50, 100]}
    claim = read_claim({**FIFTY, "grid": grid})
    assert sum(count for _, count in claim.trials) == 3
    listed = [{"noise": 2.0, "steps": 100}, {"noise": 4.0}, {"noise": 4.0, "steps": 100}]
    assert claim.trials == read_claim({**FIFTY, "trials": listed}).trials
    mechanisms = event(claim, "add_remove").mechanisms
    assert {(each.noise_multiplier, each.count) for each in mechanisms} == {(2.0, 150), (4.0, 150)}


@hypothesis_settings(max_examples=8)
@given(
    sampler=st.sampled_from(["poisson", "full-batch", "shuffled", "fixed-size", "cyclic"]),
    noise=st.floats(0.6, 20),
    steps=st.integers(1, 60),
    batch=st.integers(1, 1050),
)
def test_replacing_costs_at_least_as_much_as_blanking_and_least_is_least(
    sampler, noise, steps, batch
):
    settings = {"sampler": sampler, "n": 1050, "delta": 1e-5}
    if sampler != "full-batch":
        settings["batch"] = batch
    report = check_epsilon(**settings, noise=noise, steps=steps)
    replaced, blanked = (tightest(report, each) for each in ("replace_one", "zero_out"))
    assert replaced >= blanked * 0.995 - 1e-6
    for relation, least in report.least.items():
        assert (least is not None) == (sampler in ("poisson", "full-batch"))
        if least is not None:
            assert least <= tightest(report, relation) + 1e-9


@pytest.mark.parametrize(
    ("settings", "relations"),
    [
        ({"n": 1050, "batch": 100, "sampler": "poisson"}, RELATIONS),
        ({"n": 1050, "batch": 100, "sampler": "shuffled"}, RELATIONS),
        ({"sampler": "full-batch"}, RELATIONS),
        ({"sampler": "full-batch", "mechanism": "laplace"}, RELATIONS),
        ({"mechanism": "randomized-response", "buckets": 3}, ("replace_one", "zero_out")),
    ],
)
def test_a_target_is_met_and_hardly_less_noise_misses_it(settings, relations):
    settings = {**settings, "steps": 4, "delta": 1e-5}
    report = check_epsilon(**settings, target=1.0)
    assert tuple(each.relation for each in report.noises) == relations
    for each in report.noises:
        met, missed = (
            tightest(check_epsilon(**settings, noise=noise), each.relation)
            for noise in (each.noise, each.noise * 0.997)
        )
        assert met <= 1.0 < missed


def test_small_delta_and_hardly_any_noise_have_no_lower_limit_or_a_true_one():
    report = check_epsilon(**{**FIFTY, "delta": 1e-15})
    assert report.least["add_remove"] is None
    assert {each.accountant for each in report.readings} == {"rdp"}
    report = check_epsilon(sampler="full", noise=1e-3, steps=500, delta=1e-5, claimed="3")
    assert report.least["add_remove"] is None and report.verdict == "not guaranteed"


def test_an_accountant_that_does_not_resolve_delta_says_nothing_about_noise():
    report = check_epsilon(sampler="full", noise=3.0, steps=2, delta=1e-50, relation="add_remove")
    assert [each.accountant for each in report.readings] == ["exact", "rdp"]
    assert report.tightest.epsilon == pytest.approx(7.041, abs=1e-3) and not report.warnings


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("noise", "steps"), [(0.05, 100), (0.3, 7), (20.0, 1000), (100.0, 10**6)])
def test_least_of_sampling_everybody_stays_below_the_exact_gaussian(relation, noise, steps):
    """At rate one the exact value is known; far tails underflow where there is little noise."""
    claim = read_claim({**POISSON, "batch": 1050, "noise": noise, "steps": steps})
    exact = analytic((2 if relation == "replace_one" else 1) * math.sqrt(steps) / noise)
    assert 0.98 * exact <= optimistic(claim, relation) <= exact * (1 + 1e-9)


@pytest.mark.parametrize("sampler", ["poisson", "fixed-size", "shuffled", "cyclic", "full-batch"])
@pytest.mark.parametrize("noise", [1e-3, 0.05, 1e4, 1e6])
@pytest.mark.parametrize("delta", [1e-50, 0.1])
def test_extreme_settings_are_computed_and_both_sides_keep_their_order(sampler, noise, delta):
    batch = {} if sampler == "full-batch" else {"batch": 1}
    report = check_epsilon(
        sampler=sampler, n=2, noise=noise, steps=3, delta=delta, claimed="2", **batch
    )
    assert str(report) and report.as_dict()
    for relation, least in report.least.items():
        assert least is None or least <= tightest(report, relation) * (1 + 1e-9)
