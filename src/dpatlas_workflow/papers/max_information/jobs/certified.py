"""max_information: the priors of a run and their posteriors, as stages of a job.

For every run, prior and tau a job trains the prior's centre, trains a posterior that starts there,
and counts the errors of both over `draws` pairs of a training record and weights (Eq. 98). The
number of pairs is fixed beforehand. The posteriors of a run are trained together, and judged on the
same pairs, because they share batches and normals; no run depends on another.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpatlas.base.progress import Progress
from dpatlas.base.seeds import Noise
from dpatlas.certify.risk import METHODS, PairErrors, drawn_records
from dpatlas.formulas.max_information.certificates import Method
from dpatlas.jobs.resume import Stages
from dpatlas.models.mean_field import MeanField, flat_values
from dpatlas.models.network import Network
from dpatlas_workflow.papers.max_information.jobs.posteriors import PosteriorTraining
from dpatlas_workflow.papers.max_information.jobs.priors import prior_training, repetition_of
from dpatlas_workflow.papers.max_information.jobs.problem import CertifyProblem
from dpatlas_workflow.papers.max_information.records.certified import DpSgdPrior, PriorFields

# Records whose gradients DP-SGD holds in memory at a time; results change by rounding only.
PHYSICAL_BATCH = {"bayes-cnn9": 250}
CENTRE, TRAINING = "centre", "training"


@dataclass(frozen=True)
class PriorArm:
    """A prior N(centre, tau), centre (parameters,), and how often its DP-SGD skipped a record."""

    prior: PriorFields
    tau: float
    centre: Tensor
    skipped_records: int


class Certified:
    """Centres, trainings of posteriors and counts of errors, as stages of the job."""

    def __init__(self, problem: CertifyProblem, progress: Progress):
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

    def arms(self, run: int) -> list[PriorArm]:
        """All priors of the job, each with all values of tau."""
        fields = self.problem.fields
        return [
            PriorArm(prior, tau, *centre)
            for number, prior in enumerate(fields.priors)
            for centre in [self.centre(prior, run, f"{CENTRE}-{number}")]
            for tau in fields.taus
        ]

    def centre(self, prior: PriorFields, run: int, stage: str) -> tuple[Tensor, int]:
        """The prior's means, (parameters,), and how often DP-SGD skipped a record."""
        problem = self.problem
        if not isinstance(prior, DpSgdPrior):
            return flat_values(self.network(run)), 0

        def train() -> dict[str, Any]:
            training = prior_training(
                prior,
                problem.network(run),
                *problem.records(run),
                noise=self.noise,
                repetition=repetition_of(problem.fields, prior, problem.n, run),
                max_physical_batch=PHYSICAL_BATCH.get(problem.fields.model),
            )
            self.stages.finish(training)
            values = flat_values(training.model).cpu().numpy()
            return {"values": values, "skipped_records": training.skipped_records}

        stored = self.stages.result(stage, train)
        values = torch.from_numpy(stored["values"]).to(problem.job.device)
        return values, stored["skipped_records"]

    def posteriors(self, arms: Sequence[PriorArm], run: int) -> list[tuple[MeanField, int | None]]:
        """The posterior of each arm, and the step at which it diverged or None."""
        problem = self.problem
        network = self.network(run)
        taus = [problem.deviation(arm.tau) for arm in arms]

        def train() -> dict[str, Any]:
            training = PosteriorTraining(
                network,
                torch.stack([arm.centre for arm in arms]),
                taus,
                *problem.records(run),
                problem.settings,
                extras=[
                    problem.exponent(0.0, problem.kappa(arm.prior)) * problem.n for arm in arms
                ],
                noise=problem.keyed(TRAINING),
                repetition=run,
            )
            self.stages.finish(training, lambda: self.progress.advance(TRAINING, len(arms)))
            laws, diverged = training.posteriors, training.diverged
            for number, (arm, tau, law) in enumerate(zip(arms, taus, laws, strict=True)):
                if diverged[number] is None and not math.isfinite(law.kl(arm.centre, tau)):
                    diverged[number] = training.steps_done
            flats = training.flats[:, :, : training.parameters]
            return {"flats": flats.cpu().numpy().copy(), "diverged": diverged}

        stored = self.stages.result(TRAINING, train)
        flats = torch.from_numpy(stored["flats"]).to(problem.job.device)
        laws = [MeanField(network, *each) for each in zip(*flats, strict=True)]
        return list(zip(laws, stored["diverged"], strict=True))

    def counts(
        self,
        name: str,
        laws: Sequence[MeanField],
        run: int,
        *,
        part: str = "train",
        method: Method = METHODS[0],
        repetition: int | None = None,
    ) -> list[int]:
        """Errors of each law among the same pairs of a record of a run and weights.

        part: `train` for `draws` pairs of training records, `test` for all test records, each
        classified repeatedly with new weights. repetition: number of the draws, by default that of
        the run.
        """
        problem, number = self.problem, run if repetition is None else repetition

        def count() -> dict[str, Any]:
            noise, records = problem.keyed(name), problem.tested
            if part == "train":
                records = drawn_records(problem.n, problem.fields.draws, noise, number)
            data = (*problem.records(run, part), records)
            work = PairErrors(laws, *data, noise=noise, repetition=number, method=method)
            self.stages.finish(work)
            return {"errors": work.errors}

        return self.stages.result(f"{name} {number}", count)["errors"]
