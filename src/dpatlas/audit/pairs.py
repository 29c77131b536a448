"""Pairs of runs on equal seeds, without and with the canary: their noise cancels.

In a pair the noisy sums agree until the canary first acts, and there they differ by what it
contributes: its clipped gradient, at equal weights. Later sums are taken at other weights and say
nothing by themselves. That a run repeats itself on its own seed is looked at first, on some pairs.
Where a sum differed, a third run goes on from the sums without the canary: nothing else may then
differ. In two more runs the losses of half of the records have weight zero, and in one of these
copies of the canary stand in their places: nothing may differ. If no single record of weight zero
changes anything, replacing them one after the other changes nothing either, so that a difference
refutes this. Many records turn a choice, such as the epoch of the best accuracy, more often than
one.
The runs of pairs also teach the adversaries; bounds never see them.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from dpatlas.audit.claim import Claim
from dpatlas.audit.run import OUTSIDE, Run, Train, execute
from dpatlas.errors import InputError

# Of each run's sums so many coordinates at so many steps are kept, to estimate the noise: the first
# half of these steps, the first two of the second epoch, and others up to the end.
COORDINATES, STEPS = 2000, 16
# Of each step's weights so many coordinates are compared, and the norm.
WEIGHTS = 256
# Numbers of all sums of one run that are held in memory, to compare with its partner's.
MOST_NUMBERS = 2.5e8
# Sums closer than this, in units of C and of their norm, are equal: a device may add in another
# order. Where a repeated run differs by more, so many times that; but by ANOTHER it is another run.
EQUAL, EQUAL_SHARE = 1e-4, 1e-6
REPEATED_SHARE, ANOTHER = 10.0, 1e-2
# Pairs whose run without the canary is repeated.
REPEATED_PAIRS = 3
# Steps whose noise is compared at shifted coordinates, how few and how many of these, and the
# chance that fresh noise agrees more than is allowed.
SHIFTED_STEPS, SHIFTED_COORDINATES, SHIFTED_MOST, SHIFTED_BY_CHANCE = 6, 500, 2**19, 1e-9
# What a run gives to `run.weights`, among the names of what it publishes; and what else may differ.
UPDATES, SUMS, MANY = "the weights after an update", "a sum", "the number of sums"
ROUNDED, FAILED = "rounding", "failed"


@dataclass(frozen=True)
class World:
    """One run of a pair.

    sums: how many noisy sums were seen. total: (d,) all of them added up. energy: (sums,) squared
    norms. sample: (steps, coordinates) of the sums at `sampled_steps`. published: flat arrays by
    name. facts: what was given to `run.fact`, by name.
    """

    sums: int
    total: np.ndarray
    energy: np.ndarray
    sample: np.ndarray
    published: Mapping[str, np.ndarray]
    facts: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """Two runs on one seed.

    acted: the first step, from 1, at which their sums differ; None if none does. change: (d,) the
    difference there, None if the runs differ by their number of sums alone. first: (coordinates,)
    the difference of the first sums. beside: the first step after which their weights differ
    although no sum did; None if none, or if no weights were given. touched: whether any sum differs
    at all, also by less than counts as acting. repeated: the largest norm, over steps, by which the
    run without the canary differs from itself on the same seed; None if not looked at. changing:
    names of what differs between that run and itself, although no sum does: of published arrays,
    and UPDATES. silent: names of what canaries in the places of records of weight zero change, None
    where there were no such runs; ROUNDED alone where the first sum that differs does so by less
    than counts, as that may grow, and FAILED where these runs end with bad input. silent_change:
    (d,) of the first that differs by more. replayed: names of what a canary changes in a run that
    goes on from the other's sums; None where there was none. shifted: of `shifted_noise` without
    the canary.
    """

    without: World
    with_: World
    acted: int | None = None
    change: np.ndarray | None = None
    first: np.ndarray = field(default_factory=lambda: np.zeros(0))
    beside: int | None = None
    touched: bool = False
    repeated: float | None = None
    changing: tuple[str, ...] = ()
    silent: tuple[str, ...] | None = None
    silent_change: np.ndarray | None = None
    replayed: tuple[str, ...] | None = None
    shifted: tuple[float, float] = (0.0, 0.0)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two flat arrays of what a run publishes agree but for rounding."""
    return len(one) == len(other) and np.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)


