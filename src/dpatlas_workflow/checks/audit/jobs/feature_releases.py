"""The private releases of feature_learning, attacked on the neighbours that differ most.

All records but the canary have zero gradient. The canary's gradient is far above the clip bound,
and a label of the other sign reverses it. Then the clipped mean moves by the whole sensitivity
2 C / n along a line that the attacker knows, and the noisy mean's component along it is the score.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.accounting.guarantees import Phase
from dpatlas.accounting.ledger import GAUSSIAN, LastIterate, Ran, ledger
from dpatlas.accounting.mean_release import noise_deviation
from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.seeds import Noise
from dpatlas_workflow.checks.audit.mechanisms import MECHANISMS
from dpatlas_workflow.papers.feature_learning.jobs import layers as feature_layers
from dpatlas_workflow.papers.feature_learning.jobs.draws import REAL, Records, Start
from dpatlas_workflow.papers.feature_learning.jobs.layers import Normal, SecondLayer

RECORDS, INPUTS, NEURONS, STEPS = 16, 5, 4, 4
CANARY, LABEL = 0, 1e3
MAX_NORM, MU = 1.0, 1.0
# From number of runs, noise deviation, noise source and sign of the canary's label to the component
# of the release along the line, summed over steps, (runs,).
Release = Callable[[int, float, Normal, float], np.ndarray]


@dataclass(frozen=True)
class MeanRelease:
    """A clipped mean with noise, released `releases` times; mu-GDP with mu = `MU` in all."""

    name: str
    release: Release
    releases: int = 1
    relation: ClassVar[str] = "replace_one"

    def ledger(self, delta: float, noise_source: str = "keyed") -> dict[str, Any]:
        """The privacy ledger: the guarantee at delta; no paper claims another."""
        noise_multiplier = self.deviation * RECORDS / MAX_NORM
        ran = Ran(
            MECHANISMS[self.name],
            (Phase(FullBatch(RECORDS), noise_multiplier, self.releases),),
            (MAX_NORM,),
            noise_source,
            last_iterate=LastIterate(GAUSSIAN, (MU,)),
        )
        statement = ledger(ran, delta=delta, relation=self.relation, released="all noisy means")
        # The bound is exact for any number of releases.
        event = f"{self.releases} Gaussian release(s), {MU:g}-GDP together"
        return statement | {"event": event}

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on every entry of a mean."""
        return noise_deviation(MAX_NORM, RECORDS, MU, self.releases)

    def profile(self, deltas: Sequence[float]) -> list[float]:
        """The guaranteed epsilon at each delta."""
        return [gaussian_epsilon(MU, delta) for delta in deltas]

    def claimed(self, deltas: Sequence[float]) -> list[float] | None:
        """None: no paper claims another."""
        return None

    def scores(
        self, runs: int, noise: Noise, advance: Callable[[], None]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Components of `runs` releases on each of the two neighbours."""
        all_scores = []
        for world, sign in enumerate((1.0, -1.0)):

            def normal(size: int, run: int, step: int, use: str, world: int = world) -> np.ndarray:
                return noise.normal(size, repetition=2 * run + world, step=step, use=use)

            all_scores.append(self.release(runs, self.deviation, normal, sign))
            for _ in range(runs):
                advance()
        return all_scores[0], all_scores[1]


def _start(runs: int) -> Start:
    """Small weights without symmetries, the same in every run."""
    line = np.linspace(-0.5, 0.7, INPUTS * NEURONS, dtype=REAL)
    weights = np.repeat(line.reshape(1, INPUTS, NEURONS), runs, axis=0)
    biases = np.repeat(np.linspace(-1, 1, NEURONS, dtype=REAL)[None], runs, axis=0)
    return Start(np.zeros((runs, INPUTS), REAL), weights, biases)


def _inputs(runs: int) -> np.ndarray:
    line = np.linspace(-1, 1.5, RECORDS * INPUTS, dtype=REAL)
    return np.repeat(line.reshape(1, RECORDS, INPUTS), runs, axis=0)


def _matrix(runs: int, deviation: float, normal: Normal, sign: float) -> np.ndarray:
    """A first layer's gradient; records whose label is the network's output have none."""
    start, x = _start(runs), _inputs(runs)
    features = start.features(x, start.weights)
    y = features.sum(axis=2, dtype=float) * start.head
    y[:, CANARY] += sign * LABEL
    gradient = feature_layers.released_gradient(start, Records(x, y), MAX_NORM, deviation, normal)
    slopes = 1 - np.square(features[0, CANARY], dtype=float)
    line = -np.outer(x[0, CANARY], slopes)
    return np.tensordot(gradient, line / np.linalg.norm(line))


def _direction(runs: int, deviation: float, normal: Normal, sign: float) -> np.ndarray:
    """The mean of y x; records with y = 0 contribute nothing."""
    x = _inputs(runs)
    y = np.zeros((runs, RECORDS), REAL)
    y[:, CANARY] = sign * LABEL
    mean = feature_layers.released_direction(Records(x, y), MAX_NORM, deviation, normal)
    line = x[0, CANARY].astype(float)
    return mean @ (line / np.linalg.norm(line))


def _head(runs: int, deviation: float, normal: Normal, sign: float) -> np.ndarray:
    """Descent on a second layer, all iterates released; records with zero features add nothing."""
    line = np.linspace(0.2, 0.9, NEURONS)
    phi = np.zeros((runs, RECORDS, NEURONS), REAL)
    phi[:, CANARY] = line
    y = np.zeros((runs, RECORDS), REAL)
    y[:, CANARY] = sign * LABEL
    means: list[np.ndarray] = []
    layer = SecondLayer(phi, y, penalty=0.1)
    layer.descend_privately(STEPS, MAX_NORM, deviation, normal, "head", means.append)
    return -np.sum(means, axis=0) @ (line / np.linalg.norm(line))


FEATURES = {
    release.name: release
    for release in (
        MeanRelease("feature-matrix", _matrix),
        MeanRelease("feature-direction", _direction),
        MeanRelease("feature-second-layer", _head, releases=STEPS),
    )
}
