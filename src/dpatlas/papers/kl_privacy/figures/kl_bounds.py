"""Figure kl_bounds of kl_privacy."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from dpatlas.errors import InputError
from dpatlas.papers.kl_privacy.figures.rows import (
    COUNTS,
    VALUES,
    conditions,
    training_rows,
)
from dpatlas.papers.kl_privacy.figures.words import (
    KL_LABEL,
    OF_INIT,
    divergence_notes,
    inits_of,
    linearized_net_words,
    looks_in,
    net_words,
)
from dpatlas.papers.kl_privacy.formulas.theorems import CONVENTIONS, kl_step
from dpatlas.papers.kl_privacy.readings import drift_constants
from dpatlas.records import Record
from dpatlas.rows import columns
from dpatlas.show.draw import draw_curves, frame
from dpatlas.show.look import DOUBLE_COLUMN, INITS, Look
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import legend, number, write_in
from dpatlas.show.rows import Records, Row, Settings, positive_mean_interval, summaries
from dpatlas.show.series import handle

# The measured KL is under the exact convention; the paper's is this many times larger.
PAPER_OVER_EXACT = kl_step(1.0, 1.0, 1.0, "paper") / kl_step(1.0, 1.0, 1.0, "exact")
# Lemma 3.2 grows like exp(beta^2 T): the axis follows it this far above our estimate.
ROOM_ABOVE_ESTIMATE = 1e4
NETWORKS = {"trained": "trained", "linearized": "linearised"}
X = {"trained": "time", "linearized": "share"}
X_LABELS = {"time": "time $T$ = $\\eta$ · steps", "share": "share of the training time"}
LOOKS = {
    "estimate_exact": Look("measured, corrected factors", OF_INIT, "", "-"),
    "estimate_paper": Look("measured, printed factors", OF_INIT, "", "--"),
    "bound_exact": Look("bound, corrected", "black", "", "-"),
    "bound_paper": Look("bound, as printed", "black", "", ":"),
}


def kl_bounds(records: Records, settings: Settings) -> DrawnFigure:
    """Our estimate beside Lemma 3.2 (above) and, for the linearised network, Cor. 4.2 (below)."""
    trained = conditions(records, "training")
    linearized = conditions(records, "linearized")
    inits = inits_of(trained)
    if inits != inits_of(linearized):
        both = f"trained {', '.join(inits)}; linearized {', '.join(inits_of(linearized))}"
        raise InputError("--records", both, "the same inits")
    depths = sorted(linearized[0].spec.depths)
    depth = depths[len(depths) // 2]
    lemma = [row for record in trained for row in lemma_rows(record)]
    corollary = [row for record in linearized for row in corollary_rows(record, depth)]
    data = frame([*lemma, *corollary])
    by_panel = dict(list(data.groupby(["init", "network"])))
    figure = Figure(figsize=(DOUBLE_COLUMN, 4.1))
    # Room between the ends of neighbouring axes' labels.
    figure.set_layout_engine("constrained", w_pad=0.06)
    panels = figure.subplots(2, len(inits), sharex="row", sharey="row", squeeze=False)
    for (network, name), line in zip(NETWORKS.items(), panels, strict=True):
        for init, axes in zip(inits, line, strict=True):
            x = X[network]
            axes.set(xscale="log", yscale="log", xlabel=X_LABELS[x])
            axes.xaxis.set_minor_formatter(NullFormatter())
            draw_curves(axes, by_panel[init, network], x, looks_in(LOOKS, init), "quantity")
            axes.set_title(INITS[init].label)
        line[0].set_ylabel(f"{name} network,\n{KL_LABEL}")
    _limit_bounds(dict(zip(inits, panels[0], strict=True)), data[data.network == "trained"])
    legend(figure, [handle(look) for look in LOOKS.values()])
    notes = [
        f"above: {net_words(trained)}; bound: Lemma 3.2 with the constants seen on the trajectory, "
        "which lie below the lemma's own; it grows exponentially and soon leaves the axis; "
        "measured: largest of a run's records, mean over runs and 95% t band of its logarithm; "
        "corrected: a step costs half of the printed KL",
        f"below: {linearized_net_words(linearized)}, depth {depth}; bound: Cor. 4.2; measured as "
        "above",
        *divergence_notes(trained),
    ]
    return DrawnFigure(
        figure,
        ("init", "network", "depth", "step", "time", "share", *VALUES, *COUNTS),
        lemma + corollary,
        notes,
    )


def lemma_rows(record: Record[Any, Any]) -> list[Row]:
    """Estimate and Lemma 3.2 after every step of a trained network, both conventions.

    A record that lost all runs gives one row without a value.
    """
    estimates = training_rows([record], "kl_mean", axes=["depth"], network="trained")
    estimates = [row | {"time": record.spec.lr * row["step"]} for row in estimates]
    if not estimates[0]["runs_used"]:
        return [row | {"quantity": "estimate_exact"} for row in estimates]
    constants = drift_constants(record)
    rows = []
    for estimate in estimates:
        bounds = {name: float(constants.kl_bound(estimate["time"], name)) for name in CONVENTIONS}
        rows += _both_conventions(estimate, bounds)
    return rows


def corollary_rows(record: Record[Any, Any], depth: int) -> list[Row]:
    """Measured KL and Cor. 4.2 of a linearised network against the share of its training time."""
    shares = columns([record], "shares", depth=depth)
    if shares.empty:
        raise InputError(record.id, f"no result at depth {depth}", "a result for every depth")
    by = ("init", "depth", "share")
    rows = []
    for estimate in summaries(shares, by, "kl_max", positive_mean_interval, network="linearized"):
        # The noise of a run is such that the bound reaches the budget at the end of its time.
        bound = estimate["share"] * record.spec.epsilon
        bounds = {
            name: bound * kl_step(1.0, 1.0, 1.0, name) / kl_step(1.0, 1.0, 1.0)
            for name in CONVENTIONS
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


def _limit_bounds(panels: dict[str, Axes], data: pd.DataFrame) -> None:
    """Cut the shared y axis some decades above the estimates; say where no bound is on it."""
    is_bound = data.quantity.str.startswith("bound")
    estimates = data[~is_bound & (data.value > 0)]
    if estimates.empty:
        return
    top = ROOM_ABOVE_ESTIMATE * estimates.value.max()
    least = data[is_bound].groupby("init").value.min()
    for init, axes in panels.items():
        axes.set_ylim(estimates.value.min() / 3, top)
        if least[init] > top:
            write_in(axes, f"both bounds lie above\nthe axis: over\n{number(least[init])} nats")
