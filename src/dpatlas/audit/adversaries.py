"""Adversaries: each turns what it sees of a run into one score, learnt on pairs of runs.

Any function of the observations is a valid score, so nothing here has to be right for a bound to
hold; it has to be good for the bound to be high. The bound's runs never teach a score.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import rankdata

from dpatlas.accounting.gaussian_dp import log_mixture
from dpatlas.audit.claim import Claim
from dpatlas.audit.pairs import Pair, sampled_steps
from dpatlas.audit.premises import uncoupled
from dpatlas.errors import InputError

# Coordinates of an array that differ most between the worlds, for an adversary that looks at few.
FEW = 8
# A deviation is at least this part of the values, so that constants do not divide by zero.
LEAST_DEVIATION = 1e-9


@dataclass
class Observed:
    """What is kept of a run while it trains: (sums,) projections on a direction, and energies."""

    projections: list[float] = field(default_factory=list)
    energy: list[float] = field(default_factory=list)


class Adversaries:
    """All scores of one audit, learnt on `pairs` when it is made."""

    def __init__(self, claim: Claim, pairs: Sequence[Pair]):
        self.pairs = len(pairs)
        self.direction: np.ndarray | None = None
        # Numbers of each published array; None where they vary.
        self._sizes: dict[str, int | None] = {}
        self._scores: dict[str, Callable[[Observed, Mapping[str, np.ndarray]], float]] = {}
        sums = [pair for pair in pairs if pair.without.sums and pair.with_.sums]
        if sums:
            self._learn_sums(claim, sums)
        if len({world.sums for pair in pairs for world in (pair.without, pair.with_)}) > 1:
            self._scores["number of sums"] = lambda seen, _: float(len(seen.energy))
        for name in pairs[0].without.published:
            self._learn_published(name, pairs)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scores."""
        return tuple(self._scores)

    def observe(self, observed: Observed, _: int, values: np.ndarray) -> None:
        """Keep what the scores need of one noisy sum."""
        if self.direction is not None:
            if len(self.direction) != len(values):
                found = f"{len(values)} numbers, and {len(self.direction)} in another run"
                raise InputError("run.see", found, "as many in every run")
            observed.projections.append(float(values @ self.direction))
        observed.energy.append(float(values @ values))

    def scores(self, observed: Observed, published: Mapping[str, np.ndarray]) -> list[float]:
        """Of one run, in the order of `names`. InputError for other arrays than the pairs had."""
        sizes = {name: len(values) for name, values in published.items()}
        for name, size in self._sizes.items():
            if name not in sizes or size not in (None, sizes[name]):
                found = f"{sizes.get(name, 'no')} numbers"
                raise InputError(f"published {name}", found, f"{size}, as in the runs before")
        return [float(score(observed, published)) for score in self._scores.values()]

    def _learn_sums(self, claim: Claim, pairs: Sequence[Pair]) -> None:
        changes = [pair.change for pair in pairs if pair.change is not None]
        if changes and not uncoupled(claim, pairs):
            mean = np.mean(changes, axis=0)
        else:
            mean = np.mean([pair.with_.total - pair.without.total for pair in pairs], axis=0)
            mean = mean / max(1, pairs[0].without.sums)
        length = float(np.linalg.norm(mean))
        self._scores["energy of the sums"] = lambda seen, _: float(np.sum(seen.energy))
        if length == 0:
            return
        self.direction = mean / length
        centre, variance = self._background(claim, pairs)
        known = sampled_steps(claim)[: len(centre)]
        rate = claim.sample_rate or 1.0

        def ratio(seen: Observed, _: Mapping[str, np.ndarray]) -> float:
            # log of ((1 - q) N(0, s^2) + q N(m, s^2)) / N(0, s^2), step by step, with the
            # background of the last step before of which it is known.
            steps = np.searchsorted(known, np.arange(len(seen.projections)), "right") - 1
            along = np.array(seen.projections) - centre[steps]
            ratios = log_mixture(length * (along - length / 2) / variance[steps], rate)
            return float(ratios.sum())

        self._scores["likelihood ratio of the sums"] = ratio
        self._scores["sums along the canary"] = lambda seen, _: float(np.sum(seen.projections))

    def _background(self, claim: Claim, pairs: Sequence[Pair]) -> tuple[np.ndarray, np.ndarray]:
        """(steps,) mean and variance of a noisy sum along the direction, without the canary."""
        worlds = [pair.without for pair in pairs]
        assert self.direction is not None
        steps = min(len(world.sample) for world in worlds)
        if all(world.sample.shape[1] == len(self.direction) for world in worlds):
            along = np.array([world.sample[:steps] @ self.direction for world in worlds])
        else:
            # Too large to be kept: all steps together.
            along = np.array([[world.total @ self.direction / world.sums] for world in worlds])
            along = (along - along.mean()) * np.sqrt(steps) + along.mean()
        least = (claim.noise or LEAST_DEVIATION) ** 2
        return along.mean(0), np.maximum(along.var(0), least)

    def _learn_published(self, name: str, pairs: Sequence[Pair]) -> None:
        worlds = [world for pair in pairs for world in (pair.without, pair.with_)]
        sizes = {len(world.published[name]) for world in worlds}
        if len(sizes) > 1:
            # Only their number can be compared.
            self._sizes[name] = None
            self._scores[f"length of {name}"] = lambda _, published: float(len(published[name]))
            return
        without, with_ = (
            np.array([world.published[name] for world in worlds[side::2]]) for side in (0, 1)
        )
        self._sizes[name] = without.shape[1]
        if without.shape[1] == 1:
            self._scores[name] = lambda _, published: float(published[name][0])
            return
        # Centre, shift of the means and pooled deviation, by coordinate.
        centre = (without.mean(0) + with_.mean(0)) / 2
        shift = with_.mean(0) - without.mean(0)
        scale = np.abs(without).max(0) + np.abs(with_).max(0)
        least = LEAST_DEVIATION * scale + np.finfo(float).tiny
        spread = np.maximum(np.sqrt((without.var(0) + with_.var(0)) / 2), least)
        t = np.abs(shift) / spread
        weights = shift / spread / spread
        few = np.argsort(-t)[:FEW]
        everywhere = np.arange(len(t))

        def along(places: np.ndarray, _: Observed, published: Mapping[str, np.ndarray]) -> float:
            return float((published[name] - centre)[places] @ weights[places])

        self._scores[f"{name}, all"] = functools.partial(along, everywhere)
        self._scores[f"{name}, few"] = functools.partial(along, few)
        self._scores[f"energy of {name}"] = lambda _, published: float(
            (((published[name] - centre) / spread) ** 2).sum()
        )


def separation(scores_with: np.ndarray, scores_without: np.ndarray) -> float:
    """How far an order by score is from guessing: |AUC - 1/2|."""
    ranks = rankdata(np.concatenate([scores_with, scores_without]))
    many, few = len(scores_with), len(scores_without)
    area = (ranks[:many].sum() - many * (many + 1) / 2) / (many * few)
    return float(abs(area - 0.5))
