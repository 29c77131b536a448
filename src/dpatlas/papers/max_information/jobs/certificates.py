"""max_information, Tables 1 to 3: certificates of randomised networks, and their test errors.

A job has one data set, one network and a list of priors.
"""

import math
from functools import partial
from itertools import product
from typing import Any

from torch import Tensor

from dpatlas.core.progress import Progress
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models.mean_field import MeanField
from dpatlas.papers.max_information.formulas.kappa import standing
from dpatlas.papers.max_information.jobs.certified import Certified
from dpatlas.papers.max_information.jobs.priors import RIGOROUS, Prior, finite
from dpatlas.papers.max_information.jobs.problem import Problem, facts_of, ledger_of
from dpatlas.papers.max_information.looks import label_of
from dpatlas.papers.max_information.records.certificates import (
    Metrics,
    Row,
    Spec,
    Universe,
)


class Certificates(Certified):
    """Makes the rows of priors and their posteriors."""

    def rows(self, run: int, prior: Prior, first: int) -> list[dict[str, Any]]:
        """A row for each tau; they are numbered from `first` on."""
        centre, skipped = self.centre(prior, run)
        rows = []
        for number, tau in enumerate(self.problem.taus, first):
            row = partial(self.row, run, prior, tau, centre, skipped)
            rows.append(self.stages.result(f"tau-{number}", row))
            self.progress.reach((number + 1) * self.problem.training_steps, "certified")
        return rows

    def row(
        self, run: int, prior: Prior, tau: float, centre: Tensor, skipped: int
    ) -> dict[str, Any]:
        """The JSON of a `Row`: the results for one prior and the posterior trained from it."""
        problem, budget = self.problem, self.problem.budget
        deviation = problem.deviation(tau)
        law = MeanField.around(self.network(run), centre, deviation)
        errors = self.count("prior", law, run)
        test_errors = self.test_count("prior-test", law, run)
        posterior, diverged = self.posterior(prior, tau, centre, run)
        universe = problem.universe(prior, tau, run)
        if diverged is None:
            kl = posterior.kl(centre, deviation)
            certified = self._certified(prior, universe, posterior, kl, run)
        else:
            certified = DIVERGED
        row = Row(
            **prior.facts(problem.n),
            tau=tau,
            run=run,
            kappa=prior.kappas(problem.n, problem.declared.level),
            universe=Universe(
                weight=universe["weight"],
                nats=-math.log(universe["weight"]),
                kappa=finite(universe["kappa"]),
            ),
            **label_of(problem.fields.looks),
            standing=standing(problem.fields.form, prior.epochs),
            risk_prior=errors / budget.draws,
            errors_prior=errors,
            certificate_prior=budget.printed(errors, 0.0, problem.kappa(prior)),
            prior_test_error=test_errors / len(problem.tested),
            test_draws=len(problem.tested),
            diverged=diverged,
            skipped_records=skipped,
            **certified,
        )
        return row.model_dump(mode="json")

    def _certified(
        self,
        prior: Prior,
        universe: dict[str, float],
        posterior: MeanField,
        kl: float,
        run: int,
    ) -> dict[str, Any]:
        """The fields of a row for a posterior whose training did not diverge."""
        problem, budget = self.problem, self.problem.budget
        errors = self.count("posterior", posterior, run)
        test_errors = self.test_count("posterior-test", posterior, run)
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
    """A row for every run, prior and tau; the noise of a prior does not depend on other priors."""
    fields: Spec = job.fields
    problem = Problem(job, fields.run_numbers)
    priors = list(product(fields.run_numbers, problem.priors))
    ledger = ledger_of(problem)
    count = len(problem.taus)
    rows: list[dict[str, Any]] = []
    with Progress(len(priors) * count * problem.training_steps, job.spec.id) as progress:
        work = Certificates(problem, progress)

        def certify(number: int) -> dict[str, Any]:
            return {"rows": work.rows(*priors[number], number * count)}

        for number in range(len(priors)):
            rows += work.stages.result(f"prior-{number}", partial(certify, number))["rows"]
            progress.reach(len(rows) * problem.training_steps)
    typed = [Row.model_validate(row) for row in rows]
    return Outcome(Metrics(**facts_of(problem), rows=typed), ledger)


KIND = Kind(certificates, spec=Spec, packages=("torch", "numpy", "scipy", "dp-accounting"))
