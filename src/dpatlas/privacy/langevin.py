"""Projected Langevin SGD on softmax regression (Ryffel et al. 2022, Algorithm 1).

    theta_0 ~ Proj N(0, (2 sigma^2 / lambda) I)
    theta <- Proj(theta - eta_k (mean of the batch's loss gradients + lambda theta)
                  + sqrt(2 eta_k) sigma N(0, I))

Proj is onto the ball of radius r around 0. Records have norm at most `feature_norm` R, a public
constant: larger ones are scaled down to it and counted. Then no loss gradient is longer than
sqrt(2) R and no clip is needed; the regulariser is common to all neighbours.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.accounting.samplers import FullBatch, Sampler
from dpatlas.base.guard import checked, integer, real
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.digest import digest
from dpatlas.privacy.to_device import to_device

# Relative error by which float32 arithmetic may make a record of norm R longer.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Langevin:
    """Settings of a run, all of them public.

    sampler: batches of m records; sigma: noise of the diffusion; lam: lambda in the regulariser
    (lambda / 2) ||theta||^2; radius: of the ball that iterates are projected onto; rates: step
    sizes eta_k. Raises InputError for sigma < 0 and for lambda, radius or a step size <= 0.
    """

    sampler: Sampler
    sigma: float
    lam: float
    radius: float
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        real(ge=0).check("sigma", self.sigma)
        real(gt=0).check("lambda", self.lam)
        real(gt=0).check("radius", self.radius)
        real(gt=0).check("step size", np.asarray(self.rates, dtype=float))

    @property
    def steps(self) -> int:
        """Number of steps, K."""
        return len(self.rates)


@dataclass
class BoundedRecords:
    """Records (n, d) of norm at most R, and how many were scaled down to it."""

    x: Tensor
    scaled_down: int


@checked(feature_norm=real(gt=0))
def bound_records(x: Tensor, feature_norm: float) -> BoundedRecords:
    """Scale each record of norm above `feature_norm` down to it, independently of the others.

    A record that is not finite becomes zero, so that its gradient is zero, and is counted too.
    """
    norms = torch.linalg.vector_norm(x.double(), dim=1)
    finite = torch.isfinite(norms)
    factors = (feature_norm / norms).clamp_max(1).where(finite, 0)
    bounded = torch.where(finite[:, None], x, 0) * factors[:, None].to(x.dtype)
    return BoundedRecords(bounded, int((factors < 1 - ROUNDING).sum()))


class LangevinRun:
    """One run: `step()` until `steps_done` is `settings.steps`; the last `weights` are released.

    x (n, d) from `bound_records`, labels (n,) int64, weights (classes, d). All draws are keyed by
    (spec, repetition, step, use); `weights` and `steps_done` are the whole state. Bounded records
    have finite gradients, so none is skipped. `shared_noise` as for `PrivateTraining`: without it,
    a second run on a used (noise, repetition) is refused at its first noisy step. `settings_run`
    contains only the steps that were taken.
    """

    skipped_records = 0

    @checked(classes=integer(ge=2), repetition=integer(ge=0))
    def __init__(
        self,
        settings: Langevin,
        x: Tensor,
        labels: Tensor,
        classes: int,
        *,
        noise: Noise,
        repetition: int,
        shared_noise: str | None = None,
    ):
        if settings.sampler.n != len(x):
            raise InputError("sampler", f"batches of {settings.sampler.n}", f"of {len(x)} records")
        self.settings, self.x, self.labels = settings, x, labels
        self.noise, self.repetition, self.shared_noise = noise, repetition, shared_noise
        self._claimed = False
        self.onehot = torch.nn.functional.one_hot(labels, classes).T.to(x.dtype).contiguous()
        self.steps_done = 0
        start = math.sqrt(2 / settings.lam) * settings.sigma
        self.weights = (start * self._normals((classes, x.shape[1]), 0, "start")).to(x.dtype)
        self._project()

    @property
    def steps(self) -> int:
        """Planned number of steps."""
        return self.settings.steps

    @property
    def settings_run(self) -> Langevin:
        """The settings, with the step sizes of the steps that were taken."""
        return replace(self.settings, rates=self.settings.rates[: self.steps_done])

    def run(self) -> Tensor:
        """Take the remaining steps; return the last iterate."""
        while self.steps_done < self.steps:
            self.step()
        return self.weights

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and facts from which `restore` continues to the same bits."""
        facts = {
            "plan": self._plan(),
            "steps_done": self.steps_done,
            "repetition": self.repetition,
        }
        return {"weights": self.weights.cpu().numpy()}, facts

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Continue from a state of the same run; InputError for other settings or another run."""
        if facts.get("plan") != self._plan() or facts["repetition"] != self.repetition:
            raise InputError("checkpoint", "a state of another run", "one of these settings")
        self.weights = torch.from_numpy(arrays["weights"]).to(self.x.device)
        self.steps_done = facts["steps_done"]

    def step(self) -> None:
        """One Langevin step."""
        if self.settings.sigma and not self._claimed:
            run = digest(type(self), self.settings, self.x, self.labels, len(self.weights))
            self.noise.claim(self.repetition, run, self.shared_noise)
            self._claimed = True
        if self.settings.sigma:
            self.noise.check_process()
        settings, k = self.settings, self.steps_done
        eta = settings.rates[k]
        x, onehot = self.x, self.onehot
        if not isinstance(settings.sampler, FullBatch):
            indices = settings.sampler.batch_indices(self.noise, self.repetition, k)
            batch = to_device(indices, x.device)
            x, onehot = x.index_select(0, batch), onehot.index_select(1, batch)
        delta = torch.softmax(self.weights @ x.T, 0) - onehot
        gradient = torch.mm(delta, x).div_(settings.sampler.expected_batch)
        self.weights.mul_(1 - eta * settings.lam).sub_(gradient, alpha=eta)
        if settings.sigma:
            normals = self._normals(self.weights.shape, k, "noise")
            self.weights.add_(normals, alpha=math.sqrt(2 * eta) * settings.sigma)
        self._project()
        self.steps_done += 1

    def _plan(self) -> dict[str, Any]:
        settings, sampler = self.settings, self.settings.sampler
        return {
            "sampler": [sampler.name, int(sampler.n), int(sampler.batch)],
            "noise": [float(settings.sigma), float(settings.lam), float(settings.radius)],
            "rates": [float(rate) for rate in settings.rates],
        }

    def _project(self) -> None:
        norm = torch.linalg.vector_norm(self.weights, dtype=torch.float64)
        # radius / norm would be computed as the reciprocal times radius, which rounds twice.
        factor = torch.full_like(norm, self.settings.radius).div_(norm)
        self.weights.mul_(factor.clamp_max_(1))

    def _normals(self, shape: tuple[int, ...], step: int, use: str) -> Tensor:
        drawn = self.noise.normal(math.prod(shape), repetition=self.repetition, step=step, use=use)
        return to_device(drawn, self.x.device).view(shape)
