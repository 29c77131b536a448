"""Figures of max_information's formulas: the coefficients of Prop. 1, and what kappa depends on.

Each figure needs exactly one record of its kind, and `maxinf_kappa` one of kind `simulation` too;
InputError otherwise. Settings are not used.
"""

import math
from collections.abc import Mapping
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from dpatlas.core.statistics import Estimate
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, NOTE_SIZE, THIN, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import (
    columns,
    draw_bars,
    label_decades,
    label_ticks,
    legend,
    select,
)
from dpatlas.show.series import BLUE, GREEN, PINK, RED, SERIES, handle, only

PURE = Look("Dwork et al., pure privacy", "black", "", "-")
# Without the black one, which stands for pure privacy.
ALPHAS = tuple(look for look in SERIES if look.color != PURE.color)
LEMMA_6 = (0.25, 2.0)
MARKERS = 4
COEFFICIENTS = {
    "leading": r"coefficient of $m s^2 / \sigma^2$",
    "root": r"coefficient of $\sqrt{m}\, s / \sigma$",
    "ratio": r"ratio $R$ of the leading ones",
}

SERIES_OF_KAPPA = {
    "optimised": Look(r"$\kappa/n$, optimised (Eq. 32)", BLUE, "o", "-"),
    "explicit": Look(r"$\kappa'/n$, explicit (Eq. 33)", RED, "s", "--"),
    "tight": Look(r"$\kappa/n$, tight (ours)", GREEN, "^", "-."),
    "repaired": Look(r"$\kappa/n$, repaired (ours)", PINK, "D", ":"),
    "confidence": Look(r"$\log(4\sqrt{n}/\delta)/n$", "black", "", "-"),
}
MOMENTS = {
    "lemma_10": Look("Lemma 10", BLUE, "", "-"),
    "tight": Look("tight (ours)", GREEN, "", "-."),
}
LAWS = ("o", "s", "^", "D", "v", "P")
AXES = {
    "n": "records $n$",
    "zeta_over_sigma": r"signal to noise $\zeta/\sigma$",
    "E": "epochs $E$",
    "T": "steps of an epoch $T$",
    "delta": r"$\delta$",
}
SETTING = ("n", "m", "T", "zeta_over_sigma", "E", "delta")
WHOLE = ("E", "T")
MOST_LABELS = 6
# The proven composition grows geometrically with the epochs: cut off this far above the rest.
HEADROOM = 4.0
CONFIDENCE = 0.95


