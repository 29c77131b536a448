"""Figure kl_vs_width of kl_privacy."""

from dpatlas_workflow.papers.kl_privacy.figures.rows import (
    COUNTS,
    VALUES,
    conditions,
    training_rows,
)
from dpatlas_workflow.papers.kl_privacy.figures.words import (
    KL_LABEL,
    LARGEST,
    THIN_LINE,
    divergence_notes,
    kl_series,
    looks_of,
    net_words,
)
from dpatlas_workflow.show.look import SINGLE_COLUMN
from dpatlas_workflow.show.panel import Axis, Panel, PanelGrid, ShownFigure
from dpatlas_workflow.show.rows import Records, Settings


def kl_vs_width(records: Records, settings: Settings) -> ShownFigure:
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
    widths = sorted({row["width"] for row in rows})
    x, looks = Axis("width (hidden units)", log=True, ticks=widths), looks_of(trained)
    drawn = kl_series(rows, "width", looks, THIN_LINE)
    title = f"after {steps} full-batch steps (= epochs)"
    grid = PanelGrid([[Panel(title, x, Axis(KL_LABEL, log=True), drawn)]], 2.9)
    legend = [*looks.values(), LARGEST, THIN_LINE]
    notes = [
        f"{net_words(trained, 'width')}; arithmetic means, 95% t intervals over runs of the mean's "
        "logarithm (claims compare geometric means)",
        *divergence_notes(trained, "width"),
    ]
    names = ("init", "width", "step", *VALUES, *COUNTS)
    return ShownFigure([grid], names, rows, notes, legend, SINGLE_COLUMN)
