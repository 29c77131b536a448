"""What counts of training jobs share: passes through networks, features of frozen backbones."""

from collections.abc import Mapping
from typing import Any

from dpatlas.core.published_weights import IMPORTED
from dpatlas.cost.counting import Backbone, Work

# By model: inputs of a record, multiplications and activations of it, forward. Larger images cost
# in proportion, but for imported networks, which stretch whatever they are given to one size.
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
STRETCHING = {model for models in IMPORTED.values() for model in models}
# Options that set the ViT's size, as `NETWORKS` counts it; those of other networks hardly matter.
VIT = {"patch": 4, "dim": 192, "depth": 12, "mlp_ratio": 4}
USUAL: Mapping[str, Any] = {}
# Features that a backbone hands to a regression; a round number.
FEATURES_OF_A_BACKBONE = 256
# Of a network's products that the trained last parts take, over all arms.
TRAINED_SHARE = 0.25
# Of an audited mechanism: updates of a run, and values of epsilon for its profile and ledger.
ATTACKED_UPDATES, PROFILE_POINTS = 4, 11
# A private update draws keys, a batch and noise, clips, and is looked at: this many visits.
VISITS_PER_UPDATE, VISITS_PER_ATTACK, VISITS_PER_REGRESSION = 5, 8, 2
# A run of Langevin SGD that is attacked, all of it.
VISITS_PER_LANGEVIN = 4
# The accountant takes half as long to load as torch does.
PRIVATE_STARTS = 1.5
# Values of epsilon that a calibration and the ledger ask for.
CALIBRATION_POINTS = 16
CURVE_POINTS = 21
# Visits for the exact law of one dimension after a step; curves and points of privacy_loss.
VISITS_PER_LAW, ACCOUNTED_POINTS = 12, 60


def frozen_features(backbone: Backbone, inputs: int, records: int, disk_bytes: float) -> Work:
    """A forward pass of every record."""
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
    """Forward, both backward passes and the clip of so many records; as `network_work`."""
    multiplications, activations = network_work(model, inputs, options)
    return {"products": 8 * visits * multiplications, "elements": 3 * visits * activations}


def network_work(
    model: str, inputs: int, options: Mapping[str, Any] = USUAL
) -> tuple[float, float]:
    """Multiplications and activations of a record of so many inputs.

    options: of the network's builder, where they are not the usual ones.
    """
    reference, multiplications, activations = NETWORKS[model]
    share = 1 if model in STRETCHING else inputs / reference
    if model == "vit-tiny":
        chosen, usual = _vit({**VIT, **options}), _vit(VIT)
        multiplications *= chosen[0] / usual[0]
        activations *= chosen[1] / usual[1]
    return multiplications * share, activations * share


def _vit(options: Mapping[str, Any]) -> tuple[float, float]:
    """What the linear layers of a ViT's blocks multiply and give, per pixel of the image."""
    dim, ratio = options["dim"], options["mlp_ratio"]
    blocks = options["depth"] / options["patch"] ** 2
    return blocks * (4 + 2 * ratio) * dim**2, blocks * (5 + ratio) * dim
