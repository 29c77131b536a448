"""Looks at the certificates of max_information: which grids were tried on which records.

The config's `max_information.looks` is a register that is only ever added to. A look is a study of
one entry of `certificates.sets` under one base seed whose certificates somebody saw: all its runs
together, however many, since they repeat the same settings. A study that is repeated because the
program changed, and not because of any certificate, replaces the earlier one and is not a new look.
(The numbers of runs at which verdicts on claims are read are called looks too; they are no looks in
this sense, because nothing is chosen after them but the number of runs.) Whatever is chosen after a
look depends on the records. Therefore K1 and K2 count everything that all looks at the same records
tried, and certificates of a later look are labelled.

What counts as the same records is decided so that no dependence is missed:

    a set with an end   all its records, whichever parts, selections or deals a look had: two deals
                        of the digits share most of their records, so that a setting chosen after
                        the certificates of one deal depends on the records of all others
    a generated set     the records of one selection; where every run draws records of its own,
                        those of all runs under one base seed, since the settings of one run are
                        those of all. Records under another base seed are independent of them, and
                        what is chosen after certificates of those costs nothing
"""

from collections.abc import Mapping
from typing import Any

# Generated data sets: another `selection` draws new records. Of any other data set it selects from
# the same records.
GENERATED = ("fonts", "strokes")
# Keys of a set on which its certificates do not depend.
WITHOUT_EFFECT = ("priors_per_job",)

Fields = Mapping[str, Any]


def records_name(data: Fields, seed: int) -> str:
    """Name of the pool of records that a data block takes its records from, under a base seed.

    Looks at any parts of one pool count as looks at the same records. `redeal` counts as false
    where it is not given.
    """
    if data["name"] not in GENERATED:
        return data["name"]
    if data.get("redeal"):
        return f"{data['name']}, drawn by every run of base seed {seed}"
    return f"{data['name']}, selection {data.get('selection', 0)}"


def looks_of(register: Mapping[str, Fields], certified: Fields, seed: int) -> dict[str, Any]:
    """How the spec of a job describes the looks at the records of the set `certified`.

    register: the config's `looks`. certified: with `redeal` as a spec has it. `number` counts the
    looks from 1; a set that is not registered is the next one. `others` are the grids of all other
    looks at the same records; their dates and remarks stay in the register, so that no record
    depends on its wording.
    """
    at_same_records = [
        (name, look)
        for name, look in register.items()
        if records_name(look["set"]["data"], look["seed"]) == records_name(certified["data"], seed)
    ]
    registered = [
        number
        for number, (_, look) in enumerate(at_same_records, start=1)
        if look["seed"] == seed and _with_effect(look["set"]) == _with_effect(certified)
    ]
    number = registered[-1] if registered else len(at_same_records) + 1
    others = [
        {
            "look": name,
            "n": look["set"]["data"]["n_train"],
            "K1": look["set"]["K1"],
            "grid": look["set"]["grid"],
        }
        for other, (name, look) in enumerate(at_same_records, start=1)
        if other != number
    ]
    return {"number": number, "registered": bool(registered), "others": others}


def _with_effect(certified: Fields) -> dict[str, Any]:
    """The settings on which the certificates of a set depend."""
    data = {"selection": 0, "redeal": False, **certified["data"]}
    settings = {name: certified[name] for name in certified if name not in WITHOUT_EFFECT}
    return settings | {"data": data}
