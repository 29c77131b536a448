"""Panels of feature_learning's figures: along n by link, along p, d and epsilon, and on ladders."""

import math
from collections.abc import Sequence
from typing import Any

from dpatlas.errors import InputError
from dpatlas_workflow.papers.feature_learning.figures.rows import AXES, Record
from dpatlas_workflow.show.panel import Axis, Panel, PanelGrid, Series, Words
from dpatlas_workflow.show.rows import Row, some

IN_A_LINE = 3
LINE_HEIGHT, AROUND_LINES = 2.15, 0.45
LABELS = {
    "n": "records of a data set $n$",
    "p": "neurons $p$",
    "d": "inputs $d$",
    "epsilon": r"privacy $\varepsilon$",
    "ladder": "inputs $d$, with $n$ and $p$",
}
FALLING = r"inputs $d$, with $n$, $p$ and $\varepsilon$"
SYMBOLS = {"n": "$n$", "p": "$p$", "d": "$d$", "epsilon": r"$\varepsilon$"}
# Limits follow intervals of few runs only so far beyond the values.
MOST_ROOM = 1.4
LEAST_FILLED = 1.2
EDGE = 0.06
MARGIN = 0.08


def layout(records: Sequence[Record]) -> list[list[Record]]:
    """The records of every line of panels: along n by link, along the other axes, and on ladders.

    Raises InputError where there is none along any axis.
    """
    by_axis: dict[str, list[Record]] = {axis: [] for axis in AXES}
    for record in some(records, "simulation"):
        by_axis.get(record.spec.axis, []).append(record)
    links, ladders = by_axis.pop("n"), by_axis.pop("ladder")
    others = [record for along in by_axis.values() for record in along]
    falling = [record for record in ladders if record.spec.vanishes]
    ladders = [record for record in ladders if not record.spec.vanishes]
    lines = [
        part[first : first + IN_A_LINE]
        for part in (links, others, ladders, falling)
        for first in range(0, len(part), IN_A_LINE)
    ]
    if not lines:
        raise InputError("--records", "no simulation along " + ", ".join(AXES), "at least one")
    return lines


def grid(lines: Sequence[Sequence[Panel]]) -> PanelGrid:
    """Lines of panels, which may have different numbers of them."""
    return PanelGrid(lines, LINE_HEIGHT * len(lines) + AROUND_LINES)


def panel(record: Record, y: Axis, drawn: Sequence[Series], **parts: Any) -> Panel:
    """The panel of a record: series along the axis of its sweep."""
    along = {row[record.spec.along] for row in record.tables["rows"]}
    label = FALLING if record.spec.vanishes else LABELS[record.spec.axis]
    x = Axis(label, log=True, ticks=sorted(along), margin=MARGIN)
    parts |= {} if drawn else {"words": [Words("no points")]}
    return Panel(title(record), x, y, drawn, **parts)


def risk_axis(label: str, rows: Sequence[Row], above: float) -> Axis:
    """A log axis that holds all values, and their intervals where these are short.

    above: what to leave empty there, as a share of what is filled.
    """
    values = [row["value"] for row in rows]
    if not values:
        return Axis(label, log=True)
    ends = [row[end] for row in rows for end in ("low", "high") if row.get(end) is not None]
    low = max(min(values) / MOST_ROOM, min([*values, *ends]))
    high = min(max(values) * MOST_ROOM, max([*values, *ends]))
    filled = max(high / low, LEAST_FILLED)
    return Axis(label, log=True, ends=(low / filled**EDGE, high * filled ** (above + EDGE)))


def title(record: Record) -> str:
    """Name of a link, with its Hermite expansion along n, and the axis elsewhere."""
    name = record.spec.link
    if record.spec.axis == "ladder":
        words = f"{name}, {ladder_powers(record)}"
        if record.spec.vanishes:
            epsilons = [point.epsilon for point in sorted(record.spec.points, key=lambda of: of.d)]
            words += f"\n$\\varepsilon$ from {epsilons[0]:.3g} to {epsilons[-1]:.3g}"
        return words
    if record.spec.axis != "n":
        return f"{name}, against {SYMBOLS[record.spec.axis]}"
    exponent, hermite = record.facts["information_exponent"], record.facts["hermite"]
    return f"{name}, information exponent {exponent}\n$s$ = {expansion(hermite)}"


def ladder_powers(record: Record) -> str:
    """n and p as powers of d, to two digits, by the largest condition of a ladder."""
    last = max(record.spec.points, key=lambda point: point.d)
    powers = {name: math.log(getattr(last, name)) / math.log(last.d) for name in "np"}
    shown = {name: f"{power:.2g}" for name, power in powers.items()}
    return ", ".join(
        f"${name} = d$" if power == "1" else f"${name} = d^{{{power}}}$"
        for name, power in shown.items()
    )


def expansion(hermite: Sequence[float]) -> str:
    """A sum of Hermite polynomials; coefficients to three digits."""
    text = ""
    for order, value in enumerate(hermite):
        if abs(value) > 1e-9:
            sign = " + " if text else ""
            if value < 0:
                sign = " - " if text else "-"
            text += rf"{sign}{abs(value):.3g}\,\mathrm{{He}}_{{{order}}}"
    return f"${text}$"
