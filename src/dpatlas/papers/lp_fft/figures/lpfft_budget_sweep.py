"""lp_fft: accuracy of the strategies against the share of LP and against the clip threshold."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter
from matplotlib.transforms import ScaledTranslation

from dpatlas.errors import InputError
from dpatlas.papers.lp_fft.figures.arms import (
    ARM_COLUMNS,
    PLACE,
    STRATEGIES,
    arms,
    chosen_share,
    level,
)
from dpatlas.papers.lp_fft.figures.averages import SKY, grouped, percent_axis
from dpatlas.papers.lp_fft.figures.strategy_panels import (
    common_note,
    finish,
    panel_grid,
    panel_title,
)
from dpatlas.show.look import MUTED, NOTE_SIZE, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import columns, draw_bars, draw_points, label_ticks, select, shifts
from dpatlas.show.panels import legend as legend_above
from dpatlas.show.series import BLUE, GREEN, ORANGE, PINK, RED, handle

Level = tuple[float, float]

PANELS_IN_A_LINE = 2
NOT_PRIVATE = Look("", "black", "v", ":")
LEVELS = (
    Look("", BLUE, "o", "-"),
    Look("", RED, "s", "--"),
    Look("", GREEN, "^", "-."),
    Look("", PINK, "D", ":"),
    Look("", ORANGE, "P", "-"),
    Look("", SKY, "X", "--"),
    Look("", "black", "*", "-."),
    Look("", MUTED, "h", "-"),
)
# What follows LP: the strategies of one curve, from a share of 0 to 1.
FAMILIES = {"FFT": ("fft", "lp-fft", "lp"), "LoRA": ("lora", "lp-lora", "lp")}
BOTH_PHASES = ("lp-fft", "lp-lora")
# Two phases of one kind: the fill of the level's marker, and how far aside in points.
CONTROLS: dict[str, tuple[Literal["none", "bottom"], float]] = {
    "lp-lp": ("none", -7.0),
    "fft-fft": ("bottom", 7.0),
}


def lpfft_budget_sweep(records: Records, settings: Settings) -> ShownFigure:
    """Figs. 2b and 6: accuracy against the share of the budget spent on LP; against the clip."""
    trained = arms(records, "strategies", "lora")
    swept = _share_panels(trained)
    clipped = _clip_panels(arms(records, "clip_sweep"), trained)
    panels = [*swept, *clipped]
    if not panels:
        raise InputError("--records", "no strategy of two phases", "at least one lp-fft")
    figure, subplots = panel_grid(len(panels), PANELS_IN_A_LINE)
    for axes, rows in zip(subplots, swept, strict=False):
        _draw_shares(axes, rows, _looks(swept, rows))
    for axes, rows in zip(subplots[len(swept) :], clipped, strict=True):
        _draw_clips(axes, rows)
    finish(subplots, PANELS_IN_A_LINE)
    rows = [row for panel in panels for row in panel]
    _explain_controls(figure, rows)
    return ShownFigure(figure, ("panel", *ARM_COLUMNS), rows, _sweep_notes(rows))


def _share_panels(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of a panel per scenario, backbone and family that trains in two phases."""
    panels = []
    for of_scenario in grouped(rows, *PLACE).values():
        for family, strategies in FAMILIES.items():
            controls = CONTROLS if family == "FFT" else ()
            shown = [row for row in of_scenario if row["strategy"] in (*strategies, *controls)]
            if any(row["strategy"] in BOTH_PHASES for row in shown):
                panels.append([{"panel": "share", **row} for row in shown])
    return panels


def _clip_panels(rows: Sequence[Row], trained: Sequence[Row]) -> list[list[Row]]:
    """The rows of a panel per scenario, backbone and privacy level; without privacy no clip.

    A scenario's own clip is not swept: its rows are found among `trained`.
    """
    names = ("scenario", "data", "backbone", "noise_multiplier", "target_epsilon")
    panels = []
    for swept in grouped([row for row in rows if row["noise_multiplier"]], *names).values():
        arms_swept = {(row["strategy"], row["share"]) for row in swept}
        clips = {row["max_grad_norm"] for row in swept}
        unswept = [
            row
            for row in select(trained, **{name: swept[0][name] for name in names})
            if (row["strategy"], row["share"]) in arms_swept and row["max_grad_norm"] not in clips
        ]
        panels.append([{"panel": "clip", **row} for row in chosen_share([*swept, *unswept])])
    return panels


