"""max_information, Fig. 2: what kappa depends on."""

import math
from typing import Any

from dpatlas.base.records import Row
from dpatlas.formulas.max_information.kappa import FORMS, check_steps, kappa_per_record
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas_workflow.papers.max_information.jobs.theory import LEDGER
from dpatlas_workflow.papers.max_information.records.kappa import RECORD, KappaBase, KappaSpec


def kappa(job: Job) -> Outcome:
    """kappa / n by form, and log(4 sqrt(n) / delta) / n, varying one parameter at a time.

    beta = delta / 2 as in Theorem 2. An epoch has T = floor(n / m) steps; where T varies or is
    held, batches have m = floor(n / T) records.
    """
    fields: KappaSpec = job.fields
    rows: list[Row] = []
    for axis, values in fields.axes.plain().items():
        for value in values:
            n, setting = _point(fields.base, axis, value)
            # log(4 sqrt(n) / delta) with delta = 2 beta.
            confidence = math.log(4 * math.sqrt(n) / (2 * setting["beta"])) / n
            row: Row = {"axis": axis, "x": value, "confidence": confidence}
            for form in FORMS:
                found = float(kappa_per_record(n, **setting, form=form))
                row[form] = found if math.isfinite(found) else None
            rows.append(row)
    return Outcome({"rows": rows}, LEDGER)


def _point(base: KappaBase, axis: str, value: Any) -> tuple[int, dict[str, Any]]:
    """n, and m, zeta, sigma, T, E and beta, where the parameter of `axis` has this value."""
    setting = {**base.plain(), axis: value}
    n, m = setting["n"], setting["m"]
    T = n // m
    if axis in ("T", "n_at_T"):
        T, n = (value, n) if axis == "T" else (T, value)
        check_steps(T, 1, n)
        m = n // T
    return n, {
        "m": m,
        "zeta": value * setting["sigma"] if axis == "zeta_over_sigma" else setting["zeta"],
        "sigma": setting["sigma"],
        "T": T,
        "E": setting["E"],
        "beta": setting["delta"] / 2,
    }


KIND = Kind(kappa, record=RECORD, packages=("numpy", "scipy"))
