"""What figures and tables of max_information show of small records, and which prior is selected."""

import math

import pytest
from figure_samples import select, shown_rows
from maxinf_sample_records import (
    AXES,
    BASE,
    GRID,
    PRIORS,
    TABLES,
    TAUS,
    certificates_record,
    kappa_record,
    show,
    simulation_record,
    spec_priors,
    typed,
)

from dpatlas.errors import InputError
from dpatlas_workflow.papers.max_information.looks import label_of
from dpatlas_workflow.papers.max_information.records.certified import SetLooks
from dpatlas_workflow.papers.max_information.selection import PAID, RIGOROUS, UNIVERSE, settings_of
from dpatlas_workflow.show.output import table_files


def ours(*records):
    return select(show("maxinf_certificates", *records).rows, part="ours")


def rows_of(record, **keys):
    return select(record["metrics"]["rows"], **keys)


def test_every_kind_of_prior_has_the_row_of_least_certificate_over_runs():
    record = certificates_record()
    for row in rows_of(record, prior="independent", run=1):
        row["test_error"] = row["certificate_posterior"] + 1e-6
    rows = ours(record)
    assert [row["prior"] for row in rows] == ["independent", "noise-only", "dp-sgd"]
    # A posterior whose test error is above its certificate is counted.
    assert [row["covered_runs"] for row in rows] == [2, 3, 3]
    private = rows[-1]
    assert (private["tuples_tried"], private["deviations_tried"]) == (2, 2)
    assert private["selected"] == "zeta 0.01, sigma 1, m 500, E 5, lr 20, tau 0.06"
    # A kappa is the same in all runs.
    assert private["kappa_std"] == 0.0
    text = table_files("t", show("maxinf_certificates"), "trial")["t.md"].decode()
    assert "410 ± 10" in text and "| 2 x 2 of 4 x 2 |" in text


def test_runs_that_select_other_priors_are_counted():
    record = certificates_record()
    (row,) = rows_of(record, prior="dp-sgd", E=1, run=2, tau=TAUS[0])
    row["certificate_posterior"] = 0.01
    private = ours(record)[2]
    five, one = private["selected"].split("; ")
    assert five.startswith("2 x (") and "E 5" in five
    assert one.startswith("1 x (") and "E 1" in one
    assert private["kappa_std"] > 1


@pytest.mark.parametrize("by", [RIGOROUS, UNIVERSE])
def test_where_another_certificate_selects_another_prior_it_has_a_row_of_its_own(by):
    record = certificates_record()
    assert {row["selected_by"] for row in ours(record)} == {PAID}
    for row in rows_of(record, E=5):
        row[by] = 1.0
    *_, paid, other = ours(record)
    assert (paid["selected_by"], other["selected_by"]) == (PAID, by)
    assert "E 5" in paid["selected"] and "E 1" in other["selected"]
    assert paid[f"{by}_mean"] == 1.0 > other[f"{by}_mean"]


def test_a_posterior_that_diverged_has_a_certificate_of_one_and_no_risk():
    record = certificates_record()
    for row in rows_of(record, prior="independent", run=1):
        row |= dict.fromkeys(("risk_posterior", "errors_posterior", "kl", "test_error"))
        row |= {f"certificate_{name}": 1.0 for name in ("posterior", "tight", "rigorous")}
        row["diverged"] = 12
    row = ours(record)[0]
    assert (row["diverged_runs"], row["covered_runs"], row["runs_used"]) == (1, 3, 3)
    (setting,) = settings_of(typed([record]))
    left = setting.selected("independent").query("run != 1")
    assert row["kl_mean"] == left.kl.mean()
    bounds = left.certificate_posterior
    assert row["certificate_posterior_mean"] == pytest.approx((bounds.sum() + 1) / 3)


@pytest.mark.parametrize("name", TABLES)
def test_looks_stand_in_every_row_and_caption_and_the_caption_says_what_tau_is(name):
    other = {"look": "digits-1", "n": 6000, "K1": 1}
    other |= {"grid": {**GRID, "epochs": [1], "taus": [0.03], "sigma": 1.0}}
    looks = {"number": 2, "registered": True, "others": [other]}
    record = certificates_record(looks=looks, tau_is="variance")
    record["metrics"] |= label_of(SetLooks.model_validate(looks))
    shown = show(name, record)
    rows = [row for row in shown.rows if row.get("part", "ours") == "ours"]
    assert all(row["selected_after_a_look"] for row in rows)
    for words in ("selected after a look: look 2 ", "tau a variance"):
        assert words in shown.parts[0].caption


