"""Rows of max_information's certificates over runs: the selected priors, and all of them.

A row has mean and standard deviation over runs of what `MEASURED` names; a posterior that diverged
has a certificate of 1 and no risk. An infinite kappa, null in a record, is inf.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.kappa import FORMS, standing
from dpatlas.papers.max_information.selection import (
    HYPERPARAMETERS,
    KINDS,
    PAID,
    RIGOROUS,
    UNIVERSE,
    Setting,
    hyperparameters,
    settings_of,
)
from dpatlas.show.output import Records, Row
from dpatlas.show.series import of_kind

SIZES = ("n_train", "n_test", "inputs", "classes", "parameters")
BUDGET = ("K1", "K2", "delta", "delta_mc", "beta", "draws")
READINGS = ("form", "tau_is")
MEASURED = (
    "risk_prior",
    "certificate_prior",
    "prior_test_error",
    "risk_posterior",
    "kappa",
    "kl",
    "certificate_posterior",
    "certificate_tight",
    "certificate_rigorous",
    "certificate_universe",
    "test_error",
)
SETTING_COLUMNS = ("data", "model", "objective", *SIZES, *BUDGET, *READINGS)
# What the universe charges, mean over runs, and which looks the row comes after.
UNIVERSE_COLUMNS = ("universe_nats_mean", "universe_kappa_mean", "selected_after_a_look", "looks")
OVER_RUNS = (
    "standing",
    "standing_tight",
    *UNIVERSE_COLUMNS,
    *(f"{name}_{part}" for name in MEASURED for part in ("mean", "std")),
    "test_draws",
    "covered_runs",
    "diverged_runs",
    "runs_used",
)
KAPPAS = tuple(f"kappa_{form}" for form in FORMS)
CHOICE = ("selected_by", "selected", "tuples_tried", "deviations_tried")
PRIOR = (*HYPERPARAMETERS, "T", "tau")


def settings_behind(records: Records) -> list[Setting]:
    """The settings of all `certificates` records; InputError where there is none."""
    chosen = of_kind(records, "certificates")
    if not chosen:
        raise InputError("--records", "none of kind certificates", "at least one")
    return settings_of(chosen)


def selected_rows(setting: Setting) -> list[Row]:
    """Every run's least certificate of each kind of prior, over runs.

    By the form that is paid; once more by rigorous certificates and by those of the universe, where
    these select other priors.
    """
    rows = []
    for kind in setting.kinds:
        shown: list[list[Mapping[str, Any]]] = []
        for by in (PAID, RIGOROUS, UNIVERSE):
            chosen = setting.selected(kind, by)
            if chosen not in shown:
                shown.append(chosen)
                rows.append(_selected_row(setting, kind, by, chosen))
    return rows


def _selected_row(setting: Setting, kind: str, by: str, rows: list[Mapping[str, Any]]) -> Row:
    tuples, deviations = setting.tried(kind)
    return {
        "part": "ours",
        **_facts(setting),
        "prior": kind,
        "selected_by": by,
        "selected": _selection(rows),
        "tuples_tried": tuples,
        "deviations_tried": deviations,
        **_over_runs(setting, rows),
    }


def grid_rows(setting: Setting) -> list[Row]:
    """One row per tuple and deviation; by kind, then by kappa and the tuple."""
    chosen = [id(row) for kind in setting.kinds for row in setting.selected(kind)]
    members: dict[tuple, list[Mapping[str, Any]]] = {}
    for row in setting.rows:
        members.setdefault((row["prior"], hyperparameters(row), row["tau"]), []).append(row)
    found = [
        {
            **_facts(setting),
            **{name: rows[0][name] for name in ("prior", *PRIOR)},
            **{f"kappa_{form}": _number(rows[0]["kappa"][form]) for form in FORMS},
            **_over_runs(setting, rows),
            "selected_runs": sum(id(row) in chosen for row in rows),
        }
        for rows in members.values()
    ]
    return sorted(found, key=_grid_order)


def _facts(setting: Setting) -> Row:
    fields, metrics = setting.fields, setting.metrics
    return {
        "data": fields["data"]["name"],
        **{name: fields[name] for name in ("model", "objective", *BUDGET)},
        **{name: metrics[name] for name in (*SIZES, *READINGS)},
        "runs": setting.ids,
    }


def _over_runs(setting: Setting, rows: Sequence[Mapping[str, Any]]) -> Row:
    """What a row of either table has of the runs."""
    proofs = [standing("tight", row["E"] if row["prior"] == "dp-sgd" else 1) for row in rows]
    found: Row = {
        "standing": _least([row["standing"] for row in rows]),
        "standing_tight": _least(proofs),
        "universe_nats_mean": float(np.mean([row["universe"]["nats"] for row in rows])),
        "universe_kappa_mean": float(np.mean([_number(row["universe"]["kappa"]) for row in rows])),
        **{name: rows[0][name] for name in ("selected_after_a_look", "looks")},
        "test_draws": rows[0]["test_draws"],
        "covered_runs": sum(
            row["test_error"] is None or row["certificate_posterior"] >= row["test_error"]
            for row in rows
        ),
        "diverged_runs": sum(row["diverged"] is not None for row in rows),
        "runs_used": len(rows),
    }
    form = setting.metrics["form"]
    for name in MEASURED:
        if name == "kappa":
            values = [_number(row["kappa"][form]) for row in rows]
        else:
            values = [row[name] for row in rows if row[name] is not None]
        found[f"{name}_mean"] = float(np.mean(values)) if values else None
        found[f"{name}_std"] = _deviation(values)
    return found


def _deviation(values: Sequence[float]) -> float | None:
    """Standard deviation, free of rounding where all are equal; None where it is not known."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return float(np.std(values, ddof=1)) if max(values) > min(values) else 0.0


def _least(labels: Iterable[str]) -> str:
    """`rigorous` only if all are."""
    return min(labels, key=lambda label: label == "rigorous")


def _number(value: float | None) -> float:
    """Infinity is null in a record."""
    return math.inf if value is None else float(value)


def _selection(rows: Iterable[Mapping[str, Any]]) -> str:
    """Tuple and deviation that were chosen, and in how many runs where they differ."""
    texts = Counter(
        ", ".join(
            f"{name} {row[name]:g}" for name in (*HYPERPARAMETERS, "tau") if row[name] is not None
        )
        for row in rows
    )
    if len(texts) == 1:
        return next(iter(texts))
    return "; ".join(f"{count} x ({text})" for text, count in texts.most_common())


def _grid_order(row: Row) -> tuple:
    own = (row["zeta"], row["sigma"], row["m"], row["E"], row["lr"], row["tau"])
    return (KINDS.index(row["prior"]), row["kappa_mean"], *(value or 0 for value in own))
