"""The contact sheet of pretrain, on synthetic records."""

import numpy as np
import pytest
from figure_samples import shown_rows
from pretrain_sample_records import CLASSES, sample_records

from dpatlas.checks.pretrain.figures.pretrain_samples import pretrain_samples


def test_every_source_is_shown_once_beside_the_real_digits():
    rows = pretrain_samples(sample_records(), {}).rows
    shown = [(row["part"], row["source"]) for row in rows]
    assert shown.count(("real image", "digits")) == 40
    assert shown.count(("generated image", "strokes")) == 40
    assert [row["class"] for row in rows[:11]] == [*CLASSES, "0"]


def test_accuracies_are_means_over_splits_and_the_csv_holds_what_is_drawn():
    shown = pretrain_samples(sample_records(), {})
    raw, pen = (row for row in shown_rows(shown) if row["part"] == "transfer")
    assert raw["backbone"] == "raw pixels" and raw["zero_shot_mean"] == ""
    assert float(raw["knn_mean"]) == pytest.approx(0.91)
    assert pen["backbone"] == "pen" and float(pen["zero_shot_mean"]) == pytest.approx(0.85)
    assert float(pen["zero_shot_standard_error"]) == pytest.approx(0.05)
    axes = shown.figure.axes[-1]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["raw pixels", "pen"]
    assert axes.get_title("left") == "accuracy on digits with frozen features"
    drawn = [line.get_xdata() for line in axes.get_lines()]
    drawn += [bar[:, 0] for bars in axes.collections for bar in bars.get_segments() if len(bar)]
    for row in (raw, pen):
        for measure in ("zero_shot", "knn", "logistic"):
            if row[f"{measure}_mean"]:
                mean, error = (float(row[f"{measure}_{x}"]) for x in ("mean", "standard_error"))
                assert any(np.isclose(x, mean).any() for x in drawn)
                interval = mean - error, mean + error
                assert any(len(x) == 2 and np.allclose(x, interval) for x in drawn)


def test_a_source_that_keeps_no_images_has_no_sheet():
    records = sample_records()
    for record in records:
        if record.kind == "backbone":
            record.tables["examples"] = []
    shown = pretrain_samples(records, {})
    assert {row["source"] for row in shown.rows if "image" in row["part"]} == {"digits"}
