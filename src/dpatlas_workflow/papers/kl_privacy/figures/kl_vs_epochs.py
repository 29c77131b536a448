"""Figure kl_vs_epochs of kl_privacy."""

from dpatlas_workflow.papers.kl_privacy.figures.rows import (
    COUNTS,
    VALUES,
    conditions,
    horizon,
    need_steps,
    training_rows,
)
from dpatlas_workflow.papers.kl_privacy.figures.words import (
    FEW_POINTS,
    KL_LABEL,
    LARGEST,
    LOSS_LABEL,
    divergence_notes,
    inits_of,
    kl_series,
    looks_of,
    net_words,
    runs_words,
)
from dpatlas_workflow.show.look import INITS, Look
from dpatlas_workflow.show.panel import Axis, Panel, PanelGrid, Series, ShownFigure, names, series
from dpatlas_workflow.show.rows import Records, Settings, where

LINEAR = Look("linear in steps", "black", "", ":")
STEPS = Axis("full-batch steps (= epochs)", log=True)
# Every so many shown steps have a marker.
MARKED = (4, 0)


def kl_vs_epochs(records: Records, settings: Settings) -> ShownFigure:
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
    inits = inits_of(early)
    looks = looks_of(trained)
    kl = kl_series(rows, "step", looks, FEW_POINTS, band=True, every=MARKED)
    known = [row for row in rows if row["quantity"].startswith("kl_") and row.get("value")]
    if known:
        # Slope one, the growth at a constant loss per step, below the lowest curve.
        last, low = (
            extreme(row[name] for row in known) for extreme, name in ((max, "step"), (min, "value"))
        )
        kl.append(Series(LINEAR, [1.0, last], [low / 2, low / 2 * last]))
    losses = where(rows, quantity="training_loss")
    loss = series(losses, "step", looks, "init", band=True, every=MARKED)
    growth = series(exponents, lambda row: inits.index(row["init"]), looks, "init")
    at = names([INITS[init].label for init in inits], "initialisation", turned=True)
    title = f"growth in steps {end // 2} to {end}"
    panels = [
        Panel("privacy loss", STEPS, Axis(KL_LABEL, log=True), kl),
        Panel("training loss, mean over runs", STEPS, Axis(LOSS_LABEL, log=True), loss),
        Panel(title, at, Axis("growth exponent of KL"), growth, across=[1.0]),
    ]
    legend = [*looks.values(), LARGEST, FEW_POINTS, LINEAR]
    networks = early[0].spec.networks
    notes = [
        f"{net_words(trained)}; KL: arithmetic means, 95% t band over runs of the mean's logarithm "
        "(claims compare geometric means); loss: mean and range; "
        f"exponent: 1 is linear, mean and 95% t interval of {runs_words(early)} of "
        f"{networks} network{'s' * (networks > 1)} each",
        *dict.fromkeys([*divergence_notes(trained), *divergence_notes(early)]),
    ]
    grid = PanelGrid([panels], 2.4, widths=(2, 2, 1.2))
    columns = ("init", "step", *VALUES, *COUNTS)
    return ShownFigure([grid], columns, rows + exponents, notes, legend)
