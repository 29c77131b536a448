"""What the tables of max_information share: rows over runs, headings, and phrases of captions.

A row has the mean and standard deviation over runs of every quantity in `MEASURED`. A posterior
that diverged has a certificate of 1 and no risk. An infinite kappa, null in a record, is inf.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from dpatlas.formulas.max_information.kappa import standing
from dpatlas_workflow.papers.max_information.selection import PAID, CertifiedSetting, settings_of
from dpatlas_workflow.show.rows import Records, Row, some
from dpatlas_workflow.show.tables import Cell, Math, Measured

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
SETTING_COLUMNS = ("data", "redeal", "model", "objective", *SIZES, *BUDGET, *READINGS)
# Cost of a setting in the universe, mean over runs, and the looks after which the row was selected.
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
OTHER_FORMS = (
    "further certificates of the same posterior: tight, with kappa-tight and Clopper-Pearson at "
    "delta'; rigorous, with the smallest proven kappa and Clopper-Pearson at delta'/(K1 K2), which "
    "pays for every posterior's count; universe, with log(1/w) for log(K1 K2), the smallest "
    "proven kappa at level beta w and Clopper-Pearson at delta' w, where the weights w of all "
    "settings that could be chosen sum to at most 1"
)
TAU = {"deviation": "standard deviation", "variance": "variance"}


# Headings of what all tables show of a row, by the keys of `cells_of`.
RISK_HEADINGS: dict[str, Cell] = {
    "risk_prior": Math(r"\hat R(\pi)"),
    "certificate_prior": Math(r"B(\pi)"),
    "risk_posterior": Math(r"\hat R(\rho)"),
}
POSTERIOR_HEADINGS: dict[str, Cell] = {
    "kl": "KL",
    "certificate_posterior": Math(r"B(\rho)"),
    "certificate_tight": "tight",
    "certificate_rigorous": "rigorous",
    "certificate_universe": "universe",
    "test_error": Math(r"\text{test error of } \rho"),
    "covered": "covered",
}


def settings_behind(records: Records) -> list[CertifiedSetting]:
    """The settings of all `certificates` records; InputError without any."""
    return settings_of(some(records, "certificates"))


def setting_facts(setting: CertifiedSetting) -> Row:
    """The values of `SETTING_COLUMNS`, and the ids of the records."""
    spec, facts = setting.spec, setting.records[0].facts
    return {
        "data": spec.data.name,
        "redeal": spec.data.redeal,
        **{name: getattr(spec, name) for name in ("model", "objective", *BUDGET, *READINGS)},
        **{name: facts[name] for name in SIZES},
        "runs": setting.blocks,
    }


def over_runs(setting: CertifiedSetting, rows: pd.DataFrame) -> Row:
    """The values of `OVER_RUNS` in a row of either table; rows: of `setting`."""
    epochs = rows.E.where(rows.prior == "dp-sgd").fillna(1).astype(int)
    facts = setting.records[0].facts
    values: Row = {
        "standing": _weakest(rows.standing),
        "standing_tight": _weakest(standing("tight", each) for each in epochs.tolist()),
        "universe_nats_mean": float(rows.universe_nats.mean()),
        "universe_kappa_mean": float(np.mean(rows.universe_kappa.to_numpy())),
        "selected_after_a_look": facts["selected_after_a_look"],
        "looks": facts["looks"],
        "test_draws": int(rows.test_draws.iloc[0]),
        "covered_runs": int((rows.test_error.isna() | (rows[PAID] >= rows.test_error)).sum()),
        "diverged_runs": int(rows.diverged.notna().sum()),
        "runs_used": len(rows),
    }
    for name in MEASURED:
        column = f"kappa_{setting.spec.form}" if name == "kappa" else name
        measurements = rows[column].dropna().tolist()
        values[f"{name}_mean"] = float(np.mean(measurements)) if measurements else None
        values[f"{name}_std"] = _deviation(measurements)
    return values


def _deviation(values: Sequence[float]) -> float | None:
    """Standard deviation, free of rounding where all are equal; None where it is not known."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return float(np.std(values, ddof=1)) if max(values) > min(values) else 0.0


def _weakest(labels: Iterable[str]) -> str:
    """`rigorous` only if all labels are, else another label."""
    return min(labels, key=lambda label: label == "rigorous")


def setting_name(row: Row) -> str:
    """How a caption describes the setting of a row."""
    records = "every run has records of its own" if row["redeal"] else "all runs have these records"
    return (
        f"{row['data']}, {row['model']} with {row['parameters']} parameters, objective "
        f"{row['objective']}: n = {row['n_train']}, {row['classes']} classes, tau a "
        f"{TAU[row['tau_is']]}; {records}"
    )


def look_label(row: Row) -> str:
    """How a caption describes the looks at certificates behind a row."""
    label = "selected after a look" if row["selected_after_a_look"] else "not selected after a look"
    return f"{label}: {row['looks']}"


def cells_of(row: Row) -> dict[str, Cell]:
    """A row with what people read: measurements as mean and deviation, and words."""
    # A deviation of 0 is not shown: a kappa is the same in every run of its tuple.
    measured = {
        name: Measured(row[f"{name}_mean"], row[f"{name}_std"] or None)
        for name in MEASURED
        if row[f"{name}_mean"] is not None
    }
    proof, tight = row["standing"], row["standing_tight"]
    diverged = f", {row['diverged_runs']} diverged" if row["diverged_runs"] else ""
    words = {
        "prior": PRIORS[row["prior"]],
        # Of the paid form of kappa, and of the tight one where that differs.
        "proof": proof if proof == tight else f"{proof} (tight: {tight})",
        # Runs in which the certificate of the posterior is not below its test error.
        "covered": f"{row['covered_runs']} of {row['runs_used']}{diverged}",
    }
    return {**row, **measured, **words}
