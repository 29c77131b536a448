"""Counts that training jobs share: passes through networks, features of frozen backbones."""

from collections.abc import Mapping
from typing import Any

from dpatlas.core.published_weights import IMPORTED
from dpatlas.cost.counting import Backbone, Work

# By model: number of inputs, multiplications and activations of a record's forward pass. Larger
# images cost in proportion, except in imported networks, which resize all images to one size.
NETWORKS: dict[str, tuple[int, float, float]] = {
    "linear": (64, 640, 10),
    "mlp": (64, 50_432, 394),
    "small-cnn-s": (64, 380_416, 2_570),
    "small-cnn-xs": (64, 159_296, 1_674),
    "small-cnn-t": (64, 93_632, 906),
    "bench-cnn": (3072, 38_600_000, 340_000),
    "resnet18": (3072, 555_000_000, 1_700_000),
    "wrn10-1": (3072, 12_500_000, 86_000),
    "wrn16-1": (3072, 26_700_000, 143_000),
    "wrn16-4": (3072, 388_000_000, 1_500_000),
    "alexnet": (3072, 15_000_000, 25_000),
    "mobilenet-v3": (3072, 66_459_000, 3_161_000),
    "vit-tiny": (3072, 345_600_000, 2_000_000),
    "imagenet-resnet18": (50_176, 1_814_000_000, 6_000_000),
    "imagenet-resnet50": (150_528, 4_089_000_000, 21_230_000),
    "imagenet-mobilenet-v3": (150_528, 216_600_000, 8_545_000),
    "imagenet-deit-tiny": (150_528, 1_254_000_000, 6_880_000),
    "imagenet-alexnet": (150_528, 714_200_000, 1_085_000),
    "moco-v2-resnet50": (150_528, 4_089_000_000, 21_230_000),
    "moco-v3-resnet50": (150_528, 4_089_000_000, 21_230_000),
}
RESIZING = {model for models in IMPORTED.values() for model in models}
# Options behind the ViT's entry in `NETWORKS`; those of other networks hardly change their work.
VIT = {"patch": 4, "dim": 192, "depth": 12, "mlp_ratio": 4}
USUAL: Mapping[str, Any] = {}
# Typical number of features of a backbone.
FEATURES_OF_A_BACKBONE = 256
# Share of a network's products in the parts that are trained, averaged over arms.
TRAINED_SHARE = 0.25
# `steps` per private update (keys, batch, noise, clip, bookkeeping) and per update of a regression.
VISITS_PER_UPDATE, VISITS_PER_REGRESSION = 5, 2
# `starts` of a job with an accountant, which takes half as long to load as torch.
PRIVATE_STARTS = 1.5
# Values of epsilon computed for a calibration and the ledger; points of an accuracy curve.
CALIBRATION_POINTS = 16
CURVE_POINTS = 21
# `steps` for the exact distribution after a step in one dimension; values of epsilon of a
# privacy_loss job.
VISITS_PER_LAW, ACCOUNTED_POINTS = 12, 60


def frozen_features(backbone: Backbone, inputs: int, records: int, disk_bytes: float) -> Work:
    """The work of a forward pass of every record."""
    multiplications, activations = network_work(backbone.model, inputs, backbone.options)
    counts = {
        "products": 2 * records * multiplications,
        "elements": records * activations,
        "starts": 1,
    }
    return Work(counts, disk_bytes)


def private_passes(
    model: str, inputs: int, visits: float, options: Mapping[str, Any] = USUAL
) -> dict[str, float]:
    """Counts of forward pass, both backward passes and clip, for this number of record visits."""
    multiplications, activations = network_work(model, inputs, options)
    return {"products": 8 * visits * multiplications, "elements": 3 * visits * activations}


def network_work(
    model: str, inputs: int, options: Mapping[str, Any] = USUAL
) -> tuple[float, float]:
    """Multiplications and activations of the forward pass of a record with `inputs` inputs.

    options: arguments of the network's builder that differ from its defaults.
    """
    reference, multiplications, activations = NETWORKS[model]
    share = 1 if model in RESIZING else inputs / reference
    if model == "vit-tiny":
        work, usual_work = _vit({**VIT, **options}), _vit(VIT)
        multiplications *= work[0] / usual_work[0]
        activations *= work[1] / usual_work[1]
    return multiplications * share, activations * share


def _vit(options: Mapping[str, Any]) -> tuple[float, float]:
    """Multiplications and outputs of the linear layers in a ViT's blocks, per pixel."""
    dim, ratio = options["dim"], options["mlp_ratio"]
    blocks = options["depth"] / options["patch"] ** 2
    return blocks * (4 + 2 * ratio) * dim**2, blocks * (5 + ratio) * dim
