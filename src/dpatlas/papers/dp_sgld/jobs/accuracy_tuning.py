"""dp_sgld: lambda or learning rate, and length, of every arm of accuracy, tried on a fixed part."""

from collections.abc import Mapping
from itertools import product

from dpatlas.jobs.arms import Chosen
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.tuning import Tuning
from dpatlas.papers.dp_sgld.jobs.accuracy import FULL_BATCH, Arm, arms_of
from dpatlas.papers.dp_sgld.jobs.arms import LANGEVIN
from dpatlas.papers.dp_sgld.jobs.regression import in_words, problem_of
from dpatlas.papers.dp_sgld.records.accuracy_tuning import Metrics, Spec


def accuracy_tuning(job: Job) -> Outcome:
    """The settings that every arm tried, and those that it chose."""
    fields: Spec = job.fields
    grid = fields.grid

    def grid_of(arm: Arm, chosen: Mapping[str, Chosen]) -> list[Chosen]:
        if arm.method not in LANGEVIN:
            return [{"lr": lr, "epochs": epochs} for lr, epochs in product(grid.lr, grid.epochs)]
        if arm.method in FULL_BATCH:
            return [{"lambda": lam, "steps": steps} for lam, steps in product(grid.lam, grid.steps)]
        return [{"lambda": lam, "epochs": epochs} for lam, epochs in product(grid.lam, grid.epochs)]

    return Tuning(job, arms_of(job, problem_of(job)), grid_of).outcome(Metrics, *in_words(fields))


KIND = Kind(
    accuracy_tuning,
    spec=Spec,
    packages=("torch", "numpy", "scipy", "dp-accounting"),
    reads_images=False,
)
