"""What the figures of max_information show, on records made of the paper's own formulas."""

import math

import numpy as np
import pytest
from figure_samples import check_job, drawn_lines, shown_rows, smallest_text
from maxinf_sample_records import (
    AXES,
    BASE,
    FIGURES,
    RECORDS,
    TABLES,
    certificates_record,
    kappa_record,
    show,
    simulation_record,
    typed,
)

from dpatlas.errors import InputError
from dpatlas.papers.max_information.figures import maxinf_coefficients, maxinf_kappa
from dpatlas.papers.max_information.formulas.kappa import (
    FORMS,
    batch_moment_exponent,
    kappa_per_record,
)
from dpatlas.papers.max_information.formulas.mechanisms import leading_term_ratio
from dpatlas.show.panels import select

ALPHA_SERIES = ("panel", "alpha")
KAPPA_SERIES = ("panel", "series", "law")


def line_of(rows, x):
    return tuple((row[x], row["value"]) for row in rows if row["value"] is not None)


def series_of(rows, names):
    """Rows by what tells the lines of a figure apart."""
    found = {}
    for row in rows:
        found.setdefault(tuple(row.get(name) for name in names), []).append(row)
    return found


@pytest.mark.parametrize("name", [*FIGURES, *TABLES])
def test_a_job_writes_every_file_and_names_all_records_behind_it(name, tmp_path):
    check_job(name, typed(RECORDS[name]()), {}, tmp_path)


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_smaller_than_seven_points(name):
    figure = show(name).figure
    assert smallest_text(figure) >= 7
    assert figure.get_figwidth() == 6.9


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_needs_exactly_one_record_of_its_kinds(name):
    records = RECORDS[name]()
    for record in records:
        kind = record["spec"]["kind"]
        with pytest.raises(InputError, match=f"2 of kind {kind}"):
            show(name, *records, record)
        others = [other for other in records if other is not record]
        with pytest.raises(InputError, match=f"0 of kind {kind}"):
            show(name, *others, certificates_record())


@pytest.mark.parametrize(
    "looks",
    [
        [*maxinf_coefficients.ALPHAS, maxinf_coefficients.PURE],
        maxinf_kappa.SERIES_OF_KAPPA.values(),
        maxinf_kappa.MOMENTS.values(),
    ],
)
def test_series_differ_in_grey_print(looks):
    assert len({(look.marker, look.linestyle) for look in looks}) == len(looks)


class TestCoefficients:
    def test_csv_holds_exactly_the_lines_that_are_drawn(self):
        shown = show("maxinf_coefficients")
        drawn = drawn_lines(shown.figure)
        for rows in series_of(shown.rows, ALPHA_SERIES).values():
            drawn.remove(line_of(rows, "beta"))
        # Left are the two limits of Lemma 6.
        assert [line[0][1] for line in drawn] == [0.25, 2.0]

    def test_every_curve_stands_once_and_pure_privacy_knows_no_alpha(self):
        rows = show("maxinf_coefficients").rows
        for panel, curves in (("leading", 5), ("root", 5), ("ratio", 4)):
            shown = select(rows, panel=panel)
            assert len(shown) == curves * 7
            assert len(select(shown, alpha=None)) == (7 if panel != "ratio" else 0)

    def test_the_ratio_is_that_of_lemma_6(self):
        rows = select(show("maxinf_coefficients").rows, panel="ratio")
        for row in rows:
            expected = leading_term_ratio(row["alpha"], row["beta"])
            assert row["value"] == pytest.approx(expected)
        assert max(row["value"] for row in rows) == pytest.approx(1.95, abs=0.005)


