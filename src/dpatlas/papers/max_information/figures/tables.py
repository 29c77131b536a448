"""Tables of max_information's certificates: the selected ones, and the whole grid.

Both join the records that differ in their priors only.
"""

from collections.abc import Sequence

from dpatlas.papers.max_information.figures.published import (
    AGREEMENT_COLUMNS,
    PRINTED_COLUMNS,
    agreement_part,
    agreement_rows,
    printed_part,
    printed_rows,
    printed_standing,
)
from dpatlas.papers.max_information.figures.rows import (
    CHOICE,
    KAPPAS,
    OVER_RUNS,
    PRIOR,
    SETTING_COLUMNS,
    grid_rows,
    selected_rows,
    settings_behind,
)
from dpatlas.papers.max_information.formulas.kappa import FORMS
from dpatlas.papers.max_information.formulas.published import TABLE_1, PublishedCertificates
from dpatlas.papers.max_information.selection import PAID, RIGOROUS, UNIVERSE
from dpatlas.show.output import Records, Row, Settings, ShownTable
from dpatlas.show.series import of_kind
from dpatlas.show.tables import Cell, Math, Measured, Part

# What the paper calls the data sets of ours.
PRINTED_AS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
PRIORS = {"independent": "data-independent", "noise-only": "noise only (ours)", "dp-sgd": "DP-SGD"}
CERTIFICATE_COLUMNS = (
    *("part", *SETTING_COLUMNS, "prior"),
    *(*CHOICE, *OVER_RUNS),
    *PRINTED_COLUMNS,
    *AGREEMENT_COLUMNS,
)
GRID_COLUMNS = (*SETTING_COLUMNS, "prior", *PRIOR, *KAPPAS, *OVER_RUNS, "selected_runs")
RISKS = {
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
SELECTED_BY = {PAID: "", RIGOROUS: ", by rigorous", UNIVERSE: ", by universe"}
TAU = {"deviation": "standard deviation", "variance": "variance"}


def maxinf_certificates(records: Records, settings: Settings) -> ShownTable:
    """Tables 1 to 3: the selected prior of every kind; the printed rows; how risks were drawn."""
    certified = [(setting, selected_rows(setting)) for setting in settings_behind(records)]
    printed = printed_rows([name for setting, _ in certified for name in setting.ids])
    drawn = [row for record in of_kind(records, "agreement") for row in agreement_rows(record)]
    parts = [certificates_part(rows) for _, rows in certified]
    parts += [printed_part(printed)] + ([agreement_part(drawn)] if drawn else [])
    ours = [row for _, rows in certified for row in rows]
    return ShownTable(CERTIFICATE_COLUMNS, [*ours, *printed, *drawn], parts)


def maxinf_grid(records: Records, settings: Settings) -> ShownTable:
    """Appendix C: every prior that was tried, with its kappas, risks, KL and certificates."""
    blocks = [grid_rows(setting) for setting in settings_behind(records)]
    parts = [grid_part(rows) for rows in blocks]
    return ShownTable(GRID_COLUMNS, [row for rows in blocks for row in rows], parts)


def certificates_part(rows: Sequence[Row]) -> Part:
    """The shape of Table 1, with what must be covered; the paper's rows of the same data below."""
    first = rows[0]
    caption = (
        f"{_name(first)}. Per kind of prior every run selects the least certificate of a posterior "
        f"among the priors tried; mean ± standard deviation of {first['runs_used']} runs. The "
        f"{first['form']} kappa at level beta/K1; risks over {first['draws']} draws of a record "
        f"and weights; Eqs. 97 and 98 with delta = {first['delta']:g}, delta' = "
        f"{first['delta_mc']:g}, beta = {first['beta']:g}, K1 = {first['K1']}, K2 = {first['K2']}; "
        f"{OTHER_FORMS}; {_looks(first)}; test errors over "
        f"{first['test_draws']} draws on {first['n_test']} records"
    )
    headings = (
        "prior",
        "proof of B",
        *RISKS.values(),
        "tight",
        "rigorous",
        "universe",
        TEST_ERROR,
        "covered",
        Math(r"\text{test error of } \pi"),
        "selected",
        "tried, of paid for",
    )
    cells = [
        (
            PRIORS[row["prior"]] + SELECTED_BY[row["selected_by"]],
            _proof(row),
            *(_measured(row, name) for name in (*RISKS, *POSTERIOR)),
            _covered(row),
            _measured(row, "prior_test_error"),
            row["selected"],
            f"{row['tuples_tried']} x {row['deviations_tried']} of {row['K1']} x {row['K2']}",
        )
        for row in rows
    ]
    printed = [row for row in TABLE_1 if row.dataset == PRINTED_AS.get(first["data"])]
    return Part(caption, headings, cells + [_printed_cells(row) for row in printed])


def grid_part(rows: Sequence[Row]) -> Part:
    """All priors of one setting."""
    first = rows[0]
    caption = (
        f"{_name(first)}. All {len(rows)} priors that were tried, paid for by a union over K1 = "
        f"{first['K1']} tuples and K2 = {first['K2']} values of tau; mean ± standard deviation of "
        f"{first['runs_used']} runs; certificates with the {first['form']} kappa; {OTHER_FORMS}; "
        f"{_looks(first)}; "
        "selected: runs in which the posterior has the least certificate of its kind of prior"
    )
    numbers = ("risk_prior", "certificate_prior", "risk_posterior", "kl", "certificate_posterior")
    headings = (
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
            _proof(row),
            *(_measured(row, name) for name in (*numbers, *POSTERIOR)),
            _covered(row),
            f"{row['selected_runs']} of {row['runs_used']}",
        )
        for row in rows
    ]
    return Part(caption, headings, cells)


def _printed_cells(row: PublishedCertificates) -> tuple[Cell, ...]:
    """A row of Table 1 in the columns of `certificates_part`."""
    return (
        f"{row.prior}, printed, n = {row.n}",
        printed_standing(row),
        *(row.risk_prior, row.bound_prior, row.risk_posterior),
        *(row.kappa, row.kl, row.bound_posterior),
        *(None,) * 8,
    )


def _name(row: Row) -> str:
    return (
        f"{row['data']}, {row['model']} with {row['parameters']} parameters, objective "
        f"{row['objective']}: n = {row['n_train']}, {row['classes']} classes, tau a "
        f"{TAU[row['tau_is']]}"
    )


def _looks(row: Row) -> str:
    label = "selected after a look" if row["selected_after_a_look"] else "not selected after a look"
    return f"{label}: {row['looks']}"


def _proof(row: Row) -> str:
    if row["standing"] == row["standing_tight"]:
        return row["standing"]
    return f"{row['standing']} (tight: {row['standing_tight']})"


def _covered(row: Row) -> str:
    """Runs with a certificate of the posterior that is not below its test error."""
    diverged = f", {row['diverged_runs']} diverged" if row["diverged_runs"] else ""
    return f"{row['covered_runs']} of {row['runs_used']}{diverged}"


def _measured(row: Row, name: str) -> Cell:
    if row[f"{name}_mean"] is None:
        return None
    # No deviation where nothing deviates: a kappa is the same in every run of its tuple.
    return Measured(row[f"{name}_mean"], row[f"{name}_std"] or None)
