"""Records of kl_privacy in which every claim is true, and changes that make one of them false."""

import itertools
import math

import numpy as np
from committed_claims import CLAIMS
from kl_sample_records import INITS, constants_record, linearized_record, training_record

from dpatlas.evidence.claims import judge_claims
from dpatlas.evidence.comparisons import PaperRecords

LEVEL = {"lecun": 1.0, "xavier": 1.5, "he": 10.0, "ntk": 20.0}
HORIZONS = {"early": 8, "short": 16, "long": 40}
STEPS, RUNS, LR, SIGMA = 40, 6, 0.01, 0.1


def growth(step):
    """Near linear before step 8, near cubic after 16."""
    return step * (1 + (step / 30) ** 2)


def depth_factor(init, depth, step):
    """Rises with depth, but for a maximum at depth 4 in the short training of LeCun and Xavier."""
    if init in ("lecun", "xavier") and step <= HORIZONS["short"]:
        return math.exp(-((depth - 4) ** 2) / 4)
    return math.exp(depth / 4)


def training(init, depth, width, curve):
    sizes = {"steps": STEPS, "runs": RUNS, "lr": LR, "sigma": SIGMA}
    return training_record(init, depth, width, curve=curve, noise=0.01, **sizes)


def bounds(init):
    """Far below the first term of Lemma 3.2, 2 T gap / (4 sigma^2)."""
    gap = training_record(init).metrics.gradient_gap_at_start
    return training(init, 4, 16, lambda step: 0.5 * LR * step * gap / (4 * SIGMA**2))


def true_groups():
    """Groups of records in which every claim is true."""
    return {
        "epochs": [training(i, 3, 16, lambda s, i=i: LEVEL[i] * growth(s)) for i in INITS],
        "depth": [
            training(i, d, 16, lambda s, i=i, d=d: LEVEL[i] * depth_factor(i, d, s) * growth(s))
            for i, d in itertools.product(INITS, (2, 4, 6))
        ],
        "width": [
            training(i, 3, w, lambda s, i=i, w=w: LEVEL[i] * w * growth(s))
            for i, w in itertools.product(INITS, (8, 16, 32))
        ],
        "bounds": [bounds(i) for i in INITS],
        "linearized": [linearized_record(i, (2, 4, 6), RUNS, noise=0.01) for i in INITS],
        "constants": [constants_record()],
    }


def paper(groups, horizons=HORIZONS):
    return PaperRecords({"horizons": horizons}, groups)


def verdicts(records):
    """Rows of claims.csv on the paper, by claim."""
    rows = judge_claims(CLAIMS, {"kl_privacy": records}, "test")
    return {row["claim"]: row for row in rows if row["paper"] == "kl_privacy"}


def find(groups, group, init, **spec):
    """The one record of a group with this init and these fields of its spec."""
    (record,) = (
        record
        for record in groups[group]
        if record.spec.init == init
        and all(getattr(record.spec, name) == value for name, value in spec.items())
    )
    return record


def scaled(group, init, factor, noise=0.0, **spec):
    """The change that multiplies KL at step s by factor(s), and spreads the runs by `noise`."""

    def change(groups):
        kl = find(groups, group, init, **spec).metrics.kl
        spread = np.exp(np.random.default_rng(9).normal(0, noise, RUNS))
        for index in range(STEPS):
            kl.worst[index] *= factor(index + 1)
            kl.run_max[index] = [
                value * factor(index + 1) * by_run
                for value, by_run in zip(kl.run_max[index], spread, strict=True)
            ]

    return change


def by(number):
    """The same factor at every step."""
    return lambda step: number


def halved_per_layer(init, inputs):
    """The change by which B R / n halves with every layer, on the `sphere` or the `data`."""

    def change(groups):
        for row in find(groups, "linearized", init).metrics.depths:
            runs = (row.sphere if inputs == "sphere" else row).BR_over_n_runs
            runs[:] = [value / 2**row.depth for value in runs]

    return change


def above_the_corollary(groups):
    rows = find(groups, "linearized", "ntk").metrics.depths
    rows[1].kl_worst_runs[2] = [200.0 + run for run in range(RUNS)]


def off_in_monte_carlo(groups):
    rows = groups["constants"][0].metrics.rows
    rows[3] = rows[3].model_copy(update={"mean": 1.2 * rows[3].B})


def falling_late(init):
    """The change by which the deepest network has the least KL in long training."""
    return scaled("depth", init, lambda step: 0.1 if step > HORIZONS["short"] else 1.0, depth=6)


# By entry of claims.yaml, a change of the records that refutes it.
REFUTING = {
    "kl-1a": scaled("epochs", "he", lambda step: 0.5 if step > 20 else 1.0),
    "kl-1b": scaled("epochs", "he", lambda step: step),
    "kl-1c": scaled("epochs", "ntk", lambda step: step**-0.5 / (1 + (step / 30) ** 2)),
    "kl-2": scaled("epochs", "lecun", by(15)),
    # The first dips between two widths, the others end lower than they start.
    "kl-3a": scaled("width", "lecun", by(0.4), width=16),
    "kl-3b": scaled("width", "he", by(0.01), width=32),
    "kl-3c": scaled("width", "ntk", by(0.01), width=32),
    "kl-3d": scaled("width", "xavier", by(0.01), width=32),
    "kl-4a": scaled("depth", "he", by(0.1), depth=6),
    "kl-4b": scaled("depth", "lecun", by(20), depth=6),
    "kl-4c": scaled("depth", "xavier", by(20), depth=6),
    "kl-5a": falling_late("lecun"),
    "kl-5b": falling_late("he"),
    "kl-5c": falling_late("ntk"),
    "kl-5d": falling_late("xavier"),
    "kl-6a": scaled("bounds", "he", lambda step: 1e6 if step == 7 else 1.0),
    "kl-6b": above_the_corollary,
    "kl-7": off_in_monte_carlo,
    "kl-8a": halved_per_layer("xavier", "sphere"),
    "kl-8b": halved_per_layer("lecun", "data"),
}


def changed(change):
    """The true records after a change of their groups."""
    groups = true_groups()
    change(groups)
    return paper(groups)
