"""max_information's rules against runs whose truth is known, through the committed claims.yaml.

Coefficients and kappas are those of the bounds; certificates, risks and moments are made up.
"""

import copy
import itertools

import numpy as np
import pytest
from committed_claims import CLAIMS
from maxinf_sample_records import PRIORS, agreement_record, coefficients_record
from maxinf_world import (
    FALSE,
    RUNS,
    certificates_record,
    panel_of,
    power_law,
    rows_of,
    verdicts,
    with_verdict,
    world,
)

from dpatlas.errors import InputError
from dpatlas.evidence.claims import (
    INCONCLUSIVE,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    check_evidence,
    judge_claims,
)


def test_a_world_in_which_every_claim_is_true_reproduces_every_claim():
    rows = verdicts(world())
    assert with_verdict(rows, NOT_REPRODUCED) == FALSE
    assert with_verdict(rows, REPRODUCED) == set(rows) - FALSE
    assert len(rows) == 30
    assert {rows[f"maxinf-{part}"]["runs"] for part in ("3a", "4b", "10a", "10c")} == {RUNS}


def test_evidence_is_what_the_paper_s_figures_and_tables_are():
    products = [f"figures/{name}.pdf" for name in ("maxinf_coefficients", "maxinf_kappa")]
    products += [f"tables/{name}.csv" for name in ("maxinf_certificates", "maxinf_grid")]
    check_evidence(CLAIMS, products, ["max_information"])
    with pytest.raises(InputError, match="maxinf_grid"):
        check_evidence(CLAIMS, products[:-1], ["max_information"])


def test_a_run_without_the_paper_says_so():
    rows = judge_claims(CLAIMS, {}, "test")
    notes = {row["note"].split(":")[0] for row in rows if row["paper"] == "max_information"}
    assert notes == {"max_information is not part of this run", "parts"}
    assert {row["verdict"] for row in rows} == {NOT_RUN}


def shift(name, by, number=1, **keys):
    """The change that moves a number in some rows of a `certificates` record."""

    def change(groups):
        for row in rows_of(groups["certificates"][number], **keys):
            row[name] += by

    return change


def scale_panel(axis, form, factor, place):
    def change(groups):
        panel_of(groups, axis)[form][place] *= factor

    return change


def set_curve(alpha, beta, ratio):
    def change(groups):
        (curve,) = (
            each
            for each in groups["coefficients"][0]["metrics"]["curves"]
            if each["alpha"] == alpha
        )
        place = curve["beta"].index(beta)
        curve["gaussian_leading"][place] = ratio * curve["pure_dp_leading"][place]

    return change


def reparametrisation_is_off(groups):
    for row in rows_of(groups["agreement"][0], what="posterior", method="reparametrisation"):
        row["errors"] += 1000


def moment_exceeds_the_bound(groups):
    row = groups["simulation"][0]["metrics"]["rows"][3]
    row["simulated"] = 1.1 * row["tight"]


@pytest.mark.parametrize(
    ("change", "refuted"),
    [
        # The better prior is the one of five epochs, by rigorous certificates the one of one.
        (shift("certificate_posterior", 0.15, prior="dp-sgd"), {"3a", "3b", "3"}),
        (shift("certificate_rigorous", 0.1, prior="dp-sgd", E=1), {"3c", "3"}),
        (shift("certificate_posterior", -0.09, prior="noise-only"), {"3b", "3"}),
        (shift("certificate_posterior", 0.598, prior="independent"), {"4a", "4b", "4"}),
        (shift("certificate_posterior", 0.55, prior="independent"), {"4b", "4"}),
        (shift("certificate_prior", 0.149, prior="dp-sgd"), {"4a", "4"}),
        # In a selected row; in one that nobody selects, by more than test records can explain.
        (shift("test_error", 0.101, prior="noise-only", tau=0.06, run=3), {"10a", "10"}),
        (shift("test_error", 0.25, prior="noise-only", tau=0.03, run=3), {"10b", "10"}),
        (shift("prior_test_error", 0.1, prior="dp-sgd", tau=0.06, run=0), {"10c", "10"}),
        # Both signs of the slope in n; in the noise less than in E; one point of a panel.
        (power_law("n", -0.51), {"5a", "5"}),
        (power_law("n", 0.51), {"5a", "5"}),
        (power_law("zeta_over_sigma", 1.05), {"5b", "5"}),
        (scale_panel("delta", "explicit", 0.3, 1), {"6"}),
        (scale_panel("T", "tight", 2.0, 2), {"9b", "9"}),
        (set_curve(3.0, 0.5, 2.01), {"7a", "7"}),
        (set_curve(0.5, 1e-12, 0.249), {"7a", "7"}),
        (set_curve(1.0, 1e-6, 0.6), {"7c", "7"}),
        (reparametrisation_is_off, {"8"}),
        (moment_exceeds_the_bound, {"9c", "9"}),
    ],
)
def test_a_claim_made_false_is_refuted_and_the_others_stand(change, refuted):
    groups = world()
    change(groups)
    rows = verdicts(groups)
    refuted = {f"maxinf-{part}" for part in refuted}
    assert with_verdict(rows, NOT_REPRODUCED) == refuted | FALSE
    assert with_verdict(rows, REPRODUCED) == set(rows) - refuted - FALSE


