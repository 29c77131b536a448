"""Small records of feature_learning for its figures.

Overlaps and risks follow laws that tests know; runs differ by a factor that all arms share.
"""

import math

from feature_records import BASE, LINKS, simulation

from dpatlas.formulas.feature_learning.rates import risk_rate

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
    return [
        row("private", learned, learned, risk_private=private(point), risk_floor=floor),
        row("direction", 0.9, 0.9, risk_private=risks["direction"], risk_floor=0.1),
        row("nonprivate", 0.8, 0.8, risk=risks["non-private"], risk_floor=0.2),
        row(
            "random",
            math.sqrt(2 / math.pi / point["d"]),
            0.001,
            risk_private=risks["random private"],
            risk=RANDOM_RISK,
            risk_floor=0.4,
        ),
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
