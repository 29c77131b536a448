"""Figure of dp_sgld's counterexample: the exact one-dimensional law against Thms 3.2 and 4.2."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.dp_sgld.records.counterexample import Metrics, Spec
from dpatlas.records import Record
from dpatlas.show.draw import draw_curves, frame
from dpatlas.show.look import DOUBLE_COLUMN, NOTE_SIZE, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import label_ticks, number
from dpatlas.show.series import SERIES, handle, only, ramp

EXCESS_LEVELS = (1, 10, 100, 1000)
# Exact over promised delta falls to 1e-40 for large batches: cut off there.
LEAST_DELTA = 1e-3


def sgld_counterexample(records: Records, settings: Settings) -> ShownFigure:
    """Exact over claimed divergence, exact over promised delta, and where the claim is violated."""
    record: Record[Spec, Metrics] = only(records, "counterexample")
    fields, metrics = record.spec, record.metrics
    rows = scan_rows(record)
    eta, alpha = _middle(fields.etas), _middle(fields.alphas)
    # The scanned noise next to that of Thm 4.2.
    sigma2 = _nearest(fields.sigma2s, metrics.calibrated_sigma2)
    alone = {"x_prime": -1.0, "rest": -1.0, "eta": eta}
    figure = Figure(figsize=(DOUBLE_COLUMN, 5.2))
    panels = figure.subplots(2, 2)
    for axes in panels.flat:
        axes.set(xscale="log", yscale="log", xlabel="batches of a pass, $n/m$")
        axes.set_xlim(0.9, 1.1 * max(row["ratio"] for row in rows))
        label_ticks(axes, _few({row["ratio"] for row in rows}))
    (ratio, profile), (region, others) = panels
    at_noise = _shown(rows, "divergence", **alone, sigma2=sigma2, alpha=alpha)
    _by_steps(ratio, fields.steps, at_noise)
    ratio.set_ylabel(rf"exact / claimed $R_{{{alpha:g}}}$")
    ratio.set_title(rf"Rényi divergence, $\eta$ = {eta:g}, $\sigma^2$ = {sigma2:g}")
    promised = calibrated_rows(record, **alone)
    _by_steps(profile, fields.steps, promised)
    profile.set_ylim(bottom=LEAST_DELTA)
    profile.set_ylabel(rf"exact / promised $\delta$ at $\epsilon$ = {fields.epsilon:g}")
    noise = number(metrics.calibrated_sigma2)
    profile.set_title(rf"$\delta$, $\eta$ = {eta:g}, $\sigma^2$ = {noise} of Thm 4.2")
    worst = worst_rows(rows)
    largest = _shown(worst, "region", **alone)
    _region(region, largest)
    region.set_title(rf"largest exact / claimed $R_\alpha$, $\eta$ = {eta:g}")
    compared = _shown(worst, "others", sigma2=sigma2)
    _by_neighbours(others, compared)
    others.set_ylabel(r"largest exact / claimed $R_\alpha$")
    others.set_title(rf"other records and $\eta$, $\sigma^2$ = {sigma2:g}")
    notes = [
        f"n = {metrics.n}, loss $\\theta^2/2 - x\\theta$ on [-{fields.radius:g}, "
        f"{fields.radius:g}], lambda = beta = 1, L = {metrics.lipschitz:g}; one record 1 "
        "against -1 among -1s where the legend says nothing else; "
        f"largest: over K in {_listed(fields.steps)} and alpha in {_listed(fields.alphas)}; above "
        f"the line at 1 Thm 3.2 is violated; promised: delta = {fields.delta:g} (lowest values cut "
        "off)",
    ]
    names = ("x_prime", "rest", "eta", "m", "ratio", "sigma2", "K", "alpha", "exact", "claimed")
    return ShownFigure(
        figure, ("panel", *names, "value"), [*at_noise, *promised, *largest, *compared], notes
    )


def scan_rows(record: Record[Spec, Metrics]) -> list[Row]:
    """One row per point of the scan; `value` is exact over claimed."""
    fields, n = record.spec, record.metrics.n
    rows = []
    for law in record.metrics.scan:
        for (i, K), (j, alpha) in product(enumerate(fields.steps), enumerate(fields.alphas)):
            exact, claimed = law.exact[i][j], law.claimed[i][j]
            rows.append(
                {
                    "x_prime": law.x_prime,
                    "rest": law.rest,
                    "eta": law.eta,
                    "m": law.m,
                    "sigma2": law.sigma2,
                    "ratio": n / law.m,
                    "K": K,
                    "alpha": alpha,
                    "exact": exact,
                    "claimed": claimed,
                    "value": exact / claimed,
                    "runs": [record.id],
                }
            )
    return rows


def worst_rows(rows: Sequence[Row]) -> list[Row]:
    """Of every law the row with the largest excess over K and alpha."""
    laws = frame(rows).groupby(["x_prime", "rest", "eta", "m", "sigma2"], sort=False)
    return [rows[number] for number in laws.value.idxmax()]


def calibrated_rows(
    record: Record[Spec, Metrics], x_prime: float, rest: float, eta: float
) -> list[Row]:
    """Exact over promised delta of one pair of data sets at one step size."""
    promised, metrics = record.spec.delta, record.metrics
    return [
        {
            "panel": "delta",
            "x_prime": x_prime,
            "rest": rest,
            "eta": eta,
            "m": law.m,
            "ratio": metrics.n / law.m,
            "sigma2": metrics.calibrated_sigma2,
            "K": law.K,
            "exact": law.delta,
            "claimed": promised,
            "value": law.delta / promised or None,
            "runs": [record.id],
        }
        for law in metrics.calibrated
        if (law.x_prime, law.rest, law.eta) == (x_prime, rest, eta)
    ]


def _shown(rows: Iterable[Row], panel: str, **keys: float) -> list[Row]:
    return [
        {"panel": panel, **row}
        for row in rows
        if all(row[name] == value for name, value in keys.items())
    ]


def _by_steps(axes: Axes, steps: Sequence[int], rows: list[Row]) -> None:
    """A line for every K."""
    looks = dict(zip(steps, ramp([f"$K$ = {K}" for K in steps]), strict=True))
    draw_curves(axes, frame(rows), "ratio", looks, "K")
    _line_at_one(axes)
    axes.legend(handles=[handle(look) for look in looks.values()], loc="best")


def _by_neighbours(axes: Axes, rows: list[Row]) -> None:
    """A line for every pair of data sets (colour, marker) and eta (line)."""
    data = frame(rows)
    pairs = dict(zip(_ordered(data, ["x_prime", "rest"]), cycle(SERIES), strict=False))
    etas = dict(zip(_ordered(data, ["eta"]), cycle(SERIES), strict=False))
    for (x_prime, rest, eta), shown in data.groupby(["x_prime", "rest", "eta"]):
        look = replace(pairs[x_prime, rest], linestyle=etas[eta,].linestyle)
        axes.plot(shown.ratio, shown.value, marker=look.marker, **look.line)
    _line_at_one(axes)
    looks = [
        replace(look, label=f"{x_prime:g} among {rest:g}s", linestyle="")
        for (x_prime, rest), look in pairs.items()
    ]
    looks += [
        Look(rf"$\eta$ = {eta:g}", "black", "", look.linestyle) for (eta,), look in etas.items()
    ]
    axes.legend(
        handles=[handle(look) for look in looks],
        loc="upper left",
        title="1 against",
        title_fontsize=NOTE_SIZE,
        handlelength=1.8,
        labelspacing=0.2,
        borderpad=0,
    )


def _ordered(data: pd.DataFrame, names: list[str]) -> list[tuple[float, ...]]:
    """The different values of the columns, the largest first."""
    return sorted(set(data[names].itertuples(index=False, name=None)), reverse=True)


def _region(axes: Axes, rows: list[Row]) -> None:
    """Contours of the excess over n/m and sigma^2; the points that it was computed at."""
    data = frame(rows)
    grid = data.pivot(index="sigma2", columns="ratio", values="value")
    axes.set_ylabel(r"noise $\sigma^2$")
    axes.grid(False)
    levels = [level for level in EXCESS_LEVELS if level < data.value.max()]
    if levels and min(grid.shape) > 1:
        shades = [str(0.92 - 0.5 * k / len(EXCESS_LEVELS)) for k in range(len(levels))]
        axes.contourf(grid.columns, grid.index, grid, [*levels, np.inf], colors=shades)
        widths = [1.4, *[0.5] * len(levels[1:])]
        lines = axes.contour(
            grid.columns, grid.index, grid, levels, colors="black", linewidths=widths
        )
        axes.clabel(lines, fontsize=NOTE_SIZE, fmt="{:g}".format)
    for points, marker, label in (
        (data[data.value > 1], "x", "violated"),
        (data[~(data.value > 1)], "o", "holds"),
    ):
        style: dict[str, Any] = {"color": "black", "markersize": 3, "mew": 0.7, "mfc": "white"}
        axes.plot(points.ratio, points.sigma2, marker, label=label, clip_on=False, **style)
    axes.set_ylim(data.sigma2.min() / 1.2, data.sigma2.max() * 3)
    axes.legend(loc="upper left", handlelength=1, ncols=2)


def _line_at_one(axes: Axes) -> None:
    axes.axhline(1, color="black", linewidth=0.8, zorder=1)


def _middle(values: Sequence[float]) -> float:
    """The element nearest to the geometric middle from below."""
    return sorted(values)[(len(values) - 1) // 2]


def _nearest(values: Sequence[float], target: float) -> float:
    """On a log axis."""
    return min(values, key=lambda value: abs(np.log(value / target)))


def _few(values: Iterable[float], most: int = 7) -> list[float]:
    """Some of the values, the ends among them, that have room on a log axis."""
    ordered = sorted(values)
    if len(ordered) <= most:
        return ordered
    targets = np.geomspace(ordered[0], ordered[-1], most)
    return sorted({ordered[int(np.abs(np.log(np.array(ordered) / t)).argmin())] for t in targets})


def _listed(values: Iterable[float]) -> str:
    return "{" + ", ".join(f"{value:g}" for value in values) + "}"
