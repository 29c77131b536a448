"""The work of jobs that train networks and regressions: audit, pretrain and dp_sgld."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpatlas.checks.audit.settings import RUNS
from dpatlas.config.imported import IMPORTED
from dpatlas.cost.counting import BYTES_PER_NUMBER, RECORD_BYTES, Size, Work

# By model: inputs of a record, multiplications and activations of it, forward. Larger images cost
# in proportion, but for imported networks, which stretch whatever they are given to one size.
NETWORKS = {
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


def audit_mechanism(fields: Mapping[str, Any], size: Size) -> Work:
    """Runs of a few updates of a tiny model, each update attacked; the guaranteed profile."""
    langevin = fields["mechanism"] in RUNS
    visits = VISITS_PER_LANGEVIN if langevin else ATTACKED_UPDATES * VISITS_PER_ATTACK
    counts = {
        "steps": 2 * fields["runs"] * visits,
        "accountings": PROFILE_POINTS,
        "starts": PRIVATE_STARTS,
    }
    return Work(counts, RECORD_BYTES)


def audit_training(fields: Mapping[str, Any], size: Size) -> Work:
    """Per update: forward, both backward passes and the clip; canaries once more, and their Gram.

    Three sweeps over the activations for what is not a product.
    """
    canaries = fields["canaries"]
    updates = fields["runs"] * fields["steps"]
    visits = updates * (fields["batch"] + (size.records + 2 * canaries if canaries else 0))
    counts = {
        **private_passes(fields, size.inputs, visits),
        "steps": updates * VISITS_PER_UPDATE,
        "accountings": CALIBRATION_POINTS,
        "starts": PRIVATE_STARTS,
    }
    numbers = fields["runs"] * 3 * CURVE_POINTS + canaries
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers, on_gpu=True)


def pretrain_backbone(fields: Mapping[str, Any], size: Size) -> Work:
    """Forward and both backward passes over every image in every epoch."""
    multiplications, activations = _network(fields, size.inputs)
    visits = fields["epochs"] * size.n_train
    counts = {
        "products": 6 * visits * multiplications,
        "elements": 3 * visits * activations,
        "steps": visits / fields["batch"] * VISITS_PER_UPDATE,
        "starts": 2,
    }
    return Work(counts, 4 * RECORD_BYTES, on_gpu=True)


def pretrain_imported(fields: Mapping[str, Any], size: Size) -> Work:
    """One record through the published network and through ours; a download takes no CPU."""
    multiplications, activations = _network(fields, size.inputs)
    counts = {"products": 4 * multiplications, "elements": 2 * activations, "starts": 2}
    return Work(counts, 4 * RECORD_BYTES)


def pretrain_transfer(fields: Mapping[str, Any], size: Size) -> Work:
    """Neighbours by brute force and a logistic regression, by split and backbone."""
    fits = fields["splits"] * (1 + len(fields["backbones"]))
    products = size.n_train**2 * FEATURES_OF_A_BACKBONE
    return Work({"products": fits * 30 * products, "starts": 2}, 8 * RECORD_BYTES)


def frozen_features(
    network: Mapping[str, Any], inputs: int, records: int, disk_bytes: float
) -> Work:
    """A forward pass of every record; `network` as `private_passes` takes it."""
    multiplications, activations = _network(network, inputs)
    counts = {
        "products": 2 * records * multiplications,
        "elements": records * activations,
        "starts": 1,
    }
    return Work(counts, disk_bytes, on_gpu=True)


def sgld_accuracy(fields: Mapping[str, Any], size: Size) -> Work:
    """Every arm tries its grid and runs its best setting."""
    grid, n, batch = fields["grid"], size.n_train, fields["batch"]
    epochs, steps = _mean(grid["epochs"]) * math.ceil(n / batch), _mean(grid["steps"])
    schedules = 2 if fields["schedule"] == "both" else 1
    cyclic = fields["schedule"] != "decreasing"
    arms = len(fields["epsilons"])
    langevin = _trainings(fields, len(grid["lambda"]) * len(grid["epochs"]))
    full = _trainings(fields, len(grid["lambda"]) * len(grid["steps"]))
    sgd = _trainings(fields, len(grid["lr"]) * len(grid["epochs"]))
    mini = arms * (3 * schedules + cyclic) * langevin + (1 + 2 * arms) * sgd
    whole = 2 * arms * schedules * full
    counts = _regression(fields, size, mini * epochs, batch)
    for name, count in _regression(fields, size, whole * steps, n).items():
        counts[name] += count
    calibrations = arms * len(grid["epochs"]) * (2 + schedules)
    counts |= {"accountings": CALIBRATION_POINTS * calibrations / 2, "starts": PRIVATE_STARTS}
    rows = arms * (3 * schedules + 5) * (fields["runs"] + 20)
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * rows)


def sgld_finetune(fields: Mapping[str, Any], size: Size) -> Work:
    """Private steps of the last parts of a network."""
    arms = (1 + len(fields["epsilons"])) * len(fields["unfreeze"])
    updates = arms * _trainings(fields, len(fields["lrs"])) * fields["steps"]
    visits = TRAINED_SHARE * updates * fields["batch"]
    counts = {
        **private_passes(fields["backbone"], size.inputs, visits),
        "steps": updates * VISITS_PER_UPDATE,
        "accountings": CALIBRATION_POINTS,
        "starts": PRIVATE_STARTS,
    }
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * 30 * arms, on_gpu=True)


def sgld_long_training(fields: Mapping[str, Any], size: Size) -> Work:
    """Three methods at every number of full-batch steps."""
    settings = 2 * len(fields["lambdas"]) + len(fields["lrs"])
    trainings = settings * fields["tuning_runs"] + 3 * fields["runs"]
    counts = _regression(fields, size, trainings * sum(fields["steps"]), size.n_train)
    counts |= {"accountings": len(fields["steps"]), "starts": PRIVATE_STARTS}
    return Work(counts, RECORD_BYTES + 900 * len(fields["steps"]))


def sgld_privacy_loss(fields: Mapping[str, Any], size: Size) -> Work:
    """Values of epsilon along two curves of every schedule, and of the published settings."""
    curves = 2 * len(fields["schedules"])
    counts = {"accountings": ACCOUNTED_POINTS * curves, "starts": PRIVATE_STARTS}
    return Work(counts, 5 * RECORD_BYTES)


def sgld_counterexample(fields: Mapping[str, Any], size: Size) -> Work:
    """The exact law of both neighbours for every setting and number of steps."""
    settings = 3 * len(fields["etas"]) * len(fields["ratios"])
    laws = settings * (len(fields["sigma2s"]) * len(fields["alphas"]) + 1) * len(fields["steps"])
    counts = {"steps": laws * VISITS_PER_LAW, "starts": 2}
    return Work(counts, BYTES_PER_NUMBER * laws * 3)


def sgld_utility(fields: Mapping[str, Any], size: Size) -> Work:
    """Langevin steps on a small batch."""
    runs = fields["runs"] * len(fields["schedules"]) * len(fields["epsilons"])
    counts = {"steps": runs * fields["steps"] * VISITS_PER_REGRESSION, "starts": 2}
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * 30 * runs)


def private_passes(network: Mapping[str, Any], inputs: int, visits: float) -> dict[str, float]:
    """Forward, both backward passes and the clip of so many records.

    network: fields with its `model` and, if it has any, its `options`.
    """
    multiplications, activations = _network(network, inputs)
    return {"products": 8 * visits * multiplications, "elements": 3 * visits * activations}


def _network(network: Mapping[str, Any], inputs: int) -> tuple[float, float]:
    """Multiplications and activations of a record of so many inputs."""
    model = network["model"]
    reference, multiplications, activations = NETWORKS[model]
    share = 1 if model in STRETCHING else inputs / reference
    if model == "vit-tiny":
        chosen, usual = _vit({**VIT, **network.get("options", {})}), _vit(VIT)
        multiplications *= chosen[0] / usual[0]
        activations *= chosen[1] / usual[1]
    return multiplications * share, activations * share


def _vit(options: Mapping[str, Any]) -> tuple[float, float]:
    """What the linear layers of a ViT's blocks multiply and give, per pixel of the image."""
    dim, ratio = options["dim"], options["mlp_ratio"]
    blocks = options["depth"] / options["patch"] ** 2
    return blocks * (4 + 2 * ratio) * dim**2, blocks * (5 + ratio) * dim


def _trainings(fields: Mapping[str, Any], settings: int) -> int:
    return settings * fields["tuning_runs"] + fields["runs"]


def _regression(
    fields: Mapping[str, Any], size: Size, steps: float, batch: int
) -> dict[str, float]:
    """Steps of softmax regression: logits and gradients of a batch, and noise."""
    classes = len(fields["data"]["classes"])
    inputs = FEATURES_OF_A_BACKBONE if fields["features"] == "penultimate" else size.inputs
    return {
        "products": 4 * steps * batch * classes * inputs,
        "elements": steps * batch * (classes + inputs),
        "normals": steps * classes * inputs,
        "steps": steps * VISITS_PER_REGRESSION,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
