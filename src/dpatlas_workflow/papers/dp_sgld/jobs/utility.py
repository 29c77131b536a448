"""dp_sgld: the utility bounds of Sec. 4 beside Langevin SGD on a problem with known optimum.

Ridge-regularised softmax regression with two classes on generated records in the unit ball. The
noise is Thm 4.2's for every epsilon; theta* lies inside the ball, as the proofs need it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from dpatlas.accounting.samplers import FixedSize
from dpatlas.base.progress import Progress
from dpatlas.base.records import Row, rows_of
from dpatlas.base.seeds import Noise, generator, seed
from dpatlas.errors import InputError, RunError
from dpatlas.formulas.dp_sgld.theorems import (
    calibration_order,
    lipschitz,
    radius,
    sigma2_approximate,
    smoothness,
    steps_approximate,
    steps_rdp,
)
from dpatlas.formulas.dp_sgld.utility import (
    CONVENTIONS,
    average_risk,
    excess_risk,
    utility_approximate,
    utility_approximate_decreasing,
    utility_rdp,
    utility_rdp_decreasing,
)
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.privacy.langevin import Langevin, LangevinRun, bound_records
from dpatlas_workflow.papers.dp_sgld.jobs import PACKAGES
from dpatlas_workflow.papers.dp_sgld.jobs.arms import LangevinPlan, RegressionProblem
from dpatlas_workflow.papers.dp_sgld.records.utility import RECORD, UtilitySpec

LEDGER = {"mechanism": "Langevin SGD on generated, public records: nothing to protect"}
FEATURE_NORM, CLASSES = 1.0, 2
LIPSCHITZ = float(lipschitz(FEATURE_NORM))
# Norm of the logistic model's weights: how clearly the generated labels follow the records.
TEACHER_NORM = 6.0
# Bound on ||grad|| at the computed optimum. The risk there exceeds the minimum by at most its
# square / (2 lambda).
OPTIMALITY = 1e-10
# Points of the grid of shown steps.
POINTS = 25
# Iterates whose risk is computed at once.
BLOCK = 250
# Config key to change where the theorems refuse a symbol. All other symbols are constants of the
# loss, which leave their domain where lambda is too small or too large to compute with.
KEYS = {
    "eps": "dp_sgld.utility.epsilons",
    "d": "dp_sgld.utility.n",
    "xi2": "dp_sgld.utility.batch",
}
OTHER_KEY = "dp_sgld.utility.lambda"
# By schedule: the theorem on Renyi privacy and the one on (epsilon, delta), each with its steps.
THEOREMS: dict[str, tuple[tuple[str, Callable[..., Any], Callable[..., Any]], ...]] = {
    "constant": (
        ("Thm 4.1", utility_rdp, steps_rdp),
        ("Thm 4.2", utility_approximate, steps_approximate),
    ),
    "decreasing": (
        ("Thm 4.3", utility_rdp_decreasing, steps_rdp),
        ("Thm 4.4", utility_approximate_decreasing, steps_approximate),
    ),
}


@dataclass(frozen=True)
class Objective:
    """L(W) = mean cross-entropy + (lam / 2) ||W||^2 on records x (n, p), labels (n,)."""

    x: np.ndarray
    labels: np.ndarray
    lam: float

    @property
    def parameters(self) -> int:
        """d, entries of W."""
        return CLASSES * self.x.shape[1]

    @property
    def beta(self) -> float:
        """Smoothness of a record's regularised loss."""
        return float(smoothness(FEATURE_NORM, self.lam))

    def risk(self, weights: np.ndarray) -> np.ndarray:
        """L at each of `weights` (k, d), shape (k,)."""
        logits = weights.reshape(len(weights), CLASSES, -1) @ self.x.T
        right = logits[:, self.labels, np.arange(len(self.x))]
        fit = (logsumexp(logits, axis=1) - right).mean(axis=1)
        return fit + self.lam / 2 * np.square(weights).sum(axis=1)

    def data_gradients(self, weights: np.ndarray) -> np.ndarray:
        """Gradient of every record's cross-entropy at `weights` (d,), shape (n, d)."""
        slopes = self._probabilities(weights) - np.eye(CLASSES)[self.labels]
        return (slopes[:, :, None] * self.x[:, None, :]).reshape(len(self.x), -1)

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """Gradient of L at `weights` (d,)."""
        return self.data_gradients(weights).mean(axis=0) + self.lam * weights

    def hessian(self, weights: np.ndarray) -> np.ndarray:
        """Hessian of L at `weights`, (d, d)."""
        p = self._probabilities(weights)
        inner = p[:, :, None] * np.eye(CLASSES) - p[:, :, None] * p[:, None, :]
        curvature = np.einsum("icd,ij,ik->cjdk", inner, self.x, self.x) / len(self.x)
        return curvature.reshape(2 * (self.parameters,)) + self.lam * np.eye(self.parameters)

    def minimiser(self) -> np.ndarray:
        """theta*, (d,); RunError unless the gradient there is at most `OPTIMALITY`."""
        optimum = minimize(
            lambda weights: self.risk(weights[None])[0],
            np.zeros(self.parameters),
            jac=self.gradient,
            hess=self.hessian,
            method="trust-exact",
            options={"gtol": OPTIMALITY / 2},
        ).x
        # A Newton step more: near the optimum, differences of the risk round to 0 and stop the
        # trust region too early.
        optimum = optimum - np.linalg.solve(self.hessian(optimum), self.gradient(optimum))
        if np.linalg.norm(self.gradient(optimum)) > OPTIMALITY:
            raise RunError(f"utility: the gradient at the optimum found is above {OPTIMALITY:g}")
        return optimum

    def batch_noise(self, minimiser: np.ndarray, m: int) -> float:
        """xi2 = E ||grad L_B(theta*)||^2 for batches of m without replacement."""
        gradients = self.data_gradients(minimiser)
        n = len(gradients)
        spread = np.square(gradients - gradients.mean(axis=0)).sum() / n
        return float(spread * (n - m) / (m * max(n - 1, 1)))

    def _probabilities(self, weights: np.ndarray) -> np.ndarray:
        logits = self.x @ weights.reshape(CLASSES, -1).T
        return np.exp(logits - logsumexp(logits, axis=1, keepdims=True))


