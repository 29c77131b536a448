"""Metrics of records that were written before they had rows, as rows.

By (block, kind) a function of the record's spec and its metrics (JSON). All of this goes with the
next full run of the tiers.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dpatlas.base.records import Row, rows_of

Old = Mapping[str, Any]
Convert = Callable[[Any, Old], dict[str, Any]]
# Columns of dp_sgld's arms, and its facts by run.
ARM = (
    "arm method epsilon lr batch epochs steps sampler max_grad_norm noise_multiplier relation "
    "guaranteed_by claimed_epsilon ordinary_epsilon hidden_state_epsilon guaranteed_epsilon"
)
REGRESSION_ARM = f"{ARM} lambda beta lipschitz radius sigma"
SEEN = ("scaled_down", "mean_eigenvalue")
LOOKED = ("selected_after_a_look", "looks")


def _kl_training(spec: Any, old: Old) -> dict[str, Any]:
    runs, curves, start, probe = spec.run_numbers, old["curves"], old["start"], old["probe"]
    by_step = {name: list(map(list, zip(*values, strict=True))) for name, values in curves.items()}
    used = [run for run, step in zip(runs, old["diverged"], strict=True) if step is None]
    probed = {
        name: [values for values in probe[name] if values]
        for name in ("gradient_change", "distance")
    }
    sums = old["by_record"]["sums"]
    return {
        **{name: old[name] for name in ("n_train", "n_add", "inputs", "parameters", "convention")},
        "runs": rows_of({"run": runs}, diverged=old["diverged"], **start),
        "curves": rows_of({"run": runs, "step": spec.shown_steps}, **by_step),
        "probe": rows_of({"run": used, "step": probe["steps"]}, **probed),
        "by_record": [
            {"run": runs[-1], "runs": old["by_record"]["runs"], "step": step, "sums": of_step}
            for step, of_step in zip(spec.record_steps, sums, strict=True)
        ],
    }


def _kl_linearized(spec: Any, old: Old) -> dict[str, Any]:
    runs = spec.run_numbers

    def by_run(axis: str, row: Old, **columns: Any) -> list[Row]:
        for inputs, ending in (("data", ""), ("sphere", "_sphere")):
            columns |= {
                f"R{ending}": row[inputs]["R_runs"],
                f"BR_over_n{ending}": row[inputs]["BR_over_n_runs"],
            }
        of_run = rows_of({"run": runs}, **columns)
        return [{**each, axis: row[axis], "B": row["B"]} for each in of_run]

    named = {"B_run": "B_runs", "T": "T_runs", "kl_fixed": "kl_fixed_runs"}
    named |= {name: f"{name}_runs" for name in ("excess_risk", "initial_risk")}
    shares = [
        {**each, "depth": row["depth"]}
        for row in old["depths"]
        for each in rows_of(
            {"share": row["shares"], "run": runs},
            kl_max=row["kl_max_runs"],
            kl_watched=row["kl_watched_runs"],
        )
    ]
    return {
        "n_train": old["n_train"],
        "n_add": old["n_add"],
        "sphere_records": old["depths"][0]["sphere"]["records"],
        "depths": [
            each
            for row in old["depths"]
            for each in by_run("depth", row, **{new: row[name] for new, name in named.items()})
        ],
        "shares": shares,
        "widths": [each for row in old["widths"] for each in by_run("width", row)],
    }


def _feature_simulation(spec: Any, old: Old) -> dict[str, Any]:
    runs, axes = spec.run_numbers, ("d", "n", "p", "epsilon", "features")
    measures = ("overlap", "cosine", "risk_private", "risk", "risk_floor", "clipped")
    norms = ("matrix", "direction", "head")
    return {
        **old["link"],
        "warnings": old["warnings"],
        "conditions": [
            {name: value for name, value in row.items() if name != "max_norms"}
            | {f"{name}_norm": row["max_norms"][name] for name in norms}
            for row in old["conditions"]
        ],
        "rows": [
            {**each, **{name: row[name] for name in axes}}
            for row in old["rows"]
            for each in rows_of(
                {"run": runs}, **{n: row.get(n) or [None] * len(runs) for n in measures}
            )
        ],
    }


def _pretrain_backbone(spec: Any, old: Old) -> dict[str, Any]:
    facts = {name: value for name, value in old.items() if name != "loss"}
    epochs = rows_of({"epoch": range(len(old["loss"]))}, loss=old["loss"])
    return {**facts, "epochs": epochs, "examples": _examples(old)}


def _pretrain_transfer(spec: Any, old: Old) -> dict[str, Any]:
    measures = ("zero_shot", "knn", "logistic")
    rows = [
        {name: value for name, value in row.items() if name not in measures} | each
        for row in old["rows"]
        for each in rows_of(
            {"split": range(len(row["knn"]))},
            **{name: row[name] or [None] * len(row["knn"]) for name in measures},
        )
    ]
    return {**old, "rows": rows, "examples": _examples(old)}


def _examples(old: Old) -> list[Row]:
    return [
        {"class": name, "number": number, "image": image}
        for name, images in (old["examples"] or {}).items()
        for number, image in enumerate(images)
    ]


def _reported(columns: str, *by_run: str, measured: str = "accuracy") -> Convert:
    """Of runs of several arms; by_run: facts that are lists over runs."""

    def convert(spec: Any, old: Old) -> dict[str, Any]:
        runs, of_run = spec.run_numbers, measured.split()
        found: dict[str, Any] = {k: v for k, v in old.items() if k not in ("rows", *by_run)}
        if by_run:
            found["seen"] = rows_of({"run": runs}, **{name: old[name] for name in by_run})
        return found | {
            "arms": [
                {"arm": i, **{name: row.get(name) for name in columns.split()[1:]}}
                for i, row in enumerate(old["rows"])
            ],
            "runs": [
                {"run": run, "arm": i, **{name: row[name][j] for name in of_run}}
                for i, row in enumerate(old["rows"])
                for j, run in enumerate(runs)
            ],
        }

    return convert


def _sgld_protocol(spec: Any, old: Old) -> dict[str, Any]:
    columns = f"{REGRESSION_ARM} reading schedule l2 weight_decay"
    measured = "accuracy best_epoch_accuracy"
    found = _reported(columns, *SEEN, measured=measured)(spec, old)
    for arm in found["arms"]:
        arm["l2"] = arm["weight_decay"] != 0
    return found


def _sgld_privacy_loss(spec: Any, old: Old) -> dict[str, Any]:
    curves = [
        {**row, "curve": curve["curve"], "calibration": curve["calibration"]}
        | {name: curve[name] for name in ("schedule", "sigma2")}
        for curve in old["curves"]
        for row in rows_of({"step": curve["steps"]}, epsilon=curve["epsilon"])
    ]
    published = [
        {k: v for k, v in row.items() if k != "dp_sgd"}
        | {f"dp_sgd_{name}": value for name, value in row["dp_sgd"].items()}
        for row in old["published"]
    ]
    return {**old, "curves": curves, "published": published}


def _sgld_counterexample(spec: Any, old: Old) -> dict[str, Any]:
    axes = {"K": spec.steps, "alpha": spec.alphas}
    scan = [
        {**{k: v for k, v in law.items() if k not in ("exact", "claimed")}, **row}
        for law in old["scan"]
        for row in rows_of(axes, exact=law["exact"], claimed=law["claimed"])
    ]
    return {**old, "scan": scan}


def _sgld_utility(spec: Any, old: Old) -> dict[str, Any]:
    tables: dict[str, list[Row]] = {"noise": [], "bounds": [], "risks": []}
    for row in old["rows"]:
        arm = {name: row[name] for name in ("schedule", "epsilon")}
        steps, lemma = {"step": row["shown_steps"]}, row["lemma"]
        tables["noise"].append({**arm, "sigma2": row["sigma2"], "distance2": row["distance2"]})
        of_lemma = rows_of(steps, exact=lemma["exact"], paper=lemma["paper"])
        tables["bounds"] += [{**arm, "bound": lemma["name"], **each} for each in of_lemma]
        tables["bounds"] += [
            {**arm, "bound": each["name"], "step": each["K"]}
            | {name: each[name] for name in ("exact", "paper")}
            for each in row["theorems"]
        ]
        axes = {"run": spec.run_numbers, **steps}
        risks = rows_of(axes, excess_risk=row["excess_risk_runs"])
        tables["risks"] += [{**arm, **each} for each in risks]
    return {name: value for name, value in old.items() if name != "rows"} | tables


def _maxinf_certified(old: Old, *others: str) -> dict[str, Any]:
    names = "n_train n_test inputs classes parameters T kappa_level holds_together"
    return {name: old[name] for name in [*names.split(), *LOOKED, *others]}


def _maxinf_certificates(spec: Any, old: Old) -> dict[str, Any]:
    def flat(row: Old) -> Row:
        parts = {"kappa": row["kappa"], "universe": row["universe"]}
        nested = {f"{a}_{b}": value for a, part in parts.items() for b, value in part.items()}
        return nested | {name: v for name, v in row.items() if name not in (*parts, *LOOKED)}

    return {**_maxinf_certified(old), "rows": [flat(row) for row in old["rows"]]}


def _along(axis: str, curve: Old, *fixed: str) -> list[Row]:
    """Rows of the lists of a curve along one axis, which is among them, and of its fixed values."""
    lists = {name: values for name, values in curve.items() if name not in (axis, *fixed)}
    same = {name: curve[name] for name in fixed}
    return [same | row for row in rows_of({axis: curve[axis]}, **lists)]


def _lp_umap(spec: Any, old: Old) -> dict[str, Any]:
    by_run = ("x", "y", "knn", "silhouette", "accuracy")
    panels = [
        {"run": run, **{k: v[number] if k in by_run else v for k, v in panel.items()}}
        for number, run in enumerate(spec.run_numbers)
        for panel in old["panels"]
    ]
    labels = rows_of({"run": spec.run_numbers}, labels=old["labels"])
    return {**old, "labels": labels, "panels": panels}


def _lp_feature_quality(spec: Any, old: Old) -> dict[str, Any]:
    measured = ("private", "public", "accuracy")
    curves = [
        {**{name: row[name] for name in ("head_scale", "lr", "strategy")}, **each}
        for row in old["rows"]
        for each in rows_of(
            {"run": spec.run_numbers, "step": row["steps"]}, **{n: row[n] for n in measured}
        )
    ]
    return {**{name: v for name, v in old.items() if name != "rows"}, "curves": curves}


OLD: dict[tuple[str, str], Convert] = {
    ("kl_privacy", "training"): _kl_training,
    ("kl_privacy", "linearized"): _kl_linearized,
    ("kl_privacy", "constants"): lambda _, old: {n: old[n] for n in ("inputs", "rows")},
    ("feature_learning", "simulation"): _feature_simulation,
    ("pretrain", "backbone"): _pretrain_backbone,
    ("pretrain", "transfer"): _pretrain_transfer,
    ("dp_sgld", "protocol"): _sgld_protocol,
    ("dp_sgld", "accuracy"): _reported(f"{REGRESSION_ARM} comparison schedule weight_decay", *SEEN),
    ("dp_sgld", "long_training"): _reported(f"{REGRESSION_ARM} comparison", *SEEN),
    ("dp_sgld", "finetune"): _reported(f"{ARM} unfreeze trained_parameters"),
    ("dp_sgld", "privacy_loss"): _sgld_privacy_loss,
    ("dp_sgld", "counterexample"): _sgld_counterexample,
    ("dp_sgld", "utility"): _sgld_utility,
    ("max_information", "certificates"): _maxinf_certificates,
    ("max_information", "agreement"): lambda _, old: _maxinf_certified(old, "diverged", "rows"),
    ("max_information", "coefficients"): lambda _, old: {
        "rows": [row for curve in old["curves"] for row in _along("beta", curve, "alpha")]
    },
    ("max_information", "kappa"): lambda _, old: {
        "rows": [row for panel in old["panels"] for row in _along("x", panel, "axis")]
    },
    ("max_information", "simulation"): lambda _, old: {"rows": old["rows"]},
    ("lp_fft", "umap"): _lp_umap,
    ("lp_fft", "feature_quality"): _lp_feature_quality,
    ("lp_fft", "strategies"): _reported(
        "arm strategy share lrs steps batch sampler noise_multiplier max_grad_norm target_epsilon "
        "epsilon relation guaranteed_by trained_parameters"
    ),
}
