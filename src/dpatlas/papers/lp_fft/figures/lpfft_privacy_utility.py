"""lp_fft: accuracy of the strategies against epsilon."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from dpatlas.errors import InputError
from dpatlas.papers.lp_fft.figures.arms import (
    ARM_COLUMNS,
    PAPER_SHARE,
    PLACE,
    arms,
    series_looks,
    series_name,
)
from dpatlas.papers.lp_fft.figures.averages import grouped
from dpatlas.papers.lp_fft.figures.strategy_panels import (
    common_note,
    finish,
    panel_grid,
    panel_title,
)
from dpatlas.papers.lp_fft.published import BY_METHOD, printed_of
from dpatlas.show.draw import draw_points, draw_printed, frame, printed_handle
from dpatlas.show.look import MUTED, THIN, Look
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import legend
from dpatlas.show.rows import Records, Row, Settings
from dpatlas.show.series import handle

OURS, PRINTED = "ours", "printed"
# Columns in which what is printed agrees with ours.
SCENARIO = ("group", "scenario", "data", "backbone", "pretrained_on", "architecture", "lora_rank")
# Of the first phase, in strategies of one phase.
SHARES = {"lp": 1.0, "fft": 0.0, "lora": 0.0}
# Panels in a line, for few panels and for many.
FEW, MANY = 2, 3
LEGEND_COLUMNS = 5
# Distance of accuracy without privacy from the largest epsilon, as a share of the axis, and at
# least in decades.
ASIDE, LEAST_ASIDE = 0.25, 0.15
# Least distance between two labels of epsilon, as a share of the axis.
BETWEEN_LABELS = 0.13


def lpfft_privacy_utility(records: Records, settings: Settings) -> DrawnFigure:
    """Fig. 8: accuracy of every strategy against epsilon, a panel per scenario and backbone."""
    scenarios = grouped(arms(records, "strategies", "lora"), *PLACE)
    if not scenarios:
        raise InputError("--records", "no strategies", "at least one record of kind strategies")
    return utility_figure([row for rows in scenarios.values() for row in _with_printed(rows)])


def utility_figure(rows: list[Row]) -> DrawnFigure:
    """The figure of these rows of its csv: all panels have the same axes and looks."""
    panels = list(grouped(rows, *PLACE).values())
    figure, subplots = panel_grid(len(panels), MANY if len(panels) > FEW else FEW)
    looks = series_looks(rows)
    epsilons = sorted({row["epsilon"] for row in rows if row["epsilon"]})
    for axes, shown in zip(subplots, panels, strict=True):
        _draw_epsilons(axes, shown, looks, _aside(epsilons))
    ticks = {epsilon: f"{epsilon:.2g}" for epsilon in _apart(epsilons)}
    if any(row["epsilon"] is None for row in rows):
        ticks[_aside(epsilons)[0]] = r"$\infty$"
    for axes in subplots:
        # A single epsilon would take the whole of its axis.
        axes.margins(x=0.1 if len(ticks) > 1 else 2)
        axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
        axes.xaxis.set_major_formatter(FixedFormatter(list(ticks.values())))
        axes.xaxis.set_minor_locator(NullLocator())
    finish(subplots)
    handles = list(map(handle, looks.values()))
    if any(row["source"] == PRINTED for row in rows):
        handles.append(printed_handle())
    legend(figure, handles, min(LEGEND_COLUMNS, len(handles)))
    return DrawnFigure(figure, ("source", *ARM_COLUMNS), rows, _utility_notes(rows))


def _with_printed(rows: Sequence[Row]) -> list[Row]:
    """Rows of one scenario and backbone, and those that the paper prints of the same."""
    first = rows[0]
    printed = [
        {
            **{name: first[name] for name in (*SCENARIO, "runs")},
            "source": PRINTED,
            "strategy": BY_METHOD[cell.method],
            "share": SHARES.get(BY_METHOD[cell.method], PAPER_SHARE),
            "epsilon": None if math.isinf(cell.epsilon) else cell.epsilon,
            "value": round(cell.accuracy / 100, 4),
            "standard_error": round(cell.standard_error / 100, 4),
        }
        for cell in printed_of(first)
    ]
    return [*({**row, "source": OURS} for row in rows), *printed]


def _draw_epsilons(
    axes: Axes,
    rows: Sequence[Row],
    looks: Mapping[tuple[str, float], Look],
    aside: tuple[float, float],
) -> None:
    """A curve per series; accuracy without privacy stands to the right of a dotted line."""
    data = frame(rows).assign(series=list(map(series_name, rows)))
    data["at"] = data["epsilon"].fillna(aside[0]).astype(float)
    axes.set(xscale="log", xlabel=r"privacy budget $\varepsilon$", title=panel_title(rows[0]))
    ours = data[data["source"] == OURS]
    for _, part in ours.groupby(ours["epsilon"].notna()):
        draw_points(axes, part, "at", looks)
    draw_printed(axes, data[data["source"] == PRINTED], "at", looks)
    if data["epsilon"].isna().any() and data["epsilon"].notna().any():
        axes.axvline(aside[1], color=MUTED, linewidth=THIN, linestyle=":")


def _aside(epsilons: Sequence[float]) -> tuple[float, float]:
    """Positions of accuracy without privacy, and of the line before it, right of the epsilons."""
    if not epsilons:
        return 1.0, 1.0
    gap = max(LEAST_ASIDE, ASIDE * math.log10(epsilons[-1] / epsilons[0]))
    return epsilons[-1] * 10**gap, epsilons[-1] * 10 ** (gap / 2)


def _apart(epsilons: Sequence[float]) -> list[float]:
    """Those of the sorted epsilons whose labels do not overlap the label before."""
    labelled: list[float] = []
    for epsilon in epsilons:
        least = BETWEEN_LABELS * math.log10(epsilons[-1] / epsilons[0])
        if not labelled or math.log10(epsilon / labelled[-1]) > least:
            labelled.append(epsilon)
    return labelled


def _utility_notes(rows: Sequence[Row]) -> list[str]:
    note = common_note([row for row in rows if row["source"] == OURS])
    if any(row["source"] == PRINTED for row in rows):
        note += "; printed: Tables 1 and 2 at their epsilons, some of which contradict each other"
    if any(row["epsilon"] is None for row in rows):
        note += r"; at $\infty$: without privacy"
    return [note]