def test_an_infinite_kappa_has_a_mean_and_no_deviation():
    record = certificates_record(form="repaired")
    for row in rows_of(record, E=5):
        row |= {"kappa_repaired": None, "certificate_posterior": 1.0}
    shown = show("maxinf_grid", record)
    rows = select(shown.rows, E=5)
    assert [(row["kappa_mean"], row["kappa_std"]) for row in rows] == [(math.inf, None)] * 2
    assert [row["kappa_repaired"] for row in select(shown_rows(shown), E="5")] == ["inf"] * 2


def row(prior="dp-sgd", run=0, bound=0.5, tau=0.05, proven=0.5, **keys):
    """A row of the samples with another prior, run and tau, and made-up certificates."""
    tuples = {"zeta": 0.01, "sigma": 1.0, "m": 100, "E": 1, "lr": 5.0}
    if prior == "independent":
        tuples = dict.fromkeys(tuples)
    changes = {**tuples, **keys, "prior": prior, "run": run, "tau": tau}
    changes |= {"certificate_posterior": bound, "certificate_rigorous": proven}
    return certificates_record(runs=1)["metrics"]["rows"][0] | changes


def record(*rows, name="a", **fields):
    content = certificates_record(**{"K1": 2, "K2": 1, **fields})
    content["id"] = name
    content["metrics"]["rows"] = list(rows)
    # Records of a setting differ in their priors alone.
    content["spec"]["priors"] = spec_priors(PRIORS[:1] if name == "a" else PRIORS[:2])
    (read,) = typed([content])
    return read


def chosen(setting, kind, *by):
    """Run and epochs of the selected rows."""
    return list(setting.selected(kind, *by)[["run", "E"]].itertuples(index=False, name=None))


def test_every_run_selects_its_own_least_certificate_of_a_kind_and_of_equal_ones_the_first():
    rows = [
        *(row(run=1, bound=0.4), row(run=1, bound=0.3, E=5, proven=0.9), row(run=0, bound=0.2)),
        *(row(run=0, bound=0.2, E=5), row("independent", run=0, bound=0.1)),
    ]
    (setting,) = settings_of([record(*rows)])
    assert chosen(setting, "dp-sgd") == [(0, 1), (1, 5)]
    assert chosen(setting, "dp-sgd", RIGOROUS) == [(0, 1), (1, 1)]
    assert chosen(setting, "noise-only") == []
    assert setting.kinds == ["independent", "dp-sgd"]
    # Kinds are counted apart: a certificate is paid for by the tuples of its own kind.
    assert setting.tried("dp-sgd") == (2, 1)


def test_records_that_differ_in_priors_alone_are_one_setting():
    pair = [record(row(bound=0.4)), record(row(bound=0.3, E=5), name="b")]
    (setting,) = settings_of(pair)
    assert setting.blocks == ["a", "b"] and setting.name == "a and 1 more"
    assert chosen(setting, "dp-sgd") == [(0, 5)]
    assert len(settings_of([pair[0], record(row(), name="b", seed=1)])) == 2


def test_of_records_with_other_numbers_of_runs_the_common_runs_are_read():
    rows = [row(run=run, bound=0.4 + run / 10) for run in range(3)]
    others = [row(run=run, bound=0.3 + run / 10, E=5) for run in range(2)]
    (setting,) = settings_of([record(*rows, runs=3), record(*others, name="b", runs=2)])
    assert setting.spec.runs == 2 and len(setting.rows) == 4
    assert chosen(setting, "dp-sgd") == [(0, 5), (1, 5)]


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (record(row(lr=1.0), row(lr=2.0), name="b"), "K1: found 2; .* >= 3"),
        (record(row(tau=0.06), name="b"), "K2: found 1; .* >= 2"),
        (record(row(bound=0.3), name="b"), "a and b: found a prior twice"),
    ],
)
def test_what_the_union_bound_does_not_pay_for_is_refused(other, complaint):
    with pytest.raises(InputError, match=complaint):
        settings_of([record(row()), other])


def test_an_infinite_value_is_missing_and_the_panel_is_cut_off_above_the_others():
    record = kappa_record({**BASE, "zeta": 0.05}, {**AXES, "E": [1, 2, 5, 1000]})
    shown = show("maxinf_kappa", record, simulation_record())
    epochs = select(shown.rows, panel="E")
    repaired = select(epochs, series="repaired")
    assert repaired[-1]["value"] is None and repaired[-2]["value"] > 100
    assert shown_rows(shown)[shown.rows.index(repaired[-1])]["value"] == ""
    largest = max(row["value"] for row in select(epochs, series="explicit"))
    assert all(largest < top < 10 * largest for _, top in shown.ends("y")[:-1])
    assert "cut off" in shown.notes[0]
