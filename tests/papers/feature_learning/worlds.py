"""Records of feature_learning to show, and in which all is true that a record can make true.

Beside them a change for every claim that makes it false. Overlaps and risks are made up; whether a
layer is private follows from the settings alone.
"""

from dataclasses import replace

import numpy as np
from committed_claims import record_change
from feature_records import BASE, all_records, simulation
from feature_records import change as change_part
from figure_samples import select
from judged_once import claim_row, claim_rows

from dpatlas.base.seeds import generator, seed
from dpatlas_workflow.evidence.comparisons import PaperRecords
from dpatlas_workflow.evidence.looks import LOOKS

SHOWN = {
    "feature_overlap": lambda: (all_records()[:-1], {}),
    "feature_risk": lambda: (all_records()[:-1], {}),
    "feature_risk_table": lambda: (all_records(), {}),
}
RUNS, SPREAD = LOOKS[0], 1e-3
# The second layer's privacy follows from formulas alone: its printed noise is enough where a record
# is added or removed, and too little where one is replaced.
PROVEN_BY_ARITHMETIC = {"feat-6a"}
REFUTED_BY_ARITHMETIC = {"feat-6b", "feat-6", "feat-8"}
# Information exponents.
LINKS = {"mixed": 1, "odd": 1, "even": 2}
# The widths are those at which the printed first layer is private.
SWEEPS = {"n": (1000, 5000, 20_000), "p": (32, 128, 256), "d": (64, 128), "epsilon": (2.0, 8.0)}
LADDER = [{"d": d, "n": d**2, "p": d} for d in (16, 32, 64, 128)]
VANISHING = [
    {**point, "epsilon": epsilon}
    for point, epsilon in zip(LADDER, (2.0, 1.9, 1.8, 1.7), strict=True)
]
MOST = max(SWEEPS["n"])
# The overlap that features gain in the limit of many records; the private and non-private risks
# without that gain.
SEEN = {"private": 0.6, "direction": 0.8, "nonprivate": 0.7}
RISK_PRIVATE = {"private": 0.75, "direction": 0.65, "random": 0.9, "random-both": 0.85}
RISK = {"nonprivate": 0.6, "random": 0.8}
FEATURES = ("private", "direction", "nonprivate", "random", "random-both", "printed")


def means(features, exponent, d, n, p, epsilon):
    """Measures of one kind of features; None where it is not taken. Risks grow with d."""
    seen = SEEN.get(features, 0.0) * n / (n + 4000) if exponent == 1 else 0.0
    change = d / 1000 - p / 700 - 0.2 * seen
    return {
        "overlap": 0.1 + seen,
        "cosine": 0.002 + seen,
        "risk_private": RISK_PRIVATE[features] + change if features in RISK_PRIVATE else None,
        "risk": RISK[features] + change if features in RISK else None,
    }


def record(link, axis, values):
    """A sweep of `values` along the axis, or of points on a ladder, as the experiment writes it."""
    changes = values if axis == "ladder" else [{axis: value} for value in values]
    points = [{**BASE, **change} for change in changes]
    rows = []
    for point in points:
        for features in FEATURES:
            row = {**point, "features": features}
            for name, mean in means(features, LINKS[link], **point).items():
                axes = {**point, "link": link, "features": features}
                draws = generator(seed("feature_world", use=name, **axes))
                row[name] = None if mean is None else draws.normal(mean, SPREAD, RUNS).tolist()
            rows.append(row)
    simulated = simulation(link, axis, points, rows, RUNS)
    return replace(simulated, id=f"{link}-{sweep(simulated)}")


def sweep(record):
    """What tells the records of a link apart."""
    return "vanishing" if record.spec.vanishes else record.spec.axis


def true_groups():
    """Groups of records in which every claim is true but `REFUTED_BY_ARITHMETIC`."""
    return {
        "links": [record(link, "n", SWEEPS["n"]) for link in LINKS],
        "axes": [record("mixed", axis, SWEEPS[axis]) for axis in ("p", "d", "epsilon")],
        **{
            group: [record(link, "ladder", points) for link in LINKS if LINKS[link] == 1]
            for group, points in (("ladders", LADDER), ("vanishing", VANISHING))
        },
    }


