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
from typing import Any, TypeGuard

import torch
from torch import Tensor

from dpatlas.accounting.ledger import Ran, ledger
from dpatlas.accounting.samplers import Cyclic, Shuffled
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.formulas.max_information.certificates import check_tried
from dpatlas.formulas.max_information.grid import DpSgdTuple, lowest_kappa
from dpatlas.formulas.max_information.kappa import FORMS, kappa_of_form, kappa_repaired
from dpatlas.formulas.max_information.universe import KINDS
from dpatlas.models.network import Network
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.max_information.records.certified import (
    MAX_RUNS,
    CertifiedFields,
    DpSgdPrior,
    PriorFields,
)

SAMPLERS = {Shuffled.name: Shuffled, Cyclic.name: Cyclic}
RIGOROUS = "rigorous"
# How a ledger names the two trainings that draw the same noise.
SHARED = "a DP-SGD prior and its noise-only twin"
PAID = "kappa nats of max-information, not epsilon, are what the certificate pays for this prior"


def sees_records(prior: PriorFields) -> TypeGuard[DpSgdPrior]:
    """Whether the centre was trained on the records, so that the prior has a max-information."""
    return prior.kind == "dp-sgd"


@functools.cache
def kappa_of(prior: PriorFields, form: str, n: int, level: float) -> float:
    """Max-information of a prior at `level`, nats; 0 for one that ignores the records.

    form: a form of kappa, or `rigorous`, the smallest without a gap in its proof for E > 1.
    """
    if not sees_records(prior):
        return 0.0
    setting = (prior.m, prior.zeta, prior.sigma, n // prior.m, prior.E, level)
    if form == RIGOROUS:
        return float(kappa_repaired(*setting, moment="minimum"))
    return float(kappa_of_form(form, *setting))


def kappas_of(prior: PriorFields, n: int, level: float) -> dict[str, float | None]:
    """Max-information of a prior at `level` by every form; None if infinite."""
    return {form: finite(kappa_of(prior, form, n, level)) for form in (*FORMS, RIGOROUS)}


def epochs_of(prior: PriorFields) -> int:
    """Epochs whose composition needs a proof: E, or 1 for a prior that ignores the records."""
    return prior.E if sees_records(prior) else 1


def facts_of_prior(prior: PriorFields, n: int) -> dict[str, Any]:
    """The fields of a row that describe the prior."""
    values = {name: getattr(prior, name, None) for name in DpSgdTuple._fields}
    T = n // prior.m if isinstance(prior, DpSgdPrior) else None
    return {"prior": prior.kind, **values, "T": T}


def tuple_of(prior: DpSgdPrior) -> DpSgdTuple:
    """The prior's hyperparameters, but for the sampler."""
    return DpSgdTuple(prior.zeta, prior.sigma, prior.m, prior.E, prior.lr)


def phase_of(prior: DpSgdPrior, n: int, max_physical_batch: int | None = None) -> TrainingPhase:
    """The training of a prior's E epochs on n records."""
    batches = SAMPLERS[prior.sampler](n, prior.m)
    return TrainingPhase(
        batches,
        noise_multiplier=prior.sigma / prior.zeta,
        max_grad_norm=prior.zeta,
        steps=prior.E * batches.steps_per_epoch,
        lr=prior.lr,
        max_physical_batch=max_physical_batch,
    )


def declared(fields: CertifiedFields, n: int) -> list[DpSgdTuple]:
    """The tuples of the grid that may be tried; the rest of K1 pays for other looks."""
    if n < fields.grid.m:
        raise InputError("grid.m", fields.grid.m, f"at most n_train = {n}")
    return lowest_kappa(fields.grid.model_dump(), fields.tuples or fields.K1, n, fields.beta)


def check_declared(fields: CertifiedFields, n: int) -> None:
    """Raise `InputError` for a prior or tau of a spec that its certificates do not pay for.

    Each kind of prior has K1 and K2 for itself: certificates of one kind hold simultaneously, and
    the smallest of them may be chosen.
    """
    grid, priors = fields.grid, fields.priors
    for kind in KINDS:
        tried = sum(prior.kind == kind for prior in priors)
        check_tried(tried, len(grid.taus), fields.K1, fields.K2)
    for tau in fields.taus:
        if tau not in grid.taus:
            allowed = ", ".join(f"{value:g}" for value in grid.taus)
            raise InputError("taus", f"{tau:g}", f"of the declared grid: {allowed}")
    paid = set(declared(fields, n))
    for prior in priors:
        if not isinstance(prior, DpSgdPrior):
            continue
        if (prior.m, prior.sigma) != (grid.m, grid.sigma):
            found = f"m {prior.m}, sigma {prior.sigma:g}"
            raise InputError("priors", found, f"m {grid.m}, sigma {grid.sigma:g}, as declared")
        if tuple_of(prior) not in paid:
            found = f"zeta {prior.zeta:g}, lr {prior.lr:g}, E {prior.E}"
            allowed = f"one of the {len(paid)} tuples of lowest kappa in the declared grid"
            raise InputError("priors", found, allowed)


def repetition_of(fields: CertifiedFields, prior: DpSgdPrior, n: int, run: int) -> int:
    """The number by which a prior's noise and batches are keyed.

    It follows from the rank of the tuple among those that are paid for, and is the same for
    `dp-sgd` and `noise-only`, in whichever jobs they are.
    """
    rank = declared(fields, n).index(tuple_of(prior))
    return (rank * len(SAMPLERS) + list(SAMPLERS).index(prior.sampler)) * MAX_RUNS + run


def prior_training(
    prior: DpSgdPrior,
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
    noise_only = prior.kind == "noise-only"
    return PrivateTraining(
        network,
        [phase_of(prior, len(x), max_physical_batch)],
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
    prior: DpSgdPrior, n: int, level: float, *, delta: float, noise_source: str
) -> dict[str, Any]:
    """The differential privacy of one run's centre, for information: certificates pay `kappa`.

    delta: of the privacy guarantee, not of the certificate.
    """
    phase = phase_of(prior, n)
    return {
        "prior": facts_of_prior(prior, n),
        "kappa": kappas_of(prior, n, level),
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
