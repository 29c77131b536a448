"""What the tables of max_information show, on small synthetic records."""

import math

import maxinf_sample_records as samples
import pytest
from figure_samples import select, shown_rows
from maxinf_sample_records import show as show_records

from dpatlas.formulas.max_information.certificates import certificate
from dpatlas.formulas.max_information.published import PAPER_GRID, TABLE_1
from dpatlas_workflow.papers.max_information.looks import label_of
from dpatlas_workflow.papers.max_information.records.certified import SetLooks
from dpatlas_workflow.papers.max_information.selection import PAID, RIGOROUS, UNIVERSE, settings_of
from dpatlas_workflow.show.output import table_files

ONE_EPOCH = samples.PRIORS[2]


def show(name, *records):
    return show_records(name, *(records or [samples.certificates_record()]))


def text_of(name, *records):
    return table_files(name, show(name, *records), "trial")[f"{name}.md"].decode()


def ours(*records):
    return select(show("maxinf_certificates", *records).rows, part="ours")


def rows_of(record, **keys):
    return select(record["metrics"]["rows"], **keys)


class TestSelected:
    def test_every_kind_of_prior_has_the_row_of_least_certificate_over_runs(self):
        record = samples.certificates_record()
        for row in rows_of(record, prior="independent", run=1):
            row["test_error"] = row["certificate_posterior"] + 1e-6
        rows = ours(record)
        assert [row["prior"] for row in rows] == ["independent", "noise-only", "dp-sgd"]
        # A posterior whose test error is above its certificate is counted.
        assert [row["covered_runs"] for row in rows] == [2, 3, 3]
        private = rows[-1]
        assert (private["tuples_tried"], private["deviations_tried"]) == (2, 2)
        assert private["selected"] == "zeta 0.01, sigma 1, m 500, E 5, lr 20, tau 0.06"
        (setting,) = settings_of(samples.typed([record]))
        chosen = setting.selected("dp-sgd")
        assert list(chosen.run) == [0, 1, 2]
        for name in ("risk_prior", "kl", "certificate_posterior", "certificate_tight"):
            assert private[f"{name}_mean"] == pytest.approx(chosen[name].mean())
            assert private[f"{name}_std"] == pytest.approx(chosen[name].std())
        # A kappa is the same in all runs.
        assert private["kappa_std"] == 0.0
        text = text_of("maxinf_certificates")
        assert "410 ± 10" in text and "| 2 x 2 of 4 x 2 |" in text

    def test_runs_that_select_other_priors_are_counted(self):
        record = samples.certificates_record()
        (row,) = rows_of(record, prior="dp-sgd", E=1, run=2, tau=samples.TAUS[0])
        row["certificate_posterior"] = 0.01
        private = ours(record)[2]
        five, one = private["selected"].split("; ")
        assert five.startswith("2 x (") and "E 5" in five
        assert one.startswith("1 x (") and "E 1" in one
        assert private["kappa_std"] > 1
        assert private["standing"] == "as printed"

    def test_standing_is_that_of_the_paid_form_and_of_the_tight_one(self):
        repaired = samples.certificates_record(form="repaired")
        rows = ours(repaired)
        assert [row["standing"] for row in rows] == ["rigorous"] * 3
        assert [row["standing_tight"] for row in rows] == ["rigorous", "rigorous", "as printed"]
        one_epoch = ours(samples.certificates_record(priors=[samples.PRIORS[0], ONE_EPOCH]))
        assert one_epoch[-1]["standing"] == "rigorous"

    @pytest.mark.parametrize("by", [RIGOROUS, UNIVERSE])
    def test_where_another_certificate_selects_another_prior_it_has_a_row_of_its_own(self, by):
        record = samples.certificates_record()
        assert {row["selected_by"] for row in ours(record)} == {PAID}
        for row in rows_of(record, E=5):
            row[by] = 1.0
        *_, paid, other = ours(record)
        assert (paid["selected_by"], other["selected_by"]) == (PAID, by)
        assert "E 5" in paid["selected"] and "E 1" in other["selected"]
        assert paid[f"{by}_mean"] == 1.0 > other[f"{by}_mean"]

    def test_a_posterior_that_diverged_has_a_certificate_of_one_and_no_risk(self):
        record = samples.certificates_record()
        for row in rows_of(record, prior="independent", run=1):
            row |= dict.fromkeys(("risk_posterior", "errors_posterior", "kl", "test_error"))
            row |= {f"certificate_{name}": 1.0 for name in ("posterior", "tight", "rigorous")}
            row["diverged"] = 12
        row = ours(record)[0]
        assert (row["diverged_runs"], row["covered_runs"], row["runs_used"]) == (1, 3, 3)
        (setting,) = settings_of(samples.typed([record]))
        left = setting.selected("independent").query("run != 1")
        assert row["kl_mean"] == left.kl.mean()
        bounds = left.certificate_posterior
        assert row["certificate_posterior_mean"] == pytest.approx((bounds.sum() + 1) / 3)

    @pytest.mark.parametrize("name", samples.TABLES)
    def test_looks_stand_in_every_row_and_caption_and_the_caption_says_what_tau_is(self, name):
        other = {"look": "digits-1", "n": 6000, "K1": 1}
        other |= {"grid": {**samples.GRID, "epochs": [1], "taus": [0.03], "sigma": 1.0}}
        looks = {"number": 2, "registered": True, "others": [other]}
        record = samples.certificates_record(looks=looks, tau_is="variance")
        record["metrics"] |= label_of(SetLooks.model_validate(looks))
        for shown, label, words in (
            (show(name), False, ("not selected after a look: look 1", "a standard deviation")),
            (show(name, record), True, ("selected after a look: look 2 ", "tau a variance")),
        ):
            rows = [row for row in shown.rows if row.get("part", "ours") == "ours"]
            assert {row["selected_after_a_look"] for row in rows} == {label}
            assert all(row["universe_nats_mean"] > 15 for row in rows)
            assert all(word in shown.parts[0].caption for word in words)


