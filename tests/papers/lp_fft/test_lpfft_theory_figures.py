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


def test_the_gap_is_shown_in_percent_and_formulas_for_uniform_noise_alone():
    tables, rows = theory_record("imbalance").tables, show("lpfft_imbalance").rows
    gap = values(rows, panel="Jensen gap in percent", series=r"$\sigma$ = 100")
    assert gap == pytest.approx([100 * value for value in tables["gap"][1]["gap"]])
    drift = select(rows, panel="change of the mean eigenvalue")
    assert values(drift, series="printed, uniform") == tables["drift"][0]["paper"]
    assert values(drift, series="corrected, uniform") == tables["drift"][0]["exact"]
    assert len({row["series"] for row in drift}) == 4
