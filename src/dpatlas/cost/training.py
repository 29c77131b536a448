"""What counts of training jobs share: passes through networks, features of frozen backbones."""

from collections.abc import Mapping
from typing import Any

from dpatlas.core import networks
from dpatlas.cost.counting import Backbone, Work

# By model: inputs of a record, multiplications and activations of it, forward. Larger images cost
# in proportion, but for imported networks, which stretch whatever they are given to one size.
NETWORKS: dict[str, tuple[int, float, float]] = {
    name: (each.inputs, each.multiplications, each.activations)
    for name, each in networks.NETWORKS.items()
}
STRETCHING = {name for name, each in networks.NETWORKS.items() if each.weights}
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
