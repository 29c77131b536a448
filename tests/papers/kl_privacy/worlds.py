"""Records of kl_privacy to show, in which every claim is true, and changes that make one false."""

import itertools
import math
from functools import partial

import numpy as np
from committed_claims import record_change
from figure_samples import select
from judged_once import claim_row, claim_rows
from kl_sample_records import (
    INITS,
    RECORDS,
    SETTINGS,
    constants_record,
    linearized_record,
    training_record,
)

from dpatlas_workflow.evidence.comparisons import PaperRecords

SHOWN = {name: lambda make=make: (make(), SETTINGS) for name, make in RECORDS.items()}
LEVEL = {"lecun": 1.0, "xavier": 1.5, "he": 10.0, "ntk": 20.0}
HORIZONS = {"early": 8, "short": 16, "long": 40}
DEPTHS = (2, 4, 6, 8, 10)
STEPS, RUNS, LR, SIGMA = 40, 12, 0.01, 0.1


def growth(step):
    """Near linear before step 8, near cubic after 16."""
    return step * (1 + (step / 30) ** 2)


def depth_factor(init, depth, step):
    """Rises with depth, but for a maximum at depth 8 in the short training of LeCun and Xavier."""
    if init in ("lecun", "xavier") and step <= HORIZONS["short"]:
        return math.exp(-((depth - 8) ** 2) / 4)
    return math.exp(depth / 4)


def training(init, depth, width, curve, **fields):
    sizes = {"steps": STEPS, "runs": RUNS, "lr": LR, "sigma": SIGMA, **fields}
    return training_record(init, depth, width, curve=curve, noise=0.01, **sizes)


def bounds(init):
    """Far below the first term of Lemma 3.2, 2 T gap / (4 sigma^2)."""
    gap = 1e-3
    return training(init, 4, 16, lambda step: 0.5 * LR * step * gap / (4 * SIGMA**2))


def true_groups():
    return {
        "epochs": [training(i, 3, 16, lambda s, i=i: LEVEL[i] * growth(s)) for i in INITS],
        "early": [
            training(i, 3, 16, lambda s, i=i: LEVEL[i] * growth(s), steps=8, networks=2)
            for i in INITS
        ],
        "depth": [
            training(i, d, 16, lambda s, i=i, d=d: LEVEL[i] * depth_factor(i, d, s) * growth(s))
            for i, d in itertools.product(INITS, DEPTHS)
        ],
        "width": [
            training(i, 3, w, lambda s, i=i, w=w: LEVEL[i] * w * growth(s))
            for i, w in itertools.product(INITS, (8, 16, 32))
        ],
        "bounds": [bounds(i) for i in INITS],
        "linearized": [linearized_record(i, (2, 4, 6), runs=RUNS, noise=0.01) for i in INITS],
        "constants": [constants_record()],
    }


def paper(groups, horizons=HORIZONS):
    return PaperRecords({"horizons": horizons}, groups)


def verdicts(records):
    return claim_rows("kl_privacy", records)


def row_of(records, name):
    return claim_row("kl_privacy", records, name)


def find(groups, group, init, **spec):
    """The one record of a group with this init and these fields of its spec."""
    (record,) = (
        record
        for record in groups[group]
        if record.spec.init == init
        and all(getattr(record.spec, name) == value for name, value in spec.items())
    )
    return record


@record_change
def scaled(groups, group, init, factor, noise=0.0, curve="kl_max", **spec):
    """The change that multiplies KL at step s by factor(s), and spreads the runs by `noise`."""
    spread = np.exp(np.random.default_rng(9).normal(0, noise, RUNS))
    for row in find(groups, group, init, **spec).tables["curves"]:
        row[curve] *= factor(row["step"]) * spread[row["run"]]


def by(number):
    """The same factor at every step."""
    return lambda step: number


@record_change
def tilted(groups, init, column, factor, axis="depth"):
    """The change that multiplies a column of a `linearized` record by factor(depth or width)."""
    for row in find(groups, "linearized", init).tables[f"{axis}s"]:
        row[column] *= factor(row[axis])


def longer(init, column, axis):
    """The change by which R grows with depth or width."""
    growth = (lambda at: math.exp(2 * at)) if axis == "depth" else (lambda at: at**2.0)
    return tilted(init, column, growth, axis)


