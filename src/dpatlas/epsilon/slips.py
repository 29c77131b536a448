"""Which common slip gives a printed epsilon: each is made on purpose, and the number compared.

A slip is one change of the claim: another count, rate, noise, delta, or a part left out; or the
number of another neighbour relation than the one meant. Batches that are no Poisson samples are
also accounted as if they were, by either count of steps, with and without a further change,
because that habit is the commonest of all. Every changed claim is accounted by every convention of
`dpatlas.epsilon.conventions`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpatlas.epsilon.claim import MOST_STEPS, RELATIONS, ClaimedPhase, EpsilonClaim, Printed
from dpatlas.epsilon.conventions import EXACT, PLD, TODAY, computed
from dpatlas.epsilon.valid import Event, event

AS_POISSON = "batches accounted as Poisson samples, which they are not"
# Batches that are dealt end an epoch with a smaller one; Poisson samples are n / batch an epoch.
AS_COUNTED = f"{AS_POISSON}, n / batch of them an epoch"
FACTORS = (2, 4, 8)
# With fewer chance hits than these, one and two changes explain a number that is guaranteed.
CHANCE = (0.5, 0.01)
# Hits that a report lists, of those with the fewest departures.
MOST_HITS = 5
LEAST_NOISE, MOST_NOISE = 1e-3, 1e6
DELTAS = (1e-4, 1e-5, 1e-6)
Change = tuple[str, EpsilonClaim]
# What decides a number: kind of sampler, rate, noise and count of each mechanism, the accountants'
# relation and delta.
Made = tuple[tuple[str, ...], tuple[str, ...], str]
Key = tuple[tuple[tuple[str, float, float, int], ...], str, float]


@dataclass(frozen=True)
class Hit:
    """A recomputed epsilon that is the printed one: after which changes, and by which convention.

    relations: under which the number is the same.
    """

    changes: tuple[str, ...]
    convention: str
    epsilon: float
    relations: tuple[str, ...]

    @property
    def departures(self) -> int:
        """How many things had to be changed, an older convention among them."""
        return len(self.changes) + (self.convention not in (PLD, EXACT, TODAY))


@dataclass(frozen=True)
class Search:
    """What was found, the likeliest first, and how much was tried.

    tried: different numbers. by_chance: how many of them would hit if they lay at random, evenly in
    the logarithm, as thick as between half and twice the printed number. nearest: where no
    number hits.
    """

    hits: tuple[Hit, ...]
    tried: int
    by_chance: float
    nearest: Hit | None


def search(claim: EpsilonClaim, *, guaranteed: bool = False) -> Search:
    """Every single slip whose number is the claimed one, to a unit of its last digit.

    Those with the fewest departures. A claim that is `guaranteed` needs no slip: changes count
    where chance would hardly give as many hits (`CHANCE`).
    """
    assert claim.claimed is not None
    wanted = claim.claimed
    found: dict[Made, Hit] = {}
    for composed, delta, changes, relations in _different_events(claim):
        if claim.relation is not None and claim.relation not in relations:
            changes = (*changes, f"accounted under {relations[0]}, not {claim.relation}")
        for each in computed(composed, delta, wanted.value):
            key = (changes, relations, f"{each.epsilon:.9g}")
            if key in found:
                # Two lists of orders with the same best one.
                continue
            found[key] = Hit(changes, each.convention, each.epsilon, relations)
    made = list(found.values())
    hits = [hit for hit in made if wanted.hit_by(hit.epsilon)]
    hits.sort(key=lambda hit: (hit.departures, len(hit.changes), abs(hit.epsilon - wanted.value)))
    by_chance = _by_chance(found, hits, wanted)
    nearest = None
    if not hits:
        nearest = min(made, key=lambda hit: abs(hit.epsilon - wanted.value), default=None)
    if guaranteed:
        most = sum(by_chance < share for share in CHANCE)
        hits = [hit for hit in hits if len(hit.changes) <= most]
    tried = len({key[2] for key in found})
    return Search(tuple(hits[:MOST_HITS]), tried, by_chance, nearest)


def _by_chance(found: Mapping[Made, Hit], hits: Sequence[Hit], wanted: Printed) -> float:
    near = {
        key[2]
        for key, hit in found.items()
        if wanted.value / 2 <= hit.epsilon <= 2 * wanted.value and hit not in hits
    }
    return len(near) * 2 * wanted.window / (wanted.value * math.log(4)) if near else 0.0


def _different_events(
    claim: EpsilonClaim,
) -> list[tuple[Event, float, tuple[str, ...], tuple[str, ...]]]:
    """Events with delta, the fewest changes that lead to them, and the relations that have them."""
    found: dict[Key, tuple[Event, float, tuple[str, ...], tuple[str, ...]]] = {}
    for changes, changed in _variants(claim):
        for relation in RELATIONS:
            composed = event(changed, relation)
            if composed is None:
                continue
            key = (_numbers(composed), composed.accounted, changed.delta)
            if key not in found:
                found[key] = (composed, changed.delta, changes, (relation,))
            elif found[key][2] == changes:
                found[key] = (*found[key][:3], (*found[key][3], relation))
    return list(found.values())


def _numbers(composed: Event) -> tuple[tuple[str, float, float, int], ...]:
    return tuple(
        (each.sampler.name, each.sampler.sample_rate, each.noise_multiplier, each.count)
        for each in composed.mechanisms
    )


def _variants(claim: EpsilonClaim) -> Iterator[tuple[tuple[str, ...], EpsilonClaim]]:
    """The claim with no change, one change, and with Poisson sampling supposed as well."""
    bases: list[tuple[tuple[str, ...], EpsilonClaim]] = [((), claim)]
    if any(phase.sampler not in ("poisson", "full-batch") for phase in claim.phases):
        supposed = claim.map_phases(_as_poisson)
        counted = supposed.map_phases(_steps_of_poisson)
        bases.append(((AS_POISSON,), supposed))
        if counted != supposed:
            bases.append(((AS_COUNTED,), counted))
    yield from bases
    for before, base in bases:
        for words, changed in _changes(base):
            yield (*before, words), changed


def _changes(claim: EpsilonClaim) -> Iterator[Change]:
    yield from _parts_left_out(claim)
    for words, change in (*_phase_changes(), *_micro_batches(claim)):
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


def _phase_changes() -> Iterator[tuple[str, Callable[[ClaimedPhase], ClaimedPhase]]]:
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
    yield "sampling rate 1 / n", lambda phase: _rate(phase, 1 / (phase.n or 1))
    yield "no amplification by sampling", _all_records
    for factor in FACTORS:
        yield (
            f"sampling rate x {factor} (the batch of {factor} devices or micro-batches)",
            lambda phase, factor=factor: _rate(phase, factor * _q(phase)),  # type: ignore[misc]
        )
        yield (
            f"sampling rate / {factor} (the batch of one of {factor})",
            lambda phase, factor=factor: _rate(phase, _q(phase) / factor),  # type: ignore[misc]
        )
        yield f"steps x {factor}", lambda phase, factor=factor: _steps(phase, factor)  # type: ignore[misc]
        yield f"steps / {factor}", lambda phase, factor=factor: _steps(phase, 1 / factor)  # type: ignore[misc]
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


def _micro_batches(
    claim: EpsilonClaim,
) -> Iterator[tuple[str, Callable[[ClaimedPhase], ClaimedPhase]]]:
    """Steps counted by micro-batches, whose size divides the batch: 256 of 4 records for 1024."""
    batch = claim.phases[0].batch or 1
    for size in (size for size in range(1, batch) if batch % size == 0):
        words = f"steps counted in micro-batches of {size}, {batch // size} to an update"
        for rounding, last in ((math.ceil, ""), (math.floor, ", the last of an epoch left out")):
            yield (
                f"{words}{last}",
                lambda phase, size=size, rounding=rounding: _by_micro_batch(  # type: ignore[misc]
                    phase, size, rounding
                ),
            )


def _by_micro_batch(
    phase: ClaimedPhase, size: int, rounding: Callable[[float], int]
) -> ClaimedPhase:
    if phase.n is None or phase.batch is None or phase.batch % size:
        raise _Nothing
    steps = phase.steps * phase.batch // size
    if phase.epochs is not None:
        steps = math.ceil(phase.epochs * rounding(phase.n / size))
    if not 0 < steps <= MOST_STEPS:
        raise _Nothing
    return phase.but(steps=steps, epochs=None)


def _as_poisson(phase: ClaimedPhase) -> ClaimedPhase:
    if phase.sampler in ("poisson", "full-batch"):
        return phase
    return phase.but(sampler="poisson", drop_last=False)


def _steps_of_poisson(phase: ClaimedPhase) -> ClaimedPhase:
    if phase.epochs is None or phase.sampler != "poisson":
        return phase
    return phase.but(steps=max(1, math.ceil(phase.epochs / _q(phase) - 1e-9)))


def _q(phase: ClaimedPhase) -> float:
    if phase.n is None or phase.batch is None or phase.sampler == "full-batch":
        raise _Nothing
    return phase.batch / phase.n


def _batch(phase: ClaimedPhase) -> int:
    if phase.batch is None:
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
    _q(phase)
    assert phase.n is not None and phase.batch is not None
    batch = 1 << (phase.batch - 1).bit_length()
    if not phase.batch < batch <= phase.n:
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
    return phase.but(sampler="full-batch", n=None, batch=None, epochs=None, drop_last=False)


def _steps(phase: ClaimedPhase, factor: float) -> ClaimedPhase:
    return phase.but(steps=max(1, round(phase.steps * factor)), epochs=None)


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
