"""Figure kl_tradeoff of kl_privacy."""

import numpy as np
from matplotlib.figure import Figure

from dpatlas.papers.kl_privacy.figures.rows import VALUES, conditions, input_size
from dpatlas.papers.kl_privacy.figures.words import (
    OF_INIT,
    inits_of,
    linearized_net_words,
    looks_in,
)
from dpatlas.papers.kl_privacy.formulas.theorems import (
    excess_risk_term,
    lazy_distance,
    lazy_distance_corrected,
)
from dpatlas.papers.kl_privacy.kinds import LinearizedRecord
from dpatlas.papers.kl_privacy.records.linearized import AtDepth
from dpatlas.show.draw import draw_points, frame
from dpatlas.show.look import DOUBLE_COLUMN, INITS, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import label_ticks, legend
from dpatlas.show.rows import mean_interval
from dpatlas.show.series import handle

LOOKS = {
    "measured": Look("measured", OF_INIT, "o", "-"),
    "corrected": Look("formula, corrected", "black", "", "-"),
    "printed": Look("formula, as printed", "black", "", ":"),
    "limit": Look("bound, budget", "black", "", "--"),
    "start": Look("at the start", "0.5", "", "-."),
}
# By the label of a row of panels: the quantities in it and the look of each.
PANELS = {
    "gradient norm $B$": {"B_measured": "measured", "B_formula": "corrected"},
    "distance $R$": {"R_measured": "measured", "R_corrected": "corrected", "R_printed": "printed"},
    "$BR/n$": {
        "BR_over_n_measured": "measured",
        "BR_over_n_corrected": "corrected",
        "BR_over_n_printed": "printed",
    },
    "excess risk": {
        "excess_risk": "measured",
        "excess_risk_bound": "limit",
        "initial_risk": "start",
    },
    "KL / budget": {"kl_over_budget": "measured", "budget": "limit"},
}


def kl_tradeoff(records: Records, settings: Settings) -> ShownFigure:
    """Sec. 6: B, R and B R / n against depth, then the network trained at a fixed KL budget."""
    trained: list[LinearizedRecord] = conditions(records, "linearized")
    rows = [row for record in trained for row in tradeoff_rows(record)]
    figure = Figure(figsize=(DOUBLE_COLUMN, 7.0))
    panels = figure.subplots(len(PANELS), len(trained), sharex=True, sharey="row", squeeze=False)
    data = frame(rows)
    for init, column in zip(inits_of(trained), panels.T, strict=True):
        looks = looks_in(LOOKS, init)
        for axes, roles in zip(column, PANELS.values(), strict=True):
            axes.set_yscale("log", nonpositive="clip")
            drawn = {quantity: looks[role] for quantity, role in roles.items()}
            draw_points(axes, data[data.init == init], "depth", drawn, "quantity", dodge=False)
        column[0].set_title(INITS[init].label)
        column[-1].set_xlabel("depth (weight matrices)")
        label_ticks(column[-1], trained[0].spec.depths)
    for axes, label in zip(panels[:, 0], PANELS, strict=True):
        axes.set_ylabel(label)
    legend(figure, [handle(look) for look in LOOKS.values()])
    notes = [
        f"{linearized_net_words(trained[0])}; bars: 95% t interval of the mean over runs; formulas "
        "of R without logarithms and constants, the printed one hidden where the corrected one "
        "agrees; B stands as printed; KL: worst record at the end of training",
    ]
    return ShownFigure(figure, ("init", "depth", *VALUES, "runs_used"), rows, notes)


def tradeoff_rows(record: LinearizedRecord) -> list[Row]:
    """B, R, B R / n, the excess risk and the KL of a `linearized` record, every depth."""
    return [row for result in record.metrics.depths for row in _rows_at_depth(record, result)]


def _rows_at_depth(record: LinearizedRecord, result: AtDepth) -> list[Row]:
    spec, n, epsilon = record.spec, record.metrics.n_train, record.metrics.epsilon
    layers = (spec.init, input_size(record), spec.width, result.depth)
    printed = float(lazy_distance(*layers, n))
    corrected = float(lazy_distance_corrected(*layers, n))
    lazy = float(np.mean(result.R_runs))
    numbers = {
        "B_formula": result.B,
        "R_printed": printed,
        "R_corrected": corrected,
        "BR_over_n_printed": result.B * printed / n,
        "BR_over_n_corrected": result.B * corrected / n,
        "excess_risk_bound": float(excess_risk_term(result.B, lazy, n, epsilon)),
        "budget": 1.0,
    }
    runs = {
        "B_measured": result.B_runs,
        "R_measured": result.R_runs,
        "BR_over_n_measured": result.BR_over_n_runs,
        "excess_risk": result.excess_risk_runs,
        "initial_risk": result.initial_risk_runs,
        "kl_over_budget": [kl / epsilon for kl in result.kl_worst_runs[-1]],
    }
    base = {"init": spec.init, "depth": result.depth, "runs": [record.id]}
    rows: list[Row] = [base | {"quantity": name, "value": value} for name, value in numbers.items()]
    rows += [base | {"quantity": name} | mean_interval(values) for name, values in runs.items()]
    return rows
