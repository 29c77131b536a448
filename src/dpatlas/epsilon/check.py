"""The verdict on a claim: guaranteed, not guaranteed, or refuted; and how its number arises."""

import math
from collections.abc import Mapping
from typing import Any

from dpatlas.base.rounding import upward
from dpatlas.epsilon.claim import EVERY_SUM, NOISY, EpsilonClaim, Names, read_claim
from dpatlas.epsilon.report import GUARANTEED, REFUTED, UNSUPPORTED, EpsilonReport, NeededNoise
from dpatlas.epsilon.slips import search
from dpatlas.epsilon.valid import (
    Reading,
    event,
    most_steps,
    noise_for,
    optimistic,
    readings,
)
from dpatlas.errors import InputError


def check_epsilon(*, explain: bool = True, **settings: Any) -> EpsilonReport:
    """Is this epsilon right? The report on a claim given by plain settings.

        check_epsilon(sampler="poisson", n=60000, batch=256, noise=1.1, epochs=15, delta=1e-5,
                      claimed="3.0")

    Settings, as in `python -m dpatlas epsilon`: mechanism, sampler, n, batch or sample_rate, noise
    (standard deviation on the sum of clipped gradients over the clip bound), steps or epochs,
    drop_last, largest_batch, buckets, bands, or `phases`, a list of such settings; `parts`, such
    settings for further, disjoint parts of the records; delta, claimed (as text with the printed
    digits) or target in the place of noise, relation, runs, trials (a number or a list of settings)
    or grid, released. explain: search for the slip that gives the claimed number. Raises InputError
    for bad settings.
    """
    return check(read_claim(settings, plain=False), explain=explain)


def check(claim: EpsilonClaim, *, explain: bool = True, names: Names = str) -> EpsilonReport:
    """The report on a claim. Raises InputError for a target that no noise multiplier meets."""
    if claim.target is not None:
        noises = _noises(claim, claim.target, names)
        return EpsilonReport(claim, (), {}, None, (), None, tuple(noises), _warnings(claim, ()))
    found = tuple(readings(claim, claim.relations))
    least = {relation: optimistic(claim, relation) for relation in claim.relations}
    verdict, supporting = _verdict(claim, found, least)
    searched = None
    if explain and claim.claimed is not None and claim.claimed.value and not _beyond(claim):
        searched = search(claim, guaranteed=verdict == GUARANTEED)
    said = _warnings(claim, found) + _reservations(claim, supporting, least)
    return EpsilonReport(claim, found, least, verdict, supporting, searched, (), said)


def _reservations(
    claim: EpsilonClaim, supporting: tuple[Reading, ...], least: Mapping[str, float | None]
) -> tuple[str, ...]:
    """On what a guarantee depends beside its assumptions: rounding, and how epochs are counted."""
    if claim.claimed is None or not supporting:
        return ()
    said = []
    reached = min((least[each.relation] or 0.0) for each in supporting)
    if reached > claim.claimed.value:
        said.append(
            f"guaranteed as a rounded number: the release reaches more than {claim.claimed.text}"
        )
    longer = claim.map_phases(most_steps)
    if longer != claim:
        most = claim.claimed.value + claim.claimed.rounding
        relations = {each.relation for each in supporting}
        tightest = min((each.epsilon for each in readings(longer, relations)), default=math.inf)
        if tightest > most:
            counted = [" and ".join(str(p.steps) for p in each.phases) for each in (claim, longer)]
            if claim.phases == longer.phases:
                counted = ["the trials' epochs of n / batch", "more"]
            said.append(
                f"guaranteed for {counted[0]} steps; ceil(n / batch) steps an epoch are "
                f"{counted[1]}, epsilon {upward(tightest)}: give steps in the place of epochs"
            )
    return tuple(said)


def _verdict(
    claim: EpsilonClaim, found: tuple[Reading, ...], least: Mapping[str, float | None]
) -> tuple[str | None, tuple[Reading, ...]]:
    if claim.claimed is None:
        return None, ()
    most = claim.claimed.value + claim.claimed.rounding
    supporting = tuple(each for each in found if each.epsilon <= most)
    if supporting:
        return GUARANTEED, supporting
    if all(limit is not None and limit > most for limit in least.values()):
        return REFUTED, ()
    return UNSUPPORTED, ()


def _noises(claim: EpsilonClaim, target: float, names: Names) -> list[NeededNoise]:
    noises = []
    for relation in claim.relations:
        try:
            needed = noise_for(claim, relation, target)
        except InputError as error:
            raise InputError(names("target"), error.found, error.allowed) from None
        if needed is not None:
            noises.append(NeededNoise(relation, *needed))
    return noises


def _beyond(claim: EpsilonClaim) -> bool:
    """Whether slips are not known: of other noise than Gaussian, and of disjoint parts."""
    others = (*NOISY, "randomized-response", "truncated-poisson")
    kinds = {kind for each in claim.every_phase for kind in (each.mechanism, each.sampler)}
    return bool(claim.parts) or not kinds.isdisjoint(others)


def _warnings(claim: EpsilonClaim, found: tuple[Reading, ...]) -> tuple[str, ...]:
    said = []
    if claim.n is not None and claim.delta >= 1 / claim.n:
        said.append(
            f"delta {claim.delta:g} is not below 1 / n = {1 / claim.n:.3g}: publishing a record "
            "drawn at random would satisfy it"
        )
    if claim.released != EVERY_SUM:
        said.append(
            "only the last iterate is released: it may be more private than any number here, "
            "so no claim is refuted"
        )
    if claim.claimed is not None and _beyond(claim):
        said.append("slips are searched for Gaussian noise on one set of records alone: none here")
    missing = [
        relation
        for relation in claim.relations
        if claim.target is None and not any(each.relation == relation for each in found)
    ]
    if missing:
        unresolved = all(event(claim, relation) is not None for relation in missing)
        why = ": PLD does not resolve so small a delta after so many steps" if unresolved else ""
        said.append(f"nothing is proved here under {' and '.join(missing)}{why}")
    by_words: dict[str, None] = {}
    for each in found:
        tightest = min(other.epsilon for other in found if other.relation == each.relation)
        # The end of the range matters where it decides, and so does an accountant's infinity.
        if each.epsilon == tightest:
            if each.warning:
                by_words[each.warning] = None
            if not math.isfinite(each.epsilon):
                by_words["infinite: hardly any noise"] = None
    return (*said, *by_words)
