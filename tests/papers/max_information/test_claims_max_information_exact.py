"""max_information's exact rules: what follows from formulas and from the printed tables."""

import dataclasses

import pytest
from maxinf_sample_records import BASE, job_record, kappa_record
from maxinf_world import AXES, FALSE, power_law, verdicts, with_verdict, world

from dpatlas.evidence.claims import (
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
)
from dpatlas.papers.max_information import claims_exact
from dpatlas.papers.max_information.formulas.published import TABLE_1


def test_printed_kappas_and_bounds_are_held_against_print():
    rows = verdicts(world())
    assert rows["maxinf-1a"]["observed"] == pytest.approx(0.014, abs=1e-3)
    assert rows["maxinf-1b"]["observed"] == pytest.approx(0.415, abs=1e-3)
    assert rows["maxinf-2a"]["comparisons"] == rows["maxinf-2b"]["comparisons"] == 8
    assert rows["maxinf-2a"]["observed"] < 0 < rows["maxinf-2b"]["observed"]
    assert rows["maxinf-9a"]["observed"] == pytest.approx(32.2 / 42, abs=1e-3)
    assert rows["maxinf-7b"]["observed"] == pytest.approx(1.9499, abs=1e-4)


def test_two_bounds_of_eight_do_not_follow_with_equation_98():
    found = [
        (row.dataset, what)
        for row in TABLE_1
        for what, gap in claims_exact._gaps(row, monte_carlo=True)
        if gap >= 0
    ]
    assert len(found) == 2


@pytest.mark.parametrize("place", range(len(TABLE_1)))
def test_another_print_of_table_1_would_turn_its_verdicts(monkeypatch, place):
    rows = list(TABLE_1)
    row = rows[place]
    rows[place] = dataclasses.replace(row, bound_posterior=row.bound_posterior + 0.03)
    monkeypatch.setattr(claims_exact, "TABLE_1", rows)
    assert with_verdict(verdicts(world()), NOT_REPRODUCED) == FALSE | {"maxinf-2a"}
    if row.kappa:
        rows[place] = dataclasses.replace(row, kappa=row.kappa + 1)
        refuted = {f"maxinf-1{'a' if row.dataset == 'MNIST' else 'b'}", "maxinf-1"}
        assert with_verdict(verdicts(world()), NOT_REPRODUCED) == FALSE | refuted


@pytest.mark.parametrize(
    ("axes", "missing", "said"),
    [
        ({"n": AXES["n"]}, {"5b"}, "no panel against zeta_over_sigma"),
        ({**AXES, "n": (50_000,)}, {"5a", "5b"}, "one value of n only"),
    ],
)
def test_panels_that_the_config_leaves_out_are_not_run(axes, missing, said):
    rows = verdicts(world() | {"kappa": [kappa_record(axes=axes)]})
    assert with_verdict(rows, NOT_RUN) == {f"maxinf-{part}" for part in missing} | {"maxinf-5"}
    assert all(said in rows[f"maxinf-{part}"]["note"] for part in missing)


def test_slopes_are_those_between_the_ends():
    groups = world()
    for axis, exponent in (("n", -0.25), ("zeta_over_sigma", 1.75), ("E", 1.5)):
        power_law(axis, exponent)(groups)
    rows = verdicts(groups)
    assert rows["maxinf-5a"]["observed"] == pytest.approx(-0.25)
    assert rows["maxinf-5b"]["observed"] == pytest.approx(0.25)
    assert "log(E)" in rows["maxinf-5b"]["note"]


def test_what_the_jobs_without_data_record_reproduces_the_claims_on_formulas(tmp_path):
    fields = {
        "coefficients": {"alphas": [0.5, 1.0, 3.0], "betas": [1e-9, 1e-4, 0.1, 0.5]},
        "kappa": {"base": BASE, "axes": {axis: list(values) for axis, values in AXES.items()}},
        "simulation": {"m": 20, "draws": 4000, "nus": [0.5], "ys": [0.05, 0.1], "laws": ["signs"]},
    }
    groups = {kind: [job_record(tmp_path, kind, **given)] for kind, given in fields.items()}
    rows = verdicts(groups)
    parts = ("5a", "5b", "5", "6", "7a", "7b", "7c", "7", "9b", "9c")
    assert with_verdict(rows, REPRODUCED) == {f"maxinf-{part}" for part in parts}
    assert with_verdict(rows, NOT_RUN) == set(rows) - {f"maxinf-{part}" for part in parts}
