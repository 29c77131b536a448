"""Records of feature_learning in which every claim is true but those that arithmetic refutes.

Overlaps and risks are made up; whether a layer is private follows from the settings alone.
"""

from dataclasses import replace

from committed_claims import CLAIMS
from feature_records import BASE, simulation

from dpatlas.core.seeds import generator, seed
from dpatlas.evidence.claims import judge_claims
from dpatlas.evidence.comparisons import PaperRecords

RUNS, SPREAD = 6, 1e-3
# By arithmetic: the printed noise of the second layer is too little where a record is replaced.
FALSE = {"feat-6b", "feat-6"}
PARTS = {"1": "ab", "2": "abc", "3": "ab", "4": "abc", "5": "ab", "6": "ab"}
EXACT = {"feat-5b", "feat-6a", "feat-6b"}
# Degree and information exponent.
LINKS = {"mixed": (2, 1), "odd": (3, 1), "even": (2, 2)}
# The widths are those at which the printed first layer is private.
SWEEPS = {"n": (1000, 5000, 20_000), "p": (32, 128, 256), "d": (64, 128), "epsilon": (2.0, 8.0)}
# What features see of the direction with endless records; their private and non-private risks
# without it.
SEEN = {"private": 0.6, "direction": 0.8, "nonprivate": 0.7}
RISK_PRIVATE = {"private": 0.75, "direction": 0.65, "random": 0.9, "random-both": 0.85}
RISK = {"nonprivate": 0.6, "random": 0.8}
FEATURES = ("private", "direction", "nonprivate", "random", "random-both", "printed")


def means(features, exponent, d, n, p, epsilon):
    """Measures of one kind of features; None where it is not taken. Risks grow with d."""
    seen = SEEN.get(features, 0.0) * n / (n + 4000) if exponent == 1 else 0.0
    change = d / 1000 - p / 2000 - 0.2 * seen
    return {
        "overlap": 0.1 + seen,
        "cosine": 0.002 + seen,
        "risk_private": RISK_PRIVATE[features] + change if features in RISK_PRIVATE else None,
        "risk": RISK[features] + change if features in RISK else None,
    }


def record(link, axis, values, runs=RUNS, **base):
    """A sweep of `values` along the axis, as the experiment writes it."""
    exponent = LINKS[link][1]
    points = [{**BASE, **base, axis: value} for value in values]
    rows = []
    for point in points:
        for features in FEATURES:
            row = {**point, "features": features}
            for name, mean in means(features, exponent, **point).items():
                axes = {**point, "link": link, "features": features}
                draws = generator(seed("feature_world", use=name, **axes))
                row[name] = None if mean is None else draws.normal(mean, SPREAD, runs).tolist()
            rows.append(row)
    return replace(simulation(link, axis, points, rows, runs), id=f"{link}-{axis}")


def world(runs=RUNS):
    """Groups of records in which every claim is true, but for `FALSE`."""
    return {
        "links": [record(link, "n", SWEEPS["n"], runs) for link in LINKS],
        "axes": [record("mixed", axis, SWEEPS[axis], runs) for axis in ("p", "d", "epsilon")],
    }


def verdicts(groups):
    """Rows of claims.csv on the paper, by claim."""
    rows = judge_claims(CLAIMS, {"feature_learning": PaperRecords({}, groups)}, "test")
    return {row["claim"]: row for row in rows if row["paper"] == "feature_learning"}


def with_verdict(rows, verdict):
    return {name for name, row in rows.items() if row["verdict"] == verdict}


def named(*parts):
    """Ids of entries, with those of the claims that they are parts of."""
    return {f"feat-{part}" for part in parts} | {f"feat-{part.rstrip('abc')}" for part in parts}


def record_of(groups, axis="n", link="mixed"):
    (found,) = (
        each
        for records in groups.values()
        for each in records
        if (each.spec.axis, each.spec.link) == (axis, link)
    )
    return found


def row_of(groups, features, value, axis="n", link="mixed"):
    rows = record_of(groups, axis, link).metrics.rows
    (row,) = (row for row in rows if getattr(row, axis) == value and row.features == features)
    return row
