"""feature_learning: the simulations that the config asks for, and what each product needs."""

from collections.abc import Mapping, Sequence
from typing import Any

from dpatlas.config.common import run_spec
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError
from dpatlas.papers.feature_learning.formulas.single_index import link

KEY = "feature_learning"
AXES = ("n", "p", "d", "epsilon")
SHARED_FIELDS = ("delta", "runs", "steps", "n_test", "sharing")


def groups(config: Mapping[str, Any]) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `links`: every link along n. `axes`: the base link along p, d and epsilon. `table`: pairs of p
    and n. All else is as `base` says.
    """
    block = config[KEY]
    _check(block)
    base, sweeps = block["base"], block["sweeps"]
    return {
        "links": [_sweep(config, name, "n", sweeps["n"]) for name in block["links"]],
        "axes": [
            _sweep(config, base["link"], axis, sweeps[axis]) for axis in AXES[1:] if sweeps[axis]
        ],
        "table": [_table(config, block["table"])] if block["table"] else [],
    }


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing: figures, tables and claims are made of the records alone."""
    return {}


def _sweep(config: Mapping[str, Any], name: str, axis: str, values: Sequence[float]) -> Spec:
    points = [{axis: value} for value in values]
    return _simulation(config, name, axis, points, f"{name}-{axis}")


def _table(config: Mapping[str, Any], pairs: Sequence[Mapping[str, int]]) -> Spec:
    return _simulation(config, config[KEY]["base"]["link"], "table", pairs, "table")


def _simulation(
    config: Mapping[str, Any], name: str, axis: str, points: Sequence[Mapping[str, Any]], slug: str
) -> Spec:
    block = config[KEY]
    base = {each: block["base"][each] for each in AXES}
    whole = [{**base, **point} for point in points]
    fields = {
        "link": name,
        "polynomial": [float(value) for value in block["links"][name]],
        "axis": axis,
        "points": [{**point, "epsilon": float(point["epsilon"])} for point in whole],
        **{each: block[each] for each in SHARED_FIELDS},
        "clip_quantiles": {layer: float(value) for layer, value in block["clip_quantiles"].items()},
        "penalty_per_neuron": _real_or_none(block["penalty_per_neuron"]),
    }
    return run_spec(config, KEY, "simulation", fields, slug)


def _real_or_none(value: float | None) -> float | None:
    return None if value is None else float(value)


def _check(block: Mapping[str, Any]) -> None:
    for name, coefficients in block["links"].items():
        try:
            link(coefficients)
        except InputError as error:
            raise InputError(f"{KEY}.links.{name}", error.found, error.allowed) from None
    base, sweeps = block["base"], block["sweeps"]
    if base["link"] not in block["links"]:
        allowed = "one of " + ", ".join(block["links"])
        raise InputError(f"{KEY}.base.link", repr(base["link"]), allowed)
    # The report's rates are powers of n / d.
    points = [(f"{KEY}.base", base)]
    for axis in ("n", "d"):
        points += [
            (f"{KEY}.sweeps.{axis}.{i}", {**base, axis: value})
            for i, value in enumerate(sweeps[axis])
        ]
    points += [(f"{KEY}.table.{i}", {**base, **pair}) for i, pair in enumerate(block["table"])]
    for place, point in points:
        if point["n"] <= point["d"]:
            raise InputError(place, f"n = {point['n']} with d = {point['d']}", "n > d")
