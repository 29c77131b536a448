"""Figure maxinf_kappa: how kappa depends on each parameter, and a check of the lemma behind it."""

import math
from collections.abc import Sequence
from itertools import cycle, groupby, product
from operator import itemgetter
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpatlas.core.statistics import Estimate
from dpatlas.papers.max_information.records.kappa import KappaBase
from dpatlas.records import Record
from dpatlas.show.draw import draw_curves, draw_points, frame
from dpatlas.show.look import DOUBLE_COLUMN, NOTE_SIZE, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import label_sparsely, label_ticks, legend
from dpatlas.show.rows import CONFIDENCE
from dpatlas.show.series import BLUE, GREEN, PINK, RED, handle, only

FORM_LOOKS = {
    "optimised": Look(r"$\kappa/n$, optimised (Eq. 32)", BLUE, "o", "-"),
    "explicit": Look(r"$\kappa'/n$, explicit (Eq. 33)", RED, "s", "--"),
    "tight": Look(r"$\kappa/n$, tight (ours)", GREEN, "^", "-."),
}
REPAIRED = {"repaired": Look(r"$\kappa/n$, repaired (ours)", PINK, "D", ":")}
# With one epoch the repaired form is the optimised one: large open markers around its markers.
OPEN: dict[str, Any] = {"markersize": 6, "markerfacecolor": "white", "markeredgecolor": PINK}
CONFIDENCE_TERM = {"confidence": Look(r"$\log(4\sqrt{n}/\delta)/n$", "black", "", "-")}
KAPPA_LOOKS = {**FORM_LOOKS, **REPAIRED, **CONFIDENCE_TERM}
MOMENT_LOOKS = {
    "lemma_10": Look("Lemma 10", BLUE, "", "-"),
    "tight": Look("tight (ours)", GREEN, "", "-."),
}
LAW_MARKERS = ("o", "s", "^", "D", "v", "P")
AXES = {
    "n_at_T": "records $n$, $T$ fixed",
    "n": "records $n$, $m$ fixed",
    "zeta_over_sigma": r"signal to noise $\zeta/\sigma$",
    "E": "epochs $E$",
    "T": "steps in an epoch $T$",
    "delta": r"$\delta$",
}
TITLES = {
    "n_at_T": "more records, $T$ fixed",
    "n": "more records, $m$ fixed",
    "zeta_over_sigma": "less noise",
    "E": "more epochs",
    "T": "more steps",
    "delta": "less confidence",
}
SETTING = ("n", "m", "T", "zeta_over_sigma", "E", "delta")
COLUMNS = (
    *("panel", "series", "law", *SETTING, "nu", "x", "y"),
    *("draws", "value", "low", "high"),
)
WHOLE_NUMBERS = ("E", "T")
MAX_LABELS = 6
# The repaired form grows geometrically with the epochs: the axis ends this factor above the others.
HEADROOM = 4.0


