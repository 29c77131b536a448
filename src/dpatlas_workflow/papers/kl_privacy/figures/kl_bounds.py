"""Figure kl_bounds of kl_privacy."""

from dataclasses import replace
from typing import Any

from dpatlas.errors import InputError
from dpatlas.formulas.kl_privacy.theorems import CONVENTIONS, kl_step
from dpatlas_workflow.papers.kl_privacy.figures.rows import (
    COUNTS,
    VALUES,
    conditions,
    training_rows,
)
from dpatlas_workflow.papers.kl_privacy.figures.words import (
    KL_LABEL,
    divergence_notes,
    inits_of,
    linearized_net_words,
    looks_in,
    net_words,
)
from dpatlas_workflow.papers.kl_privacy.readings import drift_constants
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns
from dpatlas_workflow.show.look import ANY_COLOR, INITS, Look
from dpatlas_workflow.show.mathtext import number
from dpatlas_workflow.show.panel import Axis, Panel, PanelGrid, ShownFigure, Words, series
from dpatlas_workflow.show.rows import (
    Records,
    Row,
    Settings,
    positive_mean_interval,
    summaries,
    where,
)

# The measured KL is under the exact convention; the paper's is this many times larger.
PAPER_OVER_EXACT = kl_step(1.0, 1.0, 1.0, "paper") / kl_step(1.0, 1.0, 1.0, "exact")
# Lemma 3.2 grows like exp(beta^2 T): the axis follows it this far above our estimate.
ROOM_ABOVE_ESTIMATE = 1e4
TIME = Axis("time $T$ = $\\eta$ · steps", log=True)
SHARE = Axis("share of the training time", log=True)
LOOKS = {
    "estimate_exact": Look("measured, corrected factors", ANY_COLOR, "", "-"),
    "estimate_paper": Look("measured, printed factors", ANY_COLOR, "", "--"),
    "bound_exact": Look("bound, corrected", "black", "", "-"),
    "bound_paper": Look("bound, as printed", "black", "", ":"),
}


def kl_bounds(records: Records, settings: Settings) -> ShownFigure:
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
    axes = [Axis(f"{name} network,\n{KL_LABEL}", log=True) for name in ("trained", "linearised")]
    least, top = _limits(lemma)
    axes[0] = replace(axes[0], ends=(least, top))
    above, below = [], []
    for init in inits:
        title, looks = INITS[init].label, looks_in(LOOKS, init)
        shown = where(lemma, init=init)
        drawn = series(shown, "time", looks, "quantity", band=True)
        above.append(Panel(title, TIME, axes[0], drawn, words=_unseen_bounds(shown, top)))
        drawn = series(where(corollary, init=init), "share", looks, "quantity", band=True)
        below.append(Panel(title, SHARE, axes[1], drawn))
    notes = [
        f"above: {net_words(trained)}; bound: Lemma 3.2 with the constants seen on the trajectory, "
        "which lie below the lemma's own; it grows exponentially and soon leaves the axis; "
        "measured: largest of a run's records, mean over runs and 95% t band of its logarithm; "
        "corrected: a step costs half of the printed KL",
        f"below: {linearized_net_words(linearized)}, depth {depth}; bound: Cor. 4.2; measured as "
        "above",
        *divergence_notes(trained),
    ]
    names = ("init", "network", "depth", "step", "time", "share", *VALUES, *COUNTS)
    grid = PanelGrid([above, below], 4.1)
    return ShownFigure([grid], names, lemma + corollary, notes, list(LOOKS.values()))


def lemma_rows(record: Record[Any]) -> list[Row]:
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


def corollary_rows(record: Record[Any], depth: int) -> list[Row]:
    """Measured KL and Cor. 4.2 of a linearised network against the share of its training time."""
    shares = columns([record], "shares", depth=depth)
    if shares.empty:
        raise InputError(record.id, f"no result at depth {depth}", "a result for every depth")
    by = ("init", "depth", "share")
    rows = []
    for estimate in summaries(shares, by, "kl_max", positive_mean_interval, network="linearized"):
        # The noise of a run is such that the bound reaches the budget at the end of its time.
        bound = estimate["share"] * record.spec.epsilon
        bounds = {"exact": bound, "paper": bound * PAPER_OVER_EXACT}
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


def _limits(rows: list[Row]) -> tuple[float | None, float | None]:
    """Ends of an axis that goes some decades above the estimates, whatever bounds do."""
    estimates = [row["value"] for row in rows if _is_estimate(row) and row.get("value")]
    return (min(estimates) / 3, ROOM_ABOVE_ESTIMATE * max(estimates)) if estimates else (None, None)


def _is_estimate(row: Row) -> bool:
    return str(row["quantity"]).startswith("estimate")


def _unseen_bounds(rows: list[Row], top: float | None) -> list[Words]:
    """What is said of bounds that all lie above the axis."""
    bounds = [row["value"] for row in rows if not _is_estimate(row)]
    if top is None or not bounds or min(bounds) <= top:
        return []
    return [Words(f"both bounds lie above\nthe axis: over\n{number(min(bounds))} nats")]
