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
    balls-in-bins         one sum of each epoch, by 1 or 2 (replace_one): no other record moves.

Of other mechanisms than a Gaussian sum:

    tree      one tree of partial sums an epoch (Kairouz et al. 2021, App. D): a batch is in
              ceil(log2(batches + 1)) nodes, each of them moved.
    banded    a factor with b bands and columns of norm <= 1 (Choquette-Choo et al. 2023,
              arXiv:2306.08153). poisson: records are split into b parts, and step t draws from part
              t mod b: ceil(steps / b) sums of the rate b q. cyclic: visits at least b steps apart
              move orthogonal columns, as in one Gaussian an epoch.
    others    as `dpatlas.accounting.other_mechanisms` has them.
"""

import functools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

from dpatlas.accounting.accountants import (
    Mechanism,
    fft_error,
    pld_epsilon,
    rdp_epsilon,
    sensitivity,
)
from dpatlas.accounting.gaussian_dp import gaussian_epsilon
from dpatlas.accounting.guarantees import UNRESOLVED_DELTA, accountants_of, smallest_noise
from dpatlas.accounting.other_mechanisms import Release, mixed_pld_epsilon, pure_epsilon
from dpatlas.accounting.samplers import FixedSize, FullBatch, Poisson, Sampler
from dpatlas.epsilon.claim import IN_ORDER, NOISY, ClaimedPhase, EpsilonClaim
from dpatlas.epsilon.optimistic import gaussian_parameter, least_epsilon

# Nothing depends on the number of records of a full batch.
EVERYTHING = FullBatch(1)
SQRT_5 = math.sqrt(5)
# What a relation, a sampler, a mechanism and disjoint parts assume.
TOLD = {
    "add_remove": "One record is added or removed; rate, divisor and steps do not depend on it.",
    "add_remove, shuffled": "Neighbours are n records and n - 1 of them; another takes the missing "
    "one's place in its batch, and the number of batches and the divisor stay as they are.",
    "replace_one": "Neighbours differ in one record, replaced; their number is public.",
    "zero_out": "One record is replaced by a blank one with gradient zero; their number is public.",
    "poisson": "Each step draws each record independently with probability batch / n; a batch "
    "may be of any size, and an empty one adds noise and counts.",
    "fixed-size": "Each step draws its batch afresh, uniformly among all sets of that size.",
    "shuffled": "A record is in at most one batch of an epoch; no amplification by sampling "
    "or shuffling is claimed. A phase starts a new epoch.",
    "cyclic": "A record is in at most one batch of an epoch. A phase starts a new epoch.",
    "balls-in-bins": "Each record is thrown into one of an epoch's batches, whatever the others. "
    "dp-accounting has no accountant for it: no amplification is claimed.",
    "truncated-poisson": "Each step draws each record independently, and keeps a random part "
    "of a batch that is too large; of neighbours, n is the larger number of records.",
    "full-batch": "Every step uses all records.",
    "gaussian": "Gradients are clipped per record to norm C; the noise on their SUM has standard "
    "deviation noise x C, and a mean divides by a public number.",
    "laplace": "One record moves a sum by at most C in L1 norm; the noise has scale noise x C.",
    "discrete-laplace": "One record moves a whole number by at most 1; at x the noise has a "
    "probability proportional to exp(-|x| / noise).",
    "discrete-gaussian": "One record moves a whole number by at most 1; at x the noise has a "
    "probability proportional to exp(-x^2 / (2 noise^2)).",
    "randomized-response": "A record answers truly, or with the probability `noise` by one of "
    "the answers at random, the true one included; blank, always at random.",
    "tree": "Each epoch has a tree of its own, with noise x C on each partial sum. A tree over "
    "several epochs is not covered.",
    "banded": "Clipped sums are multiplied by a lower triangular matrix with that many bands and "
    "columns of norm at most 1, and then get noise x C; with Poisson batches each record belongs "
    "to one of so many parts, whatever the others, and steps draw from one part in turn, with the "
    "rate bands x batch / n.",
    "parts": "Which part a record is in is public and does not depend on others; each part is "
    "trained on alone: the largest epsilon counts.",
}
# Samplers and mechanisms whose worst pair of data sets is attained.
KNOWN_PAIR = {("poisson", "gaussian"), ("full-batch", "gaussian")}
# Relations share events, and claims that are checked together often differ in their number alone.
cached_pld_epsilon = functools.lru_cache(maxsize=1024)(pld_epsilon)
cached_least_epsilon = functools.lru_cache(maxsize=1024)(least_epsilon)
_epsilon = attrgetter("epsilon")
NAMES = {"exact": "exact Gaussian", "pld": "PLD", "rdp": "RDP", "pure": "pure, added up"}


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
    counts: Counter[Mechanism] = Counter()
    for each, times in trainings:
        for phase in each:
            seen = _mechanism(phase, relation, accounted)
            if seen is None:
                return None
            counts[replace(seen, count=1)] += times * seen.count
    mechanisms = tuple(replace(one, count=count) for one, count in counts.items())
    if {FixedSize, Release} <= {
        kind for each in mechanisms for kind in (type(each), type(each.sampler))
    }:
        return None
    words = "; then ".join(_words(phase, relation) for phase in trainings[0][0])
    if len(trainings) > 1 or trainings[0][1] > 1:
        words = f"{sum(times for _, times in trainings)} trainings; the reported one: {words}"
    return Event(mechanisms, relation, accounted, words)


def _mechanism(phase: ClaimedPhase, relation: str, accounted: str) -> Mechanism | None:
    assert phase.noise is not None
    sampler: Sampler = EVERYTHING
    if phase.sampler in ("poisson", "truncated-poisson"):
        assert phase.n is not None and phase.batch is not None
        sampler = Poisson(phase.n, phase.batch * (phase.bands or 1))
    if phase.sampler == "truncated-poisson":
        return Release(sampler, phase.noise, phase.steps, phase.sampler, phase.largest_batch or 1)
    if phase.mechanism in (*NOISY, "randomized-response"):
        alone = "add_remove" if phase.mechanism == "randomized-response" else None
        if relation == (alone if sampler is EVERYTHING else "replace_one"):
            return None
        return Release(sampler, phase.noise, phase.steps, phase.mechanism, phase.buckets or 1)
    if phase.sampler in ("full-batch", "poisson"):
        return Mechanism(sampler, phase.noise, math.ceil(phase.steps / (phase.bands or 1)))
    assert phase.n is not None and phase.batch is not None
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
    one = 2.0 if relation == "replace_one" else 1.0
    if phase.mechanism == "tree":
        nodes = math.ceil(math.log2(min(phase.batches_per_epoch, phase.steps) + 1))
        return None if relation == "add_remove" else one * math.sqrt(nodes)
    if relation != "add_remove" or phase.sampler == "balls-in-bins":
        return one
    if phase.sampler == "cyclic":
        return None
    assert phase.n is not None
    if phase.but(n=phase.n - 1).batches_per_epoch != phase.batches_per_epoch:
        return None
    return 2.0 if phase.drop_last else SQRT_5


def _words(phase: ClaimedPhase, relation: str) -> str:
    one = 2 if relation == "replace_one" else 1
    if phase.sampler in IN_ORDER:
        moved = _moved_by_epoch(phase, relation)
        distance = "sqrt(5)" if moved == SQRT_5 else f"{moved:.4g}"
        return f"{phase.epochs_touched} x Gaussian({phase.noise:g}), moved {distance} C, per epoch"
    name = "Gaussian" if phase.mechanism in ("gaussian", "banded") else phase.mechanism
    gaussian = f"{math.ceil(phase.steps / (phase.bands or 1))} x {name}({phase.noise:g})"
    if phase.mechanism == "randomized-response":
        return f"{gaussian} of {phase.buckets} answers"
    if phase.sampler == "full-batch":
        return f"{gaussian}, moved {one} C"
    assert phase.n is not None and phase.batch is not None
    if phase.sampler == "fixed-size":
        return f"{gaussian}, moved 2 C, {phase.batch} of {phase.n}"
    cut = f", at most {phase.largest_batch} a batch" if phase.largest_batch else ""
    rate = phase.batch * (phase.bands or 1) / phase.n
    return f"{gaussian}, moved {one} C, q = {rate:.5g}{cut}"


def readings(claim: EpsilonClaim, relations: Iterable[str]) -> list[Reading]:
    """Every valid accounting under these relations, the tightest of each first."""
    found = []
    for relation in relations:
        by_part: list[dict[str, Reading]] = []
        for each in claim.disjoint:
            by_part.append({})
            if (composed := event(each, relation)) is None:
                continue
            for name in accountants(composed, claim.delta):
                epsilon, warning = epsilon_by(composed, claim.delta, name)
                reading = Reading(relation, name, epsilon, composed.words, warning)
                by_part[-1][name] = reading
        # Of disjoint parts a record is in one: the largest epsilon of an accountant covers it.
        common = [name for name in by_part[0] if all(name in part for part in by_part)]
        worst = [max((part[name] for part in by_part), key=_epsilon) for name in common]
        found += sorted(worst, key=_epsilon)
    return found


def accountants(composed: Event, delta: float) -> tuple[str, ...]:
    """The accountants that cover the event and resolve delta, the tighter one first."""
    samplers = (mechanism.sampler for mechanism in composed.mechanisms)
    names = accountants_of(samplers, composed.accounted)
    if any(isinstance(mechanism, Release) for mechanism in composed.mechanisms):
        pure = math.isfinite(pure_epsilon(composed.mechanisms, composed.accounted))
        names = ("pld", "pure") if pure else ("pld",)
    elif all(mechanism.is_gaussian for mechanism in composed.mechanisms):
        names = ("exact", *names)
    resolved = delta * UNRESOLVED_DELTA >= fft_error(composed.mechanisms)
    return names if resolved else tuple(name for name in names if name != "pld")


def epsilon_by(composed: Event, delta: float, name: str) -> tuple[float, str | None]:
    """Epsilon of one accountant, and a warning or None."""
    if name == "exact":
        mu = gaussian_parameter(composed.mechanisms, composed.accounted)
        return gaussian_epsilon(mu, delta), None
    if name == "pure":
        return pure_epsilon(composed.mechanisms, composed.accounted), None
    if any(isinstance(mechanism, Release) for mechanism in composed.mechanisms):
        return mixed_pld_epsilon(composed.mechanisms, delta, composed.accounted), None
    if name == "pld":
        return cached_pld_epsilon(composed.mechanisms, delta, composed.accounted), None
    return rdp_epsilon(composed.mechanisms, delta, composed.accounted)


def optimistic(claim: EpsilonClaim, relation: str) -> float | None:
    """An epsilon that the release certainly reaches; None where no such limit is known.

    Of Poisson and full batches, with every noisy sum of the released runs released. Where epochs
    are given, the smallest epsilon of the loops that they may mean.
    """
    if claim.parts:
        limits = [optimistic(each, relation) for each in claim.disjoint]
        return max((each for each in limits if each is not None), default=None)
    kinds = {(phase.sampler, phase.mechanism) for phase in claim.phases}
    if claim.released != "every-sum" or not kinds <= KNOWN_PAIR:
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
    samplers = {phase.sampler for phase in claim.phases}
    neighbours = TOLD[relation]
    if relation == "zero_out" and "fixed-size" in samplers:
        neighbours += " Blanking is a way of replacing: the number of replace_one covers it."
    if relation == "add_remove" and "shuffled" in samplers:
        neighbours = TOLD["add_remove, shuffled"]
    phases = [phase for each in claim.disjoint for phase in each.phases]
    kinds = dict.fromkeys([*(p.sampler for p in phases), *(p.mechanism for p in phases)])
    return [
        neighbours,
        *(TOLD[kind] for kind in (*kinds, *(["parts"] if claim.parts else []))),
        "Every noisy sum may be seen, and what is derived from them.",
        "Nothing else was computed from the records: no tuning, statistics or validation"
        + (" beyond the trials given." if claim.trials else "."),
    ]
