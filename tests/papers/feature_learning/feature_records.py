"""Small records of feature_learning: a test makes up the measures, or they follow laws it knows.

All else follows from the spec; runs differ by a factor that all arms share.
"""

import math

import yaml
from figure_samples import sample_record

from dpatlas.base.records import rows_of
from dpatlas.formulas.feature_learning.rates import risk_rate
from dpatlas.formulas.feature_learning.single_index import link as link_of
from dpatlas_workflow.papers.feature_learning.jobs.rules import ClipBounds, Rules, link_facts
from dpatlas_workflow.papers.feature_learning.jobs.simulation import MEASURES
from dpatlas_workflow.papers.feature_learning.records.simulation import FeatureSimulationSpec

BASE = {"d": 64, "n": 20_000, "p": 128, "epsilon": 2.0}
LINKS = {"mixed": [-0.5, 1.0, 0.5], "odd": [0.0, -0.5, 0.0, 0.5], "even": [-1.0, 0.0, 1.0]}
SETTINGS = yaml.safe_load("""
{delta: 1.0e-5, steps: 100, n_test: 4000, sharing: split, clip_quantiles: {first: 0.5, second: 0.9},
 penalty_per_neuron: 1.0e-3, seed: 0, noise_source: keyed}
""")
BOUNDS = ClipBounds(matrix=1.0, direction=1.0, head=1.0)


def simulation(link, axis, points, rows, runs, warnings=(), **changes):
    """A record of `points`; rows: dicts with d, n, p, epsilon, features and measures by run."""
    settings = {**SETTINGS, **changes}
    target = link_of(LINKS[link])
    fields = {"key": "feature_learning", "kind": "simulation", "link": link, "axis": axis}
    fields |= {"polynomial": LINKS[link], "points": points, "runs": runs, **settings}
    shared = {name: settings[name] for name in ("delta", "steps", "sharing", "penalty_per_neuron")}
    conditions = [Rules(link=target, bounds=BOUNDS, **point, **shared).facts() for point in points]
    facts = {**link_facts(target), "conditions": conditions, "warnings": list(warnings)}
    by_run = []
    for row in rows:
        measures = {name: row.get(name) or [None] * runs for name in MEASURES}
        of_row = rows_of({"run": range(runs)}, **measures)
        by_run += [each | {name: row[name] for name in (*BASE, "features")} for each in of_row]
    return sample_record(
        FeatureSimulationSpec(**fields), {**facts, "rows": by_run}, f"{link}-{axis}"
    )


def change(part, **values):
    """Set fields of a part of a record, which code cannot."""
    vars(part).update(values)


SWEEPS = {
    "n": [500, 1000, 2000, 5000, 20_000],
    "p": [32, 128, 512],
    "d": [16, 64, 128],
    "epsilon": [0.5, 1.0, 2.0, 8.0],
    # n = d^2 and p = d.
    "ladder": [16, 32, 64],
    # The same, with an epsilon that falls.
    "vanishing": [16, 32, 64],
}
DELTA, R0, C = 1e-5, 0.3, 0.5
# Log-log slopes of risk in n, at risk 1 for n = 1.
SLOPES = {"direction": -0.2, "random private": -0.05, "non-private": -0.1}
RANDOM_RISK = 0.5


def simulation_record(axis="n", name="mixed", values=None, runs=3, private=None, **changes):
    """A sweep of one link along an axis or a ladder, or a table of pairs (p, n).

    private: risk of the private network by condition; the fitted rate's law by default.
    """
    values = SWEEPS[axis] if values is None else values
    conditions = {
        "table": lambda pair: {"p": pair[0], "n": pair[1]},
        "ladder": lambda d: {"d": d, "n": d**2, "p": d},
        "vanishing": lambda d: {"d": d, "n": d**2, "p": d, "epsilon": 32 / d},
    }
    condition = conditions.get(axis, lambda value: {axis: value})
    points = [{**BASE, **condition(value)} for value in values]
    rows = [row for point in points for row in point_rows(point, runs, private or rate_law)]
    if changes.get("sharing") == "shared":
        rows = [row for row in rows if row["features"] != "random-both"]
    warnings = ["information exponent 2, Assumption 1 wants 1"] if name == "even" else []
    axis = "ladder" if axis == "vanishing" else axis
    return simulation(name, axis, points, rows, runs, warnings, **changes)


def rate_law(point):
    """The report's rate."""
    return R0 + C * float(risk_rate(point["n"], point["d"], point["epsilon"], DELTA))


def point_rows(point, runs, private):
    """The rows of one condition."""

    def row(features, overlap, cosine, **risks):
        values = {"overlap": overlap, "cosine": cosine}
        values |= dict.fromkeys(("risk_private", "risk", "risk_floor")) | risks
        spread = {
            name: None if value is None else [value * factor(run, runs) for run in range(runs)]
            for name, value in values.items()
        }
        return {**point, "features": features, **spread, "clipped": None}

    n = point["n"]
    learned = 0.7 * n / (n + 5000)
    risks = {name: n**slope for name, slope in SLOPES.items()}
    floor = 0.8 * private(point)
    random = {"risk_private": risks["random private"], "risk": RANDOM_RISK, "risk_floor": 0.4}
    return [
        row("private", learned, learned, risk_private=private(point), risk_floor=floor),
        row("direction", 0.9, 0.9, risk_private=risks["direction"], risk_floor=0.1),
        row("nonprivate", 0.8, 0.8, risk=risks["non-private"], risk_floor=0.2),
        row("random", math.sqrt(2 / math.pi / point["d"]), 0.001, **random),
        row("random-both", 0.1, 0.001, risk_private=0.9 * risks["random private"]),
        row("printed", 0.1, 0.002),
    ]


def factor(run, runs):
    """The factor of a run's measures, 1 on average."""
    return 1 + 0.02 * (run - (runs - 1) / 2)


def all_records(**changes):
    """Every link along n, mixed along the other axes, four ladders, and a table."""
    return [
        *(simulation_record("n", name, **changes) for name in LINKS),
        *(simulation_record(axis, **changes) for axis in ("p", "d", "epsilon")),
        *(simulation_record("ladder", name, **changes) for name in ("mixed", "odd")),
        *(simulation_record("vanishing", name, **changes) for name in ("mixed", "odd")),
        simulation_record("table", values=[(128, 2000), (2000, 20_000)], **changes),
    ]
