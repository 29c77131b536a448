"""lp_fft: eigenvalues of the imbalance between the layers of a linear network."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from dpatlas_workflow.papers.lp_fft.figures.theory_series import (
    EXACT,
    NOISES,
    PRINTED,
    Made,
    curve_rows,
    drawn,
    mean_rows,
    theory_figure,
)
from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import SERIES, Look
from dpatlas_workflow.show.panel import Axis, Legend, Panel, ShownFigure
from dpatlas_workflow.show.rows import Records, Row, Settings, only


def lpfft_imbalance(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 10: the Jensen gap of the least eigenvalue, and the drift of the mean eigenvalue.

    InputError unless there is exactly one record of kind imbalance.
    """
    record: Record[Any] = only(records, "imbalance")
    gap, drift = record.spec.gap, record.spec.drift
    notes = [
        f"h = {gap.hidden}, d = {gap.inputs}; left: $u$ = max(0, -least eigenvalue of "
        rf"$v v^T - B B^T$), full-batch DP-SGD with noise multiplier $\sigma$ on {gap.records} "
        f"records, clip bound {gap.max_grad_norm:g}, rate {gap.lr:g} on the mean gradient, "
        f"{gap.paths} paths; thin line: the 1% of Conjecture E.22; right: Langevin diffusion, "
        rf"$\sigma^2$ = {drift.sigma2:g}, {drift.paths} paths; under layer-wise noise the printed "
        "and the corrected formula are both zero; bars: 95% normal intervals over paths",
    ]
    line = _jensen(record.tables["gap"]), _eigenvalue_drift(record.tables["drift"])
    return theory_figure(record, {"": line}, notes, height=2.8)


def _jensen(gaps: Sequence[Row]) -> Made:
    rows: list[Row] = []
    looks: list[Look] = []
    for row, style in zip(gaps, cycle(SERIES), strict=False):
        looks.append(replace(style, label=rf"$\sigma$ = {row['sigma']:g}"))
        percent = [[100 * value for value in values] for values in (row["gap"], row["error"])]
        rows += mean_rows("Jensen gap in percent", looks[-1], row["steps"], *percent)
    panel = Panel(
        "Jensen gap of the least eigenvalue in DP-SGD",
        Axis("steps of DP-SGD"),
        Axis(r"$\mathbb{E}u / (\mathbb{E}\sqrt{u})^2 - 1$  (%)", ends=(0, None)),
        drawn(rows, looks),
        across=[1.0],
        legend=Legend("lower right"),
    )
    return panel, rows


def _eigenvalue_drift(drifts: Sequence[Row]) -> Made:
    name = "change of the mean eigenvalue"
    rows: list[Row] = []
    looks: list[Look] = []
    for row in drifts:
        looks.append(replace(NOISES[row["noise"]], linestyle=""))
        rows += mean_rows(name, looks[-1], row["times"], row["change"], row["error"])
        if row["noise"] == "uniform":
            for look, values in ((PRINTED, row["paper"]), (EXACT, row["exact"])):
                looks.append(replace(look, label=f"{look.label}, uniform"))
                rows += curve_rows(name, looks[-1], row["times"], values)
    title = r"Drift of $v v^T - B B^T$ under noise, Eq. 125"
    x, y = Axis("time $t$"), Axis(name)
    return Panel(title, x, y, drawn(rows, looks), legend=Legend("lower left")), rows
