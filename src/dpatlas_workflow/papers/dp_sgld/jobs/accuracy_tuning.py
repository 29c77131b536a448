"""dp_sgld: the settings of every arm of accuracy, tried on a fixed part of the records.

Every method has the same freedom: the size of its batches, its regulariser and its steps. Langevin
arms try all combinations. DP-SGD and SGD try batch, rate and clip bound without the L2 term, and
then, at those that were best, every weight of that term.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.dp_sgld.jobs import PACKAGES
from dpatlas_workflow.papers.dp_sgld.jobs.accuracy import FULL_BATCH, AccuracyArm, at, compared
from dpatlas_workflow.papers.dp_sgld.jobs.arms import LANGEVIN
from dpatlas_workflow.papers.dp_sgld.jobs.regression import regression_arms
from dpatlas_workflow.papers.dp_sgld.records.accuracy_tuning import RECORD, AccuracyTuningSpec
from dpatlas_workflow.run.arms import Chosen
from dpatlas_workflow.run.tuning import tune

# Values to try, by the name of a setting.
Axes = dict[str, Sequence[float]]


def accuracy_tuning(job: Job) -> Outcome:
    """The settings that every arm tried, and those that it chose."""
    fields: AccuracyTuningSpec = job.fields
    grid = fields.grid
    arms: dict[str, AccuracyArm] = {}
    for arm in compared(fields):
        # Behind the one that its settings start from.
        starts = [] if arm.method in LANGEVIN else [replace(arm, l2=False)]
        arms |= {each.name: each for each in (*starts, arm)}

    def grid_of(name: str, chosen: Mapping[str, Chosen]) -> list[Chosen]:
        arm = arms[name]
        if arm.method in LANGEVIN:
            axes: Axes = {"lambda": grid.lam, "step_size": grid.step_sizes}
            if arm.method in FULL_BATCH:
                return points({**axes, "steps": grid.steps})
            return points({**axes, "batch": grid.batches, "epochs": grid.epochs})
        if arm.l2:
            (before,) = after(name)
            return [{**chosen[before], "weight_decay": decay} for decay in grid.weight_decays]
        axes = {"batch": grid.batches, "epochs": grid.epochs, "lr": grid.lr}
        if arm.epsilon is not None:
            axes["max_grad_norm"] = grid.max_grad_norms
        return points({**axes, "weight_decay": [0.0]})

    def after(name: str) -> list[str]:
        arm = arms[name]
        return [] if arm.method in LANGEVIN or not arm.l2 else [replace(arm, l2=False).name]

    return tune(job, regression_arms(job, arms.values(), at), grid_of, after)


def points(axes: Axes) -> list[Chosen]:
    """All combinations of the values, by name."""
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


KIND = Kind(accuracy_tuning, record=RECORD, packages=PACKAGES, reads_images=False)
