"""The cost of dp_sgld's jobs."""

import math
from functools import partial
from typing import Any

from dpatlas_workflow.config.sizes import draws_records, inputs_of
from dpatlas_workflow.cost.counting import KindCost

FEATURES_OF_A_BACKBONE = 256


def _regression(s: Any, steps: float, batch: int) -> float:
    """Steps of softmax regression; one on 800,000 numbers takes twice as long as one on few."""
    inputs = FEATURES_OF_A_BACKBONE if s.features == "penultimate" else inputs_of(s.data)
    return steps * (1 + batch * inputs / 800_000)


def _protocol(s: Any, trainings: int) -> float:
    arms = sum((3 + each.without_l2) * len(each.schedules) for each in s.readings)
    return _regression(s, trainings * arms * s.epochs * s.data.n_train / s.batch, s.batch)


def _points(grid: Any) -> int:
    """Of grids, times epochs."""
    points = len(grid.lam) * len(grid.step_sizes) + len(grid.lr) * len(grid.max_grad_norms)
    return points * len(grid.batches) * sum(grid.epochs)


def _finetune(s: Any, trainings: int) -> int:
    return trainings * (1 + len(s.epsilons)) * len(s.unfreeze) * s.steps


def _long_tuning(s: Any) -> float:
    trainings = s.tuning_runs * (2 * len(s.lambdas) + len(s.lrs))
    return _regression(s, trainings * sum(s.steps), s.data.n_validation)


def takes_features(s: Any) -> bool:
    """Whether the job trains on a frozen backbone's features, and reads no image."""
    return s.features != "raw" and not draws_records(s.data)


regression = partial(KindCost, lower=("data.n_train",), copies=5, takes_features=takes_features)
trained = partial(KindCost, lower=("batch", "data.n_train"), steps=True, gpu=True, copies=10)
small = partial(KindCost, lower=("n", "runs"))
KINDS = {
    "protocol": regression(lambda s: _protocol(s, s.runs)),
    "protocol_tuning": regression(lambda s: _protocol(s, s.tuning_runs * len(s.clips))),
    # Arms are trained for about as many epochs everywhere.
    "accuracy": regression(
        lambda s: s.runs * len(s.epsilons) * (1 + (s.schedule == "both")) * s.data.n_train
    ),
    "accuracy_tuning": regression(
        lambda s: s.tuning_runs * len(s.epsilons) * _points(s.grid) * s.data.n_train
    ),
    "finetune": trained(lambda s: _finetune(s, s.runs)),
    "finetune_tuning": trained(lambda s: _finetune(s, s.tuning_runs * len(s.lrs))),
    "long_training": regression(lambda s: _regression(s, s.runs * sum(s.steps), s.data.n_train)),
    "long_training_tuning": regression(_long_tuning),
    "privacy_loss": small(lambda s: len(s.schedules) * s.epochs),
    "counterexample": small(
        lambda s: math.prod(map(len, (s.etas, s.ratios, s.sigma2s, s.alphas, s.steps)))
    ),
    "utility": small(lambda s: s.runs * len(s.schedules) * len(s.epsilons) * s.steps),
}
