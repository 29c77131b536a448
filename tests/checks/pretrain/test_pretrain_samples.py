"""What the contact sheet of pretrain shows, on synthetic records."""

import numpy as np
import pytest
from figure_samples import csv_rows, sample_record

from dpatlas.checks.pretrain.figures.pretrain_samples import levels, pretrain_samples
from dpatlas.checks.pretrain.records import backbone, transfer
from dpatlas.errors import InputError
from dpatlas.show.output import figure_files

IMAGE = "0123456789abcdefg" + "0" * 47
SHA256 = "0" * 64


def sample_records(examples=True):
    """Two backbones of one source, and the transfer to digits; their images, if there are any."""
    classes = [*"0123456789"]
    shown = {
        "classes": classes,
        "image_shape": [1, 8, 8],
        "examples": {name: [IMAGE, IMAGE[::-1]] * 5 for name in classes},
    }
    trained = {
        **shown,
        **{"n_train": 40, "n_test": 10, "parameters": 100, "features": 128, "steps": 5},
        **{"loss": [2.0], "accuracy": 0.9, "backbone_sha256": SHA256},
        "examples": shown["examples"] if examples else None,
    }
    common = {"key": "pretrain", "seed": 0}
    settings = {
        **{"options": {}, "epochs": 1, "batch": 8, "lr": 0.01},
        **{"weight_decay": 0.01, "label_smoothing": 0.05},
    }
    rows = [
        {
            **{"backbone": "raw pixels", "architecture": None, "source": None, "sha256": None},
            **{"features": 64, "zero_shot": None, "knn": [0.9, 0.92], "logistic": [0.95, 0.95]},
        },
        {
            **{"backbone": "pen-01234567", "architecture": "mlp", "source": "strokes"},
            **{"sha256": SHA256, "features": 128, "zero_shot": [0.8, 0.9]},
            **{"knn": [0.9, 1.0], "logistic": [1.0, 0.9]},
        },
    ]
    measured = {
        **{"kind": "transfer", "data": {"name": "digits"}, "backbones": ["pen-01234567"]},
        **{"n_test": 500, "splits": 2, "neighbours": 5},
    }
    return [
        *(
            sample_record(
                backbone.Spec(
                    **{**common, "kind": "backbone", "data": {"name": "strokes"}},
                    **{**settings, "model": model},
                ),
                backbone.Metrics(**trained),
            )
            for model in ("s", "mlp")
        ),
        sample_record(
            transfer.Spec(**{**common, **measured}),
            transfer.Metrics(**shown, n_test=500, n_train=1297, rows=rows),
        ),
    ]


def test_every_source_is_shown_once_beside_the_real_digits():
    rows = pretrain_samples(sample_records(), {}).rows
    found = [(row["part"], row["source"]) for row in rows]
    assert found.count(("real image", "digits")) == 40
    assert found.count(("generated image", "strokes")) == 40
    assert [row["class"] for row in rows[:11]] == [*"0123456789", "0"]


def test_accuracies_are_means_over_splits():
    files = figure_files("f", pretrain_samples(sample_records(), {}), "trial")
    rows = csv_rows(files["f.csv"])
    raw, pen = (row for row in rows if row["part"] == "transfer")
    assert raw["backbone"] == "raw pixels" and raw["zero_shot_mean"] == ""
    assert float(raw["knn_mean"]) == pytest.approx(0.91)
    assert pen["backbone"] == "pen" and float(pen["zero_shot_mean"]) == pytest.approx(0.85)
    assert float(pen["zero_shot_standard_error"]) == pytest.approx(0.05)


def test_a_character_is_a_grey_level():
    image = levels(IMAGE, (1, 8, 8))
    np.testing.assert_array_equal(image.ravel()[:17], np.arange(17) / 16)
    assert image.shape == (8, 8)


def test_a_source_that_keeps_no_images_has_no_sheet():
    shown = pretrain_samples(sample_records(examples=False), {})
    assert {row["source"] for row in shown.rows if "image" in row["part"]} == {"digits"}


def test_records_without_the_measurement_are_refused():
    with pytest.raises(InputError, match="0 of kind transfer"):
        pretrain_samples(sample_records()[:2], {})
