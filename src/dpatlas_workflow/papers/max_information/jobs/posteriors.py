"""max_information: posteriors trained to minimise a bound on their risk (PAC-Bayes with backprop).

With R the mean loss of a minibatch under one draw of the noise, K = KL + kappa + log(2 K1 K2
sqrt(n) / (delta - delta_mc - beta)) as Eq. 97 has it, and c = K / (2 n), an objective is

    fquad     (sqrt(R + c) + sqrt(c))^2                 (Rivasplata et al., 2019)
    fclassic  R + sqrt(c)                               (McAllester, 1999)
    flambda   (R + 2 c / l) / (1 - l/2)                 (Thiemann et al., 2017)
    fkl       kl^-1(R, 2 c), as in a certificate        (Perez-Ortiz et al., 2021)
    bbb       R + kl_penalty KL / n                     (Blundell et al., 2015)

l in (0, 2) starts at 1 and is set to its minimiser, at which flambda is fquad, after every epoch.

The `bounded` loss is cross-entropy with log-probabilities clamped at log(1e-5), divided by log(1e5)
so that it lies in [0, 1]. With few records its gradients are so small that the KL term keeps the
posterior at its prior. The `per-class` loss divides by the logarithm of the number of classes; it
can exceed 1, and the objective is then a surrogate and not a bound. Certificates count errors and
do not depend on the loss.

The posteriors of one run are trained together, as a stack: all take the batches and normals of the
run, and each has its own prior, its own bound and its own weight. To rounding a posterior is the
same whichever others are trained with it; runs are never in one stack.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dpatlas.accounting.samplers import Shuffled
from dpatlas.base.seeds import Noise
from dpatlas.certify.normals import standard_normals
from dpatlas.formulas.max_information.certificates import kl_inverse
from dpatlas.models.mean_field import MeanField, rho_of
from dpatlas.models.mean_field_passes import noise_sizes
from dpatlas.models.network import Network
from dpatlas.privacy.to_device import to_device
from dpatlas_workflow.papers.max_information.jobs.gradients import gradients_of
from dpatlas_workflow.papers.max_information.records.certified import Loss, Objective

# Keeps the square roots of a bound differentiable, and kl^-1 away from 0 and 1.
TINY = 1e-9


@dataclass(frozen=True)
class Slopes:
    """An objective's value and its derivatives with respect to R and KL."""

    value: float
    risk: float
    kl: float


def fquad(risk: float, c: float, n: int) -> Slopes:
    """(sqrt(R + c) + sqrt(c))^2."""
    outer, inner = math.sqrt(risk + c), math.sqrt(c)
    total = outer + inner
    return Slopes(total**2, total / outer, total * (1 / outer + 1 / inner) / (2 * n))


def fclassic(risk: float, c: float, n: int) -> Slopes:
    """R + sqrt(c)."""
    root = math.sqrt(c)
    return Slopes(risk + root, 1.0, 1 / (4 * n * root))


def flambda(risk: float, c: float, n: int, weight: float) -> Slopes:
    """(R + 2 c / l) / (1 - l / 2) at l = weight."""
    scale = 1 / (1 - weight / 2)
    return Slopes(scale * (risk + 2 * c / weight), scale, scale / (n * weight))


def best_weight(risk: float, c: float) -> float:
    """The l that minimises flambda."""
    return 2 / (math.sqrt(risk / c + 1) + 1)


def fkl(risk: float, c: float, n: int) -> Slopes:
    """p = kl^-1(R, 2 c), by implicit differentiation of kl(R || p) = 2 c."""
    q = min(max(risk, TINY), 1 - TINY)
    p = min(float(kl_inverse(q, 2 * c)), 1 - TINY)
    rise = (1 - q) / (1 - p) - q / p
    if rise < TINY:
        return Slopes(p, 1.0, 0.0)
    return Slopes(p, (math.log((1 - q) / (1 - p)) - math.log(q / p)) / rise, 1 / (n * rise))


