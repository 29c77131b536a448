"""max_information: the inputs of a job of certificates, checked before anything is trained."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.seeds import Noise
from dpatlas.base.specs import FIRST_RUN, RUNS
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.formulas.max_information.certificates import (
    certificate_exponent,
    certificate_monte_carlo,
    kl_inverse,
    monte_carlo_risk,
)
from dpatlas.formulas.max_information.universe import certificate_universe, setting_weight
from dpatlas.jobs.job import Job
from dpatlas.models.mean_field import flat_values, initial_network
from dpatlas.models.network import Network
from dpatlas_workflow.papers.max_information.jobs.posteriors import TrainingSettings
from dpatlas_workflow.papers.max_information.jobs.priors import (
    RIGOROUS,
    check_declared,
    declared,
    epochs_of,
    kappa_of,
    prior_ledger,
    sees_records,
)
from dpatlas_workflow.papers.max_information.looks import check_paid, label_of
from dpatlas_workflow.papers.max_information.records.certified import (
    CertifiedFields,
    Normalise,
    PriorFields,
)
from dpatlas_workflow.run.deals import Deals

# Fields of a spec that say which part of a setting a job computes.
DIVIDED = ("priors", "taus", FIRST_RUN, RUNS)


class CertifyProblem:
    """A job's data, network, priors and settings, checked; `records` are those of one run.

    Raises InputError for priors or values of tau outside the declared grid, K1, K2 or delta that do
    not cover what this and all other looks at the same records try, settings outside the universe,
    an infinite kappa, batches larger than the data, and data without test records.
    """

    def __init__(self, job: Job, runs: Sequence[int]):
        """runs: numbers of the runs that the job computes."""
        fields: CertifiedFields = job.fields
        self.job, self.fields, self.data = job, fields, job.prepared
        data = self.data
        if not len(data.x_test):
            raise InputError("n_test", 0, "at least 1: certificates are compared with test errors")
        self.n = n = len(data.x_train)
        # At which every tuple's max-information is counted.
        self.level = fields.beta / fields.K1
        check_declared(fields, n)
        check_paid(fields, declared(fields, n), fields.grid.taus)
        for prior in fields.priors:
            for tau in fields.taus:
                self.weight(prior, tau, max(runs))
        for prior in fields.priors:
            if math.isinf(self.kappa(prior)):
                found = f"infinite {fields.form} kappa at E = {epochs_of(prior)}"
                raise InputError("priors", found, "priors of finite kappa")
        self.settings = TrainingSettings(
            fields.objective, fields.loss, **fields.training.model_dump()
        )
        if self.settings.batch > n:
            raise InputError("training.batch", self.settings.batch, f"at most n_train = {n}")
        self.deals = Deals(job)
        self._records: dict[int, dict[str, tuple[Tensor, Tensor]]] = {}
        # Every test record `test_repetitions` times.
        self.tested = np.tile(np.arange(len(data.x_test)), fields.test_repetitions)

    @property
    def training_steps(self) -> int:
        """Number of steps in the training of one posterior."""
        return self.settings.epochs * (self.n // self.settings.batch)

    def records(self, run: int, part: str = "train") -> tuple[Tensor, Tensor]:
        """x (n, ...) and labels (n,) of the records that a run is dealt, on the job's device.

        All priors of the run share them. part: `train` or `test`.
        """
        if run not in self._records:
            dealt, device = self.deals.of(run), self.job.device
            self._records = {run: {}}
            for each in ("train", "test"):
                x = normalised(dealt.x[each], self.data, self.fields.normalise)
                x_there = torch.from_numpy(x).to(device)
                labels = torch.from_numpy(dealt.labels[each]).to(device)
                self._records[run][each] = x_there, labels
        return self._records[run][part]

    def network(self, run: int) -> Network:
        """The network at the initial means of a run, which all priors of the run share."""
        network = initial_network(
            self.fields.model,
            self.data.image_shape,
            len(self.data.classes),
            key=self.job.spec.key,
            run=run,
            base_seed=self.fields.seed,
            **self.fields.options.model_dump(exclude_none=True),
        )
        return network.to(self.job.device)

    def deviation(self, tau: float) -> float:
        """tau as a standard deviation."""
        return math.sqrt(tau) if self.fields.tau_is == "variance" else tau

    def kappa(self, prior: PriorFields, form: str | None = None) -> float:
        """A prior's kappa at level beta / K1, nats; by default the form that certificates pay."""
        return kappa_of(prior, form or self.fields.form, self.n, self.level)

    def weight(self, prior: PriorFields, tau: float, run: int) -> float:
        """Weight of a setting in the universe of all settings."""
        fields = self.fields
        return setting_weight(
            model=fields.model,
            widths=fields.options.widths or (),
            normalise=None if fields.normalise is None else fields.normalise.model_dump(),
            tau=tau,
            tau_is=fields.tau_is,
            n=self.n,
            look=fields.looks.number,
            run=run,
            **prior.model_dump(),
        )

    def universe(self, prior: PriorFields, tau: float, run: int) -> tuple[float, float]:
        """Weight of a setting, and the smallest proven kappa at its level beta weight, nats."""
        weight = self.weight(prior, tau, run)
        return weight, kappa_of(prior, RIGOROUS, self.n, self.fields.beta * weight)

    def exponent(self, kl: float, kappa: float) -> float:
        """K / n of Eq. 97, nats; K - KL over n where `kl` is 0."""
        return float(certificate_exponent(kl, kappa, *self._budget))

    def printed(self, errors: int, kl: float, kappa: float, interval: str = "paper") -> float:
        """The certificate of Eqs. 97 and 98; delta_mc pays for this count of errors only."""
        draws = self.fields.draws
        counted = (errors / draws, draws)
        return float(certificate_monte_carlo(*counted, kl, kappa, *self._budget, interval))

    def rigorous(self, errors: int, kl: float, kappa: float) -> float:
        """A certificate for all tried posteriors at once: Clopper-Pearson at delta_mc / (K1 K2)."""
        fields, draws = self.fields, self.fields.draws
        level = fields.delta_mc / (fields.K1 * fields.K2)
        risk = monte_carlo_risk(errors / draws, draws, level, "clopper-pearson")
        return float(kl_inverse(risk, self.exponent(kl, kappa)))

    def of_universe(self, errors: int, kl: float, weight: float, kappa: float) -> float:
        """A certificate that pays for every setting of the universe; kappa at level beta weight."""
        draws, (n, _, _, *level) = self.fields.draws, self._budget
        counted = (errors / draws, draws)
        return float(certificate_universe(*counted, kl, kappa, n, weight, *level))

    @property
    def _budget(self) -> tuple[int, int, int, float, float, float]:
        fields = self.fields
        return (self.n, fields.K1, fields.K2, fields.delta, fields.delta_mc, fields.beta)

    @functools.cached_property
    def root(self) -> str:
        """Key of all noise: a digest of the spec without its priors, values of tau and runs.

        Therefore a prior and a run have the same noise however the priors and runs of a setting are
        divided among jobs.
        """
        fields = self.job.spec.fields
        shared = {name: fields[name] for name in fields if name not in DIVIDED}
        return sha256(canonical_json(shared))

    def keyed(self, use: str) -> Noise:
        """Noise without a privacy role: batches and weights of training, pairs of counts.

        All priors and posteriors of a run take it by the run's number, so that they are compared on
        the same batches, weights and pairs.
        """
        return Noise(f"{self.root}/{use}", "keyed")


