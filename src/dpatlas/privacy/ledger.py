"""The privacy ledger: what a private run guarantees, in its record, and on what that rests."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpatlas.core.guard import checked, one_of, real
from dpatlas.errors import InputError
from dpatlas.privacy.accounting import CHOICES, RELATIONS, Guarantee, Phase, guarantee

NEIGHBOURS = {
    "add_remove": "add or remove one record; sample rates, divisors and steps stay as they are",
    "replace_one": "replace one record; the number of records is public",
}
NOISE_SOURCES = {
    "keyed": "secret seeds and exact arithmetic; the noise follows from the configuration, and "
    "whoever knows that can subtract it",
    "os": "exact arithmetic; the noise follows from a secret of the operating system, and nobody "
    "can repeat the run",
}
PUBLIC = "public"
NOTHING = "nothing"


@checked(
    delta=real(gt=0, lt=1),
    relation=one_of(*RELATIONS),
    accountant=one_of(*CHOICES),
    noise_source=one_of(*NOISE_SOURCES),
)
def ledger(
    *,
    mechanism: str,
    phases: Sequence[Phase],
    max_grad_norm: float | Sequence[float],
    delta: float,
    relation: str,
    constants: Mapping[str, str],
    accountant: str = "auto",
    claimed: Mapping[str, Any] | None = None,
    chosen_on_private_data: Sequence[Mapping[str, Any]] | None = None,
    noise_source: str = "keyed",
    released: str = "the last iterate",
    require_private: bool = False,
) -> dict[str, Any]:
    """The ledger of one run, as JSON holds it.

    max_grad_norm: the clip bound C, one for all phases or one per phase.
    constants: where each constant that the guarantee rests on comes from (max_grad_norm always;
        a feature norm, a smoothness, ...). Only "public" gives a guarantee.
    claimed: a guarantee that someone else states: epsilon, delta and `by` whom; or None.
    chosen_on_private_data: `what` was chosen and its `cost`; None if nothing was.
    require_private: refuse a run that guarantees nothing.

    Without noise epsilon and delta are None and `guaranteed` says why. Values of several phases are
    lists, one entry per phase. Raises InputError for a constant that is not public, for a clip
    bound <= 0, and for a claim of privacy without noise.
    """
    clip = _clip_bounds(max_grad_norm, len(phases))
    _check_constants(constants)
    claim = _check_claim(claimed)
    found = guarantee(phases, delta, relation, accountant)
    private = math.isfinite(found.epsilon)
    if not private and (require_private or claim):
        given = [phase.noise_multiplier for phase in phases]
        raise InputError(
            "noise_multiplier",
            f"{_one_or_list(given)} with a claim of privacy",
            "a number > 0 in every phase that takes steps",
        )
    return {
        "mechanism": mechanism,
        "neighbour_relation": NEIGHBOURS[relation],
        "sampler": _one_or_list([_sampler(phase) for phase in phases]),
        "accountant": found.accountant,
        "event": found.event,
        "cross_check": found.cross_check,
        "warnings": list(found.warnings),
        "epsilon": found.epsilon if private else None,
        "delta": delta if private else None,
        "guaranteed": _in_words(found, phases),
        "claimed": claim,
        "clip": _one_or_list(clip),
        "noise_multiplier": _one_or_list([float(phase.noise_multiplier) for phase in phases]),
        "steps": _one_or_list([int(phase.steps) for phase in phases]),
        "chosen_on_private_data": _choices(chosen_on_private_data),
        "holds_for": f"{NOISE_SOURCES[noise_source]}; released: {released} only",
        "public_constants": sorted(constants),
    }


def _clip_bounds(max_grad_norm: float | Sequence[float], phases: int) -> list[float]:
    several = isinstance(max_grad_norm, Sequence) and not isinstance(max_grad_norm, str)
    bounds = list(max_grad_norm) if several else [max_grad_norm] * phases
    if len(bounds) != phases:
        raise InputError("max_grad_norm", f"{len(bounds)} values", f"one, or {phases}: one a phase")
    for bound in bounds:
        real(gt=0).check("max_grad_norm", bound)
    return [float(bound) for bound in bounds]


def _check_constants(constants: Mapping[str, str]) -> None:
    """A bound that was read off the private data tells about them, and no accountant counts it."""
    if "max_grad_norm" not in constants:
        raise InputError("constants", "no word on max_grad_norm", f"max_grad_norm: {PUBLIC}")
    for name, origin in constants.items():
        one_of(PUBLIC).check(f"origin of the constant {name}", origin)


def _check_claim(claimed: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if claimed is None:
        return None
    _check_keys("claimed", claimed, ("epsilon", "delta", "by"))
    real(gt=0).check("claimed epsilon", claimed["epsilon"])
    real(ge=0, lt=1).check("claimed delta", claimed["delta"])
    return dict(claimed)


def _choices(chosen: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | str:
    for choice in chosen or ():
        _check_keys("chosen_on_private_data", choice, ("what", "cost"))
    return [dict(choice) for choice in chosen] if chosen else NOTHING


def _check_keys(where: str, found: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    if set(found) != set(keys):
        raise InputError(where, f"keys {', '.join(found) or 'none'}", " and ".join(keys))


def _sampler(phase: Phase) -> dict[str, Any]:
    sampler = phase.sampler
    return {
        "name": sampler.name,
        "n": int(sampler.n),
        "expected_batch": sampler.expected_batch,
        "sample_rate": sampler.sample_rate,
    }


def _in_words(found: Guarantee, phases: Sequence[Phase]) -> str:
    if math.isfinite(found.epsilon):
        return f"epsilon {found.epsilon:.6g} at delta {found.delta:g} ({found.relation})"
    if any(phase.noise_multiplier == 0 for phase in phases):
        return f"{NOTHING}: no noise"
    return f"{NOTHING}: hardly any noise"


def _one_or_list(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
