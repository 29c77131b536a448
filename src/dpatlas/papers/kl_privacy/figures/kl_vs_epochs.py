"""Figure kl_vs_epochs of kl_privacy."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
    LOSS_LABEL,
    divergence_notes,
    init_handles,
    looks_of,
    net_words,
)
from dpatlas.papers.kl_privacy.kinds import TrainingRecord
from dpatlas.show.draw import draw_curves, frame
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, THIN
from dpatlas.show.output import Records, Settings, ShownFigure
from dpatlas.show.panels import label_decades, legend, write_in

STEPS_LABEL = "full-batch steps (= epochs)"
# On a curve, evenly along its log axis.
MARKERS = 7


def kl_vs_epochs(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 1: KL against steps for every init, beside the training loss."""
    trained: list[TrainingRecord] = conditions(records, "training")
    need_steps(trained, horizon(settings, "long"), "horizons.long")
    steps = trained[0].spec.steps
    rows = [
        training_row(record, quantity, step)
        for record in trained
        for quantity in ("kl_worst", "kl_mean", "training_loss")
        # Without any run left there is one row, to say so.
        for step in range(1 if record.metrics.runs_used else steps, steps + 1)
    ]
    figure = Figure(figsize=(DOUBLE_COLUMN, 2.4))
    kl, loss = figure.subplots(1, 2)
    kl.set(xscale="log", yscale="log", xlabel=STEPS_LABEL, ylabel=KL_LABEL)
    loss.set(xscale="log", yscale="log", xlabel=STEPS_LABEL, ylabel=LOSS_LABEL)
    data, looks = frame(rows), looks_of(trained)
    marked = sorted({round(step) - 1 for step in np.geomspace(1, steps, MARKERS)})
    for axes, quantity, line in (
        (kl, "kl_worst", {"markevery": marked}),
        (kl, "kl_mean", {"linewidth": THIN, "markersize": 0}),
        (loss, "training_loss", {"markevery": marked}),
    ):
        draw_curves(axes, data[data.quantity == quantity], "step", looks, "init", **line)
    kl.set_title("worst record (thin: mean over records)")
    loss.set_title("mean over runs")
    _linear_guide(kl, data[data.quantity.str.startswith("kl_") & (data.value > 0)])
    for axis in (kl.xaxis, kl.yaxis, loss.xaxis, loss.yaxis):
        label_decades(axis)
    legend(figure, init_handles(trained))
    notes = [
        f"{net_words(trained)}; KL: worst record, 95% bootstrap band over runs (thin: mean over "
        "records); loss: mean and range over runs",
        *divergence_notes(trained),
    ]
    return ShownFigure(figure, ("init", "step", *VALUES, *COUNTS), rows, notes)


def _linear_guide(axes: Axes, data: pd.DataFrame) -> None:
    """A line of slope one, the growth at a constant loss per step, below the lowest curve."""
    if data.empty:
        return
    ends = np.array([1.0, data.step.max()])
    axes.plot(ends, data.value.min() / 2 * ends, color=MUTED, linewidth=THIN)
    write_in(axes, "lowest line: linear in steps", right=True, low=True)
