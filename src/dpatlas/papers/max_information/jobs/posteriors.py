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
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dpatlas.core.seeds import Noise
from dpatlas.models.mean_field import MeanField
from dpatlas.models.mean_field_passes import noise_sizes, outputs
from dpatlas.models.network import Network
from dpatlas.papers.max_information.formulas.certificates import kl_inverse
from dpatlas.papers.max_information.records.certified import CertifiedFields, Loss, Objective
from dpatlas.privacy.noise import add_noise
from dpatlas.privacy.samplers import Shuffled
from dpatlas.privacy.to_device import to_device

LEAST_LOG_PROBABILITY = -math.log(1e5)
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

    @classmethod
    def of(cls, fields: CertifiedFields) -> "TrainingSettings":
        """From the fields of a spec."""
        return cls(fields.objective, fields.loss, **fields.training.model_dump())

    def slopes(self, risk: float, kl: float, extra: float, n: int, weight: float) -> Slopes:
        """The objective at mean loss `risk`, KL and extra = K - KL; weight: l of flambda."""
        if self.objective == "bbb":
            share = self.kl_penalty / n
            return Slopes(risk + share * kl, 1.0, share)
        risk, c = max(risk, TINY), (kl + extra) / (2 * n)
        if self.objective == "flambda":
            return flambda(risk, c, n, weight)
        return BOUNDS[self.objective](risk, c, n)


def bounded_cross_entropy(output: Tensor, labels: Tensor, loss: Loss = "bounded") -> Tensor:
    """Mean loss over rows; output (rows, classes). `per-class` can reach 11.5 / log(classes)."""
    scores = F.log_softmax(output, 1).gather(1, labels[:, None])
    scale = -LEAST_LOG_PROBABILITY if loss == "bounded" else math.log(output.shape[1])
    return -scores.clamp_min(LEAST_LOG_PROBABILITY).mean() / scale


# Attributes that a stored state holds in addition to tensors.
STATE_FACTS = ("steps_done", "diverged", "weight", "epoch_risk")