def test_printed_kappas_and_bounds_stand_beside_their_recomputation():
    rows = select(show("maxinf_certificates").rows, part="printed")
    assert len(rows) == len(TABLE_1)
    for row, printed in zip(rows, TABLE_1, strict=True):
        assert round(row["kappa_recomputed"]) == row["kappa_mean"] == printed.kappa
        expected = certificate(
            *(printed.risk_posterior, printed.kl, printed.kappa, printed.n, PAPER_GRID.K1),
            *(PAPER_GRID.K2, PAPER_GRID.delta, PAPER_GRID.delta_mc, PAPER_GRID.beta),
        )
        assert row["certificate_posterior_eq97"] == expected
        for what in ("prior", "posterior"):
            by_97, by_98, mean = (
                row[f"certificate_{what}_{by}"] for by in ("eq97", "eq98", "mean")
            )
            assert by_97 < by_98 and abs(by_97 - mean) < 0.01
    # Only several epochs are as printed, and repaired they are vacuous.
    assert [row["standing"] for row in rows] == ["rigorous"] * 3 + ["as printed"]
    assert rows[1]["kappa_repaired"] == pytest.approx(rows[1]["kappa_recomputed"])
    assert rows[3]["certificate_posterior_repaired_form"] > 0.999
    assert rows[3]["certificate_posterior_tight_form"] < rows[3]["certificate_posterior_eq97"]


def test_repetitions_of_an_agreement_are_added_up():
    record = samples.agreement_record(repetitions=3)
    record["metrics"]["rows"][0] |= {"errors": 760}
    shown = show("maxinf_certificates", samples.certificates_record(), record)
    rows = select(shown.rows, part="agreement")
    assert len(rows) == 4
    assert (rows[0]["errors"], rows[0]["pairs"]) == (2160, 3000)
    assert rows[0]["risk"] == pytest.approx(0.72)
    assert rows[0]["risk_standard_error"] == pytest.approx(math.sqrt(0.72 * 0.28 / 3000))


class TestGrid:
    def test_an_infinite_kappa_has_a_mean_and_no_deviation(self):
        record = samples.certificates_record(form="repaired")
        for row in rows_of(record, E=5):
            row["kappa_repaired"] = None
            row["certificate_posterior"] = 1.0
        shown = show("maxinf_grid", record)
        rows = select(shown.rows, E=5)
        assert [(row["kappa_mean"], row["kappa_std"]) for row in rows] == [(math.inf, None)] * 2
        rows = select(shown_rows(shown), E="5")
        assert [row["kappa_repaired"] for row in rows] == ["inf"] * 2