def utility(job: Job) -> Outcome:
    """Excess risk of every run against steps, Lemmas 4.1 and 4.3, and Thms 4.1-4.4.

    Constant steps: risk of the last iterate theta_k. Decreasing steps: mean risk of theta_0 ..
    theta_{k-1}, as in Lemma 4.3. Bounds have two conventions: `paper` as printed, `exact`
    corrected. Raises InputError for settings that the theorems leave out, before anything is
    trained.
    """
    fields: UtilitySpec = job.fields
    objective = generated(fields)
    minimiser = objective.minimiser()
    arms = list(product(fields.schedules, fields.epsilons))
    proven = []
    for schedule, epsilon in arms:
        try:
            proven.append(bounds(fields, objective, minimiser, schedule, epsilon))
        except InputError as error:
            # It names a symbol of the paper.
            settings = f"n {fields.n}, inputs {fields.inputs}, lambda {fields.lam}"
            value = f"{error.where} = {error.found} at epsilon {epsilon:g}, {settings}"
            raise InputError(KEYS.get(error.where, OTHER_KEY), value, error.allowed) from None
    noise = Noise(job.spec.digest, fields.noise_source)
    least_risk = float(objective.risk(minimiser[None])[0])
    noises: list[Row] = []
    bounded: list[Row] = []
    risks: list[Row] = []
    with Progress(len(arms) * fields.runs, job.spec.id) as progress:
        for (schedule, epsilon), (noise_row, shown, bound_rows) in zip(arms, proven, strict=True):
            plan = langevin(fields, schedule, noise_row["sigma2"])
            excess = []
            for run in fields.run_numbers:
                path = iterates(plan, objective, noise, run)
                of_run = risks_of(path, objective, schedule, shown)
                excess.append((of_run - least_risk).tolist())
                progress.advance(f"{schedule} epsilon {epsilon:g}")
            of_arm = {"schedule": schedule, "epsilon": epsilon}
            noises.append({**of_arm, **noise_row})
            bounded += [{**of_arm, **row} for row in bound_rows]
            axes = {"run": fields.run_numbers, "step": shown}
            risks += [{**of_arm, **row} for row in rows_of(axes, excess_risk=excess)]
    at_zero = objective.risk(np.stack([np.zeros_like(minimiser), minimiser]))
    facts = {
        "classes": CLASSES,
        "parameters": objective.parameters,
        "lipschitz": LIPSCHITZ,
        "beta": objective.beta,
        "radius": float(radius(FEATURE_NORM, fields.lam, CLASSES)),
        "minimiser_norm": float(np.linalg.norm(minimiser)),
        "gradient_norm_at_minimiser": float(np.linalg.norm(objective.gradient(minimiser))),
        "excess_risk_at_zero": float(at_zero[0] - at_zero[1]),
        "batch_noise": objective.batch_noise(minimiser, fields.batch),
    }
    return Outcome({**facts, "noise": noises, "bounds": bounded, "risks": risks}, LEDGER)


def generated(fields: UtilitySpec) -> Objective:
    """Records in the unit ball, with labels drawn from a logistic model."""
    n, inputs = fields.n, fields.inputs
    axes = {"base": fields.seed, "n": n, "inputs": inputs}
    draws = generator(seed("dp_sgld", use="utility", **axes))
    x = bound_records(torch.from_numpy(draws.standard_normal((n, inputs))), FEATURE_NORM).x.numpy()
    teacher = draws.standard_normal(inputs)
    probability = expit(x @ teacher * TEACHER_NORM / np.linalg.norm(teacher))
    labels = (draws.uniform(size=n) < probability).astype(np.int64)
    return Objective(x, labels, fields.lam)


