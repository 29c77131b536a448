"""feature_learning: the settings of a condition, all set by public rules, and its privacy ledger.

No setting depends on a risk that is reported, and no clip bound on private records: clip bounds are
quantiles of norms in a rehearsal, a public simulation of the same law with a direction, weights and
records of its own.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpatlas.accounting.mean_release import mu_per_use, noise_deviation
from dpatlas.base.records import Row
from dpatlas.formulas.feature_learning.rates import (
    first_layer_rate,
    largest_epsilon,
    penalty,
    printed_first_layer_noise,
)
from dpatlas.formulas.feature_learning.single_index import Link
from dpatlas_workflow.papers.feature_learning.jobs.draws import draw
from dpatlas_workflow.papers.feature_learning.jobs.layers import (
    SecondLayer,
    direction_norms,
    first_norms,
    normalised,
)
from dpatlas_workflow.papers.feature_learning.records.simulation import ClipQuantiles

REHEARSED = 2000
SHARED = "shared"
NEIGHBOURS = (
    "replace one person's record in the one data set that has it; the numbers of records are public"
)
NEIGHBOURS_SHARED = "replace one record of the data set that both layers use; n is public"


@dataclass(frozen=True)
class ClipBounds:
    """Clip bounds: C_W of a gradient in W, C of y x, C_a of a gradient in a."""

    matrix: float
    direction: float
    head: float


def link_facts(link: Link) -> dict[str, Any]:
    """The link as the record states it."""
    return {
        "polynomial": link.scaled.tolist(),
        "hermite": link.hermite.tolist(),
        "degree": link.degree,
        "information_exponent": link.information_exponent,
    }


def rehearsed_bounds(link: Link, d: int, p: int, base: int, quantiles: ClipQuantiles) -> ClipBounds:
    """Quantiles of gradient norms in a public rehearsal of `REHEARSED` records.

    First layer: at W_0. Second layer: at a = 0 on the features of W_0 with neurons of unit norm.
    """
    public = draw(link, d, p, REHEARSED, 1, [0], base, use=" of a rehearsal")
    start = public.start
    phi = start.features(public.second.x, normalised(start.weights))
    head_norms = SecondLayer(phi, public.second.y, 0.0).norms_at_zero()
    return ClipBounds(
        matrix=float(np.quantile(first_norms(start, public.first), quantiles.first)),
        direction=float(np.quantile(direction_norms(public.first), quantiles.first)),
        head=float(np.quantile(head_norms, quantiles.second)),
    )


@dataclass(frozen=True)
class Rules:
    """Settings of one condition (d, n, p, epsilon): rates, penalty, clip bounds and noise.

    rate: eta_W of Assumption 4. penalty: lambda, `penalty_per_neuron` times p, or Assumption 4's
    where that is None. sharing: "split" if each person is in one of the two data sets, "shared" if
    both layers use one, so that their mu add in quadrature.
    """

    link: Link
    d: int
    n: int
    p: int
    epsilon: float
    delta: float
    steps: int
    sharing: str
    penalty_per_neuron: float | None
    bounds: ClipBounds

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(d, n, p)."""
        return self.d, self.n, self.p

    @property
    def rate(self) -> float:
        """eta_W."""
        return first_layer_rate(self.n, self.d, self.p)

    @property
    def penalty(self) -> float:
        """lambda."""
        if self.penalty_per_neuron is None:
            return penalty(self.n, self.d, self.p)
        return self.penalty_per_neuron * self.p

    def mu(self, learns_features: bool) -> float:
        """mu of the first layer's release, and of all steps of the second layer together.

        learns_features: whether anything of the first layer is released.
        """
        uses = 2 if learns_features and self.sharing == SHARED else 1
        return mu_per_use(self.epsilon, self.delta, uses)

    def first_noise(self, release: str) -> float:
        """Deviation of the noise on every entry of the first layer's `matrix` or `direction`."""
        return noise_deviation(getattr(self.bounds, release), self.n, self.mu(True))

    def head_noise(self, n: int, learns_features: bool) -> float:
        """Deviation of the noise on every entry of one step's mean over n records."""
        return noise_deviation(self.bounds.head, n, self.mu(learns_features), self.steps)

    @property
    def printed_noise(self) -> float:
        """sigma_W of Assumption 4, eps_B = 0."""
        return printed_first_layer_noise(self.d, self.n, self.link.degree)

    @property
    def point(self) -> Row:
        """The condition."""
        return {"d": self.d, "n": self.n, "p": self.p, "epsilon": self.epsilon}

    def facts(self) -> Row:
        """The condition and its settings, as a row of the record."""
        return {
            **self.point,
            "mu": self.mu(True),
            "rate": self.rate,
            "penalty": self.penalty,
            **{f"{name}_norm": norm for name, norm in asdict(self.bounds).items()},
            **{f"{name}_noise": self.first_noise(name) for name in ("matrix", "direction")},
            "head_noise": self.head_noise(self.n, learns_features=True),
            "printed_noise": self.printed_noise,
        }

    def ledger(self, features: str, release: str | None, n: int) -> dict[str, Any]:
        """Ledger of one private network.

        release: what is released of the first layer, None for random features. n: records of the
        second layer.
        """
        learns = release is not None
        head = self.bounds.head, self.head_noise(n, learns), n
        uses = [("all steps of the second layer", self.steps, *head)]
        if release is not None:
            first = getattr(self.bounds, release), self.first_noise(release), self.n
            uses.insert(0, (f"{release} of the first layer", 1, *first))
        releases = [
            {
                "what": what,
                "times": times,
                "clip": clip,
                "noise": noise,
                "sensitivity": 2 * clip / records,
                "mu": self.mu(learns),
            }
            for what, times, clip, noise, records in uses
        ]
        return {
            "arm": f"{features}, d {self.d}, n {self.n}, p {self.p}, epsilon {self.epsilon:g}",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "releases": releases,
        }


def warnings(link: Link, epsilons: Sequence[float], delta: float) -> list[str]:
    """A sentence for each setting that the report's assumptions exclude and that is run anyway."""
    excluded = []
    if link.information_exponent > 1:
        excluded.append(
            f"information exponent {link.information_exponent}, Assumption 1 wants 1: the first "
            "gradient step is not expected to see the direction"
        )
    largest = largest_epsilon(delta)
    excluded += [
        f"epsilon {epsilon:g} is not below 8 log(1/delta) = {largest:.4g}, where Assumption 3 "
        "ends; the exact accounting holds for it all the same"
        for epsilon in epsilons
        if epsilon >= largest
    ]
    return excluded
