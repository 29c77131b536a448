"""lp_fft: accuracy of the strategies against the share of LP and against the clip bound."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from dpatlas.errors import InputError
from dpatlas.papers.lp_fft.figures.arms import (
    ARM_COLUMNS,
    PLACE,
    STRATEGIES,
    arms,
    level,
    series_looks,
    series_name,
)
from dpatlas.papers.lp_fft.figures.averages import grouped
from dpatlas.papers.lp_fft.figures.strategy_panels import (
    LINE_HEIGHT,
    common_note,
    finish,
    panel_title,
)
from dpatlas.show.draw import BAR_WIDTH, draw_points, frame, move_aside
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, Look, ramp
from dpatlas.show.output import DrawnFigure
from dpatlas.show.panels import label_ticks, legend, percent_axis
from dpatlas.show.rows import Records, Row, Settings, span
from dpatlas.show.series import handle

PANELS_IN_A_LINE = 3
HEADING_HEIGHT = 0.25
LEGEND_COLUMNS = 4
# The strategies of one curve, from a share of LP of 0 to 1, by the phase that follows LP.
FAMILIES = {"FFT": ("fft", "lp-fft", "lp"), "LoRA": ("lora", "lp-lora", "lp")}
BOTH_PHASES = ("lp-fft", "lp-lora")
# Controls with two equal phases: fill of the level's marker, and points by which their ink is moved
# aside from that of LP-FFT at the same share.
CONTROLS: dict[str, tuple[Literal["none", "bottom"], float]] = {
    "lp-lp": ("none", -2.5),
    "fft-fft": ("bottom", 2.5),
}
CONTROL_SIZE = 3

Panel = list[Row]


def lpfft_budget_sweep(records: Records, settings: Settings) -> DrawnFigure:
    """Figs. 2b and 6: accuracy against the share of the budget spent on LP, and the clip bound."""
    trained = arms(records, "strategies", "lora")
    swept = _share_panels(trained)
    clipped = _clip_panels(arms(records, "clip_sweep"), trained)
    if not swept:
        raise InputError("--records", "no strategy of two phases", "at least one lp-fft")
    return sweep_figure(swept, clipped)


def sweep_figure(swept: list[Panel], clipped: list[Panel]) -> DrawnFigure:
    """The figure of these panels, rows of its csv: along the share of LP, and the clip bound."""
    front, rest = _front(swept)
    heading = "Scenarios whose best shares of LP differ at the largest noise" if rest else ""
    parts = {heading: front, "Other scenarios": rest, "Clip bound": clipped}
    figure, subplots = _layout({name: part for name, part in parts.items() if part})
    shares = subplots[: len(swept)]
    looks = _looks(row for rows in swept for row in rows)
    for axes, rows in zip(shares, [*front, *rest], strict=True):
        axes.sharex(shares[0])
        axes.sharey(shares[0])
        _draw_shares(axes, rows, looks)
    for axes, rows in zip(subplots[len(swept) :], clipped, strict=True):
        _draw_clips(axes, rows)
    finish(subplots)
    rows = [row for panel in (*front, *rest, *clipped) for row in panel]
    legend(figure, [*map(handle, looks.values()), *_of_controls(rows)], LEGEND_COLUMNS)
    return DrawnFigure(figure, ("panel", *ARM_COLUMNS), rows, _sweep_notes(rows))


def _share_panels(rows: Sequence[Row]) -> list[Panel]:
    """Rows by panel: one for every scenario, backbone and family that has two phases."""
    panels = []
    for of_scenario in grouped(rows, *PLACE).values():
        for family, strategies in FAMILIES.items():
            controls = CONTROLS if family == "FFT" else ()
            shown = [row for row in of_scenario if row["strategy"] in (*strategies, *controls)]
            if any(row["strategy"] in BOTH_PHASES for row in shown):
                panels.append([{"panel": "share", **row} for row in shown])
    return panels


def _clip_panels(rows: Sequence[Row], trained: Sequence[Row]) -> list[Panel]:
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
        panels.append([{"panel": "clip", **row} for row in [*swept, *unswept]])
    return panels


def _front(panels: Sequence[Panel]) -> tuple[list[Panel], list[Panel]]:
    """The panels of the first part and the others.

    The first part has the panel with the most points for every answer to which share of LP is best
    at the largest noise: none, all or one between; it has all panels if there is one answer.
    """
    by_answer: dict[float, list[Panel]] = {}
    for rows in panels:
        by_answer.setdefault(_best_share(rows), []).append(rows)
    if len(by_answer) == 1:
        return list(panels), []
    first = [max(of_answer, key=len) for of_answer in by_answer.values()]
    return first, [rows for rows in panels if rows not in first]


def _best_share(rows: Panel) -> float:
    """0, 1 or, for every share between, 0.5."""
    noise = max(row["noise_multiplier"] for row in rows)
    most = [row for row in rows if row["noise_multiplier"] == noise]
    share = max(most, key=lambda row: row["value"])["share"]
    return share if share in (0.0, 1.0) else 0.5


def _layout(parts: Mapping[str, Sequence[Panel]]) -> tuple[Figure, list[Axes]]:
    """Lines of panels, a part below the other under its heading."""
    lines = [math.ceil(len(panels) / PANELS_IN_A_LINE) for panels in parts.values()]
    heights = [LINE_HEIGHT * count + HEADING_HEIGHT for count in lines]
    figure = Figure(figsize=(DOUBLE_COLUMN, sum(heights) + HEADING_HEIGHT))
    framed = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False).flat
    columns = min(PANELS_IN_A_LINE, max(map(len, parts.values())))
    subplots = []
    for part, (heading, panels), count in zip(framed, parts.items(), lines, strict=True):
        if heading:
            part.suptitle(heading, weight="bold")
        subplots += _grid(part, (count, columns), len(panels))
    return figure, subplots


def _grid(part: SubFigure, shape: tuple[int, int], count: int) -> list[Axes]:
    subplots = part.subplots(*shape, squeeze=False)
    for axes in subplots.flat[count:]:
        axes.remove()
    for axes in subplots[:, 0]:
        axes.set_ylabel("test accuracy, %")
    return list(subplots.flat[:count])


def _looks(rows: Iterable[Row]) -> dict[str, Look]:
    """A look by data set and privacy level, the same in all panels, darker for more noise."""
    of_level: dict[str, list[Row]] = {}
    for row in sorted(rows, key=level):
        of_level.setdefault(_level_name(row), []).append(row)
    looks = zip(of_level, ramp(list(map(_privacy, of_level.values()))), strict=True)
    # Each data set's levels stand together in the legend: its epsilons are of its own records.
    return dict(sorted(looks, key=lambda named: of_level[named[0]][0]["data"]))


def _draw_shares(axes: Axes, rows: Sequence[Row], looks: Mapping[str, Look]) -> None:
    """A curve per privacy level, with the controls of two equal phases at their share."""
    data = frame(rows).assign(level=[_level_name(row) for row in rows])
    axes.set(xlim=(-0.06, 1.06), xlabel="share of the steps in LP, %", title=panel_title(rows[0]))
    is_control = data["strategy"].isin(list(CONTROLS))
    draw_points(axes, data[~is_control], "share", looks, "level", apart=False)
    for (name, strategy), points in data[is_control].groupby(["level", "strategy"]):
        look, (fill, aside) = looks[name], CONTROLS[strategy]
        drawn = axes.errorbar(
            points["share"],
            points["value"],
            yerr=[points["value"] - points["low"], points["high"] - points["value"]],
            fmt=look.marker,
            fillstyle=fill,
            markerfacecoloralt="white",
            color=look.color,
            elinewidth=BAR_WIDTH,
            markersize=CONTROL_SIZE,
            zorder=3,
        )
        for artist in drawn.get_children():
            move_aside(artist, aside)
    axes.xaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    percent_axis(axes.xaxis)


def _draw_clips(axes: Axes, rows: Sequence[Row]) -> None:
    """A curve per strategy at one privacy level."""
    first, data = rows[0], frame(rows)
    axes.set(xscale="log", xlabel="clip bound of a record's gradient norm")
    privacy = f"noise {first['noise_multiplier']:.3g}, $\\varepsilon$ = {first['epsilon']:.3g}"
    axes.set_title(f"{panel_title(first)}\n{privacy}")
    looks = series_looks(rows)
    draw_points(axes, data.assign(series=list(map(series_name, rows))), "max_grad_norm", looks)
    label_ticks(axes, data["max_grad_norm"])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda bound, _: f"{bound:g}"))
    handles = list(map(handle, looks.values()))
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.02))


def _of_controls(rows: Sequence[Row]) -> list[Line2D]:
    """Entries of a legend for the markers of the controls, of any colour."""
    style: dict[str, Any] = {"color": MUTED, "marker": "o", "markerfacecoloralt": "white"}
    return [
        Line2D([], [], linestyle="none", fillstyle=fill, label=STRATEGIES[name].label, **style)
        for name, (fill, _) in CONTROLS.items()
        if any((row["panel"], row["strategy"]) == ("share", name) for row in rows)
    ]


def _level_name(row: Row) -> str:
    return f"{row['data']} {level(row)}"


def _privacy(rows: Sequence[Row]) -> str:
    """Data set, noise multiplier and epsilon of one level, for a legend."""
    noise = f"{rows[0]['data']}: noise {rows[0]['noise_multiplier']:.3g}"
    epsilons = [row["epsilon"] for row in rows if row["epsilon"] is not None]
    return f"{noise}, $\\varepsilon$ = {span(epsilons, 3)}" if epsilons else f"{noise}, not private"


def _sweep_notes(rows: Sequence[Row]) -> list[str]:
    note = (
        common_note(rows) + "; the darker, the more noise; a curve leads from FFT at 0 to LP at 100"
    )
    if any(row["strategy"] in CONTROLS for row in rows):
        note += (
            "; the controls change the learning rate at the step at which LP-FFT changes the phase "
            "and nothing else: at the same share, their marks moved left and right of its marks"
        )
    return [note]
