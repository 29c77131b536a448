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
    by_convention,
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
# PLD takes minutes for larger epsilons, and is left out where samples are supposed.
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
    out; 0 if there is none.
    """

    hits: tuple[Hit, ...]
    tried: int
    by_chance: float


def search(claim: EpsilonClaim, *, guaranteed: bool = False) -> Search:
    """The slips whose number is the claimed one, to a unit of its last digit, the least odds first.

    What chance explains is left out, and sooner where the claim is `guaranteed` and needs no slip:
    then changes are none where the settings as stated give the number, which always stand.
    """
    assert claim.claimed is not None
    wanted = claim.claimed
    # Two changes may lead to one event, and two lists of orders have the same best one.
    found: dict[tuple[Key, str], Hit] = {}
    near: Counter[int] = Counter()
    for changes, changed in _variants(claim):
        for relations, composed in _by_relation(changed).items():
            key = _key(composed, changed.delta)
            if any(key == other for other, _ in found):
                continue
            for each in computed(composed, changed.delta, wanted.value):
                hit = _hit(claim, changes, relations, each)
                if found.setdefault((key, f"{hit.epsilon:.9g}"), hit) is hit:
                    near[hit.departures] += wanted.value / 2 <= hit.epsilon <= 2 * wanted.value
    for before, base in _bases(claim):
        by_pld = not before and wanted.value <= MOST_BY_PLD
        for row in FACTORED:
            for words, composed, relations, each, large, counted in _solved(
                base, row, wanted.value, by_pld
            ):
                hit = _hit(claim, (*before, words), relations, each)
                near += Counter({hit.departures + more: many for more, many in counted.items()})
                hit = replace(hit, departures=hit.departures + large)
                found.setdefault((_key(composed, claim.delta), f"{hit.epsilon:.9g}"), hit)
    share = 2 * wanted.window / (wanted.value * math.log(4))
    hits = [
        replace(hit, odds=share * sum(near[each] for each in range(hit.departures + 1)))
        for hit in found.values()
        if wanted.hit_by(hit.epsilon)
    ]
    hits.sort(key=lambda hit: (hit.odds, len(hit.changes), abs(hit.epsilon - wanted.value)))
    most = CHANCE_IF_GUARANTEED if guaranteed else CHANCE
    if guaranteed and not all(hit.changes for hit in hits):
        most = 0.0
    named = [hit for hit in hits if not hit.changes or hit.odds < most]
    by_chance = min((hit.odds for hit in hits if hit not in named), default=0.0)
    return Search(tuple(named[:MOST_HITS]), len({number for _, number in found}), by_chance)


def _hit(
    claim: EpsilonClaim, changes: tuple[str, ...], relations: tuple[str, ...], each: Computed
) -> Hit:
    if claim.relation not in (None, *relations):
        changes = (*changes, f"accounted under {relations[0]}, not {claim.relation}")
    departures = sum(words not in (AS_POISSON, AS_COUNTED) for words in changes)
    departures += each[0] not in (PLD, EXACT, TODAY)
    return Hit(changes, *each, relations, departures)


def _solved(
    claim: EpsilonClaim, row: "Row", wanted: float, by_pld: bool
) -> Iterator[tuple[str, Event, tuple[str, ...], Computed, int, dict[int, int]]]:
    """By relation and convention, the whole factor of that row whose number is nearest to `wanted`.

    In words, with its event, relations and number; departures of a large factor, which is no
    divisor of the batch and above `SMALL`; and by them how many factors have numbers between half
    and twice the wanted one.
    """
    words, change, divides = row
    batch = (claim.phases[0].records and claim.phases[0].batch) or 1
    factors: Sequence[int] = range(2, MOST_FACTOR)
    if divides:
        factors = [each for each in range(2, min(batch, MOST_FACTOR) + 1) if batch % each == 0]

    @functools.cache
    def changed(factor: int) -> EpsilonClaim | None:
        return _changed(claim, lambda phase: change(phase, factor))

    factors = factors[: bisect.bisect_left(factors, True, key=lambda each: changed(each) is None)]
    for relations, composed in _by_relation(claim).items() if factors else ():
        if claim.relation not in (None, *relations):
            continue

        def at(factor: int, relation: str = relations[0]) -> Event:
            return cast(Event, event(cast(EpsilonClaim, changed(factor)), relation))

        start = max(limit_epsilon(composed, claim.delta), NOTHING)
        sign = 1 if limit_epsilon(at(factors[-1]), claim.delta) > start else -1

        def limit(each: int, at: Callable[[int], Event] = at, sign: int = sign) -> float:
            return sign * max(limit_epsilon(at(each), claim.delta), NOTHING)

        for name in solvable(composed):
            if name == PLD and not by_pld:
                continue
            stated = by_convention(name, composed, claim.delta)
            if sign * (wanted - stated) <= 0 or not 0 < stated < math.inf > start:
                continue
            ratio, factor, numbers = stated / start, 0, dict[int, float]()
            while factor not in numbers and len(numbers) < MOST_EVALUATIONS:
                if factor:
                    numbers[factor] = by_convention(name, at(factor), claim.delta)
                    if not 0 < (shared := sign * numbers[factor] / limit(factor)) < math.inf:
                        break
                    ratio = shared
                place = bisect.bisect_left(factors, sign * wanted / ratio, key=limit)
                around = factors[max(place - 1, 0) : place + 1]
                factor = min(around, key=lambda each: abs(limit(each) - sign * wanted / ratio))
            factor = min(numbers, key=lambda each: abs(numbers[each] - wanted))
            ends = [sign * share * wanted / ratio for share in (0.5, 2)][::sign]
            near = factors[slice(*(bisect.bisect_left(factors, end, key=limit) for end in ends))]
            small = len(near) if divides else bisect.bisect_right(near, SMALL)
            large = 0 if divides or factor <= SMALL else LARGE
            said = words.format(k=factor, size=batch // factor)
            counted = {0: small, LARGE: len(near) - small}
            yield said, at(factor), relations, (name, numbers[factor]), large, counted


def _by_relation(claim: EpsilonClaim) -> dict[tuple[str, ...], Event]:
    """The different events of a claim, by the relations that have them."""
    events: dict[Key, tuple[tuple[str, ...], Event]] = {}
    for relation in RELATIONS:
        if (composed := event(claim, relation)) is not None:
            key = _key(composed, claim.delta)
            relations, first = events.get(key, ((), composed))
            events[key] = ((*relations, relation), first)
    return dict(events.values())


def _key(composed: Event, delta: float) -> Key:
    numbers = tuple(
        (each.sampler.name, each.sampler.sample_rate, each.noise_multiplier, each.count)
        for each in composed.mechanisms
    )
    return numbers, composed.accounted, delta


def _variants(claim: EpsilonClaim) -> Iterator[tuple[tuple[str, ...], EpsilonClaim]]:
    """The claim with no change, one change, and with Poisson sampling supposed as well."""
    yield from _bases(claim)
    for before, base in _bases(claim):
        phases = ((words, _changed(base, change)) for words, change in SLIPS)
        for words, changed in (*_parts_left_out(base), *phases, *_other_deltas(base)):
            if changed not in (None, base):
                yield (*before, words), changed


def _changed(claim: EpsilonClaim, change: PhaseChange) -> EpsilonClaim | None:
    """The claim after a change of every phase; None where it makes no sense for one."""
    try:
        return claim.map_phases(change)
    except _Nothing:
        return None


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


def _batch(phase: ClaimedPhase, parts: int = 1) -> int:
    """The batch that was stated, beside the number of records, or the size of its equal parts."""
    if phase.batch is None or phase.records is None or phase.batch % parts:
        raise _Nothing
    return phase.batch // parts


def _epochs(phase: ClaimedPhase) -> float:
    return phase.epochs if phase.epochs is not None else max(1, round(phase.steps * _q(phase)))


def _steps(phase: ClaimedPhase, steps: float) -> ClaimedPhase:
    if not 1 <= round(steps) <= MOST_STEPS:
        raise _Nothing
    return phase.but(steps=round(steps), epochs=None)


def _whole(phase: ClaimedPhase, rounding: Callable[[float], int]) -> ClaimedPhase:
    return _steps(phase, math.ceil(_epochs(phase) * rounding(1 / _q(phase) + 1e-12)))


def _micro_batches(
    phase: ClaimedPhase, parts: int, rounding: Callable[[float], int]
) -> ClaimedPhase:
    size, steps = _batch(phase, parts), phase.steps * parts
    if phase.epochs is not None:
        steps = math.ceil(phase.epochs * rounding((phase.n or 1) / size))
    return _steps(phase, steps)


def _rate(phase: ClaimedPhase, rate: float) -> ClaimedPhase:
    """Sampling rates concern Poisson samples; of others they are the habit of `AS_POISSON`."""
    # The fraction of small terms that is meant by a rate in doubles.
    small = Fraction(rate).limit_denominator(10**9)
    if phase.sampler != "poisson" or not 0 < small * (phase.bands or 1) <= 1:
        raise _Nothing
    return phase.but(n=small.denominator, batch=small.numerator)


def _of_batch(phase: ClaimedPhase, batch: int, steps: int) -> ClaimedPhase:
    """Another batch, and the steps of as many epochs; `steps` where epochs are not given."""
    rate = batch / _batch(phase) * _q(phase)
    if phase.epochs is not None:
        steps = math.ceil(phase.epochs / rate - 1e-9)
    return _rate(_steps(phase, steps), rate)


def _all_records(phase: ClaimedPhase) -> ClaimedPhase:
    _q(phase)
    nothing = dict.fromkeys(("n", "batch", "sample_rate", "bands", "epochs"))
    return phase.but(sampler="full-batch", mechanism="gaussian", drop_last=False, **nothing)


def _noise(phase: ClaimedPhase, factor: float = 1, power: float = 1) -> ClaimedPhase:
    """Numbers that nobody can claim take the accountants long."""
    noise = cast(float, phase.noise) ** power * factor
    if not LEAST_NOISE <= noise <= MOST_NOISE:
        raise _Nothing
    return phase.but(noise=noise)


def _digit_lost(phase: ClaimedPhase, place: int) -> ClaimedPhase:
    """1.12 becomes .12, 1.2 or 1.1."""
    text = f"{phase.noise:g}"
    digits = [index for index, character in enumerate(text) if character.isdigit()]
    if "e" in text or "." not in text or place >= len(digits):
        raise _Nothing
    left = float(text[: digits[place]] + text[digits[place] + 1 :])
    return _noise(phase.but(noise=left))


SLIPS: tuple[tuple[str, PhaseChange], ...] = (
    ("epochs counted in the place of steps", lambda p: _steps(p, math.ceil(_epochs(p)))),
    ("one epoch counted", lambda p: _steps(p, math.ceil(1 / _q(p) - 1e-9))),
    ("one step counted", lambda p: _steps(p, 1)),
    ("steps of an epoch rounded down (drop_last)", lambda p: _whole(p, math.floor)),
    ("steps of an epoch rounded up", lambda p: _whole(p, math.ceil)),
    ("all steps rounded down", lambda p: _steps(p, math.floor(_epochs(p) / _q(p) + 1e-9))),
    (
        "the next power of two as batch",
        lambda p: _of_batch(p, 1 << (_batch(p) - 1).bit_length(), p.steps),
    ),
    (
        "sampling rate 1 / (n // batch), one over the batches of an epoch",
        lambda p: _rate(p, 1 / math.floor(1 / _q(p))),
    ),
    (
        "sampling rate 1 / (batches of an epoch, rounded up)",
        lambda p: _rate(p, 1 / math.ceil(1 / _q(p))),
    ),
    (
        "batches of an epoch rounded up, and one over them as sampling rate (Opacus)",
        lambda p: _rate(_whole(p, math.ceil), 1 / math.ceil(1 / _q(p))),
    ),
    ("sampling rate 1 / n", lambda p: _rate(p, _q(p) / _batch(p))),
    ("no amplification by sampling", _all_records),
    (
        "noisy sums accounted, without the tree or the bands",
        lambda p: p.but(mechanism="gaussian", bands=None),
    ),
    ("noise in units of C / batch: multiplied by the batch", lambda p: _noise(p, _batch(p))),
    ("noise in units of C / batch: divided by the batch", lambda p: _noise(p, 1 / _batch(p))),
    ("noise squared", lambda p: _noise(p, power=2)),
    ("square root of the noise, as if it were a variance", lambda p: _noise(p, power=0.5)),
    *(
        ("a digit of the noise lost", functools.partial(_digit_lost, place=place))
        for place in range(4)
    ),
)
MICRO = "steps counted in micro-batches of {size}, {k} to an update"
# Changes by a whole factor k, in words, and whether k has to divide the batch.
Row = tuple[str, Callable[[ClaimedPhase, int], ClaimedPhase], bool]
FACTORED: tuple[Row, ...] = (
    ("steps x {k}", lambda p, k: _steps(p, p.steps * k), False),
    ("steps / {k}", lambda p, k: _steps(p, p.steps / k), False),
    (MICRO, lambda p, k: _micro_batches(p, k, math.ceil), True),
    (
        f"{MICRO}, the last of an epoch left out",
        lambda p, k: _micro_batches(p, k, math.floor),
        True,
    ),
    (
        "sampling rate x {k} (the batch of {k} devices or micro-batches)",
        lambda p, k: _rate(p, k * _q(p)),
        False,
    ),
    ("sampling rate / {k} (the batch of one of {k})", lambda p, k: _rate(p, _q(p) / k), True),
    (
        "rate and steps of batches of {size}, one of {k} parts",
        lambda p, k: _of_batch(p, _batch(p, k), p.steps * k),
        True,
    ),
    ("noise x {k}: a sensitivity of C / {k} taken", _noise, False),
    ("noise / {k}: a sensitivity of {k} C taken", lambda p, k: _noise(p, 1 / k), False),
)