BOUNDS: Mapping[str, Callable[[float, float, int], Slopes]] = {
    "fquad": fquad,
    "fclassic": fclassic,
    "fkl": fkl,
}


@dataclass(frozen=True)
class TrainingSettings:
    """SGD with momentum on (mean, rho); minibatches are disjoint, the last n mod batch left out.

    lr is constant; only bbb uses kl_penalty. `fkl` is defined for losses up to 1 only.
    """

    objective: Objective
    loss: Loss
    lr: float
    momentum: float
    batch: int
    epochs: int
    kl_penalty: float

    def slopes(self, risk: float, kl: float, extra: float, n: int, weight: float) -> Slopes:
        """The objective at mean loss `risk`, KL and extra = K - KL; weight: l of flambda."""
        if self.objective == "bbb":
            share = self.kl_penalty / n
            return Slopes(risk + share * kl, 1.0, share)
        risk, c = max(risk, TINY), (kl + extra) / (2 * n)
        if self.objective == "flambda":
            return flambda(risk, c, n, weight)
        return BOUNDS[self.objective](risk, c, n)


# Rows of a stack are this many numbers or a multiple of it, so that vector instructions treat all
# of them alike and no posterior depends on its place in the stack.
ROW = 64
# Attributes that a stored state holds.
STATE_TENSORS = ("flats", "velocities")
STATE_FACTS = ("steps_done", "diverged", "weights", "epoch_risks")


