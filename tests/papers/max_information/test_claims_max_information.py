"""max_information's rules against runs whose truth is known, through the committed claims.yaml.

Coefficients are those of the bounds; kappas, certificates, risks and moments are made up.
"""

import dataclasses
from pathlib import Path

import judged_once
import maxinf_sample_records as samples
import pytest
from block_worlds import worlds_of
from committed_claims import CLAIMS, with_verdict
from figure_samples import select
from maxinf_sample_records import AXES, agreement_record, coefficients_record, typed

from dpatlas.base.files import read_rows
from dpatlas.formulas.max_information.published import TABLE_1
from dpatlas_workflow.evidence.verdicts import (
    INCONCLUSIVE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
)
from dpatlas_workflow.papers.max_information import claims as claims_module

worlds = worlds_of("max_information")
PROJECT = Path(__file__).resolve().parents[3]


def claims(*parts):
    return {f"maxinf-{part}" for part in parts}


# Identities, bounds that simulation or test records can only refute, and a claim of such parts.
NOT_SHOWN = claims("6", "9a", "9b", "9c", "9", "10b", "10c")


@pytest.mark.parametrize(
    ("change", "refuted"),
    [
        (worlds.shift("certificate_posterior", 0.598, prior="independent"), claims("4", "17")),
        # The slope of the other sign; the lower end of the ratio's range.
        (worlds.power_law("n_at_T", 0.31), claims("5a")),
        (worlds.set_ratio(0.5, 1e-12, 0.249), claims("7a")),
        # A fall in beta alone; a dependence on T that is as strong and of the other sign;
        # certificates that are not vacuous and worse than guessing one of ten classes.
        (worlds.set_ratio(3.0, 1e-12, 1.99), claims("7c")),
        (worlds.power_law("T", -1.8), claims("5b")),
        (worlds.shift("certificate_posterior", 0.52, prior="independent"), claims("17")),
    ],
)
def test_a_claim_made_false_is_refuted_and_the_others_stand(change, refuted):
    rows = worlds.verdicts(worlds.changed(change))
    refuted |= {entry.rstrip("abc") for entry in refuted} | worlds.REFUTED_BY_ARITHMETIC
    assert with_verdict(rows, NOT_REPRODUCED) == refuted
    assert with_verdict(rows, NOT_CONTRADICTED) == NOT_SHOWN - refuted
    assert with_verdict(rows, REPRODUCED) == set(rows) - NOT_SHOWN - refuted
    assert {rows[f"maxinf-{part}"]["runs"] for part in ("3", "17", "10a", "10c")} == {worlds.RUNS}


def of_kind(kind, make):
    """The change that puts one record in the place of a group's."""
    return lambda groups: groups.update({kind: [make()]})


def at_alpha(alpha):
    return of_kind("coefficients", lambda: coefficients_record(alphas=(alpha,)))


def kappas(**axes):
    return of_kind("kappa", lambda: samples.kappa_record(axes=axes))


def agreement(change=lambda rows: None, draws=20_000):
    def make():
        record = agreement_record(draws=draws)
        change(record["metrics"]["rows"])
        return record

    return of_kind("agreement", make)


def few_sampled(rows):
    for row in select(rows, method="sampling"):
        row |= {"draws": 500, "errors": round(500 * row["risk"])}


def opposite_repetitions(rows):
    for row in select(rows, method="sampling"):
        row["errors"] += 1000 * (-1) ** row["repetition"]


def sampled_alone(rows):
    rows[:] = select(rows, method="sampling")


