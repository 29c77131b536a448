"""max_information: one prior and its posterior at a time, as stages of a job.

For every run, prior and tau a job trains the prior's centre, trains a posterior that starts there,
and counts the errors of both over `draws` pairs of a training record and weights (Eq. 98). The
number of pairs is fixed beforehand.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise
from dpatlas.jobs.resume import Stages
from dpatlas.models.mean_field import MeanField, flat_values
from dpatlas.models.network import Network
from dpatlas.papers.max_information.jobs.posteriors import PosteriorTraining
from dpatlas.papers.max_information.jobs.priors import INDEPENDENT, Prior, prior_training
from dpatlas.papers.max_information.jobs.problem import Problem
from dpatlas.papers.max_information.jobs.risk import METHODS, PairErrors, drawn_records
from dpatlas.papers.max_information.records.certified import Method

# Records whose gradients DP-SGD holds in memory at a time; results change by rounding only.
PHYSICAL_BATCH = {"bayes-cnn9": 250}
CENTRE, TRAINING = "centre", "training"


class Certified:
    """One prior and posterior at a time: centre, training and counts, as stages of the job."""

    def __init__(self, problem: Problem, progress: Progress):
        self.problem, self.progress = problem, progress
        # Stages store its secret, so that a restarted job goes on with the same noise.
        self.noise = Noise(problem.root, problem.fields.noise_source)
        self.stages = Stages(problem.job, self.noise)
        self.networks: dict[int, Network] = {}

    def network(self, run: int) -> Network:
        """The network of a run at its initial means."""
        if run not in self.networks:
            self.networks = {run: self.problem.network(run)}
        return self.networks[run]

    def centre(self, prior: Prior, run: int) -> tuple[Tensor, int]:
        """The prior's means, (parameters,), and how often DP-SGD skipped a record."""
        problem = self.problem
        if prior.kind == INDEPENDENT:
            return flat_values(self.network(run)), 0

        def train() -> dict[str, Any]:
            records = problem.records(run)
            training = prior_training(
                prior,
                problem.network(run),
                records.x,
                records.labels,
                noise=self.noise,
                repetition=problem.declared.repetition(prior, problem.n, run),
                max_physical_batch=PHYSICAL_BATCH.get(problem.fields.model),
            )
            self.stages.finish(training)
            values = flat_values(training.model).cpu().numpy()
            return {"values": values, "skipped_records": training.skipped_records}

        stored = self.stages.result(CENTRE, train)
        values = torch.from_numpy(stored["values"]).to(problem.job.device)
        return values, stored["skipped_records"]

    def posterior(
        self, prior: Prior, tau: float, centre: Tensor, run: int
    ) -> tuple[MeanField, int | None]:
        """The posterior, and the step at which it diverged or None."""
        problem = self.problem
        network = self.network(run)

        def train() -> dict[str, Any]:
            records = problem.records(run)
            training = PosteriorTraining(
                network,
                centre,
                problem.deviation(tau),
                records.x,
                records.labels,
                problem.settings,
                extra=problem.budget.extra(problem.kappa(prior)),
                noise=problem.keyed(TRAINING),
                repetition=run,
            )
            self.stages.finish(training, lambda: self.progress.advance(TRAINING))
            law, diverged = training.posterior, training.diverged
            if diverged is None and not math.isfinite(law.kl(centre, problem.deviation(tau))):
                diverged = training.steps_done
            flats = {"mean": law.mean.cpu().numpy(), "rho": law.rho.cpu().numpy()}
            return {**flats, "diverged": diverged}

        stored = self.stages.result(TRAINING, train)
        flats = (torch.from_numpy(stored[key]).to(centre.device) for key in ("mean", "rho"))
        return MeanField(network, *flats), stored["diverged"]

    def count(
        self,
        name: str,
        law: MeanField,
        run: int,
        method: Method = METHODS[0],
        repetition: int | None = None,
    ) -> int:
        """Errors among `draws` pairs of training records of a run and weights.

        repetition: number of the draws, by default that of the run.
        """
        problem, number = self.problem, run if repetition is None else repetition
        drawn = drawn_records(problem.n, problem.budget.draws, problem.keyed(name), number)
        records = problem.records(run)
        return self._errors(name, law, (records.x, records.labels, drawn), number, method)

    def test_count(self, name: str, law: MeanField, run: int) -> int:
        """Errors among test records of a run, each classified repeatedly with new weights."""
        problem, records = self.problem, self.problem.records(run)
        return self._errors(name, law, (records.x_test, records.labels_test, problem.tested), run)

    def _errors(
        self,
        name: str,
        law: MeanField,
        data: tuple[Tensor, Tensor, np.ndarray],
        repetition: int,
        method: Method = METHODS[0],
    ) -> int:
        """Errors over pairs of weights and a record of `data`: x, labels and the record's index."""

        def count() -> dict[str, Any]:
            noise = self.problem.keyed(name)
            work = PairErrors(law, *data, noise=noise, repetition=repetition, method=method)
            self.stages.finish(work)
            return {"errors": work.errors}

        return self.stages.result(f"{name} {repetition}", count)["errors"]