@dataclass
class _Recorder:
    """Collects a run's sums, and compares them with those of its partner, if there is one.

    rounding: by how much the sums of equal runs differ. replays: whether the run goes on from the
    partner's sums, so that weights are the same whatever its own are.
    """

    claim: Claim
    rounding: float = 0.0
    partner: "_Recorder | None" = None
    replays: bool = False
    kept: list[np.ndarray] = field(default_factory=list)
    energy: list[float] = field(default_factory=list)
    sample: list[np.ndarray] = field(default_factory=list)
    total: np.ndarray | None = None
    acted: int | None = None
    change: np.ndarray | None = None
    first: np.ndarray | None = None
    weights: list[np.ndarray] = field(default_factory=list)
    beside: int | None = None
    touched: bool = False
    # Whether the first sum that differs does so by less than counts as acting.
    rounded: bool = False
    largest: float = 0.0
    steps: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.steps = frozenset(sampled_steps(self.claim).tolist())

    def on_weights(self, sums: int, values: np.ndarray) -> None:
        few = np.append(values[sampled_coordinates(len(values), WEIGHTS)], np.linalg.norm(values))
        number = len(self.weights)
        self.weights.append(few)
        others = [] if self.partner is None else self.partner.weights
        looks = self.beside is None and (self.replays or not self.touched)
        if looks and number < len(others) and not same(few, others[number]):
            self.beside = sums

    def on_sum(self, step: int, values: np.ndarray) -> None:
        if self.total is None:
            self.total = np.zeros(len(values))
            self.columns = sampled_coordinates(len(values))
        self.total += values
        self.energy.append(float(values @ values))
        if step in self.steps:
            self.sample.append(values[self.columns])
        # In single precision, of which most sums are anyway: equal ones stay equal.
        single = values.astype(np.float32)
        if self.partner is None:
            if (step + 1) * len(values) > MOST_NUMBERS:
                found = f"more than {MOST_NUMBERS:.1e} numbers in the sums of a run"
                raise InputError("run.see", found, "a smaller network, or fewer steps")
            self.kept.append(single)
        elif step < len(self.partner.kept):
            other = self.partner.kept[step]
            if len(other) != len(values):
                found = f"{len(values)} numbers, and {len(other)} in another run"
                raise InputError("run.see", found, "as many in every run")
            difference = single.astype(float) - other
            norm = float(np.linalg.norm(difference))
            self.largest = max(self.largest, norm)
            if step == 0:
                self.first = difference[self.columns]
            norms = EQUAL_SHARE * math.sqrt(self.energy[-1])
            least = max(EQUAL, norms, REPEATED_SHARE * self.rounding)
            if self.acted is None and norm > least:
                self.acted, self.change = step + 1, difference
            if norm > 0 and not self.touched:
                self.touched, self.rounded = True, self.acted is None

    def world(self, published: Mapping[str, np.ndarray], facts: Mapping[str, list[float]]) -> World:
        size = 0 if self.total is None else min(len(self.total), COORDINATES)
        return World(
            sums=len(self.energy),
            total=np.zeros(0) if self.total is None else self.total,
            energy=np.array(self.energy),
            sample=np.array(self.sample).reshape(len(self.sample), size),
            published=published,
            facts={name: np.array(each) for name, each in facts.items()},
        )


def sampled_coordinates(size: int, most: int = COORDINATES) -> np.ndarray:
    """At most so many coordinates of a vector of this size, evenly spaced: always the same."""
    return np.linspace(0, size - 1, min(size, most)).astype(int)


