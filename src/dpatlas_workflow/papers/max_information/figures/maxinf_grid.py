"""Table maxinf_grid: every prior that was tried. Records that differ in priors only are joined."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from dpatlas.formulas.max_information.kappa import FORMS
from dpatlas_workflow.papers.max_information.figures import certificate_rows as shared
from dpatlas_workflow.papers.max_information.selection import (
    HYPERPARAMETERS,
    KINDS,
    CertifiedSetting,
)
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Records, Row, Settings
from dpatlas_workflow.show.tables import Cell, Math, Part

KAPPAS = tuple(f"kappa_{form}" for form in FORMS)
PRIOR = (*HYPERPARAMETERS, "T", "tau")
WHOLE = ("m", "E", "T")
GRID_COLUMNS = (
    *(*shared.SETTING_COLUMNS, "prior", *PRIOR),
    *(*KAPPAS, *shared.OVER_RUNS, "selected_runs"),
)


def maxinf_grid(records: Records, settings: Settings) -> ShownTable:
    """Appendix C: every prior that was tried, with its kappas, risks, KL and certificates."""
    blocks = [grid_rows(setting) for setting in shared.settings_behind(records)]
    parts = [grid_part(rows) for rows in blocks]
    return ShownTable(GRID_COLUMNS, [row for rows in blocks for row in rows], parts)


def grid_rows(setting: CertifiedSetting) -> list[Row]:
    """One row for every prior and tau, in the order of `_grid_order`."""
    selected = pd.concat([setting.selected(kind) for kind in setting.kinds]).index
    by = ["prior", *HYPERPARAMETERS, "tau"]
    grid = [
        {
            **shared.setting_facts(setting),
            **{name: _as_written(name, rows[name].iloc[0]) for name in ("prior", *PRIOR)},
            **{name: float(rows[name].iloc[0]) for name in KAPPAS},
            **shared.over_runs(setting, rows),
            "selected_runs": int(rows.index.isin(selected).sum()),
        }
        for _, rows in setting.rows.groupby(by, sort=False, dropna=False)
    ]
    return sorted(grid, key=_grid_order)


def _as_written(name: str, value: Any) -> Any:
    """A setting of a prior; None where it has none."""
    if pd.isna(value):
        return None
    return int(value) if name in WHOLE else value


def _grid_order(row: Row) -> tuple[float, ...]:
    """By kind of prior, then by kappa, then by the tuple and tau."""
    values = (row[name] or 0 for name in (*HYPERPARAMETERS, "tau"))
    return (KINDS.index(row["prior"]), row["kappa_mean"], *values)


def grid_part(rows: Sequence[Row]) -> Part:
    """All priors of one setting."""
    first = rows[0]
    caption = (
        f"{shared.setting_name(first)}. All {len(rows)} priors that were tried, paid for by a "
        f"union over K1 = {first['K1']} tuples and K2 = {first['K2']} values of tau; mean ± "
        f"standard deviation of {first['runs_used']} runs; certificates with the {first['form']} "
        f"kappa; {shared.OTHER_FORMS}; {shared.look_label(first)}; "
        "selected: runs in which the posterior has the smallest certificate of its kind of prior"
    )
    headings: dict[str, Cell] = {
        **{"prior": "prior", "zeta": Math(r"\zeta"), "sigma": Math(r"\sigma")},
        **{"m": "m", "E": "E", "T": "T", "lr": "learning rate", "tau": Math(r"\tau")},
        **{f"kappa_{form}": f"kappa, {form}" for form in FORMS},
        **{"proof": "proof of B", **shared.RISK_HEADINGS},
        **{**shared.POSTERIOR_HEADINGS, "selected": "selected"},
    }
    lines = [
        shared.cells_of(row) | {"selected": f"{row['selected_runs']} of {row['runs_used']}"}
        for row in rows
    ]
    return Part.of(caption, headings, lines)
