"""Figure kl_vs_depth of kl_privacy."""

import pandas as pd
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
    KL_LABEL,
    LOSS_LABEL,
    THIN_LINE,
    divergence_notes,
    init_handles,
    line_handles,
    looks_of,
    net_words,
)
from dpatlas.show.draw import draw_curves, draw_points, frame
from dpatlas.show.look import DOUBLE_COLUMN
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import label_decades, label_ticks, legend
from dpatlas.show.rows import Records, Row, Settings


def kl_vs_depth(records: Records, settings: Settings) -> DrawnFigure:
    """Fig. 2a and 2b: KL against depth after short and after long training."""
    trained = conditions(records, "training", ["depth"])
    horizons = {name: horizon(settings, name) for name in ("short", "long")}
    need_steps(trained, max(horizons.values()), "horizons")
    quantities = ("kl_mean", "kl_worst", "training_loss")
    rows = [
        row
        for name, steps in horizons.items()
        for quantity in quantities
        for row in training_rows(trained, quantity, steps, ["depth"], horizon=name)
    ]
    return depth_figure(rows, horizons, trained)


def depth_figure(rows: list[Row], horizons: dict[str, int], trained: Records) -> DrawnFigure:
    """The figure of these rows of its csv; the records give words alone."""
    figure = Figure(figsize=(DOUBLE_COLUMN, 3.6))
    panels = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=[1.8, 1])
    data, looks = frame(rows), looks_of(trained)
    for (name, steps), column in zip(horizons.items(), panels.T, strict=True):
        at_horizon = data[data.horizon == name]
        for axes in column:
            axes.set_yscale("log")
        of = dict(list(at_horizon.groupby("quantity")))
        draw_points(column[0], of["kl_mean"], "depth", looks, "init")
        draw_curves(column[0], of["kl_worst"], "depth", looks, "init", **THIN_LINE)
        draw_points(column[1], of["training_loss"], "depth", looks, "init")
        losses = at_horizon.value[at_horizon.quantity == "training_loss"].dropna()
        column[0].set_title(f"{name} training: {steps} steps{_range(losses)}")
        column[1].set_xlabel("depth (weight matrices)")
        label_ticks(column[1], {row["depth"] for row in rows})
    for axes, label in zip(panels[:, 0], (KL_LABEL, LOSS_LABEL), strict=True):
        axes.set_ylabel(label)
        label_decades(axes.yaxis)
    legend(figure, [*init_handles(trained), *line_handles(THIN_LINE)], columns=3)
    notes = [
        f"{net_words(trained, 'depth')}; one full-batch step = one epoch; KL: arithmetic means, "
        "95% t intervals over runs of the mean's logarithm (claims compare geometric means); loss: "
        "mean and range over runs",
        *divergence_notes(trained, "depth"),
    ]
    return DrawnFigure(figure, ("init", "depth", "horizon", "step", *VALUES, *COUNTS), rows, notes)


def _range(losses: pd.Series) -> str:
    return f", loss {losses.min():.2g} to {losses.max():.2g}" if len(losses) else ""
