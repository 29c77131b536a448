"""Records of kind `transfer`: accuracy of frozen features on private data.

n_train, n_test: records of a split. image_shape: channels, height, width.

`rows`, by backbone and split, raw pixels first. backbone: id of its run; architecture, source and
sha256: of its network, the data that it was trained on, and its weights, None of raw pixels.
features: number of features. Accuracies on the test records: zero_shot of the unchanged head, None
where its classes do not cover the data's; knn, logistic: of nearest neighbours and of logistic
regression.

`examples`: images of the data, as of `backbone`.
"""

from typing import Literal

from dpatlas.base.facts import DataFields
from dpatlas.base.fields import Model, setting
from dpatlas.base.records import RecordShape, SpecFields


class Splits(Model):
    """Random splits of the data, and what is measured on each."""

    n_test: int = setting("Number of test records in each split.", ge=1, le=59_999)
    splits: int = setting("Number of random splits.", ge=1, le=100)
    neighbours: int = setting("Number of nearest neighbours that vote.", ge=1, le=1000)


class TransferSpec(SpecFields, Splits):
    """Raw pixels, and `backbones`, ids of their runs."""

    key: Literal["pretrain"]
    kind: Literal["transfer"]
    seed: int
    data: DataFields
    backbones: list[str]


RECORD = RecordShape(
    TransferSpec,
    version=2,
    facts="n_train n_test classes image_shape",
    tables={
        "rows": "backbone architecture source sha256 features split zero_shot knn logistic",
        "examples": "class number image",
    },
)
