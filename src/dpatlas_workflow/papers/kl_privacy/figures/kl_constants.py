"""Table kl_constants of kl_privacy."""

from collections.abc import Sequence
from typing import Any

from dpatlas.formulas.kl_privacy.theorems import (
    TABLE_1,
    excess_risk_term,
    lazy_distance,
    lazy_distance_corrected,
)
from dpatlas_workflow.papers.kl_privacy.figures.rows import conditions, input_size
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns
from dpatlas_workflow.show.look import INITS
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Records, Row, Settings, mean_and_error
from dpatlas_workflow.show.tables import Math, Measured, Part

SYMBOLS = ("variance", "B", "R_printed", "R_corrected", "risk_printed", "risk_corrected")
GRADIENT_NORMS = (
    *("init", "inputs", "width", "outputs", "depth"),
    *("B_value", "B_mean", "B_standard_error", "draws"),
)
COLUMNS = (
    "part",
    "init",
    *SYMBOLS,
    *GRADIENT_NORMS[1:],
    "n_train",
    "epsilon",
    "R_printed_value",
    "R_corrected_value",
    "R_mean",
    "R_standard_error",
    "R_sphere_mean",
    "R_sphere_standard_error",
    "risk_printed_value",
    "risk_corrected_value",
)


def kl_constants(records: Records, settings: Settings) -> ShownTable:
    """Table 1: variances, B, R and the excess risk in symbols, then in numbers and measured."""
    monte_carlo = conditions(records, "constants")[0]
    linearized = conditions(records, "linearized")
    symbols, norms = symbol_rows(monte_carlo), gradient_norm_rows(monte_carlo)
    distances = [row for record in linearized for row in distance_rows(record)]
    first = norms[0]
    parts = [
        Part.of(
            "In symbols (R and the risk without logarithms and constants, one output)",
            {
                "init": "init",
                "variance": Math(r"\beta_l"),
                "B": Math("B"),
                "R_printed": "R, printed",
                "R_corrected": "R, corrected",
                "risk_printed": "excess risk, printed",
                "risk_corrected": "excess risk, corrected",
            },
            [_named(row) | {name: Math(row[name]) for name in SYMBOLS} for row in symbols],
        ),
        Part.of(
            f"B in numbers: {first['inputs']} inputs, width {first['width']}, {first['outputs']} "
            f"outputs; Monte Carlo over {first['draws']} initialisations, mean ± standard error",
            {"init": "init", "depth": "depth", "B_value": "B", "B": "Monte Carlo"},
            [_named(row, "B") for row in norms],
        ),
        *distance_parts(distances, linearized[0].facts["sphere_records"]),
    ]
    return ShownTable(COLUMNS, [*symbols, *norms, *distances], parts)


def symbol_rows(record: Record[Any]) -> list[Row]:
    """One row per init of a `constants` record, in TeX."""
    return [
        {
            "part": "symbols",
            "init": init,
            **TABLE_1[init],
            "runs": list(record.ids),
        }
        for init in INITS
        if init in record.spec.inits
    ]


def gradient_norm_rows(record: Record[Any]) -> list[Row]:
    """B and the mean of E||grad f||_F^2 over draws, one row per init and depth."""
    data = columns([record]).sort_values(
        ["init", "depth"], key=lambda of: of.map(list(INITS).index) if of.name == "init" else of
    )
    data = data.rename(
        columns={"B": "B_value", "mean": "B_mean", "standard_error": "B_standard_error"}
    )
    return [
        {"part": "B", **row, "runs": list(record.ids)}
        for row in data[list(GRADIENT_NORMS)].to_dict("records")
    ]


def distance_rows(record: Record[Any]) -> list[Row]:
    """R and the risk term of a `linearized` record, one row per depth, then per width."""
    spec, n, inputs = record.spec, record.facts["n_train"], input_size(record)
    by_depth, by_width = columns([record], "depths"), columns([record], "widths")
    by_width = by_width.assign(depth=spec.width_depth)
    rows = []
    for part, axis, data in (("R", "depth", by_depth), ("R by width", "width", by_width)):
        for _, runs in data.groupby(axis, sort=False):
            width, depth, B = (runs[name].iloc[0].item() for name in ("width", "depth", "B"))
            network = (spec.init, inputs, width, depth, n)
            printed, corrected = lazy_distance(*network), lazy_distance_corrected(*network)
            row = {
                "part": part,
                "init": spec.init,
                "inputs": inputs,
                "width": width,
                "outputs": 1,
                "depth": depth,
                "n_train": n,
                "epsilon": spec.epsilon,
                "R_printed_value": float(printed),
                "R_corrected_value": float(corrected),
                **mean_and_error("R", runs.R.to_numpy()),
                **mean_and_error("R_sphere", runs.R_sphere.to_numpy()),
                "risk_printed_value": float(excess_risk_term(B, printed, n, spec.epsilon)),
                "risk_corrected_value": float(excess_risk_term(B, corrected, n, spec.epsilon)),
                "runs": list(record.ids),
            }
            rows.append(row)
    return rows


def distance_parts(rows: Sequence[Row], sphere_records: int) -> list[Part]:
    """R as printed, corrected and measured, and the risk term: against depth, then width."""
    parts = []
    for name, axis, fixed in (("R", "depth", "width"), ("R by width", "width", "depth")):
        of_part = [row for row in rows if row["part"] == name]
        first = of_part[0]
        title = (
            f"{'R and the excess-risk term' if axis == 'depth' else 'R'} against {axis}: "
            f"{first['inputs']} inputs, {fixed} {first[fixed]}, one output, n = "
            f"{first['n_train']} ({sphere_records} on the sphere), KL budget eps = "
            f"{first['epsilon']:g}; measured R: mean ± standard error over runs; risk: "
            "sqrt(2 B R / (eps n))"
        )
        columns = {
            "init": "init",
            axis: axis,
            "R_printed_value": "R, printed",
            "R_corrected_value": "R, corrected",
            "R": "R, measured",
            "R_sphere": "R, on the sphere",
            "risk_printed_value": "risk, printed",
            "risk_corrected_value": "risk, corrected",
        }
        parts.append(Part.of(title, columns, [_named(row, "R", "R_sphere") for row in of_part]))
    return parts


def _named(row: Row, *measured: str) -> Row:
    """A row with the label of its init, and mean and error of what was measured as one cell."""
    cells = {name: Measured.of(row, name) for name in measured}
    return row | {"init": INITS[row["init"]].label} | cells
