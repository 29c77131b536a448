"""Counts that training jobs share: passes through networks, features of frozen backbones."""

from collections.abc import Mapping
from typing import Any

from dpatlas.core.networks import NETWORKS
from dpatlas.cost.counting import Backbone, Work

# Options behind the ViT's entry in `NETWORKS`; those of other networks hardly change their work.
VIT = {"patch": 4, "dim": 192, "depth": 12, "mlp_ratio": 4}
USUAL: Mapping[str, Any] = {}
# Typical number of features of a backbone.
FEATURES_OF_A_BACKBONE = 256
# Share of a network's products in the parts that are trained, averaged over arms.
TRAINED_SHARE = 0.25
# `steps` per private update (keys, batch, noise, clip, bookkeeping) and per update of a regression.
VISITS_PER_UPDATE, VISITS_PER_REGRESSION = 5, 3
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
    network = NETWORKS[model]
    multiplications, activations = network.multiplications, network.activations
    share = 1 if network.weights else inputs / network.inputs
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
