"""Figure maxinf_kappa: what kappa depends on, and the lemma behind it on simulated sums."""

import math
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from dpatlas.core.statistics import Estimate
from dpatlas.papers.max_information.records import kappa, simulation
from dpatlas.records import Record
from dpatlas.show.look import DOUBLE_COLUMN, NOTE_SIZE, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import columns, draw_bars, label_decades, label_ticks, legend, select
from dpatlas.show.series import BLUE, GREEN, PINK, RED, handle, only

KappaRecord = Record[kappa.Spec, kappa.Metrics]
SimulationRecord = Record[simulation.Spec, simulation.Metrics]

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
COLUMNS = (
    *("panel", "series", "law", *SETTING, "nu", "x", "y"),
    *("draws", "value", "low", "high"),
)
WHOLE = ("E", "T")
MOST_LABELS = 6
# The proven composition grows geometrically with the epochs: cut off this far above the rest.
HEADROOM = 4.0
CONFIDENCE = 0.95


def maxinf_kappa(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 2: kappa / n in four forms and the confidence term; Lemma 10 beside simulation.

    Raises InputError unless there is exactly one record of kind `kappa` and one of `simulation`.
    """
    record, simulated = only(records, "kappa"), only(records, "simulation")
    rows, moments = kappa_rows(record), moment_rows(simulated)
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
    return ShownFigure(figure, COLUMNS, [*rows, *moments], _kappa_notes(record, simulated))


def kappa_rows(record: KappaRecord) -> list[Row]:
    """The points of every panel with their settings; an infinite value is missing."""
    return [
        {
            "panel": panel.axis,
            "series": series,
            **_setting(record.metrics.base, panel.axis, x),
            "value": value,
            "runs": [record.id],
        }
        for panel in record.metrics.panels
        for series in SERIES_OF_KAPPA
        for x, value in zip(panel.x, getattr(panel, series), strict=True)
    ]


def _setting(base: kappa.Base, axis: str, x: float) -> Row:
    """Hyperparameters at a point: of m and T the one that is not on the axis follows from n."""
    given = {**base.model_dump(), "zeta_over_sigma": base.zeta / base.sigma, axis: x}
    other = {"m": given["n"] // x} if axis == "T" else {"T": given["n"] // given["m"]}
    return {name: {**given, **other}[name] for name in SETTING}


def moment_rows(record: SimulationRecord) -> list[Row]:
    """Logarithms of the simulated moment, with its interval, and of both bounds."""
    m, draws = record.metrics.m, record.metrics.draws
    rows = []
    for moment in record.metrics.rows:
        shared: Row = {"law": moment.law, "nu": moment.nu, "x": moment.x, "y": moment.y}
        shared |= {"panel": "moment", "m": m, "draws": draws, "runs": [record.id]}
        estimate = Estimate(moment.simulated, moment.standard_error, math.inf, draws)
        low, high = (math.log(end) if end > 0 else None for end in estimate.interval(CONFIDENCE))
        value = math.log(estimate.value)
        rows.append({**shared, "series": "simulated", "value": value, "low": low, "high": high})
        rows += [
            {**shared, "series": name, "value": math.log(getattr(moment, name))} for name in MOMENTS
        ]
    return rows


def _kappa_panel(axes: Axes, rows: list[Row], axis: str) -> None:
    """All series against one hyperparameter, both axes logarithmic."""
    axes.set(xscale="log", yscale="log")
    for series, look in SERIES_OF_KAPPA.items():
        at, value = columns(select(rows, series=series), axis, "value")
        # With one epoch the proven composition is the printed value: a frame around its markers.
        frame = {"markersize": 6, "mfc": "white", "zorder": 1.9} if series == "repaired" else {}
        style: dict[str, Any] = {"marker": look.marker, "markersize": 3, **look.line, **frame}
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
        style: dict[str, Any] = {"label": look.label, **look.line}
        axes.plot(*zip(*sorted(bound.items()), strict=True), **style)
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


def _kappa_notes(record: KappaRecord, simulated: SimulationRecord) -> list[str]:
    base, drawn = record.metrics.base, simulated.metrics
    return [
        f"elsewhere n = {base.n}, batches of m = {base.m}, zeta = {base.zeta:g}, sigma = "
        f"{base.sigma:g}, E = {base.E}, delta = {base.delta:g}; beta = delta/2, T = "
        "floor(n/m); against T at this n, m = floor(n/T); for E = 1 the repaired form is the "
        "optimised one, for more epochs it grows geometrically and is cut off; last panel: sums of "
        f"{drawn.m} independent bounded vectors, {drawn.draws} draws, 95% interval",
    ]
