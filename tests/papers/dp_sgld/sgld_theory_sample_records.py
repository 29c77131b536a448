"""Small synthetic records of dp_sgld's theory, with the fields that its experiments write."""

from itertools import product

import numpy as np
from figure_samples import bare_record

from dpatlas.papers.dp_sgld.formulas.published import DP_SGD_NOISE_MULTIPLIERS, PUBLISHED_RUNS
from dpatlas.papers.dp_sgld.formulas.theorems import claimed_rdp

SCHEDULES = ["constant", "decreasing"]
NEIGHBOURS = ((0.0, 0.0), (-1.0, 0.0), (-1.0, -1.0))
BOTH = (
    "claimed, steps",
    "claimed, epochs",
    "every iterate",
    "full batch, every iterate",
    "full batch, every iterate, rdp",
    "full batch, hidden state",
)
CONSTANT = (
    "given the batches",
    "cyclic, hidden state",
    "quadratic, fixed start",
    "quadratic, random start",
)


def _record(kind, metrics, **fields):
    return bare_record(kind, metrics, **{"seed": 0, "noise_source": "keyed", **fields})


def privacy_loss_record(**changes):
    """Curves that grow with the step, each from a height of its own."""
    at = [1, 5, 20]
    heights = iter(np.geomspace(0.01, 1, 40))

    def curve(calibration, schedule, name):
        epsilon = (next(heights) * np.sqrt(at)).tolist()
        keys = {"calibration": calibration, "schedule": schedule, "sigma2": 0.1}
        return {**keys, "curve": name, "steps": at, "epsilon": epsilon}

    curves = [
        curve(calibration, schedule, name)
        for schedule, calibration in product(SCHEDULES, ("published", "theorem"))
        for name in (*BOTH, *(CONSTANT if schedule == "constant" else ()))
    ]
    curves += [
        curve("one dimension", "constant", name)
        for name in ("claimed, steps", "every iterate", "given the batches", "exact")
    ]
    published = [
        {
            **{name: getattr(run, name) for name in ("table", "dataset", "backbone", "steps")},
            "noise_multiplier": 0.2,
            "add_remove": 400.0 + place,
            "replace_one": 6e5,
            "dp_sgd": {
                "noise_multiplier": DP_SGD_NOISE_MULTIPLIERS[run.dataset],
                "pld": 0.91,
                "rdp": 1.0,
            },
        }
        for place, run in enumerate(PUBLISHED_RUNS)
    ]
    metrics = {
        "lipschitz": 1.4,
        "beta": 0.6,
        "steps_per_epoch": 5,
        "small": {"n": 200, "batch": 2, "radius": 1.0, "epsilon": 1.0},
        "curves": curves,
        "published": published,
    }
    fields = {
        "n": 50,
        "batch": 10,
        "classes": 3,
        "feature_norm": 1.0,
        "lambda": 0.1,
        "epsilon": 1.0,
        "delta": 1e-5,
        "epochs": 4,
        "schedules": SCHEDULES,
    }
    return _record("privacy_loss", metrics, **{**fields, **changes})


def counterexample_record(ratios=(1, 10, 100), sigma2s=(0.01, 0.1)):
    """The excess grows with n/m, eta and distance, and falls with sigma2; n = 100."""
    n, steps, alphas, etas = 100, [1, 5], [2.0, 8.0], [0.1, 0.5]
    scan, calibrated = [], []
    for (x_prime, rest), eta, ratio in product(NEIGHBOURS, etas, ratios):
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
    metrics = {
        "n": n,
        "lipschitz": 2.0,
        "calibrated_sigma2": 0.077,
        "scan": scan,
        "calibrated": calibrated,
    }
    return _record(
        "counterexample",
        metrics,
        n=n,
        ratios=list(ratios),
        sigma2s=list(sigma2s),
        steps=steps,
        alphas=alphas,
        etas=etas,
        radius=1.0,
        epsilon=1.0,
        delta=1e-5,
    )


def utility_record(runs=3, steps=50):
    """Theorem 4.4 and its fellow lie beyond the last step."""
    draws = np.random.default_rng(0)
    names = {"constant": ("4.1", "4.1", "4.2"), "decreasing": ("4.3", "4.3", "4.4")}
    shown = [1, 7, steps]
    rows = []
    for schedule, epsilon in product(SCHEDULES, (0.5, 2.0)):
        lemma, first, second = names[schedule]
        K = 7 if schedule == "constant" else 10 * steps
        bound = [5.0 / epsilon, 2.0 / epsilon, 1.0 / epsilon]
        rows.append(
            {
                "schedule": schedule,
                "epsilon": epsilon,
                "sigma2": 0.1,
                "distance2": 1.0,
                "shown_steps": shown,
                "lemma": {
                    "name": f"Lemma {lemma}",
                    "exact": bound,
                    "paper": [0.9 * value for value in bound],
                },
                "theorems": [
                    {"name": f"Thm {first}", "K": K, "exact": 3.0, "paper": 2.9},
                    {"name": f"Thm {second}", "K": K + 1, "exact": 4.0, "paper": 3.9},
                ],
                "excess_risk_runs": draws.uniform(0.1, 0.2, (runs, len(shown))).tolist(),
            }
        )
    metrics = {"parameters": 4, "excess_risk_at_zero": 0.3, "rows": rows}
    return _record(
        "utility",
        metrics,
        n=100,
        inputs=2,
        batch=10,
        epsilons=[0.5, 2.0],
        delta=1e-5,
        steps=steps,
        runs=runs,
        schedules=SCHEDULES,
        **{"lambda": 0.1},
    )


def accuracy_record(
    name="digits", classes=10, schedules=SCHEDULES, runs=(0.8, 0.9), schedule="both"
):
    """Arms at epsilon 1; DP-SGLD chose lambda 0.01 everywhere."""

    def row(method, comparison, accuracy, schedule=None, guaranteed=1.0):
        return {
            "method": method,
            "comparison": comparison,
            "epsilon": 1.0,
            "schedule": schedule,
            "guaranteed_epsilon": guaranteed,
            "accuracy": [accuracy * value for value in runs],
            **({"lambda": 0.01} if method == "dp-sgld" else {}),
        }

    rows = [row("dp-sgd", "published", 0.9), row("dp-sgd", "guaranteed", 0.85)]
    for each in schedules:
        rows += [
            row("dp-sgld", "published", 1.0, each, 300.0),
            row("dp-sgld", "theorem", 0.95, each, 30.0),
            row("dp-sgld", "guaranteed", 0.5, each),
        ]
    metrics = {
        "n_train": 1000,
        "inputs": 64,
        "classes": classes,
        "backbone": {"id": "strokes-s-00000000", "sha256": "0" * 64},
        "mean_eigenvalue": 0.6,
        "rows": rows,
    }
    return _record(
        "accuracy",
        metrics,
        data={"name": name},
        features="raw",
        schedule=schedule,
        feature_norm=2.0,
        epsilons=[1.0],
        delta=1e-5,
        runs=len(runs),
    )


RECORDS = {
    "sgld_privacy_loss": privacy_loss_record,
    "sgld_counterexample": counterexample_record,
    "sgld_utility": utility_record,
}
