"""max_information, Tables 1 to 3: certificates of randomised networks, and what they certify.

A job takes one data set, one network and a list of priors. For every run, prior and tau it learns
the prior's centre, trains a posterior from there and counts errors of both over `draws` pairs of a
training record and weights (Eq. 98); the number is fixed before anything is counted.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.core.guard import integer
from dpatlas.core.progress import Progress
from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, LegacyFields, legacy
from dpatlas.jobs.resume import Stages
from dpatlas.models.mean_field import MeanField, flat_values
from dpatlas.models.network import Network
from dpatlas.papers.max_information.formulas.kappa import FORMS, standing
from dpatlas.papers.max_information.jobs.posteriors import PosteriorTraining
from dpatlas.papers.max_information.jobs.priors import (
    INDEPENDENT,
    RIGOROUS,
    Prior,
    finite,
    prior_training,
)
from dpatlas.papers.max_information.jobs.problem import Problem, facts_of, ledger_of
from dpatlas.papers.max_information.jobs.risk import METHODS, PairErrors, drawn_records
from dpatlas.papers.max_information.looks import label_of

# Records whose per-record gradients DP-SGD holds at a time; changes no digit beyond rounding.
PHYSICAL_BATCH = {"bayes-cnn9": 250}
CENTRE, TRAINING = "centre", "training"
# Certificates of a posterior that a row has.
POSTERIORS = ("posterior", "tight", "rigorous", "universe")


class Certified:
    """One prior and posterior at a time: centre, training and counts, as stages of the job."""

    def __init__(self, problem: Problem, progress: Progress):
        self.problem, self.progress = problem, progress
        # Its secret is kept over a restart.
        self.noise = Noise(problem.prior_root, problem.fields["noise_source"])
        self.stages = Stages(problem.job, self.noise)
        self.networks: dict[int, Network] = {}

    def network(self, run: int) -> Network:
        """The structure for a run, at its initial means."""
        if run not in self.networks:
            self.networks = {run: self.problem.network(run)}
        return self.networks[run]

    def centre(self, prior: Prior, run: int) -> tuple[Tensor, int]:
        """(parameters,), and how often DP-SGD skipped a record."""
        problem = self.problem
        if prior.kind == INDEPENDENT:
            return flat_values(self.network(run)), 0

        def train() -> dict[str, Any]:
            training = prior_training(
                prior,
                problem.network(run),
                problem.x,
                problem.labels,
                noise=self.noise,
                repetition=problem.declared.repetition(prior, problem.n, run),
                max_physical_batch=PHYSICAL_BATCH.get(problem.fields["model"]),
            )
            self.stages.finish(training)
            values = flat_values(training.model).cpu().numpy()
            return {"values": values, "skipped_records": training.skipped_records}

        found = self.stages.result(CENTRE, train)
        return torch.from_numpy(found["values"]).to(problem.x.device), found["skipped_records"]

    def posterior(
        self, prior: Prior, tau: float, centre: Tensor, run: int, place: int
    ) -> tuple[MeanField, int | None]:
        """The posterior, and the step at which it diverged or None."""
        problem = self.problem
        network = self.network(run)

        def train() -> dict[str, Any]:
            training = PosteriorTraining(
                network,
                centre,
                problem.deviation(tau),
                problem.x,
                problem.labels,
                problem.settings,
                extra=problem.budget.extra(problem.kappa(prior)),
                noise=problem.keyed(TRAINING),
                repetition=place,
            )
            self.stages.finish(training, lambda: self.progress.advance(TRAINING))
            law, diverged = training.posterior, training.diverged
            if diverged is None and not math.isfinite(law.kl(centre, problem.deviation(tau))):
                diverged = training.steps_done
            flats = {"mean": law.mean.cpu().numpy(), "rho": law.rho.cpu().numpy()}
            return {**flats, "diverged": diverged}

        found = self.stages.result(TRAINING, train)
        flats = (torch.from_numpy(found[key]).to(centre.device) for key in ("mean", "rho"))
        return MeanField(network, *flats), found["diverged"]

    def count(self, name: str, law: MeanField, place: int, method: str = METHODS[0]) -> int:
        """Errors among `draws` pairs of training records and weights."""
        problem = self.problem
        drawn = drawn_records(problem.n, problem.budget.draws, problem.keyed(name), place)
        given = (problem.x, problem.labels, drawn)
        return self._errors(name, law, given, place, method)

    def test_count(self, name: str, law: MeanField, place: int) -> int:
        """Errors among test records, each with weights of its own, several times over."""
        problem = self.problem
        given = (problem.x_test, problem.labels_test, problem.tested)
        return self._errors(name, law, given, place)

    def _errors(
        self,
        name: str,
        law: MeanField,
        given: tuple[Tensor, Tensor, np.ndarray],
        place: int,
        method: str = METHODS[0],
    ) -> int:
        def count() -> dict[str, Any]:
            keys = {"noise": self.problem.keyed(name), "repetition": place, "method": method}
            work = PairErrors(law, *given, **keys)
            self.stages.finish(work)
            return {"errors": work.errors}

        return self.stages.result(f"{name} {place}", count)["errors"]

    def rows(self, run: int, prior: Prior, first: int) -> list[dict[str, Any]]:
        """One for each tau; places of their posteriors are counted from `first` on."""
        centre, skipped = self.centre(prior, run)
        rows = []
        for place, tau in enumerate(self.problem.taus, first):
            given = (run, prior, tau, place, centre, skipped)
            rows.append(self.stages.result(f"tau-{place}", partial(self.row, *given)))
            self.progress.reach((place + 1) * self.problem.training_steps, "certified")
        return rows

    def row(
        self, run: int, prior: Prior, tau: float, place: int, centre: Tensor, skipped: int
    ) -> dict[str, Any]:
        """All that is found of a prior and its posterior; see `certificates`."""
        problem = self.problem
        deviation = problem.deviation(tau)
        law = MeanField.around(self.network(run), centre, deviation)
        errors = self.count("prior", law, place)
        test_errors = self.test_count("prior-test", law, place)
        posterior, diverged = self.posterior(prior, tau, centre, run, place)
        universe = problem.universe(prior, tau, run)
        found = dict.fromkeys(("risk_posterior", "errors_posterior", "kl", "test_error"))
        # A risk is at most 1 whatever became of the training.
        found |= dict.fromkeys((f"certificate_{name}" for name in POSTERIORS), 1.0)
        if diverged is None:
            kl = posterior.kl(centre, deviation)
            found = self._certified(
                prior,
                universe,
                kl,
                self.count("posterior", posterior, place),
                self.test_count("posterior-test", posterior, place),
            )
        return {
            **prior.facts(problem.n),
            "tau": tau,
            "run": run,
            "kappa": {form: finite(problem.kappa(prior, form)) for form in (*FORMS, RIGOROUS)},
            "universe": {
                "weight": universe["weight"],
                "nats": -math.log(universe["weight"]),
                "kappa": finite(universe["kappa"]),
            },
            **label_of(problem.fields["looks"]),
            "standing": standing(problem.fields["form"], prior.epochs),
            "risk_prior": errors / problem.budget.draws,
            "errors_prior": errors,
            "certificate_prior": problem.budget.printed(errors, 0.0, problem.kappa(prior)),
            "prior_test_error": test_errors / len(problem.tested),
            "test_draws": len(problem.tested),
            "diverged": diverged,
            "skipped_records": skipped,
            **found,
        }

    def _certified(
        self,
        prior: Prior,
        universe: dict[str, float],
        kl: float,
        errors: int,
        test_errors: int,
    ) -> dict[str, Any]:
        problem, budget = self.problem, self.problem.budget
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


def certificates(job: Job) -> dict[str, Any]:
    """Metrics and ledger of a spec of kind `certificates`.

    `rows`, per run, prior and tau: the prior's settings and kappa by form; risks on the training
    records (`risk_*`, from `draws` pairs) and on the test records (`*test_error`, every test record
    `test_repetitions` times, each with weights of its own); KL; certificates. certificate_prior
    and certificate_posterior are Eqs. 97 and 98 with kappa of the spec's `form`;
    certificate_tight has kappa-tight and Clopper-Pearson; certificate_rigorous has no gap in its
    proof for E > 1 and pays for all Monte Carlo counts, so that it holds for the row of least
    certificate too. certificate_universe pays for every setting that could have been chosen, after
    whatever look: `universe` has its weight, log(1 / weight) and the proven kappa at its level; all
    of them hold together. `selected_after_a_look` says whether other looks at the same records are
    registered, and `looks` which. A diverged posterior has certificates of 1. `selected`: by run
    and kind of prior the row of least certificate_posterior.
    """
    problem = Problem(job)
    priors = list(product(range(problem.fields["runs"]), problem.priors))
    statement = ledger_of(problem)
    count = len(problem.taus)
    rows = []
    with Progress(len(priors) * count * problem.training_steps, job.spec.id) as progress:
        work = Certified(problem, progress)

        def certify(number: int) -> dict[str, Any]:
            return {"rows": work.rows(*priors[number], number * count)}

        for number in range(len(priors)):
            rows += work.stages.result(f"prior-{number}", partial(certify, number))["rows"]
            progress.reach(len(rows) * problem.training_steps)
    metrics = {**facts_of(problem), "rows": rows, "selected": selected(rows)}
    return {"metrics": metrics, "ledger": statement}


def selected(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The row of least certificate for every run and kind of prior; the first among equals."""
    best: dict[tuple[int, str], int] = {}
    for place, row in enumerate(rows):
        key = (row["run"], row["prior"])
        now = rows[best.setdefault(key, place)]
        if row["certificate_posterior"] < now["certificate_posterior"]:
            best[key] = place
    return [{"run": run, "prior": kind, "row": row} for (run, kind), row in best.items()]


