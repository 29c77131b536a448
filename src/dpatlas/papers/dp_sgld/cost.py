"""dp_sgld: work, memory and device of every kind of job, as the planner estimates them."""

import math
from collections.abc import Callable, Mapping

from dpatlas.config.sizes import array_mb, draws_records, features_mb
from dpatlas.core.facts import Choice
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
from dpatlas.papers.dp_sgld.records.accuracy import Accuracy as AnyAccuracy
from dpatlas.papers.dp_sgld.records.accuracy import Spec as Accuracy
from dpatlas.papers.dp_sgld.records.accuracy_tuning import Spec as AccuracyTuning
from dpatlas.papers.dp_sgld.records.counterexample import Spec as Counterexample
from dpatlas.papers.dp_sgld.records.finetune import Finetune as AnyFinetune
from dpatlas.papers.dp_sgld.records.finetune import Spec as Finetune
from dpatlas.papers.dp_sgld.records.finetune_tuning import Spec as FinetuneTuning
from dpatlas.papers.dp_sgld.records.long_training import LongTraining as AnyLongTraining
from dpatlas.papers.dp_sgld.records.long_training import Spec as LongTraining
from dpatlas.papers.dp_sgld.records.long_training_tuning import Spec as LongTrainingTuning
from dpatlas.papers.dp_sgld.records.privacy_loss import Spec as PrivacyLoss
from dpatlas.papers.dp_sgld.records.protocol import Protocol as AnyProtocol
from dpatlas.papers.dp_sgld.records.protocol import Reading
from dpatlas.papers.dp_sgld.records.protocol import Spec as Protocol
from dpatlas.papers.dp_sgld.records.protocol_tuning import Spec as ProtocolTuning
from dpatlas.papers.dp_sgld.records.regression import RegressionFields
from dpatlas.papers.dp_sgld.records.utility import Spec as Utility

# Epochs and full-batch steps of an arm whose length its tuning has yet to choose.
LONG_EPOCHS, LONG_STEPS = 30, 100
# Between the smallest batch, of which most steps are, and a tenth of the records.
TYPICAL_BATCH = 256


def protocol(fields: Protocol, size: Size, backbone: Backbone | None) -> Work:
    """Every arm for all epochs, its accuracy at the end of each."""
    trainings = fields.runs * sum(_arms_of(reading) for reading in fields.readings)
    return _protocol(fields, size, trainings)


def protocol_tuning(fields: ProtocolTuning, size: Size, backbone: Backbone | None) -> Work:
    """Clip bounds of the arms of DP-SGD, and one trial of each other arm."""
    private = [
        (1 + reading.without_l2) * len(reading.schedules) * (len(fields.clips) - 1)
        for reading in fields.readings
    ]
    arms = sum(private) + sum(_arms_of(reading) for reading in fields.readings)
    return _protocol(fields, size, fields.tuning_runs * arms)


def _arms_of(reading: Reading) -> int:
    return (3 + reading.without_l2) * len(reading.schedules)


def _protocol(fields: AnyProtocol, size: Size, trainings: float) -> Work:
    steps = trainings * fields.epochs * math.ceil(size.n_train / fields.batch)
    counts = _regression(fields, size, steps, fields.batch)
    counts |= {"accountings": CALIBRATION_POINTS / 2, "starts": PRIVATE_STARTS}
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * 40 * trainings)


def accuracy(fields: Accuracy, size: Size, backbone: Backbone | None) -> Work:
    """Every arm, as long as its tuning chose, or as a long one of those that it could choose."""
    if fields.chosen is None:
        langevin, full_batch = _langevin_arms(fields)
        lengths = LONG_EPOCHS * (langevin + _sgd_arms(fields)), LONG_STEPS * full_batch
        epochs, steps = map(float, lengths)
    else:
        epochs, steps = (_all_arms(fields.chosen, name) for name in ("epochs", "steps"))
    return _accuracy(fields, size, fields.runs * epochs, fields.runs * steps)


def accuracy_tuning(fields: AccuracyTuning, size: Size, backbone: Backbone | None) -> Work:
    """The grids of all arms."""
    grid = fields.grid
    langevin, full_batch = _langevin_arms(fields)
    of_langevin, batches = len(grid.lam) * len(grid.step_sizes), len(grid.batches)
    rates = batches * len(grid.lr) * (1 + (_sgd_arms(fields) - 1) * len(grid.max_grad_norms))
    decays = _sgd_arms(fields) * len(grid.weight_decays)
    epochs = sum(grid.epochs) * (langevin * of_langevin * batches + rates) + LONG_EPOCHS * decays
    steps = sum(grid.steps) * full_batch * of_langevin
    return _accuracy(fields, size, fields.tuning_runs * epochs, fields.tuning_runs * steps)