def maxinf_kappa(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 2: kappa / n in four forms and the confidence term; Lemma 10 beside simulation.

    Raises InputError unless there is exactly one record of kind `kappa` and one of `simulation`.
    """
    record, simulated = only(records, "kappa"), only(records, "simulation")
    rows = [*kappa_rows(record), *moment_rows(simulated)]
    panels_of = dict(list(frame(rows).groupby("panel")))
    figure = Figure(figsize=(DOUBLE_COLUMN, 4.4))
    panels = figure.subplots(2, 4)
    *of_kappa, of_moment, unused = panels.flat
    for (axis, label), axes in zip(AXES.items(), of_kappa, strict=True):
        if axis in panels_of:
            _kappa_panel(axes, panels_of[axis], axis)
        axes.set(xlabel=label, title=TITLES[axis])
    _share_heights(of_kappa, frame(kappa_rows(record)))
    for axes in panels[:, 0]:
        axes.set_ylabel("nats per record")
    laws = _moment_panel(of_moment, panels_of["moment"])
    unused.set_axis_off()
    unused.legend(handles=laws, loc="center left", title="last panel", title_fontsize=NOTE_SIZE)
    handles = {series: handle(look) for series, look in KAPPA_LOOKS.items()}
    handles["repaired"].set(**OPEN)
    legend(figure, list(handles.values()), columns=3)
    return ShownFigure(figure, COLUMNS, rows, _notes(record, simulated))


def kappa_rows(record: Record[Any, Any]) -> list[Row]:
    """The points of every panel with their settings; an infinite value is missing."""
    return [
        {
            "panel": axis,
            "series": series,
            **_setting(record.spec.base, axis, point["x"]),
            "value": point[series],
            "runs": [record.id],
        }
        for axis, points in groupby(record.tables["rows"], itemgetter("axis"))
        for series, point in product(KAPPA_LOOKS, points)
    ]


def _setting(base: KappaBase, axis: str, x: float) -> Row:
    """The parameters at a point; of m and T, the one that does not vary follows from n."""
    setting = {"T": base.n // base.m, "zeta_over_sigma": base.zeta / base.sigma}
    setting |= base.plain() | {_varied(axis): x}
    if axis in ("T", "n_at_T"):
        setting["m"] = setting["n"] // setting["T"]
    else:
        setting["T"] = setting["n"] // setting["m"]
    return {name: setting[name] for name in SETTING}


def _varied(axis: str) -> str:
    """The parameter on the axis of a panel."""
    return "n" if axis == "n_at_T" else axis


def moment_rows(record: Record[Any, Any]) -> list[Row]:
    """Logarithms of the simulated moment, with its interval, and of both bounds."""
    m, draws = record.spec.m, record.spec.draws
    rows = []
    for moment in record.tables["rows"]:
        shared: Row = {name: moment[name] for name in ("law", "nu", "x", "y")}
        shared |= {"panel": "moment", "m": m, "draws": draws, "runs": [record.id]}
        estimate = Estimate(moment["simulated"], moment["standard_error"], math.inf, draws)
        low, high = (math.log(end) if end > 0 else None for end in estimate.interval(CONFIDENCE))
        value = math.log(estimate.value)
        rows.append({**shared, "series": "simulated", "value": value, "low": low, "high": high})
        rows += [
            {**shared, "series": name, "value": math.log(moment[name])} for name in MOMENT_LOOKS
        ]
    return rows


def _kappa_panel(axes: Axes, data: pd.DataFrame, axis: str) -> None:
    """All series against one parameter, both axes logarithmic."""
    column = _varied(axis)
    axes.set(xscale="log", yscale="log")
    draw_curves(axes, data, column, REPAIRED, **OPEN, zorder=1.9)
    draw_curves(axes, data, column, {**FORM_LOOKS, **CONFIDENCE_TERM}, markersize=3)
    if axis in WHOLE_NUMBERS:
        values = sorted(data[axis].unique())
        label_ticks(axes, values[:: math.ceil(len(values) / MAX_LABELS)])
    else:
        label_sparsely(axes.xaxis)


def _share_heights(panels: Sequence[Axes], data: pd.DataFrame) -> None:
    """One y axis, without what the repaired form alone reaches."""
    for axes in panels[1:]:
        axes.sharey(panels[0])
    top = HEADROOM * data.value[data.series != "repaired"].max()
    if data.value.max() > top:
        panels[0].set_ylim(top=top)


def _moment_panel(axes: Axes, data: pd.DataFrame) -> list[Line2D]:
    """log E exp(x ||G - mu||^2) against y = nu x: bounds as lines, a marker for every law.

    Returns the entries of its legend.
    """
    axes.set(xscale="log", yscale="log", xlabel=r"$\nu x$")
    axes.set_title(r"$\log\, \mathbb{E}\, e^{x \Vert G - \mu \Vert^2}$")
    laws = {
        law: Look(law, "black", marker, "")
        for law, marker in zip(data.law.unique(), cycle(LAW_MARKERS), strict=False)
    }
    # Bounds are the same for all laws and all nu.
    draw_curves(axes, data.drop_duplicates(["series", "y"]), "y", MOMENT_LOOKS)
    # A lower end of 0 or less, which a log axis cannot show, is drawn below all values.
    lowest = data.value.min() / 2
    simulated = data[data.series == "simulated"]
    simulated = simulated.assign(low=simulated.low.fillna(lowest).clip(lower=lowest))
    with mpl.rc_context({"lines.markersize": 3}):
        for _, points in simulated.groupby("nu"):
            draw_points(axes, points, "y", laws, "law")
    label_sparsely(axes.xaxis)
    return [handle(look) for look in (*MOMENT_LOOKS.values(), *laws.values())]


def _notes(record: Record[Any, Any], simulated: Record[Any, Any]) -> list[str]:
    base, sums = record.spec.base, simulated.spec
    return [
        f"parameters that are not on the axis: n = {base.n}, batches of m = {base.m}, zeta = "
        f"{base.zeta:g}, sigma = {base.sigma:g}, E = {base.E}, delta = {base.delta:g}; beta = "
        "delta/2, T = floor(n/m); where T varies or is fixed, m = floor(n/T); for E = 1 the "
        "repaired form is the optimised one, for more epochs it grows geometrically and is cut "
        f"off; last panel: sums of {sums.m} independent unit vectors (signs, signs that are "
        f"rarely +1, directions on a sphere, coordinate axes), {sums.draws} draws, "
        f"{CONFIDENCE:.0%} interval",
    ]
