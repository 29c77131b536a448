"""What the tables of max_information show, on small synthetic records."""

import copy
import math

import numpy as np
import pytest
from figure_samples import csv_rows
from maxinf_sample_records import (
    PRIORS,
    TABLES,
    TAUS,
    agreement_record,
    certificates_record,
    coefficients_record,
    typed,
)
from maxinf_sample_records import show as show_records

from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.certificates import certificate
from dpatlas.papers.max_information.formulas.published import PAPER_GRID, TABLE_1
from dpatlas.papers.max_information.looks import label_of
from dpatlas.papers.max_information.records.certified import Looks
from dpatlas.papers.max_information.selection import PAID, UNIVERSE, settings_of
from dpatlas.show.output import table_files
from dpatlas.show.panels import select

ONE_EPOCH, FIVE_EPOCHS = PRIORS[2], PRIORS[3]


def show(name, *records):
    return show_records(name, *(records or [certificates_record()]))


def text_of(name, shown, kind="md"):
    return table_files(name, shown, "trial")[f"{name}.{kind}"].decode()


def ours(*records):
    return select(show("maxinf_certificates", *records).rows, part="ours")


def with_certificates(record, change):
    """The record after `change` to some rows' posterior certificates."""
    for row in record["metrics"]["rows"]:
        row["certificate_posterior"] = change(row)
    return record


def split(record, *parts):
    """The record's priors shared out over one record per list of kinds."""
    found = []
    for place, kinds in enumerate(parts):
        one = copy.deepcopy(record)
        one["id"] += f"-{place}"
        one["spec"]["priors"] = [each for each in one["spec"]["priors"] if each["kind"] in kinds]
        rows = one["metrics"]["rows"]
        rows[:] = [row for row in rows if row["prior"] in kinds]
        found.append(one)
    return found


