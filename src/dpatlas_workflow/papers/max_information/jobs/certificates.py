"""max_information, Tables 1 to 3: certificates of randomised networks, and their test errors.

A job has one data set, one network and a list of priors.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from dpatlas.base.progress import Progress
from dpatlas.base.records import Row
from dpatlas.formulas.max_information.kappa import standing
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.mean_field import MeanField
from dpatlas_workflow.papers.max_information.jobs.certified import Certified, PriorArm
from dpatlas_workflow.papers.max_information.jobs.priors import RIGOROUS, Prior, finite
from dpatlas_workflow.papers.max_information.jobs.problem import CertifyProblem, facts_of, ledger_of
from dpatlas_workflow.papers.max_information.records.certificates import RECORD, CertificatesSpec

# Parameters of the posteriors that are trained together: so many that a sweep over them is not
# short, and so few that they stay in the cache. Noise is drawn for each such group.
MAX_STACKED = 2**17
# Keys of the pairs on which all priors and posteriors of a run are judged.
PAIRS, TEST_PAIRS = "pairs", "test pairs"


class PairCounts(NamedTuple):
    """A law's errors among pairs of training records and of test records."""

    errors: int
    test_errors: int


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
        counts = self.counts(PAIRS, laws, run), self.test_counts(TEST_PAIRS, laws, run)
        counted = map(PairCounts, *counts)
        of_priors = [next(counted) for _ in arms]
        rows = []
        for arm, of_prior, (law, diverged) in zip(arms, of_priors, trained, strict=True):
            universe = problem.universe(arm.prior, arm.tau, run)
            certified = DIVERGED
            if diverged is None:
                kl = law.kl(arm.centre, problem.deviation(arm.tau))
                certified = self._certified(arm.prior, universe, kl, next(counted))
            rows.append(self._row(run, arm, universe, of_prior, diverged, certified))
        return {"rows": rows}

    def _row(
        self,
        run: int,
        arm: PriorArm,
        universe: dict[str, float],
        counted: PairCounts,
        diverged: int | None,
        certified: dict[str, Any],
    ) -> Row:
        problem, budget, prior = self.problem, self.problem.budget, arm.prior
        kappas = prior.kappas(problem.n, problem.declared.level)
        return {
            **prior.facts(problem.n),
            "tau": arm.tau,
            "run": run,
            **{f"kappa_{form}": value for form, value in kappas.items()},
            "universe_weight": universe["weight"],
            "universe_nats": -math.log(universe["weight"]),
            "universe_kappa": finite(universe["kappa"]),
            "standing": standing(problem.fields.form, prior.epochs),
            "risk_prior": counted.errors / budget.draws,
            "errors_prior": counted.errors,
            "certificate_prior": budget.printed(counted.errors, 0.0, problem.kappa(prior)),
            "prior_test_error": counted.test_errors / len(problem.tested),
            "test_draws": len(problem.tested),
            "diverged": diverged,
            "skipped_records": arm.skipped_records,
            **certified,
        }

    def _certified(
        self, prior: Prior, universe: dict[str, float], kl: float, counted: PairCounts
    ) -> dict[str, Any]:
        """The fields of a row for a posterior whose training did not diverge."""
        problem, budget, errors = self.problem, self.problem.budget, counted.errors
        tight, repaired = (problem.kappa(prior, form) for form in ("tight", RIGOROUS))
        return {
            "risk_posterior": errors / budget.draws,
            "errors_posterior": errors,
            "kl": kl,
            "certificate_posterior": budget.printed(errors, kl, problem.kappa(prior)),
            "certificate_tight": budget.printed(errors, kl, tight, "clopper-pearson"),
            "certificate_rigorous": budget.rigorous(errors, kl, repaired),
            "certificate_universe": budget.universe(
                errors, kl, universe["kappa"], universe["weight"]
            ),
            "test_error": counted.test_errors / len(problem.tested),
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
    arms = len(problem.priors) * len(problem.taus)
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
