"""Private selection: the best of a random number of trials (Papernot and Steinke 2022).

A trial draws settings at random, trains with its own noise and batches, and scores its model. The
number K of trials is drawn from a public distribution, and only the trial with the best score is
released: its settings, its model and its score. K and the results of the other trials stay secret,
as the noise does. Trials must therefore be exchangeable: whoever could tell the number of the
released trial (for instance from public initial weights of that trial) would learn a bound on K.
Ties are broken by a rule that does not depend on the data; here the first of the best is released.

One trial is a mechanism on training records T and validation records V: the model depends on T
alone, the score on the model and V. Neighbouring data sets differ in one record, of T or of V; all
others stay in their part.

- A record of T: the model has the training's guarantee, and the score is computed from the model
  and the same V, which is post-processing and costs nothing.
- A record of V: settings and model have the same distribution. The count of right answers moves by
  at most 1, whether the record is added, removed or replaced, so Gaussian noise of standard
  deviation S on it has Renyi divergence order / (2 S^2). The number of these records is public.

The theorems bound what selection adds for each pair of neighbours: the guarantee is the worse of
the two. If V is public, only the first applies, and the score needs no noise.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpatlas.accounting.accountants import RDP_ORDERS, epsilon_of_curve, repeat_and_select_epsilon
from dpatlas.accounting.guarantees import (
    NO_CROSS_CHECK,
    RELATIONS,
    Guarantee,
    Phase,
    guarantee,
    mechanisms_of,
    renyi_curve,
    smallest_noise,
)
from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.base.rounding import upward
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError

# The tail of a distribution is cut off below this probability, which is less than the rounding of a
# double.
NEGLIGIBLE = 1e-18
# Within these bounds no probability underflows before the tail.
ETA = real(gt=-1, le=10)
LEAST_GAMMA = 1e-30


# A law of the number of trials has its mean, its `shape` in dp-accounting's
# `RepeatAndSelectDpEvent`, and `selected_curve`: the Renyi divergence of the selection at
# increasing orders > 1, from that of one trial.
@dataclass(frozen=True)
class TruncatedNegativeBinomial:
    """D_{eta, gamma}, at least one trial (Papernot and Steinke 2022, Definition 1).

    -1 < eta <= 10: 1 is the geometric, 0 the logarithmic distribution. 1e-30 <= gamma < 1: a
    smaller gamma means more trials. Raises InputError outside of these ranges.
    """

    eta: float
    gamma: float

    def __post_init__(self) -> None:
        ETA.check("eta", self.eta)
        real(ge=LEAST_GAMMA, lt=1).check("gamma", self.gamma)

    @classmethod
    def with_mean(cls, eta: float, mean: float) -> "TruncatedNegativeBinomial":
        """The distribution of that shape and mean number of trials; InputError for mean <= 1."""
        from scipy.optimize import brentq

        ETA.check("eta", eta)
        least, most = 1e-12, -math.log(LEAST_GAMMA)
        allowed = real(gt=max(1.0, _mean(eta, least)), lt=_mean(eta, most))
        allowed.check("expected number of trials", mean)
        root = brentq(lambda x: math.log(_mean(eta, x) / mean), least, most, xtol=1e-14)
        return cls(eta, math.exp(-root))

    @property
    def shape(self) -> float:
        """The parameter eta."""
        return self.eta

    @property
    def mean(self) -> float:
        """E[K] = eta (1 - gamma) / (gamma (1 - gamma^eta)), its limit at eta 0."""
        return _mean(self.eta, -math.log(self.gamma))

    def draw(self, noise: Noise) -> int:
        """Drawn by inversion, accurate to 1e-15 in total variation."""
        # P(K = k) = (1 - gamma)^k / (gamma^-eta - 1) prod_{l < k} (l + eta) / (l + 1).
        left = noise.generator(repetition=0, step=0, use="trials").random()
        stay = 1 - self.gamma
        count, probability = 1, stay / _scaled(self.eta, -math.log(self.gamma))
        while left >= probability and (probability > NEGLIGIBLE or count < self.mean):
            left -= probability
            probability *= stay * (count + self.eta) / (count + 1)
            count += 1
        return count

    def selected_curve(self, orders: np.ndarray, curve: np.ndarray) -> np.ndarray:
        """Papernot and Steinke 2022, Theorem 2, at the best second order for each.

        eps'(a) = eps(a) + log(E[K]) / (a - 1)
                  + (1 + eta) min_b [(1 - 1/b) eps(b) + log(1 / gamma) / b].
        """
        second = (1 - 1 / orders) * curve - math.log(self.gamma) / orders
        added = (1 + self.eta) * second.min() + math.log(self.mean) / (orders - 1)
        return _least_from_above(curve + added)

    def describe(self) -> str:
        """The distribution in words."""
        names = {1.0: "geometric", 0.0: "logarithmic"}
        name = names.get(float(self.eta), f"truncated negative binomial (eta {self.eta:g})")
        return f"{name} with mean {self.mean:g}"


@dataclass(frozen=True)
class PoissonTrials:
    """Poisson with expectation `mean` >= 1. If no trial is drawn, the release says only that."""

    mean: float

    def __post_init__(self) -> None:
        real(ge=1).check("expected number of trials", self.mean)

    @property
    def shape(self) -> float:
        """Infinity, which stands for Poisson in dp-accounting."""
        return math.inf

    def draw(self, noise: Noise) -> int:
        """Drawn by numpy."""
        return int(noise.generator(repetition=0, step=0, use="trials").poisson(self.mean))

    def selected_curve(self, orders: np.ndarray, curve: np.ndarray) -> np.ndarray:
        """Papernot and Steinke 2022, Theorem 6.

        eps'(a) = eps(a) + mean delta(log(1 + 1 / (a - 1))) + log(mean) / (a - 1), where one trial
        is (e, delta(e))-private by its Renyi divergences r: delta(e) = min_b of
        exp((b - 1) (r(b) - e + log(1 - 1/b))) / b (Canonne, Kamath and Steinke 2020, Prop. 12).
        """
        log_deltas = (orders - 1) * (
            curve - np.log1p(1 / (orders[:, None] - 1)) + np.log1p(-1 / orders)
        ) - np.log(orders)
        # The second bound follows from the Kullback-Leibler divergence; it is the smaller one for
        # small divergences.
        deltas = np.minimum(
            np.exp(np.minimum(log_deltas.min(axis=1), 0)), np.sqrt(-np.expm1(-curve)).min()
        )
        added = self.mean * deltas + math.log(self.mean) / (orders - 1)
        return _least_from_above(curve + added)

    def describe(self) -> str:
        """The distribution in words."""
        return f"Poisson with mean {self.mean:g}"


TrialsLaw = TruncatedNegativeBinomial | PoissonTrials
LAWS: Mapping[str, Callable[[float], TrialsLaw]] = {
    "geometric": lambda mean: TruncatedNegativeBinomial.with_mean(1.0, mean),
    "logarithmic": lambda mean: TruncatedNegativeBinomial.with_mean(0.0, mean),
    "poisson": PoissonTrials,
}


@checked(name=one_of(*LAWS))
def trials_law(name: str, mean: float) -> TrialsLaw:
    """The distribution of that name and mean; InputError for an unknown name or a mean < 1."""
    return LAWS[name](mean)


@dataclass(frozen=True)
class Score:
    """The count of right answers among `records` private validation records, with noise.

    noise: standard deviation of the Gaussian noise on the count. Raises InputError for noise <= 0
    or no records.
    """

    records: int
    noise: float

    def __post_init__(self) -> None:
        integer(ge=1).check("validation records", self.records)
        real(gt=0).check("noise of the score", self.noise)

    @property
    def phase(self) -> Phase:
        """The release as accountants see it under add_remove: its sensitivity is always 1."""
        return Phase(FullBatch(self.records), self.noise, 1)

    def released(self, right: int, noise: Noise, trial: int) -> float:
        """The noisy count of right answers, divided by the public number of records."""
        draws = noise.generator(repetition=trial, step=0, use="score")
        return (right + self.noise * float(draws.standard_normal())) / self.records


@dataclass(frozen=True)
class SelectionGuarantee:
    """The guarantee of a selection (`selected`) and that of one trial alone (`single`).

    training, validation: epsilon of the selection for a record of either part, at the same delta;
    None for validation records that are public. `selected.epsilon` is the larger of the two.
    """

    selected: Guarantee
    single: Guarantee
    training: float
    validation: float | None


@checked(delta=real(gt=0, lt=1), relation=one_of(*RELATIONS))
def selected_guarantee(
    phases: Sequence[Phase], law: TrialsLaw, delta: float, relation: str, score: Score | None = None
) -> SelectionGuarantee:
    """The guarantee of releasing the best of a random number of trials, by Renyi divergences.

    phases: of the training of one trial, the same for all settings that may be drawn. score: the
    noisy score on private validation records; None where they are public. dp-accounting's
    `RepeatAndSelectDpEvent`, which takes eta >= 0, is the cross-check. Raises InputError for a
    sampler that has no Renyi divergences under `relation`.
    """
    single = guarantee(phases, delta, relation)
    event = f"the best of K trials, K {law.describe()}; one trial: {single.event}"
    training, warning, check = _selected_epsilon(phases, law, delta, relation)
    epsilon, validation = training, None
    if score is not None:
        event += f"; its score: noise of deviation {score.noise:g} on a count, sensitivity 1"
        alone = replace(guarantee([score.phase], delta, "add_remove"), relation=relation)
        single = max(single, alone, key=lambda option: option.epsilon)
        scored = _selected_epsilon([score.phase], law, delta, "add_remove")
        validation = scored[0]
        if validation > training:
            epsilon, warning, check = scored
    selected = Guarantee(
        epsilon, delta, relation, "rdp", event, check, (warning,) if warning else ()
    )
    return SelectionGuarantee(selected, single, training, validation)


@checked(epsilon=real(gt=0), delta=real(gt=0, lt=1), relation=one_of(*RELATIONS))
def calibrate_selected(
    phases_at: Callable[[float], Sequence[Phase]],
    epsilon: float,
    delta: float,
    relation: str,
    *,
    law: TrialsLaw,
    score: Score | None = None,
) -> float:
    """The smallest noise multiplier with which the whole selection meets (epsilon, delta).

    Arguments as in `calibrate` and `selected_guarantee`. Raises InputError for a target that no
    noise multiplier meets, and where the score of private validation records alone costs more.
    """
    if score is not None:
        cost, _ = _epsilon([score.phase], law, delta, "add_remove")
        if cost > epsilon:
            found = f"{score.noise:g}, with which a validation record pays epsilon {upward(cost)}"
            raise InputError("noise of the score", found, f"more, for epsilon {epsilon:g}")

    def epsilon_at(noise_multiplier: float) -> float:
        return _epsilon(phases_at(noise_multiplier), law, delta, relation)[0]

    return smallest_noise(epsilon_at, epsilon, delta)


def _selected_epsilon(
    phases: Sequence[Phase], law: TrialsLaw, delta: float, relation: str
) -> tuple[float, str | None, str]:
    """Epsilon of the selection among trials of `phases`, a warning or None, and the cross-check."""
    epsilon, warning = _epsilon(phases, law, delta, relation)
    check = NO_CROSS_CHECK
    if law.shape >= 0 and 0 < epsilon < math.inf:
        # For Poisson trials the package takes log(0) where divergences are below 1e-16.
        with contextlib.suppress(ValueError):
            trials = law.mean, law.shape
            found = repeat_and_select_epsilon(mechanisms_of(phases), *trials, delta, relation)
            check = f"RepeatAndSelectDpEvent of dp-accounting: epsilon {found:.6g}"
    return epsilon, warning, check


def _epsilon(
    phases: Sequence[Phase], law: TrialsLaw, delta: float, relation: str
) -> tuple[float, str | None]:
    orders = np.array(RDP_ORDERS, dtype=float)
    curve = law.selected_curve(orders, renyi_curve(phases, relation))
    return epsilon_of_curve(orders, curve, delta)


def _mean(eta: float, x: float) -> float:
    """E[K] of the truncated negative binomial distribution with gamma = exp(-x)."""
    return math.expm1(x) / -_scaled(eta, -x)


def _scaled(eta: float, x: float) -> float:
    """(exp(eta x) - 1) / eta, or its limit x at eta = 0."""
    return math.expm1(eta * x) / eta if eta else x


def _least_from_above(curve: np.ndarray) -> np.ndarray:
    """Running minimum from the highest order down: a bound holds at all lower orders too."""
    return np.minimum.accumulate(curve[::-1])[::-1]