def _looks(panels: Sequence[Sequence[Row]], here: Sequence[Row]) -> dict[Level, Look]:
    """A look for every privacy level; the same in all panels where there are enough of them."""
    every, few = (
        sorted({level(row) for row in rows if row["noise_multiplier"]})
        for rows in ([row for panel in panels for row in panel], here)
    )
    levels = every if len(every) <= len(LEVELS) else few
    looks = dict(zip(levels, cycle(LEVELS), strict=False))
    return {level({"noise_multiplier": 0.0, "target_epsilon": None}): NOT_PRIVATE, **looks}


def _draw_shares(axes: Axes, rows: Sequence[Row], looks: Mapping[Level, Look]) -> None:
    """A curve per privacy level, with the controls of two equal phases beside it."""
    handles = []
    for privacy in sorted({level(row) for row in rows}):
        here, look = [row for row in rows if level(row) == privacy], looks[privacy]
        curve = [row for row in here if row["strategy"] not in CONTROLS]
        draw_points(axes, look, "share", sorted(curve, key=lambda row: row["share"]))
        for strategy in CONTROLS:
            _draw_control(axes, look, strategy, select(here, strategy=strategy))
        text = _privacy(here[0])
        handles.append(handle(Look(text, look.color, look.marker, look.linestyle)))
    axes.set(xlim=(-0.06, 1.06), xlabel="share of the steps in LP, %", title=panel_title(rows[0]))
    axes.xaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    percent_axis(axes.xaxis)
    _legend_beside(axes, handles, r"noise ($\varepsilon$)")


def _draw_control(axes: Axes, look: Look, strategy: str, rows: list[Row]) -> None:
    """Markers beside their share, with the shape and colour of their level."""
    fill, shift = CONTROLS[strategy]
    aside = ScaledTranslation(shift / 72, 0, axes.figure.dpi_scale_trans)
    style: dict[str, Any] = {"color": look.color, "transform": axes.transData + aside}
    at, *values = columns(rows, "share", "value", "low", "high")
    for value in values:
        axes.update_datalim(np.column_stack([at, value]))
    axes.autoscale_view()
    marker: dict[str, Any] = {
        "marker": look.marker,
        "fillstyle": fill,
        "markerfacecoloralt": "white",
    }
    axes.plot(at, values[0], linestyle="none", zorder=3, **marker, **style)
    draw_bars(axes, "share", rows, **style)


def _draw_clips(axes: Axes, rows: Sequence[Row]) -> None:
    """A curve per strategy at one privacy level."""
    axes.set(xscale="log", xlabel="clip threshold of a record's gradient")
    first = rows[0]
    privacy = f"noise {first['noise_multiplier']:.3g}, $\\varepsilon$ = {first['epsilon']:.3g}"
    axes.set_title(f"{panel_title(first)}\n{privacy}")
    used = [name for name in STRATEGIES if select(rows, strategy=name)]
    for name, shift in zip(used, shifts(len(used)), strict=True):
        shown = sorted(select(rows, strategy=name), key=lambda row: row["max_grad_norm"])
        draw_points(axes, STRATEGIES[name], "max_grad_norm", shown, shift)
    label_ticks(axes, [row["max_grad_norm"] for row in rows])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda clip, _: f"{clip:g}"))
    _legend_beside(axes, [handle(STRATEGIES[name]) for name in used], None)


def _legend_beside(axes: Axes, handles: list[Line2D], title: str | None) -> None:
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.02),
        borderaxespad=0.3,
        title=title,
        title_fontsize=NOTE_SIZE,
        handlelength=2.0,
    )


def _explain_controls(figure: Figure, rows: Sequence[Row]) -> None:
    """What the markers beside a share stand for, above all panels."""
    handles = [
        Line2D(
            [],
            [],
            color="black",
            linestyle="none",
            marker="o",
            fillstyle=fill,
            markerfacecoloralt="white",
            label=f"{STRATEGIES[name].label}, {side}",
        )
        for (name, (fill, _)), side in zip(CONTROLS.items(), ("left", "right"), strict=True)
        if select(rows, panel="share", strategy=name)
    ]
    if handles:
        line = Line2D([], [], color="black", marker="o", label="curve: FFT at 0 to LP at 100")
        legend_above(figure, [line, *handles])


def _privacy(row: Row) -> str:
    """Noise multiplier and epsilon, for a legend."""
    epsilon = r"$\infty$" if row["epsilon"] is None else f"{row['epsilon']:.3g}"
    return f"{row['noise_multiplier']:.3g} ({epsilon})"


def _sweep_notes(rows: Sequence[Row]) -> list[str]:
    note = common_note(rows)
    if any(row["strategy"] in CONTROLS for row in rows):
        note += (
            "; the controls have two learning rates as LP-FFT has, and change the rate at the same "
            "step and nothing else"
        )
    return [note]
