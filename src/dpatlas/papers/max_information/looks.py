"""Looks at the certificates of max_information: which grids were tried on which records.

The config's `max_information.looks` is a register that is only ever added to. A look is a run of
one set of `certificates.sets` under one base seed whose certificates somebody saw; a repetition
that a change of the program forces, and no certificate, replaces it and is no look. Whatever is
chosen after a look depends on the records, so K1 and K2 count what all looks at the same records
tried, and a certificate of a later look says so.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dpatlas.papers.max_information.formulas.certificates import check_tried
from dpatlas.papers.max_information.formulas.published import PriorGrid
from dpatlas.papers.max_information.records.certified import CertifiedFields, Looks

# Sets of which another selection has records of its own; of the others it deals the same ones.
GENERATED = ("fonts", "strokes")
# What a set has beside the settings of its certificates.
NOT_TRIED = ("priors_per_job",)

Fields = Mapping[str, Any]
# zeta, sigma, m, E, lr.
DpSgdTuple = tuple[float, float, int, int, float]


def records_name(data: Fields) -> str:
    """Which records a data block deals: looks at any part of them are looks at the same ones."""
    selection = data.get("selection", 0)
    return f"{data['name']}, selection {selection}" if data["name"] in GENERATED else data["name"]


def looks_of(register: Mapping[str, Fields], chosen: Fields, seed: int) -> dict[str, Any]:
    """The place of a set among all looks at its records, for the spec of its jobs.

    register: the config's `looks`. `number` counts from 1; a set that is not registered is the next
    one. `others`: what else was tried on the same records; when, and what was changed then, stands
    in the register alone, whose words no record depends on.
    """
    same = [
        (name, look)
        for name, look in register.items()
        if records_name(look["set"]["data"]) == records_name(chosen["data"])
    ]
    ours = [
        number
        for number, (_, look) in enumerate(same, start=1)
        if look["seed"] == seed and _tried(look["set"]) == _tried(chosen)
    ]
    number = ours[-1] if ours else len(same) + 1
    others = [
        {
            "look": name,
            "n": look["set"]["data"]["n_train"],
            "K1": look["set"]["K1"],
            "grid": look["set"]["grid"],
        }
        for other, (name, look) in enumerate(same, start=1)
        if other != number
    ]
    return {"number": number, "registered": bool(ours), "others": others}


def label_of(looks: Looks) -> dict[str, Any]:
    """The fields of `LookLabel`: what a row of certificates says of the looks behind it."""
    others = " and ".join(other.look for other in looks.others)
    unregistered = "" if looks.registered else ", not in the register"
    beside = f"; others: {others}" if others else ", and the only one"
    return {
        "selected_after_a_look": bool(others),
        "looks": f"look {looks.number} at these records{unregistered}{beside}",
    }


def ranked(grid: Fields, K1: int, n: int, beta: float) -> list[DpSgdTuple]:
    """The K1 tuples of lowest kappa of a grid on n records, or all there are."""
    declared = PriorGrid(
        zetas=tuple(grid["zetas"]),
        learning_rates=tuple(grid["lrs"]),
        epochs=tuple(grid["epochs"]),
        taus=tuple(grid["taus"]),
        m=grid["m"],
        sigma=grid["sigma"],
        K1=K1,
        beta=beta,
        # kappa does not depend on these.
        delta=1.0,
        delta_mc=0.0,
        draws=1,
    )
    return [
        (each.zeta, grid["sigma"], grid["m"], each.E, each.learning_rate)
        for each in declared.lowest_kappa(n // grid["m"])
    ]


def counted(
    looks: Fields, tuples: Iterable[tuple[Any, ...]], taus: Iterable[float], beta: float
) -> tuple[int, int]:
    """How many different tuples and deviations `tuples`, `taus` and all other looks tried."""
    tried: set[tuple[Any, ...]] = set(tuples)
    deviations = set(taus)
    for other in looks["others"]:
        tried |= set(ranked(other["grid"], other["K1"], other["n"], beta))
        deviations |= set(other["grid"]["taus"])
    return len(tried), len(deviations)


def check_paid(
    fields: CertifiedFields, tuples: Iterable[tuple[Any, ...]], taus: Iterable[float]
) -> None:
    """Raise `InputError` unless K1 and K2 of a spec pay for all that was tried on its records."""
    tried_tuples, tried_taus = counted(fields.looks.model_dump(), tuples, taus, fields.beta)
    check_tried(tried_tuples, tried_taus, fields.K1, fields.K2)


def _tried(chosen: Fields) -> dict[str, Any]:
    data = {"selection": 0, **chosen["data"]}
    return {name: chosen[name] for name in chosen if name not in NOT_TRIED} | {"data": data}
