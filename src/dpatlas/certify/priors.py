"""The centres of priors, the records that their certificates count, and what they pay."""

from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dpatlas.accounting.samplers import Shuffled
from dpatlas.base.seeds import Noise
from dpatlas.certify.report import HeldOut
from dpatlas.certify.settings import CertifySettings
from dpatlas.errors import InputError
from dpatlas.formulas.max_information.certificates import monte_carlo_risk
from dpatlas.formulas.max_information.kappa import kappa, kappa_repaired, standing
from dpatlas.models.mean_field import flat_values
from dpatlas.models.mean_field_passes import misclassified
from dpatlas.models.network import Network
from dpatlas.privacy.noise import device_generator
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import PrivateTraining

# Records whose outputs are computed together.
BLOCK = 4096
INITIALISATION, HELD_OUT, DP_SGD = PRIORS = ("initialisation", "held-out", "dp-sgd")
# Each certificate of a seed holds for itself; centres of several may not be released together.
SHARED = "DP-SGD priors of certificates with one seed"


@dataclass(frozen=True)
class Prior:
    """A prior's centre and its price.

    centre (parameters,). certified: indices of the records that the certificate counts. kappa:
    max-information paid, nats, in a form whose proof has no gap; kappa_printed: as the paper prints
    it, whose proof has a gap for more than one epoch. paid: a sentence.
    """

    centre: Tensor
    certified: np.ndarray
    paid: str
    kappa: float = 0.0
    kappa_printed: float | None = None


@dataclass(frozen=True)
class PriorProblem:
    """A network as it was given, records x (n, ...) with labels y (n,), and noise by a key."""

    network: Network
    x: Tensor
    y: Tensor
    settings: CertifySettings
    noise: Noise

    @cached_property
    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the records to learn from, and of the others, at random by the noise's key."""
        n = len(self.x)
        split = self.noise.generator(repetition=0, step=0, use="split").permutation(n)
        held_out = round(self.settings.held_out * n)
        return np.sort(split[:held_out]), np.sort(split[held_out:])

    @cached_property
    def trained(self) -> Network:
        """A copy of the network after ordinary training on the records to learn from."""
        network, (learnt, _) = deepcopy(self.network).requires_grad_(True), self.split
        x, y = self.x[learnt], self.y[learnt]
        draws = device_generator(self.noise.key(0, 0, "prior batches"), x.device)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.settings.prior_lr)
        for _ in range(self.settings.prior_epochs):
            for rows in torch.randperm(len(x), generator=draws).split(self.settings.batch):
                optimizer.zero_grad()
                loss = F.cross_entropy(network(x[rows]), y[rows])
                loss.backward()
                optimizer.step()
        return network


def make_prior(kind: str, problem: PriorProblem, beta: float) -> Prior:
    """The prior of this kind around the network's parameters.

    beta: level of kappa, for "dp-sgd". Raises InputError for too few records.
    """
    n = len(problem.x)
    if kind == INITIALISATION:
        paid = "nothing: the model's own weights, which must not have seen the records"
        return Prior(flat_values(problem.network), np.arange(n), paid)
    if kind == DP_SGD:
        return _private(problem, beta)
    learnt, certified = problem.split
    if not len(learnt) or not len(certified):
        found = f"{len(learnt)} of {n} records for the prior"
        raise InputError("held_out", found, "at least one record for each part")
    paid = (
        f"{len(learnt)} records: the prior learnt from them, the certificate counts the others only"
    )
    return Prior(flat_values(problem.trained), certified, paid)


def held_out_bound(problem: PriorProblem, delta: float) -> HeldOut | None:
    """What a plain held-out set gives at the same confidence.

    The network is trained as the prior "held-out" is, on the same records, and its errors on the
    others are counted. None where the split leaves no record on one side.
    """
    learnt, others = problem.split
    if not len(learnt) or not len(others):
        return None
    n, network, x, y = len(others), problem.trained, problem.x[others], problem.y[others]
    with torch.no_grad():
        blocks = zip(x.split(BLOCK), y.split(BLOCK), strict=True)
        errors = sum(int(misclassified(network(rows), goals).sum()) for rows, goals in blocks)
    limit = float(monte_carlo_risk(errors / n, n, delta, "clopper-pearson"))
    return HeldOut(learnt=len(learnt), n=n, errors=errors, limit=limit)


def _private(problem: PriorProblem, beta: float) -> Prior:
    """By DP-SGD on all records in disjoint batches of fixed size, as the theorem of kappa wants."""
    settings, n = problem.settings, len(problem.x)
    batch = settings.private_batch or max(1, n // 4)
    if batch > n:
        raise InputError("private_batch", batch, f"at most {n}, the number of records")
    sampler, E = Shuffled(n, batch), settings.private_epochs
    T = sampler.steps_per_epoch
    phase = TrainingPhase(
        sampler,
        noise_multiplier=settings.noise_multiplier,
        max_grad_norm=settings.max_grad_norm,
        steps=E * T,
        lr=settings.private_lr,
    )
    network = deepcopy(problem.network).requires_grad_(True)
    PrivateTraining(
        network, [phase], problem.x, problem.y, noise=problem.noise, shared_noise=SHARED
    ).run()
    # Only the ratio of clip bound and noise counts.
    setting = (batch, 1.0, settings.noise_multiplier, T, E, beta)
    paid = float(kappa_repaired(*setting, moment="minimum"))
    printed = float(kappa(*setting))
    words = (
        f"kappa = {paid:.4g} nats of max-information at level {beta:g} (rigorous; as printed "
        f"{printed:.4g}, {standing('optimised', E)}): DP-SGD on all {n} records, {E} x {T} "
        f"disjoint batches of {batch}"
    )
    return Prior(flat_values(network), np.arange(n), words, paid, printed)
