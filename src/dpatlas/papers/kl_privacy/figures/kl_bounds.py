"""Figure kl_bounds of kl_privacy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.errors import InputError
from dpatlas.papers.kl_privacy.figures.rows import (
    COUNTS,
    VALUES,
    conditions,
    over_runs,
    training_row,
)
from dpatlas.papers.kl_privacy.figures.words import (
    KL_LABEL,
    divergence_notes,
    inits_of,
    linearized_net_words,
    net_words,
    role_handles,
)
from dpatlas.papers.kl_privacy.formulas.theorems import CONVENTIONS, kl_linearized, kl_step
from dpatlas.papers.kl_privacy.gradient_norms import drift_constants
from dpatlas.papers.kl_privacy.kinds import LinearizedRecord, TrainingRecord
from dpatlas.show.look import DOUBLE_COLUMN, INITS
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import columns, draw_band, legend, number, select, write_in

# The measured KL is under the exact convention; the paper's is this many times larger.
PAPER_OVER_EXACT = kl_step(1.0, 1.0, 1.0, "paper") / kl_step(1.0, 1.0, 1.0, "exact")
# Lemma 3.2 grows like exp(beta^2 T): the axis follows it this far above our estimate.
ROOM_ABOVE_ESTIMATE = 1e4
# How quantities are drawn: label and line; without a colour they take that of their init.
BOUNDS_LOOK: dict[str, tuple[str, dict[str, Any]]] = {
    "estimate_exact": ("estimate, exact", {"linestyle": "-"}),
    "estimate_paper": ("estimate, paper", {"linestyle": "--"}),
    "bound_exact": ("bound, exact", {"linestyle": "-", "color": "black"}),
    "bound_paper": ("bound, paper", {"linestyle": ":", "color": "black"}),
}


def kl_bounds(records: Records, settings: Settings) -> ShownFigure:
    """Our estimate beside Lemma 3.2 (above) and, for the linearised network, Cor. 4.2 (below)."""
    trained: list[TrainingRecord] = conditions(records, "training")
    linearized: list[LinearizedRecord] = conditions(records, "linearized")
    inits = inits_of(trained)
    if inits != inits_of(linearized):
        both = f"trained {', '.join(inits)}; linearized {', '.join(inits_of(linearized))}"
        raise InputError("--records", both, "the same inits")
    depths = sorted(linearized[0].spec.depths)
    depth = depths[len(depths) // 2]
    lemma = [row for record in trained for row in lemma_rows(record)]
    corollary = [row for record in linearized for row in corollary_rows(record, depth)]
    figure = Figure(figsize=(DOUBLE_COLUMN, 4.1))
    # Room between the ends of neighbouring axes' labels.
    figure.set_layout_engine("constrained", w_pad=0.06)
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
    legend(figure, role_handles(BOUNDS_LOOK))
    notes = [
        f"above: {net_words(trained)}; bound: Lemma 3.2 with the constants seen on the trajectory, "
        "which lie below the lemma's own; estimate: worst record, 95% bootstrap band over runs",
        f"below: {linearized_net_words(linearized[0])}, depth {depth}; bound: Cor. 4.2; "
        "estimate: worst record, mean and range over runs",
        *divergence_notes(trained),
    ]
    return ShownFigure(
        figure,
        ("init", "network", "depth", "step", "time", *VALUES, *COUNTS),
        lemma + corollary,
        notes,
    )


def lemma_rows(record: TrainingRecord) -> list[Row]:
    """Estimate and Lemma 3.2 after every step of a trained network, both conventions.

    A record that lost all runs gives one row without a value.
    """
    steps, rate = record.spec.steps, record.spec.lr
    keys = {"network": "trained", "depth": record.spec.depth}
    if not record.metrics.runs_used:
        return [training_row(record, "estimate_exact", steps, time=rate * steps, **keys)]
    constants = drift_constants(record)
    rows = []
    for step in range(1, steps + 1):
        time = rate * step
        estimate = training_row(record, "kl_worst", step, time=time, **keys)
        bounds = {name: float(constants.kl_bound(time, name)) for name in CONVENTIONS}
        rows += _both_conventions(estimate, bounds)
    return rows


def corollary_rows(record: LinearizedRecord, depth: int) -> list[Row]:
    """Measured KL and Cor. 4.2 at the shown steps of a linearised network, both conventions."""
    result = next((row for row in record.metrics.depths if row.depth == depth), None)
    if result is None:
        raise InputError(record.id, f"no result at depth {depth}", "a result for every depth")
    rows = []
    for step, values in zip(result.shown_steps, result.kl_worst_runs, strict=True):
        time = result.eta * step
        estimate = {
            "init": record.spec.init,
            "network": "linearized",
            "depth": depth,
            "step": step,
            "time": time,
            **over_runs(values),
            "runs_used": len(values),
            "runs_diverged": 0,
            "runs": [record.id],
        }
        n, sigma2 = record.metrics.n_train, result.sigma2
        bounds = {
            name: float(kl_linearized(result.B, time, n, sigma2, name)) for name in CONVENTIONS
        }
        rows += _both_conventions(estimate, bounds)
    return rows


def _both_conventions(estimate: Row, bounds: dict[str, float]) -> list[Row]:
    """The estimate and its bound under both conventions; the interval with the exact one only."""
    paper = {name: value for name, value in estimate.items() if name not in ("low", "high")}
    paper["value"] *= PAPER_OVER_EXACT
    bare = {name: value for name, value in paper.items() if name != "value"}
    return [
        estimate | {"quantity": "estimate_exact"},
        paper | {"quantity": "estimate_paper"},
        *(bare | {"quantity": f"bound_{name}", "value": bounds[name]} for name in CONVENTIONS),
    ]


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