def fixed_noise(init, sign):
    """The change by which KL at a fixed noise moves with depth to the other side."""
    return tilted(init, "kl_fixed", lambda depth: math.exp(sign * 2 * depth))


def above_the_corollary(groups):
    """Above a hundredth of the budget in the first hundredth of the time, and below all of it.

    The watched record's KL alone refutes; the largest record's would show nothing.
    """
    for row in select(find(groups, "linearized", "he").tables["shares"], depth=4, share=0.01):
        row["kl_watched"] *= 10


def rising_constant(groups):
    for row in find(groups, "linearized", "lecun").tables["depths"]:
        row["B"] *= 100.0 if row["depth"] == 6 else 1.0


def off_in_monte_carlo(groups):
    row = groups["constants"][0].tables["rows"][3]
    row["mean"] = 1.2 * row["B"]


def falling_late(init):
    """The change by which the deepest network has the least KL in long training."""
    return scaled("depth", init, lambda step: 0.01 if step > HORIZONS["short"] else 1.0, depth=10)


# By entry of claims.yaml, a change of the records that refutes it.
REFUTING = {
    "kl-1a": scaled("epochs", "he", lambda step: 0.5 if step > 20 else 1.0),
    "kl-1b": scaled("early", "he", lambda step: step),
    # Slower than linear from the early horizon on.
    "kl-1c": scaled("epochs", "lecun", lambda step: 1 / step),
    "kl-1d": scaled("epochs", "he", lambda step: 1 / step),
    "kl-1e": scaled("epochs", "ntk", lambda step: 1 / step),
    "kl-1f": scaled("epochs", "xavier", lambda step: 1 / step),
    "kl-2": scaled("epochs", "lecun", by(15)),
    # The first dips between two widths, the others end lower than they start.
    "kl-3a": scaled("width", "lecun", by(0.4), width=16),
    "kl-3b": scaled("width", "he", by(0.01), width=32),
    "kl-3c": scaled("width", "ntk", by(0.01), width=32),
    "kl-3d": scaled("width", "xavier", by(0.01), width=32),
    "kl-4a": scaled("depth", "he", by(0.1), depth=10),
    "kl-4b": scaled("depth", "lecun", by(20), depth=10),
    "kl-4c": scaled("depth", "xavier", by(20), depth=10),
    "kl-4d": scaled("depth", "xavier", by(20), depth=10),
    "kl-4e": scaled("depth", "lecun", by(2000), depth=4),
    "kl-5a": falling_late("lecun"),
    "kl-5b": falling_late("he"),
    "kl-5c": falling_late("ntk"),
    "kl-5d": falling_late("xavier"),
    # Ten times the bound at the first step, a hundredth of that at the last.
    "kl-6a": scaled(
        "bounds", "he", lambda step: 400 if step == 1 else 1.0, noise=0.1, curve="kl_watched"
    ),
    "kl-6b": above_the_corollary,
    "kl-7": off_in_monte_carlo,
    # B R / n halves with every layer.
    "kl-8a": tilted("xavier", "BR_over_n_sphere", lambda depth: 2.0**-depth),
    "kl-8b": tilted("lecun", "BR_over_n", lambda depth: 2.0**-depth),
    "kl-9a": rising_constant,
    "kl-9b": fixed_noise("lecun", 1),
    "kl-9c": fixed_noise("xavier", 1),
    "kl-9d": fixed_noise("he", -1),
    "kl-9e": fixed_noise("ntk", -1),
    "kl-10a": tilted("he", "excess_risk", lambda depth: 1e6),
    "kl-10b": tilted("lecun", "excess_risk", lambda depth: 1e6),
    "kl-10c": tilted("lecun", "excess_risk", lambda depth: math.exp(2 * depth - 12)),
    "kl-10d": tilted("xavier", "excess_risk", lambda depth: math.exp(2 * depth - 12)),
    "kl-11a": longer("ntk", "R_sphere", "width"),
    "kl-11b": longer("xavier", "R_sphere", "depth"),
    "kl-11c": longer("he", "R", "width"),
    "kl-11d": longer("lecun", "R", "depth"),
}


def changed(change):
    groups = true_groups()
    change(groups)
    return paper(groups)


FALSE = {entry: partial(changed, change) for entry, change in REFUTING.items()}


def world():
    """Records in which every entry of the paper's claims is reproduced."""
    return paper(true_groups())