@pytest.mark.parametrize(
    ("change", "entry", "verdict", "note"),
    [
        # The ratio counts only where Lemma 6 does.
        (worlds.set_ratio(8.0, 0.01, 9.0), "7", REPRODUCED, ""),
        (worlds.set_ratio(0.5, 0.6, 9.0), "7", REPRODUCED, ""),
        # What a record lacks is not run.
        (at_alpha(8.0), "7a", NOT_RUN, "domain of Lemma 6"),
        (at_alpha(1.0), "7c", NOT_RUN, "one alpha only"),
        (kappas(n=AXES["n"]), "5b", NOT_RUN, "no panel against zeta_over_sigma"),
        (kappas(**{**AXES, "n_at_T": (50_000,)}), "5a", NOT_RUN, "no two values of n_at_T"),
        (agreement(sampled_alone), "8", NOT_RUN, "no reparametrisation of the prior"),
        # Few pairs, of one method alone too, leave it open; repetitions count together.
        (agreement(draws=500), "8", INCONCLUSIVE, ""),
        (agreement(few_sampled), "8", INCONCLUSIVE, ""),
        (agreement(opposite_repetitions), "8", REPRODUCED, ""),
    ],
)
def test_the_verdict_and_what_is_said_of_it(change, entry, verdict, note):
    row = worlds.row_of(worlds.changed(change), f"maxinf-{entry}")
    assert row["verdict"] == verdict and note in row["note"]


def diverge(record, **keys):
    """As the experiment writes a posterior that diverged."""
    for row in worlds.rows_of(record, **keys):
        row |= {"diverged": 7, "test_error": None}
        row |= {f"certificate_{name}": 1.0 for name in ("posterior", "tight", "rigorous")}


def test_only_a_run_with_no_posterior_of_a_kind_left_is_undecided():
    groups = worlds.true_groups()
    diverge(groups["certificates"][0], prior="dp-sgd", E=5)
    assert with_verdict(worlds.verdicts(groups), INCONCLUSIVE) == set()
    diverge(groups["certificates"][0], prior="independent", run=1)
    rows = worlds.verdicts(groups)
    blurred = claims("3", "16", "4", "17", "10a", "10")
    assert with_verdict(rows, INCONCLUSIVE) == blurred
    note = rows["maxinf-3"]["note"]
    assert f"1 of {worlds.RUNS} runs of certificates-digits" in note
    assert "every posterior of the independent prior, diverged" in note
    assert rows["maxinf-3"]["runs"] == worlds.RUNS - 1
    for record in groups["certificates"]:
        diverge(record)
    found = [worlds.row_of(groups, f"maxinf-10{part}")["verdict"] for part in "abc"]
    assert found == [INCONCLUSIVE, INCONCLUSIVE, NOT_CONTRADICTED]


def test_a_certificate_of_a_prior_may_be_exceeded_by_chance_on_few_test_records():
    groups = worlds.changed(worlds.shift("prior_test_error", 0.03, prior="dp-sgd", tau=0.06, run=0))
    row = worlds.row_of(groups, "maxinf-10c")
    assert row["observed"] == pytest.approx(-0.02)
    assert row["low"] < row["observed"] < 0 < row["high"]
    assert row["verdict"] == NOT_CONTRADICTED
    for record in groups["certificates"]:
        record["metrics"]["n_test"] = 40_000
    assert worlds.row_of(groups, "maxinf-10c")["verdict"] == NOT_REPRODUCED


def test_a_moment_may_exceed_its_bound_by_chance_in_a_short_simulation():
    groups = worlds.changed(worlds.REFUTING["maxinf-9c"])
    for row in worlds.rows_of(groups["simulation"][0]):
        row["standard_error"] = 0.05 * row["tight"]
    row = worlds.row_of(groups, "maxinf-9c")
    assert row["observed"] == pytest.approx(1.1) and row["verdict"] == NOT_CONTRADICTED
    # Its error is that of the ratio.
    assert claims_module.moments(typed(groups["simulation"])).error.to_numpy() == pytest.approx(
        0.05
    )


@pytest.fixture
def printed(monkeypatch):
    """A function that judges what follows from another print of Table 1: the parts refuted."""

    def refuted(rows):
        monkeypatch.setattr(judged_once, "JUDGED", {})
        monkeypatch.setattr(claims_module, "TABLE_1", rows)
        parts = ("1", "1a", "1b", "2", "2a", "2b", "11", "11a")
        rows = {part: worlds.row_of(worlds.true_groups(), f"maxinf-{part}") for part in parts}
        return with_verdict(rows, NOT_REPRODUCED)

    return refuted


