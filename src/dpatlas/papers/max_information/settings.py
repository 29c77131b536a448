"""max_information: the jobs that the config asks for, and which of them each product needs."""

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from dpatlas.config.common import run_spec
from dpatlas.config.sizes import check_records
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.certificates import check_budget
from dpatlas.papers.max_information.formulas.universe import setting_weight
from dpatlas.papers.max_information.looks import counted, looks_of, network_of, ranked

KEY = "max_information"

# The grid is ranked before the first job: the papers' has 140.
MOST_TUPLES = 20_000
LEVELS = ("delta", "delta_mc", "beta", "privacy_delta")


def groups(config: Mapping[str, Any]) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `certificates`: priors of one data set, `priors_per_job` in a job, with all their taus and runs.
    `agreement`: two ways to draw risks. `coefficients`, `kappa`, `simulation`: no data.
    """
    block = config[KEY]
    _check(block)
    return {
        "certificates": [
            spec
            for chosen in block["certificates"]["sets"]
            for spec in _certificates(config, chosen)
        ],
        "agreement": [_agreement(config)],
        **{
            kind: [run_spec(config, KEY, kind, block[kind], kind)]
            for kind in ("coefficients", "kappa", "simulation")
        },
    }


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing: figures, tables and claims are made of the records alone."""
    return {}


def priors_of(chosen: Mapping[str, Any], beta: float) -> list[dict[str, Any]]:
    """Every prior of a data set: independent, DP-SGD by kappa, and DP-SGD's noise alone.

    The steps that noise alone takes do not depend on zeta: one control for each rate and E.
    """
    tuples = [
        {"zeta": float(zeta), "sigma": float(sigma), "m": m, "E": E, "lr": float(lr)}
        for zeta, sigma, m, E, lr in ranked(
            chosen["grid"], chosen["K1"], chosen["data"]["n_train"], beta
        )
    ]
    controls = {(each["lr"], each["E"]): each for each in reversed(tuples)}
    return [
        {"kind": "independent"},
        *({"kind": "dp-sgd", **each} for each in tuples),
        *({"kind": "noise-only", **each} for each in reversed(controls.values())),
    ]


def _certificates(config: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[Spec]:
    fields, priors = _certified(config, chosen)
    size = chosen["priors_per_job"]
    return [
        run_spec(
            config,
            KEY,
            "certificates",
            {**fields, "priors": priors[first : first + size]},
            f"certificates-{_name(chosen)}-{first // size}",
        )
        for first in range(0, len(priors), size)
    ]


def _agreement(config: Mapping[str, Any]) -> Spec:
    """One DP-SGD prior of a data set, with `repetitions` counts by either method."""
    block = config[KEY]
    own = block["agreement"]
    chosen = block["certificates"]["sets"][own["set"]]
    fields, priors = _certified(config, chosen)
    fields |= {
        "priors": [prior for prior in priors if prior["kind"] == "dp-sgd"][:1],
        "taus": [fields["grid"]["taus"][0]],
        "draws": own["draws"],
        "repetitions": own["repetitions"],
        "runs": 1,
    }
    return run_spec(config, KEY, "agreement", fields, f"agreement-{_name(chosen)}")


def _certified(
    config: Mapping[str, Any], chosen: Mapping[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Fields of the jobs of a data set, and all its priors.

    K1 and K2 pay for all that the looks at the same records tried, K1 for no less than declared.
    """
    block = config[KEY]
    shared = {name: value for name, value in block["certificates"].items() if name != "sets"}
    levels = {name: float(block[name]) for name in LEVELS}
    own = {name: value for name, value in chosen.items() if name != "priors_per_job"}
    grid = _reals(chosen["grid"])
    looks = looks_of(block["looks"], chosen, config["seed"])
    looks["others"] = [{**each, "grid": _reals(each["grid"])} for each in looks["others"]]
    n, beta = chosen["data"]["n_train"], levels["beta"]
    K1, K2 = counted(looks, ranked(grid, chosen["K1"], n, beta), grid["taus"], beta)
    own |= {"grid": grid, "data": {**chosen["data"], "n_add": 0}, "looks": looks}
    own |= {"tuples": chosen["K1"], "taus": grid["taus"], "K1": max(K1, chosen["K1"]), "K2": K2}
    return {**levels, **shared, **own}, priors_of(chosen, beta)


def _reals(grid: Mapping[str, Any]) -> dict[str, Any]:
    """A grid with numbers as the reals that they stand for."""
    reals = {name: [float(value) for value in grid[name]] for name in ("zetas", "lrs", "taus")}
    return {**grid, **reals, "sigma": float(grid["sigma"])}


def _name(chosen: Mapping[str, Any]) -> str:
    return f"{chosen['data']['name']}-{chosen['model']}"


def _check(block: Mapping[str, Any]) -> None:
    sets: Sequence[Mapping[str, Any]] = block["certificates"]["sets"]
    try:
        check_budget(block["delta"], block["delta_mc"], block["beta"])
    except InputError as error:
        raise InputError(f"{KEY}.{error.where}", error.found, error.allowed) from None
    for name, look in block["looks"].items():
        _check_grid(f"{KEY}.looks.{name}.set", look["set"])
    for i, chosen in enumerate(sets):
        place = f"{KEY}.certificates.sets.{i}"
        check_records(f"{place}.data", chosen["data"])
        _check_grid(place, chosen)
        n = chosen["data"]["n_train"]
        if chosen["training"]["batch"] > n:
            found = chosen["training"]["batch"]
            raise InputError(f"{place}.training.batch", found, f"at most n_train = {n}")
        _check_universe(place, chosen)
    if block["agreement"]["set"] >= len(sets):
        allowed = f"a place among the {len(sets)} sets, from 0"
        raise InputError(f"{KEY}.agreement.set", block["agreement"]["set"], allowed)


def _check_grid(place: str, chosen: Mapping[str, Any]) -> None:
    n = chosen["data"]["n_train"]
    if chosen["grid"]["m"] > n:
        raise InputError(f"{place}.grid.m", chosen["grid"]["m"], f"at most n_train = {n}")
    tuples = math.prod(len(chosen["grid"][name]) for name in ("zetas", "lrs", "epochs"))
    if tuples > MOST_TUPLES:
        found = f"{tuples} tuples of zetas, lrs and epochs"
        raise InputError(f"{place}.grid", found, f"at most {MOST_TUPLES}")


def _check_universe(place: str, chosen: Mapping[str, Any]) -> None:
    """Every setting of a set has a weight: one at a time of each list, since weights multiply."""
    grid = chosen["grid"]
    spans = {"zeta": "zetas", "lr": "lrs", "E": "epochs", "tau": "taus"}
    for row in zip_longest(*(grid[name] for name in spans.values())):
        values = {
            one: grid[name][0] if value is None else value
            for (one, name), value in zip(spans.items(), row, strict=True)
        }
        try:
            setting_weight(
                kind="dp-sgd",
                **network_of(chosen),
                **values,
                tau_is="deviation",
                **{name: grid[name] for name in ("sigma", "m")},
                **{"n": chosen["data"]["n_train"], "look": 1, "run": 0},
            )
        except InputError as error:
            raise InputError(f"{place}.{error.where}", error.found, error.allowed) from None
