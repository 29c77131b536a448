"""What the tables of max_information's certificates share: rows over runs, and their words.

A row has mean and standard deviation over runs of what `MEASURED` names; a posterior that diverged
has a certificate of 1 and no risk. An infinite kappa, null in a record, is inf.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.kappa import standing
from dpatlas.papers.max_information.records.certificates import Row as CertificateRow
from dpatlas.papers.max_information.selection import Setting, settings_of
from dpatlas.show.output import Records, Row
from dpatlas.show.series import of_kind
from dpatlas.show.tables import Cell, Math, Measured

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
PRIORS = {"independent": "data-independent", "noise-only": "noise only (ours)", "dp-sgd": "DP-SGD"}
RISKS: dict[str, Cell] = {
    "risk_prior": Math(r"\hat R(\pi)"),
    "certificate_prior": Math(r"B(\pi)"),
    "risk_posterior": Math(r"\hat R(\rho)"),
    "kappa": Math(r"\kappa"),
    "kl": "KL",
    "certificate_posterior": Math(r"B(\rho)"),
}
POSTERIOR = (
    "certificate_tight",
    "certificate_rigorous",
    "certificate_universe",
    "test_error",
)
TEST_ERROR = Math(r"\text{test error of } \rho")
OTHER_FORMS = (
    "of the same posterior, tight: kappa-tight and Clopper-Pearson at delta'; rigorous: the least "
    "proven kappa and Clopper-Pearson at delta'/(K1 K2), which pays for every posterior's count; "
    "universe: log(1/w) for log(K1 K2), the least proven kappa at level beta w and Clopper-Pearson "
    "at delta' w, where the weights w of all settings that could be chosen sum to at most 1"
)
TAU = {"deviation": "standard deviation", "variance": "variance"}


def settings_behind(records: Records) -> list[Setting]:
    """The settings of all `certificates` records; InputError where there is none."""
    certified = of_kind(records, "certificates")
    if not certified:
        raise InputError("--records", "none of kind certificates", "at least one")
    return settings_of(certified)


def setting_facts(setting: Setting) -> Row:
    """The columns `SETTING_COLUMNS`, and the ids of the records."""
    spec, metrics = setting.spec, setting.metrics
    return {
        "data": spec.data.name,
        **{name: getattr(spec, name) for name in ("model", "objective", *BUDGET)},
        **{name: getattr(metrics, name) for name in (*SIZES, *READINGS)},
        "runs": setting.ids,
    }


def over_runs(setting: Setting, rows: Sequence[CertificateRow]) -> Row:
    """What a row of either table has of the runs."""
    tight = [standing("tight", row.E if row.prior == "dp-sgd" and row.E else 1) for row in rows]
    values: Row = {
        "standing": _least(row.standing for row in rows),
        "standing_tight": _least(tight),
        "universe_nats_mean": float(np.mean([row.universe.nats for row in rows])),
        "universe_kappa_mean": float(np.mean([row.universe.paid_kappa for row in rows])),
        "selected_after_a_look": rows[0].selected_after_a_look,
        "looks": rows[0].looks,
        "test_draws": rows[0].test_draws,
        "covered_runs": sum(
            row.test_error is None or row.certificate_posterior >= row.test_error for row in rows
        ),
        "diverged_runs": sum(row.diverged is not None for row in rows),
        "runs_used": len(rows),
    }
    for name in MEASURED:
        if name == "kappa":
            measurements = [row.kappa.of_form(setting.metrics.form) for row in rows]
        else:
            measurements = [value for row in rows if (value := getattr(row, name)) is not None]
        values[f"{name}_mean"] = float(np.mean(measurements)) if measurements else None
        values[f"{name}_std"] = _deviation(measurements)
    return values


def _deviation(values: Sequence[float]) -> float | None:
    """Standard deviation, free of rounding where all are equal; None where it is not known."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return float(np.std(values, ddof=1)) if max(values) > min(values) else 0.0


def _least(labels: Iterable[str]) -> str:
    """`rigorous` only if all are."""
    return min(labels, key=lambda label: label == "rigorous")


def setting_name(row: Row) -> str:
    """What a caption says of the setting of a row."""
    return (
        f"{row['data']}, {row['model']} with {row['parameters']} parameters, objective "
        f"{row['objective']}: n = {row['n_train']}, {row['classes']} classes, tau a "
        f"{TAU[row['tau_is']]}"
    )


def looks_said(row: Row) -> str:
    """What a caption says of the looks behind a row."""
    label = "selected after a look" if row["selected_after_a_look"] else "not selected after a look"
    return f"{label}: {row['looks']}"


def proof(row: Row) -> str:
    """Standing of the paid form, and of the tight one where that is another."""
    if row["standing"] == row["standing_tight"]:
        return row["standing"]
    return f"{row['standing']} (tight: {row['standing_tight']})"


def covered(row: Row) -> str:
    """Runs with a certificate of the posterior that is not below its test error."""
    diverged = f", {row['diverged_runs']} diverged" if row["diverged_runs"] else ""
    return f"{row['covered_runs']} of {row['runs_used']}{diverged}"


def measured(row: Row, name: str) -> Cell:
    """Mean and standard deviation over runs; None where no run has a value."""
    if row[f"{name}_mean"] is None:
        return None
    # No deviation where nothing deviates: a kappa is the same in every run of its tuple.
    return Measured(row[f"{name}_mean"], row[f"{name}_std"] or None)
