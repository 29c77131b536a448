"""Figure kl_vs_epochs of kl_privacy."""

from typing import Any

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
    training_rows,
)
from dpatlas.papers.kl_privacy.figures.words import (
    FEW_POINTS,
    KL_LABEL,
    LOSS_LABEL,
    divergence_notes,
    init_handles,
    inits_of,
    line_handles,
    looks_of,
    net_words,
    runs_words,
)
from dpatlas.show.draw import draw_curves, draw_points, frame
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, THIN, Look
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import label_decades, legend
from dpatlas.show.rows import Records, Row, Settings
from dpatlas.show.series import handle

LINEAR = Look("linear in steps", "black", "", ":")
STEPS_LABEL = "full-batch steps (= epochs)"
# Every so many shown steps have a marker.
MARKED = 4


def kl_vs_epochs(records: Records, settings: Settings) -> DrawnFigure:
    """Fig. 1: KL against steps for every init, the training loss, and the early growth."""
    end = horizon(settings, "early")
    trained = conditions([record for record in records if record.spec.steps != end], "training")
    early = conditions([record for record in records if record.spec.steps == end], "training")
    need_steps(trained, horizon(settings, "long"), "horizons.long")
    rows = [
        row
        for record in trained
        for quantity in ("kl_mean", "kl_worst", "training_loss")
        for row in training_rows([record], quantity)
    ]
    exponents = training_rows(early, "growth_exponent", end)
    return epochs_figure(rows, exponents, end, trained, early)


def epochs_figure(
    rows: list[Row],
    exponents: list[Row],
    end: int,
    trained: Records,
    early: Records,
) -> DrawnFigure:
    """The figure of these rows of its csv; the records give words alone."""
    inits = inits_of(early)
    figure = Figure(figsize=(DOUBLE_COLUMN, 2.4))
    kl, loss, growth = figure.subplots(1, 3, width_ratios=[2, 2, 1.2])
    kl.set(xscale="log", yscale="log", xlabel=STEPS_LABEL, ylabel=KL_LABEL)
    loss.set(xscale="log", yscale="log", xlabel=STEPS_LABEL, ylabel=LOSS_LABEL)
    data, looks = frame(rows), looks_of(trained)
    thick: dict[str, Any] = {"markevery": MARKED, "opened": True}
    for axes, quantity, line in (
        (kl, "kl_mean", thick),
        (kl, "kl_worst", FEW_POINTS),
        (loss, "training_loss", thick),
    ):
        draw_curves(axes, data[data.quantity == quantity], "step", looks, "init", **line)
    kl.set_title("privacy loss")
    loss.set_title("training loss, mean over runs")
    growth.axhline(1.0, color=MUTED, linewidth=THIN)
    placed = frame(exponents).assign(position=range(len(inits)))
    draw_points(growth, placed, "position", looks, "init", apart=False)
    growth.set_xticks(range(len(inits)), [looks[init].label for init in inits], rotation=45)
    growth.set(xlabel="initialisation", ylabel="growth exponent of KL")
    growth.set_title(f"growth in steps {end // 2} to {end}")
    _linear_guide(kl, data[data.quantity.str.startswith("kl_") & (data.value > 0)])
    for axis in (kl.xaxis, kl.yaxis, loss.xaxis, loss.yaxis):
        label_decades(axis)
    legend(figure, [*init_handles(trained), *line_handles(FEW_POINTS), handle(LINEAR)], columns=4)
    networks = early[0].spec.networks
    notes = [
        f"{net_words(trained)}; KL: arithmetic means, 95% t band over runs of the mean's logarithm "
        "(claims compare geometric means); loss: mean and range; "
        f"exponent: 1 is linear, mean and 95% t interval of {runs_words(early)} of "
        f"{networks} network{'s' * (networks > 1)} each",
        *dict.fromkeys([*divergence_notes(trained), *divergence_notes(early)]),
    ]
    names = ("init", "step", *VALUES, *COUNTS)
    return DrawnFigure(figure, names, rows + exponents, notes)


def _linear_guide(axes: Axes, data: pd.DataFrame) -> None:
    """A line of slope one, the growth at a constant loss per step, below the lowest curve."""
    if data.empty:
        return
    ends = np.array([1.0, data.step.max()])
    axes.plot(ends, data.value.min() / 2 * ends, **LINEAR.line)
