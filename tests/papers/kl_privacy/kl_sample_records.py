"""Small synthetic records of kl_privacy: a factory for each kind of job."""

import numpy as np
from figure_samples import sample_record

from dpatlas.base.facts import DataFields
from dpatlas.base.records import rows_of
from dpatlas.formulas.kl_privacy.theorems import gradient_norm_constant
from dpatlas_workflow.papers.kl_privacy.records.constants import ConstantsSpec
from dpatlas_workflow.papers.kl_privacy.records.linearized import LinearizedSpec
from dpatlas_workflow.papers.kl_privacy.records.training import KlTrainingSpec

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
COMMON = {"key": "kl_privacy", "seed": 0, "noise_source": "keyed"}
COMMON["data"] = DataFields(name="digits")
MANIFEST = {"name": "digits", "shapes": {"x_train": [20, 4], "x_add": [5, 4]}}


def training_record(
    init="lecun", depth=3, width=8, steps=8, runs=RUNS, diverged=0, curve=None, noise=0.3, **fields
):
    """A `training` record whose last `diverged` runs diverged; it shows all of its steps.

    curve: KL by step, growing with depth, width and step by default; every run has a multiple of
    it, as of the gap at the start, whose logarithm has the standard deviation `noise`. fields:
    others of the spec.
    """
    shown = list(range(1, steps + 1))
    kept = [step for step in shown if step in SETTINGS["horizons"].values() or step == steps]
    common = {"outputs": 1, "lr": RATES[init], "sigma": 0.1, "networks": 1, "watched": 0}
    spec = KlTrainingSpec(
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
    used, probed = runs - diverged, [2**power for power in range(64) if 2**power < steps]

    def by_run(values):
        return [*list(values)[:used], *[None] * diverged]

    def curve(values):
        return [*values.T.tolist()[:used], *[[None] * steps] * diverged]

    sums = [[share * kl[step - 1, :used].sum() for share in SHARES] for step in kept]
    change = [[0.5 + 0.1 * k for k in range(len(probed))]] * used
    metrics = {
        "n_train": 20,
        "n_add": 5,
        "inputs": 4,
        "parameters": 100,
        "convention": "exact",
        "runs": rows_of(
            {"run": range(runs)},
            diverged=[None] * used + [7] * diverged,
            gap_max=by_run((1e-3 * draws).tolist()),
            gap_watched=by_run((5e-4 * draws).tolist()),
            norm2=by_run([0.5] * runs),
        ),
        "curves": rows_of(
            {"run": range(runs), "step": shown},
            kl_max=curve(kl),
            kl_watched=curve(0.5 * kl),
            loss=curve(np.exp(-kl) + 0.1),
        ),
        "probe": rows_of(
            {"run": range(used), "step": probed},
            gradient_change=change,
            distance=[[0.1 * (k + 1) for k in range(len(probed))]] * used,
        ),
        "by_record": [
            {"run": runs - 1, "runs": used, **row} for row in rows_of({"step": kept}, sums=sums)
        ],
    }
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

    def distances(level, sphere_level):
        return {
            "R": spread(level),
            "BR_over_n": spread(PRODUCT),
            "R_sphere": spread(sphere_level),
            "BR_over_n_sphere": spread(PRODUCT),
        }

    def constant(width, depth):
        return float(gradient_norm_constant(init, 4, width, depth, 1))

    by_depth, by_share, by_width, shares = [], [], [], [0.01, 0.1, 1.0]
    for depth in depths:
        columns = {"B_run": spread(constant(8, depth)), **distances(*[np.exp(-depth)] * 2)}
        columns["T"] = spread(0.1)
        largest = [spread(KL_SHARE * share * epsilon) for share in shares]
        watched = [spread(KL_SHARE / 2 * share) for share in shares]
        columns["excess_risk"] = spread(1e-2 * np.exp(-depth))
        columns["initial_risk"] = spread(0.7)
        columns["kl_fixed"] = spread(np.exp(depth if rises else -depth))
        at = {"depth": depth, "B": constant(8, depth)}
        by_depth += [at | row for row in rows_of({"run": range(runs)}, **columns)]
        axes = {"share": shares, "run": range(runs)}
        kl = rows_of(axes, kl_max=largest, kl_watched=watched)
        by_share += [{"depth": depth, **row} for row in kl]
    for width in widths:
        at = {"width": width, "B": constant(width, 3)}
        columns = distances(*[1 / width] * 2)
        by_width += [at | row for row in rows_of({"run": range(runs)}, **columns)]
    sizes = {"width": 8, "widths": list(widths), "width_depth": 3, "n_train": n, "runs": runs}
    budget = {"epsilon": epsilon, "min_steps": 100, "time": 0.05, "sigma": 0.01, "watched": 0}
    spec = LinearizedSpec(
        kind="linearized", **COMMON, init=init, depths=list(depths), **sizes, **budget
    )
    metrics = {"n_train": n, "n_add": 5, "sphere_records": 16}
    metrics |= {"depths": by_depth, "shares": by_share, "widths": by_width}
    return sample_record(spec, metrics, f"linearized-{init}-w8-run0", data=MANIFEST)


def constants_record(ratio=1.01):
    """A `constants` record with this ratio of means to B."""
    depths, width, outputs, draws = [2, 3], 8, 2, 2000
    rows = []
    for init in INITS:
        for depth in depths:
            bound = float(gradient_norm_constant(init, 4, width, depth, outputs))
            row = {"init": init, "depth": depth, "B": bound, "mean": ratio * bound}
            rows.append({**row, "standard_error": 0.008 * bound, "draws": draws})
    sizes = {"width": width, "outputs": outputs}
    spec = ConstantsSpec(
        kind="constants", **COMMON, inits=list(INITS), depths=depths, draws=draws, **sizes
    )
    return sample_record(spec, {"inputs": 4, "rows": rows}, "constants-w8", data=MANIFEST)


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
