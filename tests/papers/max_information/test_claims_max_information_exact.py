"""max_information's exact rules: what follows from formulas and from the printed tables."""

import dataclasses

import pytest
from maxinf_sample_records import kappa_record
from maxinf_world import (
    AXES,
    REFUTED_BY_ARITHMETIC,
    changed,
    claims,
    power_law,
    true_groups,
    verdicts,
    with_verdict,
)

from dpatlas.evidence.claims import NOT_REPRODUCED, NOT_RUN
from dpatlas.papers.max_information import claims_exact
from dpatlas.papers.max_information.formulas.published import TABLE_1


def test_printed_kappas_and_bounds_are_held_against_print():
    rows = verdicts(true_groups())
    assert rows["maxinf-1a"]["observed"] == pytest.approx(0.014, abs=1e-3)
    assert rows["maxinf-1b"]["observed"] == pytest.approx(0.415, abs=1e-3)
    assert rows["maxinf-2a"]["comparisons"] == rows["maxinf-2b"]["comparisons"] == 8
    assert rows["maxinf-2a"]["observed"] < 0 < rows["maxinf-2b"]["observed"]
    assert rows["maxinf-9a"]["observed"] == pytest.approx(32.2 / 42, abs=1e-3)
    assert rows["maxinf-7b"]["observed"] == pytest.approx(1.9499, abs=1e-4)


def test_two_bounds_of_eight_do_not_follow_with_equation_98():
    missed = [
        (row.dataset, what)
        for row in TABLE_1
        for what, gap in claims_exact._gaps(row, monte_carlo=True)
        if gap >= 0
    ]
    assert [dataset for dataset, _ in missed] == ["MNIST", "CIFAR-10"]


@pytest.mark.parametrize("index", range(len(TABLE_1)))
def test_another_print_of_table_1_would_turn_its_verdicts(monkeypatch, index):
    rows = list(TABLE_1)
    row = rows[index]
    rows[index] = dataclasses.replace(row, bound_posterior=row.bound_posterior + 0.03)
    monkeypatch.setattr(claims_exact, "TABLE_1", rows)
    refuted = REFUTED_BY_ARITHMETIC | claims("2a")
    assert with_verdict(verdicts(true_groups()), NOT_REPRODUCED) == refuted
    if row.kappa:
        rows[index] = dataclasses.replace(row, kappa=row.kappa + 1)
        refuted = REFUTED_BY_ARITHMETIC | claims("1", "1a" if row.dataset == "MNIST" else "1b")
        assert with_verdict(verdicts(true_groups()), NOT_REPRODUCED) == refuted


@pytest.mark.parametrize(
    ("axes", "missing", "said"),
    [
        ({"n": AXES["n"]}, {"5b"}, "no panel against zeta_over_sigma"),
        ({**AXES, "n": (50_000,)}, {"5a", "5b"}, "one value of n only"),
    ],
)
def test_panels_that_the_config_leaves_out_are_not_run(axes, missing, said):
    rows = verdicts(true_groups() | {"kappa": [kappa_record(axes=axes)]})
    assert with_verdict(rows, NOT_RUN) == claims(*missing, "5")
    assert all(said in rows[entry]["note"] for entry in claims(*missing))


def test_slopes_are_those_between_the_ends():
    laws = {"n": -0.25, "zeta_over_sigma": 1.75, "E": 1.5}
    rows = verdicts(changed(*(power_law(axis, exponent) for axis, exponent in laws.items())))
    assert rows["maxinf-5a"]["observed"] == pytest.approx(-0.25)
    assert rows["maxinf-5b"]["observed"] == pytest.approx(0.25)
    assert "log(E)" in rows["maxinf-5b"]["note"]