def test_the_ratio_counts_only_where_lemma_6_does():
    groups = world()
    for alpha, beta in ((8.0, 0.01), (0.5, 0.6)):
        set_curve(alpha, beta, 9.0)(groups)
    assert verdicts(groups)["maxinf-7"]["verdict"] == REPRODUCED
    groups["coefficients"] = [coefficients_record(alphas=(8.0,))]
    row = verdicts(groups)["maxinf-7a"]
    assert row["verdict"] == NOT_RUN and "domain of Lemma 6" in row["note"]
    groups["coefficients"] = [coefficients_record(alphas=(1.0,))]
    assert "one alpha only" in verdicts(groups)["maxinf-7c"]["note"]


@pytest.mark.parametrize("how", ["noise", "a single run"])
def test_noise_between_runs_or_a_single_run_leaves_a_comparison_open(how):
    groups = world()
    if how == "noise":
        for row in rows_of(groups["certificates"][0], prior="dp-sgd"):
            for name in ("certificate_posterior", "certificate_rigorous"):
                row[name] += 0.09 * (-1) ** row["run"]
        blurred = {"maxinf-3a", "maxinf-3b", "maxinf-3c", "maxinf-3"}
    else:
        groups["certificates"] = [certificates_record(runs=1)]
        blurred = {f"maxinf-{part}" for part in ("3a", "3b", "3c", "3", "4a", "4b", "4")}
    rows = verdicts(groups)
    assert with_verdict(rows, INCONCLUSIVE) == blurred
    assert with_verdict(rows, NOT_REPRODUCED) == FALSE


@pytest.mark.parametrize(
    ("group", "missing"),
    [
        ("certificates", {"1a", "1b", "1", "3a", "3b", "3c", "3", "4a", "4b", "4", "9a"}),
        ("kappa", {"5a", "5b", "5", "6", "9b"}),
        ("coefficients", {"7a", "7b", "7c", "7"}),
        ("agreement", {"8"}),
        ("simulation", {"9c"}),
    ],
)
def test_a_group_that_the_config_lacks_is_not_run(group, missing):
    groups = world()
    del groups[group]
    rows = verdicts(groups)
    missing = {f"maxinf-{part}" for part in missing}
    if group == "certificates":
        missing |= {"maxinf-2a", "maxinf-2b", "maxinf-2"}
        missing |= {f"maxinf-10{part}" for part in ("a", "b", "c", "")}
    if missing & {"maxinf-9a", "maxinf-9b", "maxinf-9c"}:
        missing.add("maxinf-9")
    assert with_verdict(rows, NOT_RUN) == missing
    notes = [rows[name]["note"] for name in missing]
    assert all(group in note for note in notes if not note.startswith("parts"))


def test_priors_that_jobs_share_out_are_chosen_from_together():
    whole, first, second = (certificates_record() for _ in range(3))
    for record, kinds in ((first, {"independent"}), (second, {"noise-only", "dp-sgd"})):
        rows = record["metrics"]["rows"]
        rows[:] = [row for row in rows if row["prior"] in kinds]
        priors = [prior for prior in record["spec"]["priors"] if prior["kind"] in kinds]
        record["spec"]["priors"] = priors
        record["id"] += f"-{len(kinds)}"
    together, split = (
        verdicts(world() | {"certificates": each}) for each in ([whole], [first, second])
    )
    for part in ("3a", "3b", "3c", "4a", "10a"):
        names = ("verdict", "observed", "runs")
        for name in names:
            assert split[f"maxinf-{part}"][name] == together[f"maxinf-{part}"][name]
    assert f"{first['id']} and 1 more" in split["maxinf-3a"]["note"]


def test_other_settings_are_not_joined():
    pair = [certificates_record(), certificates_record(objective="bbb")]
    assert verdicts(world() | {"certificates": pair})["maxinf-3a"]["comparisons"] == 2


def test_a_run_may_select_another_prior_than_its_neighbours():
    groups = world()
    shift("certificate_posterior", -0.1, number=0, prior="dp-sgd", E=1, run=2)(groups)
    row = verdicts(groups)["maxinf-3a"]
    first = rows_of(groups["certificates"][0], tau=0.06)
    best = [
        min(row["certificate_posterior"] for row in first if (row["prior"], row["run"]) == key)
        for key in itertools.product(("independent", "dp-sgd"), range(RUNS))
    ]
    gains = np.array(best[:RUNS]) - best[RUNS:]
    assert gains[2] > gains.mean() + 0.02
    groups["certificates"] = groups["certificates"][:1]
    row = verdicts(groups)["maxinf-3a"]
    assert row["observed"] == pytest.approx(gains.mean())