class PosteriorTraining:
    """Training of one posterior, which starts at its prior N(centre, tau^2 I).

    x (n, ...), labels (n,), centre (parameters,) on one device. extra: K - KL, nats. Batches and
    noise are keyed by (noise, repetition, step), so `state` and `restore` need no generator.
    `diverged` is the step, from 1, at which the objective was not finite; training ends there.
    """

    def __init__(
        self,
        network: Network,
        centre: Tensor,
        tau: float,
        x: Tensor,
        labels: Tensor,
        settings: TrainingSettings,
        *,
        extra: float,
        noise: Noise,
        repetition: int,
    ):
        self.network, self.centre, self.tau = network, centre, tau
        self.x, self.labels, self.settings, self.extra = x, labels, settings, extra
        self.noise, self.repetition = noise, repetition
        self.sampler = Shuffled(len(x), settings.batch)
        self.posterior = MeanField.around(network, centre, tau)
        self.momentum = [torch.zeros_like(centre) for _ in range(2)]
        self.steps_done = 0
        self.diverged: int | None = None
        self.weight, self.epoch_risk = 1.0, 0.0

    @property
    def steps(self) -> int:
        """Number of all steps; after divergence, of the steps up to it."""
        planned = self.settings.epochs * self.sampler.steps_per_epoch
        return planned if self.diverged is None else self.diverged

    def run(self) -> MeanField:
        """Take all remaining steps and return the posterior."""
        while self.steps_done < self.steps:
            self.step()
        return self.posterior

    def step(self) -> None:
        """One update of mean and rho."""
        deviation = self.posterior.deviation
        risk, by_mean, by_deviation = self._risk(deviation)
        # The derivative of log(1 + e^rho) by rho.
        slope = -torch.expm1(-deviation)
        offset = self.posterior.mean - self.centre
        # One transfer from the device for both numbers.
        risk, kl = torch.stack([risk.double(), self._kl(offset, deviation)]).tolist()
        self.steps_done += 1
        if not (math.isfinite(risk) and math.isfinite(kl)):
            self.diverged = self.steps_done
            return
        slopes = self.settings.slopes(risk, kl, self.extra, len(self.x), self.weight)
        tau2 = self.tau**2
        kl_by_rho = (deviation / tau2 - 1 / deviation).mul_(slope)
        by_rho = by_deviation.mul_(slope)
        for flat, gradient, kl_gradient, velocity in (
            (self.posterior.mean, by_mean, offset.div_(tau2), self.momentum[0]),
            (self.posterior.rho, by_rho, kl_by_rho, self.momentum[1]),
        ):
            velocity.mul_(self.settings.momentum)
            velocity.add_(gradient, alpha=slopes.risk).add_(kl_gradient, alpha=slopes.kl)
            flat.add_(velocity, alpha=-self.settings.lr)
        self._weigh(risk, kl)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and facts from which `restore` goes on to the same bits."""
        tensors = self._tensors()
        arrays = {name: value.cpu().numpy().copy() for name, value in tensors.items()}
        return arrays, {name: getattr(self, name) for name in STATE_FACTS}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Go on from a state of the same training."""
        for name, value in self._tensors().items():
            value.copy_(torch.from_numpy(arrays[name]))
        for name in STATE_FACTS:
            setattr(self, name, facts[name])

    def _tensors(self) -> dict[str, Tensor]:
        return {
            "mean": self.posterior.mean,
            "rho": self.posterior.rho,
            "mean_momentum": self.momentum[0],
            "rho_momentum": self.momentum[1],
        }

    def _risk(self, deviation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """R of the step's batch, and its gradients by mean and deviation, each (parameters,)."""
        batch = self.sampler.batch_indices(self.noise, self.repetition, self.steps_done)
        picked = to_device(batch, self.x.device)
        x, labels = self.x.index_select(0, picked), self.labels.index_select(0, picked)
        normals = self._normals(len(x))
        # These are views, so that the parameters are not copied.
        named = [self.posterior.named(flat) for flat in (self.posterior.mean, deviation)]
        leaves = [value.detach().requires_grad_() for views in named for value in views.values()]
        count = len(leaves) // 2
        with torch.enable_grad():
            means, scales = (
                dict(zip(views, part, strict=True))
                for views, part in zip(named, (leaves[:count], leaves[count:]), strict=True)
            )
            output = outputs(self.network, means, scales, x, normals)
            risk = bounded_cross_entropy(output, labels, self.settings.loss)
            gradients = torch.autograd.grad(risk, leaves)
        by_mean, by_deviation = (
            torch.cat([part.flatten() for part in parts])
            for parts in (gradients[:count], gradients[count:])
        )
        return risk.detach(), by_mean, by_deviation

    def _weigh(self, risk: float, kl: float) -> None:
        """After each epoch, set the weight of flambda by the epoch's mean risk and its last KL."""
        steps = self.sampler.steps_per_epoch
        self.epoch_risk += risk / steps
        if self.steps_done % steps == 0:
            n = len(self.x)
            self.weight = best_weight(self.epoch_risk, (kl + self.extra) / (2 * n))
            self.epoch_risk = 0.0

    def _normals(self, rows: int) -> list[Tensor]:
        """Normals for a forward pass; a batch shares one draw of the convolutions' weights."""
        sizes = noise_sizes(self.network, rows, 1)
        flat = torch.zeros(sum(count * width for count, width in sizes), device=self.x.device)
        add_noise({"": flat}, 1.0, self.noise, repetition=self.repetition, step=self.steps_done)
        parts = flat.split([count * width for count, width in sizes])
        return [part.view(size) for part, size in zip(parts, sizes, strict=True)]

    def _kl(self, offset: Tensor, deviation: Tensor) -> Tensor:
        """KL from the prior, nats; sums in float64."""
        ratio = deviation / self.tau
        spread = (ratio - 1) * (ratio + 1) / 2 - ratio.log()
        moved = offset.square().sum(dtype=torch.float64) / (2 * self.tau**2)
        return spread.clamp_min_(0).sum(dtype=torch.float64) + moved