def bounds(
    fields: UtilitySpec,
    objective: Objective,
    minimiser: np.ndarray,
    schedule: str,
    epsilon: float,
) -> tuple[Row, list[int], list[Row]]:
    """What the paper proves of one schedule at one epsilon: noise, shown steps and bounds.

    The noise of Thm 4.2; Lemma 4.1 or 4.3 at the steps that are shown; Thms 4.1 and 4.2, or 4.3 and
    4.4, after their own numbers of steps. Those on Renyi privacy are taken at the order and
    divergence that the other two use.
    """
    delta, d, L, beta = fields.delta, objective.parameters, LIPSCHITZ, objective.beta
    curvature: dict[str, Any] = {"beta": beta, "lam": fields.lam}
    sigma2 = float(sigma2_approximate(epsilon, delta, L, fields.lam, fields.n))
    xi2 = objective.batch_noise(minimiser, fields.batch)
    # Before projection, which brings theta_0 nearer to theta*.
    distance2 = float(minimiser @ minimiser) + 2 * d * sigma2 / fields.lam
    K = steps_approximate(epsilon, delta, beta, fields.lam, fields.n, d, schedule)
    shown = shown_steps(fields.steps, math.ceil(K))
    # First the lemma, which refuses constants that are not finite.
    setting = {**curvature, "xi2": xi2, "d": d, "sigma2": sigma2, "distance2": distance2}
    lemma = "Lemma 4.3"
    formula: Callable[..., Any] = average_risk
    if schedule == "constant":
        lemma, formula = "Lemma 4.1", partial(excess_risk, eta=1 / (2 * beta))
    at_steps = {c: formula(**setting, K=np.array(shown), convention=c) for c in CONVENTIONS}
    rows = [{"bound": lemma, **row} for row in rows_of({"step": shown}, **at_steps)]
    renyi = {"alpha": float(calibration_order(epsilon, delta)), "eps": epsilon / 2}
    problem = {**curvature, "n": fields.n, "d": d}
    batches = {"xi2": xi2} if schedule == "constant" else {}
    privacies = (renyi, {"eps": epsilon, "delta": delta})
    for (theorem, formula, steps), privacy in zip(THEOREMS[schedule], privacies, strict=True):
        own = math.ceil(steps(**privacy, **problem, schedule=schedule))
        arguments = {**privacy, **problem, **batches, "L": L}
        values = {c: float(formula(**arguments, convention=c)) for c in CONVENTIONS}
        rows.append({"bound": theorem, "step": own, **values})
    return {"sigma2": sigma2, "distance2": distance2}, shown, rows


def shown_steps(last: int, K: int) -> list[int]:
    """A log grid from 1 to `last`, with K if it lies below `last`."""
    grid = np.geomspace(1, last, POINTS).round().astype(int).tolist()
    return sorted({*grid, min(K, last)})


def langevin(fields: UtilitySpec, schedule: str, sigma2: float) -> Langevin:
    """Algorithm 1 for `steps` steps."""
    n, batch, steps = fields.n, fields.batch, fields.steps
    problem = RegressionProblem(n, CLASSES, FEATURE_NORM, fields.delta)
    passes = -(-steps // FixedSize(n, batch).steps_per_epoch)
    plan = LangevinPlan(problem, "dp-sgld", "theorem", schedule, fields.lam, passes, batch)
    rates = plan.rates[:steps]
    return Langevin(plan.sampler, math.sqrt(sigma2), plan.lam, plan.radius, rates)


def iterates(settings: Langevin, objective: Objective, noise: Noise, number: int) -> np.ndarray:
    """theta_0 .. theta_K of the run of this number, whose draws all arms share, (K + 1, d)."""
    x, labels = torch.from_numpy(objective.x), torch.from_numpy(objective.labels)
    run = LangevinRun(
        settings, x, labels, CLASSES, noise=noise, repetition=number, shared_noise="arms of a run"
    )
    path = [run.weights.flatten().numpy().copy()]
    while run.steps_done < settings.steps:
        run.step()
        path.append(run.weights.flatten().numpy().copy())
    return np.stack(path)


def risks_of(
    path: np.ndarray, objective: Objective, schedule: str, at: Sequence[int]
) -> np.ndarray:
    """Risk of theta_k for every k in `at`; decreasing steps: mean over theta_0 .. theta_{k-1}."""
    if schedule == "constant":
        return objective.risk(path[at])
    blocks = np.array_split(path[:-1], -(-len(path) // BLOCK))
    risks = np.concatenate([objective.risk(block) for block in blocks])
    return np.cumsum(risks)[np.array(at) - 1] / at


KIND = Kind(utility, record=RECORD, packages=PACKAGES, reads_images=False)
