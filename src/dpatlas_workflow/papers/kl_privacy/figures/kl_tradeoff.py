"""Figure kl_tradeoff of kl_privacy."""

from typing import Any

import numpy as np

from dpatlas.formulas.kl_privacy.theorems import lazy_distance, lazy_distance_corrected
from dpatlas_workflow.papers.kl_privacy.figures.rows import (
    VALUES,
    conditions,
    geometric_interval,
    input_size,
)
from dpatlas_workflow.papers.kl_privacy.figures.words import (
    inits_of,
    linearized_net_words,
    looks_in,
)
from dpatlas_workflow.papers.kl_privacy.readings import bounded
from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import ANY_COLOR, INITS, ORANGE, Look
from dpatlas_workflow.show.panel import Axis, Panel, PanelGrid, ShownFigure, series
from dpatlas_workflow.show.rows import Records, Row, Settings, positive_mean_interval, where

LOOKS = {
    "measured": Look("measured", ANY_COLOR, "o", "-"),
    "sphere": Look("measured on the sphere", ANY_COLOR, "", "-."),
    "risk": Look("measured excess risk / bound", ANY_COLOR, "o", "--"),
    "corrected": Look("formula of $B$ or $R$, corrected", "black", "", "-"),
    "printed": Look("formula of $R$, as printed", "black", "", ":"),
    "of product": Look("formula of $BR/n$, corrected", ORANGE, "", "-"),
    "of product, printed": Look("formula of $BR/n$, as printed", ORANGE, "", ":"),
    "limit": Look("bound (KL: budget)", "black", "", "--"),
    "start": Look("before training", "0.5", "", ":"),
}
# By the label of a row of panels: the quantities in it and the look of each.
PANELS = {
    "squared gradient norm $B$": {"B_measured": "measured", "B_formula": "corrected"},
    "distance $R$": {"R_measured": "measured"},
    "trade-off $BR/n$": {"BR_over_n_measured": "measured", "BR_over_n_sphere": "sphere"},
    # Of formulas without logarithms and constants only the change with depth means something.
    "formulas of $R$, $BR/n$\nup to constants": {
        "R_corrected": "corrected",
        "R_printed": "printed",
        "BR_over_n_corrected": "of product",
        "BR_over_n_printed": "of product, printed",
    },
    "excess risk (nats)": {
        "excess_risk": "measured",
        "excess_risk_bound": "limit",
        "initial_risk": "start",
    },
    "share of its bound": {
        "kl_over_budget": "measured",
        "risk_over_bound": "risk",
        "bound": "limit",
    },
    "KL at fixed noise\n(nats)": {"kl_fixed": "measured"},
}

# Columns by quantity: shown as means, and as geometric means.
MEANS = {
    "B_measured": "B_run",
    "kl_over_budget": "kl_over_budget",
    "risk_over_bound": "risk_over_bound",
}
AS_LOGARITHMS = {
    "R_measured": "R",
    "BR_over_n_measured": "BR_over_n",
    "BR_over_n_sphere": "BR_over_n_sphere",
    "excess_risk": "excess_risk",
    "initial_risk": "initial_risk",
    "kl_fixed": "kl_fixed",
}


def kl_tradeoff(records: Records, settings: Settings) -> ShownFigure:
    """Sec. 6: B, R and B R / n against depth, then the network trained at a fixed KL budget."""
    trained = conditions(records, "linearized")
    rows = [row for record in trained for row in tradeoff_rows(record)]
    depth = Axis("depth (weight matrices)", ticks=trained[0].spec.depths)
    inits = inits_of(trained)
    lines: list[list[Panel]] = []
    for label, roles in PANELS.items():
        y = Axis(label, log=True)
        lines.append([])
        for init in inits:
            looks = looks_in(LOOKS, init)
            drawn = {quantity: looks[role] for quantity, role in roles.items()}
            shown = series(where(rows, init=init), "depth", drawn, "quantity")
            title = INITS[init].label if len(lines) == 1 else ""
            lines[-1].append(Panel(title, depth, y, shown))
    notes = [
        f"{linearized_net_words(trained)}; mean over runs for $B$ and "
        "shares of a bound, geometric mean for all else; bars: 95% t interval of its logarithm; "
        "share of its bound: measured is KL / budget; formulas of R and BR/n without logarithms "
        "and constants: compare their change with depth, not their height; the printed ones are "
        "hidden where the corrected ones agree; B stands as printed; KL: largest of a run's "
        "records at the end of training, last row with "
        f"$\\sigma$ = {trained[0].spec.sigma:g} and time {trained[0].spec.time:g}",
    ]
    names = ("init", "depth", *VALUES, "runs_used")
    return ShownFigure([PanelGrid(lines, 9.0)], names, rows, notes, list(LOOKS.values()))


def tradeoff_rows(record: Record[Any]) -> list[Row]:
    """B, R, B R / n, the excess risk and the KL of a `linearized` record, every depth."""
    data = bounded([record])
    data = data.assign(
        kl_over_budget=data.kl_max / data.epsilon, risk_over_bound=data.excess_risk / data.corollary
    )
    rows = []
    for depth, runs in data.groupby("depth", sort=False):
        network = (record.spec.init, input_size(record), record.spec.width, int(depth))
        n, B = record.facts["n_train"], runs.B.iloc[0]
        printed = float(lazy_distance(*network, n))
        corrected = float(lazy_distance_corrected(*network, n))
        numbers = {
            "B_formula": B,
            "R_printed": printed,
            "R_corrected": corrected,
            "BR_over_n_printed": B * printed / n,
            "BR_over_n_corrected": B * corrected / n,
            "excess_risk_bound": np.mean(runs.corollary.to_numpy()),
            "bound": 1.0,
        }
        base = {"init": record.spec.init, "depth": depth, "runs": list(record.ids)}
        rows += [base | {"quantity": name, "value": value} for name, value in numbers.items()]
        for over, shown in ((positive_mean_interval, MEANS), (geometric_interval, AS_LOGARITHMS)):
            rows += [
                base | {"quantity": name} | over(runs[column].to_numpy())
                for name, column in shown.items()
            ]
    return rows
