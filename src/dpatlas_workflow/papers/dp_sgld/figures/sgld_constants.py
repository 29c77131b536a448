"""Table 4 of dp_sgld: beta, beta / lambda and the ratio that decides between the theorems' K."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from dpatlas.formulas.dp_sgld.published import PRINTED_TABLE_4, TABLE_4
from dpatlas.formulas.dp_sgld.theorems import smoothness, table4_ratio
from dpatlas_workflow.papers.dp_sgld.figures.arms import seen_in
from dpatlas_workflow.records import Record
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Records, Row, Settings, some, where
from dpatlas_workflow.show.tables import Cell, Math, Part

CONSTANTS = (
    "part",
    "dataset",
    "features",
    "n",
    "inputs",
    "classes",
    "lambda",
    "epsilon",
    "delta",
    "beta",
    "beta_public",
    "beta_over_lambda_printed",
    "beta_over_lambda",
    "ratio_printed",
    "ratio_classes",
    "ratio_parameters",
)
HEADINGS: dict[str, Cell] = {
    "dataset": "data set",
    "features": "features",
    "n": "n",
    "classes": "classes",
    "inputs": "inputs",
    "lambda": Math(r"\lambda"),
    "beta": Math(r"\beta"),
    "beta_over_lambda": Math(r"\beta/\lambda"),
    "ratio_classes": "ratio, d = classes",
    "ratio_parameters": "ratio, d = classes x inputs",
    "beta_over_lambda_printed": Math(r"\beta/\lambda \text{, printed}"),
    "ratio_printed": "ratio, printed",
    "beta_public": Math(r"\beta \text{ of a record, public}"),
}
# Columns that a part has only if one of its rows does.
IF_KNOWN = ("beta_over_lambda_printed", "ratio_printed", "beta_public")


def sgld_constants(records: Records, settings: Settings) -> ShownTable:
    """Table 4: the printed rows recomputed under both readings of d, and our data sets."""
    compared = some(records, "accuracy")
    printed = printed_rows([block for record in compared for block in record.ids])
    ours = list({_problem(row): row for record in compared for row in our_rows(record)}.values())
    parts = [constants_part("As printed", printed), constants_part("Our data", ours)]
    return ShownTable(CONSTANTS, [*printed, *ours], parts)


def printed_rows(runs: list[str]) -> list[Row]:
    """Table 4's three rows."""
    rows = []
    for problem in TABLE_4:
        beta, condition, ratio = PRINTED_TABLE_4[problem.dataset, problem.backbone]
        row = {
            "part": "printed",
            "dataset": problem.dataset,
            "features": problem.backbone,
            "n": problem.n,
            "inputs": problem.features,
            "classes": problem.classes,
            "lambda": problem.lam,
            "epsilon": 1.0,
            "delta": 1e-5,
            "beta": beta,
            "beta_over_lambda_printed": condition,
            "beta_over_lambda": problem.beta / problem.lam,
            "ratio_printed": ratio,
            "ratio_classes": problem.ratio(problem.classes),
            "ratio_parameters": problem.ratio(problem.parameters),
            "runs": runs,
        }
        rows.append(row)
    return rows


def our_rows(record: Record[Any]) -> list[Row]:
    """One row for every lambda that DP-SGLD was tuned to in an `accuracy` record."""
    fields, facts = record.spec, record.facts
    n, classes = facts["n_train"], facts["classes"]
    selected = {arm["lambda"] for arm in where(record.tables["arms"], method="dp-sgld")}
    eigenvalue = mean(row["mean_eigenvalue"] for row in record.tables["seen"])
    epsilon, delta = min(fields.epsilons), fields.delta
    rows = []
    for lam in sorted(selected):
        beta = eigenvalue / 2 + lam
        by_classes, by_parameters = (
            float(table4_ratio(n, epsilon, delta, d, beta / lam))
            for d in (classes, classes * facts["inputs"])
        )
        row = {
            "part": "ours",
            "dataset": fields.data.name,
            "features": seen_in(record),
            "n": n,
            "inputs": facts["inputs"],
            "classes": classes,
            "lambda": lam,
            "epsilon": epsilon,
            "delta": delta,
            "beta": beta,
            "beta_public": float(smoothness(fields.feature_norm, lam)),
            "beta_over_lambda": beta / lam,
            "ratio_classes": by_classes,
            "ratio_parameters": by_parameters,
            "runs": list(record.ids),
        }
        rows.append(row)
    return rows


def _problem(row: Row) -> tuple[Any, ...]:
    """All columns but the record: two records that differ in their schedule give equal rows."""
    return tuple(value for name, value in row.items() if name != "runs")


def constants_part(caption: str, rows: Sequence[Row]) -> Part:
    """Both readings of d beside what is printed."""
    first = rows[0] if rows else {"epsilon": 1.0, "delta": 1e-5}
    headings = {
        name: heading
        for name, heading in HEADINGS.items()
        if name not in IF_KNOWN or any(row.get(name) is not None for row in rows)
    }
    return Part.of(
        f"{caption}: ratio = eps n^2 / (alpha d) / (beta/lambda)^2 at eps = {first['epsilon']:g}, "
        f"delta = {first['delta']:g}; beta = lambda_max(mean x x^T)/2 + lambda, which is private",
        headings,
        rows,
    )