def verdicts(groups):
    return claim_rows("feature_learning", paper(groups))


def row_of(groups, name):
    return claim_row("feature_learning", paper(groups), name)


def paper(groups):
    return PaperRecords({}, groups)


def record_of(groups, axis="n", link="mixed"):
    """The one record of this link along this axis."""
    (record,) = (
        record
        for records in groups.values()
        for record in records
        if (sweep(record), record.spec.link) == (axis, link)
    )
    return record


def rows_of(groups, features, value, axis="n", link="mixed"):
    """The rows, by run, of one kind of features at one value of the axis."""
    rows = record_of(groups, axis, link).tables["rows"]
    return select(
        rows, features=features, **{"d" if axis in ("ladder", "vanishing") else axis: value}
    )


def values_of(groups, measure, *condition):
    """A measure of all runs; `condition` as `rows_of` takes it."""
    return [row[measure] for row in rows_of(groups, *condition)]


@record_change
def shift(groups, measure, by, *condition):
    """The change that adds `by`, one number or one for each run, to a measure of all runs."""
    for row, each in zip(rows_of(groups, *condition), np.broadcast_to(by, RUNS), strict=True):
        row[measure] += each


# By entry of claims.yaml, a change of the records that refutes it.
REFUTING = {
    "feat-1a": shift("overlap", -0.25, "private", 5000),
    "feat-1b": shift("overlap", 0.06, "private", MOST, "n", "even"),
    "feat-2a": shift("risk_private", -0.3, "random", MOST),
    "feat-2b": shift("risk_private", -0.3, "random", MOST, "n", "odd"),
    "feat-2c": shift("risk_private", -0.25, "random-both", MOST),
    "feat-2d": shift("risk_private", -0.25, "random-both", MOST, "n", "odd"),
    "feat-2e": shift("risk_private", 0.2, "direction", MOST, "n", "odd"),
    "feat-3a": shift("risk_private", -0.12, "private", 1000),
    "feat-3b": shift("risk_private", -0.12, "private", 1000, "n", "odd"),
    "feat-3c": shift("risk_private", 0.1, "private", 5000),
    "feat-3d": shift("risk_private", 0.1, "private", 5000, "n", "odd"),
    "feat-4a": shift("risk_private", 0.5, "private", 256, "p"),
    "feat-4b": shift("risk_private", 0.5, "direction", 256, "p"),
    "feat-4c": shift("risk", 0.5, "nonprivate", 256, "p"),
    "feat-5a": shift("cosine", 0.06, "printed", MOST),
    # A width beyond that which the printed noise hides.
    "feat-5b": lambda groups: change_part(record_of(groups, "p").spec.points[0], p=2000),
    "feat-7a": shift("risk_private", -0.3, "private", 16, "ladder"),
    "feat-7b": shift("risk_private", -0.3, "private", 16, "ladder", "odd"),
    "feat-7c": shift("risk_private", 0.1, "private", 128, "ladder"),
    "feat-7d": shift("risk_private", 0.1, "private", 128, "ladder", "odd"),
    "feat-9a": shift("risk_private", -0.3, "private", 16, "vanishing"),
    "feat-9b": shift("risk_private", -0.3, "private", 16, "vanishing", "odd"),
    "feat-9c": shift("risk_private", 0.1, "private", 128, "vanishing"),
    "feat-9d": shift("risk_private", 0.1, "private", 128, "vanishing", "odd"),
}


def changed(change):
    groups = true_groups()
    change(groups)
    return groups


FALSE = {entry: lambda change=change: paper(changed(change)) for entry, change in REFUTING.items()}


def world():
    """Records in which every entry is reproduced, except `REFUTED_BY_ARITHMETIC`."""
    return paper(true_groups())