class TestSelected:
    def test_every_kind_of_prior_has_the_row_of_least_certificate_over_runs(self):
        record = certificates_record()
        rows = ours(record)
        assert [row["prior"] for row in rows] == ["independent", "noise-only", "dp-sgd"]
        private = rows[-1]
        assert private["selected"] == "zeta 0.01, sigma 1, m 500, E 5, lr 20, tau 0.06"
        (setting,) = settings_of(typed([record]))
        chosen = setting.selected("dp-sgd")
        assert [row.run for row in chosen] == [0, 1, 2]
        for name in ("risk_prior", "kl", "certificate_posterior", "certificate_tight"):
            values = [getattr(row, name) for row in chosen]
            assert private[f"{name}_mean"] == pytest.approx(np.mean(values))
            assert private[f"{name}_std"] == pytest.approx(np.std(values, ddof=1))
        least = min(row.certificate_posterior for row in setting.of_kind("dp-sgd"))
        assert min(row.certificate_posterior for row in chosen) == least

    def test_a_kappa_that_is_the_same_in_all_runs_has_no_deviation(self):
        *_, private = ours()
        assert private["kappa_std"] == 0.0
        text = text_of("maxinf_certificates", show("maxinf_certificates"))
        assert "| 35.32 |" in text and "410 ± 10" in text

    def test_runs_that_select_other_priors_are_counted(self):
        record = certificates_record()

        def change(row):
            place = (row["prior"], row["E"], row["run"], row["tau"])
            better = place == ("dp-sgd", 1, 2, TAUS[0])
            return 0.01 if better else row["certificate_posterior"]

        row = ours(with_certificates(record, change))[2]
        five, one = row["selected"].split("; ")
        assert five.startswith("2 x (") and "E 5" in five
        assert one.startswith("1 x (") and "E 1" in one
        assert row["kappa_std"] > 1
        assert row["standing"] == "as printed"

    def test_standing_is_that_of_the_paid_form_and_of_the_tight_one(self):
        rows = ours(certificates_record(form="repaired"))
        assert [row["standing"] for row in rows] == ["rigorous"] * 3
        assert [row["standing_tight"] for row in rows] == ["rigorous", "rigorous", "as printed"]
        shown = show("maxinf_certificates", certificates_record(form="repaired"))
        assert "rigorous (tight: as printed)" in text_of("maxinf_certificates", shown)
        one_epoch = ours(certificates_record(priors=[PRIORS[0], ONE_EPOCH]))
        assert one_epoch[-1]["standing"] == "rigorous"

    def test_where_rigorous_certificates_select_another_prior_it_has_a_row_of_its_own(self):
        record = certificates_record()
        assert {row["selected_by"] for row in ours(record)} == {"certificate_posterior"}
        for row in record["metrics"]["rows"]:
            if row["E"] == 5:
                row["certificate_rigorous"] = 1.0
        paid, proven = select(ours(record), prior="dp-sgd")
        assert proven["selected_by"] == "certificate_rigorous"
        assert "E 5" in paid["selected"] and "E 1" in proven["selected"]
        assert paid["certificate_posterior_mean"] < proven["certificate_posterior_mean"]
        assert paid["certificate_rigorous_mean"] == 1.0 > proven["certificate_rigorous_mean"]
        text = text_of("maxinf_certificates", show("maxinf_certificates", record))
        assert "| DP-SGD, by rigorous | rigorous |" in text

    def test_where_universe_certificates_select_another_prior_it_has_a_row_of_its_own(self):
        record = certificates_record()
        for row in record["metrics"]["rows"]:
            if row["E"] == 5:
                row["certificate_universe"] = 1.0
        *_, paid, dearer = ours(record)
        assert (paid["selected_by"], dearer["selected_by"]) == (PAID, UNIVERSE)
        assert paid["certificate_universe_mean"] == 1.0 > dearer["certificate_universe_mean"]
        text = text_of("maxinf_certificates", show("maxinf_certificates", record))
        assert "| DP-SGD, by universe | rigorous |" in text

    def test_a_posterior_that_diverged_has_a_certificate_of_one_and_no_risk(self):
        record = certificates_record()
        for row in record["metrics"]["rows"]:
            if row["prior"] == "independent" and row["run"] == 1:
                row |= dict.fromkeys(("risk_posterior", "errors_posterior", "kl", "test_error"))
                row |= {f"certificate_{name}": 1.0 for name in ("posterior", "tight", "rigorous")}
                row["diverged"] = 12
        row = ours(record)[0]
        assert (row["diverged_runs"], row["covered_runs"], row["runs_used"]) == (1, 3, 3)
        (setting,) = settings_of(typed([record]))
        left = [each for each in setting.selected("independent") if each.run != 1]
        assert row["kl_mean"] == np.mean([each.kl for each in left])
        bounds = [each.certificate_posterior for each in left]
        assert row["certificate_posterior_mean"] == pytest.approx((sum(bounds) + 1) / 3)
        shown = show("maxinf_grid", record)
        assert "3 of 3, 1 diverged" in text_of("maxinf_grid", shown)

    def test_a_risk_that_no_run_has_stays_empty(self):
        record = certificates_record(runs=1)
        for row in record["metrics"]["rows"]:
            row |= {"diverged": 12, "kl": None, "risk_posterior": None, "test_error": None}
        rows = csv_rows(table_files("t", show("maxinf_certificates", record), "trial")["t.csv"])
        assert {row["kl_mean"] for row in rows if row["part"] == "ours"} == {""}

    def test_what_tau_is_stands_in_the_caption(self):
        record = certificates_record()
        assert "tau a standard deviation" in show("maxinf_grid", record).parts[0].caption
        record["metrics"]["tau_is"] = "variance"
        for name in TABLES:
            assert "tau a variance" in show(name, record).parts[0].caption

    def test_runs_whose_certificate_covers_the_test_error_are_counted(self):
        record = certificates_record()
        for row in record["metrics"]["rows"]:
            if row["prior"] == "independent" and row["run"] == 1:
                row["test_error"] = row["certificate_posterior"] + 1e-6
        rows = ours(record)
        assert [row["covered_runs"] for row in rows] == [2, 3, 3]
        assert "2 of 3" in text_of("maxinf_certificates", show("maxinf_certificates", record))

    def test_what_was_tried_stands_beside_what_is_paid_for(self):
        rows = ours()
        assert [(row["tuples_tried"], row["deviations_tried"]) for row in rows] == [
            (1, 2),
            (1, 2),
            (2, 2),
        ]
        text = text_of("maxinf_certificates", show("maxinf_certificates"))
        assert "| 2 x 2 of 4 x 2 |" in text

    def test_more_than_is_paid_for_is_refused(self):
        with pytest.raises(InputError, match="K1: found 1; allowed: a whole number >= 2"):
            show("maxinf_certificates", certificates_record(K1=1))

    def test_one_run_has_no_deviation(self):
        row = ours(certificates_record(runs=1))[-1]
        assert row["certificate_posterior_std"] is None
        assert row["runs_used"] == 1

    def test_jobs_that_share_out_the_priors_are_one_block(self):
        whole = certificates_record()
        parts = split(whole, {"independent"}, {"noise-only", "dp-sgd"})
        joined = ours(*parts)
        assert [{**row, "runs": None} for row in joined] == [
            {**row, "runs": None} for row in ours(whole)
        ]
        assert joined[0]["runs"] == [part["id"] for part in parts]

    def test_other_data_or_objectives_are_blocks_of_their_own(self):
        records = [
            certificates_record(),
            certificates_record("mnist"),
            certificates_record(objective="bbb"),
        ]
        shown = show("maxinf_certificates", *records)
        names = [part.caption.partition(":")[0] for part in shown.parts[:3]]
        assert len(set(names)) == 3
        assert len(select(shown.rows, part="ours")) == 9

    def test_printed_rows_stand_under_ours_for_the_paper_s_data_sets_only(self):
        shown = show("maxinf_certificates", certificates_record(), certificates_record("mnist"))
        digits, mnist = shown.parts[:2]
        assert len(digits.rows) == 3
        assert [row[0] for row in mnist.rows[3:]] == [
            "data-independent, printed, n = 60000",
            "DP-SGD, printed, n = 60000",
        ]
        assert mnist.rows[4][2:8] == (0.55, 0.58, 0.12, 42, 5020, 0.29)

    def test_records_without_certificates_are_refused(self):
        for name in TABLES:
            with pytest.raises(InputError, match="none of kind certificates"):
                show(name, coefficients_record())

    def test_the_universe_and_the_looks_stand_in_every_row_and_caption(self):
        other = {"look": "digits-1", "n": 6000}
        grid = {"zetas": [0.01], "lrs": [20.0], "epochs": [1], "taus": [0.03], "m": 500}
        other |= {"K1": 1, "grid": {**grid, "sigma": 1.0}}
        looks = {"number": 2, "registered": True, "others": [other]}
        record = certificates_record(looks=looks)
        for row in record["metrics"]["rows"]:
            row |= label_of(Looks.model_validate(looks))
        for name in TABLES:
            for shown, label in ((show(name), False), (show(name, record), True)):
                rows = [row for row in shown.rows if row.get("part", "ours") == "ours"]
                assert {row["selected_after_a_look"] for row in rows} == {label}
                assert all(row["universe_nats_mean"] > 15 for row in rows)
                for row in rows:
                    assert row["certificate_universe_mean"] > row["certificate_rigorous_mean"]
                words = "not selected after a look: look 1" * (not label)
                assert (words or "selected after a look: look 2 ") in shown.parts[0].caption


