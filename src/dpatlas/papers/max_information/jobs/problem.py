"""max_information: what a job of certificates is given, checked before anything is trained."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.core.seeds import Noise
from dpatlas.data.prepared import Prepared
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job
from dpatlas.models.mean_field import flat_values, initial_network
from dpatlas.models.network import Network
from dpatlas.papers.max_information.formulas.certificates import (
    certificate_exponent,
    certificate_monte_carlo,
    kl_inverse,
    monte_carlo_risk,
)
from dpatlas.papers.max_information.formulas.universe import certificate_universe, setting_weight
from dpatlas.papers.max_information.jobs.posteriors import TrainingSettings
from dpatlas.papers.max_information.jobs.priors import (
    DP_SGD,
    RIGOROUS,
    Declared,
    Prior,
    prior_ledger,
)
from dpatlas.papers.max_information.looks import check_paid, label_of
from dpatlas.papers.max_information.records.certified import CertifiedFields, Normalise


@dataclass(frozen=True)
class Budget:
    """What a certificate is computed from beside risk and KL."""

    n: int
    K1: int
    K2: int
    delta: float
    delta_mc: float
    beta: float
    draws: int

    def extra(self, kappa: float) -> float:
        """K - KL of Eq. 97, nats."""
        return float(self._exponent(0.0, kappa)) * self.n

    def printed(self, errors: int, kl: float, kappa: float, interval: str = "paper") -> float:
        """Eqs. 97 and 98; delta_mc pays for this one count of errors."""
        level = (self.n, self.K1, self.K2, self.delta, self.delta_mc, self.beta)
        risk = errors / self.draws
        return float(certificate_monte_carlo(risk, self.draws, kl, kappa, *level, interval))

    def rigorous(self, errors: int, kl: float, kappa: float) -> float:
        """Clopper-Pearson at delta_mc / (K1 K2): it holds for all posteriors that were tried."""
        level = self.delta_mc / (self.K1 * self.K2)
        risk = monte_carlo_risk(errors / self.draws, self.draws, level, "clopper-pearson")
        return float(kl_inverse(risk, self._exponent(kl, kappa)))

    def universe(self, errors: int, kl: float, kappa: float, weight: float) -> float:
        """It pays for every setting of the universe; kappa at level beta weight."""
        level = (self.n, weight, self.delta, self.delta_mc, self.beta)
        return float(certificate_universe(errors / self.draws, self.draws, kl, kappa, *level))

    def _exponent(self, kl: float, kappa: float) -> float:
        level = (self.n, self.K1, self.K2, self.delta, self.delta_mc, self.beta)
        return certificate_exponent(kl, kappa, *level)


class Problem:
    """A job's data, network, priors and settings, checked.

    Raises InputError for priors or values of tau outside of the declared grid, a budget K1, K2 or
    delta that does not cover what is tried here and by the other looks at the same records,
    settings outside of the universe, batches larger than the data, and data without test records.
    """

    def __init__(self, job: Job):
        fields: CertifiedFields = job.fields
        self.job, self.fields, self.data = job, fields, job.prepared
        data = self.data
        if not len(data.x_test):
            raise InputError("n_test", 0, "at least 1: certificates are compared with test errors")
        self.n = len(data.x_train)
        self.priors, self.taus = [Prior.of(given) for given in fields.priors], fields.taus
        self.declared = Declared.of(fields)
        self.declared.check(self.priors, self.taus, self.n)
        check_paid(fields, self.declared.lowest_kappa(self.n), fields.grid.taus)
        for prior in self.priors:
            for tau in self.taus:
                self.weight(prior, tau, fields.runs - 1)
        for prior in self.priors:
            if math.isinf(self.kappa(prior)):
                found = f"{fields.form} kappa beyond all numbers at E = {prior.epochs}"
                raise InputError("priors", found, "priors of finite kappa")
        self.budget = Budget(
            self.n,
            fields.K1,
            fields.K2,
            fields.delta,
            fields.delta_mc,
            fields.beta,
            fields.draws,
        )
        self.settings = TrainingSettings.of(fields)
        if self.settings.batch > self.n:
            allowed = f"at most n_train = {self.n}"
            raise InputError("training.batch", self.settings.batch, allowed)
        self.x, self.x_test = (
            self._tensor(normalised(part, data, fields.normalise))
            for part in (data.x_train, data.x_test)
        )
        self.labels, self.labels_test = map(self._tensor, (data.y_train, data.y_test))
        # The test records, as often as they are to be tested.
        self.tested = np.tile(np.arange(len(data.x_test)), fields.test_repetitions)

    @property
    def training_steps(self) -> int:
        """Of one posterior."""
        return self.settings.epochs * (self.n // self.settings.batch)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.job.device)

    def network(self, run: int) -> Network:
        """At the initial means of a run, which all its priors share."""
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

    def kappa(self, prior: Prior, form: str | None = None) -> float:
        """At level beta / K1, nats; by default of the form that certificates pay."""
        return prior.kappa(form or self.fields.form, self.n, self.declared.level)

    def weight(self, prior: Prior, tau: float, run: int) -> float:
        """Of a setting in the universe that certificates pay for."""
        fields = self.fields
        return setting_weight(
            kind=prior.kind,
            model=fields.model,
            widths=fields.options.widths or (),
            normalise=None if fields.normalise is None else fields.normalise.model_dump(),
            tau=tau,
            tau_is=fields.tau_is,
            n=self.n,
            look=fields.looks.number,
            run=run,
            **({} if prior.settings is None else asdict(prior.settings)),
        )

    def universe(self, prior: Prior, tau: float, run: int) -> dict[str, float]:
        """Weight of a setting, and the proven kappa at its level beta weight, nats."""
        weight = self.weight(prior, tau, run)
        return {"weight": weight, "kappa": prior.kappa(RIGOROUS, self.n, self.budget.beta * weight)}

    @property
    def prior_root(self) -> str:
        """What the noise of priors is keyed by: the spec without its list of priors.

        So jobs may share out the priors of one setting, and change none.
        """
        shared = {name: value for name, value in self.job.spec.fields.items() if name != "priors"}
        return sha256(canonical_json(shared))

    def keyed(self, use: str) -> Noise:
        """Draws that protect nobody: training, records and weights of counts."""
        return Noise(f"{self.job.spec.digest}/{use}", "keyed")


def normalised(x: np.ndarray, data: Prepared, normalise: Normalise | None) -> np.ndarray:
    """(grey level / 255 - mean) / deviation by channel; x as it is for None.

    x (records, channels height width) as the data's scaling left it; means, deviations (channels,).
    Raises InputError for other numbers of channels and for records scaled to a norm.
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


