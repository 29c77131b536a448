"""Looks at the certificates of max_information: which grids were tried on which records.

The config's `max_information.looks` is a register that is only ever added to. A look is a run of
one set of `certificates.sets` under one base seed whose certificates somebody saw; a repetition
that a change of the program forces, and no certificate, replaces it and is no look. Whatever is
chosen after a look depends on the records, so K1 and K2 count what all looks at the same records
tried, and a certificate of a later look says so.
"""

from collections.abc import Mapping
from typing import Any

# Sets of which another selection has records of its own; of the others it deals the same ones.
GENERATED = ("fonts", "strokes")
# What a set has beside the settings of its certificates.
NOT_TRIED = ("priors_per_job",)

Fields = Mapping[str, Any]


def records_name(data: Fields) -> str:
    """Which records a data block deals: looks at any part of them are looks at the same ones."""
    selection = data.get("selection", 0)
    return f"{data['name']}, selection {selection}" if data["name"] in GENERATED else data["name"]


def looks_of(register: Mapping[str, Fields], given: Fields, seed: int) -> dict[str, Any]:
    """The place of a set among all looks at its records, for the spec of its jobs.

    register: the config's `looks`. `number` counts from 1; a set that is not registered is the next
    one. `others`: what else was tried on the same records; when, and what was changed then, stands
    in the register alone, whose words no record depends on.
    """
    same = [
        (name, look)
        for name, look in register.items()
        if records_name(look["set"]["data"]) == records_name(given["data"])
    ]
    ours = [
        number
        for number, (_, look) in enumerate(same, start=1)
        if look["seed"] == seed and _tried(look["set"]) == _tried(given)
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


def _tried(given: Fields) -> dict[str, Any]:
    data = {"selection": 0, **given["data"]}
    return {name: given[name] for name in given if name not in NOT_TRIED} | {"data": data}
