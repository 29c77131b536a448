"""Which common slip gives a printed epsilon: each is made on purpose, and the number compared.

A slip is one change of the claim: another count, rate, noise, delta, or a part left out; or the
number of another neighbour relation than the one meant. Batches that are no Poisson samples are
also accounted as if they were, by either count of steps, with and without a further change,
because that habit is the commonest of all. Every changed claim is accounted by every convention of
`dpatlas.epsilon.conventions`. Whole factors are not tried one by one: steps, rate and noise that
give the number are solved for, and the nearest whole factor is a candidate.

A number that chance explains is no cause. The odds of a hit are the number of hits that chance
would give among all numbers as simple: so many lie between half and twice the printed one, and
were they spread evenly in its logarithm, so many would fall within a unit of its last digit.
"""

import bisect
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import cast

from dpatlas.epsilon.claim import MOST_STEPS, RELATIONS, ClaimedPhase, EpsilonClaim
from dpatlas.epsilon.conventions import (
    EXACT,
    PLD,
    TODAY,
    Computed,
    computed,
    limit_epsilon,
    solvable,
)
from dpatlas.epsilon.valid import Event, event

AS_POISSON = "batches accounted as Poisson samples, which they are not"
# Batches that are dealt end an epoch with a smaller one; Poisson samples are n / batch an epoch.
AS_COUNTED = f"{AS_POISSON}, n / batch of them an epoch"
# Hits with lower odds are listed: below ln 2, chance gives none more often than not. The second is
# for claims that are guaranteed.
CHANCE, CHANCE_IF_GUARANTEED = math.log(2), 0.2
MOST_HITS = 3
# Whole factors that are no divisors of the batch: up to here they are as simple as any slip.
SMALL, LARGE, MOST_FACTOR = 8, 2, 10_000
# Solutions take two or three evaluations, as the number falls nearly as the limit theorem's does.
# PLD takes minutes for larger epsilons.
MOST_EVALUATIONS, MOST_BY_PLD, NOTHING = 5, 1e3, 1e-12
LEAST_NOISE, MOST_NOISE = 1e-3, 1e6
DELTAS = (1e-4, 1e-5, 1e-6)
Change = tuple[str, EpsilonClaim]
PhaseChange = Callable[[ClaimedPhase], ClaimedPhase]
# What decides a number: kind of sampler, rate, noise and count of each mechanism, the accountants'
# relation and delta.
Key = tuple[tuple[tuple[str, float, float, int], ...], str, float]


@dataclass(frozen=True)
class Hit:
    """A recomputed epsilon that is the printed one: after which changes, and by which convention.

    relations: under which the number is the same. departures: how many things had to be changed,
    an older convention among them, Poisson samples that are none left out; a large factor counts
    for more. odds: hits that chance would give among all numbers with no more departures.
    """

    changes: tuple[str, ...]
    convention: str
    epsilon: float
    relations: tuple[str, ...]
    departures: int = 0
    odds: float = 0.0


@dataclass(frozen=True)
class Search:
    """What was found, the likeliest first, and how much was tried.

    tried: different numbers. by_chance: the least odds of a hit that chance explains, which is left
    out; 0 if there is none. nearest: where no number hits.
    """

    hits: tuple[Hit, ...]
    tried: int
    by_chance: float
    nearest: Hit | None


