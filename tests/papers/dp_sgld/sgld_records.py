"""Records of dp_sgld for tests: a factory for each kind."""

from itertools import product

import numpy as np
import yaml
from figure_samples import sample_record, tables_of

from dpatlas.base.records import rows_of
from dpatlas.formulas.dp_sgld.published import DP_SGD_NOISE_MULTIPLIERS, PUBLISHED_RUNS
from dpatlas.formulas.dp_sgld.theorems import claimed_rdp
from dpatlas_workflow.papers.dp_sgld.records import (
    accuracy,
    counterexample,
    finetune,
    long_training,
    privacy_loss,
    protocol,
    utility,
)

SCHEDULES = ["constant", "decreasing"]
NEIGHBOURS = ((0.0, 0.0), (-1.0, 0.0), (-1.0, -1.0))
BACKBONE = {"id": "strokes-s-01234567", "sha256": "0" * 64}
COMMON = {"key": "dp_sgld", "seed": 0, "noise_source": "keyed", "delta": 1e-5}
TRAINED, COUNTS, STATED, STEPS, LANGEVIN, DP_SGD = yaml.safe_load("""
- {data: {name: digits, redeal: true}, backbone: strokes-s-01234567, max_grad_norm: 1.0,
   tuning: digits-tuning-01234567, chosen: null, first_run: 0}
- {n_train: 1150, n_test: 287, classes: 10}
- {claimed_epsilon: 1.0, ordinary_epsilon: 4.0, hidden_state_epsilon: 5.0, guaranteed_epsilon: 4.0,
   guaranteed_by: "every iterate, RDP", relation: replace_one}
- {lr: 0.98, batch: 130, steps: 300, sampler: fixed-size}
- {lambda: 0.01, beta: 0.51, lipschitz: 1.41, radius: 21.0, sigma: 0.05, epochs: 30}
- {epochs: 30.0, max_grad_norm: 1.0, noise_multiplier: 6.6}
""")
REGRESSION = {**TRAINED, "features": "penultimate", "normalise": True, "feature_norm": 1.0}
SEEN = {**COUNTS, "inputs": 256, "backbone": BACKBONE, "warnings": []}
SEEN["features"] = {"id": "digits-strokes", "sha256": "0" * 64, "device": "cpu"}
MEASURED = {"accuracy": [0.8, 0.9, 0.85]}


def _sgd_fields(epsilon, **changes):
    """Of DP-SGD; nothing is stated without privacy, for epsilon None."""
    fields = {"epsilon": epsilon, **STEPS, **STATED, **MEASURED, **DP_SGD}
    if epsilon is None:
        fields |= dict.fromkeys([*STATED, "max_grad_norm", "noise_multiplier"])
    return {**fields, **changes}


def _langevin_fields(epsilon, **changes):
    return {"epsilon": epsilon, **STEPS, **LANGEVIN, **STATED, **MEASURED, **changes}


def arm(method, comparison=None, schedule=None, epsilon=1.0, **changes):
    """A row of kind accuracy, of Langevin SGD if it has a schedule."""
    compared = {"method": method, "comparison": comparison, "schedule": schedule}
    if schedule is None:
        return compared | _sgd_fields(epsilon, **{"weight_decay": 0.0, **changes})
    return compared | _langevin_fields(epsilon, **changes)


def protocol_arm(method, reading, schedule, weight_decay=None, **changes):
    """A row of kind protocol, at epsilon 1, or without privacy for no-dp; its best epochs."""
    of_arm = {"method": method, "reading": reading, "schedule": schedule}
    of_arm["best_epoch_accuracy"] = [0.01 + value for value in changes.get("accuracy", [0.8] * 3)]
    if method == "dp-sgld":
        return _langevin_fields(1.0, **of_arm, l2=True, **changes)
    epsilon = None if method == "no-dp" else 1.0
    decay = {"weight_decay": weight_decay, "l2": weight_decay != 0}
    return _sgd_fields(epsilon, **of_arm, **decay, **changes)


def long_arm(method, comparison, steps, **changes):
    """A row of kind long_training, at epsilon 1."""
    compared = {"method": method, "comparison": comparison}
    if method == "dp-sgd":
        return compared | _sgd_fields(1.0, steps=steps, **changes)
    return compared | _langevin_fields(1.0, steps=steps, **changes)


def finetune_arm(method, unfreeze, trained_parameters, epsilon, **changes):
    """A row of kind finetune."""
    trained = {"unfreeze": unfreeze, "trained_parameters": trained_parameters}
    return {"method": method, **trained, **_sgd_fields(epsilon, **changes)}


