"""lp_fft: eigenvalues of the imbalance between the layers of a linear network."""

from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.lp_fft.figures.theory_series import (
    COLUMNS,
    EXACT,
    NOISES,
    PRINTED,
    curve_rows,
    draw_guide,
    draw_series,
    legend_of,
    mean_rows,
)
from dpatlas.records import Record
from dpatlas.show.look import DOUBLE_COLUMN, SERIES, Look
from dpatlas.show.output import DrawnFigure
from dpatlas.show.rows import Records, Row, Settings, only


def lpfft_imbalance(records: Records, settings: Settings) -> DrawnFigure:
    """Fig. 10: the Jensen gap of the least eigenvalue, and the drift of the mean eigenvalue.

    InputError unless there is exactly one record of kind imbalance.
    """
    record = only(records, "imbalance")
    figure = Figure(figsize=(DOUBLE_COLUMN, 2.8))
    left, right = figure.subplots(1, 2)
    rows = [*_jensen(left, record), *_eigenvalue_drift(right, record)]
    gap, drift = record.spec.gap, record.spec.drift
    notes = [
        f"h = {gap.hidden}, d = {gap.inputs}; left: $u$ = max(0, -least eigenvalue of "
        rf"$v v^T - B B^T$), full-batch DP-SGD with noise multiplier $\sigma$ on {gap.records} "
        f"records, clip bound {gap.max_grad_norm:g}, rate {gap.lr:g} on the mean gradient, "
        f"{gap.paths} paths; thin line: the 1% of Conjecture E.22; right: Langevin diffusion, "
        rf"$\sigma^2$ = {drift.sigma2:g}, {drift.paths} paths; under layer-wise noise the printed "
        "and the corrected formula are both zero; bars: 95% normal intervals over paths",
    ]
    return DrawnFigure(figure, COLUMNS, rows, notes)


def _jensen(axes: Axes, record: Record[Any, Any]) -> list[Row]:
    rows: list[Row] = []
    looks: list[Look] = []
    for row, style in zip(record.tables["gap"], cycle(SERIES), strict=False):
        looks.append(
            Look(rf"$\sigma$ = {row['sigma']:g}", style.color, style.marker, style.linestyle)
        )
        percent = [[100 * value for value in values] for values in (row["gap"], row["error"])]
        rows += mean_rows(record, "Jensen gap in percent", looks[-1], row["steps"], *percent)
    axes.set(xlabel="steps of DP-SGD")
    axes.set_ylabel(r"$\mathbb{E}u / (\mathbb{E}\sqrt{u})^2 - 1$  (%)")
    axes.set_title("Jensen gap of the least eigenvalue in DP-SGD")
    draw_series(axes, rows, looks)
    axes.set_ylim(bottom=0)
    draw_guide(axes, 1.0)
    legend_of(axes, looks, loc="lower right")
    return rows


def _eigenvalue_drift(axes: Axes, record: Record[Any, Any]) -> list[Row]:
    panel = "change of the mean eigenvalue"
    rows: list[Row] = []
    shown: list[Look] = []
    for row in record.tables["drift"]:
        base = NOISES[row["noise"]]
        points = Look(base.label, base.color, base.marker, "")
        rows += mean_rows(record, panel, points, row["times"], row["change"], row["error"])
        shown.append(points)
        if row["noise"] == "uniform":
            for look, values in ((PRINTED, row["paper"]), (EXACT, row["exact"])):
                line = Look(f"{look.label}, uniform", look.color, "", look.linestyle)
                rows += curve_rows(record, panel, line, row["times"], values)
                shown.append(line)
    axes.set(xlabel="time $t$", ylabel="change of the mean eigenvalue")
    axes.set_title(r"Drift of $v v^T - B B^T$ under noise, Eq. 125")
    draw_series(axes, rows, shown)
    legend_of(axes, shown, loc="lower left")
    return rows
