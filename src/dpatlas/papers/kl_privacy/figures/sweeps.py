"""Figures and table of kl_privacy: one function per figure, named like its file.

Each takes records and settings (`horizons` in steps) and returns what is shown; KL is in nats under
the exact convention unless it says otherwise. All raise InputError for records that they cannot
be drawn from.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.kl_privacy.figures import constants_table as kl_table
from dpatlas.papers.kl_privacy.figures.rows import (
    COUNTS,
    VALUES,
    conditions,
    horizon,
    need_steps,
    training_row,
)
from dpatlas.papers.kl_privacy.figures.words import (
    KL_LABEL,
    divergence_notes,
    init_handles,
    inits_of,
    net_words,
)
from dpatlas.show.look import DOUBLE_COLUMN, INITS, MUTED, SINGLE_COLUMN, THIN
from dpatlas.show.output import Records, Row, Settings, ShownFigure, ShownTable
from dpatlas.show.panels import (
    columns,
    draw_curve,
    draw_points,
    draw_thin,
    label_decades,
    label_ticks,
    legend,
    select,
    shifts,
    write_in,
)

LOSS_LABEL = "training loss"
STEPS_LABEL = "full-batch steps (= epochs)"


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
    for init in inits_of(chosen):
        look = INITS[init]
        draw_curve(kl, look, "step", select(rows, init=init, quantity="kl_worst"))
        draw_thin(kl, look, "step", select(rows, init=init, quantity="kl_mean"))
        draw_curve(loss, look, "step", select(rows, init=init, quantity="training_loss"))
    _linear_guide(kl, [row for row in rows if row["quantity"].startswith("kl_")])
    for axis in (kl.xaxis, kl.yaxis, loss.xaxis, loss.yaxis):
        label_decades(axis)
    legend(figure, init_handles(chosen))
    notes = [
        f"{net_words(chosen)}; KL: worst record, 95% bootstrap band over runs (thin: mean over "
        "records); loss: mean and range over runs",
        *divergence_notes(chosen),
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
    inits = inits_of(chosen)
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
    legend(figure, init_handles(chosen))
    notes = [
        f"{net_words(chosen, 'depth')}; one full-batch step = one epoch; KL: worst record, 95% "
        "bootstrap interval over runs; loss: mean and range over runs",
        *divergence_notes(chosen, "depth"),
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
    inits = inits_of(chosen)
    for init, shift in zip(inits, shifts(len(inits)), strict=True):
        draw_points(axes, INITS[init], "width", select(rows, init=init), shift)
    axes.set_title(f"{steps} full-batch steps (= epochs)")
    label_ticks(axes, {row["width"] for row in rows})
    label_decades(axes.yaxis)
    legend(figure, init_handles(chosen), columns=2)
    notes = [
        f"{net_words(chosen, 'width')}; worst record, 95% bootstrap interval over runs",
        *divergence_notes(chosen, "width"),
    ]
    return ShownFigure(figure, ("init", "width", "step", *VALUES, *COUNTS), rows, notes)


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


def _linear_guide(axes: Axes, rows: list[Row]) -> None:
    """A line of slope one, the growth at a constant loss per step, below the lowest curve."""
    steps, value = columns([row for row in rows if row.get("value")], "step", "value")
    if not len(steps):
        return
    ends = np.array([1.0, steps.max()])
    axes.plot(ends, value.min() / 2 * ends, color=MUTED, linewidth=THIN)
    write_in(axes, "lowest line: linear in steps", right=True, low=True)


def _span(losses: np.ndarray) -> str:
    known = losses[np.isfinite(losses)]
    return f", loss {known.min():.2g} to {known.max():.2g}" if len(known) else ""
