"""lp_fft: accuracy of the strategies against the share of LP and against the clip bound."""

from collections.abc import Mapping, Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from dpatlas.errors import InputError
from dpatlas.papers.lp_fft.figures.arms import (
    ARM_COLUMNS,
    PLACE,
    STRATEGIES,
    arms,
    level,
)
from dpatlas.papers.lp_fft.figures.averages import grouped
from dpatlas.papers.lp_fft.figures.strategy_panels import (
    common_note,
    finish,
    one_share,
    panel_grid,
    panel_title,
)
from dpatlas.show.draw import BAR_WIDTH, draw_points, frame
from dpatlas.show.look import MUTED, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import label_ticks, percent_axis
from dpatlas.show.panels import legend as legend_above
from dpatlas.show.rows import span
from dpatlas.show.series import RED, handle, ramp

PANELS_IN_A_LINE = 3
NOT_PRIVATE = Look(r"no noise ($\varepsilon$ = $\infty$)", RED, "v", ":")
# The strategies of one curve, from a share of LP of 0 to 1, by the phase that follows LP.
FAMILIES = {"FFT": ("fft", "lp-fft", "lp"), "LoRA": ("lora", "lp-lora", "lp")}
BOTH_PHASES = ("lp-fft", "lp-lora")
# Controls with two equal phases: fill of the level's marker, and distance from their share.
CONTROLS: dict[str, tuple[Literal["none", "bottom"], float]] = {
    "lp-lp": ("none", -0.05),
    "fft-fft": ("bottom", 0.05),
}
# The privacy level of training without privacy.
FREE: Row = {"noise_multiplier": 0.0, "target_epsilon": None}


def lpfft_budget_sweep(records: Records, settings: Settings) -> ShownFigure:
    """Figs. 2b and 6: accuracy against the share of the budget spent on LP, and the clip bound."""
    trained = arms(records, "strategies", "lora")
    swept = _share_panels(trained)
    clipped = _clip_panels(arms(records, "clip_sweep"), trained)
    # In front those with the most levels and strategies.
    swept.sort(key=len, reverse=True)
    panels = [*swept, *clipped]
    if not panels:
        raise InputError("--records", "no strategy of two phases", "at least one lp-fft")
    figure, subplots = panel_grid(len(panels), PANELS_IN_A_LINE)
    looks = _looks([row for panel in swept for row in panel])
    for axes in subplots[1 : len(swept)]:
        axes.sharey(subplots[0])
    for axes, rows in zip(subplots, swept, strict=False):
        _draw_shares(axes, rows, looks)
    for axes, rows in zip(subplots[len(swept) :], clipped, strict=True):
        _draw_clips(axes, rows)
    finish(subplots, PANELS_IN_A_LINE)
    rows = [row for panel in panels for row in panel]
    legend_above(figure, [*map(handle, looks.values()), *_controls(rows)], columns=4)
    return ShownFigure(figure, ("panel", *ARM_COLUMNS), rows, _sweep_notes(rows))


