"""Figure of dp_sgld's counterexample: the exact one-dimensional law against Thms 3.2 and 4.2."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import numpy as np

from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import SERIES, Look, ramp
from dpatlas_workflow.show.mathtext import number
from dpatlas_workflow.show.panel import (
    Axis,
    Contours,
    Legend,
    Panel,
    PanelGrid,
    ShownFigure,
    series,
)
from dpatlas_workflow.show.rows import Records, Row, Settings, grouped, only, where

EXCESS_LEVELS = (1, 10, 100, 1000)
# Exact over promised delta falls to 1e-40 for large batches: cut off there.
LEAST_DELTA = 1e-3
# Where the claim does not hold, and where it does.
REGION = {
    True: Look("violated", "black", "x", "", size=3),
    False: Look("holds", "black", "o", "", size=3, fill="none", edge="black"),
}


def sgld_counterexample(records: Records, settings: Settings) -> ShownFigure:
    """Exact over claimed divergence, exact over promised delta, and where the claim is violated."""
    record = only(records, "counterexample")
    fields, facts = record.spec, record.facts
    rows = [
        {
            **row,
            "ratio": facts["n"] / row["m"],
            "value": row["exact"] / row["claimed"],
            "runs": [record.id],
        }
        for row in record.tables["scan"]
    ]
    eta, alpha = _middle(fields.etas), _middle(fields.alphas)
    # The scanned noise next to that of Thm 4.2, on a log axis.
    promised_noise = facts["calibrated_sigma2"]
    sigma2 = min(fields.sigma2s, key=lambda scanned: abs(np.log(scanned / promised_noise)))
    alone = {"x_prime": -1.0, "rest": -1.0, "eta": eta}
    ratios = sorted({row["ratio"] for row in rows})
    x = Axis("batches of a pass, $n/m$", log=True, ticks=ratios, ends=(0.9, 1.1 * ratios[-1]))
    at_noise = _of_panel("divergence", where(rows, **alone, sigma2=sigma2, alpha=alpha))
    promised = calibrated_rows(record, **alone)
    # Of every law the row with the largest excess over K and alpha.
    laws = grouped(rows, "x_prime", "rest", "eta", "m", "sigma2").values()
    worst = [max(of_law, key=lambda row: row["value"]) for of_law in laws]
    largest = _of_panel("region", where(worst, **alone))
    compared = _of_panel("others", where(worst, sigma2=sigma2))
    steps = dict(zip(fields.steps, ramp([f"$K$ = {K}" for K in fields.steps]), strict=True))
    noise = number(promised_noise)
    above = [
        Panel(
            rf"Rényi divergence, $\eta$ = {eta:g}, $\sigma^2$ = {sigma2:g}",
            x,
            Axis(rf"exact / claimed $R_{{{alpha:g}}}$", log=True),
            series(at_noise, "ratio", steps, "K"),
            across=[1.0],
            legend=Legend(),
        ),
        Panel(
            rf"$\delta$, $\eta$ = {eta:g}, $\sigma^2$ = {noise} of Thm 4.2",
            x,
            Axis(
                rf"exact / promised $\delta$ at $\epsilon$ = {fields.epsilon:g}",
                log=True,
                ends=(LEAST_DELTA, None),
            ),
            series(promised, "ratio", steps, "K"),
            across=[1.0],
            legend=Legend(),
        ),
    ]
    below = [_region(x, largest, eta), _by_neighbours(x, compared, sigma2)]
    notes = [
        f"n = {facts['n']}, loss $\\theta^2/2 - x\\theta$ on [-{fields.radius:g}, "
        f"{fields.radius:g}], lambda = beta = 1, L = {facts['lipschitz']:g}; one record 1 "
        "against -1 among -1s where the legend says nothing else; "
        f"largest: over K in {_listed(fields.steps)} and alpha in {_listed(fields.alphas)}; above "
        f"the line at 1 Thm 3.2 is violated; promised: delta = {fields.delta:g} (lowest values cut "
        "off)",
    ]
    names = ("x_prime", "rest", "eta", "m", "ratio", "sigma2", "K", "alpha", "exact", "claimed")
    shown = [*at_noise, *promised, *largest, *compared]
    return ShownFigure([PanelGrid([above, below], 5.2)], ("panel", *names, "value"), shown, notes)


def calibrated_rows(record: Record[Any], **law: float) -> list[Row]:
    """Exact over promised delta of one pair of data sets at one step size."""
    promised, facts = record.spec.delta, record.facts
    return [
        {
            **law,
            **{name: row[name] for name in ("m", "K")},
            "panel": "delta",
            "ratio": facts["n"] / row["m"],
            "sigma2": facts["calibrated_sigma2"],
            "exact": row["delta"],
            "claimed": promised,
            "value": row["delta"] / promised or None,
            "runs": [record.id],
        }
        for row in where(record.tables["calibrated"], **law)
    ]


def _of_panel(name: str, rows: Iterable[Row]) -> list[Row]:
    return [{"panel": name, **row} for row in rows]


def _by_neighbours(x: Axis, rows: list[Row], sigma2: float) -> Panel:
    """A line for every pair of data sets (colour, marker) and eta (line)."""
    sizes = sorted({row["eta"] for row in rows}, reverse=True)
    neighbours = sorted({(row["x_prime"], row["rest"]) for row in rows}, reverse=True)
    etas = {
        eta: Look(rf"$\eta$ = {eta:g}", "black", "", look.linestyle)
        for eta, look in zip(sizes, cycle(SERIES), strict=False)
    }
    pairs = {
        pair: replace(look, label="{:g} among {:g}s".format(*pair), linestyle="")
        for pair, look in zip(neighbours, cycle(SERIES), strict=False)
    }
    drawn = [
        each
        for (eta, line), ((x_prime, rest), look) in product(etas.items(), pairs.items())
        for each in series(
            where(rows, x_prime=x_prime, rest=rest),
            "ratio",
            {eta: replace(look, linestyle=line.linestyle)},
            "eta",
            told=(line.label,),
        )
    ]
    legend = Legend("upper left", [*pairs.values(), *etas.values()], heading="1 against")
    y = Axis(r"largest exact / claimed $R_\alpha$", log=True)
    title = rf"other records and $\eta$, $\sigma^2$ = {sigma2:g}"
    return Panel(title, x, y, drawn, across=[1.0], legend=legend)


def _region(x: Axis, rows: list[Row], eta: float) -> Panel:
    """Contours of the excess over n/m and sigma^2; the points that it was computed at."""
    ratios, noises = (sorted({row[name] for row in rows}) for name in ("ratio", "sigma2"))
    at = {(row["sigma2"], row["ratio"]): row["value"] for row in rows}
    grid = np.array([[at[noise, ratio] for ratio in ratios] for noise in noises])
    levels = [level for level in EXCESS_LEVELS if level < grid.max()]
    drawn = min(grid.shape) > 1 and levels
    return Panel(
        rf"largest exact / claimed $R_\alpha$, $\eta$ = {eta:g}",
        x,
        Axis(r"noise $\sigma^2$", log=True, ends=(noises[0] / 1.2, noises[-1] * 3)),
        series(rows, "ratio", REGION, lambda row: row["value"] > 1, y="sigma2"),
        contours=Contours(ratios, noises, grid, levels) if drawn else None,
        legend=Legend("upper left", columns=2),
    )


def _middle(values: Sequence[float]) -> float:
    """The element nearest to the geometric middle from below."""
    return sorted(values)[(len(values) - 1) // 2]


def _listed(values: Iterable[float]) -> str:
    return "{" + ", ".join(f"{value:g}" for value in values) + "}"
