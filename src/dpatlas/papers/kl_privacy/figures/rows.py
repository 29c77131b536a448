"""Records of kl_privacy as rows: one number that a figure shows, and what stands behind it.

A row holds the condition's keys, `quantity`, `value` and its interval `low` to `high`, how many
runs were used and how many diverged, and the record's id. A condition that lost runs to divergence
keeps the mean over the others; one that lost all has no value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpatlas.core.statistics import mean_estimate
from dpatlas.errors import InputError
from dpatlas.papers.kl_privacy.formulas.theorems import (
    CONVENTIONS,
    excess_risk_term,
    kl_linearized,
    kl_step,
    lazy_distance,
    lazy_distance_corrected,
)
from dpatlas.papers.kl_privacy.gradient_norms import drift_constants
from dpatlas.show.look import INITS
from dpatlas.show.output import Records, Row

COUNTS = ("runs_used", "runs_diverged")
VALUES = ("quantity", "value", "low", "high")
CONFIDENCE = 0.95
# May differ between inits within one figure; all else must be what the figure varies.
FREE_FIELDS = ("init", "lr")
# The measured KL is under the exact convention; the paper's is this many times larger.
PAPER_OVER_EXACT = kl_step(1.0, 1.0, 1.0, "paper") / kl_step(1.0, 1.0, 1.0, "exact")


def conditions(
    records: Records, kind: str, vary: Sequence[str] = (), free: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The records of one kind, ordered by init and by the spec fields `vary`.

    Raises InputError where there is none, where two describe the same condition, and where they
    differ in a field that the figure does not show and that is not `free`.
    """
    chosen = [record for record in records if record["spec"]["kind"] == kind]
    if not chosen:
        found = ", ".join(sorted({record["spec"]["kind"] for record in records}))
        raise InputError("--records", f"kinds {found}", f"at least one of kind {kind}")
    for record in chosen:
        _check_comparable(record, chosen[0], {*FREE_FIELDS, *vary, *free})
    seen: dict[tuple, str] = {}
    rates: dict[str, float] = {}
    for record in chosen:
        fields = record["spec"]
        where, condition = f"--records {record['id']}", _condition(record, vary)
        if condition in seen:
            raise InputError(where, f"the condition of {seen[condition]}", "each once")
        seen[condition] = record["id"]
        if rates.setdefault(fields.get("init"), fields.get("lr")) != fields.get("lr"):
            raise InputError(where, f"lr {fields['lr']:g}", "one step size for each init")
    return sorted(chosen, key=lambda record: _condition(record, vary))


def _check_comparable(record: dict[str, Any], other: dict[str, Any], free: set[str]) -> None:
    fields, expected = record["spec"], other["spec"]
    unlike = sorted(
        name
        for name in (set(fields) | set(expected)) - free
        if fields.get(name) != expected.get(name)
    )
    if unlike:
        raise InputError(
            f"--records {record['id']}",
            f"{', '.join(unlike)} unlike {other['id']}",
            f"records that differ in {', '.join(sorted(free))} only",
        )
    if "init" in fields and fields["init"] not in INITS:
        raise InputError(record["id"], f"init {fields['init']!r}", f"one of {', '.join(INITS)}")


def _condition(record: dict[str, Any], vary: Sequence[str]) -> tuple:
    fields = record["spec"]
    order = list(INITS).index(fields["init"]) if "init" in fields else 0
    return (order, *(fields[name] for name in vary))


def training_row(record: dict[str, Any], quantity: str, step: int, **keys: Any) -> Row:
    """One number of a training record after `step` steps.

    `kl_worst` (max over records of the mean over runs, with the record's bootstrap interval),
    `kl_mean` (mean over records and runs) in nats; `training_loss` (mean over runs, from the least
    to the largest run), taken at the weights that the step started from.
    """
    metrics = record["metrics"]
    row = {
        "init": record["spec"]["init"],
        **keys,
        "step": step,
        "quantity": quantity,
        "runs_used": metrics["runs_used"],
        "runs_diverged": len(metrics["diverged"]) - metrics["runs_used"],
        "runs": [record["id"]],
    }
    if not metrics["runs_used"]:
        return row
    if quantity == "kl_worst":
        kl = metrics["kl"]
        value, low, high = (kl[name][step - 1] for name in ("worst", "low", "high"))
        return row | {"value": value, "low": low, "high": high}
    if quantity == "kl_mean":
        return row | {"value": metrics["kl"]["mean"][step - 1]}
    return row | over_runs(metrics["loss"]["runs"][step - 1])


def over_runs(values: Sequence[float]) -> dict[str, float]:
    """Mean, least and largest of the runs' values."""
    return {"value": float(np.mean(values)), "low": min(values), "high": max(values)}


def need_steps(records: Records, steps: int, name: str) -> None:
    """InputError unless every training record reaches `steps`, the horizon called `name`."""
    for record in records:
        if record["spec"]["steps"] < steps:
            raise InputError(
                record["id"],
                f"{record['spec']['steps']} steps",
                f"at least {steps} steps ({name})",
            )


