"""The work of pretrain's jobs."""

from collections.abc import Mapping
from typing import Any

from dpatlas.config.sizes import array_mb
from dpatlas.cost.counting import RECORD_BYTES, JobCost, Size, Work
from dpatlas.cost.training import (
    FEATURES_OF_A_BACKBONE,
    VISITS_PER_UPDATE,
    network_work,
)


def backbone(fields: Mapping[str, Any], size: Size) -> Work:
    """Forward and both backward passes over every image in every epoch."""
    multiplications, activations = network_work(fields, size.inputs)
    visits = fields["epochs"] * size.n_train
    counts = {
        "products": 6 * visits * multiplications,
        "elements": 3 * visits * activations,
        "steps": visits / fields["batch"] * VISITS_PER_UPDATE,
        "starts": 2,
    }
    return Work(counts, 4 * RECORD_BYTES)


def imported(fields: Mapping[str, Any], size: Size) -> Work:
    """One record through the published network and through ours; a download takes no CPU."""
    multiplications, activations = network_work(fields, size.inputs)
    counts = {"products": 4 * multiplications, "elements": 2 * activations, "starts": 2}
    return Work(counts, 4 * RECORD_BYTES)


def transfer(fields: Mapping[str, Any], size: Size) -> Work:
    """Neighbours by brute force and a logistic regression, by split and backbone."""
    fits = fields["splits"] * (1 + len(fields["backbones"]))
    products = size.n_train**2 * FEATURES_OF_A_BACKBONE
    return Work({"products": fits * 30 * products, "starts": 2}, 8 * RECORD_BYTES)


def memory_mb(fields: Mapping[str, Any]) -> int:
    """Peak memory of a job in MB: interpreter and torch, images, a batch's activations."""
    if fields["kind"] == "imported":
        # The weights as they are read, in the published network, in ours and as they are written.
        return 2100 if fields["model"] == "imagenet-alexnet" else 1500
    return round(1100 + 3 * array_mb(fields["data"]))


KINDS = {
    "backbone": JobCost(backbone, memory_mb, lower=("batch", "n_train"), gpu=True),
    "imported": JobCost(imported, memory_mb, lower=("batch", "n_train")),
    "transfer": JobCost(transfer, memory_mb, lower=("transfer.data.n_train", "n_test")),
}
