"""dp_sgld: work, memory and device of every kind of job, as the planner estimates them."""

import math
from collections.abc import Sequence

from dpatlas.config.sizes import array_mb, features_mb
from dpatlas.cost.counting import BYTES_PER_NUMBER, RECORD_BYTES, Backbone, JobCost, Size, Work
from dpatlas.cost.training import (
    ACCOUNTED_POINTS,
    CALIBRATION_POINTS,
    FEATURES_OF_A_BACKBONE,
    PRIVATE_STARTS,
    TRAINED_SHARE,
    VISITS_PER_LAW,
    VISITS_PER_REGRESSION,
    VISITS_PER_UPDATE,
    private_passes,
)
from dpatlas.papers.dp_sgld.records import RunSpec
from dpatlas.papers.dp_sgld.records.accuracy import Spec as Accuracy
from dpatlas.papers.dp_sgld.records.counterexample import Spec as Counterexample
from dpatlas.papers.dp_sgld.records.finetune import Spec as Finetune
from dpatlas.papers.dp_sgld.records.long_training import Spec as LongTraining
from dpatlas.papers.dp_sgld.records.privacy_loss import Spec as PrivacyLoss
from dpatlas.papers.dp_sgld.records.regression import RegressionSpec
from dpatlas.papers.dp_sgld.records.trained import TrainedSpec
from dpatlas.papers.dp_sgld.records.utility import Spec as Utility


def accuracy(fields: Accuracy, size: Size, backbone: Backbone | None) -> Work:
    """Every arm tries its grid and runs its best setting."""
    grid, n, batch = fields.grid, size.n_train, fields.batch
    epsilons, schedules = len(fields.epsilons), 2 if fields.schedule == "both" else 1
    cyclic_arms = epsilons * (fields.schedule != "decreasing")
    # Trainings of one arm, by the grid that it tries.
    langevin = _trainings(fields, len(grid.lam) * len(grid.epochs))
    full_batch = _trainings(fields, len(grid.lam) * len(grid.steps))
    sgd = _trainings(fields, len(grid.lr) * len(grid.epochs))
    langevin_arms = 3 * epsilons * schedules + cyclic_arms
    mini_batch_trainings = langevin_arms * langevin + (1 + 2 * epsilons) * sgd
    steps_of_a_training = _mean(grid.epochs) * math.ceil(n / batch)
    full_batch_steps = 2 * epsilons * schedules * full_batch * _mean(grid.steps)
    counts = _regression(fields, size, mini_batch_trainings * steps_of_a_training, batch)
    for name, count in _regression(fields, size, full_batch_steps, n).items():
        counts[name] += count
    calibrations = epsilons * len(grid.epochs) * (2 + schedules)
    counts |= {"accountings": CALIBRATION_POINTS * calibrations / 2, "starts": PRIVATE_STARTS}
    numbers = epsilons * (3 * schedules + 5) * (fields.runs + 20)
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * numbers)


def finetune(fields: Finetune, size: Size, backbone: Backbone) -> Work:
    """Private steps of the trained parts of a network."""
    arms = (1 + len(fields.epsilons)) * len(fields.unfreeze)
    updates = arms * _trainings(fields, len(fields.lrs)) * fields.steps
    visits = TRAINED_SHARE * updates * fields.batch
    counts = {
        **private_passes(backbone.model, size.inputs, visits, backbone.options),
        "steps": updates * VISITS_PER_UPDATE,
        "accountings": CALIBRATION_POINTS,
        "starts": PRIVATE_STARTS,
    }
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * 30 * arms)


def long_training(fields: LongTraining, size: Size, backbone: Backbone | None) -> Work:
    """Three methods at every number of full-batch steps."""
    settings = 2 * len(fields.lambdas) + len(fields.lrs)
    trainings = settings * fields.tuning_runs + 3 * fields.runs
    counts = _regression(fields, size, trainings * sum(fields.steps), size.n_train)
    counts |= {"accountings": len(fields.steps), "starts": PRIVATE_STARTS}
    return Work(counts, RECORD_BYTES + 900 * len(fields.steps))


def privacy_loss(fields: PrivacyLoss, size: Size, backbone: Backbone | None) -> Work:
    """Accountings along two curves of every schedule, and of the published settings."""
    curves = 2 * len(fields.schedules)
    counts = {"accountings": ACCOUNTED_POINTS * curves, "starts": PRIVATE_STARTS}
    return Work(counts, 5 * RECORD_BYTES)


def counterexample(fields: Counterexample, size: Size, backbone: Backbone | None) -> Work:
    """The exact law of both neighbours for every setting and number of steps."""
    settings = 3 * len(fields.etas) * len(fields.ratios)
    laws = settings * (len(fields.sigma2s) * len(fields.alphas) + 1) * len(fields.steps)
    counts = {"steps": laws * VISITS_PER_LAW, "starts": 2}
    return Work(counts, BYTES_PER_NUMBER * laws * 3)


def utility(fields: Utility, size: Size, backbone: Backbone | None) -> Work:
    """Langevin steps of every run."""
    runs = fields.runs * len(fields.schedules) * len(fields.epsilons)
    counts = {"steps": runs * fields.steps * VISITS_PER_REGRESSION, "starts": 2}
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * 30 * runs)


def _trainings(fields: TrainedSpec, settings: int) -> int:
    """Trainings of an arm that tries so many settings."""
    return settings * fields.tuning_runs + fields.runs


def _regression(fields: RegressionSpec, size: Size, steps: float, batch: int) -> dict[str, float]:
    """Operations of so many steps of softmax regression: logits and gradients, and noise."""
    classes = len(fields.data.classes or ())
    inputs = FEATURES_OF_A_BACKBONE if fields.features == "penultimate" else size.inputs
    return {
        "products": 4 * steps * batch * classes * inputs,
        "elements": steps * batch * (classes + inputs),
        "normals": steps * classes * inputs,
        "steps": steps * VISITS_PER_REGRESSION,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def takes_features(fields: RegressionSpec) -> bool:
    """Whether the job trains on a frozen backbone's features, and reads no image."""
    return fields.features != "raw"


def regression_mb(fields: RegressionSpec) -> int:
    """Peak memory of a regression in MB: libraries and accountants, and images or features."""
    if takes_features(fields):
        return round(1000 + 5 * features_mb(fields.data))
    return round(1000 + 4 * array_mb(fields.data))


def finetune_mb(fields: Finetune) -> int:
    """Peak memory of fine-tuning in MB; outputs of frozen layers take a few times the images."""
    return round(1000 + 10 * array_mb(fields.data))


def bare_mb(fields: RunSpec) -> int:
    """Peak memory of a job without a data set in MB."""
    return 1000


KINDS = {
    "accuracy": JobCost(
        accuracy, regression_mb, lower=("data.n_train",), takes_features=takes_features
    ),
    "finetune": JobCost(finetune, finetune_mb, lower=("batch", "data.n_train"), gpu=True),
    "long_training": JobCost(
        long_training, regression_mb, lower=("data.n_train",), takes_features=takes_features
    ),
    "privacy_loss": JobCost(privacy_loss, bare_mb, lower=("n", "runs")),
    "counterexample": JobCost(counterexample, bare_mb, lower=("n", "runs")),
    "utility": JobCost(utility, bare_mb, lower=("n", "runs")),
}
