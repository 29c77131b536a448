"""Small synthetic records of kl_privacy: a factory for each kind of job."""

import numpy as np
from figure_samples import sample_record

from dpatlas.core.facts import DataFields
from dpatlas.papers.kl_privacy.formulas.theorems import gradient_norm_constant
from dpatlas.papers.kl_privacy.records import constants, linearized, training

INITS = ("lecun", "he", "ntk", "xavier")
# Enough for the figures with a column of panels per init.
PAIR = ("lecun", "he")
RATES = {"lecun": 0.05, "he": 0.05, "ntk": 0.005, "xavier": 0.05}
SETTINGS = {"horizons": {"early": 2, "short": 4, "long": 8}}
RUNS = 3
# Product B R / n, and the measured KL as a share of the bound of Cor. 4.2.
PRODUCT, KL_SHARE = 40.0, 0.4
# Every record's KL as a share of the largest: the means over runs agree on the worst record.
SHARES = [1.0] + [0.5] * 24
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
    """A `training` record whose last `diverged` runs diverged; it shows all of its steps.

    curve: KL by step, growing with depth, width and step by default; every run has a multiple of
    it, as of the gap at the start, whose logarithm has the standard deviation `noise`. fields:
    others of the spec.
    """
    shown = list(range(1, steps + 1))
    kept = [step for step in shown if step in SETTINGS["horizons"].values() or step == steps]
    common = {"outputs": 1, "lr": RATES[init], "sigma": 0.1, "networks": 1, "watched": 0}
    spec = training.Spec(
        kind="training",
        **COMMON,
        **{"init": init, "depth": depth, "width": width, "steps": steps, "runs": runs},
        **{"shown_steps": shown, "record_steps": kept, **common, **fields},
    )
    curve = curve or (lambda step: 0.01 * depth * width * step)
    draws = np.random.default_rng([INITS.index(init), depth, width]).lognormal(0, noise, runs)
    # Runs differ in level and, a little, in growth.
    growth = np.power.outer(np.array(shown, dtype=float), 0.1 * np.log(draws))
    kl = np.outer([curve(step) for step in shown], draws) * growth
    used = runs - diverged

    def by_run(values):
        return [*list(values)[:used], *[None] * diverged]

    def curves(values):
        return [by_run(row) for row in values.tolist()]

    probed = [2**power for power in range(64) if 2**power < steps]
    sums = [[share * kl[step - 1, :used].sum() for share in SHARES] for step in kept]
    metrics = training.Metrics(
        n_train=20,
        n_add=5,
        inputs=4,
        parameters=100,
        convention="exact",
        diverged=[None] * used + [7] * diverged,
        curves=training.Curves(
            kl_max=curves(kl), kl_watched=curves(0.5 * kl), loss=curves(np.exp(-kl) + 0.1)
        ),
        start=training.Start(
            gap_max=by_run(1e-3 * draws),
            gap_watched=by_run(5e-4 * draws),
            norm2=by_run([0.5] * runs),
        ),
        probe=training.Probe(
            steps=probed,
            gradient_change=[[0.5 + 0.1 * k for k in range(len(probed))]] * used + [[]] * diverged,
            distance=[[0.1 * (k + 1) for k in range(len(probed))]] * used + [[]] * diverged,
        ),
        by_record=training.ByRecord(runs=used, sums=sums),
    )
    return sample_record(spec, metrics, f"{init}-d{depth}-w{width}-run0", data=MANIFEST)


def linearized_record(init="lecun", depths=(2, 3, 4), widths=(4, 8, 16), runs=RUNS, noise=0.3):
    """A `linearized` record in which all claims on it hold.

    B R / n is the same at all depths and R falls with depth, which B of Eq. 7 forbids: claims read
    one of them at a time. noise: standard deviation over runs of the logarithms.
    """
    values = np.random.default_rng(INITS.index(init))
    n, epsilon = 20, 1.0
    rises = init in ("he", "ntk")

    def spread(level):
        return (level * values.lognormal(0, noise, runs)).tolist()

    def distances(records, level):
        return linearized.Distances(
            records=records, R_runs=spread(level), BR_over_n_runs=spread(PRODUCT)
        )

    def constant(width, depth):
        return float(gradient_norm_constant(init, 4, width, depth, 1))

    rows = [
        linearized.AtDepth(
            depth=depth,
            B=constant(8, depth),
            B_runs=spread(constant(8, depth)),
            data=distances(n, np.exp(-depth)),
            sphere=distances(16, np.exp(-depth)),
            T_runs=spread(0.1),
            shares=[0.01, 0.1, 1.0],
            kl_max_runs=[spread(KL_SHARE * share * epsilon) for share in (0.01, 0.1, 1.0)],
            kl_watched_runs=[spread(KL_SHARE / 2 * share) for share in (0.01, 0.1, 1.0)],
            excess_risk_runs=spread(1e-2 * np.exp(-depth)),
            initial_risk_runs=spread(0.7),
            kl_fixed_runs=spread(np.exp(depth if rises else -depth)),
        )
        for depth in depths
    ]
    spec = linearized.Spec(
        kind="linearized",
        **COMMON,
        init=init,
        depths=list(depths),
        width=8,
        widths=list(widths),
        width_depth=3,
        n_train=n,
        epsilon=epsilon,
        runs=runs,
        min_steps=100,
        time=0.05,
        sigma=0.01,
        watched=0,
    )
    metrics = linearized.Metrics(
        n_train=n,
        n_add=5,
        depths=rows,
        widths=[
            linearized.AtWidth(
                width=width,
                B=constant(width, 3),
                data=distances(n, 1 / width),
                sphere=distances(16, 1 / width),
            )
            for width in widths
        ],
    )
    return sample_record(spec, metrics, f"linearized-{init}-w8-run0", data=MANIFEST)


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


def epochs():
    """Training records of the epochs, and the runs of several networks up to the early horizon."""
    early = {"steps": SETTINGS["horizons"]["early"], "networks": 2}
    return [
        *(training_record(init) for init in INITS),
        *(training_record(init, **early) for init in INITS),
    ]


RECORDS = {
    "kl_vs_epochs": epochs,
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