def search(claim: EpsilonClaim, *, guaranteed: bool = False) -> Search:
    """The slips whose number is the claimed one, to a unit of its last digit, the least odds first.

    What chance explains is left out, and sooner where the claim is `guaranteed` and needs no slip;
    but for the settings as stated.
    """
    assert claim.claimed is not None
    wanted = claim.claimed
    found: dict[tuple[Key, str], Hit] = {}
    near: Counter[int] = Counter()

    def add(
        key: Key,
        changes: tuple[str, ...],
        relations: tuple[str, ...],
        each: Computed,
        more: int = 0,
    ) -> int:
        """Departures of a number, which is kept."""
        if claim.relation is not None and claim.relation not in relations:
            changes = (*changes, f"accounted under {relations[0]}, not {claim.relation}")
        departures = more + sum(words not in (AS_POISSON, AS_COUNTED) for words in changes)
        departures += each.convention not in (PLD, EXACT, TODAY)
        # Two changes may lead to one event, and two lists of orders have the same best one.
        hit = Hit(changes, each.convention, each.epsilon, relations, departures)
        found.setdefault((key, f"{each.epsilon:.9g}"), hit)
        return departures

    for composed, delta, changes, relations in _different_events(claim):
        for each in computed(composed, delta, wanted.value):
            add(_key(composed, delta), changes, relations, each)
    for hit in found.values():
        near[hit.departures] += wanted.value / 2 <= hit.epsilon <= 2 * wanted.value
    for before, base in _bases(claim)[:2]:
        for row in FACTORED:
            for solved in _solved(base, row, wanted.value):
                more = LARGE if solved.large else 0
                changes = (*before, solved.words)
                key = _key(solved.composed, claim.delta)
                departures = add(key, changes, solved.relations, solved.number, more)
                near[departures - more] += solved.small
                near[departures - more + LARGE] += solved.near - solved.small
    share = 2 * wanted.window / (wanted.value * math.log(4))
    odds = {
        most: share * sum(many for departures, many in near.items() if departures <= most)
        for most in near
    }
    hits = [
        replace(hit, odds=odds[hit.departures])
        for hit in found.values()
        if wanted.hit_by(hit.epsilon)
    ]
    hits.sort(key=lambda hit: (hit.odds, len(hit.changes), abs(hit.epsilon - wanted.value)))
    most = CHANCE_IF_GUARANTEED if guaranteed else CHANCE
    named = [hit for hit in hits if not hit.changes or hit.odds < most]
    by_chance = min((hit.odds for hit in hits if hit not in named), default=0.0)
    nearest = None
    if not hits:
        nearest = min(found.values(), key=lambda hit: abs(hit.epsilon - wanted.value), default=None)
    tried = len({number for _, number in found})
    return Search(tuple(named[:MOST_HITS]), tried, by_chance, nearest)


@dataclass(frozen=True)
class _Solution:
    """The whole factor whose number is nearest to the wanted one, and that number.

    near: factors with numbers between half and twice the wanted one; small: how many of them are
    divisors of the batch, or at most `SMALL`. large: whether this one is neither.
    """

    words: str
    composed: Event
    number: Computed
    relations: tuple[str, ...]
    large: bool
    near: int
    small: int


