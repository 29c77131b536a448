"""Figures and table of kl_privacy: one function per figure, named like its file.

Each takes records and settings (`horizons` in steps) and returns what is shown; KL is in nats under
the exact convention unless it says otherwise. All raise InputError for records that they cannot
be drawn from.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpatlas.errors import InputError, run_command
from dpatlas.figures import kl_table
from dpatlas.figures.kl_rows import (
    COUNTS,
    VALUES,
    conditions,
    corollary_rows,
    horizon,
    lemma_rows,
    need_steps,
    tradeoff_rows,
    training_row,
)
from dpatlas.figures.look import DOUBLE_COLUMN, INITS, MUTED, SINGLE_COLUMN, THIN
from dpatlas.figures.output import Records, Row, Settings, ShownFigure, ShownTable, figure_main
from dpatlas.figures.panels import (
    columns,
    draw_band,
    draw_bars,
    draw_curve,
    draw_points,
    draw_thin,
    label_decades,
    label_ticks,
    legend,
    number,
    select,
    shifts,
    write_in,
)

MODULE = "dpatlas.figures.kl_privacy"
KL_LABEL = "KL privacy loss (nats)"
LOSS_LABEL = "training loss"
STEPS_LABEL = "full-batch steps (= epochs)"
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


def kl_vs_epochs(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 1: KL against steps for every init, beside the training loss."""
    chosen = conditions(records, "training")
    need_steps(chosen, horizon(settings, "long"), "horizons.long")
    steps = chosen[0]["spec"]["steps"]
    rows = [
        training_row(record, quantity, step)
        for record in chosen
        for quantity in ("kl_worst", "kl_mean", "training_loss")
        # Without any run left there is one row, to say so.
        for step in range(1 if record["metrics"]["runs_used"] else steps, steps + 1)
    ]
    figure = Figure(figsize=(DOUBLE_COLUMN, 2.4))
    kl, loss = figure.subplots(1, 2)
    kl.set(xscale="log", yscale="log", xlabel=STEPS_LABEL, ylabel=KL_LABEL)
    loss.set(xscale="log", yscale="log", xlabel=STEPS_LABEL, ylabel=LOSS_LABEL)
    for init in _inits(chosen):
        look = INITS[init]
        draw_curve(kl, look, "step", select(rows, init=init, quantity="kl_worst"))
        draw_thin(kl, look, "step", select(rows, init=init, quantity="kl_mean"))
        draw_curve(loss, look, "step", select(rows, init=init, quantity="training_loss"))
    _linear_guide(kl, [row for row in rows if row["quantity"].startswith("kl_")])
    for axis in (kl.xaxis, kl.yaxis, loss.xaxis, loss.yaxis):
        label_decades(axis)
    legend(figure, _init_handles(chosen))
    notes = [
        f"{_network(chosen)}; KL: worst record, 95% bootstrap band over runs (thin: mean over "
        "records); loss: mean and range over runs",
        *_divergence_notes(chosen),
    ]
    return ShownFigure(figure, ("init", "step", *VALUES, *COUNTS), rows, notes)


