"""Small records of two backbones and of the transfer to digits."""

from figure_samples import sample_record
from small_jobs import PRETRAIN

from dpatlas.base.records import rows_of
from dpatlas_workflow.checks.pretrain.records.backbone import BackboneSpec
from dpatlas_workflow.checks.pretrain.records.transfer import TransferSpec

IMAGE = "0123456789abcdefg" + "0" * 47
CLASSES = [*"0123456789"]
SHA256 = "0" * 64


def sample_records():
    """Two backbones of one source, and the transfer to digits, with their images."""
    shown = {
        "classes": CLASSES,
        "image_shape": [1, 8, 8],
        "examples": rows_of(
            {"class": CLASSES, "number": range(10)}, image=[[IMAGE, IMAGE[::-1]] * 5] * 10
        ),
    }
    trained = {
        **{"n_train": 40, "n_test": 10, "parameters": 100, "features": 128, "steps": 5},
        **{"accuracy": 0.9, "backbone_sha256": SHA256, "epochs": [{"epoch": 0, "loss": 2.0}]},
        **shown,
    }
    raw = {
        **{"backbone": "raw pixels", "architecture": None, "source": None, "sha256": None},
        "features": 64,
    }
    pen = {
        **{"backbone": "pen-01234567", "architecture": "mlp", "source": "strokes"},
        **{"sha256": SHA256, "features": 128},
    }
    rows = [
        {**raw, "split": 0, "zero_shot": None, "knn": 0.9, "logistic": 0.95},
        {**raw, "split": 1, "zero_shot": None, "knn": 0.92, "logistic": 0.95},
        {**pen, "split": 0, "zero_shot": 0.8, "knn": 0.9, "logistic": 1.0},
        {**pen, "split": 1, "zero_shot": 0.9, "knn": 1.0, "logistic": 0.9},
    ]
    measured = TransferSpec(
        **{"key": "pretrain", "kind": "transfer", "seed": 0, "data": {"name": "digits"}},
        **{"backbones": ["pen-01234567"], "n_test": 500, "splits": 2, "neighbours": 5},
    )
    metrics = {**shown, "n_test": 500, "n_train": 1297, "rows": rows}
    specs = [BackboneSpec(**{**PRETRAIN, "model": model}) for model in ("s", "mlp")]
    return [*(sample_record(spec, trained) for spec in specs), sample_record(measured, metrics)]


SHOWN = {"pretrain_samples": lambda: (sample_records(), {})}
