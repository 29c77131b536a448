"""lp_fft: accuracy of the strategies against epsilon."""

import math
from collections.abc import Sequence

from dpatlas.errors import InputError
from dpatlas_workflow.papers.lp_fft.figures.arms import (
    ARM_COLUMNS,
    PAPER_SHARE,
    PLACE,
    arms,
    common_note,
    in_lines,
    panel_title,
    series_looks,
    series_name,
)
from dpatlas_workflow.papers.lp_fft.published import BY_METHOD, printed_of
from dpatlas_workflow.show.panel import Axis, Panel, ShownFigure, accuracy, points, printed
from dpatlas_workflow.show.rows import Records, Row, Settings, grouped, where

OURS, PRINTED = "ours", "printed"
# Columns in which what is printed agrees with ours.
SCENARIO = ("group", "scenario", "data", "backbone", "pretrained_on", "architecture", "lora_rank")
# Of the first phase, in strategies of one phase.
SHARES = {"lp": 1.0, "fft": 0.0, "lora": 0.0}
# Panels in a line, for few panels and for many.
FEW, MANY = 2, 3
# Distance of accuracy without privacy from the largest epsilon, as a share of the axis, and at
# least in decades.
ASIDE, LEAST_ASIDE = 0.25, 0.15


def lpfft_privacy_utility(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 8: accuracy of every strategy against epsilon, a panel per scenario and backbone."""
    scenarios = grouped(arms(records, "strategies", "lora"), *PLACE)
    if not scenarios:
        raise InputError("--records", "no strategies", "at least one record of kind strategies")
    rows = [row for shown in scenarios.values() for row in _with_printed(shown)]
    # All panels have the same axes and looks.
    epsilons = sorted({row["epsilon"] for row in rows if row["epsilon"]})
    free, line = _aside(epsilons)
    ticks = {epsilon: f"{epsilon:.2g}" for epsilon in epsilons}
    if where(rows, epsilon=None):
        ticks[free] = r"$\infty$"

    def at(row: Row) -> float:
        return free if row["epsilon"] is None else float(row["epsilon"])

    x = Axis(r"privacy budget $\varepsilon$", log=True, ticks=ticks, margin=0.1)
    looks, panels = series_looks(rows), []
    for shown in grouped(rows, *PLACE).values():
        ours = where(shown, source=OURS)
        private = [row for row in ours if row["epsilon"] is not None]
        drawn = points(where(ours, epsilon=None), at, looks, series_name)
        drawn += points(private, at, looks, series_name)
        drawn += printed(where(shown, source=PRINTED), at, looks, series_name)
        both = private and where(shown, epsilon=None)
        upright = [line] if both else []
        panels.append(Panel(panel_title(shown[0]), x, accuracy(), drawn, upright=upright))
    grid = in_lines(panels, MANY if len(panels) > FEW else FEW)
    note = common_note(where(rows, source=OURS), records)
    if where(rows, source=PRINTED):
        note += "; printed: Tables 1 and 2 at their epsilons, some of which contradict each other"
    if where(rows, epsilon=None):
        note += r"; at $\infty$: without privacy"
    return ShownFigure([grid], ("source", *ARM_COLUMNS), rows, [note])


def _with_printed(rows: Sequence[Row]) -> list[Row]:
    """Rows of one scenario and backbone, and those that the paper prints of the same."""
    first = rows[0]
    printed = [
        {
            **{name: first[name] for name in (*SCENARIO, "runs")},
            "source": PRINTED,
            **cell.shown,
            "share": SHARES.get(BY_METHOD[cell.method], PAPER_SHARE),
            "epsilon": None if math.isinf(cell.epsilon) else cell.epsilon,
        }
        for cell in printed_of(first)
    ]
    return [*({**row, "source": OURS} for row in rows), *printed]


def _aside(epsilons: Sequence[float]) -> tuple[float, float]:
    """Positions of accuracy without privacy, and of the line before it, right of the epsilons."""
    if not epsilons:
        return 1.0, 1.0
    gap = max(LEAST_ASIDE, ASIDE * math.log10(epsilons[-1] / epsilons[0]))
    return epsilons[-1] * 10**gap, epsilons[-1] * 10 ** (gap / 2)