def agreement(job: Job) -> dict[str, Any]:
    """Local reparametrisation against weight sampling, on a prior and on its trained posterior.

    The spec is one of `certificates` with one prior and one tau; `repetitions` counts of `draws`
    pairs each, all of them independent, for every law and method.
    """
    problem = Problem(job)
    integer(ge=1).check("repetitions", problem.fields["repetitions"])
    if len(problem.priors) * len(problem.taus) != 1:
        found = f"{len(problem.priors)} priors and {len(problem.taus)} taus"
        raise InputError("agreement", found, "one of each")
    prior, tau = problem.priors[0], problem.taus[0]
    plan = list(product(("prior", "posterior"), METHODS, range(problem.fields["repetitions"])))
    with Progress(problem.training_steps + len(plan), job.spec.id) as progress:
        work = Certified(problem, progress)
        centre, _ = work.centre(prior, 0)
        posterior, diverged = work.posterior(prior, tau, centre, 0, 0)
        progress.reach(problem.training_steps)
        laws = {"posterior": posterior}
        laws["prior"] = MeanField.around(work.network(0), centre, problem.deviation(tau))
        rows = []
        for what, method, repetition in plan:
            if diverged is not None and what == "posterior":
                continue
            errors = work.count(f"{what} by {method}", laws[what], repetition, method)
            row = {"what": what, "method": method, "repetition": repetition}
            row |= {"draws": problem.budget.draws, "errors": errors}
            row["risk"] = errors / problem.budget.draws
            rows.append(row)
            progress.advance(f"{what} {method}")
    metrics = {**facts_of(problem), "diverged": diverged, "rows": rows}
    return {"metrics": metrics, "ledger": ledger_of(problem)}


KIND = Kind(
    legacy(certificates), spec=LegacyFields, packages=("torch", "numpy", "scipy", "dp-accounting")
)
