"""Every accounting that is valid for a claim's words: relation, accountant, composed event.

In units of the clip bound C one record moves, at most:

    poisson, full-batch   the sum of a step by 1 (add_remove, zero_out) or 2 (replace_one).
    fixed-size            as a member of the batch, by 2 (replace_one). Blanking a record is one way
                          of replacing it, so the same number covers zero_out. When the number of
                          records changes, so does the law of every batch: nothing is proved here.
    shuffled, cyclic      one sum of each epoch, by 1 (zero_out) or 2 (replace_one): no more than
                          one Gaussian release an epoch, whatever the order. The amplification that
                          a shuffle may bring is not claimed.
    shuffled, add_remove  The last record of a random order, put in the place of the removed one,
                          leaves a random order of the others. So one sum moves by 2 and the last
                          by 1, a distance of sqrt(5); by 2 alone if that last record was in no
                          batch. Holds if n records and n - 1 of them have the same number of
                          batches; otherwise nothing is proved.
    cyclic, add_remove    All later batches change: nothing is proved.
"""

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dpatlas.accounting.accountants import (
    Mechanism,
    fft_error,
    pld_epsilon,
    rdp_epsilon,
    sensitivity,
)
from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.accounting.guarantees import UNRESOLVED_DELTA, accountants_of, smallest_noise
from dpatlas.accounting.samplers import FixedSize, FullBatch, Poisson, Sampler
from dpatlas.epsilon.claim import ClaimedPhase, EpsilonClaim
from dpatlas.epsilon.optimistic import gaussian_parameter, least_epsilon

# Nothing depends on the number of records of a full batch.
EVERYTHING = FullBatch(1)
SQRT_5 = math.sqrt(5)
# Relations share events, and claims that are checked together often differ in their number alone.
cached_pld_epsilon = functools.lru_cache(maxsize=1024)(pld_epsilon)
cached_least_epsilon = functools.lru_cache(maxsize=1024)(least_epsilon)
NAMES = {"exact": "exact Gaussian", "pld": "PLD", "rdp": "RDP"}


@dataclass(frozen=True)
class Event:
    """Gaussian mechanisms whose composition is at least as easy to attack as the trainings.

    relation: the one meant. accounted: under which accountants see `mechanisms`: add_remove
    (sensitivity 1) or replace_one (2). words: the composed event.
    """

    mechanisms: tuple[Mechanism, ...]
    relation: str
    accounted: str
    words: str


@dataclass(frozen=True)
class Reading:
    """One valid accounting: epsilon is an upper bound at the claim's delta, infinite if useless."""

    relation: str
    accountant: str
    epsilon: float
    event: str
    warning: str | None = None


def event(claim: EpsilonClaim, relation: str, *, released_only: bool = False) -> Event | None:
    """What all trainings release together under `relation`; None where nothing is proved.

    released_only: without the trials, whose results were compared and not released.
    """
    trainings = claim.trainings[:1] if released_only else claim.trainings
    phases = [phase for each, _ in trainings for phase in each]
    accounted = "replace_one" if relation == "replace_one" else "add_remove"
    if relation == "zero_out" and any(phase.sampler == "fixed-size" for phase in phases):
        accounted = "replace_one"
    counts: dict[tuple[Sampler, float], int] = {}
    for each, times in trainings:
        for phase in each:
            seen = _mechanism(phase, relation, accounted)
            if seen is None:
                return None
            key = (seen.sampler, seen.noise_multiplier)
            counts[key] = counts.get(key, 0) + times * seen.count
    mechanisms = tuple(Mechanism(*key, count) for key, count in counts.items())
    words = "; then ".join(_words(phase, relation) for phase in trainings[0][0])
    if len(trainings) > 1 or trainings[0][1] > 1:
        words = f"{sum(times for _, times in trainings)} trainings; the reported one: {words}"
    return Event(mechanisms, relation, accounted, words)