def _share_panels(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows by panel: one for every scenario, backbone and family that has two phases."""
    panels = []
    for of_scenario in grouped(rows, *PLACE).values():
        for family, strategies in FAMILIES.items():
            controls = CONTROLS if family == "FFT" else ()
            shown = [row for row in of_scenario if row["strategy"] in (*strategies, *controls)]
            if any(row["strategy"] in BOTH_PHASES for row in shown):
                panels.append([{"panel": "share", **row} for row in shown])
    return panels


def _clip_panels(rows: Sequence[Row], trained: Sequence[Row]) -> list[list[Row]]:
    """Rows by panel: one for every scenario, backbone and private level of the clip sweep.

    The scenario's own clip bound is not part of the sweep: its rows are among `trained`.
    """
    names = ("scenario", "data", "backbone", "noise_multiplier", "target_epsilon")
    panels = []
    for swept in grouped([row for row in rows if row["noise_multiplier"]], *names).values():
        arms_swept = {(row["strategy"], row["share"]) for row in swept}
        clips = {row["max_grad_norm"] for row in swept}
        unswept = [
            row
            for row in trained
            if all(row[name] == swept[0][name] for name in names)
            and (row["strategy"], row["share"]) in arms_swept
            and row["max_grad_norm"] not in clips
        ]
        panels.append([{"panel": "clip", **row} for row in one_share([*swept, *unswept])])
    return panels


def _looks(rows: Sequence[Row]) -> dict[str, Look]:
    """A look by name of privacy level, the same in all panels; the darker, the more noise."""
    private = sorted((row for row in rows if row["noise_multiplier"]), key=level)
    of_level = grouped([{**row, "level": _level_name(row)} for row in private], "level")
    shades = ramp([_privacy(same) for same in of_level.values()])
    looks = dict(zip((name for (name,) in of_level), shades, strict=True))
    return {_level_name(FREE): NOT_PRIVATE, **looks} if len(private) < len(rows) else looks


def _draw_shares(axes: Axes, rows: Sequence[Row], looks: Mapping[str, Look]) -> None:
    """A curve per privacy level, with the controls of two equal phases beside it."""
    data = frame(rows).assign(level=[_level_name(row) for row in rows])
    axes.set(xlim=(-0.06, 1.06), xlabel="share of the steps in LP, %", title=panel_title(rows[0]))
    is_control = data["strategy"].isin(list(CONTROLS))
    for name, look in looks.items():
        # One by one: beside the points of another level a line would have gaps.
        draw_points(axes, data[~is_control], "share", {name: look}, "level", dodge=False)
    for (name, strategy), points in data[is_control].groupby(["level", "strategy"]):
        look, (fill, aside) = looks[name], CONTROLS[strategy]
        axes.errorbar(
            points["share"] + aside,
            points["value"],
            yerr=[points["value"] - points["low"], points["high"] - points["value"]],
            fmt=look.marker,
            fillstyle=fill,
            markerfacecoloralt="white",
            color=look.color,
            elinewidth=BAR_WIDTH,
        )
    axes.xaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    percent_axis(axes.xaxis)


def _draw_clips(axes: Axes, rows: Sequence[Row]) -> None:
    """A curve per strategy at one privacy level."""
    first, data = rows[0], frame(rows)
    axes.set(xscale="log", xlabel="clip bound of a record's gradient norm")
    privacy = f"noise {first['noise_multiplier']:.3g}, $\\varepsilon$ = {first['epsilon']:.3g}"
    axes.set_title(f"{panel_title(first)}\n{privacy}")
    looks = {name: look for name, look in STRATEGIES.items() if name in set(data["strategy"])}
    draw_points(axes, data, "max_grad_norm", looks, "strategy")
    label_ticks(axes, data["max_grad_norm"])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda bound, _: f"{bound:g}"))
    axes.legend(handles=list(map(handle, looks.values())), loc="best")


def _controls(rows: Sequence[Row]) -> list[Line2D]:
    """Entries of a legend for the markers of the controls."""
    shown = {row["strategy"] for row in rows if row["panel"] == "share"}
    return [
        Line2D(
            [],
            [],
            color=MUTED,
            linestyle="none",
            marker="o",
            markersize=4,
            fillstyle=fill,
            markerfacecoloralt="white",
            label=f"{STRATEGIES[name].label}, {side}",
        )
        for (name, (fill, _)), side in zip(CONTROLS.items(), ("left", "right"), strict=True)
        if name in shown
    ]


def _level_name(row: Row) -> str:
    return str(level(row))


def _privacy(rows: Sequence[Row]) -> str:
    """Noise multiplier and epsilon of a level, for a legend."""
    epsilons = span((row["epsilon"] for row in rows), 3)
    return rf"noise {rows[0]['noise_multiplier']:.3g} ($\varepsilon$ = {epsilons})"


def _sweep_notes(rows: Sequence[Row]) -> list[str]:
    note = f"{common_note(rows)}; a curve leads from FFT at 0 to LP at 100"
    if any(row["strategy"] in CONTROLS for row in rows):
        note += (
            "; the controls change the learning rate at the same step as LP-FFT and nothing else"
        )
    return [note]
