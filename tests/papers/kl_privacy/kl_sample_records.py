"""Small synthetic records of kl_privacy, with the fields that its experiment writes."""

import numpy as np

from dpatlas.core.records import make_record, versions
from dpatlas.core.specs import Spec
from dpatlas.papers.kl_privacy.formulas.theorems import gradient_norm_constant, kl_linearized

INITS = ("lecun", "he", "ntk", "xavier")
# Enough for the figures with a column of panels per init.
PAIR = ("lecun", "he")
RATES = {"lecun": 0.05, "he": 0.05, "ntk": 0.005, "xavier": 0.05}
SETTINGS = {"horizons": {"early": 2, "short": 4, "long": 8}}
RUNS = 3


def _record(fields, slug, metrics):
    spec = Spec.of({"key": "kl_privacy", "seed": 0, "noise_source": "keyed", **fields}, slug)
    return make_record(
        spec,
        code_digest="0" * 16,
        versions=versions("numpy"),
        device="cpu",
        data={"name": "digits", "shapes": {"x_train": [20, 4], "x_add": [5, 4]}},
        seeds={"base": 0},
        ledger={"mechanism": "noisy gradient descent"},
        metrics=metrics,
    )


def training_record(init="lecun", depth=3, width=8, steps=8, diverged=0, runs=RUNS, **fields):
    """A `training` record whose last `diverged` runs diverged; numbers grow with depth and step."""
    values = np.random.default_rng([INITS.index(init), depth, width])
    at = np.arange(1, steps + 1)[:, None]
    used = runs - diverged
    kl = 0.01 * depth * width * at * values.uniform(0.5, 1.5, (1, max(used, 1)))
    worst = kl.mean(1)
    probes = [2**power for power in range(64) if 2**power < steps]
    metrics = {
        "n_train": 20,
        "n_add": 5,
        "inputs": 4,
        "parameters": 100,
        "convention": "exact",
        "diverged": [None] * used + [7] * diverged,
        "runs_used": used,
        "kl": None,
        "loss": None,
        "gradient_gap_at_start": None,
        "gradient_norm2_at_start": None,
        "probe": None,
    }
    if used:
        metrics |= {
            "kl": {
                "worst": worst.tolist(),
                "low": (0.8 * worst).tolist(),
                "high": (1.3 * worst).tolist(),
                "worst_runs": kl.tolist(),
                "mean": (0.3 * worst).tolist(),
            },
            "loss": {"runs": (np.exp(-kl) + 0.1).tolist()},
            "gradient_gap_at_start": 1e-3,
            "gradient_norm2_at_start": 0.5,
            "probe": {
                "steps": probes,
                "gradient_change": [[0.5 + 0.1 * k for k in range(len(probes))]] * used,
                "distance": [[0.1 * (k + 1) for k in range(len(probes))]] * used,
            },
        }
    spec = {
        "kind": "training",
        "data": {"name": "digits"},
        "init": init,
        "depth": depth,
        "width": width,
        "outputs": 1,
        "lr": RATES[init],
        "sigma": 0.1,
        "steps": steps,
        "runs": runs,
        **fields,
    }
    return _record(spec, f"{init}-d{depth}-w{width}", metrics)


def linearized_record(init="lecun", depths=(2, 3, 4), runs=RUNS):
    """A `linearized` record; the measured KL stays below Cor. 4.2."""
    values = np.random.default_rng(INITS.index(init))
    n, epsilon, steps = 20, 1.0, 10
    rows = []
    for depth in depths:
        bound = float(gradient_norm_constant(init, 4, 8, depth, 1))
        distances = values.uniform(1, 2, runs).tolist()
        time, shown = 2.0, [1, 3, 10]
        sigma2 = bound * time / (epsilon * n**2)
        limit = [float(kl_linearized(bound, time * k / steps, n, sigma2)) for k in shown]
        rows.append(
            {
                "depth": depth,
                "B": bound,
                "B_runs": (bound * values.uniform(0.8, 1.2, runs)).tolist(),
                "R_runs": distances,
                "BR_over_n_runs": [bound * distance / n for distance in distances],
                "T": time,
                "sigma2": sigma2,
                "eta": time / steps,
                "steps": steps,
                "shown_steps": shown,
                "kl_worst_runs": [(top * values.uniform(0.1, 0.5, runs)).tolist() for top in limit],
                "kl_bound": limit,
                "excess_risk_runs": values.uniform(0.1, 0.2, runs).tolist(),
                "initial_risk_runs": values.uniform(0.6, 0.8, runs).tolist(),
            }
        )
    spec = {
        "kind": "linearized",
        "data": {"name": "digits"},
        "init": init,
        "depths": list(depths),
        "width": 8,
        "n_train": n,
        "epsilon": epsilon,
        "runs": runs,
        "min_steps": steps,
    }
    metrics = {"n_train": n, "n_add": 5, "epsilon": epsilon, "depths": rows}
    return _record(spec, f"linearized-{init}-w8", metrics)


def constants_record():
    """A `constants` record."""
    rows = [
        {
            "init": init,
            "depth": depth,
            "B": float(gradient_norm_constant(init, 4, 8, depth, 2)),
            "mean": 1.01 * float(gradient_norm_constant(init, 4, 8, depth, 2)),
            "standard_error": 0.5,
            "draws": 20,
        }
        for init in INITS
        for depth in (2, 3)
    ]
    spec = {
        "kind": "constants",
        "data": {"name": "digits"},
        "inits": list(INITS),
        "width": 8,
        "outputs": 2,
        "draws": 20,
        "depths": [2, 3],
    }
    metrics = {"inputs": 4, "width": 8, "outputs": 2, "rows": rows}
    return _record(spec, "constants-w8", metrics)


def depth_sweep(**fields):
    """Training records over inits and depths, which differ in `diverged` by (init, depth)."""
    diverged = fields.pop("diverged", {})
    return [
        training_record(init, depth, diverged=diverged.get((init, depth), 0), **fields)
        for init in INITS
        for depth in (2, 3, 5)
    ]


RECORDS = {
    "kl_vs_epochs": lambda: [training_record(init) for init in INITS],
    "kl_vs_depth": depth_sweep,
    "kl_vs_width": lambda: [
        training_record(init, width=width) for init in INITS for width in (4, 8, 16)
    ],
    "kl_bounds": lambda: [
        *(training_record(init, lr=1e-3) for init in PAIR),
        *(linearized_record(init) for init in PAIR),
    ],
    "kl_tradeoff": lambda: [linearized_record(init) for init in PAIR],
    "kl_constants": lambda: [constants_record(), *(linearized_record(init) for init in INITS)],
}
