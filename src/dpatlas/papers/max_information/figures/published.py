"""What max_information printed beside what its formulas give, and how risks were estimated."""

import math
from collections.abc import Sequence

from dpatlas.papers.max_information.formulas.certificates import (
    certificate,
    certificate_monte_carlo,
)
from dpatlas.papers.max_information.formulas.kappa import standing
from dpatlas.papers.max_information.formulas.published import (
    PAPER_GRID,
    TABLE_1,
    PublishedCertificates,
)
from dpatlas.papers.max_information.records.agreement import Metrics, Spec
from dpatlas.records import Record
from dpatlas.show.output import Row
from dpatlas.show.tables import Cell, Math, Measured, Part

# Eq. 97 for the printed risk as it stands, Eqs. 97 and 98 for it as an estimate.
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
        "kappa_tight": kappas["tight"],
        "kappa_repaired": kappas["repaired"],
    }
    for name, risk, bound, kl in (
        ("prior", row.risk_prior, row.bound_prior, 0.0),
        ("posterior", row.risk_posterior, row.bound_posterior, row.kl),
    ):
        cells[f"risk_{name}_mean"] = risk
        cells[f"certificate_{name}_mean"] = bound
        cells[f"certificate_{name}_eq97"] = recomputed(row, risk, kl, row.kappa)
        cells[f"certificate_{name}_eq98"] = recomputed(row, risk, kl, row.kappa, monte_carlo=True)
    for form in FORMS:
        cells[f"certificate_posterior_{form}_form"] = recomputed(
            row, row.risk_posterior, row.kl, kappas[form]
        )
    return cells | {"kappa_mean": row.kappa, "kl_mean": row.kl}


def printed_standing(row: PublishedCertificates) -> str:
    """`rigorous` or `as printed`, by the number of epochs of the prior."""
    return standing("optimised", row.E or 1)


def recomputed(
    row: PublishedCertificates, risk: float, kl: float, kappa: float, monte_carlo: bool = False
) -> float:
    """Eq. 97, or Eqs. 97 and 98, under the paper's union bound."""
    grid = PAPER_GRID
    budget = (row.n, grid.K1, grid.K2, grid.delta, grid.delta_mc, grid.beta)
    if monte_carlo:
        return float(certificate_monte_carlo(risk, grid.draws, kl, kappa, *budget))
    return float(certificate(risk, kl, kappa, *budget))


def printed_part(rows: Sequence[Row]) -> Part:
    """Print beside recomputation."""
    headings: tuple[Cell, ...] = (
        "data set",
        "n",
        "prior",
        "proof of B",
        Math(r"\zeta"),
        "E",
        "T",
        Math(r"\hat R(\pi)"),
        Math(r"B(\pi) \text{, printed}"),
        "Eq. 97",
        "Eqs. 97, 98",
        Math(r"\hat R(\rho)"),
        "KL",
        "kappa, printed",
        "recomputed",
        "tight",
        "repaired",
        Math(r"B(\rho) \text{, printed}"),
        "Eq. 97",
        "Eqs. 97, 98",
        "Eq. 97, kappa tight",
        "Eq. 97, kappa repaired",
    )
    names = (
        *("data", "n_train", "prior", "standing", "zeta", "E", "T"),
        *("risk_prior_mean", "certificate_prior_mean"),
        *("certificate_prior_eq97", "certificate_prior_eq98"),
        *("risk_posterior_mean", "kl_mean", "kappa_mean", "kappa_recomputed"),
        *("kappa_tight", "kappa_repaired", "certificate_posterior_mean"),
        *("certificate_posterior_eq97", "certificate_posterior_eq98"),
        *("certificate_posterior_tight_form", "certificate_posterior_repaired_form"),
    )
    return Part(
        "As printed in Table 1, and recomputed from the printed risks, KL and kappa with delta = "
        f"{PAPER_GRID.delta:g}, delta' = {PAPER_GRID.delta_mc:g}, beta = {PAPER_GRID.beta:g}, "
        f"K1 = {PAPER_GRID.K1}, K2 = {PAPER_GRID.K2} and {PAPER_GRID.draws} draws; zeta and E of "
        "the DP-SGD priors are ours, the only ones of the paper's grid that give its kappa; the "
        "repaired form is proven for any number of epochs, the others for one",
        headings,
        [tuple(row[name] for name in names) for row in rows],
    )


def agreement_rows(record: Record[Spec, Metrics]) -> list[Row]:
    """Risk by each way of drawing pairs, repetitions added up."""
    counts: dict[tuple[str, str], list[int]] = {}
    for row in record.metrics.rows:
        total = counts.setdefault((row.what, row.method), [0, 0])
        total[0] += row.errors
        total[1] += row.draws
    rows = []
    for (what, method), (errors, pairs) in counts.items():
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
    return Part(
        "Risk of a network with random weights on its training records, by two ways to draw "
        "independent pairs of a record and weights: pre-activations layer by layer, and all "
        "weights; mean ± standard error over pairs",
        ("data set", "what", "method", "pairs", "errors", "risk"),
        [
            (
                *(row[name] for name in ("data", "what", "method", "pairs", "errors")),
                Measured(row["risk"], row["risk_standard_error"]),
            )
            for row in rows
        ],
    )
