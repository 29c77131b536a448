"""Small synthetic records of kl_privacy: a factory for each kind of job."""

import numpy as np
from figure_samples import sample_record

from dpatlas.core.facts import DataFields
from dpatlas.papers.kl_privacy.formulas.theorems import gradient_norm_constant, kl_linearized
from dpatlas.papers.kl_privacy.records import constants, linearized, training

INITS = ("lecun", "he", "ntk", "xavier")
# Enough for the figures with a column of panels per init.
PAIR = ("lecun", "he")
RATES = {"lecun": 0.05, "he": 0.05, "ntk": 0.005, "xavier": 0.05}
SETTINGS = {"horizons": {"early": 2, "short": 4, "long": 8}}
RUNS = 3
# Of R and of the measured KL: product B R / n, and share of the bound of Cor. 4.2.
PRODUCT, SHARE = 40.0, 0.4
COMMON = {
    "key": "kl_privacy",
    "seed": 0,
    "noise_source": "keyed",
    "data": DataFields(name="digits"),
}
MANIFEST = {"name": "digits", "shapes": {"x_train": [20, 4], "x_add": [5, 4]}}


def training_record(
    init="lecun",
    depth=3,
    width=8,
    steps=8,
    runs=RUNS,
    diverged=0,
    curve=None,
    noise=0.3,
    **fields,
):
    """A `training` record whose last `diverged` runs diverged.

    curve: KL by step, growing with depth, width and step by default; every run has a multiple of
    it, whose logarithm has the standard deviation `noise`. fields: others of the spec.
    """
    used = runs - diverged
    fields = {"outputs": 1, "lr": RATES[init], "sigma": 0.1, **fields}
    spec = training.Spec(
        kind="training",
        **COMMON,
        **{"init": init, "depth": depth, "width": width, "steps": steps, "runs": runs, **fields},
    )
    measured = dict.fromkeys(
        ("kl", "loss", "gradient_gap_at_start", "gradient_norm2_at_start", "probe")
    )
    if used:
        curve = curve or (lambda step: 0.01 * depth * width * step)
        draws = np.random.default_rng([INITS.index(init), depth, width]).lognormal(0, noise, used)
        kl = np.outer([curve(step) for step in range(1, steps + 1)], draws)
        probed = [2**power for power in range(64) if 2**power < steps]
        measured = {
            "kl": _kl_curves(kl),
            "loss": training.Loss(runs=(np.exp(-kl) + 0.1).tolist()),
            "gradient_gap_at_start": 1e-3,
            "gradient_norm2_at_start": 0.5,
            "probe": training.Probe(
                steps=probed,
                gradient_change=[[0.5 + 0.1 * k for k in range(len(probed))]] * used,
                distance=[[0.1 * (k + 1) for k in range(len(probed))]] * used,
            ),
        }
    metrics = training.Metrics(
        n_train=20,
        n_add=5,
        inputs=4,
        parameters=100,
        convention="exact",
        diverged=[None] * used + [7] * diverged,
        runs_used=used,
        **measured,
    )
    return sample_record(spec, metrics, f"{init}-d{depth}-w{width}", data=MANIFEST)


def _kl_curves(kl):
    """The curves of runs (steps, runs) that agree on the worst record."""
    worst = kl.mean(1)
    return training.WorstCase(
        worst=worst.tolist(),
        low=(0.8 * worst).tolist(),
        high=(1.3 * worst).tolist(),
        interval="95% bootstrap",
        worst_record=[0] * len(kl),
        worst_runs=kl.tolist(),
        run_max=kl.tolist(),
        mean=(0.3 * worst).tolist(),
    )


def linearized_record(init="lecun", depths=(2, 3, 4), runs=RUNS, noise=0.3):
    """A `linearized` record: B R / n is the same at all depths, the KL below that of Cor. 4.2.

    noise: standard deviation over runs of the logarithms of R and of the KL.
    """
    values = np.random.default_rng(INITS.index(init))
    n, epsilon, steps = 20, 1.0, 10
    rows = []
    for depth in depths:
        bound = float(gradient_norm_constant(init, 4, 8, depth, 1))
        products = PRODUCT * values.lognormal(0, noise, runs)
        time, shown = 2.0, [1, 3, 10]
        sigma2 = bound * time / (epsilon * n**2)
        limits = [float(kl_linearized(bound, time * k / steps, n, sigma2)) for k in shown]
        kl = np.outer(limits, SHARE * values.lognormal(0, noise, runs))
        rows.append(
            linearized.AtDepth(
                depth=depth,
                B=bound,
                B_runs=(bound * values.uniform(0.8, 1.2, runs)).tolist(),
                R_runs=(products * n / bound).tolist(),
                BR_over_n_runs=products.tolist(),
                sphere=linearized.Sphere(
                    records=16,
                    R_runs=(products * 16 / bound).tolist(),
                    BR_over_n_runs=products.tolist(),
                ),
                T=time,
                sigma2=sigma2,
                eta=time / steps,
                steps=steps,
                shown_steps=shown,
                kl_worst_runs=kl.tolist(),
                kl_bound=limits,
                excess_risk_runs=values.uniform(0.1, 0.2, runs).tolist(),
                initial_risk_runs=values.uniform(0.6, 0.8, runs).tolist(),
            )
        )
    spec = linearized.Spec(
        kind="linearized",
        **COMMON,
        init=init,
        depths=list(depths),
        width=8,
        n_train=n,
        epsilon=epsilon,
        runs=runs,
        min_steps=steps,
    )
    metrics = linearized.Metrics(n_train=n, n_add=5, epsilon=epsilon, depths=rows)
    return sample_record(spec, metrics, f"linearized-{init}-w8", data=MANIFEST)


def constants_record(ratio=1.01):
    """A `constants` record with this ratio of means to B."""
    depths, width, outputs, draws = [2, 3], 8, 2, 2000
    rows = []
    for init in INITS:
        for depth in depths:
            bound = float(gradient_norm_constant(init, 4, width, depth, outputs))
            rows.append(
                constants.Condition(
                    init=init,
                    depth=depth,
                    B=bound,
                    mean=ratio * bound,
                    standard_error=0.008 * bound,
                    draws=draws,
                )
            )
    sizes = {"width": width, "outputs": outputs}
    spec = constants.Spec(
        kind="constants", **COMMON, inits=list(INITS), depths=depths, draws=draws, **sizes
    )
    metrics = constants.Metrics(inputs=4, rows=rows, **sizes)
    return sample_record(spec, metrics, "constants-w8", data=MANIFEST)


def depth_sweep(diverged=(), **fields):
    """Training records over inits and depths; `diverged` runs by (init, depth)."""
    diverged = dict(diverged)
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
