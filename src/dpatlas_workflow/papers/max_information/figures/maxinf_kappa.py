"""Figure maxinf_kappa: how kappa depends on each parameter, and a check of the lemma behind it."""

import math
from itertools import cycle, groupby, product
from operator import itemgetter
from typing import Any

from dpatlas_workflow.papers.max_information.records.kappa import KappaBase
from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import BLUE, GREEN, PINK, RED, Look
from dpatlas_workflow.show.panel import Axis, Legend, Panel, PanelGrid, ShownFigure, points, series
from dpatlas_workflow.show.rows import CONFIDENCE, Records, Row, Settings, only, where
from dpatlas_workflow.statistics import Estimate

KAPPA_LOOKS = {
    "optimised": Look(r"$\kappa/n$, optimised (Eq. 32)", BLUE, "o", "-", size=3),
    "explicit": Look(r"$\kappa'/n$, explicit (Eq. 33)", RED, "s", "--", size=3),
    "tight": Look(r"$\kappa/n$, tight (ours)", GREEN, "^", "-.", size=3),
    # With one epoch it is the optimised one: large open markers around its markers.
    "repaired": Look(r"$\kappa/n$, repaired (ours)", PINK, "D", ":", size=6, fill="none"),
    "confidence": Look(r"$\log(4\sqrt{n}/\delta)/n$", "black"),
}
# The repaired form below the others.
DRAWN = {"repaired": KAPPA_LOOKS["repaired"], **KAPPA_LOOKS}
MOMENT_LOOKS = {"lemma_10": Look("Lemma 10", BLUE), "tight": Look("tight (ours)", GREEN, "", "-.")}
LAW_MARKERS = ("o", "s", "^", "D", "v", "P")
# By axis: the title of its panel and its label.
AXES = {
    "n_at_T": ("more records, $T$ fixed", "records $n$, $T$ fixed"),
    "n": ("more records, $m$ fixed", "records $n$, $m$ fixed"),
    "zeta_over_sigma": ("less noise", r"signal to noise $\zeta/\sigma$"),
    "E": ("more epochs", "epochs $E$"),
    "T": ("more steps", "steps in an epoch $T$"),
    "delta": ("less confidence", r"$\delta$"),
}
COLUMNS_OF_GRID = 4
SETTING = ("n", "m", "T", "zeta_over_sigma", "E", "delta")
COLUMNS = (
    *("panel", "series", "law", *SETTING, "nu", "x", "y"),
    *("draws", "value", "low", "high"),
)
WHOLE_NUMBERS = ("E", "T")
# The repaired form grows geometrically with the epochs: the axis ends this factor above the others.
HEADROOM = 4.0


def maxinf_kappa(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 2: kappa / n in four forms and the confidence term; Lemma 10 beside simulation.

    Raises InputError unless there is exactly one record of kind `kappa` and one of `simulation`.
    """
    record, simulated = only(records, "kappa"), only(records, "simulation")
    of_kappa, of_moment = kappa_rows(record), moment_rows(simulated)
    heights = [row["value"] for row in of_kappa if row["value"] and row["series"] != "repaired"]
    top = HEADROOM * max(heights)
    cut = any((row["value"] or 0) > top for row in of_kappa)
    nats = Axis("nats per record", log=True, ends=(None, top if cut else None))
    panels = [_kappa_panel(where(of_kappa, panel=axis), axis, nats) for axis in AXES]
    shown = [*(panel for panel in panels if panel.series), _moment_panel(of_moment)]
    lines = [shown[at : at + COLUMNS_OF_GRID] for at in range(0, len(shown), COLUMNS_OF_GRID)]
    legend = list(KAPPA_LOOKS.values())
    base, sums = record.spec.base, simulated.spec
    notes = [
        f"parameters that are not on the axis: n = {base.n}, batches of m = {base.m}, zeta = "
        f"{base.zeta:g}, sigma = {base.sigma:g}, E = {base.E}, delta = {base.delta:g}; beta = "
        "delta/2, T = floor(n/m); where T varies or is fixed, m = floor(n/T); for E = 1 the "
        "repaired form is the optimised one, for more epochs it grows geometrically and is cut "
        f"off; last panel: sums of {sums.m} independent unit vectors (signs, signs that are "
        f"rarely +1, directions on a sphere, coordinate axes), {sums.draws} draws, "
        f"{CONFIDENCE:.0%} interval"
    ]
    return ShownFigure([PanelGrid(lines, 4.4)], COLUMNS, [*of_kappa, *of_moment], notes, legend)


def kappa_rows(record: Record[Any]) -> list[Row]:
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


def moment_rows(record: Record[Any]) -> list[Row]:
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


def _kappa_panel(rows: list[Row], axis: str, nats: Axis) -> Panel:
    """All series against one parameter."""
    title, label = AXES[axis]
    column = _varied(axis)
    ticks = sorted({row[column] for row in rows}) if axis in WHOLE_NUMBERS else None
    return Panel(title, Axis(label, log=True, ticks=ticks), nats, series(rows, column, DRAWN))


def _moment_panel(rows: list[Row]) -> Panel:
    """log E exp(x ||G - mu||^2) against y = nu x: bounds as lines, a marker for every law."""
    laws = {
        law: Look(law, "black", marker, "", size=3)
        for law, marker in zip(dict.fromkeys(row["law"] for row in rows), cycle(LAW_MARKERS))
    }
    # Bounds are the same for all laws and all nu.
    bounds = {(row["series"], row["y"]): row for row in rows}.values()
    return Panel(
        r"$\log\, \mathbb{E}\, e^{x \Vert G - \mu \Vert^2}$",
        Axis(r"$\nu x$", log=True),
        Axis(log=True),
        [
            *series(bounds, "y", MOMENT_LOOKS),
            *points(where(rows, series="simulated"), "y", laws, "law"),
        ],
        legend=Legend("beside"),
    )
