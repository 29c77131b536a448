"""max_information, Fig. 2: what kappa depends on."""

import math
from typing import Any

from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.papers.max_information.formulas.kappa import FORMS, check_steps, kappa_per_record
from dpatlas.papers.max_information.jobs.theory import LEDGER
from dpatlas.papers.max_information.records.kappa import Base, Metrics, Panel, Spec


def kappa(job: Job) -> Outcome:
    """kappa / n by form, and log(4 sqrt(n) / delta) / n, varying one parameter at a time.

    beta = delta / 2 as in Theorem 2. An epoch has T = floor(n / m) steps; where T varies or is
    held, batches have m = floor(n / T) records. Raises InputError for m > n.
    """
    fields: Spec = job.fields
    axes = fields.axes.model_dump(exclude_none=True)
    panels = [_panel(fields.base, axis, values) for axis, values in axes.items()]
    return Outcome(Metrics(base=fields.base, panels=panels), LEDGER)


def _panel(base: Base, axis: Any, values: list[Any]) -> Panel:
    points = [_point(base, axis, value) for value in values]
    forms: dict[str, list[float | None]] = {}
    for form in FORMS:
        kappas = [float(kappa_per_record(n, **setting, form=form)) for n, setting in points]
        forms[form] = [value if math.isfinite(value) else None for value in kappas]
    # log(4 sqrt(n) / delta) with delta = 2 beta.
    confidence = [math.log(4 * math.sqrt(n) / (2 * setting["beta"])) / n for n, setting in points]
    return Panel(axis=axis, x=values, confidence=confidence, **forms)


def _point(base: Base, axis: str, value: Any) -> tuple[int, dict[str, Any]]:
    """n, and m, zeta, sigma, T, E and beta, where the parameter of `axis` has this value."""
    setting = {**base.model_dump(), axis: value}
    n, m = setting["n"], setting["m"]
    if m > n:
        raise InputError("m", m, f"at most n = {n}")
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


KIND = Kind(kappa, spec=Spec, packages=("numpy", "scipy"))
