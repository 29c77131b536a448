"""max_information: where a prior's centre comes from, and what the certificate pays for it.

    independent   the initial means
    dp-sgd        trained from there by DP-SGD on the same records (Algorithms 1 and 2)
    noise-only    DP-SGD's noise, key for key, without the gradients: it sees no record

DP-SGD releases the sum of a batch's clipped gradients plus sigma N(0, I) and steps by lr / m times
that. Batches are disjoint, m records each, T = floor(n / m) an epoch, chosen without a look at the
data; nothing is claimed for batches drawn by Poisson sampling.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpatlas.core.guard import Domain, integer, one_of, real
from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.models.network import Network
from dpatlas.papers.max_information.formulas.certificates import check_tried
from dpatlas.papers.max_information.formulas.kappa import FORMS, kappa_of_form, kappa_repaired
from dpatlas.papers.max_information.formulas.published import Hyperparameters, PriorGrid
from dpatlas.privacy.ledger import Ran, ledger
from dpatlas.privacy.per_record import cross_entropy
from dpatlas.privacy.samplers import Cyclic, Sampler, Shuffled
from dpatlas.privacy.training import PrivateTraining, TrainingPhase

INDEPENDENT, DP_SGD, NOISE_ONLY = KINDS = ("independent", "dp-sgd", "noise-only")
SAMPLERS = {kind.name: kind for kind in (Shuffled, Cyclic)}
RIGOROUS = "rigorous"
# What twins are called that draw the same noise.
SHARED = "a DP-SGD prior and its noise-only twin"
# Most runs of a tuple: every one has a repetition number of its own.
MOST_RUNS = 10_000
PAID = "kappa nats of max-information, not epsilon, are what the certificate pays for this prior"


@dataclass(frozen=True)
class DpSgd:
    """A tuple of hyperparameters: clip zeta, noise sigma, batch m, epochs E, rate lr."""

    zeta: float
    sigma: float
    m: int
    E: int
    lr: float
    sampler: str = Shuffled.name

    def __post_init__(self):
        for name, domain in SETTINGS.items():
            domain.check(f"priors.{name}", getattr(self, name))

    def batches(self, n: int) -> Sampler:
        """Of n records; InputError for fewer than m."""
        if n < self.m:
            raise InputError("priors.m", self.m, f"at most n_train = {n}")
        return SAMPLERS[self.sampler](n, self.m)

    def phase(self, n: int, max_physical_batch: int | None = None) -> TrainingPhase:
        """E epochs on n records."""
        batches = self.batches(n)
        return TrainingPhase(
            batches,
            noise_multiplier=self.sigma / self.zeta,
            max_grad_norm=self.zeta,
            steps=self.E * batches.steps_per_epoch,
            lr=self.lr,
            max_physical_batch=max_physical_batch,
        )


SETTINGS: dict[str, Domain] = {
    "zeta": real(gt=0),
    "sigma": real(gt=0),
    "m": integer(ge=1),
    "E": integer(ge=1),
    "lr": real(gt=0),
    "sampler": one_of(*SAMPLERS),
}


@dataclass(frozen=True)
class Prior:
    """A kind of centre, with its tuple of hyperparameters if it has one."""

    kind: str
    settings: DpSgd | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Prior":
        """From an entry of a spec's `priors`; InputError for missing, unknown or bad values."""
        given = dict(fields)
        kind = given.pop("kind", None)
        one_of(*KINDS).check("priors.kind", kind)
        wanted = () if kind == INDEPENDENT else tuple(SETTINGS)
        missing = sorted(set(wanted) - {"sampler"} - set(given))
        unknown = sorted(set(given) - set(wanted))
        if missing or unknown:
            found = f"{kind} {f'without {missing[0]}' if missing else f'with {unknown[0]}'}"
            raise InputError("priors", found, ", ".join(wanted) or "no settings")
        return cls(kind, DpSgd(**given) if wanted else None)

    def kappa(self, form: str, n: int, level: float) -> float:
        """Max-information at `level`, nats; 0 for a centre that saw no record.

        form: one of the formulas, or `rigorous`: the least without a gap in its proof for E > 1.
        """
        return _kappa(form, self.settings, n, level) if self.kind == DP_SGD else 0.0

    @property
    def epochs(self) -> int:
        """Through which the centre saw the records: E, or 1 for a centre that saw none."""
        return self.settings.E if self.kind == DP_SGD else 1

    def facts(self, n: int) -> dict[str, Any]:
        """What a row says of it."""
        names = ("zeta", "sigma", "m", "E", "lr")
        if self.settings is None:
            return {"prior": self.kind, **dict.fromkeys((*names, "T"))}
        values = {name: getattr(self.settings, name) for name in names}
        return {"prior": self.kind, **values, "T": self.settings.batches(n).steps_per_epoch}


@functools.cache
def _kappa(form: str, chosen: DpSgd, n: int, level: float) -> float:
    T = chosen.batches(n).steps_per_epoch
    setting = (chosen.m, chosen.zeta, chosen.sigma, T, chosen.E, level)
    if form == RIGOROUS:
        return float(kappa_repaired(*setting, moment="minimum"))
    return float(kappa_of_form(form, *setting))


