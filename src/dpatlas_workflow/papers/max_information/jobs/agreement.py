"""max_information: risks by local reparametrisation and by sampled weights, compared."""

from itertools import product
from typing import get_args

from dpatlas.base.progress import Progress
from dpatlas.certify.risk import METHODS
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.mean_field import MeanField
from dpatlas_workflow.papers.max_information.jobs.certified import Certified
from dpatlas_workflow.papers.max_information.jobs.problem import CertifyProblem, facts_of, ledger_of
from dpatlas_workflow.papers.max_information.records.agreement import RECORD, AgreementSpec, What

# The run whose records and initial weights are taken.
RUN = 0


def agreement(job: Job) -> Outcome:
    """Errors of a prior and of its trained posterior, counted by either method.

    There are `repetitions` counts of `draws` pairs for every network and method, all independent.
    """
    fields: AgreementSpec = job.fields
    problem = CertifyProblem(job, [RUN])
    plan = list(product(get_args(What), METHODS, range(fields.repetitions)))
    with Progress(problem.training_steps + len(plan), job.spec.id) as progress:
        work = Certified(problem, progress)
        (arm,) = work.arms(RUN)
        ((posterior, diverged),) = work.posteriors([arm], RUN)
        progress.reach(problem.training_steps)
        laws = {"posterior": posterior}
        laws["prior"] = MeanField.around(work.network(RUN), arm.centre, problem.deviation(arm.tau))
        rows = []
        for what, method, repetition in plan:
            if diverged is not None and what == "posterior":
                continue
            name = f"{what} by {method}"
            (errors,) = work.counts(name, [laws[what]], RUN, method=method, repetition=repetition)
            row = {"what": what, "method": method, "repetition": repetition, "draws": fields.draws}
            rows.append({**row, "errors": errors, "risk": errors / fields.draws})
            progress.advance(f"{what} {method}")
    found = {**facts_of(problem), "diverged": diverged, "rows": rows}
    return Outcome(found, ledger_of(problem))


KIND = Kind(agreement, record=RECORD, packages=("torch", "numpy", "scipy", "dp-accounting"))