def normalised(x: np.ndarray, data: Prepared, normalise: Normalise | None) -> np.ndarray:
    """(grey level / 255 - mean) / deviation by channel; x unchanged if `normalise` is None.

    x (records, channels height width), scaled as the data's manifest says; means, deviations
    (channels,). Raises InputError for another number of channels and for records scaled to a norm.
    """
    if normalise is None:
        return x
    scaling, (channels, *_) = data.manifest["preprocessing"], data.image_shape
    means, deviations = (
        np.array(values, float) for values in (normalise.means, normalise.deviations)
    )
    if scaling["norm"] is not None or {means.shape, deviations.shape} != {(channels,)}:
        found = f"{len(means)} means for {channels} channels, norm {scaling['norm']}"
        raise InputError("normalise", found, "one mean and deviation a channel, norm null")
    factor = scaling["divide"] / (255 * scaling["multiply"] * deviations)
    offset = (scaling["subtract"] / (255 * scaling["multiply"]) - means) / deviations
    pixels = x.reshape(len(x), channels, -1)
    scaled = pixels * factor[:, None].astype(np.float32)
    scaled += offset[:, None].astype(np.float32)
    return scaled.reshape(x.shape)


def facts_of(problem: CertifyProblem) -> dict[str, Any]:
    """The facts that records of certificates share."""
    network = problem.network(0)
    return {
        "n_train": problem.n,
        "n_test": len(problem.data.x_test),
        "inputs": problem.data.x_train.shape[1],
        "classes": len(problem.data.classes),
        "parameters": len(flat_values(network)),
        "T": problem.n // problem.fields.grid.m,
        "kappa_level": problem.level,
        "holds_together": "the certificates of one kind of prior in one run, for the records of "
        "that run; of the universe, those of all runs",
        **label_of(problem.fields.looks),
    }


def ledger_of(problem: CertifyProblem) -> dict[str, Any]:
    """The ledger of a job, with an entry for each DP-SGD prior."""
    fields = problem.fields
    private = [
        prior_ledger(
            prior,
            problem.n,
            problem.level,
            delta=fields.privacy_delta,
            noise_source=fields.noise_source,
        )
        for prior in fields.priors
        if sees_records(prior)
    ]
    return {
        "mechanism": "DP-SGD for the centres of priors; posteriors, risks and certificates are "
        "computed from the records without privacy",
        "neighbour_relation": "replace one record; the number of records is public",
        "accountant": "as each prior says",
        "epsilon": None,
        "delta": None,
        "guaranteed": "nothing for posteriors, risks and certificates; of each prior's centre what "
        "its entry says, for one run of one prior and not for several together",
        "claimed": None,
        "paid": "max-information kappa at level beta / K1, log(K1 K2) for the choice among the "
        f"declared priors of one kind, beta = {fields.beta:g}, K1 = {fields.K1}, "
        f"K2 = {fields.K2}; certificate_universe: log(1 / w) for a setting of weight w and "
        "kappa at level beta w",
        **label_of(fields.looks),
        "chosen_on_private_data": [
            {
                "what": "prior and tau, by the least certificate of a kind of prior",
                "cost": "log(K1 K2) nats and beta / K1 in every certificate; no epsilon counts it",
            }
        ],
        "priors": private,
    }
