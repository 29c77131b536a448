"""The constants of Lemma 3.2, estimated from a training record, for figure and claims."""

from dataclasses import asdict, dataclass, replace

import numpy as np

from dpatlas.errors import InputError
from dpatlas.papers.kl_privacy.formulas.theorems import kl_drift_integral, kl_step
from dpatlas.papers.kl_privacy.kinds import TrainingRecord
from dpatlas.papers.kl_privacy.readings import used


@dataclass(frozen=True)
class DriftConstants:
    """Arguments of `kl_drift_integral`, all but T and the convention.

    beta, c, gdiff0 and g0 may be arrays over runs.
    """

    beta: float | np.ndarray
    c: float | np.ndarray
    n: int
    gdiff0: float | np.ndarray
    g0: float | np.ndarray
    sigma2: float
    rank: int

    def kl_bound(self, time, convention: str):
        """Lemma 3.2's bound on the KL after `time` = step size times steps, in nats.

        Elementwise in `time` and the arrays; inf where the lemma's exponential overflows.
        """
        integral = kl_drift_integral(time, **asdict(self), convention=convention)
        # The integral takes the place of eta gap in eta gap / (4 sigma2). It may have overflowed to
        # inf, which `kl_step` would refuse as a gap.
        return integral * kl_step(1.0, self.sigma2, 1.0, convention)


def constants_by_run(record: TrainingRecord) -> DriftConstants:
    """Estimates of the constants of Lemma 3.2 from each trajectory of a `training` record.

    The lemma asks for ||g(W) - g(W')|| < max(c, beta ||W - W'||) for every record's gradient g and
    all weights. Here c is the largest change of a gradient at the first probed step (the jumps of
    the ReLU, which do not shrink with the distance), beta the largest ratio of change to distance
    at the later probed steps, both over the probed records of a run. What is observed along a
    trajectory is at most the global constant, so this bound is at most the lemma's: a KL value
    below it is below the lemma's too. gdiff0 is the run's largest initial gap: the lemma's proof
    holds for every trajectory, so with it the lemma bounds the run's largest KL. n is that of a
    removed record, n - 1, the larger of the two gaps.

    Raises InputError for a record whose runs all diverged, and one with fewer than two probed
    steps.
    """
    metrics, spec = record.metrics, record.spec
    if not metrics.runs_used:
        raise InputError(record.id, "no run that did not diverge", "at least one run")
    if len(metrics.probe.steps) < 2:
        steps = f"{spec.steps} steps"
        raise InputError(record.id, steps, "at least 3 steps (two are probed)")
    change, distance = (
        np.array([values for values in of_runs if values])
        for of_runs in (metrics.probe.gradient_change, metrics.probe.distance)
    )
    return DriftConstants(
        beta=(change[:, 1:] / distance[:, 1:]).max(1),
        c=change[:, 0],
        n=metrics.n_train - 1,
        gdiff0=used(metrics.start.gap_max),
        g0=used(metrics.start.norm2),
        sigma2=spec.sigma**2,
        rank=metrics.parameters,
    )


def drift_constants(record: TrainingRecord) -> DriftConstants:
    """The constants of all runs of a `training` record: largest c and beta, mean gdiff0 and g0.

    Raises InputError as `constants_by_run`.
    """
    of_runs = constants_by_run(record)
    return replace(
        of_runs,
        beta=float(np.max(of_runs.beta)),
        c=float(np.max(of_runs.c)),
        gdiff0=float(np.mean(of_runs.gdiff0)),
        g0=float(np.mean(of_runs.g0)),
    )