def _regression(types, arms, metrics, slug, **fields):
    """A record of a regression; the first run scaled 7 records down."""
    runs = len(arms[0]["accuracy"]) if arms else 3
    seen = [
        {"run": run, "scaled_down": 0 if run else 7, "mean_eigenvalue": 0.6} for run in range(runs)
    ]
    spec = types.RECORD.spec(**COMMON | REGRESSION | {"runs": runs} | fields)
    facts = SEEN | (metrics or {})
    return sample_record(spec, {**facts, "seen": seen, **tables_of(arms, types.RECORD)}, slug)


def protocol_record(rows, readings, metrics=None, slug="protocol", **fields):
    """metrics: facts that differ from `SEEN`; fields: of the spec."""
    spec = {"kind": "protocol", "epsilon": 1.0, "batch": 128, "epochs": 30, "readings": readings}
    return _regression(protocol, rows, metrics, slug, **spec | fields)


def accuracy_record(rows, metrics=None, slug="accuracy", **fields):
    """metrics: facts that differ from `SEEN`; fields: of the spec."""
    spec = {"kind": "accuracy", "schedule": "both", "epsilons": [1.0]}
    return _regression(accuracy, rows, metrics, slug, **spec | fields)


def finetune_record(rows, **fields):
    """Backbone and counts are those of the others; fields: of the spec."""
    names = dict.fromkeys(row["unfreeze"] for row in rows)
    spec = {
        **{"kind": "finetune", "epsilons": [1.0], "relation": "add_remove", "batch": 130},
        **{"steps": 300, "runs": len(rows[0]["accuracy"])},
        "unfreeze": [{"name": name, "trainable": [name]} for name in names],
    }
    backbone = {**BACKBONE, "architecture": "small-cnn-s"}
    return sample_record(
        finetune.FinetuneSpec(**COMMON | TRAINED | spec | fields),
        {**COUNTS, "backbone": backbone, **tables_of(rows, finetune.RECORD)},
    )


def long_training_record(rows, **fields):
    """On raw columns; fields: of the spec."""
    spec = {
        **{"kind": "long_training", "features": "raw", "backbone": None, "epsilon": 1.0},
        "steps": list(dict.fromkeys(row["steps"] for row in rows)),
    }
    raw = {"backbone": None, "features": None}
    return _regression(long_training, rows, raw, "long_training", **spec | fields)


def privacy_loss_record(curves):
    """curves: keyed by (calibration, schedule, curve), (steps, epsilon)."""
    spec = {
        **{"kind": "privacy_loss", "n": 50, "batch": 10, "classes": 3, "feature_norm": 1.0},
        **{"lambda": 0.1, "epsilon": 1.0, "epochs": 4, "schedules": SCHEDULES},
    }
    published = [
        {
            **{name: getattr(run, name) for name in ("table", "dataset", "backbone", "steps")},
            **{"noise_multiplier": 0.2, "add_remove": 400.0 + number, "replace_one": 6e5},
            "dp_sgd_noise_multiplier": DP_SGD_NOISE_MULTIPLIERS[run.dataset],
            **{"dp_sgd_pld": 0.91, "dp_sgd_rdp": 1.0},
        }
        for number, run in enumerate(PUBLISHED_RUNS)
    ]
    names = ("calibration", "schedule", "curve")
    rows = [
        {**dict(zip(names, of_curve, strict=True)), "sigma2": 0.1, "step": step, "epsilon": value}
        for of_curve, (steps, epsilons) in curves.items()
        for step, value in zip(steps, epsilons, strict=True)
    ]
    facts = {"lipschitz": 1.4, "beta": 0.6, "steps_per_epoch": 5}
    facts["small"] = {"n": 200, "batch": 2, "radius": 1.0, "epsilon": 1.0}
    return sample_record(
        privacy_loss.PrivacyLossSpec(**COMMON | spec),
        {**facts, "curves": rows, "published": published},
    )


def growing_losses_record():
    """A privacy_loss record with every curve, each growing from a height of its own."""
    steps = [1, 5, 20]
    both = ["claimed, steps", "claimed, epochs", "every iterate"]
    both += [f"full batch, {name}" for name in ("every iterate", "every iterate, rdp")]
    both += ["full batch, hidden state"]
    constant = [*both, "given the batches", "cyclic, hidden state"]
    constant += ["quadratic, fixed start", "quadratic, random start"]
    small = ["claimed, steps", "every iterate", "given the batches", "exact"]
    calibrated = product(("published", "theorem"), zip(SCHEDULES, (constant, both), strict=True))
    names = [
        (calibration, schedule, curve)
        for calibration, (schedule, curves) in calibrated
        for curve in curves
    ]
    names += [("one dimension", "constant", curve) for curve in small]
    heights = np.geomspace(0.01, 1, len(names))
    curves = {
        name: (steps, (height * np.sqrt(steps)).tolist())
        for name, height in zip(names, heights, strict=True)
    }
    return privacy_loss_record(curves)