def _solved(claim: EpsilonClaim, row: "Row", wanted: float) -> Iterator[_Solution]:
    """By relation and convention, the factor of that row which gives `wanted`."""
    words, change, divides = row
    batch = (claim.phases[0].records and claim.phases[0].batch) or 1
    factors: Sequence[int] = range(3 if "noise" in words else 2, MOST_FACTOR)
    if divides:
        factors = [each for each in range(2, min(batch, MOST_FACTOR) + 1) if batch % each == 0]

    @functools.cache
    def changed(factor: int) -> EpsilonClaim | None:
        try:
            return claim.map_phases(lambda phase: change(phase, factor))
        except _Nothing:
            return None

    factors = factors[: bisect.bisect_left(factors, True, key=lambda each: changed(each) is None)]
    for relations, composed in _by_relation(claim).items() if factors else ():
        if claim.relation not in (None, *relations):
            continue

        def at(factor: int, relation: str = relations[0]) -> Event:
            made = event(cast(EpsilonClaim, changed(factor)), relation)
            assert made is not None
            return made

        def limit(factor: int, at: Callable[[int], Event] = at) -> float:
            return max(limit_epsilon(at(factor), claim.delta), NOTHING)

        for name, epsilon_of in solvable(composed, claim.delta):
            stated, start = epsilon_of(composed), limit_epsilon(composed, claim.delta)
            rising = limit(factors[-1]) > start
            if (wanted > stated) is not rising or not 0 < stated < math.inf > start > 0:
                continue
            if name == PLD and wanted > MOST_BY_PLD:
                continue
            numbers: dict[int, float] = {}
            ratio, factor = stated / start, 0
            while factor not in numbers and len(numbers) < MOST_EVALUATIONS:
                if factor:
                    numbers[factor] = epsilon_of(at(factor))
                    if not 0 < numbers[factor] < math.inf:
                        break
                    ratio = numbers[factor] / limit(factor)
                place = _place(factors, limit, rising, wanted / ratio)
                around = factors[max(place - 1, 0) : place + 1]
                factor = min(around, key=lambda each: abs(limit(each) - wanted / ratio))
            factor = min(numbers, key=lambda each: abs(numbers[each] - wanted))
            ends = [_place(factors, limit, rising, share * wanted / ratio) for share in (0.5, 2)]
            near = factors[min(ends) : max(ends)]
            yield _Solution(
                words.format(k=factor, size=batch // factor),
                at(factor),
                Computed(name, numbers[factor]),
                relations,
                not divides and factor > SMALL,
                len(near),
                len(near) if divides else bisect.bisect_right(near, SMALL),
            )


def _place(
    factors: Sequence[int], limit: Callable[[int], float], rising: bool, number: float
) -> int:
    """How many of the factors come before the one whose limit is `number`."""
    sign = 1 if rising else -1
    return bisect.bisect_left(factors, sign * number, key=lambda each: sign * limit(each))


def _by_relation(claim: EpsilonClaim) -> dict[tuple[str, ...], Event]:
    """The different events of a claim, by the relations that have them."""
    events: dict[Key, tuple[tuple[str, ...], Event]] = {}
    for relation in RELATIONS:
        if (composed := event(claim, relation)) is not None:
            key = _key(composed, claim.delta)
            relations, first = events.get(key, ((), composed))
            events[key] = ((*relations, relation), first)
    return dict(events.values())


def _different_events(
    claim: EpsilonClaim,
) -> list[tuple[Event, float, tuple[str, ...], tuple[str, ...]]]:
    """Events with delta, the fewest changes that lead to them, and the relations that have them."""
    found: dict[Key, tuple[Event, float, tuple[str, ...], tuple[str, ...]]] = {}
    for changes, changed in _variants(claim):
        for relations, composed in _by_relation(changed).items():
            fresh = (composed, changed.delta, changes, relations)
            found.setdefault(_key(composed, changed.delta), fresh)
    return list(found.values())


def _key(composed: Event, delta: float) -> Key:
    numbers = tuple(
        (each.sampler.name, each.sampler.sample_rate, each.noise_multiplier, each.count)
        for each in composed.mechanisms
    )
    return numbers, composed.accounted, delta


def _variants(claim: EpsilonClaim) -> Iterator[tuple[tuple[str, ...], EpsilonClaim]]:
    """The claim with no change, one change, and with Poisson sampling supposed as well."""
    bases = _bases(claim)
    yield from bases
    for before, base in bases:
        for words, changed in _changes(base):
            yield (*before, words), changed


def _bases(claim: EpsilonClaim) -> list[tuple[tuple[str, ...], EpsilonClaim]]:
    """The claim as it is, and with Poisson sampling supposed, by either count of steps."""
    bases: list[tuple[tuple[str, ...], EpsilonClaim]] = [((), claim)]
    if any(phase.sampler not in ("poisson", "full-batch") for phase in claim.phases):
        supposed = claim.map_phases(_as_poisson)
        counted = supposed.map_phases(_steps_of_poisson)
        bases.append(((AS_POISSON,), supposed))
        if counted != supposed:
            bases.append(((AS_COUNTED,), counted))
    return bases


def _changes(claim: EpsilonClaim) -> Iterator[Change]:
    yield from _parts_left_out(claim)
    for words, change in _phase_changes():
        try:
            changed = claim.map_phases(change)
        except _Nothing:
            continue
        if changed != claim:
            yield words, changed
    yield from _other_deltas(claim)


def _parts_left_out(claim: EpsilonClaim) -> Iterator[Change]:
    if claim.trials:
        trials = sum(count for _, count in claim.trials)
        others = "other trial" if trials == 1 else f"{trials} other trials"
        yield f"the {others} not counted", replace(claim, trials=())
    if claim.runs > 1:
        yield f"one of {claim.runs} released runs counted", replace(claim, runs=1)
    if claim.trials and claim.runs > 1:
        yield "one training counted", replace(claim, runs=1, trials=())
    if len(claim.phases) > 1:
        for number, phase in enumerate(claim.phases, 1):
            yield f"phase {number} of {len(claim.phases)} alone", replace(claim, phases=(phase,))


def _other_deltas(claim: EpsilonClaim) -> Iterator[Change]:
    deltas = {f"delta {delta:g}": delta for delta in DELTAS}
    if claim.n is not None and claim.n > 1:
        n = claim.n
        deltas |= {"delta 1 / n": 1 / n, "delta 1 / (2 n)": 0.5 / n, "delta n^-1.1": n**-1.1}
    for words, delta in deltas.items():
        if not math.isclose(delta, claim.delta):
            yield f"{words}, not {claim.delta:g}", replace(claim, delta=delta)


class _Nothing(Exception):
    """A change that makes no sense for a phase."""


def _phase_changes() -> Iterator[tuple[str, PhaseChange]]:
    yield "epochs counted in the place of steps", _epochs_as_steps
    yield "one epoch counted", _one_epoch
    yield "one step counted", lambda phase: phase.but(steps=1, epochs=None)
    yield "steps of an epoch rounded down (drop_last)", lambda phase: _whole(phase, math.floor)
    yield "steps of an epoch rounded up", lambda phase: _whole(phase, math.ceil)
    yield "all steps rounded down", _truncated
    yield "the next power of two as batch", _power_of_two
    yield (
        "sampling rate 1 / (n // batch), one over the batches of an epoch",
        lambda phase: _rate(phase, 1 / math.floor(1 / _q(phase))),
    )
    yield (
        "sampling rate 1 / (batches of an epoch, rounded up)",
        lambda phase: _rate(phase, 1 / math.ceil(1 / _q(phase))),
    )
    yield (
        "batches of an epoch rounded up, and one over them as sampling rate (Opacus)",
        lambda phase: _rate(_whole(phase, math.ceil), 1 / math.ceil(1 / _q(phase))),
    )
    yield "sampling rate 1 / n", lambda phase: _rate(phase, _q(phase) / _batch(phase))
    yield "no amplification by sampling", _all_records
    yield "noise in units of C / batch: multiplied by the batch", lambda p: _noise(p, _batch(p))
    yield "noise in units of C / batch: divided by the batch", lambda p: _noise(p, 1 / _batch(p))
    yield "noise doubled: a sensitivity of C / 2 taken", lambda phase: _noise(phase, 2)
    yield "noise halved: a sensitivity of 2 C taken", lambda phase: _noise(phase, 0.5)
    yield "noise squared", lambda phase: _noise(phase, phase.noise or 1)
    yield "square root of the noise, as if it were a variance", _root
    for place in range(4):
        yield (
            "a digit of the noise lost",
            lambda phase, place=place: _digit_lost(phase, place),  # type: ignore[misc]
        )


def _by_micro_batch(
    phase: ClaimedPhase, parts: int, rounding: Callable[[float], int]
) -> ClaimedPhase:
    if phase.n is None or _batch(phase) % parts:
        raise _Nothing
    size = _batch(phase) // parts
    steps = phase.steps * parts
    if phase.epochs is not None:
        steps = math.ceil(phase.epochs * rounding(phase.n / size))
    if not 0 < steps <= MOST_STEPS:
        raise _Nothing
    return phase.but(steps=steps, epochs=None)


def _as_poisson(phase: ClaimedPhase) -> ClaimedPhase:
    if phase.sampler in ("poisson", "full-batch"):
        return phase
    return phase.but(sampler="poisson", mechanism="gaussian", bands=None, drop_last=False)


def _steps_of_poisson(phase: ClaimedPhase) -> ClaimedPhase:
    if phase.epochs is None or phase.sampler != "poisson":
        return phase
    return phase.but(steps=max(1, math.ceil(phase.epochs / _q(phase) - 1e-9)))


def _q(phase: ClaimedPhase) -> float:
    if phase.n is None or phase.batch is None or phase.sampler == "full-batch":
        raise _Nothing
    return phase.batch / phase.n


def _batch(phase: ClaimedPhase) -> int:
    """The batch that was stated, beside the number of records."""
    if phase.batch is None or phase.records is None:
        raise _Nothing
    return phase.batch


def _epochs(phase: ClaimedPhase) -> float:
    return phase.epochs if phase.epochs is not None else max(1, round(phase.steps * _q(phase)))


def _epochs_as_steps(phase: ClaimedPhase) -> ClaimedPhase:
    return phase.but(steps=max(1, math.ceil(_epochs(phase))), epochs=None)


def _one_epoch(phase: ClaimedPhase) -> ClaimedPhase:
    return phase.but(steps=math.ceil(1 / _q(phase) - 1e-9), epochs=1.0)


def _whole(phase: ClaimedPhase, rounding: Callable[[float], int]) -> ClaimedPhase:
    steps = max(1, math.ceil(_epochs(phase) * rounding(1 / _q(phase) + 1e-12)))
    return phase.but(steps=steps)


def _truncated(phase: ClaimedPhase) -> ClaimedPhase:
    return phase.but(steps=max(1, math.floor(_epochs(phase) / _q(phase) + 1e-9)))


def _power_of_two(phase: ClaimedPhase) -> ClaimedPhase:
    """240 or 250 records a batch become 256, with the steps of as many epochs."""
    stated = _batch(phase)
    batch = 1 << (stated - 1).bit_length()
    if phase.n is None or not stated < batch <= phase.n:
        raise _Nothing
    steps = phase.steps
    if phase.epochs is not None and phase.sampler == "poisson":
        steps = math.ceil(phase.epochs * phase.n / batch)
    return phase.but(batch=batch, steps=steps)


def _rate(phase: ClaimedPhase, rate: float) -> ClaimedPhase:
    """Sampling rates concern Poisson samples; of others they are the habit of `AS_POISSON`."""
    if phase.sampler != "poisson" or not 0 < rate <= 1:
        raise _Nothing
    # The fraction of small terms that is meant by a rate in doubles.
    small = Fraction(rate).limit_denominator(10**9)
    if small == 0:
        raise _Nothing
    return phase.but(n=small.denominator, batch=small.numerator)


def _all_records(phase: ClaimedPhase) -> ClaimedPhase:
    _q(phase)
    nothing = dict.fromkeys(("n", "batch", "sample_rate", "bands", "epochs"))
    return phase.but(sampler="full-batch", mechanism="gaussian", drop_last=False, **nothing)


def _steps(phase: ClaimedPhase, factor: float) -> ClaimedPhase:
    if not 1 <= (steps := round(phase.steps * factor)) <= MOST_STEPS:
        raise _Nothing
    return phase.but(steps=steps, epochs=None)


def _noise(phase: ClaimedPhase, factor: float) -> ClaimedPhase:
    assert phase.noise is not None
    return _with_noise(phase, phase.noise * factor)


def _with_noise(phase: ClaimedPhase, noise: float) -> ClaimedPhase:
    """Numbers that nobody can claim take the accountants long."""
    if not LEAST_NOISE <= noise <= MOST_NOISE:
        raise _Nothing
    return phase.but(noise=noise)


def _root(phase: ClaimedPhase) -> ClaimedPhase:
    assert phase.noise is not None
    return _with_noise(phase, math.sqrt(phase.noise))


def _digit_lost(phase: ClaimedPhase, place: int) -> ClaimedPhase:
    """1.12 becomes .12, 1.2 or 1.1."""
    text = f"{phase.noise:g}"
    digits = [index for index, character in enumerate(text) if character.isdigit()]
    if "e" in text or "." not in text or place >= len(digits):
        raise _Nothing
    left = float(text[: digits[place]] + text[digits[place] + 1 :])
    return _with_noise(phase, left)


def _part_as_batch(phase: ClaimedPhase, parts: int) -> ClaimedPhase:
    """A micro-batch in the place of the batch, and as many epochs of them."""
    rate = _q(phase) / parts
    steps = phase.steps * parts if phase.epochs is None else math.ceil(phase.epochs / rate - 1e-9)
    return _rate(_steps(phase.but(steps=steps), 1), rate)


# Changes by a whole factor k, in words, and whether k has to divide the batch.
Row = tuple[str, Callable[[ClaimedPhase, int], ClaimedPhase], bool]
FACTORED: tuple[Row, ...] = (
    ("steps x {k}", _steps, False),
    ("steps / {k}", lambda phase, k: _steps(phase, 1 / k), False),
    (
        "steps counted in micro-batches of {size}, {k} to an update",
        lambda phase, k: _by_micro_batch(phase, k, math.ceil),
        True,
    ),
    (
        "steps counted in micro-batches of {size}, {k} to an update, the last of an epoch left out",
        lambda phase, k: _by_micro_batch(phase, k, math.floor),
        True,
    ),
    (
        "sampling rate x {k} (the batch of {k} devices or micro-batches)",
        lambda phase, k: _rate(phase, k * _q(phase)),
        False,
    ),
    (
        "sampling rate / {k} (the batch of one of {k})",
        lambda phase, k: _rate(phase, _q(phase) / k),
        True,
    ),
    ("rate and steps of batches of {size}, one of {k} parts", _part_as_batch, True),
    ("noise x {k}", _noise, False),
    ("noise / {k}", lambda phase, k: _noise(phase, 1 / k), False),
)