def maxinf_coefficients(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 1: both coefficients against beta beside those of pure privacy, and Lemma 6's ratio."""
    record = only(records, "coefficients")
    rows = coefficient_rows(record)
    figure = Figure(figsize=(DOUBLE_COLUMN, 2.7))
    looks = dict(zip(record["metrics"]["alphas"], cycle(ALPHAS), strict=False))
    for (panel, title), axes in zip(COEFFICIENTS.items(), figure.subplots(1, 3), strict=True):
        axes.set(xscale="log", xlabel=r"$\beta$", title=title)
        shown = select(rows, panel=panel)
        for place, (alpha, look) in enumerate({**looks, None: PURE}.items()):
            at, value = columns(select(shown, alpha=alpha), "beta", "value")
            # Curves lie close together: their markers at different places.
            every = max(1, len(at) // MARKERS)
            axes.plot(at, value, marker=look.marker, markevery=(place % every, every), **look.line)
        axes.set_ylim(bottom=0)
        if panel == "ratio":
            axes.set_ylim(top=1.05 * LEMMA_6[1])
            for limit in LEMMA_6:
                axes.axhline(limit, color=MUTED, linewidth=THIN, zorder=1)
    entries = [
        handle(Look(rf"$\alpha$ = {alpha:g}", look.color, look.marker, look.linestyle))
        for alpha, look in looks.items()
    ]
    legend(figure, [*entries, handle(PURE)])
    notes = [
        "pure privacy at delta = beta and the epsilon at which the Gaussian mechanism is (epsilon, "
        "delta)-private, which no pure mechanism is: sizes can be compared, guarantees cannot; "
        "thin lines: Lemma 6, R between 1/4 and 2 for alpha up to 3 and beta up to 1/2",
    ]
    return ShownFigure(figure, ("panel", "alpha", "beta", "value"), rows, notes)


def coefficient_rows(record: Mapping[str, Any]) -> list[Row]:
    """The points of every panel; pure privacy, which knows no alpha, once."""
    rows = []
    for place, curve in enumerate(record["metrics"]["curves"]):
        pure = {} if place else {name: curve[f"pure_dp_{name}"] for name in ("leading", "root")}
        ours = {name: curve[f"gaussian_{name}"] for name in ("leading", "root")}
        ours["ratio"] = [
            None if value is None else value / reference
            for value, reference in zip(ours["leading"], curve["pure_dp_leading"], strict=True)
        ]
        for alpha, panels in ((None, pure), (curve["alpha"], ours)):
            rows += [
                {
                    "panel": panel,
                    "alpha": alpha,
                    "beta": beta,
                    "value": value,
                    "runs": [record["id"]],
                }
                for panel, values in panels.items()
                for beta, value in zip(curve["beta"], values, strict=True)
            ]
    return rows


def maxinf_kappa(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 2: kappa / n in four forms and the confidence term; Lemma 10 beside simulation."""
    record, simulation = only(records, "kappa"), only(records, "simulation")
    rows, moments = kappa_rows(record), moment_rows(simulation)
    figure = Figure(figsize=(DOUBLE_COLUMN, 4.4))
    panels = figure.subplots(2, 3)
    for (axis, label), axes in zip(AXES.items(), panels.flat[:-1], strict=True):
        shown = select(rows, panel=axis)
        _kappa_panel(axes, shown, axis)
        axes.set_xlabel(label)
    for line in panels:
        line[0].set_ylabel("nats per record")
    _moment_panel(panels[-1, -1], moments)
    legend(figure, [handle(look) for look in SERIES_OF_KAPPA.values()], columns=3)
    columns = (
        "panel",
        "series",
        "law",
        *SETTING,
        "nu",
        "x",
        "y",
        "draws",
        "value",
        "low",
        "high",
    )
    return ShownFigure(figure, columns, [*rows, *moments], _kappa_notes(record, simulation))


def kappa_rows(record: Mapping[str, Any]) -> list[Row]:
    """The points of every panel with their settings; an infinite value is missing."""
    metrics = record["metrics"]
    return [
        {
            "panel": panel["axis"],
            "series": series,
            **_setting(metrics["base"], panel["axis"], x),
            "value": value,
            "runs": [record["id"]],
        }
        for panel in metrics["panels"]
        for series in SERIES_OF_KAPPA
        for x, value in zip(panel["x"], panel[series], strict=True)
    ]


def _setting(base: Mapping[str, Any], axis: str, x: float) -> Row:
    """Hyperparameters at a point: of m and T the one that is not on the axis follows from n."""
    given = {**base, "zeta_over_sigma": base["zeta"] / base["sigma"], axis: x}
    other = {"m": given["n"] // x} if axis == "T" else {"T": given["n"] // given["m"]}
    return {name: {**given, **other}[name] for name in SETTING}


def moment_rows(record: Mapping[str, Any]) -> list[Row]:
    """Logarithms of the simulated moment, with its interval, and of both bounds."""
    metrics = record["metrics"]
    m, draws = metrics["m"], metrics["draws"]
    rows = []
    for found in metrics["rows"]:
        shared = {name: found[name] for name in ("law", "nu", "x", "y")}
        shared |= {"panel": "moment", "m": m, "draws": draws, "runs": [record["id"]]}
        estimate = Estimate(found["simulated"], found["standard_error"], math.inf, draws)
        low, high = (math.log(end) if end > 0 else None for end in estimate.interval(CONFIDENCE))
        rows.append(
            {**shared, "series": "simulated", "value": math.log(estimate.value)}
            | {"low": low, "high": high}
        )
        rows += [{**shared, "series": name, "value": math.log(found[name])} for name in MOMENTS]
    return rows


def _kappa_panel(axes: Axes, rows: list[Row], axis: str) -> None:
    """All series against one hyperparameter, both axes logarithmic."""
    axes.set(xscale="log", yscale="log")
    for series, look in SERIES_OF_KAPPA.items():
        at, value = columns(select(rows, series=series), axis, "value")
        # With one epoch the proven composition is the printed value: a frame around its markers.
        frame = {"markersize": 6, "mfc": "white", "zorder": 1.9} if series == "repaired" else {}
        style = {"marker": look.marker, "markersize": 3, **look.line, **frame}
        axes.plot(at, value, **style)
    known = [row for row in rows if row["value"] is not None]
    others = [row["value"] for row in known if row["series"] != "repaired"]
    if max(row["value"] for row in known) > HEADROOM * max(others):
        axes.set_ylim(top=HEADROOM * max(others))
    values = sorted({row[axis] for row in rows})
    if axis in WHOLE:
        label_ticks(axes, values[:: math.ceil(len(values) / MOST_LABELS)])
    else:
        _label_few(axes.xaxis)


def _moment_panel(axes: Axes, rows: list[Row]) -> None:
    """log E exp(x ||G - mu||^2) against y = nu x: bounds as lines, a marker for every law."""
    axes.set(xscale="log", yscale="log", xlabel=r"$\nu x$")
    axes.set_title(r"$\log\, \mathbb{E}\, e^{x \Vert G - \mu \Vert^2}$")
    for series, look in MOMENTS.items():
        bound = {row["y"]: row["value"] for row in select(rows, series=series)}
        axes.plot(*zip(*sorted(bound.items()), strict=True), label=look.label, **look.line)
    simulated = select(rows, series="simulated")
    for law, marker in zip(dict.fromkeys(row["law"] for row in rows), cycle(LAWS), strict=False):
        shown = select(simulated, law=law)
        axes.plot(
            *columns(shown, "y", "value"),
            marker,
            color="black",
            mfc="white",
            markersize=3.5,
            mew=0.7,
            label=law,
        )
        draw_bars(axes, "y", shown, color="black")
    _label_few(axes.xaxis)
    axes.legend(loc="upper left", fontsize=NOTE_SIZE, handlelength=1.8, labelspacing=0.2)


def _label_few(axis: Axis) -> None:
    """Labels of a log axis that do not run into each other."""
    axis.set_minor_formatter(NullFormatter())
    label_decades(axis)


def _kappa_notes(record: Mapping[str, Any], simulation: Mapping[str, Any]) -> list[str]:
    base, drawn = record["metrics"]["base"], simulation["metrics"]
    return [
        f"elsewhere n = {base['n']}, batches of m = {base['m']}, zeta = {base['zeta']:g}, sigma = "
        f"{base['sigma']:g}, E = {base['E']}, delta = {base['delta']:g}; beta = delta/2, T = "
        "floor(n/m); against T at this n, m = floor(n/T); for E = 1 the repaired form is the "
        "optimised one, for more epochs it grows geometrically and is cut off; last panel: sums of "
        f"{drawn['m']} independent bounded vectors, {drawn['draws']} draws, 95% interval",
    ]
