"""The contact sheet of pretrain, on synthetic records."""

import pytest
from block_worlds import worlds_of
from figure_samples import shown_rows

from dpatlas_workflow.checks.pretrain.figures.pretrain_samples import MEASURES, pretrain_samples

CLASSES, sample_records = worlds_of("pretrain").CLASSES, worlds_of("pretrain").sample_records


def test_every_source_that_keeps_images_is_shown_once_beside_the_real_digits():
    records = sample_records()
    rows = pretrain_samples(records, {}).rows
    shown = [(row["part"], row["source"]) for row in rows]
    assert shown.count(("real image", "digits")) == 40
    assert shown.count(("generated image", "strokes")) == 40
    assert [row["class"] for row in rows[:11]] == [*CLASSES, "0"]
    for record in records:
        if record.kind == "backbone":
            record.tables["examples"] = []
    rows = pretrain_samples(records, {}).rows
    assert {row["source"] for row in rows if "image" in row["part"]} == {"digits"}


def test_accuracies_are_means_over_splits_and_the_csv_holds_what_is_drawn():
    shown = pretrain_samples(sample_records(), {})
    raw, pen = (row for row in shown_rows(shown) if row["part"] == "transfer")
    assert raw["backbone"] == "raw pixels" and raw["zero_shot_mean"] == ""
    assert float(raw["knn_mean"]) == pytest.approx(0.91)
    assert pen["backbone"] == "pen" and float(pen["zero_shot_mean"]) == pytest.approx(0.85)
    assert float(pen["zero_shot_standard_error"]) == pytest.approx(0.05)
    *sheets, panel = shown.panels
    assert all(sheet.image is not None for sheet in sheets)
    assert list(panel.y.ticks.values()) == ["raw pixels", "pen"]
    assert panel.title == "accuracy on digits with frozen features"
    drawn = {
        (each.look.label, round(y)): (x, left, right)
        for each in panel.series
        for x, y, left, right in zip(each.x, each.y, each.left, each.right, strict=True)
    }
    for place, row in enumerate((raw, pen)):
        for name, look in MEASURES.items():
            if row[f"{name}_mean"]:
                mean, error = (float(row[f"{name}_{x}"]) for x in ("mean", "standard_error"))
                expected = pytest.approx((mean, mean - error, mean + error))
                assert drawn.pop((look.label, place)) == expected
    assert not drawn