class TestPublished:
    def rows(self):
        return select(show("maxinf_certificates").rows, part="printed")

    def test_printed_kappas_and_bounds_stand_beside_their_recomputation(self):
        rows = self.rows()
        assert len(rows) == len(TABLE_1)
        for row, printed in zip(rows, TABLE_1, strict=True):
            assert round(row["kappa_recomputed"]) == row["kappa_mean"] == printed.kappa
            expected = certificate(
                *(printed.risk_posterior, printed.kl, printed.kappa, printed.n, PAPER_GRID.K1),
                *(PAPER_GRID.K2, PAPER_GRID.delta, PAPER_GRID.delta_mc, PAPER_GRID.beta),
            )
            assert row["certificate_posterior_eq97"] == expected
            for what in ("prior", "posterior"):
                assert row[f"certificate_{what}_eq97"] < row[f"certificate_{what}_eq98"]
                gap = row[f"certificate_{what}_eq97"] - row[f"certificate_{what}_mean"]
                assert abs(gap) < 0.01

    def test_only_several_epochs_are_as_printed_and_repaired_they_are_vacuous(self):
        rows = self.rows()
        assert [row["standing"] for row in rows] == ["rigorous"] * 3 + ["as printed"]
        assert rows[1]["kappa_repaired"] == pytest.approx(rows[1]["kappa_recomputed"])
        assert rows[3]["certificate_posterior_repaired_form"] > 0.999
        assert rows[3]["certificate_posterior_tight_form"] < rows[3]["certificate_posterior_eq97"]