def _all_arms(chosen: Mapping[str, Choice], name: str) -> float:
    """The sum over arms of a setting that some of them have."""
    values = [settings.get(name) for settings in chosen.values()]
    return sum(float(value) for value in values if isinstance(value, int | float))


def _langevin_arms(fields: AnyAccuracy) -> tuple[int, int]:
    """Numbers of Langevin arms on mini-batches and on full batches."""
    epsilons, schedules = len(fields.epsilons), 2 if fields.schedule == "both" else 1
    cyclic = epsilons * (fields.schedule != "decreasing")
    return 3 * epsilons * schedules + cyclic, 2 * epsilons * schedules


def _sgd_arms(fields: AnyAccuracy) -> int:
    return 1 + 2 * len(fields.epsilons)


def _accuracy(fields: AnyAccuracy, size: Size, epochs: float, steps: float) -> Work:
    """So many epochs of mini-batches and steps of full batches."""
    n, epsilons = size.n_train, len(fields.epsilons)
    counts = _regression(fields, size, epochs * math.ceil(n / TYPICAL_BATCH), TYPICAL_BATCH)
    for name, count in _regression(fields, size, steps, n).items():
        counts[name] += count
    counts |= {"accountings": 2 * CALIBRATION_POINTS * epsilons, "starts": PRIVATE_STARTS}
    return Work(counts, RECORD_BYTES + BYTES_PER_NUMBER * epsilons * 11 * 40)


def finetune(fields: Finetune, size: Size, backbone: Backbone) -> Work:
    """Private steps of the trained parts of a network."""
    return _finetune(fields, size, backbone, fields.runs)


def finetune_tuning(fields: FinetuneTuning, size: Size, backbone: Backbone) -> Work:
    """The learning rates of every arm."""
    return _finetune(fields, size, backbone, fields.tuning_runs * len(fields.lrs))


def _finetune(fields: AnyFinetune, size: Size, backbone: Backbone, trainings: float) -> Work:
    """So many trainings of every arm."""
    arms = (1 + len(fields.epsilons)) * len(fields.unfreeze)
    updates = arms * trainings * fields.steps
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
    steps = 3 * fields.runs * sum(fields.steps)
    return _long_training(fields, size, steps, size.n_train)


def long_training_tuning(fields: LongTrainingTuning, size: Size, backbone: Backbone | None) -> Work:
    """The grids of the three methods at every number of steps, on a fixed part."""
    settings = 2 * len(fields.lambdas) + len(fields.lrs)
    steps = settings * fields.tuning_runs * sum(fields.steps)
    return _long_training(fields, size, steps, fields.data.n_validation or 0)


def _long_training(fields: AnyLongTraining, size: Size, steps: float, records: int) -> Work:
    counts = _regression(fields, size, steps, records)
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


def _regression(fields: RegressionFields, size: Size, steps: float, batch: int) -> dict[str, float]:
    """Operations of so many steps of softmax regression: logits and gradients, and noise.

    No record's gradient is formed: rows are read once (`streamed`), logits computed (`elements`).
    """
    classes = len(fields.data.classes or ())
    inputs = FEATURES_OF_A_BACKBONE if fields.features == "penultimate" else size.inputs
    return {
        "products": 4 * steps * batch * classes * inputs,
        "elements": steps * batch * classes,
        "streamed": steps * batch * inputs,
        "normals": steps * classes * inputs,
        "steps": steps * VISITS_PER_REGRESSION,
    }


def takes_features(fields: RegressionFields) -> bool:
    """Whether the job trains on a frozen backbone's features, and reads no image."""
    return fields.features != "raw" and not draws_records(fields.data)


def regression_mb(fields: RegressionFields) -> int:
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


def _of_regression(work: Callable[..., Work]) -> JobCost:
    return JobCost(work, regression_mb, lower=("data.n_train",), takes_features=takes_features)


KINDS = {
    "protocol": _of_regression(protocol),
    "protocol_tuning": _of_regression(protocol_tuning),
    "accuracy": _of_regression(accuracy),
    "accuracy_tuning": _of_regression(accuracy_tuning),
    "finetune": JobCost(finetune, finetune_mb, lower=("batch", "data.n_train"), gpu=True),
    "finetune_tuning": JobCost(
        finetune_tuning, finetune_mb, lower=("batch", "data.n_train"), gpu=True
    ),
    "long_training": _of_regression(long_training),
    "long_training_tuning": _of_regression(long_training_tuning),
    "privacy_loss": JobCost(privacy_loss, bare_mb, lower=("n", "runs")),
    "counterexample": JobCost(counterexample, bare_mb, lower=("n", "runs")),
    "utility": JobCost(utility, bare_mb, lower=("n", "runs")),
}