@dataclass(frozen=True)
class Declared:
    """What the union bound pays for: K1 tuples of a grid's lowest kappas, K2 values of tau.

    zetas, lrs, epochs and taus span the grid, at one m and one sigma; `tuples` of it may be tried,
    K1 if None, and the rest of K1 and K2 pays for other looks at the same records. The budget is
    one for each kind of prior: certificates of one kind hold together, and the least of them may be
    chosen.
    """

    zetas: tuple[float, ...]
    lrs: tuple[float, ...]
    epochs: tuple[int, ...]
    taus: tuple[float, ...]
    m: int
    sigma: float
    K1: int
    K2: int
    delta: float
    delta_mc: float
    beta: float
    tuples: int | None = None

    def __post_init__(self):
        spans = {"zetas": "zeta", "lrs": "lr", "epochs": "E"}
        domains = {name: SETTINGS[one] for name, one in spans.items()} | {"taus": real(gt=0)}
        for name, domain in domains.items():
            for value in getattr(self, name):
                domain.check(f"grid.{name}", value)
        for name in ("m", "sigma"):
            SETTINGS[name].check(f"grid.{name}", getattr(self, name))

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Declared":
        """From a spec's `grid`, K1, K2, delta, delta_mc and beta."""
        grid = fields["grid"]
        spans = {name: tuple(grid[name]) for name in ("zetas", "lrs", "epochs", "taus")}
        budget = {name: fields[name] for name in ("K1", "K2", "delta", "delta_mc", "beta")}
        own = {"m": grid["m"], "sigma": grid["sigma"], "tuples": fields.get("tuples")}
        return cls(**spans, **own, **budget)

    @property
    def level(self) -> float:
        """beta / K1, at which every tuple's max-information is counted."""
        return self.beta / self.K1

    def check(self, priors: Sequence[Prior], taus: Sequence[float], n: int) -> None:
        """InputError for a prior or tau that the certificates do not pay for."""
        for kind in KINDS:
            tried = {prior.settings for prior in priors if prior.kind == kind}
            check_tried(len(tried), len(self.taus), self.K1, self.K2)
        for tau in taus:
            if tau not in self.taus:
                allowed = ", ".join(f"{value:g}" for value in self.taus)
                raise InputError("taus", f"{tau:g}", f"of the declared grid: {allowed}")
        paid = set(self.lowest_kappa(n))
        for prior in priors:
            if prior.settings is not None:
                self._check_tuple(prior.settings, paid)

    def lowest_kappa(self, n: int) -> list[Hyperparameters]:
        """The tuples that may be tried."""
        grid = PriorGrid(
            self.zetas,
            self.lrs,
            self.epochs,
            self.taus,
            self.m,
            self.sigma,
            self.tuples or self.K1,
            self.delta,
            self.delta_mc,
            self.beta,
            draws=1,
        )
        if n < self.m:
            raise InputError("grid.m", self.m, f"at most n_train = {n}")
        return grid.lowest_kappa(n // self.m)

    def all_tuples(self, n: int) -> list[tuple[float, float, int, int, float]]:
        """zeta, sigma, m, E, lr of every tuple that may be tried."""
        return [
            (each.zeta, self.sigma, self.m, each.E, each.learning_rate)
            for each in self.lowest_kappa(n)
        ]

    def repetition(self, prior: Prior, n: int, run: int) -> int:
        """Under which a prior's noise and batches are keyed.

        It follows from the place of the tuple among those that are paid for, and is the same for
        `dp-sgd` and `noise-only`, in whichever jobs they are.
        """
        chosen = prior.settings
        names = Hyperparameters(chosen.zeta, chosen.lr, chosen.E)
        place = self.lowest_kappa(n).index(names)
        return (place * len(SAMPLERS) + list(SAMPLERS).index(chosen.sampler)) * MOST_RUNS + run

    def _check_tuple(self, tried: DpSgd, paid: set[Hyperparameters]) -> None:
        if (tried.m, tried.sigma) != (self.m, self.sigma):
            found = f"m {tried.m}, sigma {tried.sigma:g}"
            raise InputError("priors", found, f"m {self.m}, sigma {self.sigma:g}, as declared")
        if Hyperparameters(tried.zeta, tried.lr, tried.E) not in paid:
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

    x (n, ...), labels (n,). The noise of a step depends on (noise, repetition, step): given the
    same ones, `noise-only` draws what `dp-sgd` draws, and of the records it takes the number. So
    only one of the two may be released, which their `shared_noise` says.
    """
    blind = prior.kind == NOISE_ONLY
    return PrivateTraining(
        network,
        [prior.settings.phase(len(x), max_physical_batch)],
        torch.zeros_like(x) if blind else x,
        torch.zeros_like(labels) if blind else labels,
        noise=noise,
        repetition=repetition,
        loss=no_signal if blind else cross_entropy,
        shared_noise=SHARED,
    )


def no_signal(output: Tensor, labels: Tensor) -> Tensor:
    """A loss of zero with gradients of zero, (records,)."""
    return output.sum(1) * 0.0


def finite(value: float) -> float | None:
    """None for what is beyond all numbers, as JSON has it."""
    return value if math.isfinite(value) else None


def prior_ledger(
    prior: Prior, n: int, level: float, *, delta: float, noise_source: str
) -> dict[str, Any]:
    """Differential privacy of one run's centre, for the reader: `paid` says what is paid.

    delta: of the privacy guarantee, not of the certificate. Nothing without a tuple.
    """
    kappas = {form: finite(prior.kappa(form, n, level)) for form in (*FORMS, RIGOROUS)}
    phase = prior.settings.phase(n)
    return {
        "prior": prior.facts(n),
        "kappa": kappas,
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