def _mechanism(phase: ClaimedPhase, relation: str, accounted: str) -> Mechanism | None:
    assert phase.noise is not None
    if phase.sampler == "full-batch":
        return Mechanism(EVERYTHING, phase.noise, phase.steps)
    assert phase.n is not None and phase.batch is not None
    if phase.sampler == "poisson":
        return Mechanism(Poisson(phase.n, phase.batch), phase.noise, phase.steps)
    if phase.sampler == "fixed-size":
        if relation == "add_remove":
            return None
        return Mechanism(FixedSize(phase.n, phase.batch), phase.noise, phase.steps)
    moved = _moved_by_epoch(phase, relation)
    if moved is None:
        return None
    noise = phase.noise * sensitivity(accounted) / moved
    return Mechanism(EVERYTHING, noise, phase.epochs_touched)


def _moved_by_epoch(phase: ClaimedPhase, relation: str) -> float | None:
    """By how many clip bounds a record moves all sums of an epoch of disjoint batches together."""
    if relation != "add_remove":
        return 2.0 if relation == "replace_one" else 1.0
    if phase.sampler == "cyclic":
        return None
    assert phase.n is not None
    if phase.but(n=phase.n - 1).batches_per_epoch != phase.batches_per_epoch:
        return None
    return 2.0 if phase.drop_last else SQRT_5


def _words(phase: ClaimedPhase, relation: str) -> str:
    one = 2 if relation == "replace_one" else 1
    if phase.sampler in ("shuffled", "cyclic"):
        moved = _moved_by_epoch(phase, relation)
        distance = "sqrt(5)" if moved == SQRT_5 else f"{moved:g}"
        return f"{phase.epochs_touched} x Gaussian({phase.noise:g}), moved {distance} C, per epoch"
    gaussian = f"{phase.steps} x Gaussian({phase.noise:g})"
    if phase.sampler == "full-batch":
        return f"{gaussian}, moved {one} C"
    assert phase.n is not None and phase.batch is not None
    if phase.sampler == "poisson":
        return f"{gaussian}, moved {one} C, q = {phase.batch / phase.n:.5g}"
    return f"{gaussian}, moved 2 C, {phase.batch} of {phase.n}"


def readings(claim: EpsilonClaim, relations: Iterable[str]) -> list[Reading]:
    """Every valid accounting under these relations, the tightest of each first."""
    found = []
    for relation in relations:
        composed = event(claim, relation)
        if composed is not None:
            found += sorted(_accounted(composed, claim.delta), key=lambda each: each.epsilon)
    return found


def accountants(composed: Event, delta: float) -> tuple[str, ...]:
    """The accountants that cover the event and resolve delta, the tighter one first."""
    samplers = (mechanism.sampler for mechanism in composed.mechanisms)
    names = accountants_of(samplers, composed.accounted)
    if all(mechanism.is_gaussian for mechanism in composed.mechanisms):
        names = ("exact", *names)
    resolved = delta * UNRESOLVED_DELTA >= fft_error(composed.mechanisms)
    return names if resolved else tuple(name for name in names if name != "pld")


def epsilon_by(composed: Event, delta: float, name: str) -> tuple[float, str | None]:
    """Epsilon of one accountant, and a warning or None."""
    if name == "exact":
        mu = gaussian_parameter(composed.mechanisms, composed.accounted)
        return gaussian_epsilon(mu, delta), None
    if name == "pld":
        return cached_pld_epsilon(composed.mechanisms, delta, composed.accounted), None
    return rdp_epsilon(composed.mechanisms, delta, composed.accounted)


def _accounted(composed: Event, delta: float) -> Iterator[Reading]:
    for name in accountants(composed, delta):
        epsilon, warning = epsilon_by(composed, delta, name)
        yield Reading(composed.relation, name, epsilon, composed.words, warning)


def optimistic(claim: EpsilonClaim, relation: str) -> float | None:
    """An epsilon that the release certainly reaches; None where no such limit is known.

    Of Poisson and full batches, with every noisy sum of the released runs released. Where epochs
    are given, the smallest epsilon of the loops that they may mean.
    """
    samplers = {phase.sampler for phase in claim.phases}
    if claim.released != "every-sum" or not samplers <= {"poisson", "full-batch"}:
        return None
    least = []
    loops = [claim.map_phases(read) for read in (_fewest_steps, _rate_of_batches)]
    for each in loops if loops[0].phases != loops[1].phases else loops[:1]:
        composed = event(each, relation, released_only=True)
        assert composed is not None
        found = cached_least_epsilon(composed.mechanisms, claim.delta, composed.accounted)
        if found is None:
            return None
        least.append(found)
    return min(least)