class PosteriorTraining:
    """Training of posteriors, each of which starts at its prior N(centre, tau^2 I).

    x (n, ...), labels (n,), centres (posteriors, parameters) on one device. taus, and extras = K -
    KL in nats: of every posterior. Batches and noise are keyed by (noise, repetition, step) and the
    same for all posteriors, so `state` and `restore` need no generator. `diverged` has for each the
    step, from 1, at which its objective was not finite, or None; of such a posterior nothing else
    is defined, and training ends when all have diverged.
    """

    def __init__(
        self,
        network: Network,
        centres: Tensor,
        taus: Sequence[float],
        x: Tensor,
        labels: Tensor,
        settings: TrainingSettings,
        *,
        extras: Sequence[float],
        noise: Noise,
        repetition: int,
    ):
        self.network, self.centres, self.taus = network, centres, taus
        self.x, self.labels, self.settings, self.extras = x, labels, settings, extras
        self.noise, self.repetition = noise, repetition
        self.sampler = Shuffled(len(x), settings.batch)
        count, self.parameters = centres.shape
        width = -(-self.parameters // ROW) * ROW
        # Means and rhos, (2, posteriors, width); beyond the parameters a row means nothing.
        self.flats = torch.zeros(2, count, width, device=x.device)
        self.velocities = torch.zeros_like(self.flats)
        self._tau, self._tau2 = (
            torch.tensor([[tau**power] for tau in taus], device=x.device) for power in (1, 2)
        )
        self.flats[0, :, : self.parameters] = centres
        self.flats[1] = torch.tensor([[rho_of(tau)] for tau in taus], device=x.device)
        self._centres = self.flats[0].clone()
        self._gradients = gradients_of(network, self.flats[0], settings.loss)
        self.steps_done = 0
        self.diverged: list[int | None] = [None] * count
        self.weights, self.epoch_risks = [1.0] * count, [0.0] * count

    @property
    def posteriors(self) -> list[MeanField]:
        """The posteriors as they are now; later steps change them."""
        means, rhos = self.flats[:, :, : self.parameters]
        return [MeanField(self.network, *each) for each in zip(means, rhos, strict=True)]

    @property
    def steps(self) -> int:
        """Number of all steps; if all posteriors diverged, of the steps up to the last of them."""
        ends = [step for step in self.diverged if step is not None]
        if len(ends) == len(self.diverged):
            return max(ends)
        return self.settings.epochs * self.sampler.steps_per_epoch

    def run(self) -> list[MeanField]:
        """Take all remaining steps and return the posteriors."""
        while self.steps_done < self.steps:
            self.step()
        return self.posteriors

    def step(self) -> None:
        """One update of the means and rhos of all posteriors."""
        mean, rho = self.flats
        gradients = self._gradients
        deviation = gradients.deviation.copy_(F.softplus(rho))
        batch = self.sampler.batch_indices(self.noise, self.repetition, self.steps_done)
        picked = to_device(batch, self.x.device)
        x, labels = self.x.index_select(0, picked), self.labels.index_select(0, picked)
        risks = gradients(x, labels, self._normals(len(x)))
        offset = mean - self._centres
        # One transfer from the device for all numbers.
        numbers = torch.stack([risks.double(), self._kl(offset, deviation)]).tolist()
        self.steps_done += 1
        factors = to_device(torch.tensor(self._factors(*numbers)), rho.device)
        # The derivative of log(1 + e^rho) by rho.
        slope = torch.expm1(-deviation).neg_()
        gradients.by_deviation.mul_(slope)
        by_rho = (deviation / self._tau2).sub_(deviation.reciprocal()).mul_(slope)
        of_kl = torch.stack([offset.div_(self._tau2), by_rho])
        by_risk, by_kl = factors.T[:, :, None]
        self.velocities.mul_(self.settings.momentum)
        self.velocities.addcmul_(gradients.all, by_risk).addcmul_(of_kl, by_kl)
        self.flats.add_(self.velocities, alpha=-self.settings.lr)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and facts from which `restore` goes on to the same bits."""
        arrays = {name: getattr(self, name).cpu().numpy().copy() for name in STATE_TENSORS}
        return arrays, {name: copy(getattr(self, name)) for name in STATE_FACTS}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Go on from a state of the same training."""
        for name in STATE_TENSORS:
            getattr(self, name).copy_(torch.from_numpy(arrays[name]))
        for name in STATE_FACTS:
            setattr(self, name, copy(facts[name]))

    def _factors(self, risks: Sequence[float], kls: Sequence[float]) -> list[list[float]]:
        """The objective's derivatives by risk and KL, of every posterior; 0 for a diverged one."""
        n, steps = len(self.x), self.sampler.steps_per_epoch
        factors = [[0.0, 0.0] for _ in risks]
        for number, (risk, kl) in enumerate(zip(risks, kls, strict=True)):
            if self.diverged[number] is None and not (math.isfinite(risk) and math.isfinite(kl)):
                self.diverged[number] = self.steps_done
            if self.diverged[number] is not None:
                continue
            extra = self.extras[number]
            slopes = self.settings.slopes(risk, kl, extra, n, self.weights[number])
            factors[number] = [slopes.risk, slopes.kl]
            # After each epoch its mean risk and last KL set the weight of flambda.
            self.epoch_risks[number] += risk / steps
            if self.steps_done % steps == 0:
                c = (kl + extra) / (2 * n)
                self.weights[number] = best_weight(self.epoch_risks[number], c)
                self.epoch_risks[number] = 0.0
        return factors

    def _normals(self, rows: int) -> list[Tensor]:
        """Normals for a forward pass; a batch shares one draw of the convolutions' weights."""
        return standard_normals(
            noise_sizes(self.network, rows, 1),
            self.noise,
            repetition=self.repetition,
            step=self.steps_done,
            device=self.x.device,
        )

    def _kl(self, offset: Tensor, deviation: Tensor) -> Tensor:
        """KL from the priors (posteriors,), nats; sums in float64."""
        offset, deviation = (flat[:, : self.parameters] for flat in (offset, deviation))
        ratio = deviation / self._tau
        spread = (ratio - 1).mul_(ratio + 1).div_(2).sub_(ratio.log())
        moved = offset.square().sum(1, dtype=torch.float64) / (2 * self._tau2[:, 0].double())
        return spread.clamp_min_(0).sum(1, dtype=torch.float64) + moved
