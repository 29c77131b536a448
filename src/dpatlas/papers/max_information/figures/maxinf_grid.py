"""Table maxinf_grid: every prior that was tried. Records that differ in priors only are joined."""

from collections.abc import Sequence

from dpatlas.papers.max_information.figures.certificate_rows import (
    OTHER_FORMS,
    OVER_RUNS,
    POSTERIOR,
    PRIORS,
    RISKS,
    SETTING_COLUMNS,
    TEST_ERROR,
    covered,
    looks_said,
    measured,
    over_runs,
    proof,
    setting_facts,
    setting_name,
    settings_behind,
)
from dpatlas.papers.max_information.formulas.kappa import FORMS
from dpatlas.papers.max_information.records.certificates import Row as CertificateRow
from dpatlas.papers.max_information.selection import (
    HYPERPARAMETERS,
    KINDS,
    Setting,
    hyperparameters,
)
from dpatlas.show.output import Records, Row, Settings, ShownTable
from dpatlas.show.tables import Cell, Math, Part

KAPPAS = tuple(f"kappa_{form}" for form in FORMS)
PRIOR = (*HYPERPARAMETERS, "T", "tau")
GRID_COLUMNS = (*SETTING_COLUMNS, "prior", *PRIOR, *KAPPAS, *OVER_RUNS, "selected_runs")


def maxinf_grid(records: Records, settings: Settings) -> ShownTable:
    """Appendix C: every prior that was tried, with its kappas, risks, KL and certificates."""
    blocks = [grid_rows(setting) for setting in settings_behind(records)]
    parts = [grid_part(rows) for rows in blocks]
    return ShownTable(GRID_COLUMNS, [row for rows in blocks for row in rows], parts)


def grid_rows(setting: Setting) -> list[Row]:
    """One row per tuple and deviation; by kind, then by kappa and the tuple."""
    selected = [id(row) for kind in setting.kinds for row in setting.selected(kind)]
    members: dict[tuple[object, ...], list[CertificateRow]] = {}
    for row in setting.rows:
        members.setdefault((row.prior, hyperparameters(row), row.tau), []).append(row)
    grid = [
        {
            **setting_facts(setting),
            **{name: getattr(rows[0], name) for name in ("prior", *PRIOR)},
            **{f"kappa_{form}": rows[0].kappa.of_form(form) for form in FORMS},
            **over_runs(setting, rows),
            "selected_runs": sum(id(row) in selected for row in rows),
        }
        for rows in members.values()
    ]
    return sorted(grid, key=_grid_order)


def _grid_order(row: Row) -> tuple[float, ...]:
    own = (row["zeta"], row["sigma"], row["m"], row["E"], row["lr"], row["tau"])
    return (KINDS.index(row["prior"]), row["kappa_mean"], *(value or 0 for value in own))


def grid_part(rows: Sequence[Row]) -> Part:
    """All priors of one setting."""
    first = rows[0]
    caption = (
        f"{setting_name(first)}. All {len(rows)} priors that were tried, paid for by a union over "
        f"K1 = {first['K1']} tuples and K2 = {first['K2']} values of tau; mean ± standard "
        f"deviation of {first['runs_used']} runs; certificates with the {first['form']} kappa; "
        f"{OTHER_FORMS}; {looks_said(first)}; "
        "selected: runs in which the posterior has the least certificate of its kind of prior"
    )
    numbers = ("risk_prior", "certificate_prior", "risk_posterior", "kl", "certificate_posterior")
    headings: tuple[Cell, ...] = (
        "prior",
        Math(r"\zeta"),
        Math(r"\sigma"),
        "m",
        "E",
        "T",
        "learning rate",
        Math(r"\tau"),
        *(f"kappa, {form}" for form in FORMS),
        "proof of B",
        *(RISKS[name] for name in numbers),
        "tight",
        "rigorous",
        "universe",
        TEST_ERROR,
        "covered",
        "selected",
    )
    names = ("zeta", "sigma", "m", "E", "T", "lr", "tau", *KAPPAS)
    cells = [
        (
            PRIORS[row["prior"]],
            *(row[name] for name in names),
            proof(row),
            *(measured(row, name) for name in (*numbers, *POSTERIOR)),
            covered(row),
            f"{row['selected_runs']} of {row['runs_used']}",
        )
        for row in rows
    ]
    return Part(caption, headings, cells)
