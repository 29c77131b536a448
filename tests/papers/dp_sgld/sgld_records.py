"""Records of dp_sgld for tests; arms are those that the jobs list.

Those of training are such that every claim is true, but for those on Table 4's last column.
"""

from importlib import import_module
from itertools import product

import numpy as np
import yaml
from figure_samples import sample_record, tables_of

from dpatlas.base.records import rows_of
from dpatlas.formulas.dp_sgld.published import DP_SGD_NOISE_MULTIPLIERS, PUBLISHED_RUNS
from dpatlas.formulas.dp_sgld.theorems import claimed_rdp
from dpatlas_workflow.papers.dp_sgld.jobs import accuracy, finetune, long_training, protocol
from dpatlas_workflow.papers.dp_sgld.jobs.arms import LANGEVIN

SCHEDULES = ["constant", "decreasing"]
NEIGHBOURS = ((0.0, 0.0), (-1.0, 0.0), (-1.0, -1.0))
RUNS, SPREAD = 12, 5e-4
# Fields of specs: of all, of trained ones and of regressions.
COMMON, TRAINED, REGRESSION = yaml.safe_load("""
- {key: dp_sgld, seed: 0, noise_source: keyed, delta: 1.0e-5}
- {data: {name: digits, redeal: true}, backbone: strokes-s-01234567, max_grad_norm: 1.0,
   tuning: digits-tuning-01234567, chosen: null, first_run: 0}
- {features: penultimate, normalise: true, feature_norm: 1.0}
""")
COUNTS = {"n_train": 1150, "n_test": 287, "classes": 10}
BACKBONE = {"id": TRAINED["backbone"], "sha256": "0" * 64}
FEATURES = {"id": "digits-strokes", "sha256": "0" * 64, "device": "cpu"}
# What rows of arms say: with a guarantee, of Langevin SGD and of DP-SGD.
STATED, OF_LANGEVIN, OF_DP_SGD = yaml.safe_load("""
- {claimed_epsilon: 1.0, ordinary_epsilon: 4.0, hidden_state_epsilon: 5.0, guaranteed_epsilon: 4.0,
   guaranteed_by: "every iterate, RDP", relation: replace_one}
- {lambda: 0.01, beta: 0.51, lipschitz: 1.41, radius: 21.0, sigma: 0.05, epochs: 30}
- {epochs: 30.0, max_grad_norm: 1.0, noise_multiplier: 6.6, weight_decay: 0.0}
""")
STEPS = {"lr": 0.98, "batch": 130, "steps": 300, "sampler": "fixed-size"}
ACCURACY = {"no-dp": 0.9, "dp-sgd": 0.8, "dp-sgld": 0.895, "repaired-full": 0.85}
READINGS = yaml.safe_load("""
- {name: paper, step_size: 0.5, lambda: 1.0e-3, without_l2: true, schedules: [constant, decreasing]}
- {name: unscaled lambda, step_size: 0.5, lambda: 1.0e-5, without_l2: false, schedules: [constant]}
""")
# Lead of DP-SGLD over DP-SGD by n; DP-SGD without the L2 term is two points ahead of DP-SGLD.
LEADS = {1000: -0.1, 4000: 0.01, 16000: 0.02}
UNFROZEN = [{"name": name, "trainable": [name]} for name in ("head", "block", "blocks")]


def shape_of(kind):
    return import_module(f"dpatlas_workflow.papers.dp_sgld.records.{kind}").RECORD


def record_of(kind, facts, slug=None, **fields):
    """fields: of the spec, but for those of all."""
    return sample_record(shape_of(kind).spec(kind=kind, **COMMON, **fields), facts, slug)


def spec_of(kind, **fields):
    return shape_of(kind).spec(kind=kind, **{**COMMON, **TRAINED, "runs": RUNS, **fields})


def runs_of(mean, *keys):
    return (mean + np.random.default_rng(keys).normal(0, SPREAD, RUNS)).tolist()


def row_of(planned, values):
    """Of an arm that a job lists, as a mapping; values: its accuracies, one for each run."""
    kind = OF_LANGEVIN if planned["method"] in LANGEVIN else OF_DP_SGD
    row = {**STEPS, **STATED, **kind, **planned, "accuracy": values}
    without = [*STATED, "max_grad_norm", "noise_multiplier"] if planned["epsilon"] is None else ()
    return {**row, **dict.fromkeys(without)}


def regression(spec, rows, slug, **facts):
    """A record of a regression; the first run scaled 7 records down."""
    seen = [
        {"run": run, "scaled_down": 0 if run else 7, "mean_eigenvalue": 0.6} for run in range(RUNS)
    ]
    backbone, features = spec.backbone and BACKBONE, spec.backbone and FEATURES
    known = {**COUNTS, "inputs": 256, "backbone": backbone, "features": features, "warnings": []}
    return sample_record(
        spec, {**known, **facts, "seen": seen, **tables_of(rows, shape_of(spec.kind))}, slug
    )