def facts_of(problem: Problem) -> dict[str, Any]:
    """The fields of `CertifiedMetrics`: what a reader needs beside the rows."""
    network = problem.network(0)
    return {
        "n_train": problem.n,
        "n_test": len(problem.x_test),
        "inputs": problem.x.shape[1],
        "classes": len(problem.data.classes),
        "parameters": len(flat_values(network)),
        "T": problem.n // problem.fields.grid.m,
        "kappa_level": problem.declared.level,
        "form": problem.fields.form,
        "tau_is": problem.fields.tau_is,
        "holds_together": "the certificates of one kind of prior in one run; of the universe, all",
        **label_of(problem.fields.looks),
    }


def ledger_of(problem: Problem) -> dict[str, Any]:
    """A ledger for each DP-SGD prior, and what holds for the job."""
    fields = problem.fields
    private = [
        prior_ledger(
            prior,
            problem.n,
            problem.declared.level,
            delta=fields.privacy_delta,
            noise_source=fields.noise_source,
        )
        for prior in problem.priors
        if prior.kind == DP_SGD
    ]
    return {
        "mechanism": "DP-SGD for the centres of priors; posteriors, risks and certificates are "
        "computed from the records without privacy",
        "neighbour_relation": "replace one record; the number of records is public",
        "accountant": "as each prior says",
        "epsilon": None,
        "delta": None,
        "guaranteed": "nothing for posteriors, risks and certificates; of each prior's centre what "
        "its entry says, for one run of one prior",
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
