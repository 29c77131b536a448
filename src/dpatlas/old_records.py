"""Metrics of records that were written before they had rows, as rows.

By (block, kind) a function of the record's spec and its metrics (JSON). All of this goes with the
next full run of the tiers.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dpatlas.core.records import Row, rows_of

Old = Mapping[str, Any]


def kl_training(spec: Any, old: Old) -> dict[str, Any]:
    """Of kl_privacy's runs of one condition."""
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


def kl_linearized(spec: Any, old: Old) -> dict[str, Any]:
    """Of kl_privacy's linearised network."""
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


def kl_constants(spec: Any, old: Old) -> dict[str, Any]:
    """Of kl_privacy's Monte Carlo check."""
    return {"inputs": old["inputs"], "rows": old["rows"]}


def maxinf_certified(old: Old, *others: str) -> dict[str, Any]:
    """Facts of max_information's records with certificates."""
    names = "n_train n_test inputs classes parameters T kappa_level holds_together"
    return {name: old[name] for name in [*names.split(), *LOOKED, *others]}


def maxinf_certificates(spec: Any, old: Old) -> dict[str, Any]:
    """Of max_information's certificates."""

    def flat(row: Old) -> Row:
        parts = {"kappa": row["kappa"], "universe": row["universe"]}
        nested = {f"{a}_{b}": value for a, part in parts.items() for b, value in part.items()}
        return nested | {name: v for name, v in row.items() if name not in (*parts, *LOOKED)}

    return {**maxinf_certified(old), "rows": [flat(row) for row in old["rows"]]}


def maxinf_agreement(spec: Any, old: Old) -> dict[str, Any]:
    """Of max_information's two ways to draw risks."""
    return {**maxinf_certified(old, "diverged"), "rows": old["rows"]}


def maxinf_coefficients(spec: Any, old: Old) -> dict[str, Any]:
    """Of max_information's coefficients."""
    return {"rows": [row for curve in old["curves"] for row in along("beta", curve, "alpha")]}


def maxinf_kappa(spec: Any, old: Old) -> dict[str, Any]:
    """Of max_information's kappas."""
    return {"rows": [row for panel in old["panels"] for row in along("x", panel, "axis")]}


def maxinf_simulation(spec: Any, old: Old) -> dict[str, Any]:
    """Of max_information's simulated moments."""
    return {"rows": old["rows"]}


def along(axis: str, curve: Old, *fixed: str) -> list[Row]:
    """Rows of the lists of a curve along one axis, which is among them, and of its fixed values."""
    lists = {name: values for name, values in curve.items() if name not in (axis, *fixed)}
    same = {name: curve[name] for name in fixed}
    return [same | row for row in rows_of({axis: curve[axis]}, **lists)]


LOOKED = ("selected_after_a_look", "looks")
OLD: dict[tuple[str, str], Callable[[Any, Old], dict[str, Any]]] = {
    ("kl_privacy", "training"): kl_training,
    ("kl_privacy", "linearized"): kl_linearized,
    ("kl_privacy", "constants"): kl_constants,
    ("max_information", "certificates"): maxinf_certificates,
    ("max_information", "agreement"): maxinf_agreement,
    ("max_information", "coefficients"): maxinf_coefficients,
    ("max_information", "kappa"): maxinf_kappa,
    ("max_information", "simulation"): maxinf_simulation,
}