@pytest.mark.parametrize("index", range(len(TABLE_1)))
def test_another_print_of_table_1_would_turn_its_verdicts(printed, index):
    before, row, after = TABLE_1[:index], TABLE_1[index], TABLE_1[index + 1 :]
    other = dataclasses.replace(row, bound_posterior=row.bound_posterior + 0.03)
    assert printed([*before, other, *after]) == {"2", "2a", "2b"}
    if row.kappa:
        other = dataclasses.replace(row, kappa=row.kappa + 1)
        of_kappa = "1a" if row.dataset == "MNIST" else "1b"
        assert printed([*before, other, *after]) == {"2b", "1", of_kappa}


def test_what_the_formulas_say_of_figure_2():
    """At the setting of the MNIST row; the verdicts of any tier whose axes contain these points."""
    record = samples.kappa_record({**samples.BASE, "n": 60_000})
    rows = worlds.verdicts(worlds.true_groups() | {"kappa": [record]})
    slopes = {"5a": -0.135, "5c": -0.434}
    for part, slope in slopes.items():
        assert rows[f"maxinf-{part}"]["observed"] == pytest.approx(slope, abs=5e-4)
    assert rows["maxinf-5"]["verdict"] == REPRODUCED
    assert rows["maxinf-5c"]["verdict"] == NOT_REPRODUCED
    assert rows["maxinf-12"]["observed"] == pytest.approx(1.29, abs=0.005)
    # kappa/n grows with the square root of log(1/delta).
    assert rows["maxinf-13a"]["observed"] == pytest.approx(0.5, abs=0.01)
    assert rows["maxinf-13a"]["verdict"] == NOT_REPRODUCED


def test_the_margin_of_table_1_is_half_of_what_its_rounding_leaves():
    margins = {
        entry.id: entry.margin for claim in CLAIMS.claims for entry in claim.entries if entry.margin
    }
    for dataset, entry in (("MNIST", "maxinf-3"), ("CIFAR-10", "maxinf-14a")):
        of_independent, of_dp_sgd = (
            row.bound_posterior for row in TABLE_1 if row.dataset == dataset
        )
        least = (of_independent - 0.005) - (of_dp_sgd + 0.005)
        assert margins[entry] == pytest.approx(least / 2)


def test_the_explicit_kappa_is_more_than_twice_the_optimised_one_where_maxinf_11b_says():
    twice = set()
    rows = read_rows(next((PROJECT / "docs/results/embedded").rglob("maxinf_kappa.csv")))
    for panel in ("n", "n_at_T", "zeta_over_sigma", "E", "T", "delta"):
        column = "n" if panel == "n_at_T" else panel
        optimised, explicit = (
            {row[column]: float(row["value"]) for row in select(rows, panel=panel, series=form)}
            for form in ("optimised", "explicit")
        )
        assert optimised.keys() == explicit.keys() != set()
        twice |= {(panel, at) for at, value in explicit.items() if value > 2 * optimised[at]}
    assert twice == {
        *(("T", steps) for steps in ("50", "100")),
        *(("zeta_over_sigma", ratio) for ratio in ("0.001", "0.002", "0.005")),
        ("n_at_T", "10000"),
    }
    (claim,) = (claim for claim in CLAIMS.claims if claim.id == "maxinf-11")
    said = claim.entries[1].deviations[0]
    assert "from 50 steps on, up to zeta / sigma of .005, and at n of 10,000" in said


@pytest.mark.parametrize(("zeta", "refuted"), [(0.01, set()), (0.001, {"11", "11a"})])
def test_the_tuple_behind_table_1_decides_maxinf_11(printed, zeta, refuted):
    found = printed([dataclasses.replace(row, zeta=row.zeta and zeta) for row in TABLE_1])
    assert found & {"11", "11a"} == refuted
