"""Sampling of batches: five schemes, of which the accountants cover some under each relation.

A sampler is a pure function of (noise, repetition, step): a resumed run draws the same batches and
no state is stored. `step` counts over the whole run, so that no two phases share a draw.
"""

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from dpatlas.base.guard import checked, hold, integer, one_of
from dpatlas.base.seeds import Noise, generator
from dpatlas.errors import InputError


@dataclass(frozen=True)
class Sampler:
    """Batches from `n` records, `batch` of them expected.

    accounted_as: stated by a subclass of one's own, the name of the sampler whose accounting covers
    its batches. Raises InputError unless 1 <= batch <= n.
    """

    name: ClassVar[str]

    n: int
    batch: int

    def __post_init__(self) -> None:
        hold(self, "n", integer(ge=1), f"records of the {self.name} sampler")
        hold(self, "batch", integer(ge=1, le=self.n), f"batch of the {self.name} sampler")

    @property
    def expected_batch(self) -> float:
        """The public divisor of every update; the realised size would reveal who is in the data."""
        return float(self.batch)

    @property
    def sample_rate(self) -> float:
        """q, the probability that a step sees a given record: batch / n, divisible or not."""
        return self.batch / self.n

    @property
    def steps_per_epoch(self) -> int:
        """Number of whole batches in n records."""
        return self.n // self.batch

    def steps_in(self, epochs: float) -> int:
        """The steps of so many passes, rounded up: n / batch in a pass of batches that overlap."""
        return _rounded_up(epochs * self.n / self.expected_batch)

    def on(self, n: int) -> "Sampler":
        """The same scheme on `n` records; batches keep their size, but for more than `n`."""
        return type(self)(n, min(self.batch, n))

    def batch_indices(self, noise: Noise, repetition: int, step: int) -> np.ndarray:
        """The records of one step: sorted int64 in [0, n) without repetition, possibly empty."""
        raise NotImplementedError


@dataclass(frozen=True)
class Poisson(Sampler):
    """Each record enters each batch with probability q = batch / n, independently of all else.

    Accounted under add_remove and replace_one. Raises InputError unless 1 <= batch <= n.
    """

    name: ClassVar[str] = "poisson"

    def batch_indices(self, noise: Noise, repetition: int, step: int) -> np.ndarray:
        """Drawn by the distances between selected records, in O(batch).

        In n independent trials with success probability q the distances between successes are
        independent Geometric(q); the successes below n are therefore exactly a Poisson batch.
        """
        draws = noise.reused(repetition=repetition, step=step, use="batch")
        # Six standard deviations above the expected number of successes: nearly always enough.
        chunk = self.batch + 6 * math.isqrt(self.batch) + 10
        selected = draws.geometric(self.sample_rate, size=chunk).cumsum() - 1
        while selected[-1] < self.n:
            more = draws.geometric(self.sample_rate, size=chunk).cumsum()
            selected = np.concatenate([selected, selected[-1] + more])
        return selected[: np.searchsorted(selected, self.n)]


@dataclass(frozen=True)
class FixedSize(Sampler):
    """`batch` of n records without replacement, drawn afresh at each step.

    Accounted under replace_one. Raises InputError unless 1 <= batch <= n.
    """

    name: ClassVar[str] = "fixed-size"

    def batch_indices(self, noise: Noise, repetition: int, step: int) -> np.ndarray:
        """A uniformly random subset of exactly `batch` records."""
        draws = noise.reused(repetition=repetition, step=step, use="batch")
        return np.sort(draws.choice(self.n, self.batch, replace=False, shuffle=False))


@dataclass(frozen=True)
class Shuffled(Sampler):
    """Disjoint batches of one permutation per epoch; each epoch leaves out n mod batch records.

    Accounted under replace_one, as one release per epoch, without amplification by the shuffle.
    Raises InputError unless 1 <= batch <= n.
    """

    name: ClassVar[str] = "shuffled"

    def steps_in(self, epochs: float) -> int:
        """The steps of so many passes, rounded up: a pass has `steps_per_epoch`."""
        return _rounded_up(epochs * self.steps_per_epoch)

    def batch_indices(self, noise: Noise, repetition: int, step: int) -> np.ndarray:
        """The step's section of the permutation of its epoch."""
        epoch, number = divmod(step, self.steps_per_epoch)
        order = _permutation(noise.key(repetition, epoch, "shuffle"), self.n)
        return np.sort(order[number * self.batch : (number + 1) * self.batch])


@dataclass(frozen=True)
class Cyclic(Shuffled):
    """Disjoint batches in the order of the records, the same in every epoch; the rest is unused.

    Accounted as `Shuffled`. Raises InputError unless 1 <= batch <= n.
    """

    name: ClassVar[str] = "cyclic"

    def batch_indices(self, noise: Noise, repetition: int, step: int) -> np.ndarray:
        """The step's section of the records."""
        first = step % self.steps_per_epoch * self.batch
        return np.arange(first, first + self.batch, dtype=np.int64)


@dataclass(frozen=True)
class FullBatch(Sampler):
    """All n records at every step.

    Accounted under add_remove and replace_one. Raises InputError for a `batch` other than n.
    """

    name: ClassVar[str] = "full-batch"

    # None means n, which `__post_init__` sets.
    batch: int = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        hold(self, "n", integer(ge=1), f"records of the {self.name} sampler")
        if self.batch is None:
            object.__setattr__(self, "batch", self.n)
        hold(self, "batch", integer(ge=self.n, le=self.n), f"batch of the {self.name} sampler")

    def on(self, n: int) -> "FullBatch":
        """All of `n` records."""
        return FullBatch(n)

    def batch_indices(self, noise: Noise, repetition: int, step: int) -> np.ndarray:
        """0, ..., n - 1."""
        return np.arange(self.n, dtype=np.int64)


def _rounded_up(steps: float) -> int:
    """At least one step, and none for the rounding of doubles."""
    return max(1, math.ceil(steps - 1e-9))


SAMPLERS = {kind.name: kind for kind in (Poisson, FixedSize, Shuffled, Cyclic, FullBatch)}


@checked(name=one_of(*SAMPLERS))
def sampler(name: str, n: int, batch: int | None = None) -> Sampler:
    """The sampler of that name; a full batch needs no `batch`."""
    # The sampler's own check refuses or replaces None.
    return SAMPLERS[name](n, cast(int, batch))


def check_sampler(sampler: object) -> None:
    """InputError for what is no sampler of this module, nor a subclass that states `accounted_as`.

    A subclass is accounted as its parent, whatever batches it draws.
    """
    kind = type(sampler)
    if kind in SAMPLERS.values():
        return
    name = getattr(sampler, "name", "")
    # Accountants go by the class: a parent of another name would be accounted as itself.
    fits = name in SAMPLERS and isinstance(sampler, SAMPLERS[name])
    if not fits or vars(kind).get("accounted_as") != name:
        names = ", ".join(each.__name__ for each in SAMPLERS.values())
        allowed = f"{names}, or a subclass with accounted_as = its parent's name, if that is true"
        raise InputError("sampler", kind.__name__, allowed)


# Every step of an epoch uses the same permutation; a few runs may alternate.
@functools.lru_cache(maxsize=4)
def _permutation(key: int, n: int) -> np.ndarray:
    return generator(key).permutation(n)
