"""Figure kl_vs_width of kl_privacy."""

from matplotlib.figure import Figure

from dpatlas.papers.kl_privacy.figures.rows import COUNTS, VALUES, conditions, training_rows
from dpatlas.papers.kl_privacy.figures.words import (
    KL_LABEL,
    THIN_LINE,
    divergence_notes,
    init_handles,
    line_handles,
    looks_of,
    net_words,
)
from dpatlas.show.draw import draw_curves, draw_points, frame
from dpatlas.show.look import SINGLE_COLUMN
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import label_decades, label_ticks, legend
from dpatlas.show.rows import Records, Row, Settings


def kl_vs_width(records: Records, settings: Settings) -> DrawnFigure:
    """Fig. 2c: KL against width at the last step of the width sweep.

    A condition that another sweep trains for longer is read on the way.
    """
    trained = conditions(records, "training", ["width"], free=["steps"])
    steps = min(record.spec.steps for record in trained)
    rows = [
        row
        for quantity in ("kl_mean", "kl_worst")
        for row in training_rows(trained, quantity, steps, ["width"])
    ]
    return width_figure(rows, steps, trained)


def width_figure(rows: list[Row], steps: int, trained: Records) -> DrawnFigure:
    """The figure of these rows of its csv; the records give words alone."""
    figure = Figure(figsize=(SINGLE_COLUMN, 2.9))
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlabel="width (hidden units)", ylabel=KL_LABEL)
    data, looks = frame(rows), looks_of(trained)
    draw_points(axes, data[data.quantity == "kl_mean"], "width", looks, "init")
    draw_curves(axes, data[data.quantity == "kl_worst"], "width", looks, "init", **THIN_LINE)
    axes.set_title(f"after {steps} full-batch steps (= epochs)")
    label_ticks(axes, {row["width"] for row in rows})
    label_decades(axes.yaxis)
    legend(figure, [*init_handles(trained), *line_handles(THIN_LINE)], columns=2)
    notes = [
        f"{net_words(trained, 'width')}; arithmetic means, 95% t intervals over runs of the mean's "
        "logarithm (claims compare geometric means)",
        *divergence_notes(trained, "width"),
    ]
    return DrawnFigure(figure, ("init", "width", "step", *VALUES, *COUNTS), rows, notes)