def sampled_steps(claim: Claim) -> np.ndarray:
    """Steps, from 0, whose sums are kept; the first ones if the number of steps is not claimed."""
    steps = claim.steps or STEPS
    if steps <= STEPS:
        return np.arange(steps)
    first, epoch = np.arange(STEPS // 2), math.ceil(1 / (claim.sample_rate or 1.0))
    spread = np.linspace(STEPS // 2, steps - 1, STEPS // 2 - 2).astype(int)
    second = [step for step in (epoch, epoch + 1) if step < steps]
    return np.unique(np.concatenate([first, spread, np.array(second, dtype=int)]))


def shifted_noise(sums: Sequence[np.ndarray], noise: float) -> tuple[float, float]:
    """The largest |cosine| of two sums of which one is shifted, less what fresh noise allows it.

    Beside it the shift. Noise that is drawn again at other coordinates, as windows of one pool,
    agrees so; equal coordinates do not show it. A sum is clean part plus noise, and its clean part
    has the share of the norm that the stated noise does not explain. Of two clean parts the cosine
    may be 1; any other two parts are within t of orthogonal, at every shift, but for a chance of
    SHIFTED_BY_CHANCE. At most 0 where nothing is found, and of few coordinates.
    """
    shown = [each[:SHIFTED_MOST] for each in sums[:SHIFTED_STEPS]]
    vectors = [each for each in shown if np.count_nonzero(each) >= SHIFTED_COORDINATES]
    found = (0.0, 0.0)
    if noise <= 0 or len(vectors) < 2:
        return found
    # A number that is shown several times, as in a symmetric matrix, is one draw.
    size = min(len(np.unique(each[each != 0])) for each in vectors)
    norms = [math.sqrt(float(each @ each)) for each in vectors]
    clean = [
        math.sqrt(max(0.0, 1 - noise**2 * np.count_nonzero(each) / norm**2))
        for each, norm in zip(vectors, norms, strict=True)
    ]
    length = 2 ** math.ceil(math.log2(2 * len(vectors[0])))
    spectra = [np.fft.rfft(each / norm, length) for each, norm in zip(vectors, norms, strict=True)]
    pairs = math.comb(len(vectors), 2)
    t = math.sqrt(2 * math.log(4 * length * pairs / SHIFTED_BY_CHANCE) / size)
    for one, other in combinations(range(len(vectors)), 2):
        cosines = np.abs(np.fft.irfft(spectra[one].conj() * spectra[other], length))
        cosines[0] = 0
        at = int(cosines.argmax())
        allowed = clean[one] * clean[other] + t * (1 + clean[one] + clean[other])
        if cosines[at] > max(allowed, found[0]):
            found = float(cosines[at]), float(at if at <= length // 2 else at - length)
    return found


def run_pair(
    train: Train,
    claim: Claim,
    seed: int,
    repeat: bool = False,
    rounding: float = 0.0,
    silence: bool = True,
) -> Pair:
    """Run the training twice on one seed, without and with the canary.

    repeat: whether the run without it is made once more, to see if equal seeds give equal runs.
    rounding: by how much the sums of such runs were seen to differ. silence: whether the two runs
    with records of weight zero are made.
    """

    def execute_with(
        recorder: _Recorder, member: bool, silenced: bool | None = None
    ) -> tuple[dict[str, np.ndarray], Run]:
        watched = recorder.on_sum, recorder.on_weights
        instead = partner_sum if recorder.replays else None
        run = Run(claim, seed, np.array([member]), *watched, silenced, instead)
        published = execute(train, run)
        data = run.planted
        if data is not None and data.expected not in (None, len(data.drawn)):
            run.fact(OUTSIDE, len(data.drawn) - data.expected)
        return published, run

    def partner_sum(step: int) -> np.ndarray:
        return without.kept[step] * run.scales[step]

    without, loaded = _Recorder(claim), "torch" in sys.modules
    published, run = execute_with(without, False)
    if "torch" in sys.modules and not loaded:
        # The training imported torch itself: its numbers did not derive from the seed.
        without = _Recorder(claim)
        published, run = execute_with(without, False)
    repeated, changing = None, []
    if repeat:
        again = _Recorder(claim, partner=without)
        twice, _ = execute_with(again, False)
        repeated = again.largest if len(again.energy) == len(without.energy) else math.inf
        rounding = max(rounding, repeated)
        changing = [
            name
            for name, values in published.items()
            if name not in twice or not np.array_equal(values, twice[name])
        ]
        changing += [UPDATES] if again.beside is not None else []
    with_ = _Recorder(claim, rounding, without)
    others, run_with = execute_with(with_, True)
    if set(published) != set(others):
        found = f"{', '.join(published) or 'nothing'} without the canary, {', '.join(others)} with"
        raise InputError("published", found, "the same names in every run")
    acted = with_.acted
    counts = len(without.energy), len(with_.energy)
    replayed = None
    if run.can_replay and acted is not None and counts[0] == counts[1]:
        replay = _Recorder(claim, rounding, without, replays=True)
        same_sums, _ = execute_with(replay, True)
        replayed = (UPDATES,) if replay.beside is not None else differing(published, same_sums)
    if acted is None and counts[0] != counts[1]:
        acted = min(counts) + 1
    noise = min((each.noise or 0.0 for each in claim.phases), default=0.0)
    shifted = shifted_noise(without.kept, noise)
    without.kept.clear()
    silent: tuple[str, ...] | None = None
    silent_change = None
    if silence and run.can_silence and run.has_planted:
        silenced = _Recorder(claim)
        swapped = _Recorder(claim, rounding, silenced)
        try:
            of_records, _ = execute_with(silenced, False, False)
            of_canaries, _ = execute_with(swapped, False, True)
        except InputError:
            silent = (FAILED,)
        else:
            seen_in = {
                SUMS: swapped.acted is not None,
                UPDATES: swapped.beside is not None,
                MANY: len(silenced.energy) != len(swapped.energy),
            }
            changed = tuple(name for name, is_seen in seen_in.items() if is_seen)
            of_outputs = differing(of_records, of_canaries)
            silent = (ROUNDED,) if swapped.rounded else changed or of_outputs
            silent_change = swapped.change
    return Pair(
        without.world(published, run.facts),
        with_.world(others, run_with.facts),
        acted,
        with_.change,
        first=np.zeros(0) if with_.first is None else with_.first,
        beside=with_.beside,
        touched=with_.touched,
        repeated=repeated,
        changing=tuple(changing),
        silent=silent,
        silent_change=silent_change,
        replayed=replayed,
        shifted=shifted,
    )


def differing(
    published: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]
) -> tuple[str, ...]:
    """Names of what two runs published otherwise, or what one of them did not publish."""
    both = published.keys() & others.keys()
    return tuple(
        name
        for name in (*published, *(others.keys() - published.keys()))
        if name not in both or not same(published[name], others[name])
    )


def _names(array: np.ndarray) -> tuple[str, ...]:
    return tuple(map(str, array))


# What of a pair a file keeps, beside its two runs, and as what it is read.
KEPT: dict[str, Callable[[np.ndarray], Any]] = {
    "first": np.asarray,
    "touched": bool,
    "acted": int,
    "beside": int,
    "repeated": float,
    "change": np.asarray,
    "silent_change": np.asarray,
    "changing": _names,
    "shifted": lambda array: tuple(map(float, array)),
    "silent": _names,
    "replayed": _names,
}
ALWAYS_KEPT = ("first", "touched", "changing")


def to_arrays(pair: Pair) -> dict[str, np.ndarray]:
    """The pair as named arrays, for a file."""
    arrays = {
        name: np.array(value, dtype=str if read is _names else None)
        for name, read in KEPT.items()
        if (value := getattr(pair, name)) is not None
    }
    for side, world in (("without", pair.without), ("with", pair.with_)):
        for name in ("total", "energy", "sample"):
            arrays[f"{side}/{name}"] = getattr(world, name)
        for kind, named in (("published", world.published), ("facts", world.facts)):
            arrays |= {f"{side}/{kind}/{name}": each for name, each in named.items()}
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray]) -> Pair:
    """The pair of `to_arrays`. Raises KeyError, TypeError or ValueError for other arrays."""

    def world(side: str) -> World:
        total, energy, sample = (arrays[f"{side}/{name}"] for name in ("total", "energy", "sample"))
        shapes = total.ndim, energy.ndim, sample.ndim, sample.shape[-1]
        if shapes != (1, 1, 2, min(len(total), COORDINATES)):
            raise ValueError
        published, facts = (
            {
                name.removeprefix(start): each
                for name, each in arrays.items()
                if name.startswith(start)
            }
            for start in (f"{side}/published/", f"{side}/facts/")
        )
        return World(len(energy), total, energy, sample, published, facts)

    kept = {
        name: read(arrays[name])
        for name, read in KEPT.items()
        if name in arrays or name in ALWAYS_KEPT
    }
    return Pair(world("without"), world("with"), **kept)
