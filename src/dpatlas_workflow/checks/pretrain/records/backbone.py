"""Records of kind `backbone`: supervised training of a public backbone.

n_train, n_test: numbers of images. parameters: of the network; features: width of the last layer
before the head. steps: of the training. accuracy: on the held-out images. image_shape: channels,
height, width.

`epochs`: by epoch the loss, mean over its steps. `examples`: the first images of each class, by
class and number, as `jobs.examples` writes them; none of data of another scale.
"""

from typing import Literal

from dpatlas.base.facts import DataFields
from dpatlas.base.records import RecordShape, SpecFields
from dpatlas_workflow.pretraining import (
    Epochs,
    ImageBatch,
    LabelSmoothing,
    LargestRate,
    Moved,
    WeightDecay,
)


class BackboneSpec(SpecFields):
    """AdamW with the one-cycle schedule of the learning rate, whose peak is lr.

    options: arguments of the network's builder. declared_public: the reason why data that are not
    generated count as public. augmentation: how images are moved; None for not at all.
    """

    key: Literal["pretrain"]
    kind: Literal["backbone"]
    seed: int
    data: DataFields
    model: str
    options: dict[str, bool | int | list[int]]
    epochs: Epochs
    batch: ImageBatch
    lr: LargestRate
    weight_decay: WeightDecay
    label_smoothing: LabelSmoothing
    declared_public: str | None = None
    augmentation: Moved | None = None


RECORD = RecordShape(
    BackboneSpec,
    version=2,
    facts="n_train n_test classes parameters features steps accuracy backbone_sha256 image_shape",
    tables={"epochs": "epoch loss", "examples": "class number image"},
)
