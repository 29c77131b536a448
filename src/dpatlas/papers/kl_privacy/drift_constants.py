"""The constants of Lemma 3.2, estimated from a training record: the same for figure and claims."""

from dataclasses import asdict, dataclass

import numpy as np

from dpatlas.errors import InputError
from dpatlas.papers.kl_privacy.formulas.theorems import kl_drift_integral, kl_step
from dpatlas.papers.kl_privacy.kinds import TrainingRecord


@dataclass(frozen=True)
class DriftConstants:
    """Arguments of `kl_drift_integral`, all but T and the convention."""

    beta: float
    c: float
    n: int
    gdiff0: float
    g0: float
    sigma2: float
    rank: int

    def kl_bound(self, time, convention: str):
        """Lemma 3.2's bound on the KL after `time` = step size times steps, in nats.

        Elementwise in `time`; inf where the lemma's exponential overflows.
        """
        integral = kl_drift_integral(time, **asdict(self), convention=convention)
        # The integral takes the place of eta gap in eta gap / (4 sigma2). It may have overflowed to
        # inf, which `kl_step` would refuse as a gap.
        return integral * kl_step(1.0, self.sigma2, 1.0, convention)


def drift_constants(record: TrainingRecord) -> DriftConstants:
    """Estimates of the constants of Lemma 3.2 from the trajectories of a `training` record.

    The lemma asks for ||g(W) - g(W')|| < max(c, beta ||W - W'||) for every record's gradient g and
    all weights. Here c is the largest change of a gradient at the first probed step (the jumps of
    the ReLU, which do not shrink with the distance), beta the largest ratio of change to distance
    at the later probed steps, both over the runs and the probed records. What is observed along a
    trajectory is at most the global constant, so this bound is at most the lemma's: a KL value
    below it is below the lemma's too. n is that of a removed record, n - 1, the larger of the two
    gaps.

    Raises InputError for a record whose runs all diverged, and one with fewer than two probed
    steps.
    """
    metrics = record.metrics
    probe, gap, norm2 = (
        metrics.probe,
        metrics.gradient_gap_at_start,
        metrics.gradient_norm2_at_start,
    )
    if probe is None or gap is None or norm2 is None:
        raise InputError(record.id, "no run that did not diverge", "at least one run")
    change, distance = np.array(probe.gradient_change), np.array(probe.distance)
    if change.shape[1] < 2:
        steps = f"{record.spec.steps} steps"
        raise InputError(record.id, steps, "at least 3 steps (two are probed)")
    return DriftConstants(
        beta=float((change[:, 1:] / distance[:, 1:]).max()),
        c=float(change[:, 0].max()),
        n=metrics.n_train - 1,
        gdiff0=gap,
        g0=norm2,
        sigma2=record.spec.sigma**2,
        rank=metrics.parameters,
    )
