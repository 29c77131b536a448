"""Table maxinf_certificates: selected certificates, printed ones, and two estimates of a risk.

Records that differ in their priors only are joined.
"""

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from dpatlas.formulas.max_information.published import TABLE_1, PublishedCertificates
from dpatlas_workflow.papers.max_information.figures import certificate_rows as shared
from dpatlas_workflow.papers.max_information.figures.published import (
    AGREEMENT_COLUMNS,
    PRINTED_COLUMNS,
    agreement_part,
    agreement_rows,
    printed_part,
    printed_rows,
    printed_standing,
)
from dpatlas_workflow.papers.max_information.selection import (
    HYPERPARAMETERS,
    PAID,
    RIGOROUS,
    UNIVERSE,
    CertifiedSetting,
)
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Records, Row, Settings, of_kind
from dpatlas_workflow.show.tables import Cell, Math, Part

# The paper's names of our data sets.
PRINTED_AS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
CHOICE = ("selected_by", "selected", "tuples_tried", "deviations_tried")
CERTIFICATE_COLUMNS = (
    *("part", *shared.SETTING_COLUMNS, "prior"),
    *(*CHOICE, *shared.OVER_RUNS),
    *PRINTED_COLUMNS,
    *AGREEMENT_COLUMNS,
)
SELECTED_BY = {PAID: "", RIGOROUS: ", by rigorous", UNIVERSE: ", by universe"}


def maxinf_certificates(records: Records, settings: Settings) -> ShownTable:
    """Tables 1 to 3: selected priors of every kind, the printed rows, two estimates of a risk."""
    certified = [(setting, selected_rows(setting)) for setting in shared.settings_behind(records)]
    printed = printed_rows([name for setting, _ in certified for name in setting.blocks])
    estimates = [row for record in of_kind(records, "agreement") for row in agreement_rows(record)]
    parts = [certificates_part(rows) for _, rows in certified]
    parts += [printed_part(printed)] + ([agreement_part(estimates)] if estimates else [])
    ours = [row for _, rows in certified for row in rows]
    return ShownTable(CERTIFICATE_COLUMNS, [*ours, *printed, *estimates], parts)


def selected_rows(setting: CertifiedSetting) -> list[Row]:
    """Each kind of prior, as every run selects it by its smallest certificate.

    Selection is by the certificate with the paid form of kappa; where rigorous certificates or
    those of the universe select other priors, these have rows too.
    """
    rows = []
    for kind in setting.kinds:
        tuples, deviations = setting.tried(kind)
        shown: list[list[int]] = []
        for by in (PAID, RIGOROUS, UNIVERSE):
            selected = setting.selected(kind, by)
            if list(selected.index) in shown:
                continue
            shown.append(list(selected.index))
            rows.append(
                {
                    "part": "ours",
                    **shared.setting_facts(setting),
                    "prior": kind,
                    "selected_by": by,
                    "selected": _selection(selected),
                    "tuples_tried": tuples,
                    "deviations_tried": deviations,
                    **shared.over_runs(setting, selected),
                }
            )
    return rows


def _selection(rows: pd.DataFrame) -> str:
    """The selected tuple and tau; where runs differ, each with its number of runs."""
    texts = Counter(
        ", ".join(
            f"{name} {value:g}"
            for name in (*HYPERPARAMETERS, "tau")
            if pd.notna(value := row[name])
        )
        for row in rows.to_dict("records")
    )
    if len(texts) == 1:
        return next(iter(texts))
    return "; ".join(f"{count} x ({text})" for text, count in texts.most_common())


def certificates_part(rows: Sequence[Row]) -> Part:
    """Table 1 for one setting, with test errors; below, the paper's rows of the same data set."""
    first = rows[0]
    caption = (
        f"{shared.setting_name(first)}. For every kind of prior, each run selects the smallest "
        "certificate of a posterior among the priors tried; mean ± standard deviation of "
        f"{first['runs_used']} runs. The {first['form']} kappa at level beta/K1; risks over "
        f"{first['draws']} draws of a record and weights; Eqs. 97 and 98 with delta = "
        f"{first['delta']:g}, delta' = {first['delta_mc']:g}, beta = {first['beta']:g}, K1 = "
        f"{first['K1']}, K2 = {first['K2']}; {shared.OTHER_FORMS}; {shared.look_label(first)}; "
        f"test errors over {first['test_draws']} draws on {first['n_test']} records"
    )
    headings: dict[str, Cell] = {
        **{"prior": "prior", "proof": "proof of B", **shared.RISK_HEADINGS},
        **{"kappa": Math(r"\kappa"), **shared.POSTERIOR_HEADINGS},
        "prior_test_error": Math(r"\text{test error of } \pi"),
        **{"selected": "selected", "tried": "tried, of paid for"},
    }
    printed = [row for row in TABLE_1 if row.dataset == PRINTED_AS.get(first["data"])]
    lines = [*map(_selected_cells, rows), *map(_printed_cells, printed)]
    return Part.of(caption, headings, lines)


def _selected_cells(row: Row) -> dict[str, Cell]:
    """A row of ours under the headings of `certificates_part`."""
    cells = shared.cells_of(row)
    tried, paid = (
        f"{row[tuples]} x {row[taus]}"
        for tuples, taus in (("tuples_tried", "deviations_tried"), ("K1", "K2"))
    )
    by = SELECTED_BY[row["selected_by"]]
    return cells | {"prior": f"{cells['prior']}{by}", "tried": f"{tried} of {paid}"}


def _printed_cells(row: PublishedCertificates) -> dict[str, Cell]:
    """A row of Table 1 under the headings of `certificates_part`."""
    return {
        "prior": f"{row.prior}, printed, n = {row.n}",
        "proof": printed_standing(row),
        "risk_prior": row.risk_prior,
        "certificate_prior": row.bound_prior,
        "risk_posterior": row.risk_posterior,
        "kappa": row.kappa,
        "kl": row.kl,
        "certificate_posterior": row.bound_posterior,
    }