def kl_vs_depth(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 2a and 2b: KL against depth after short and after long training."""
    chosen = conditions(records, "training", ["depth"])
    horizons = {name: horizon(settings, name) for name in ("short", "long")}
    need_steps(chosen, max(horizons.values()), "horizons")
    quantities = ("kl_worst", "training_loss")
    rows = [
        training_row(record, quantity, steps, depth=record["spec"]["depth"], horizon=name)
        for name, steps in horizons.items()
        for quantity in quantities
        for record in chosen
    ]
    figure = Figure(figsize=(DOUBLE_COLUMN, 3.6))
    panels = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=[1.8, 1])
    inits = _inits(chosen)
    for (name, steps), column in zip(horizons.items(), panels.T, strict=True):
        for axes, quantity in zip(column, quantities, strict=True):
            axes.set_yscale("log")
            for init, shift in zip(inits, shifts(len(inits)), strict=True):
                points = select(rows, init=init, quantity=quantity, horizon=name)
                draw_points(axes, INITS[init], "depth", points, shift)
        (losses,) = columns(select(rows, quantity="training_loss", horizon=name), "value")
        column[0].set_title(f"{name} training: {steps} steps{_span(losses)}")
        column[1].set_xlabel("depth (weight matrices)")
        label_ticks(column[1], {row["depth"] for row in rows})
    for axes, label in zip(panels[:, 0], (KL_LABEL, LOSS_LABEL), strict=True):
        axes.set_ylabel(label)
        label_decades(axes.yaxis)
    legend(figure, _init_handles(chosen))
    notes = [
        f"{_network(chosen, 'depth')}; one full-batch step = one epoch; KL: worst record, 95% "
        "bootstrap interval over runs; loss: mean and range over runs",
        *_divergence_notes(chosen, "depth"),
    ]
    return ShownFigure(figure, ("init", "depth", "horizon", "step", *VALUES, *COUNTS), rows, notes)


def kl_vs_width(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 2c: KL against width at the last step of the width sweep.

    A condition that another sweep trains for longer is read on the way.
    """
    chosen = conditions(records, "training", ["width"], free=["steps"])
    steps = min(record["spec"]["steps"] for record in chosen)
    rows = [
        training_row(record, "kl_worst", steps, width=record["spec"]["width"]) for record in chosen
    ]
    figure = Figure(figsize=(SINGLE_COLUMN, 2.9))
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlabel="width (hidden units)", ylabel=KL_LABEL)
    inits = _inits(chosen)
    for init, shift in zip(inits, shifts(len(inits)), strict=True):
        draw_points(axes, INITS[init], "width", select(rows, init=init), shift)
    axes.set_title(f"{steps} full-batch steps (= epochs)")
    label_ticks(axes, {row["width"] for row in rows})
    label_decades(axes.yaxis)
    legend(figure, _init_handles(chosen), columns=2)
    notes = [
        f"{_network(chosen, 'width')}; worst record, 95% bootstrap interval over runs",
        *_divergence_notes(chosen, "width"),
    ]
    return ShownFigure(figure, ("init", "width", "step", *VALUES, *COUNTS), rows, notes)


