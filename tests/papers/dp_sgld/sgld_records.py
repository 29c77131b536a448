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
    utility,
)

SCHEDULES = ["constant", "decreasing"]
NEIGHBOURS = ((0.0, 0.0), (-1.0, 0.0), (-1.0, -1.0))
BACKBONE = {"id": "strokes-s-01234567", "sha256": "0" * 64}
COMMON = {"key": "dp_sgld", "seed": 0, "noise_source": "keyed", "delta": 1e-5}
TRAINED = {
    "data": {"name": "digits"},
    "backbone": BACKBONE["id"],
    "runs": 3,
    "tuning_runs": 1,
    "max_grad_norm": 1.0,
}
REGRESSION = {**TRAINED, "features": "penultimate", "normalise": True, "feature_norm": 1.0}
COUNTS = {"n_train": 1300, "n_validation": 197, "n_test": 300, "classes": 10}
SEEN = {
    **COUNTS,
    "inputs": 256,
    "scaled_down": 7,
    "mean_eigenvalue": 0.6,
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
    "with_tuning_epsilon": 9.0,
    "all_runs_epsilon": 12.0,
}
TUNED = {
    "settings_tried": 6,
    "trials": 6,
    "validation_accuracy": 0.9,
    "accuracy": [0.8, 0.9, 0.85],
}
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
    fields = {"epsilon": epsilon, **STEPS, **STATED, **TUNED, **DP_SGD}
    if epsilon is None:
        fields |= dict.fromkeys([*STATED, "max_grad_norm", "noise_multiplier"])
    return {**fields, **changes}


def _langevin_fields(epsilon, **changes):
    return {"epsilon": epsilon, **STEPS, **LANGEVIN, **STATED, **TUNED, **changes}


def arm(method, comparison=None, schedule=None, epsilon=1.0, **changes):
    """A row of kind accuracy, of Langevin SGD if it has a schedule."""
    compared = {"method": method, "comparison": comparison, "schedule": schedule}
    if schedule is None:
        return accuracy.SgdArm(**compared, **_sgd_fields(epsilon, **changes))
    return accuracy.LangevinArm(**compared, **_langevin_fields(epsilon, **changes))


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


def accuracy_record(rows, metrics=None, slug="accuracy", **fields):
    """metrics: what differs from `SEEN`; fields: of the spec."""
    spec = {
        **{"kind": "accuracy", "schedule": "both", "epsilons": [1.0], "batch": 130},
        "grid": {"lambda": [0.01], "epochs": [30], "steps": [300], "lr": [1.0]},
    }
    return sample_record(
        accuracy.Spec(**COMMON | REGRESSION | spec | fields),
        accuracy.Metrics(**{**SEEN, **(metrics or {})}, rows=rows),
        slug,
    )


def finetune_record(rows):
    """Backbone and counts are those of the others."""
    names = dict.fromkeys(row.unfreeze for row in rows)
    spec = {
        **{"kind": "finetune", "epsilons": [1.0], "relation": "add_remove", "batch": 130},
        **{"steps": 300, "lrs": [1.0]},
        "unfreeze": [{"name": name, "trainable": [name]} for name in names],
    }
    backbone = {**BACKBONE, "architecture": "small-cnn-s"}
    return sample_record(
        finetune.Spec(**COMMON | TRAINED | spec),
        finetune.Metrics(**COUNTS, backbone=backbone, rows=rows),
    )


def long_training_record(rows):
    """On raw columns."""
    spec = {
        **{"kind": "long_training", "features": "raw", "backbone": None, "epsilon": 1.0},
        "steps": list(dict.fromkeys(row.steps for row in rows)),
        **{"lambdas": [0.01], "lrs": [1.0]},
    }
    return sample_record(
        long_training.Spec(**COMMON | REGRESSION | spec),
        long_training.Metrics(**{**SEEN, "backbone": None, "features": None}, rows=rows),
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


def utility_record():
    """Of decreasing steps, both theorems lie beyond the last step."""
    draws, runs, steps = np.random.default_rng(0), 3, 50
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