class TestAgreement:
    def test_repetitions_are_added_up(self):
        record = agreement_record(repetitions=3)
        record["metrics"]["rows"][0] |= {"errors": 760}
        shown = show("maxinf_certificates", certificates_record(), record)
        rows = select(shown.rows, part="agreement")
        assert [(row["what"], row["method"]) for row in rows] == [
            (what, method)
            for what in ("prior", "posterior")
            for method in ("reparametrisation", "sampling")
        ]
        assert (rows[0]["errors"], rows[0]["pairs"]) == (2160, 3000)
        assert rows[0]["risk"] == pytest.approx(0.72)
        assert rows[0]["risk_standard_error"] == pytest.approx(math.sqrt(0.72 * 0.28 / 3000))
        assert rows[0]["runs"] == [record["id"]]

    def test_without_a_comparison_there_is_no_empty_block(self):
        assert len(show("maxinf_certificates").parts) == 2


class TestGrid:
    def test_every_prior_and_deviation_has_a_row_with_all_kappas(self):
        rows = show("maxinf_grid").rows
        assert len(rows) == len(PRIORS) * len(TAUS)
        assert [row["kappa_mean"] for row in rows] == sorted(row["kappa_mean"] for row in rows)
        private = select(rows, prior="dp-sgd")
        assert [(row["E"], row["tau"]) for row in private] == [
            (epochs, tau) for epochs in (1, 5) for tau in TAUS
        ]
        for row in private:
            assert row["kappa_tight"] < row["kappa_optimised"] < row["kappa_explicit"]
            assert (row["kappa_repaired"] > row["kappa_optimised"]) == (row["E"] > 1)
            assert row["T"] == 12
        for row in rows:
            if row["prior"] != "dp-sgd":
                assert row["kappa_optimised"] == row["kappa_repaired"] == 0

    def test_selected_runs_are_those_of_the_certificates(self):
        rows = show("maxinf_grid").rows
        assert [row["selected_runs"] for row in rows] == [0, 3, 0, 3, 0, 0, 0, 3]

    def test_a_kappa_that_is_infinite_in_the_record_stands_as_such(self):
        record = certificates_record()
        for row in record["metrics"]["rows"]:
            if row["E"] == 5:
                row["kappa"]["repaired"] = None
        shown = show("maxinf_grid", record)
        rows = csv_rows(table_files("maxinf_grid", shown, "trial")["maxinf_grid.csv"])
        found = [row["kappa_repaired"] for row in rows if row["E"] == "5"]
        assert found == ["inf"] * 2
        assert "| inf |" in text_of("maxinf_grid", shown)

    def test_an_infinite_kappa_that_is_paid_has_a_mean_and_no_deviation(self):
        record = certificates_record(form="repaired")
        for row in record["metrics"]["rows"]:
            if row["E"] == 5:
                row["kappa"]["repaired"] = None
                row["certificate_posterior"] = 1.0
        rows = show("maxinf_grid", record).rows
        found = [row for row in rows if row["E"] == 5]
        assert [(row["kappa_mean"], row["kappa_std"]) for row in found] == [(math.inf, None)] * 2
        assert [row["certificate_posterior_std"] for row in found] == [0.0] * 2


@pytest.mark.parametrize("name", TABLES)
def test_people_read_every_part_and_tex_has_no_letters_that_it_cannot_set(name):
    shown = show(name, certificates_record(), *([agreement_record()] * (name != "maxinf_grid")))
    text = text_of(name, shown)
    assert all(part.rows and f"**{part.caption}**" in text for part in shown.parts)
    assert all(letter.isascii() or letter == "±" for letter in text_of(name, shown, "tex"))
