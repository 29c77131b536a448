"""Records of dp_sgld for tests: a factory for each kind, of the classes that its jobs write."""

from itertools import product

import numpy as np
from figure_samples import sample_record

from dpatlas.papers.dp_sgld.formulas.published import DP_SGD_NOISE_MULTIPLIERS, PUBLISHED_RUNS
from dpatlas.papers.dp_sgld.formulas.theorems import claimed_rdp
from dpatlas.papers.dp_sgld.records import (
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
TRAINED = {
    "data": {"name": "digits", "redeal": True},
    "backbone": BACKBONE["id"],
    "max_grad_norm": 1.0,
    "tuning": "digits-tuning-01234567",
    "chosen": None,
    "first_run": 0,
}
REGRESSION = {**TRAINED, "features": "penultimate", "normalise": True, "feature_norm": 1.0}
COUNTS = {"n_train": 1150, "n_test": 287, "classes": 10}
SEEN = {
    **COUNTS,
    "inputs": 256,
    "backbone": BACKBONE,
    "features": {"id": "digits-strokes", "sha256": "0" * 64, "device": "cpu"},
    "warnings": [],
}
STATED = {
    "claimed_epsilon": 1.0,
    "ordinary_epsilon": 4.0,
    "hidden_state_epsilon": 5.0,
    "guaranteed_epsilon": 4.0,
    "guaranteed_by": "every iterate, RDP",
    "relation": "replace_one",
}
MEASURED = {"accuracy": [0.8, 0.9, 0.85]}
STEPS = {"lr": 0.98, "batch": 130, "steps": 300, "sampler": "fixed-size"}
LANGEVIN = {
    "lambda": 0.01,
    "beta": 0.51,
    "lipschitz": 1.41,
    "radius": 21.0,
    "sigma": 0.05,
    "epochs": 30,
}
DP_SGD = {"epochs": 30.0, "max_grad_norm": 1.0, "noise_multiplier": 6.6}


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
        fields = _sgd_fields(epsilon, **{"weight_decay": 0.0, **changes})
        return accuracy.SgdArm(**compared, **fields)
    return accuracy.LangevinArm(**compared, **_langevin_fields(epsilon, **changes))


def protocol_arm(method, reading, schedule, weight_decay=None, **changes):
    """A row of kind protocol, at epsilon 1, or without privacy for no-dp; its best epochs."""
    of_arm = {"method": method, "reading": reading, "schedule": schedule}
    of_arm["best_epoch_accuracy"] = [0.01 + value for value in changes.get("accuracy", [0.8] * 3)]
    if method == "dp-sgld":
        return protocol.LangevinArm(**_langevin_fields(1.0, **of_arm, **changes))
    epsilon = None if method == "no-dp" else 1.0
    fields = _sgd_fields(epsilon, **of_arm, **changes)
    return protocol.SgdArm(**fields, weight_decay=weight_decay)


def long_arm(method, comparison, steps, **changes):
    """A row of kind long_training, at epsilon 1."""
    compared = {"method": method, "comparison": comparison}
    if method == "dp-sgd":
        return long_training.SgdArm(**compared, **_sgd_fields(1.0, steps=steps, **changes))
    return long_training.LangevinArm(**compared, **_langevin_fields(1.0, steps=steps, **changes))


def finetune_arm(method, unfreeze, trained_parameters, epsilon, **changes):
    """A row of kind finetune."""
    return finetune.Row(
        method=method,
        unfreeze=unfreeze,
        trained_parameters=trained_parameters,
        **_sgd_fields(epsilon, **changes),
    )


def _over_runs(rows):
    """What the spec and the metrics say of the runs behind some rows."""
    runs = len(rows[0].accuracy) if rows else 3
    found = {"scaled_down": [7] + [0] * (runs - 1), "mean_eigenvalue": [0.6] * runs}
    return {"runs": runs}, SEEN | found


def protocol_record(rows, readings, metrics=None, slug="protocol", **fields):
    """metrics: what differs from `SEEN`; fields: of the spec."""
    spec = {
        **{"kind": "protocol", "epsilon": 1.0, "batch": 128, "epochs": 30},
        "readings": readings,
    }
    runs, seen = _over_runs(rows)
    metrics = protocol.Metrics(**{**seen, **(metrics or {})}, rows=rows)
    return sample_record(protocol.Spec(**COMMON | REGRESSION | spec | runs | fields), metrics, slug)


def accuracy_record(rows, metrics=None, slug="accuracy", **fields):
    """metrics: what differs from `SEEN`; fields: of the spec."""
    spec = {"kind": "accuracy", "schedule": "both", "epsilons": [1.0]}
    runs, seen = _over_runs(rows)
    return sample_record(
        accuracy.Spec(**COMMON | REGRESSION | spec | runs | fields),
        accuracy.Metrics(**{**seen, **(metrics or {})}, rows=rows),
        slug,
    )


def finetune_record(rows, **fields):
    """Backbone and counts are those of the others; fields: of the spec."""
    names = dict.fromkeys(row.unfreeze for row in rows)
    spec = {
        **{"kind": "finetune", "epsilons": [1.0], "relation": "add_remove", "batch": 130},
        "steps": 300,
        "unfreeze": [{"name": name, "trainable": [name]} for name in names],
    }
    backbone = {**BACKBONE, "architecture": "small-cnn-s"}
    return sample_record(
        finetune.Spec(**COMMON | TRAINED | spec | _over_runs(rows)[0] | fields),
        finetune.Metrics(**COUNTS, backbone=backbone, rows=rows),
    )


def long_training_record(rows, **fields):
    """On raw columns; fields: of the spec."""
    spec = {
        **{"kind": "long_training", "features": "raw", "backbone": None, "epsilon": 1.0},
        "steps": list(dict.fromkeys(row.steps for row in rows)),
    }
    runs, seen = _over_runs(rows)
    return sample_record(
        long_training.Spec(**COMMON | REGRESSION | spec | runs | fields),
        long_training.Metrics(**{**seen, "backbone": None, "features": None}, rows=rows),
    )


def privacy_loss_record(curves):
    """curves: keyed by (calibration, schedule, curve), (steps, epsilon)."""
    spec = {
        **{"kind": "privacy_loss", "n": 50, "batch": 10, "classes": 3, "feature_norm": 1.0},
        **{"lambda": 0.1, "epsilon": 1.0, "epochs": 4, "schedules": SCHEDULES},
    }
    published = [
        {
            **{name: getattr(run, name) for name in ("table", "dataset", "backbone", "steps")},
            "noise_multiplier": 0.2,
            "add_remove": 400.0 + number,
            "replace_one": 6e5,
            "dp_sgd": {
                **{"noise_multiplier": DP_SGD_NOISE_MULTIPLIERS[run.dataset]},
                **{"pld": 0.91, "rdp": 1.0},
            },
        }
        for number, run in enumerate(PUBLISHED_RUNS)
    ]
    return sample_record(
        privacy_loss.Spec(**COMMON | spec),
        privacy_loss.Metrics(
            lipschitz=1.4,
            beta=0.6,
            steps_per_epoch=5,
            small={"n": 200, "batch": 2, "radius": 1.0, "epsilon": 1.0},
            curves=[
                {
                    **{"calibration": calibration, "schedule": schedule, "curve": name},
                    **{"sigma2": 0.1, "steps": steps, "epsilon": epsilon},
                }
                for (calibration, schedule, name), (steps, epsilon) in curves.items()
            ],
            published=published,
        ),
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
    """n = 100; scan and calibrated: as in a record."""
    spec = {
        **{"kind": "counterexample", "n": 100, "radius": 1.0, "epsilon": 1.0},
        "ratios": sorted({100 / law["m"] for law in scan}),
        "sigma2s": sigma2s,
        **{"steps": [1, 5], "alphas": [2.0, 8.0], "etas": sorted({law["eta"] for law in scan})},
    }
    return sample_record(
        counterexample.Spec(**COMMON | spec),
        counterexample.Metrics(
            n=100, lipschitz=2.0, calibrated_sigma2=0.077, scan=scan, calibrated=calibrated
        ),
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
    rows = []
    for schedule, epsilon in product(SCHEDULES, (0.5, 2.0)):
        lemma, first, second = names[schedule]
        K = 7 if schedule == "constant" else 10 * steps
        bound = [5.0 / epsilon, 2.0 / epsilon, 1.0 / epsilon]
        printed = [0.9 * value for value in bound]
        rows.append(
            {
                "schedule": schedule,
                "epsilon": epsilon,
                "sigma2": 0.1,
                "distance2": 1.0,
                "shown_steps": shown,
                "lemma": {"name": f"Lemma {lemma}", "exact": bound, "paper": printed},
                "theorems": [
                    {"name": f"Thm {first}", "K": K, "exact": 3.0, "paper": 2.9},
                    {"name": f"Thm {second}", "K": K + 1, "exact": 4.0, "paper": 3.9},
                ],
                "excess_risk_runs": draws.uniform(0.1, 0.2, (runs, len(shown))).tolist(),
            }
        )
    spec = {
        **{"kind": "utility", "n": 100, "inputs": 2, "batch": 10, "lambda": 0.1},
        **{"epsilons": [0.5, 2.0], "steps": steps, "runs": runs, "schedules": SCHEDULES},
    }
    problem = {
        **{"classes": 2, "parameters": 4, "lipschitz": 1.4, "beta": 0.6, "radius": 5.0},
        **{"minimiser_norm": 1.9, "gradient_norm_at_minimiser": 0.0},
        **{"excess_risk_at_zero": 0.3, "batch_noise": 0.01},
    }
    return sample_record(utility.Spec(**COMMON | spec), utility.Metrics(**problem, rows=rows))
