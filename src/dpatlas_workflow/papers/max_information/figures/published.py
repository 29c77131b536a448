"""The printed rows of max_information beside what its formulas give, and two estimates of risks."""

import math
from collections.abc import Sequence
from typing import Any

from dpatlas.formulas.max_information.kappa import standing
from dpatlas.formulas.max_information.published import (
    PAPER_GRID,
    TABLE_1,
    PublishedCertificates,
)
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns
from dpatlas_workflow.show.rows import Row
from dpatlas_workflow.show.tables import Cell, Math, Measured, Part

# Eq. 97 takes the printed risk as exact; Eqs. 97 and 98 take it as an estimate.
EQUATIONS = ("eq97", "eq98")
FORMS = ("tight", "repaired")
PRINTED_COLUMNS = (
    "zeta",
    "E",
    "T",
    "kappa_recomputed",
    *(f"certificate_prior_{equation}" for equation in EQUATIONS),
    *(f"certificate_posterior_{equation}" for equation in EQUATIONS),
    *(f"kappa_{form}" for form in FORMS),
    *(f"certificate_posterior_{form}_form" for form in FORMS),
)
AGREEMENT_COLUMNS = ("what", "method", "pairs", "errors", "risk", "risk_standard_error")


def printed_rows(runs: list[str]) -> list[Row]:
    """The rows of Table 1 with kappa and both bounds recomputed from what is printed."""
    return [_printed_row(row) | {"runs": runs} for row in TABLE_1]


def _printed_row(row: PublishedCertificates) -> Row:
    kappas = {form: row.kappa_of_form(form) for form in ("optimised", *FORMS)}
    cells: Row = {
        "part": "printed",
        "data": row.dataset,
        "n_train": row.n,
        "prior": row.prior,
        "standing": printed_standing(row),
        "zeta": row.zeta,
        "E": row.E,
        "T": row.T if row.zeta else None,
        "kappa_recomputed": kappas["optimised"],
        **{f"kappa_{form}": kappas[form] for form in FORMS},
    }
    for name, risk, bound, kl in (
        ("prior", row.risk_prior, row.bound_prior, 0.0),
        ("posterior", row.risk_posterior, row.bound_posterior, row.kl),
    ):
        cells[f"risk_{name}_mean"] = risk
        cells[f"certificate_{name}_mean"] = bound
        cells[f"certificate_{name}_eq97"] = row.bound(risk, kl, row.kappa)
        cells[f"certificate_{name}_eq98"] = row.bound(risk, kl, row.kappa, monte_carlo=True)
    for form in FORMS:
        bound = row.bound(row.risk_posterior, row.kl, kappas[form])
        cells[f"certificate_posterior_{form}_form"] = bound
    return cells | {"kappa_mean": row.kappa, "kl_mean": row.kl}


def printed_standing(row: PublishedCertificates) -> str:
    """`rigorous` or `as printed`, by the number of epochs of the prior."""
    return standing("optimised", row.E or 1)


def printed_part(rows: Sequence[Row]) -> Part:
    """The printed numbers of Table 1 beside recomputed ones."""
    headings: dict[str, Cell] = {
        **{"data": "data set", "n_train": "n", "prior": "prior", "standing": "proof of B"},
        **{"zeta": Math(r"\zeta"), "E": "E", "T": "T"},
        "risk_prior_mean": Math(r"\hat R(\pi)"),
        "certificate_prior_mean": Math(r"B(\pi) \text{, printed}"),
        **{"certificate_prior_eq97": "Eq. 97", "certificate_prior_eq98": "Eqs. 97, 98"},
        **{"risk_posterior_mean": Math(r"\hat R(\rho)"), "kl_mean": "KL"},
        **{"kappa_mean": "kappa, printed", "kappa_recomputed": "recomputed"},
        **{"kappa_tight": "tight", "kappa_repaired": "repaired"},
        "certificate_posterior_mean": Math(r"B(\rho) \text{, printed}"),
        **{"certificate_posterior_eq97": "Eq. 97", "certificate_posterior_eq98": "Eqs. 97, 98"},
        "certificate_posterior_tight_form": "Eq. 97, kappa tight",
        "certificate_posterior_repaired_form": "Eq. 97, kappa repaired",
    }
    return Part.of(
        "As printed in Table 1, and recomputed from the printed risks, KL and kappa with delta = "
        f"{PAPER_GRID.delta:g}, delta' = {PAPER_GRID.delta_mc:g}, beta = {PAPER_GRID.beta:g}, "
        f"K1 = {PAPER_GRID.K1}, K2 = {PAPER_GRID.K2} and {PAPER_GRID.draws} draws; zeta and E of "
        "the DP-SGD priors are not printed and are the only ones of the paper's grid that give its "
        "kappa; the repaired form is proven for any number of epochs, the others for one",
        headings,
        rows,
    )


def agreement_rows(record: Record[Any]) -> list[Row]:
    """The risk by each way of drawing pairs, over all repetitions."""
    rows = []
    for (what, method), counts in columns([record]).groupby(["what", "method"], sort=False):
        errors, pairs = int(counts.errors.sum()), int(counts.draws.sum())
        risk = errors / pairs
        rows.append(
            {
                "part": "agreement",
                "data": record.spec.data.name,
                **{"what": what, "method": method, "pairs": pairs, "errors": errors, "risk": risk},
                "risk_standard_error": math.sqrt(risk * (1 - risk) / pairs),
                "runs": [record.id],
            }
        )
    return rows


def agreement_part(rows: Sequence[Row]) -> Part:
    """Local reparametrisation beside weight sampling."""
    names = ("what", "method", "pairs", "errors", "risk")
    lines = [row | {"risk": Measured(row["risk"], row["risk_standard_error"])} for row in rows]
    return Part.of(
        "Risk of a network with random weights on its training records, estimated from independent "
        "pairs of a record and weights in two ways: by drawing pre-activations layer by layer, and "
        "by drawing all weights; mean ± standard error over pairs",
        {"data": "data set", **{name: name for name in names}},
        lines,
    )
