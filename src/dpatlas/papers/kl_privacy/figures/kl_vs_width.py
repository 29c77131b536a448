"""Figure kl_vs_width of kl_privacy."""

from matplotlib.figure import Figure

from dpatlas.papers.kl_privacy.figures.rows import COUNTS, VALUES, conditions, training_row
from dpatlas.papers.kl_privacy.figures.words import (
    KL_LABEL,
    divergence_notes,
    init_handles,
    looks_of,
    net_words,
)
from dpatlas.papers.kl_privacy.kinds import TrainingRecord
from dpatlas.show.draw import draw_points, frame
from dpatlas.show.look import SINGLE_COLUMN
from dpatlas.show.output import Records, Settings, ShownFigure
from dpatlas.show.panels import label_decades, label_ticks, legend


def kl_vs_width(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 2c: KL against width at the last step of the width sweep.

    A condition that another sweep trains for longer is read on the way.
    """
    trained: list[TrainingRecord] = conditions(records, "training", ["width"], free=["steps"])
    steps = min(record.spec.steps for record in trained)
    rows = [training_row(record, "kl_worst", steps, width=record.spec.width) for record in trained]
    figure = Figure(figsize=(SINGLE_COLUMN, 2.9))
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlabel="width (hidden units)", ylabel=KL_LABEL)
    draw_points(axes, frame(rows), "width", looks_of(trained), "init")
    axes.set_title(f"after {steps} full-batch steps (= epochs)")
    label_ticks(axes, {row["width"] for row in rows})
    label_decades(axes.yaxis)
    legend(figure, init_handles(trained), columns=2)
    notes = [
        f"{net_words(trained, 'width')}; worst record, 95% bootstrap interval over runs",
        *divergence_notes(trained, "width"),
    ]
    return ShownFigure(figure, ("init", "width", "step", *VALUES, *COUNTS), rows, notes)