def horizon(settings: dict[str, Any], name: str) -> int:
    """The number of steps of a named horizon; InputError if the settings lack it."""
    steps = settings.get("horizons", {}).get(name)
    if type(steps) is not int or steps < 1:
        raise InputError(f"settings.horizons.{name}", repr(steps), "a whole number >= 1")
    return steps


def lemma_rows(record: dict[str, Any]) -> list[Row]:
    """Estimate and Lemma 3.2 after every step of a trained network, both conventions.

    A record that lost all runs gives one row without a value.
    """
    steps, rate = record["spec"]["steps"], record["spec"]["lr"]
    keys = {"network": "trained", "depth": record["spec"]["depth"]}
    if not record["metrics"]["runs_used"]:
        return [training_row(record, "estimate_exact", steps, time=rate * steps, **keys)]
    constants = drift_constants(record)
    rows = []
    for step in range(1, steps + 1):
        time = rate * step
        estimate = training_row(record, "kl_worst", step, time=time, **keys)
        bounds = {name: float(constants.kl_bound(time, name)) for name in CONVENTIONS}
        rows += _both_conventions(estimate, bounds)
    return rows


def corollary_rows(record: dict[str, Any], depth: int) -> list[Row]:
    """Measured KL and Cor. 4.2 at the shown steps of a linearised network, both conventions."""
    found = _at_depth(record, depth)
    rows = []
    for step, values in zip(found["shown_steps"], found["kl_worst_runs"], strict=True):
        time = found["eta"] * step
        estimate = {
            "init": record["spec"]["init"],
            "network": "linearized",
            "depth": depth,
            "step": step,
            "time": time,
            **over_runs(values),
            "runs_used": len(values),
            "runs_diverged": 0,
            "runs": [record["id"]],
        }
        sizes = {"n": record["metrics"]["n_train"], "sigma2": found["sigma2"]}
        bounds = {
            name: float(kl_linearized(found["B"], time, **sizes, convention=name))
            for name in CONVENTIONS
        }
        rows += _both_conventions(estimate, bounds)
    return rows


def _both_conventions(estimate: Row, bounds: dict[str, float]) -> list[Row]:
    """The estimate and its bound under both conventions; the interval with the exact one only."""
    paper = {name: value for name, value in estimate.items() if name not in ("low", "high")}
    paper["value"] *= PAPER_OVER_EXACT
    bare = {name: value for name, value in paper.items() if name != "value"}
    return [
        estimate | {"quantity": "estimate_exact"},
        paper | {"quantity": "estimate_paper"},
        *(bare | {"quantity": f"bound_{name}", "value": bounds[name]} for name in CONVENTIONS),
    ]


def tradeoff_rows(record: dict[str, Any]) -> list[Row]:
    """B, R, B R / n, the excess risk and the KL of a `linearized` record, every depth."""
    return [row for found in record["metrics"]["depths"] for row in _tradeoff_depth(record, found)]


def _tradeoff_depth(record: dict[str, Any], found: dict[str, Any]) -> list[Row]:
    fields, metrics = record["spec"], record["metrics"]
    n, epsilon = metrics["n_train"], metrics["epsilon"]
    layers = (fields["init"], input_size(record), fields["width"], found["depth"])
    printed = float(lazy_distance(*layers, n))
    corrected = float(lazy_distance_corrected(*layers, n))
    constant, lazy = found["B"], float(np.mean(found["R_runs"]))
    numbers = {
        "B_formula": constant,
        "R_printed": printed,
        "R_corrected": corrected,
        "BR_over_n_printed": constant * printed / n,
        "BR_over_n_corrected": constant * corrected / n,
        "excess_risk_bound": float(excess_risk_term(constant, lazy, n, epsilon)),
        "budget": 1.0,
    }
    runs = {
        "B_measured": found["B_runs"],
        "R_measured": found["R_runs"],
        "BR_over_n_measured": found["BR_over_n_runs"],
        "excess_risk": found["excess_risk_runs"],
        "initial_risk": found["initial_risk_runs"],
        "kl_over_budget": [kl / epsilon for kl in found["kl_worst_runs"][-1]],
    }
    base = {"init": fields["init"], "depth": found["depth"], "runs": [record["id"]]}
    rows = [base | {"quantity": name, "value": value} for name, value in numbers.items()]
    rows += [
        base | {"quantity": name, "runs_used": len(values)} | mean_interval(values)
        for name, values in runs.items()
    ]
    return rows


def mean_interval(values: Sequence[float]) -> Row:
    """Mean of the runs and its 95% t interval; no interval for a single run."""
    estimate = mean_estimate(values)
    if estimate.runs == 1:
        return {"value": estimate.value}
    low, high = estimate.interval(CONFIDENCE)
    return {"value": estimate.value, "low": low, "high": high}


def input_size(record: dict[str, Any]) -> int:
    """d, the number of inputs of a record's data."""
    return int(np.prod(record["data"]["shapes"]["x_train"][1:]))


def _at_depth(record: dict[str, Any], depth: int) -> dict[str, Any]:
    for found in record["metrics"]["depths"]:
        if found["depth"] == depth:
            return found
    raise InputError(record["id"], f"no result at depth {depth}", "a result for every depth")