def accuracy_record(number, schedule="both", epsilons=(1.0, 8.0)):
    """At epsilon 8 the order of the methods is the other way round."""
    spec = spec_of("accuracy", **REGRESSION, schedule=schedule, epsilons=list(epsilons))
    rows = []
    for number_of_arm, planned in enumerate(accuracy.compared(spec)):
        mean = ACCURACY.get(planned.method, 0.5)
        mean = 1 - mean if planned.epsilon == 8 else mean
        rows.append(row_of(vars(planned), runs_of(mean, number, number_of_arm)))
    return regression(spec, rows, f"accuracy-{number}")


def protocol_record(n):
    """DP-SGLD is .5 points below No DP, and leads DP-SGD from 4,000 records on."""
    steps = {"epsilon": 1.0, "batch": 128, "epochs": 30, "readings": READINGS}
    spec = spec_of("protocol", **REGRESSION, **steps)
    means = {"no-dp": 0.9, "dp-sgld": 0.895, "dp-sgd": 0.895 - LEADS[n]}
    rows = []
    for number, planned in enumerate(protocol.compared(spec)):
        values = runs_of(means[planned.method] if planned.l2 else 0.915, 6, n, number)
        row = row_of(vars(planned), values)
        row["best_epoch_accuracy"] = [0.01 + value for value in values]
        if planned.method != "dp-sgld":
            row["weight_decay"] = 1e-3 if planned.l2 else 0.0
        rows.append(row)
    return regression(spec, rows, f"protocol-{n}", n_train=n)


def long_record():
    """On raw columns; repaired DP-SGLD wins at the most steps only."""
    raw = {**REGRESSION, "features": "raw", "backbone": None, "epsilon": 1.0, "steps": [10, 100]}
    spec = spec_of("long_training", **raw)
    rows = []
    for number, (steps, (method, comparison)) in enumerate(
        product(spec.steps, long_training.METHODS.items())
    ):
        mean = ACCURACY.get(method, 0.5) if steps == 100 else 0.7
        planned = {"method": method, "comparison": comparison, "epsilon": 1.0, "steps": steps}
        rows.append(row_of(planned, runs_of(mean, 8, number)))
    return regression(spec, rows, "long_training")


def finetune_record():
    """Without privacy 5 points are gained; with it, as many are lost."""
    steps = {"epsilons": [1.0], "relation": "add_remove", "batch": 130, "steps": 300}
    spec = spec_of("finetune", **steps, unfreeze=UNFROZEN)
    sizes = {"head": 10, "block": 100, "blocks": 1000}
    gains = {"head": 0.0, "block": -0.3, "blocks": 0.05}
    rows = []
    for number, planned in enumerate(finetune.compared(spec)):
        gain = gains[planned.unfreeze] * (1 if planned.epsilon is None else -1)
        of_arm = {**vars(planned), "method": planned.method}
        of_arm["trained_parameters"] = sizes[planned.unfreeze]
        rows.append(row_of(of_arm, runs_of(0.8 + gain, 7, number)))
    facts = {**COUNTS, "backbone": {**BACKBONE, "architecture": "small-cnn-s"}}
    return sample_record(spec, {**facts, **tables_of(rows, shape_of("finetune"))})


def losses_record(curves):
    """curves: keyed by (calibration, schedule, curve), (steps, epsilon)."""
    spec = {
        **{"n": 50, "batch": 10, "classes": 3, "feature_norm": 1.0},
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
    return record_of("privacy_loss", {**facts, "curves": rows, "published": published}, **spec)


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
    return losses_record(curves)


def excess_record(scan, calibrated, sigma2s):
    """n = 100; scan: with exact and claimed by step and order; calibrated: as in a record."""
    spec = {
        **{"n": 100, "radius": 1.0, "epsilon": 1.0},
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
    return record_of("counterexample", {**facts, "scan": rows, "calibrated": calibrated}, **spec)


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
    return excess_record(scan, calibrated, sigma2s)


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
        **{"n": 100, "inputs": 2, "batch": 10, "lambda": 0.1},
        **{"epsilons": [0.5, 2.0], "steps": steps, "runs": runs, "schedules": SCHEDULES},
    }
    problem = {
        **{"classes": 2, "parameters": 4, "lipschitz": 1.4, "beta": 0.6, "radius": 5.0},
        **{"minimiser_norm": 1.9, "gradient_norm_at_minimiser": 0.0},
        **{"excess_risk_at_zero": 0.3, "batch_noise": 0.01},
    }
    return record_of("utility", {**problem, **tables}, **spec)
