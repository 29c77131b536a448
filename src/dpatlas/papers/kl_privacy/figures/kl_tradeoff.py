"""Figure kl_tradeoff of kl_privacy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.core.statistics import mean_estimate
from dpatlas.papers.kl_privacy.figures.rows import VALUES, conditions, input_size
from dpatlas.papers.kl_privacy.figures.words import inits_of, linearized_net_words, role_handles
from dpatlas.papers.kl_privacy.formulas.theorems import (
    excess_risk_term,
    lazy_distance,
    lazy_distance_corrected,
)
from dpatlas.papers.kl_privacy.kinds import LinearizedRecord
from dpatlas.papers.kl_privacy.records.linearized import AtDepth
from dpatlas.show.look import DOUBLE_COLUMN, INITS
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import columns, draw_bars, label_ticks, legend, select

CONFIDENCE = 0.95
# How quantities are drawn: label and line; without a colour they take that of their init.
TRADEOFF_LOOK: dict[str, tuple[str, dict[str, Any]]] = {
    "measured": ("measured", {"linestyle": "-"}),
    "corrected": ("formula, corrected", {"linestyle": "-", "color": "black"}),
    "printed": ("formula, as printed", {"linestyle": ":", "color": "black"}),
    "limit": ("bound, budget", {"linestyle": "--", "color": "black"}),
    "start": ("at the start", {"linestyle": "-.", "color": "0.5"}),
}
# By the label of a row of panels: the quantities in it and the look of each.
TRADEOFF_PANELS = {
    "$B$": {"B_measured": "measured", "B_formula": "corrected"},
    "$R$": {"R_measured": "measured", "R_corrected": "corrected", "R_printed": "printed"},
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
    panels = figure.subplots(
        len(TRADEOFF_PANELS), len(trained), sharex=True, sharey="row", squeeze=False
    )
    for init, column in zip(inits_of(trained), panels.T, strict=True):
        for axes, panel in zip(column, TRADEOFF_PANELS.values(), strict=True):
            _tradeoff_panel(axes, init, panel, select(rows, init=init))
        column[0].set_title(INITS[init].label)
        column[-1].set_xlabel("depth (weight matrices)")
        label_ticks(column[-1], trained[0].spec.depths)
    for axes, label in zip(panels[:, 0], TRADEOFF_PANELS, strict=True):
        axes.set_ylabel(label)
    legend(figure, role_handles(TRADEOFF_LOOK))
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
    rows = [base | {"quantity": name, "value": value} for name, value in numbers.items()]
    rows += [
        base | {"quantity": name, "runs_used": len(values)} | mean_interval(values)
        for name, values in runs.items()
    ]
    return rows


def mean_interval(values: Sequence[float]) -> Row:
    """Mean of the runs and its 95% t interval; no interval for a single run."""
    estimate = mean_estimate(values)
    if estimate.runs == 1:
        return {"value": estimate.value}
    low, high = estimate.interval(CONFIDENCE)
    return {"value": estimate.value, "low": low, "high": high}


def _tradeoff_panel(axes: Axes, init: str, panel: dict[str, str], rows: list[Row]) -> None:
    axes.set_yscale("log", nonpositive="clip")
    for quantity, role in panel.items():
        line = {"color": INITS[init].color} | TRADEOFF_LOOK[role][1]
        points = select(rows, quantity=quantity)
        marker = INITS[init].marker if role == "measured" else ""
        axes.plot(*columns(points, "depth", "value"), marker=marker, **line)
        draw_bars(axes, "depth", points, color=line["color"])
