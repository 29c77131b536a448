"""lp_fft: accuracy of the strategies against epsilon."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from dpatlas.errors import InputError
from dpatlas.papers.lp_fft.figures.arms import ARM_COLUMNS, PLACE, STRATEGIES, arms, chosen_share
from dpatlas.papers.lp_fft.figures.averages import grouped
from dpatlas.papers.lp_fft.figures.strategy_panels import (
    common_note,
    finish,
    panel_grid,
    panel_title,
)
from dpatlas.show.look import MUTED, THIN
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import draw_points, legend, select, shifts
from dpatlas.show.series import handle

# Panels in a line, for few panels and for many.
FEW, MANY = 2, 3
# Parts of an axis of epsilon: accuracy without privacy right of all others, and between labels.
ASIDE, LEAST_ASIDE, BETWEEN_LABELS = 0.25, 0.15, 0.13


def lpfft_privacy_utility(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 8: accuracy of every strategy against epsilon, a panel per scenario and backbone."""
    scenarios = grouped(arms(records, "strategies", "lora"), *PLACE)
    if not scenarios:
        raise InputError("--records", "no strategies", "at least one record of kind strategies")
    panels = [chosen_share(rows) for rows in scenarios.values()]
    in_a_line = MANY if len(panels) > FEW else FEW
    figure, subplots = panel_grid(len(panels), in_a_line)
    for axes, rows in zip(subplots, panels, strict=True):
        _draw_epsilons(axes, rows)
    finish(subplots, in_a_line)
    rows = [row for panel in panels for row in panel]
    used = {row["strategy"] for row in rows}
    legend(figure, [handle(look) for name, look in STRATEGIES.items() if name in used])
    return ShownFigure(figure, ARM_COLUMNS, rows, _utility_notes(rows))


def _draw_epsilons(axes: Axes, rows: Sequence[Row]) -> None:
    """A curve per strategy; accuracy without privacy stands aside, behind a line."""
    epsilons = sorted({row["epsilon"] for row in rows if row["epsilon"]})
    aside, between = _aside(epsilons)
    placed = [{**row, "at": row["epsilon"] or aside} for row in rows]
    axes.set(xscale="log", xlabel=r"$\varepsilon$", title=panel_title(rows[0]))
    used = [name for name in STRATEGIES if select(rows, strategy=name)]
    for name, shift in zip(used, shifts(len(used)), strict=True):
        shown = sorted(select(placed, strategy=name), key=lambda row: row["at"])
        for private in (True, False):
            part = [row for row in shown if bool(row["noise_multiplier"]) == private]
            draw_points(axes, STRATEGIES[name], "at", part, shift)
    ticks = {epsilon: f"{epsilon:.2g}" for epsilon in _apart(epsilons)}
    if any(row["epsilon"] is None for row in rows):
        ticks[aside] = r"$\infty$"
        if epsilons:
            axes.axvline(between, color=MUTED, linewidth=THIN, linestyle=":")
    axes.margins(x=0.1)
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_major_formatter(FixedFormatter(list(ticks.values())))
    axes.xaxis.set_minor_locator(NullLocator())


def _aside(epsilons: Sequence[float]) -> tuple[float, float]:
    """Where accuracy without privacy stands on an axis of sorted `epsilons`, and what parts it."""
    if not epsilons:
        return 1.0, 1.0
    gap = max(LEAST_ASIDE, ASIDE * math.log10(epsilons[-1] / epsilons[0]))
    return epsilons[-1] * 10**gap, epsilons[-1] * 10 ** (gap / 2)


def _apart(epsilons: Sequence[float]) -> list[float]:
    """Those of sorted `epsilons` whose labels do not run into the label before."""
    kept: list[float] = []
    for epsilon in epsilons:
        if not kept or math.log10(epsilon / kept[-1]) > BETWEEN_LABELS * math.log10(
            epsilons[-1] / epsilons[0]
        ):
            kept.append(epsilon)
    return kept


def _utility_notes(rows: Sequence[Row]) -> list[str]:
    return [
        common_note(rows) + r"; at $\infty$: without privacy; strategies of two phases at the "
        "share that did best on those records; points are moved sideways where they would overlap"
    ]
