"""The work of pretrain's jobs."""

from dpatlas.checks.pretrain.records.backbone import Spec as Trained
from dpatlas.checks.pretrain.records.imported import Spec as Imported
from dpatlas.checks.pretrain.records.transfer import Spec as Transfer
from dpatlas.config.sizes import array_mb
from dpatlas.core.networks import PUBLISHED
from dpatlas.cost.counting import RECORD_BYTES, Backbone, JobCost, Size, Work
from dpatlas.cost.training import (
    FEATURES_OF_A_BACKBONE,
    VISITS_PER_UPDATE,
    network_work,
)

# Peak memory in MB, measured and rounded up: of a training without its images, and a factor on the
# images' size for their copies.
BASE_MB, IMAGE_COPIES = 1100, 3
# Operations of both classifiers' fits and predictions, per pair of records and feature.
PRODUCTS_PER_FIT = 30


def backbone(fields: Trained, size: Size, backbone: Backbone | None) -> Work:
    """Forward pass and both backward passes over every image in every epoch."""
    multiplications, activations = network_work(fields.model, size.inputs, fields.options)
    visits = fields.epochs * size.n_train
    counts = {
        "products": 6 * visits * multiplications,
        "elements": 3 * visits * activations,
        "steps": visits / fields.batch * VISITS_PER_UPDATE,
        "starts": 2,
    }
    return Work(counts, 4 * RECORD_BYTES)


def imported(fields: Imported, size: Size, backbone: Backbone | None) -> Work:
    """One record through the published network and through ours; a download takes no CPU."""
    multiplications, activations = network_work(fields.model, size.inputs, fields.options)
    counts = {"products": 4 * multiplications, "elements": 2 * activations, "starts": 2}
    return Work(counts, 4 * RECORD_BYTES)


def transfer(fields: Transfer, size: Size, backbone: Backbone | None) -> Work:
    """Nearest neighbours by brute force and a logistic regression, per split and backbone."""
    fits = fields.splits * (1 + len(fields.backbones))
    products = size.n_train**2 * FEATURES_OF_A_BACKBONE
    counts = {"products": fits * PRODUCTS_PER_FIT * products, "starts": 2}
    return Work(counts, 8 * RECORD_BYTES)


def data_mb(fields: Trained | Transfer) -> int:
    """Peak memory of a job in MB, with copies of the images and a batch's activations."""
    return round(BASE_MB + IMAGE_COPIES * array_mb(fields.data))


def imported_mb(fields: Imported) -> int:
    """Peak memory of a job in MB, with the weights in both networks and in both files."""
    return PUBLISHED[fields.model].import_mb


KINDS = {
    "backbone": JobCost(backbone, data_mb, lower=("batch", "n_train"), gpu=True),
    "imported": JobCost(imported, imported_mb, lower=("batch", "n_train")),
    "transfer": JobCost(transfer, data_mb, lower=("transfer.data.n_train", "n_test")),
}
