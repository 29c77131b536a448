"""Figure kl_vs_depth of kl_privacy."""

from dpatlas_workflow.papers.kl_privacy.figures.rows import (
    COUNTS,
    VALUES,
    conditions,
    horizon,
    need_steps,
    training_rows,
)
from dpatlas_workflow.papers.kl_privacy.figures.words import (
    KL_LABEL,
    LARGEST,
    LOSS_LABEL,
    THIN_LINE,
    divergence_notes,
    kl_series,
    looks_of,
    net_words,
)
from dpatlas_workflow.show.panel import Axis, Panel, PanelGrid, ShownFigure, points
from dpatlas_workflow.show.rows import Records, Settings, where

KL, LOSS = Axis(KL_LABEL, log=True), Axis(LOSS_LABEL, log=True)


def kl_vs_depth(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 2a and 2b: KL against depth after short and after long training."""
    trained = conditions(records, "training", ["depth"])
    horizons = {name: horizon(settings, name) for name in ("short", "long")}
    need_steps(trained, max(horizons.values()), "horizons")
    rows = [
        row
        for name, steps in horizons.items()
        for quantity in ("kl_mean", "kl_worst", "training_loss")
        for row in training_rows(trained, quantity, steps, ["depth"], horizon=name)
    ]
    depth = Axis("depth (weight matrices)", ticks=sorted({row["depth"] for row in rows}))
    looks = looks_of(trained)
    above, below = [], []
    for name, steps in horizons.items():
        shown = where(rows, horizon=name)
        losses = where(shown, quantity="training_loss")
        found = [row["value"] for row in losses if "value" in row]
        told = f", loss {min(found):.2g} to {max(found):.2g}" if found else ""
        title = f"{name} training: {steps} steps{told}"
        above.append(Panel(title, depth, KL, kl_series(shown, "depth", looks, THIN_LINE)))
        below.append(Panel("", depth, LOSS, points(losses, "depth", looks, "init")))
    legend = [*looks.values(), LARGEST, THIN_LINE]
    notes = [
        f"{net_words(trained, 'depth')}; one full-batch step = one epoch; KL: arithmetic means, "
        "95% t intervals over runs of the mean's logarithm (claims compare geometric means); loss: "
        "mean and range over runs",
        *divergence_notes(trained, "depth"),
    ]
    names = ("init", "depth", "horizon", "step", *VALUES, *COUNTS)
    grid = PanelGrid([above, below], 3.6, heights=(1.8, 1))
    return ShownFigure([grid], names, rows, notes, legend)
