"""Figure of dp_sgld's counterexample: the exact one-dimensional law against Thms 3.2 and 4.2."""

from collections.abc import Iterable, Sequence
from itertools import cycle, product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.dp_sgld.records.counterexample import Metrics, Spec
from dpatlas.records import Record
from dpatlas.show.look import DOUBLE_COLUMN, NOTE_SIZE, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import columns, label_ticks, number, select
from dpatlas.show.series import SERIES, handle, only

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
    (ratio, profile), (region, others) = figure.subplots(2, 2)
    at_noise = _shown(rows, "divergence", **alone, sigma2=sigma2, alpha=alpha)
    _by_steps(ratio, fields.steps, at_noise)
    ratio.set_ylabel(rf"exact / claimed $R_{{{alpha:g}}}$")
    ratio.set_title(rf"$\eta$ = {eta:g}, $\sigma^2$ = {sigma2:g}")
    promised = calibrated_rows(record, **alone)
    _by_steps(profile, fields.steps, promised)
    profile.set_ylim(bottom=LEAST_DELTA)
    profile.set_ylabel(rf"exact / promised $\delta$ at $\epsilon$ = {fields.epsilon:g}")
    noise = number(metrics.calibrated_sigma2)
    profile.set_title(rf"$\eta$ = {eta:g}, $\sigma^2$ = {noise} of Thm 4.2")
    worst = worst_rows(rows)
    largest = _shown(worst, "region", **alone)
    _region(region, largest)
    region.set_title(rf"largest exact / claimed $R_\alpha$, $\eta$ = {eta:g}")
    compared = _shown(worst, "others", sigma2=sigma2)
    _by_neighbours(others, compared)
    others.set_ylabel(r"largest exact / claimed $R_\alpha$")
    others.set_title(rf"other records and $\eta$, $\sigma^2$ = {sigma2:g}")
    for axes in (ratio, profile, region, others):
        axes.set_xlabel("$n/m$")
        axes.set_xlim(0.9, 1.1 * max(row["ratio"] for row in rows))
        label_ticks(axes, _few({row["ratio"] for row in rows}))
    notes = [
        f"n = {metrics.n}, loss theta^2/2 - x theta on [-{fields.radius:g}, "
        f"{fields.radius:g}], lambda = beta = 1, L = {metrics.lipschitz:g}; one record 1 "
        "against -1 among -1s where the legend says nothing else; "
        f"K in {_listed(fields.steps)}, alpha in {_listed(fields.alphas)}; above the line at "
        f"1 Thm 3.2 is violated; promised: delta {fields.delta:g} (lowest values cut off)",
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
    best: dict[tuple[float, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in ("x_prime", "rest", "eta", "m", "sigma2"))
        if key not in best or row["value"] > best[key]["value"]:
            best[key] = row
    return list(best.values())


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
    return [{"panel": panel, **row} for row in select(rows, **keys)]


def _by_steps(axes: Axes, steps: Sequence[int], rows: list[Row]) -> None:
    """A line for every K."""
    axes.set(xscale="log", yscale="log")
    for K, look in zip(steps, cycle(SERIES), strict=False):
        at, value = columns(select(rows, K=K), "ratio", "value")
        axes.plot(at, value, marker=look.marker, label=f"K = {K}", **look.line)
    _line_at_one(axes)
    axes.legend(loc="best")


def _by_neighbours(axes: Axes, rows: list[Row]) -> None:
    """A line for every pair of data sets (colour, marker) and eta (line)."""
    axes.set(xscale="log", yscale="log")
    pairs = sorted({(row["x_prime"], row["rest"]) for row in rows}, reverse=True)
    etas = sorted({row["eta"] for row in rows}, reverse=True)
    looks, styles = (
        list(zip(pairs, cycle(SERIES), strict=False)),
        list(zip(etas, cycle(SERIES), strict=False)),
    )
    for ((x_prime, rest), look), (eta, style) in product(looks, styles):
        shown = select(rows, x_prime=x_prime, rest=rest, eta=eta)
        axes.plot(
            *columns(shown, "ratio", "value"),
            marker=look.marker,
            color=look.color,
            linestyle=style.linestyle,
        )
    _line_at_one(axes)
    handles = [
        handle(Look(f"{x_prime:g} among {rest:g}s", look.color, look.marker, ""))
        for (x_prime, rest), look in looks
    ]
    handles += [
        handle(Look(rf"$\eta$ = {eta:g}", "black", "", style.linestyle)) for eta, style in styles
    ]
    axes.legend(
        handles=handles,
        loc="upper left",
        title="1 against",
        title_fontsize=NOTE_SIZE,
        handlelength=1.8,
        labelspacing=0.2,
        borderpad=0,
    )


def _region(axes: Axes, rows: list[Row]) -> None:
    """Contours of the excess over n/m and sigma^2; the points that it was computed at."""
    at = sorted({row["ratio"] for row in rows})
    noises = sorted({row["sigma2"] for row in rows})
    values = np.array(
        [[select(rows, ratio=ratio, sigma2=noise)[0]["value"] for ratio in at] for noise in noises]
    )
    axes.set(xscale="log", yscale="log", ylabel=r"$\sigma^2$")
    axes.grid(False)
    levels = [level for level in EXCESS_LEVELS if level < values.max()]
    if levels and min(values.shape) > 1:
        shades = [str(0.92 - 0.5 * k / len(EXCESS_LEVELS)) for k in range(len(levels))]
        axes.contourf(at, noises, values, [*levels, np.inf], colors=shades)
        lines = axes.contour(
            at, noises, values, levels, colors="black", linewidths=[1.4, *[0.5] * len(levels[1:])]
        )
        axes.clabel(lines, fontsize=NOTE_SIZE, fmt="{:g}".format)
    for violated, marker in ((True, "o"), (False, "x")):
        points = [row for row in rows if (row["value"] > 1) == violated]
        axes.plot(
            *columns(points, "ratio", "sigma2"),
            marker,
            color="black",
            markersize=3,
            mew=0.7,
            mfc="white",
            clip_on=False,
            label="violated" if violated else "holds",
        )
    axes.set_ylim(noises[0] / 1.2, noises[-1] * 3)
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
