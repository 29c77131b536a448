"""lp_fft: accuracy of the strategies against the share of LP and against the clip bound."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dpatlas.errors import InputError
from dpatlas_workflow.papers.lp_fft.figures.arms import (
    ARM_COLUMNS,
    PLACE,
    STRATEGIES,
    arms,
    common_note,
    in_lines,
    level,
    panel_title,
    series_looks,
    series_name,
)
from dpatlas_workflow.show.look import MUTED, Look, ramp
from dpatlas_workflow.show.panel import Axis, Legend, Panel, ShownFigure, accuracy, points, series
from dpatlas_workflow.show.rows import Records, Row, Settings, grouped, span, where

PANELS_IN_A_LINE = 3
HEADING_HEIGHT = 0.25
# The strategies of one curve, from a share of LP of 0 to 1, by the phase that follows LP.
FAMILIES = {"FFT": ("fft", "lp-fft", "lp"), "LoRA": ("lora", "lp-lora", "lp")}
BOTH_PHASES = ("lp-fft", "lp-lora")
# Controls with two equal phases: fill of the level's marker, and points by which their ink is moved
# aside from that of LP-FFT at the same share.
CONTROLS = {"lp-lp": ("none", -2.5), "fft-fft": ("bottom", 2.5)}
CONTROL_SIZE = 3
SHARE = Axis(
    "share of the steps in LP, %", ends=(-0.06, 1.06), ticks=(0, 0.25, 0.5, 0.75, 1), percent=True
)


def lpfft_budget_sweep(records: Records, settings: Settings) -> ShownFigure:
    """Figs. 2b and 6: accuracy against the share of the budget spent on LP, and the clip bound."""
    trained = arms(records, "strategies", "lora")
    swept = _share_panels(trained)
    clipped = _clip_panels(arms(records, "clip_sweep"), trained)
    if not swept:
        raise InputError("--records", "no strategy of two phases", "at least one lp-fft")
    front, rest = _front(swept)
    heading = "Scenarios whose best shares of LP differ at the largest noise" if rest else ""
    looks = _looks(row for rows in swept for row in rows)
    parts = {
        heading: [_share_panel(rows, looks) for rows in front],
        "Other scenarios": [_share_panel(rows, looks) for rows in rest],
        "Clip bound": list(map(_clip_panel, clipped)),
    }
    columns = min(PANELS_IN_A_LINE, max(map(len, parts.values())))
    grids = [
        in_lines(panels, columns, heading, HEADING_HEIGHT)
        for heading, panels in parts.items()
        if panels
    ]
    # Room for the legend.
    grids[0] = replace(grids[0], height=grids[0].height + HEADING_HEIGHT)
    rows = [row for panel in (*front, *rest, *clipped) for row in panel]
    legend = [*looks.values(), *_controls(where(rows, panel="share"))]
    note = (
        common_note(rows, records)
        + "; the darker, the more noise; a curve leads from FFT at 0 to LP at 100"
    )
    if any(row["strategy"] in CONTROLS for row in rows):
        note += (
            "; the controls change the learning rate at the step at which LP-FFT changes the phase "
            "and nothing else: at the same share, their marks moved left and right of its marks"
        )
    return ShownFigure(grids, ("panel", *ARM_COLUMNS), rows, [note], legend)


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
        arms_swept = {series_name(row) for row in swept}
        clips = {row["max_grad_norm"] for row in swept}
        unswept = [
            row
            for row in where(trained, **{name: swept[0][name] for name in names})
            if series_name(row) in arms_swept and row["max_grad_norm"] not in clips
        ]
        panels.append([{"panel": "clip", **row} for row in [*swept, *unswept]])
    return panels


def _front(panels: Sequence[list[Row]]) -> tuple[list[list[Row]], list[list[Row]]]:
    """The panels of the first part and the others.

    The first part has the panel with the most points for every answer to which share of LP is best
    at the largest noise: none, all or one between; it has all panels if there is one answer.
    """
    by_answer: dict[float, list[list[Row]]] = {}
    for rows in panels:
        by_answer.setdefault(_best_share(rows), []).append(rows)
    if len(by_answer) == 1:
        return list(panels), []
    first = [max(of_answer, key=len) for of_answer in by_answer.values()]
    return first, [rows for rows in panels if rows not in first]


def _best_share(rows: Sequence[Row]) -> float:
    """0, 1 or, for every share between, 0.5."""
    noise = max(row["noise_multiplier"] for row in rows)
    most = [row for row in rows if row["noise_multiplier"] == noise]
    share = max(most, key=lambda row: row["value"])["share"]
    return share if share in (0.0, 1.0) else 0.5


def _looks(rows: Iterable[Row]) -> dict[str, Look]:
    """A look by data set and privacy level, the same in all panels, darker for more noise."""
    of_level: dict[str, list[Row]] = {}
    for row in sorted(rows, key=level):
        of_level.setdefault(_level_name(row), []).append(row)
    looks = zip(of_level, ramp(list(map(_privacy, of_level.values()))), strict=True)
    # Each data set's levels stand together in the legend: its epsilons are of its own records.
    return dict(sorted(looks, key=lambda named: of_level[named[0]][0]["data"]))


def _share_panel(rows: Sequence[Row], looks: Mapping[str, Look]) -> Panel:
    """A curve per privacy level, with the controls of two equal phases at their share."""
    curves = [row for row in rows if row["strategy"] not in CONTROLS]
    drawn = series(curves, "share", looks, _level_name)
    for strategy, (fill, aside) in CONTROLS.items():
        marks = {
            name: replace(look, linestyle="", size=CONTROL_SIZE, fill=fill)
            for name, look in looks.items()
        }
        controls = where(rows, strategy=strategy)
        told = (STRATEGIES[strategy].label,)
        drawn += series(controls, "share", marks, _level_name, aside=aside, told=told)
    return Panel(panel_title(rows[0]), SHARE, accuracy(), drawn)


def _clip_panel(rows: Sequence[Row]) -> Panel:
    """A curve per strategy at one privacy level."""
    first = rows[0]
    privacy = f"noise {first['noise_multiplier']:.3g}, $\\varepsilon$ = {first['epsilon']:.3g}"
    title = f"{panel_title(first)}\n{privacy}"
    ticks = sorted({row["max_grad_norm"] for row in rows})
    x = Axis("clip bound of a record's gradient norm", log=True, ticks=ticks, of=title)
    drawn = points(rows, "max_grad_norm", series_looks(rows), series_name)
    return Panel(title, x, accuracy(of=title), drawn, legend=Legend("beside"))


def _controls(rows: Sequence[Row]) -> list[Look]:
    """Entries of a legend for the markers of the controls, of any colour."""
    return [
        Look(STRATEGIES[name].label, MUTED, "o", "", fill=fill)
        for name, (fill, _) in CONTROLS.items()
        if where(rows, strategy=name)
    ]


def _level_name(row: Row) -> str:
    return f"{row['data']} {level(row)}"


def _privacy(rows: Sequence[Row]) -> str:
    """Data set, noise multiplier and epsilon of one level, for a legend."""
    noise = f"{rows[0]['data']}: noise {rows[0]['noise_multiplier']:.3g}"
    epsilons = [row["epsilon"] for row in rows if row["epsilon"] is not None]
    return f"{noise}, $\\varepsilon$ = {span(epsilons, 3)}" if epsilons else f"{noise}, not private"
