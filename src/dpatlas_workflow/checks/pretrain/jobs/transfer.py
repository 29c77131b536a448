"""pretrain: accuracy of frozen features on the private data, compared with raw pixels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dpatlas.base.guard import integer
from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.base.seeds import generator, seed
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.backbone import Backbone, features, load
from dpatlas_workflow.checks.pretrain.jobs.examples import examples
from dpatlas_workflow.checks.pretrain.records.transfer import RECORD, TransferSpec
from dpatlas_workflow.run.private_records import check_fits

RAW = "raw pixels"
MAX_ITERATIONS = 5000
LEDGER = {
    "mechanism": "nearest neighbours and logistic regression without privacy",
    "neighbour_relation": None,
    "sampler": "none",
    "accountant": "none",
    "epsilon": None,
    "delta": None,
    "guaranteed": "nothing: measured on the private data, for the reader only",
    "claimed": None,
    "clip": None,
    "noise_multiplier": None,
    "chosen_on_private_data": "nothing: no run and no choice rests on this record",
    "holds_for": "nothing",
}


def transfer(job: Job) -> Outcome:
    """Measure raw pixels, then every backbone in the order of the spec's `backbones`.

    Raises InputError for folders that hold other backbones, and for data that are scaled
    differently from those that a backbone was trained on.
    """
    fields: TransferSpec = job.fields
    data = job.prepared
    backbones = [load(folder) for folder in job.backbones]
    ids = [backbone.manifest["training"]["spec_id"] for backbone in backbones]
    if ids != fields.backbones:
        raise InputError("--backbone", ids, f"backbones {fields.backbones}, in this order")
    splits = draw_splits(len(data.x_train), fields.n_test, fields.splits, fields.seed)
    rows: list[Row] = []
    with Progress(1 + len(backbones), job.spec.id) as progress:
        for backbone in [None, *backbones]:
            rows += measure(data, backbone, splits, fields.neighbours)
            progress.advance(rows[-1]["backbone"])
    facts = {
        "n_train": len(data.x_train) - fields.n_test,
        "n_test": fields.n_test,
        "classes": list(data.classes),
        "image_shape": list(data.image_shape),
    }
    return Outcome({**facts, "rows": rows, "examples": examples(data)}, LEDGER)


def draw_splits(n: int, n_test: int, splits: int, base_seed: int) -> list[np.ndarray]:
    """Test records of each split: the first n_test of a keyed permutation of n records."""
    integer(ge=1, lt=n).check("n_test", n_test)
    return [
        generator(seed("pretrain", use="split", base=base_seed, split=split)).permutation(n)[
            :n_test
        ]
        for split in range(splits)
    ]


def measure(
    data: Prepared, backbone: Backbone | None, splits: Sequence[np.ndarray], neighbours: int
) -> list[Row]:
    """Accuracies of a backbone, or of raw pixels; `splits`: test records among data.x_train."""
    x, y = data.x_train, data.y_train
    inputs = x if backbone is None else features(backbone.network, x)
    origin: dict[str, Any] = {"backbone": RAW, "architecture": None, "source": None, "sha256": None}
    zero_shot = None
    if backbone is not None:
        training = backbone.manifest["training"]
        check_fits(backbone, data)
        origin = {
            "backbone": training["spec_id"],
            "architecture": backbone.architecture,
            "source": training["data"]["name"],
            "sha256": backbone.sha256,
        }
        zero_shot = _zero_shot(backbone, inputs, data.classes)
    rows = []
    for split, test in enumerate(splits):
        train = np.setdiff1d(np.arange(len(y)), test)
        right = None if zero_shot is None else float((zero_shot[test] == y[test]).mean())
        row = {**origin, "features": inputs.shape[1], "split": split, "zero_shot": right}
        for name, classifier in _classifiers(neighbours).items():
            classifier.fit(inputs[train], y[train])
            row[name] = float(classifier.score(inputs[test], y[test]))
        rows.append(row)
    return rows


def _classifiers(neighbours: int) -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    return {
        "knn": KNeighborsClassifier(neighbours, algorithm="brute"),
        "logistic": LogisticRegression(max_iter=MAX_ITERATIONS),
    }


def _zero_shot(backbone: Backbone, inputs: np.ndarray, classes: Sequence[str]) -> np.ndarray | None:
    """The head's most likely class among the data's, (n,); None where the head lacks any of them.

    inputs: features (n, d).
    """
    if not set(classes) <= set(backbone.classes):
        return None
    outputs = [backbone.classes.index(name) for name in classes]
    return backbone.network.head(torch.from_numpy(inputs))[:, outputs].argmax(1).numpy()


KIND = Kind(transfer, record=RECORD, packages=("torch", "torchvision", "numpy", "scikit-learn"))
