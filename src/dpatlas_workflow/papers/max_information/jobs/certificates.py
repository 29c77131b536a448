"""max_information, Tables 1 to 3: certificates of randomised networks, and their test errors.

A job has one data set, one network and a list of priors.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.formulas.max_information.kappa import standing
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.mean_field import MeanField
from dpatlas_workflow.papers.max_information.jobs.certified import Certified, PriorArm
from dpatlas_workflow.papers.max_information.jobs.priors import (
    RIGOROUS,
    epochs_of,
    facts_of_prior,
    finite,
    kappas_of,
)
from dpatlas_workflow.papers.max_information.jobs.problem import CertifyProblem, facts_of, ledger_of
from dpatlas_workflow.papers.max_information.records.certificates import RECORD, CertificatesSpec

# Parameters of the posteriors that are trained together: so many that a sweep over them is not
# short, and so few that they stay in the cache. Noise is drawn for each such group.
MAX_STACKED = 2**17
# Keys of the pairs on which all priors and posteriors of a run are judged.
PAIRS, TEST_PAIRS = "pairs", "test pairs"


class CertificateRows(Certified):
    """Makes the rows of the priors of a run and their posteriors."""

    def rows(self, run: int, first: int) -> list[Row]:
        """A row for each prior and tau; `first` rows of other runs are there."""
        arms = self.arms(run)
        together = max(1, MAX_STACKED // len(arms[0].centre))
        rows: list[Row] = []
        for start in range(0, len(arms), together):
            group = partial(self.group, run, arms[start : start + together])
            rows += self.stages.result(f"from-{start}", group)["rows"]
            self.progress.reach((first + len(rows)) * self.problem.training_steps, "certified")
        return rows

    def group(self, run: int, arms: Sequence[PriorArm]) -> dict[str, Any]:
        """The rows of arms whose posteriors are trained together."""
        problem, network = self.problem, self.network(run)
        trained = self.posteriors(arms, run)
        laws = [
            MeanField.around(network, arm.centre, problem.deviation(arm.tau)) for arm in arms
        ] + [law for law, diverged in trained if diverged is None]
        counts = self.counts(PAIRS, laws, run), self.counts(TEST_PAIRS, laws, run, part="test")
        counted = zip(*counts, strict=True)
        of_priors = [self._of_prior(run, arm, *next(counted)) for arm in arms]
        rows = []
        for arm, of_prior, (law, diverged) in zip(arms, of_priors, trained, strict=True):
            found = DIVERGED
            if diverged is None:
                kl = law.kl(arm.centre, problem.deviation(arm.tau))
                found = self._of_posterior(run, arm, kl, *next(counted))
            rows.append({**of_prior, "diverged": diverged, **found})
        return {"rows": rows}

    def _of_prior(self, run: int, arm: PriorArm, errors: int, test_errors: int) -> Row:
        """The fields of a row in which the posterior has no part."""
        problem, prior = self.problem, arm.prior
        kappas = kappas_of(prior, problem.n, problem.level)
        weight, kappa = problem.universe(prior, arm.tau, run)
        return {
            **facts_of_prior(prior, problem.n),
            "tau": arm.tau,
            "run": run,
            **{f"kappa_{form}": value for form, value in kappas.items()},
            "universe_weight": weight,
            "universe_nats": -math.log(weight),
            "universe_kappa": finite(kappa),
            "standing": standing(problem.fields.form, epochs_of(prior)),
            "risk_prior": errors / problem.fields.draws,
            "errors_prior": errors,
            "certificate_prior": problem.printed(errors, 0.0, problem.kappa(prior)),
            "prior_test_error": test_errors / len(problem.tested),
            "test_draws": len(problem.tested),
            "skipped_records": arm.skipped_records,
        }

    def _of_posterior(
        self, run: int, arm: PriorArm, kl: float, errors: int, test_errors: int
    ) -> Row:
        """The fields of a row for a posterior whose training did not diverge."""
        problem, prior = self.problem, arm.prior
        tight, proven = (problem.kappa(prior, form) for form in ("tight", RIGOROUS))
        universe = problem.universe(prior, arm.tau, run)
        return {
            "risk_posterior": errors / problem.fields.draws,
            "errors_posterior": errors,
            "kl": kl,
            "certificate_posterior": problem.printed(errors, kl, problem.kappa(prior)),
            "certificate_tight": problem.printed(errors, kl, tight, "clopper-pearson"),
            "certificate_rigorous": problem.rigorous(errors, kl, proven),
            "certificate_universe": problem.of_universe(errors, kl, *universe),
            "test_error": test_errors / len(problem.tested),
        }


# The fields of a row for a posterior whose training diverged: every risk is at most 1.
DIVERGED: dict[str, Any] = {
    **dict.fromkeys(("risk_posterior", "errors_posterior", "kl", "test_error")),
    **dict.fromkeys(
        (f"certificate_{name}" for name in ("posterior", "tight", "rigorous", "universe")), 1.0
    ),
}


def certificates(job: Job) -> Outcome:
    """A row for every run, prior and tau.

    The noise of a prior and of a run does not depend on the others.
    """
    fields: CertificatesSpec = job.fields
    problem = CertifyProblem(job, fields.run_numbers)
    ledger = ledger_of(problem)
    steps = problem.training_steps
    arms = len(fields.priors) * len(fields.taus)
    rows: list[Row] = []
    with Progress(fields.runs * arms * steps, job.spec.id) as progress:
        work = CertificateRows(problem, progress)

        def certify(run: int) -> dict[str, Any]:
            return {"rows": work.rows(run, len(rows))}

        for run in fields.run_numbers:
            rows += work.stages.result(f"run-{run}", partial(certify, run))["rows"]
            progress.reach(len(rows) * steps)
    return Outcome({**facts_of(problem), "rows": rows}, ledger)


KIND = Kind(certificates, record=RECORD, packages=("torch", "numpy", "scipy", "dp-accounting"))
