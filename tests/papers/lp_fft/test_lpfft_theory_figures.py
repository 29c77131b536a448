"""What the figures of lp_fft's simulated theory show, on small made-up records."""

import numpy as np
import pytest
from figure_samples import drawn_lines, in_style, maker, select
from lpfft_theory_sample_records import (
    RECORDS,
    distortion_record,
    dynamics_record,
    imbalance_record,
)

from dpatlas.core.statistics import Estimate
from dpatlas.errors import InputError


def show(name, records=None):
    return in_style(maker(name), RECORDS[name]() if records is None else records, {})


def by_series(rows):
    found = {}
    for row in rows:
        found.setdefault((row["panel"], row["series"]), []).append(row)
    return found


@pytest.mark.parametrize("name", RECORDS)
def test_csv_holds_every_line_that_is_drawn(name):
    shown = show(name)
    drawn = {tuple(np.round(line, 9).ravel()) for line in drawn_lines(shown.figure)}
    for (panel, series), rows in by_series(shown.rows).items():
        # Bars are no lines, and points on clusters are drawn side by side.
        if panel == "outside the bracket" or (panel == "distortion, clusters" and "low" in rows[0]):
            continue
        line = np.array([(row["x"], row["value"]) for row in rows], float)
        assert tuple(np.round(line, 9).ravel()) in drawn, (panel, series)


@pytest.mark.parametrize("name", RECORDS)
def test_a_figure_needs_exactly_one_record_of_its_kinds(name):
    records = RECORDS[name]()
    for record in records:
        kind = record.kind
        with pytest.raises(InputError, match=f"2 of kind {kind}"):
            show(name, [*records, record])
        with pytest.raises(InputError, match=f"0 of kind {kind}"):
            show(name, [other for other in records if other is not record])


def test_intervals_are_those_of_the_standard_error():
    record = dynamics_record()
    rows = select(show("lpfft_theory").rows, panel="head norm", series="simulated")
    for k, row in enumerate(rows):
        norm = record.metrics.probing.norm[k]
        expected = Estimate(norm, 0.01, np.inf, 2).interval(0.95)
        assert (row["low"], row["high"]) == expected


def test_losses_are_shown_over_their_bounds():
    rows = by_series(select(show("lpfft_theory").rows, panel="loss over bound"))
    assert len(rows) == 4
    tuned = rows["loss over bound", "Thm 4.5, $d$ = 10, $h$ = 8"]
    assert [row["value"] for row in tuned] == [0.5, 1.5, 4.0]
    assert tuned[2]["high"] - tuned[2]["value"] == pytest.approx(1.96 * 0.1, rel=1e-3)


def test_cases_outside_are_shown_as_counted():
    rows = select(show("lpfft_theory").rows, panel="outside the bracket")
    assert len(rows) == 3 * 4
    for row in rows:
        assert row["value"] == row["count"] / row["trials"] and row["trials"] == 6
    (row,) = select(rows, series="diffusion <", x="LP, Thm 4.2")
    assert row["count"] == 2


def test_brackets_are_those_of_the_middle_noise_and_of_the_worst_draw():
    rows = by_series(show("lpfft_theory").rows)
    assert rows["LP bracket", "zeroth"][0]["value"] == pytest.approx(1.1)
    worst = rows["FFT bracket", "zeroth"]
    assert worst[1]["value"] == pytest.approx(3 * 1.05 / 1.5)
    assert worst[0]["x"] == 0
    assert len(rows["FFT bracket", "diffusion"]) == len(worst) - 1


def test_distortion_is_shown_with_the_record_s_intervals():
    record, rows = distortion_record(), by_series(show("lpfft_theory").rows)
    for place, series in enumerate((r"$\beta_h$ = 0.01", r"$\beta_h$ = 1", r"$\beta_h$ = 100")):
        shown = rows["distortion, clusters", series]
        found = record.metrics.clusters[place::3]
        for name in ("low", "high", "count", "trials"):
            assert [row[name] for row in shown] == [getattr(row, name) for row in found]
        assert [row["x"] for row in shown] == [1, 2, 4]


def test_the_gap_is_shown_in_percent_and_lines_of_uniform_noise_alone():
    rows = by_series(show("lpfft_imbalance", [imbalance_record()]).rows)
    gap = rows["Jensen gap in percent", r"$\sigma$ = 100"]
    assert [row["value"] for row in gap] == pytest.approx([0, 1.0, 1.1])
    panel = "change of the mean eigenvalue"
    assert rows[panel, "printed, uniform"][-1]["value"] == -0.18
    assert rows[panel, "corrected, uniform"][-1]["value"] == -0.36
    assert len([series for shown, series in rows if shown == panel]) == 4


def test_sensitivities_are_those_of_the_records_under_the_printed_reading():
    rows = by_series(show("lpfft_sensitivity").rows)
    assert [row["value"] for row in rows["sensitivity", "head"]] == [1.0, 0.5, 0.25]
    growth = rows["ratio at the start", r"unit ball, deviation $h/\sqrt{d}$"]
    assert growth[2]["value"] / growth[0]["value"] == pytest.approx(2)
