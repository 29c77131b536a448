"""Records of kind `imported`: a backbone with weights that others trained and published.

weights: the file, its name, `address` where it is published (None for one the config names) and
sha256. classes: number of classes of the published head, 0 without a head. features, parameters,
image_shape: as of a backbone that is trained here. difference: largest difference between the
features of the published network and of this one on made-up records, as a share of the largest
feature.
"""

from typing import Literal

from dpatlas.base.records import RecordShape, SpecFields


class ImportedSpec(SpecFields):
    """A network with published weights. sha256: first digits that the file's sha256 must have."""

    key: Literal["pretrain"]
    kind: Literal["imported"]
    source: str
    model: str
    options: dict[str, bool | int | list[int]]
    image_shape: list[int]
    sha256: str | None = None


RECORD = RecordShape(
    ImportedSpec,
    version=1,
    facts="weights classes features parameters image_shape difference backbone_sha256",
    tables={},
)
