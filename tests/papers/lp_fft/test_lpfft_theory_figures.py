"""What the figures of lp_fft's simulated theory show, on small simulations."""

import numpy as np
import pytest
from figure_samples import maker, select
from lpfft_theory_sample_records import RECORDS, theory_record

from dpatlas_workflow.statistics import Estimate


def show(name, *records):
    return maker(name)(list(records) or RECORDS[name](), {})


@pytest.fixture(scope="module", name="theory")
def rows_of_the_theory_figure():
    return show("lpfft_theory").rows


def values(rows, column="value", **keys):
    return [row[column] for row in select(rows, **keys)]


def test_simulated_means_have_the_intervals_of_their_standard_errors(theory):
    probing = theory_record("dynamics").facts["probing"]
    rows = select(theory, panel="head norm", series="simulated")
    for row, norm, error in zip(rows, probing["norm"], probing["norm_standard_error"], strict=True):
        assert (row["low"], row["high"]) == Estimate(norm, error, np.inf, 2).interval(0.95)


def test_losses_are_shown_over_their_bounds(theory):
    (tuned,) = theory_record("dynamics").tables["fine_tuning"]
    rows = select(theory, panel="loss over bound", series=r"Thm 4.5, $d$ = 4, $h$ = 3")
    assert values(rows) == [
        loss / bound for loss, bound in zip(tuned["loss"], tuned["bound"], strict=True)
    ]
    errors = [(row["high"] - row["value"]) / 1.959964 for row in rows]
    assert errors == pytest.approx(
        np.divide(tuned["standard_error"], tuned["bound"]).tolist(), rel=1e-5
    )


def test_cases_outside_their_brackets_are_shown_as_counted(theory):
    rows = select(theory, panel="outside the bracket")
    counts = theory_record("dynamics").tables["counts"]
    assert values(rows, "trials") == [count["cases"] for count in counts for _ in range(4)]
    for column, series in (("diffusion_below", "diffusion <"), ("zeroth_above", "zeroth >")):
        counted = [count[column] for count in counts]
        assert values(rows, "count", series=series) == counted
    assert all(row["value"] == row["count"] / row["trials"] for row in rows)
    words = [each.text.split(" of\n") for each in show("lpfft_theory").panels[-1].words]
    assert words == [[str(row["count"]), str(row["trials"])] for row in rows]


def test_brackets_are_those_of_the_last_noise_but_one_and_of_the_worst_draw():
    record = theory_record("dynamics")
    losses = select(record.tables["relu"], phase="head", draw=0)
    worst = select(record.tables["relu"], phase="all", heads="random", **{"class": -1})[0]
    worst["zeroth"][0] = 100 * worst["upper"][0]
    rows = show("lpfft_theory", record).rows
    first = next(row for row in losses if row["sigma"] == 0.5)
    assert values(rows, panel="LP bracket", series="lower") == [first["start"], *first["lower"]]
    assert values(rows, panel="FFT bracket", series="zeroth") == [worst["start"], *worst["zeroth"]]
    assert values(rows, panel="FFT bracket", series="diffusion") == worst["diffusion"]
    assert values(rows, "x", panel="FFT bracket", series="zeroth") == [0.0, *record.facts["times"]]


def test_distortion_is_shown_with_the_record_s_intervals():
    shown = show("lpfft_distortion").rows
    clusters = theory_record("distortion").tables["clusters"]
    for number, series in enumerate((r"$\beta_h$ = 0.01", r"$\beta_h$ = 100")):
        rows = select(shown, panel="distortion, clusters", series=series)
        for name in ("low", "high", "count", "trials"):
            assert values(rows, name) == [row[name] for row in clusters[number::2]]
        assert values(rows, "x") == [1, 2]


def test_the_gap_is_shown_in_percent_and_formulas_for_uniform_noise_alone():
    tables, rows = theory_record("imbalance").tables, show("lpfft_imbalance").rows
    gap = values(rows, panel="Jensen gap in percent", series=r"$\sigma$ = 100")
    assert gap == pytest.approx([100 * value for value in tables["gap"][1]["gap"]])
    drift = select(rows, panel="change of the mean eigenvalue")
    assert values(drift, series="printed, uniform") == tables["drift"][0]["paper"]
    assert values(drift, series="corrected, uniform") == tables["drift"][0]["exact"]
    assert len({row["series"] for row in drift}) == 4


def test_sensitivities_are_those_of_the_record_by_reading():
    tables, shown = theory_record("sensitivity").tables, show("lpfft_sensitivity")
    rows = shown.rows
    by_reading = {
        reading: [row for row in tables["start"] if row["reading"] == reading]
        for reading in ("variance", "deviation")
    }
    heads = [row["record_head"] for row in by_reading["variance"]]
    assert values(rows, panel="sensitivity", series="head") == heads
    assert "left: over the records, variance" in shown.notes[0]
    ratios = values(rows, panel="ratio at the start", series=r"unit ball, deviation $h/\sqrt{d}$")
    assert ratios == [row["ball_ratio"] for row in by_reading["deviation"]]
