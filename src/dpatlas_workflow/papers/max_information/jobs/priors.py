"""max_information: the centres of priors, and the max-information that certificates pay for them.

    independent   the initial means
    dp-sgd        trained from the initial means by DP-SGD on the records (Algorithms 1 and 2)
    noise-only    trained with the same noise as `dp-sgd` but without gradients: it ignores the
                  records

DP-SGD releases the sum of a batch's clipped gradients plus sigma N(0, I), and a step is lr / m
times that. An epoch has T = floor(n / m) disjoint batches of m records, chosen independently of the
data. Nothing is claimed for batches drawn by Poisson sampling.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from dpatlas.accounting.ledger import Ran, ledger
from dpatlas.accounting.samplers import Cyclic, Sampler, Shuffled
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.formulas.max_information.certificates import check_tried
from dpatlas.formulas.max_information.kappa import FORMS, kappa_of_form, kappa_repaired
from dpatlas.formulas.max_information.universe import PriorKind
from dpatlas.models.network import Network
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.max_information.looks import DpSgdTuple, ranked
from dpatlas_workflow.papers.max_information.records.certified import (
    MAX_RUNS,
    CertifiedFields,
    IndependentPrior,
    PriorFields,
    PriorGrid,
)

INDEPENDENT, DP_SGD, NOISE_ONLY = KINDS = get_args(PriorKind)
SAMPLERS = {Shuffled.name: Shuffled, Cyclic.name: Cyclic}
RIGOROUS = "rigorous"
# How a ledger names the two trainings that draw the same noise.
SHARED = "a DP-SGD prior and its noise-only twin"
PAID = "kappa nats of max-information, not epsilon, are what the certificate pays for this prior"


@dataclass(frozen=True)
class DpSgd:
    """Hyperparameters: clip bound zeta, noise sigma, batches of m, E epochs, learning rate lr."""

    zeta: float
    sigma: float
    m: int
    E: int
    lr: float
    sampler: str = Shuffled.name

    @property
    def tuple(self) -> DpSgdTuple:
        """zeta, sigma, m, E, lr."""
        return self.zeta, self.sigma, self.m, self.E, self.lr

    def batches(self, n: int) -> Sampler:
        """The sampler of batches from n records; InputError for fewer than m."""
        if n < self.m:
            raise InputError("priors.m", self.m, f"at most n_train = {n}")
        return SAMPLERS[self.sampler](n, self.m)

    def phase(self, n: int, max_physical_batch: int | None = None) -> TrainingPhase:
        """The training of E epochs on n records."""
        batches = self.batches(n)
        return TrainingPhase(
            batches,
            noise_multiplier=self.sigma / self.zeta,
            max_grad_norm=self.zeta,
            steps=self.E * batches.steps_per_epoch,
            lr=self.lr,
            max_physical_batch=max_physical_batch,
        )


@dataclass(frozen=True)
class Prior:
    """A kind of prior, with its hyperparameters if it has any."""

    kind: str
    settings: DpSgd | None = None

    @classmethod
    def of(cls, fields: PriorFields) -> "Prior":
        """From an entry of a spec's `priors`."""
        if isinstance(fields, IndependentPrior):
            return cls(fields.kind)
        return cls(fields.kind, DpSgd(**fields.model_dump(exclude={"kind"})))

    @property
    def trained(self) -> DpSgd:
        """The hyperparameters of a trained prior; InputError for an independent one."""
        if self.settings is None:
            raise InputError("priors", self.kind, f"{DP_SGD} or {NOISE_ONLY}")
        return self.settings

    def kappa(self, form: str, n: int, level: float) -> float:
        """Max-information at `level`, nats; 0 for a prior that ignores the records.

        form: a form of kappa, or `rigorous`, the smallest without a gap in its proof for E > 1.
        """
        return _kappa(form, self.trained, n, level) if self.kind == DP_SGD else 0.0

    def kappas(self, n: int, level: float) -> dict[str, float | None]:
        """Max-information at `level` by every form; None if infinite."""
        return {form: finite(self.kappa(form, n, level)) for form in (*FORMS, RIGOROUS)}

    @property
    def epochs(self) -> int:
        """Epochs whose composition needs a proof: E, or 1 for a prior that ignores the records."""
        return self.trained.E if self.kind == DP_SGD else 1

    def facts(self, n: int) -> dict[str, Any]:
        """The fields of a row that describe the prior."""
        names = ("zeta", "sigma", "m", "E", "lr")
        if self.settings is None:
            return {"prior": self.kind, **dict.fromkeys((*names, "T"))}
        values = {name: getattr(self.settings, name) for name in names}
        return {"prior": self.kind, **values, "T": self.settings.batches(n).steps_per_epoch}


@functools.cache
def _kappa(form: str, settings: DpSgd, n: int, level: float) -> float:
    T = settings.batches(n).steps_per_epoch
    setting = (settings.m, settings.zeta, settings.sigma, T, settings.E, level)
    if form == RIGOROUS:
        return float(kappa_repaired(*setting, moment="minimum"))
    return float(kappa_of_form(form, *setting))