def _rate_of_batches(phase: ClaimedPhase) -> ClaimedPhase:
    """The phase as Opacus runs it: ceil(n / batch) steps an epoch, and one over them as rate."""
    if phase.epochs is None or phase.n is None or phase.batch is None:
        return phase
    whole = math.ceil(phase.n / phase.batch)
    if whole * phase.batch == phase.n:
        return _fewest_steps(phase)
    steps = max(1, math.floor(phase.epochs * whole))
    return phase.but(n=whole, batch=1, steps=steps)


def most_steps(phase: ClaimedPhase) -> ClaimedPhase:
    """The phase with ceil(n / batch) steps in each epoch; of steps and whole batches as it is."""
    if phase.epochs is None or phase.sampler not in ("poisson", "fixed-size"):
        return phase
    assert phase.n is not None and phase.batch is not None
    steps = math.ceil(phase.epochs * math.ceil(phase.n / phase.batch) - 1e-9)
    return phase.but(steps=max(phase.steps, steps))


def _fewest_steps(phase: ClaimedPhase) -> ClaimedPhase:
    """The phase with whole batches of its epochs alone, rounded down; of steps, as it is."""
    if phase.epochs is None:
        return phase
    whole = phase.n // phase.batch if phase.n is not None and phase.batch is not None else 1
    return phase.but(steps=max(1, math.floor(phase.epochs * whole)))


def noise_for(claim: EpsilonClaim, relation: str, target: float) -> tuple[float, str] | None:
    """The smallest noise multiplier with which everything meets `target`, and the accountant.

    None where nothing is proved under `relation`. Raises InputError for a target that no noise
    multiplier between 0.01 and 1e6 meets, or that each of them meets.
    """

    def tightest(noise: float) -> tuple[float, str]:
        composed = event(claim.with_noise(noise), relation)
        assert composed is not None
        name = accountants(composed, claim.delta)[0]
        return epsilon_by(composed, claim.delta, name)[0], name

    composed = event(claim.with_noise(1.0), relation)
    if composed is None or not accountants(composed, claim.delta):
        return None
    noise = smallest_noise(lambda noise: tightest(noise)[0], target, claim.delta)
    return noise, tightest(noise)[1]


def assumptions(claim: EpsilonClaim, relation: str) -> list[str]:
    """What the numbers under `relation` rest on, a sentence each."""
    return [*_of_relation(claim, relation), *_of_training(claim)]


def _of_relation(claim: EpsilonClaim, relation: str) -> list[str]:
    samplers = {phase.sampler for phase in claim.phases}
    if relation == "replace_one":
        return ["Neighbours differ in one record, replaced; their number is public."]
    if relation == "zero_out":
        text = "One record is replaced by a blank one with gradient zero; their number is public."
        if "fixed-size" in samplers:
            text += " Blanking is a way of replacing: the number of replace_one covers it."
        return [text]
    if "shuffled" in samplers:
        return [
            "Neighbours are n records and n - 1 of them; another takes the missing one's place in "
            "its batch, and the number of batches and the divisor stay as they are."
        ]
    return ["One record is added or removed; rate, divisor and steps do not depend on it."]


def _of_training(claim: EpsilonClaim) -> list[str]:
    samplers = dict.fromkeys(phase.sampler for phase in claim.phases)
    drawn = {
        "poisson": "Each step draws each record independently with probability batch / n; a batch "
        "may be of any size, and an empty one adds noise and counts.",
        "fixed-size": "Each step draws its batch afresh, uniformly among all sets of that size.",
        "shuffled": "A record is in at most one batch of an epoch; no amplification by sampling "
        "or shuffling is claimed. A phase starts a new epoch.",
        "cyclic": "A record is in at most one batch of an epoch. A phase starts a new epoch.",
        "full-batch": "Every step uses all records.",
    }
    return [
        *(drawn[sampler] for sampler in samplers),
        "Gradients are clipped per record to norm C; the noise on their SUM has standard deviation "
        "noise x C, and a mean divides by a public number.",
        "Every noisy sum may be seen, and what is derived from them.",
        "Nothing else was computed from the records: no tuning, statistics or validation"
        + (" beyond the trials given." if claim.trials else "."),
    ]