def counterexample_record(scan, calibrated, sigma2s):
    """n = 100; scan: with exact and claimed by step and order; calibrated: as in a record."""
    spec = {
        **{"kind": "counterexample", "n": 100, "radius": 1.0, "epsilon": 1.0},
        "ratios": sorted({100 / law["m"] for law in scan}),
        "sigma2s": sigma2s,
        **{"steps": [1, 5], "alphas": [2.0, 8.0], "etas": sorted({law["eta"] for law in scan})},
    }
    rows = [
        {**law, **row}
        for law in scan
        for row in rows_of(
            {"K": spec["steps"], "alpha": spec["alphas"]},
            exact=law["exact"],
            claimed=law["claimed"],
        )
    ]
    facts = {"n": 100, "lipschitz": 2.0, "calibrated_sigma2": 0.077}
    return sample_record(
        counterexample.CounterexampleSpec(**COMMON | spec),
        {**facts, "scan": rows, "calibrated": calibrated},
    )


def growing_excess_record():
    """A counterexample: its excess grows with n/m, eta and distance, and falls with sigma2."""
    n, steps, alphas, sigma2s = 100, [1, 5], [2.0, 8.0], [0.01, 0.1]
    scan, calibrated = [], []
    for (x_prime, rest), eta, ratio in product(NEIGHBOURS, (0.1, 0.5), (1, 10, 100)):
        keys = {"x_prime": x_prime, "rest": rest, "eta": eta, "m": round(n / ratio)}
        size = (1 - x_prime - rest) * eta * ratio
        for sigma2 in sigma2s:
            claimed = [
                [float(claimed_rdp(alpha, 2.0, 1.0, n, sigma2, K * eta)) for alpha in alphas]
                for K in steps
            ]
            excess = np.array([[0.01, 0.03], [0.02, 0.01]]) * size / sigma2
            exact = (excess * claimed).tolist()
            scan.append({**keys, "sigma2": sigma2, "exact": exact, "claimed": claimed})
        # Nothing is lost with full batches: delta is 0 there.
        calibrated += [{**keys, "K": K, "delta": 1e-6 * size * K * (ratio > 1)} for K in steps]
    return counterexample_record(scan, calibrated, sigma2s)


def utility_record(runs=3):
    """Of decreasing steps, both theorems lie beyond the last step."""
    draws, steps = np.random.default_rng(0), 50
    names = {"constant": ("4.1", "4.1", "4.2"), "decreasing": ("4.3", "4.3", "4.4")}
    shown = [1, 7, steps]
    tables = {"noise": [], "bounds": [], "risks": []}
    for schedule, epsilon in product(SCHEDULES, (0.5, 2.0)):
        arm = {"schedule": schedule, "epsilon": epsilon}
        lemma, *theorems = names[schedule]
        K = 7 if schedule == "constant" else 10 * steps
        tables["noise"].append({**arm, "sigma2": 0.1, "distance2": 1.0})
        bounds = [
            (f"Lemma {lemma}", step, value / epsilon, 0.9 * (value / epsilon))
            for step, value in zip(shown, (5.0, 2.0, 1.0), strict=True)
        ]
        bounds += [(f"Thm {theorems[0]}", K, 3.0, 2.9), (f"Thm {theorems[1]}", K + 1, 4.0, 3.9)]
        columns = ("bound", "step", "exact", "paper")
        tables["bounds"] += [{**arm, **dict(zip(columns, each, strict=True))} for each in bounds]
        risks = draws.uniform(0.1, 0.2, (runs, len(shown)))
        of_arm = rows_of({"run": range(runs), "step": shown}, excess_risk=risks)
        tables["risks"] += [{**arm, **row} for row in of_arm]
    spec = {
        **{"kind": "utility", "n": 100, "inputs": 2, "batch": 10, "lambda": 0.1},
        **{"epsilons": [0.5, 2.0], "steps": steps, "runs": runs, "schedules": SCHEDULES},
    }
    problem = {
        **{"classes": 2, "parameters": 4, "lipschitz": 1.4, "beta": 0.6, "radius": 5.0},
        **{"minimiser_norm": 1.9, "gradient_norm_at_minimiser": 0.0},
        **{"excess_risk_at_zero": 0.3, "batch_noise": 0.01},
    }
    return sample_record(utility.UtilitySpec(**COMMON | spec), {**problem, **tables})