def test_a_kind_of_prior_that_nobody_tried_is_not_run():
    priors = [prior for prior in PRIORS if prior["prior"] != "noise-only"]
    rows = verdicts(world() | {"certificates": [certificates_record(priors=priors)]})
    assert rows["maxinf-3a"]["verdict"] == REPRODUCED
    assert rows["maxinf-3b"]["verdict"] == NOT_RUN
    assert "has no noise-only prior" in rows["maxinf-3b"]["note"]


def diverge(record, **keys):
    """As the experiment writes a posterior that diverged."""
    for row in rows_of(record, **keys):
        row |= {"diverged": 7, "test_error": None}
        row |= {f"certificate_{name}": 1.0 for name in ("posterior", "tight", "rigorous")}


def test_a_run_with_no_posterior_of_a_kind_left_is_undecided():
    groups = world()
    diverge(groups["certificates"][0], prior="independent", run=1)
    rows = verdicts(groups)
    blurred = {f"maxinf-{part}" for part in ("3a", "3c", "3", "4a", "4b", "4", "10a", "10")}
    assert with_verdict(rows, INCONCLUSIVE) == blurred
    said = "every posterior of the independent prior diverged in 1 of 5 runs of certificates-digits"
    assert said in rows["maxinf-3a"]["note"] and rows["maxinf-3a"]["runs"] == RUNS - 1
    assert rows["maxinf-10b"]["verdict"] == REPRODUCED
    for record in groups["certificates"]:
        diverge(record)
    rows = verdicts(groups)
    assert rows["maxinf-10a"]["verdict"] == rows["maxinf-10b"]["verdict"] == INCONCLUSIVE
    assert rows["maxinf-10c"]["verdict"] == REPRODUCED


def test_a_posterior_that_diverged_is_not_selected_while_another_did_not():
    groups = world()
    diverge(groups["certificates"][0], prior="dp-sgd", E=5)
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_REPRODUCED) == FALSE
    assert with_verdict(rows, INCONCLUSIVE) == set()


def test_more_priors_than_the_union_bound_pays_for_are_refused():
    with pytest.raises(InputError, match="K1: found 1; allowed: a whole number >= 2"):
        verdicts(world() | {"certificates": [certificates_record(K1=1)]})
    with pytest.raises(InputError, match="K2: found 1; allowed: a whole number >= 2"):
        verdicts(world() | {"certificates": [certificates_record(K2=1)]})


def test_a_prior_that_stands_twice_is_refused():
    twice = copy.deepcopy(certificates_record()) | {"id": "again"}
    with pytest.raises(InputError, match="a prior twice"):
        verdicts(world() | {"certificates": [certificates_record(), twice]})


def test_a_certificate_of_a_prior_may_be_exceeded_by_chance_on_few_test_records():
    groups = world()
    shift("prior_test_error", 0.03, prior="dp-sgd", tau=0.06, run=0)(groups)
    row = verdicts(groups)["maxinf-10c"]
    assert row["observed"] == pytest.approx(-0.02)
    assert row["low"] < row["observed"] < 0 < row["high"]
    assert row["verdict"] == REPRODUCED
    for record in groups["certificates"]:
        record["metrics"]["n_test"] = 40_000
    assert verdicts(groups)["maxinf-10c"]["verdict"] == NOT_REPRODUCED


def test_the_smallest_margin_is_shown_with_its_place():
    groups = world()
    for tau, by in ((0.06, 0.06), (0.03, 0.075)):
        shift("test_error", by, number=0, prior="noise-only", run=3, tau=tau)(groups)
    rows = verdicts(groups)
    assert rows["maxinf-10a"]["observed"] == pytest.approx(0.04)
    assert rows["maxinf-10b"]["observed"] == pytest.approx(0.005)
    place = "noise-only prior, zeta 0.01, sigma 1, m 500, E 1, lr 20, tau 0.0{}, run 3"
    assert f"{place.format(6)}, certificates-digits" in rows["maxinf-10a"]["note"]
    assert f"{place.format(3)}, certificates-digits" in rows["maxinf-10b"]["note"]


def test_few_pairs_leave_the_agreement_open():
    rows = verdicts(world() | {"agreement": [agreement_record(draws=500)]})
    assert rows["maxinf-8"]["verdict"] == INCONCLUSIVE
    record = agreement_record()
    record["metrics"]["rows"] = rows_of(record, method="sampling")
    rows = verdicts(world() | {"agreement": [record]})
    assert rows["maxinf-8"]["verdict"] == NOT_RUN
    assert "no reparametrisation of the prior" in rows["maxinf-8"]["note"]


def test_a_simulation_too_short_leaves_the_moment_open():
    groups = world()
    for row in groups["simulation"][0]["metrics"]["rows"]:
        row["standard_error"] *= 20
    assert verdicts(groups)["maxinf-9c"]["verdict"] == INCONCLUSIVE