def kl_bounds(records: Records, settings: Settings) -> ShownFigure:
    """Our estimate beside Lemma 3.2 (above) and, for the linearised network, Cor. 4.2 (below)."""
    trained = conditions(records, "training")
    linearized = conditions(records, "linearized")
    inits = _inits(trained)
    if inits != _inits(linearized):
        found = f"trained {', '.join(inits)}; linearized {', '.join(_inits(linearized))}"
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
    legend(figure, _role_handles(BOUNDS_LOOK))
    notes = [
        f"above: {_network(trained)}; bound: Lemma 3.2 with the constants seen on the trajectory, "
        "which lie below the lemma's own; estimate: worst record, 95% bootstrap band over runs",
        f"below: {_linearized_network(linearized[0])}, depth {depth}; bound: Cor. 4.2; "
        "estimate: worst record, mean and range over runs",
        *_divergence_notes(trained),
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
    for init, column in zip(_inits(chosen), panels.T, strict=True):
        for axes, panel in zip(column, TRADEOFF_PANELS.values(), strict=True):
            _tradeoff_panel(axes, init, panel, select(rows, init=init))
        column[0].set_title(INITS[init].label)
        column[-1].set_xlabel("depth (weight matrices)")
        label_ticks(column[-1], chosen[0]["spec"]["depths"])
    for axes, label in zip(panels[:, 0], TRADEOFF_PANELS, strict=True):
        axes.set_ylabel(label)
    legend(figure, _role_handles(TRADEOFF_LOOK))
    notes = [
        f"{_linearized_network(chosen[0])}; bars: 95% t interval of the mean over runs; formulas "
        "of R without logarithms and constants, the printed one hidden where the corrected one "
        "agrees; B stands as printed; KL: worst record at the end of training",
    ]
    return ShownFigure(figure, ("init", "depth", *VALUES, "runs_used"), rows, notes)


def kl_constants(records: Records, settings: Settings) -> ShownTable:
    """Table 1: variances, B, R and the excess risk in symbols, then in numbers and measured."""
    checked = conditions(records, "constants")[0]
    symbols = kl_table.symbol_rows(checked)
    norms = kl_table.gradient_norm_rows(checked)
    distances = [
        row
        for record in conditions(records, "linearized")
        for row in kl_table.distance_rows(record)
    ]
    parts = [
        kl_table.symbols_part(symbols),
        kl_table.gradient_norm_part(norms),
        kl_table.distance_part(distances),
    ]
    return ShownTable(kl_table.COLUMNS, [*symbols, *norms, *distances], parts)


FIGURES = {
    function.__name__: function
    for function in (kl_vs_epochs, kl_vs_depth, kl_vs_width, kl_bounds, kl_tradeoff)
}
TABLES = {function.__name__: function for function in (kl_constants,)}


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


def _linear_guide(axes: Axes, rows: list[Row]) -> None:
    """A line of slope one, the growth at a constant loss per step, below the lowest curve."""
    steps, value = columns([row for row in rows if row.get("value")], "step", "value")
    if not len(steps):
        return
    ends = np.array([1.0, steps.max()])
    axes.plot(ends, value.min() / 2 * ends, color=MUTED, linewidth=THIN)
    write_in(axes, "lowest line: linear in steps", right=True, low=True)


def _inits(records: Records) -> list[str]:
    return list(dict.fromkeys(record["spec"]["init"] for record in records))


def _init_handles(records: Records) -> list[Line2D]:
    """A legend entry per init, with the step sizes where they differ."""
    rates = {record["spec"]["init"]: record["spec"]["lr"] for record in records}
    differ = len(set(rates.values())) > 1
    return [
        Line2D(
            [],
            [],
            marker=INITS[init].marker,
            label=INITS[init].label + (f" ($\\eta$ = {number(rate)})" if differ else ""),
            **INITS[init].line,
        )
        for init, rate in rates.items()
    ]


def _role_handles(looks: dict[str, tuple[str, dict[str, str]]]) -> list[Line2D]:
    """A legend entry per role; what takes its init's colour is grey here."""
    return [
        Line2D([], [], label=label, **({"color": "0.6", "linewidth": 2} | look))
        for label, look in looks.values()
    ]


def _network(records: Records, without: str | None = None) -> str:
    """The settings that the records of a figure share, in words."""
    fields = records[0]["spec"]
    shown = [f"{name} {fields[name]}" for name in ("depth", "width") if name != without]
    # Where the step sizes differ they are in the legend.
    if len({record["spec"]["lr"] for record in records}) == 1:
        shown.append(f"$\\eta$ = {number(fields['lr'])}")
    return ", ".join([*shown, f"$\\sigma$ = {fields['sigma']:g}", f"{fields['runs']} runs"])


def _linearized_network(record: dict[str, Any]) -> str:
    fields = record["spec"]
    return (
        f"linearised network of width {fields['width']}, n = {fields['n_train']}, "
        f"KL budget $\\varepsilon$ = {fields['epsilon']:g}, {fields['runs']} runs"
    )


def _divergence_notes(records: Records, field: str | None = None) -> list[str]:
    """One sentence per init that lost runs, naming the conditions by the spec's `field`."""
    notes = []
    for init in _inits(records):
        parts = []
        for record in records:
            runs, used = len(record["metrics"]["diverged"]), record["metrics"]["runs_used"]
            if record["spec"]["init"] == init and used < runs:
                where = f" at {field} {record['spec'][field]}" if field else ""
                parts.append(f"{runs - used} of {runs}{where}")
        if parts:
            notes.append(f"{INITS[init].label}, runs diverged: {', '.join(parts)}")
    if notes and field:
        notes.append("diverged runs take no part: open markers; crosses where none is left")
    elif notes:
        notes.append("diverged runs take no part")
    return notes


def _span(losses: np.ndarray) -> str:
    known = losses[np.isfinite(losses)]
    return f", loss {known.min():.2g} to {known.max():.2g}" if len(known) else ""


def main(arguments: Sequence[str]) -> int:
    """Make one figure or table from the command line."""
    return figure_main(arguments, MODULE, FIGURES, TABLES)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
