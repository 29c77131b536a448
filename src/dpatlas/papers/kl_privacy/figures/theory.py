"""Figures of kl_privacy's theory: the bounds beside our estimates, and the trade-off of Sec. 6.

Both raise InputError for records that they cannot be drawn from. Settings are not used.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.errors import InputError
from dpatlas.papers.kl_privacy.figures.rows import (
    COUNTS,
    VALUES,
    conditions,
    corollary_rows,
    lemma_rows,
    tradeoff_rows,
)
from dpatlas.papers.kl_privacy.figures.words import (
    KL_LABEL,
    divergence_notes,
    inits_of,
    linearized_net_words,
    net_words,
    role_handles,
)
from dpatlas.show.look import DOUBLE_COLUMN, INITS
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import (
    columns,
    draw_band,
    draw_bars,
    label_ticks,
    legend,
    number,
    select,
    write_in,
)

# Lemma 3.2 grows like exp(beta^2 T): the axis follows it this far above our estimate.
ROOM_ABOVE_ESTIMATE = 1e4
# How quantities are drawn: label and line; without a colour they take that of their init.
BOUNDS_LOOK = {
    "estimate_exact": ("estimate, exact", {"linestyle": "-"}),
    "estimate_paper": ("estimate, paper", {"linestyle": "--"}),
    "bound_exact": ("bound, exact", {"linestyle": "-", "color": "black"}),
    "bound_paper": ("bound, paper", {"linestyle": ":", "color": "black"}),
}
TRADEOFF_LOOK = {
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


def kl_bounds(records: Records, settings: Settings) -> ShownFigure:
    """Our estimate beside Lemma 3.2 (above) and, for the linearised network, Cor. 4.2 (below)."""
    trained = conditions(records, "training")
    linearized = conditions(records, "linearized")
    inits = inits_of(trained)
    if inits != inits_of(linearized):
        found = f"trained {', '.join(inits)}; linearized {', '.join(inits_of(linearized))}"
        raise InputError("--records", found, "the same inits")
    depths = sorted(linearized[0]["spec"]["depths"])
    depth = depths[len(depths) // 2]
    lemma = [row for record in trained for row in lemma_rows(record)]
    corollary = [row for record in linearized for row in corollary_rows(record, depth)]
    figure = Figure(figsize=(DOUBLE_COLUMN, 4.1))
    # Room between the ends of neighbouring axes' labels.
    figure.get_layout_engine().set(w_pad=0.06)
    panels = figure.subplots(2, len(inits), sharex="row", sharey="row", squeeze=False)
    for init, (above, below) in zip(inits, panels.T, strict=True):
        _bounds_panel(above, init, select(lemma, init=init))
        _bounds_panel(below, init, select(corollary, init=init))
        above.set_title(INITS[init].label)
    _limit_bounds(panels[0], inits, lemma)
    for row, network in zip(panels, ("trained", "linearised"), strict=True):
        row[0].set_ylabel(f"{network} network,\n{KL_LABEL}")
        for axes in row:
            axes.set_xlabel("time $T$ = $\\eta$ · steps")
    legend(figure, role_handles(BOUNDS_LOOK))
    notes = [
        f"above: {net_words(trained)}; bound: Lemma 3.2 with the constants seen on the trajectory, "
        "which lie below the lemma's own; estimate: worst record, 95% bootstrap band over runs",
        f"below: {linearized_net_words(linearized[0])}, depth {depth}; bound: Cor. 4.2; "
        "estimate: worst record, mean and range over runs",
        *divergence_notes(trained),
    ]
    return ShownFigure(
        figure,
        ("init", "network", "depth", "step", "time", *VALUES, *COUNTS),
        lemma + corollary,
        notes,
    )


def kl_tradeoff(records: Records, settings: Settings) -> ShownFigure:
    """Sec. 6: B, R and B R / n against depth, then the network trained at a fixed KL budget."""
    chosen = conditions(records, "linearized")
    rows = [row for record in chosen for row in tradeoff_rows(record)]
    figure = Figure(figsize=(DOUBLE_COLUMN, 7.0))
    panels = figure.subplots(
        len(TRADEOFF_PANELS), len(chosen), sharex=True, sharey="row", squeeze=False
    )
    for init, column in zip(inits_of(chosen), panels.T, strict=True):
        for axes, panel in zip(column, TRADEOFF_PANELS.values(), strict=True):
            _tradeoff_panel(axes, init, panel, select(rows, init=init))
        column[0].set_title(INITS[init].label)
        column[-1].set_xlabel("depth (weight matrices)")
        label_ticks(column[-1], chosen[0]["spec"]["depths"])
    for axes, label in zip(panels[:, 0], TRADEOFF_PANELS, strict=True):
        axes.set_ylabel(label)
    legend(figure, role_handles(TRADEOFF_LOOK))
    notes = [
        f"{linearized_net_words(chosen[0])}; bars: 95% t interval of the mean over runs; formulas "
        "of R without logarithms and constants, the printed one hidden where the corrected one "
        "agrees; B stands as printed; KL: worst record at the end of training",
    ]
    return ShownFigure(figure, ("init", "depth", *VALUES, "runs_used"), rows, notes)


def _bounds_panel(axes: Axes, init: str, rows: list[Row]) -> None:
    axes.set(xscale="log", yscale="log")
    for quantity, (_, look) in BOUNDS_LOOK.items():
        line = {"color": INITS[init].color} | look
        points = select(rows, quantity=quantity)
        axes.plot(*columns(points, "time", "value"), **line)
        draw_band(axes, "time", points, line["color"])


def _limit_bounds(panels: Sequence[Axes], inits: Sequence[str], rows: list[Row]) -> None:
    """Cut the shared y axis some decades above the estimates; say where a bound leaves it."""
    estimates = [row for row in rows if row["quantity"].startswith("estimate") and row.get("value")]
    if not estimates:
        return
    time, value = columns(estimates, "time", "value")
    top = ROOM_ABOVE_ESTIMATE * value.max()
    panels[0].set_ylim(value.min() / 3, top)
    first, middle = time.min(), np.sqrt(time.min() * time.max())
    for axes, init in zip(panels, inits, strict=True):
        gone = [
            row["time"]
            for row in select(rows, init=init)
            if row["quantity"].startswith("bound") and row["value"] > top
        ]
        if gone and min(gone) == first:
            write_in(axes, "bounds off axis\nfrom the first step")
        elif gone:
            text = f"bounds off axis\n$T \\geq$ {number(min(gone))}"
            write_in(axes, text, right=min(gone) < 2 * middle)


def _tradeoff_panel(axes: Axes, init: str, panel: dict[str, str], rows: list[Row]) -> None:
    axes.set_yscale("log", nonpositive="clip")
    for quantity, role in panel.items():
        line = {"color": INITS[init].color} | TRADEOFF_LOOK[role][1]
        points = select(rows, quantity=quantity)
        marker = INITS[init].marker if role == "measured" else ""
        axes.plot(*columns(points, "depth", "value"), marker=marker, **line)
        draw_bars(axes, "depth", points, color=line["color"])
