"""feature_learning: the simulations that the config asks for, and what each product needs."""

from collections.abc import Mapping, Sequence
from typing import Any

from dpatlas.bounds.single_index import link
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError
from dpatlas.specs.common import run_spec

KEY = "feature_learning"
MODULE = "dpatlas.experiments.feature_learning"
AXES = ("n", "p", "d", "epsilon")

FIGURES = {
    "feature_overlap": ("links", "axes"),
    "feature_risk": ("links", "axes"),
}
TABLES = {"feature_risk_table": ("links", "axes", "table")}
# Where the report shows what each of them reproduces.
PLACES = {
    "feature_overlap": "Sec. 3 (nothing is plotted there)",
    "feature_risk": "Theorem 1 (nothing is plotted there)",
    "feature_risk_table": "Theorem 1 (nothing is printed there)",
}
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
    """The base condition, which figures and claims compare at."""
    return {"base": dict(config[KEY]["base"])}


def device(spec: Spec, chosen: str) -> str:
    """numpy alone."""
    return "cpu"


def memory_mb(spec: Spec) -> int:
    """Peak memory of a job in MB: features of the largest condition, or of as many runs as fit."""
    largest = max(point["n"] * point["p"] for point in spec.fields["points"])
    inputs = max(point["n"] * point["d"] for point in spec.fields["points"])
    # Features, twice while they are made, and those of both data sets: at least one run's.
    numbers = 4 * max(largest, min(spec.fields["runs"] * largest, 2**24)) + 6 * inputs
    return round(300 + 4 * numbers / 1e6)


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
