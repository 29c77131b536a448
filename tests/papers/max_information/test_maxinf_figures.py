"""What the figures of max_information show, on records made of the paper's own formulas."""

import math

import pytest
from figure_samples import select, shown_rows
from maxinf_sample_records import (
    AXES,
    BASE,
    kappa_record,
    show,
    simulation_record,
)

from dpatlas.formulas.max_information.kappa import (
    batch_moment_exponent,
    kappa_per_record,
)
from dpatlas.formulas.max_information.mechanisms import leading_term_ratio


def test_ratios_of_coefficients_are_those_of_lemma_6():
    shown = show("maxinf_coefficients")
    assert [panel.across for panel in shown.panels] == [(), (), (0.25, 2.0)]
    for row in select(shown.rows, panel="ratio"):
        digits = {"ours": 1e-6, "printed": 0.005}[row["source"]]
        assert row["value"] == pytest.approx(
            leading_term_ratio(row["alpha"], row["beta"]), abs=digits
        )
    assert len(select(shown.rows, source="printed")) == 1


class TestKappa:
    def test_every_point_stands_with_the_setting_that_gives_it(self):
        rows = [row for row in show("maxinf_kappa").rows if row["panel"] != "moment"]
        for row in rows:
            n, m, T, delta = (row[name] for name in ("n", "m", "T", "delta"))
            if row["series"] == "confidence":
                expected = math.log(4 * math.sqrt(n) / delta) / n
            else:
                setting = (n, m, row["zeta_over_sigma"], 1.0, T, row["E"], delta / 2)
                expected = kappa_per_record(*setting, form=row["series"])
            assert row["value"] == pytest.approx(expected)
        rows = select(rows, series="optimised")
        sizes = {
            axis: [(row["n"], row["m"], row["T"]) for row in select(rows, panel=axis)]
            for axis in ("n", "n_at_T", "T")
        }
        # Records vary at fixed batches or at fixed steps, steps at fixed records.
        assert sizes["n"] == [(n, 5000, n // 5000) for n in AXES["n"]]
        assert sizes["n_at_T"] == [(n, n // 10, 10) for n in AXES["n_at_T"]]
        assert sizes["T"] == [(50_000, 50_000 // T, T) for T in AXES["T"]]

    def test_an_infinite_value_is_missing_and_the_panel_is_cut_off_above_the_others(self):
        record = kappa_record({**BASE, "zeta": 0.05}, {**AXES, "E": [1, 2, 5, 1000]})
        shown = show("maxinf_kappa", record, simulation_record())
        epochs = select(shown.rows, panel="E")
        repaired = select(epochs, series="repaired")
        assert repaired[-1]["value"] is None and repaired[-2]["value"] > 100
        assert shown_rows(shown)[shown.rows.index(repaired[-1])]["value"] == ""
        largest = max(row["value"] for row in select(epochs, series="explicit"))
        assert all(largest < top < 10 * largest for _, top in shown.ends("y")[:-1])
        assert "cut off" in shown.notes[0]

    def test_moments_stand_as_logarithms_with_their_interval(self):
        rows = select(show("maxinf_kappa").rows, panel="moment")
        for series, moment in (("lemma_10", "lemma-10"), ("tight", "minimum")):
            for row in select(rows, series=series):
                assert row["value"] == pytest.approx(batch_moment_exponent(row["y"], moment))
        moments = simulation_record()["metrics"]["rows"]
        for row, moment in zip(select(rows, series="simulated"), moments, strict=True):
            assert row["low"] <= row["value"] <= row["high"]
            width = math.exp(row["high"]) - math.exp(row["low"])
            assert width == pytest.approx(2 * 1.95996 * moment["standard_error"], rel=1e-4)