class TestKappa:
    def test_csv_holds_exactly_the_lines_that_are_drawn(self):
        shown = show("maxinf_kappa")
        drawn = drawn_lines(shown.figure)
        for (panel, series, _), rows in series_of(shown.rows, KAPPA_SERIES).items():
            if panel != "moment":
                drawn.remove(line_of(rows, panel))
            elif series == "simulated":
                drawn.remove(line_of(rows, "y"))
                for end in ("low", "high"):
                    drawn.remove(tuple((row["y"], row[end]) for row in rows))
        for series in maxinf_kappa.MOMENTS:
            rows = select(shown.rows, panel="moment", series=series)
            drawn.remove(tuple(sorted(set(line_of(rows, "y")))))
        assert not drawn

    def test_every_point_stands_with_the_setting_that_gives_it(self):
        rows = [row for row in show("maxinf_kappa").rows if row["panel"] != "moment"]
        assert len(rows) == sum(map(len, AXES.values())) * (len(FORMS) + 1)
        for row in rows:
            n, m, T, delta = (row[name] for name in ("n", "m", "T", "delta"))
            if row["series"] == "confidence":
                expected = math.log(4 * math.sqrt(n) / delta) / n
            else:
                setting = (n, m, row["zeta_over_sigma"], 1.0, T, row["E"], delta / 2)
                expected = kappa_per_record(*setting, form=row["series"])
            assert row["value"] == pytest.approx(expected)

    def test_records_vary_at_fixed_batches_and_steps_at_fixed_records(self):
        rows = select(show("maxinf_kappa").rows, series="optimised")
        assert [row["m"] for row in select(rows, panel="n")] == [5000] * 4
        assert [row["T"] for row in select(rows, panel="n")] == [1, 4, 20, 100]
        assert [row["n"] for row in select(rows, panel="T")] == [50_000] * 3
        assert [row["m"] for row in select(rows, panel="T")] == [50_000, 10_000, 2000]

    def test_an_infinite_value_is_missing_and_the_panel_is_cut_off_above_the_others(self):
        record = kappa_record({**BASE, "zeta": 0.05}, {**AXES, "E": [1, 2, 5, 1000]})
        shown = show("maxinf_kappa", record, simulation_record())
        epochs = select(shown.rows, panel="E")
        repaired = select(epochs, series="repaired")
        assert repaired[-1]["value"] is None and repaired[-2]["value"] > 100
        assert shown_rows(shown)[shown.rows.index(repaired[-1])]["value"] == ""
        largest = max(row["value"] for row in epochs if row["series"] == "explicit")
        panel = shown.figure.axes[2]
        assert panel.get_xlabel() == "epochs $E$"
        assert largest < panel.get_ylim()[1] < 10 * largest
        assert "cut off" in shown.notes[0]

    def test_the_notes_say_what_is_fixed(self):
        note = show("maxinf_kappa").notes[0]
        for word in (
            "n = 50000",
            "m = 5000",
            "zeta = 0.01",
            "T = floor(n/m)",
            "m = floor(n/T)",
            "20 ind",
        ):
            assert word in note

    def test_moments_stand_as_logarithms_with_their_interval(self):
        rows = select(show("maxinf_kappa").rows, panel="moment")
        for row in rows:
            if row["series"] == "simulated":
                assert row["low"] <= row["value"] <= row["high"]
            else:
                moment = {"lemma_10": "lemma-10", "tight": "minimum"}[row["series"]]
                expected = batch_moment_exponent(row["y"], moment)
                assert row["value"] == pytest.approx(expected)
        drawn = select(rows, series="simulated")
        for row, found in zip(drawn, simulation_record()["metrics"]["rows"], strict=True):
            width = math.exp(row["high"]) - math.exp(row["low"])
            assert width == pytest.approx(2 * 1.95996 * found["standard_error"], rel=1e-4)
            assert row["y"] == pytest.approx(row["nu"] * row["x"])
            assert (row["m"], row["draws"]) == (20, 10_000)

    def test_an_interval_that_reaches_below_zero_has_no_lower_end(self):
        record = simulation_record()
        record["metrics"]["rows"][0]["standard_error"] = 10.0
        rows = show("maxinf_kappa", kappa_record(), record).rows
        first = select(rows, panel="moment", series="simulated")[0]
        assert first["low"] is None and first["high"] > 2

    def test_many_epochs_are_labelled_sparsely(self):
        record = kappa_record(axes={**AXES, "E": list(range(1, 31))})
        figure = show("maxinf_kappa", record, simulation_record()).figure
        ticks = figure.axes[2].get_xticks()
        assert 4 <= len(ticks) <= 6
        assert set(ticks) <= set(np.arange(1, 31))