@dataclass(frozen=True)
class Declared:
    """What the union bound pays for: the K1 tuples of lowest kappa in a grid, and K2 values of tau.

    tuples: how many tuples of the grid may be tried, K1 if None; the rest of K1 and K2 pays for
    other looks at the same records. Each kind of prior has this budget for itself: certificates of
    one kind hold simultaneously, and the smallest of them may be chosen.
    """

    grid: PriorGrid
    K1: int
    K2: int
    beta: float
    tuples: int | None = None

    @classmethod
    def of(cls, fields: CertifiedFields) -> "Declared":
        """From the fields of a spec."""
        return cls(fields.grid, fields.K1, fields.K2, fields.beta, fields.tuples)

    @property
    def level(self) -> float:
        """beta / K1, at which every tuple's max-information is counted."""
        return self.beta / self.K1

    def check(self, priors: Sequence[Prior], taus: Sequence[float], n: int) -> None:
        """Raise `InputError` for a prior or tau that the certificates do not pay for."""
        for kind in KINDS:
            tried = {prior.settings for prior in priors if prior.kind == kind}
            check_tried(len(tried), len(self.grid.taus), self.K1, self.K2)
        for tau in taus:
            if tau not in self.grid.taus:
                allowed = ", ".join(f"{value:g}" for value in self.grid.taus)
                raise InputError("taus", f"{tau:g}", f"of the declared grid: {allowed}")
        paid = set(self.lowest_kappa(n))
        for prior in priors:
            if prior.settings is not None:
                self._check_tuple(prior.settings, paid)

    def lowest_kappa(self, n: int) -> list[DpSgdTuple]:
        """The tuples that may be tried."""
        if n < self.grid.m:
            raise InputError("grid.m", self.grid.m, f"at most n_train = {n}")
        return ranked(self.grid.model_dump(), self.tuples or self.K1, n, self.beta)

    def repetition(self, prior: Prior, n: int, run: int) -> int:
        """The number by which a prior's noise and batches are keyed.

        It follows from the rank of the tuple among those that are paid for, and is the same for
        `dp-sgd` and `noise-only`, in whichever jobs they are.
        """
        settings = prior.trained
        rank = self.lowest_kappa(n).index(settings.tuple)
        return (rank * len(SAMPLERS) + list(SAMPLERS).index(settings.sampler)) * MAX_RUNS + run

    def _check_tuple(self, tried: DpSgd, paid: set[DpSgdTuple]) -> None:
        grid = self.grid
        if (tried.m, tried.sigma) != (grid.m, grid.sigma):
            found = f"m {tried.m}, sigma {tried.sigma:g}"
            raise InputError("priors", found, f"m {grid.m}, sigma {grid.sigma:g}, as declared")
        if tried.tuple not in paid:
            found = f"zeta {tried.zeta:g}, lr {tried.lr:g}, E {tried.E}"
            allowed = f"one of the {len(paid)} tuples of lowest kappa in the declared grid"
            raise InputError("priors", found, allowed)


def prior_training(
    prior: Prior,
    network: Network,
    x: Tensor,
    labels: Tensor,
    *,
    noise: Noise,
    repetition: int,
    max_physical_batch: int | None = None,
) -> PrivateTraining:
    """Training of `network`, in place, from the initial means to the prior's centre.

    x (n, ...), labels (n,). The noise of a step depends on (noise, repetition, step). With equal
    ones `noise-only` draws the same noise as `dp-sgd`, and of the records it uses their number
    only. Only one of the two may be released, as `shared_noise` says in their ledgers.
    """
    noise_only = prior.kind == NOISE_ONLY
    return PrivateTraining(
        network,
        [prior.trained.phase(len(x), max_physical_batch)],
        torch.zeros_like(x) if noise_only else x,
        torch.zeros_like(labels) if noise_only else labels,
        noise=noise,
        repetition=repetition,
        loss=no_signal if noise_only else cross_entropy,
        shared_noise=SHARED,
    )


def no_signal(output: Tensor, labels: Tensor) -> Tensor:
    """A loss that is zero for every record, (records,), and whose gradients are zero."""
    return output.sum(1) * 0.0


def finite(value: float) -> float | None:
    """The value, or None for infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def prior_ledger(
    prior: Prior, n: int, level: float, *, delta: float, noise_source: str
) -> dict[str, Any]:
    """The differential privacy of one run's centre, for information: certificates pay `kappa`.

    delta: of the privacy guarantee, not of the certificate. InputError for an independent prior.
    """
    phase = prior.trained.phase(n)
    return {
        "prior": prior.facts(n),
        "kappa": prior.kappas(n, level),
        "kappa_level": level,
        "paid": PAID,
        **ledger(
            Ran(
                "DP-SGD on the mean network of a prior, flat clipping",
                (phase.accounted,),
                (phase.max_grad_norm,),
                noise_source,
                SHARED,
            ),
            delta=delta,
            relation="replace_one",
            released="the prior's centre",
            require_private=True,
        ),
    }
