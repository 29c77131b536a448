"""Records of dp_sgld in which every claim is true but those that arithmetic refutes.

Rows have the arms that the experiments themselves make, so that a renamed arm would be missed here.
"""

import dataclasses
import itertools

import numpy as np
from committed_claims import CLAIMS

from dpatlas.evidence.claims import (
    judge_claims,
)
from dpatlas.evidence.comparisons import PaperRecords
from dpatlas.papers.dp_sgld.jobs import accuracy as sgld_accuracy
from dpatlas.papers.dp_sgld.jobs import finetune as sgld_finetune
from dpatlas.papers.dp_sgld.jobs import long_training as sgld_long

RUNS, SPREAD = 5, 5e-4
ACCURACY = {"no-dp": 0.9, "dp-sgd": 0.8, "dp-sgld": 0.895, "repaired-full": 0.85}
# By arithmetic on the printed table: d counts parameters.
FALSE = {"sgld-5c", "sgld-5"}


def runs_of(mean, *keys, spread=SPREAD):
    return (mean + np.random.default_rng(keys).normal(0, spread, RUNS)).tolist()


def accuracy_record(number, schedule="both", epsilons=(1.0, 8.0)):
    """At epsilon 8 the order of the methods is the other way round."""
    arms = sgld_accuracy.arms_of({"schedule": schedule, "epsilons": list(epsilons)})
    rows = []
    for place, arm in enumerate(arms):
        mean = ACCURACY.get(arm.method, 0.5)
        mean = 1 - mean if arm.epsilon == 8 else mean
        rows.append(dataclasses.asdict(arm) | {"accuracy": runs_of(mean, number, place)})
    spec = {"schedule": schedule, "epsilons": list(epsilons)}
    return {"id": f"accuracy-{number}", "spec": spec, "metrics": {"rows": rows}}


def finetune_record():
    """Without privacy 5 points are gained; with it, as many are lost."""
    unfreeze = [{"name": name, "trainable": [name]} for name in ("head", "block", "blocks")]
    sizes = {"head": 10, "block": 100, "blocks": 1000}
    gains = {"head": 0.0, "block": -0.3, "blocks": 0.05}
    rows = []
    for place, arm in enumerate(sgld_finetune.arms_of({"epsilons": [1.0], "unfreeze": unfreeze})):
        gain = gains[arm.unfreeze] * (1 if arm.epsilon is None else -1)
        row = sgld_finetune.arm_facts(arm) | {"trained_parameters": sizes[arm.unfreeze]}
        rows.append(row | {"accuracy": runs_of(0.8 + gain, 7, place)})
    return {"id": "finetune", "spec": {}, "metrics": {"rows": rows}}


def long_record():
    """Repaired DP-SGLD wins at the most steps only."""
    rows = []
    for place, (steps, (method, comparison)) in enumerate(
        itertools.product((10, 100), sgld_long.METHODS.items())
    ):
        mean = ACCURACY.get(method, 0.5) if steps == 100 else 0.7
        arm = sgld_long.Arm(method, comparison, 1.0, steps)
        rows.append(dataclasses.asdict(arm) | {"accuracy": runs_of(mean, 8, place)})
    return {"id": "long", "spec": {}, "metrics": {"rows": rows}}


def privacy_loss_record(steps=(1, 10, 60, 100)):
    steps = np.array(steps)
    heights = {
        "claimed, steps": 1 - np.exp(-steps / 8),
        "every iterate": np.sqrt(steps),
        "full batch, hidden state": np.tanh(steps / 9),
        "quadratic, fixed start": np.tanh(steps / 9) * (1 - 1e-9),
    }
    curves = [
        {
            "calibration": calibration,
            "schedule": schedule,
            "curve": name,
            "steps": steps.tolist(),
            "epsilon": values.tolist(),
        }
        for calibration, schedule in itertools.product(
            ("published", "theorem"), ("constant", "decreasing")
        )
        for name, values in heights.items()
        if schedule == "constant" or not name.startswith("quadratic")
    ]
    return {"id": "privacy-loss", "spec": {}, "metrics": {"curves": curves}}


def counterexample_record(batches=(1, 100)):
    """Everything is exceeded for m = 1, at one step and order only; nothing for m = n = 100."""
    law = {"x_prime": -1.0, "rest": -1.0, "eta": 0.5}
    claimed = [[0.1, 0.4], [0.2, 0.8]]
    scan, calibrated = [], []
    for m in batches:
        exact = [[0.05, 0.2], [0.1, 8.0 if m == 1 else 0.4]]
        scan.append({**law, "m": m, "sigma2": 0.02, "exact": exact, "claimed": claimed})
        for K, delta in ((1, 1e-7), (5, 1e-3)):
            calibrated.append({**law, "m": m, "K": K, "delta": delta if m == 1 else 0.0})
    return {
        "id": "counterexample",
        "spec": {"steps": [1, 5], "alphas": [2.0, 8.0], "delta": 1e-5},
        "metrics": {"n": 100, "scan": scan, "calibrated": calibrated},
    }


def world():
    """Groups of records in which every claim is true, but for `FALSE`."""
    return {
        "accuracy": [
            accuracy_record(0),
            accuracy_record(1, "constant", epsilons=(1.0,)),
            accuracy_record(2, "decreasing"),
        ],
        "finetune": [finetune_record()],
        "long_training": [long_record()],
        "privacy_loss": [privacy_loss_record()],
        "counterexample": [counterexample_record()],
    }


def verdicts(groups):
    rows = judge_claims(CLAIMS, {"dp_sgld": PaperRecords({}, groups)}, "test")
    return {row["claim"]: row for row in rows if row["paper"] == "dp_sgld"}


def with_verdict(rows, verdict):
    return {name for name, row in rows.items() if row["verdict"] == verdict}


def arm_of(record, **keys):
    rows = record["metrics"]["rows"]
    (found,) = (row for row in rows if all(row[name] == value for name, value in keys.items()))
    return found


def curve_of(groups, curve, calibration="theorem", schedule="constant"):
    keys = {"curve": curve, "calibration": calibration, "schedule": schedule}
    curves = groups["privacy_loss"][0]["metrics"]["curves"]
    (found,) = (each for each in curves if all(each[name] == keys[name] for name in keys))
    return found
