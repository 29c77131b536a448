"""Table maxinf_certificates: the selected certificates, the printed ones, and how risks are drawn.

Records that differ in their priors only are joined.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

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
from dpatlas.papers.max_information.figures.published import (
    AGREEMENT_COLUMNS,
    PRINTED_COLUMNS,
    agreement_part,
    agreement_rows,
    printed_part,
    printed_rows,
    printed_standing,
)
from dpatlas.papers.max_information.formulas.published import TABLE_1, PublishedCertificates
from dpatlas.papers.max_information.records.certificates import Row as CertificateRow
from dpatlas.papers.max_information.selection import (
    HYPERPARAMETERS,
    PAID,
    RIGOROUS,
    UNIVERSE,
    Setting,
)
from dpatlas.show.output import Records, Row, Settings, ShownTable
from dpatlas.show.series import of_kind
from dpatlas.show.tables import Cell, Math, Part

# What the paper calls the data sets of ours.
PRINTED_AS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
CHOICE = ("selected_by", "selected", "tuples_tried", "deviations_tried")
CERTIFICATE_COLUMNS = (
    *("part", *SETTING_COLUMNS, "prior"),
    *(*CHOICE, *OVER_RUNS),
    *PRINTED_COLUMNS,
    *AGREEMENT_COLUMNS,
)
SELECTED_BY = {PAID: "", RIGOROUS: ", by rigorous", UNIVERSE: ", by universe"}


def maxinf_certificates(records: Records, settings: Settings) -> ShownTable:
    """Tables 1 to 3: the selected prior of every kind; the printed rows; how risks were drawn."""
    certified = [(setting, selected_rows(setting)) for setting in settings_behind(records)]
    printed = printed_rows([name for setting, _ in certified for name in setting.ids])
    drawn = [row for record in of_kind(records, "agreement") for row in agreement_rows(record)]
    parts = [certificates_part(rows) for _, rows in certified]
    parts += [printed_part(printed)] + ([agreement_part(drawn)] if drawn else [])
    ours = [row for _, rows in certified for row in rows]
    return ShownTable(CERTIFICATE_COLUMNS, [*ours, *printed, *drawn], parts)


def selected_rows(setting: Setting) -> list[Row]:
    """Every run's least certificate of each kind of prior, over runs.

    By the form that is paid; once more by rigorous certificates and by those of the universe, where
    these select other priors.
    """
    rows = []
    for kind in setting.kinds:
        shown: list[list[CertificateRow]] = []
        for by in (PAID, RIGOROUS, UNIVERSE):
            selected = setting.selected(kind, by)
            if selected not in shown:
                shown.append(selected)
                rows.append(_selected_row(setting, kind, by, selected))
    return rows


def _selected_row(setting: Setting, kind: str, by: str, rows: list[CertificateRow]) -> Row:
    tuples, deviations = setting.tried(kind)
    return {
        "part": "ours",
        **setting_facts(setting),
        "prior": kind,
        "selected_by": by,
        "selected": _selection(rows),
        "tuples_tried": tuples,
        "deviations_tried": deviations,
        **over_runs(setting, rows),
    }


def _selection(rows: Iterable[CertificateRow]) -> str:
    """Tuple and deviation that were chosen, and in how many runs where they differ."""
    texts = Counter(
        ", ".join(
            f"{name} {value:g}"
            for name in (*HYPERPARAMETERS, "tau")
            if (value := getattr(row, name)) is not None
        )
        for row in rows
    )
    if len(texts) == 1:
        return next(iter(texts))
    return "; ".join(f"{count} x ({text})" for text, count in texts.most_common())


def certificates_part(rows: Sequence[Row]) -> Part:
    """The shape of Table 1, with what must be covered; the paper's rows of the same data below."""
    first = rows[0]
    caption = (
        f"{setting_name(first)}. Per kind of prior every run selects the least certificate of a "
        f"posterior among the priors tried; mean ± standard deviation of {first['runs_used']} "
        "runs. The "
        f"{first['form']} kappa at level beta/K1; risks over {first['draws']} draws of a record "
        f"and weights; Eqs. 97 and 98 with delta = {first['delta']:g}, delta' = "
        f"{first['delta_mc']:g}, beta = {first['beta']:g}, K1 = {first['K1']}, K2 = {first['K2']}; "
        f"{OTHER_FORMS}; {looks_said(first)}; test errors over "
        f"{first['test_draws']} draws on {first['n_test']} records"
    )
    headings: tuple[Cell, ...] = (
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
            proof(row),
            *(measured(row, name) for name in (*RISKS, *POSTERIOR)),
            covered(row),
            measured(row, "prior_test_error"),
            row["selected"],
            f"{row['tuples_tried']} x {row['deviations_tried']} of {row['K1']} x {row['K2']}",
        )
        for row in rows
    ]
    printed = [row for row in TABLE_1 if row.dataset == PRINTED_AS.get(first["data"])]
    return Part(caption, headings, cells + [_printed_cells(row) for row in printed])


def _printed_cells(row: PublishedCertificates) -> tuple[Cell, ...]:
    """A row of Table 1 in the columns of `certificates_part`."""
    return (
        f"{row.prior}, printed, n = {row.n}",
        printed_standing(row),
        *(row.risk_prior, row.bound_prior, row.risk_posterior),
        *(row.kappa, row.kl, row.bound_posterior),
        *(None,) * 8,
    )
