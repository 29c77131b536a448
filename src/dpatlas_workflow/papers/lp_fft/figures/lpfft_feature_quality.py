"""lp_fft: nearest-neighbour accuracy of the features during private training."""

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from dpatlas_workflow.papers.lp_fft.figures.arms import backbone_of
from dpatlas_workflow.papers.lp_fft.quality import EARLY, early_losses
from dpatlas_workflow.papers.lp_fft.records.feature_quality import TASKS
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns
from dpatlas_workflow.show.look import BLUE, MUTED, RED, Look
from dpatlas_workflow.show.panel import (
    Axis,
    Legend,
    Panel,
    PanelGrid,
    Series,
    ShownFigure,
    Span,
    accuracy,
    names,
    series,
    spaced,
)
from dpatlas_workflow.show.rows import (
    CONFIDENCE,
    LEAST_RUNS,
    Records,
    Row,
    Settings,
    averaged,
    grouped,
    mean_interval,
    some,
    where,
)
from dpatlas_workflow.statistics import (
    FAILS,
    HOLDS,
    OPEN,
    Comparison,
    difference_estimate,
    judge,
    simultaneous_confidence,
)

TASK_NAMES = {"private": "private task", "public": "pre-training task"}
CURVES = {
    ("fft", "private"): Look("FFT, private task", RED, "s", "--", size=3),
    ("lp-fft", "private"): Look("LP-FFT, private task", BLUE, "o", "-", size=3),
    ("fft", "public"): Look("FFT, pre-training task", RED, "D", ":", size=3),
    ("lp-fft", "public"): Look("LP-FFT, pre-training task", BLUE, "^", "-.", size=3),
}
# By the answer to whether FFT's early loss less that of LP-FFT is above 0.
ANSWERS = {
    HOLDS: Look("LP first saves quality", BLUE, "o", ""),
    FAILS: Look("LP first costs quality", RED, "s", ""),
    OPEN: Look("undecided", MUTED, "D", "", fill="none"),
}
# Probability that some interval of a panel of losses misses its true value.
FAMILY = 0.05
# Settings in which the records of one family agree.
SETTING = ("data", "backbone", "feature_scale", "steps", "lp_steps")
# Settings of one panel of curves, and of one line of the panels of losses.
CONDITION = (*SETTING, "noise_multiplier", "head_scale", "lr")
MOST_IN_A_LINE = 4
# Heights in inches: a line of curves, a line of the panels of losses, the rest of these panels.
PANEL_HEIGHT, LOSS_HEIGHT, AROUND_LOSSES = 1.6, 0.15, 0.7
# Lines of the panels of losses that the legend beside them takes.
LEAST_LOSSES = 4
OF_RECORD = ("data", "backbone", "pretrained_on", "n_train", "n_test")
OF_TRAINING = ("noise_multiplier", "epsilon", "delta", "head_scale", "lr", "feature_scale")
OF_POINT = ("neighbours", "lp_lr", "strategy", "task", "step", "steps", "lp_steps")
OF_VALUE = ("value", "low", "high", "runs_used", "confidence", "answer")
COLUMNS = ("part", *OF_RECORD, *OF_TRAINING, *OF_POINT, *OF_VALUE)


def lpfft_feature_quality(records: Records, settings: Settings) -> ShownFigure:
    """Figs. 2 (left) and 7: kNN accuracy during training; whether LP first saves some of it."""
    families = _families(some(records, "feature_quality"))
    shown = [record for family in families for record in family]
    curves = _in_order([row for record in shown for row in curve_rows(record)])
    losses = _in_order(loss_rows(shown))
    conditions = list(grouped(curves, *CONDITION).values())
    of_noise = next(iter(grouped(curves, *SETTING, "noise_multiplier").values()))
    per_noise = len(grouped(of_noise, *CONDITION))
    named = len(families) > 1
    most = min(_in_a_line(per_noise), len(conditions))
    panels = [_curves(rows, named) for rows in conditions]
    lines = [panels[at : at + most] for at in range(0, len(panels), most)]
    grids = [PanelGrid(lines, PANEL_HEIGHT * len(lines) + 0.3)]
    if losses:
        height = AROUND_LOSSES + LOSS_HEIGHT * max(len(conditions), LEAST_LOSSES)
        panels = [_losses(where(losses, task=task), task, named) for task in TASKS]
        grids.append(PanelGrid([panels], height))
    used = {(row["strategy"], row["task"]) for row in curves}
    legend = [look for key, look in CURVES.items() if key in used]
    return ShownFigure(grids, COLUMNS, [*curves, *losses], _notes(families, losses), legend)


def _families(records: Records) -> list[list[Record[Any]]]:
    """Records in families that differ in their noise alone, the least noise first."""
    families: dict[tuple[Any, ...], list[Record[Any]]] = {}
    for record in records:
        spec = record.spec
        setting = (spec.data.name, *(getattr(spec, name) for name in SETTING[1:]))
        families.setdefault(setting, []).append(record)
    return [
        sorted(family, key=lambda record: record.spec.noise_multiplier)
        for family in families.values()
    ]


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows of every family by noise, head scale and rate, which are columns of panels then."""
    order = itemgetter("noise_multiplier", "head_scale", "lr")
    return [row for family in grouped(rows, *SETTING).values() for row in sorted(family, key=order)]


def curve_rows(record: Record[Any]) -> list[Row]:
    """Rows of kNN accuracy over runs at every evaluated step, on both tasks."""
    return [
        {
            "part": "curve",
            **_setting(record, head_scale, lr),
            "strategy": strategy,
            "task": task,
            "step": step,
            **mean_interval(runs[task].to_numpy()),
            "confidence": CONFIDENCE,
        }
        for (head_scale, lr, strategy), curves in columns([record], "curves").groupby(
            ["head_scale", "lr", "strategy"], sort=False
        )
        for task in TASKS
        for step, runs in curves.groupby("step")
    ]


def loss_rows(records: Records) -> list[Row]:
    """Rows of what FFT loses early less what LP-FFT does, by condition and task, paired by run.

    The loss is that of `early_losses`. The intervals of a task hold simultaneously at level 1 -
    FAMILY; `answer` says whether the difference is above 0.
    """
    pairs = [
        (record, *condition, {name: of for name, of in losses.groupby("strategy")})
        for record in records
        for condition, losses in early_losses(record).groupby(["head_scale", "lr"], sort=False)
        if losses.strategy.nunique() == 2
    ]
    if not pairs:
        return []
    confidence = simultaneous_confidence(FAMILY, 1, len(pairs))
    rows = []
    for (record, head_scale, lr, of), task in ((pair, task) for pair in pairs for task in TASKS):
        fft, lp_fft = (of[name][task].to_numpy() for name in ("fft", "lp-fft"))
        estimate = difference_estimate(fft, lp_fft, paired=True)
        judged = judge(Comparison("", estimate, above=0.0), confidence)
        bounded = estimate.runs >= LEAST_RUNS
        rows.append(
            {
                "part": "early loss",
                **_setting(record, head_scale, lr),
                "strategy": "fft less lp-fft",
                "task": task,
                "value": estimate.value,
                "low": judged.low if bounded else None,
                "high": judged.high if bounded else None,
                "runs_used": estimate.runs,
                "confidence": confidence,
                "answer": judged.answer,
            }
        )
    return rows


def _setting(record: Record[Any], head_scale: float, lr: float) -> Row:
    spec, facts = record.spec, record.facts
    of_spec = ("noise_multiplier", "delta", "feature_scale", "neighbours")
    return {
        **{name: getattr(spec, name) for name in (*of_spec, "lp_steps", "lp_lr", "steps")},
        **{name: facts[name] for name in ("n_train", "n_test", "epsilon")},
        "data": spec.data.name,
        "backbone": backbone_of(record),
        "pretrained_on": spec.public_data.name,
        "head_scale": head_scale,
        "lr": lr,
        "runs": list(record.ids),
    }


def _in_a_line(per_noise: int) -> int:
    """Panels in a line, so that a noise takes whole lines or a line whole noises if possible."""
    fitting = [
        count
        for count in range(2, MOST_IN_A_LINE + 1)
        if per_noise % count == 0 or count % per_noise == 0
    ]
    return max(fitting, default=MOST_IN_A_LINE)


def _curves(rows: Sequence[Row], named: bool) -> Panel:
    """Both strategies on both tasks at one head scale, rate and noise."""
    first = rows[0]
    backbone = f"{first['backbone']}\n" if named else ""
    return Panel(
        f"{backbone}{_noise(first)}\nhead scale {first['head_scale']:g}, rate {first['lr']:g}",
        Axis("training steps"),
        accuracy("kNN accuracy, %"),
        spaced(series(rows, "step", CURVES, lambda row: (row["strategy"], row["task"]), band=True)),
        spans=[Span("0.94", (0, first["lp_steps"]))],
    )


def _losses(rows: Sequence[Row], task: str, named: bool) -> Panel:
    """A line per condition, the first on top, marked by its answer."""
    lines = names([_condition(row, named) for row in rows], "setting", ends=(len(rows) - 0.4, -0.6))
    drawn = [
        Series(
            look,
            [row["value"] for _, row in shown],
            [place for place, _ in shown],
            left=[math.nan if row["low"] is None else row["low"] for _, row in shown],
            right=[math.nan if row["high"] is None else row["high"] for _, row in shown],
        )
        for answer, look in ANSWERS.items()
        if (shown := [(place, row) for place, row in enumerate(rows) if row["answer"] == answer])
    ]
    x = Axis("early loss of FFT less\nthat of LP-FFT, points", percent=True, of=task)
    last = Legend("beside", list(ANSWERS.values())) if task == TASKS[-1] else None
    return Panel(TASK_NAMES[task], x, lines, drawn, upright=[0.0], legend=last)


def _condition(row: Row, named: bool) -> str:
    backbone = f"{row['backbone']}: " if named else ""
    noise = f"noise {row['noise_multiplier']:g}" if row["noise_multiplier"] else "no privacy"
    return f"{backbone}{noise}, head scale {row['head_scale']:g}, rate {row['lr']:g}"


def _noise(row: Row) -> str:
    if not row["noise_multiplier"]:
        return "no privacy"
    return f"noise {row['noise_multiplier']:g} ($\\varepsilon$ = {row['epsilon']:.3g})"


def _notes(families: Sequence[Sequence[Record[Any]]], losses: Sequence[Row]) -> list[str]:
    notes = []
    for family in families:
        facts, spec = family[0].facts, family[0].spec
        nearest = f"the {spec.neighbours} nearest neighbours"
        notes.append(
            f"{spec.data.name} from {backbone_of(family[0])}, pre-trained on "
            f"{spec.public_data.name}: n = {facts['n_train']}, $\\delta$ = {spec.delta:g}; "
            f"accuracy by {nearest if spec.neighbours > 1 else 'the nearest neighbour'} among "
            f"penultimate features; features multiplied by {spec.feature_scale:g}, LP at rate "
            f"{spec.lp_lr:g}; {averaged(record.spec.runs for record in family)}"
        )
    notes.append(
        "grey: steps in which LP-FFT trains the head alone, so that features do not change; both "
        "strategies take all steps; the initial head is multiplied by the head scale; "
        "$\\varepsilon$ covers all iterates and not the accuracy on the private task, where "
        "private records vote without noise"
    )
    if losses:
        notes.append(
            "below: a loss is the accuracy at step 0 less its mean over the first "
            f"{EARLY:.0%} of the steps that train everything; differences are between runs with "
            "the same records, initial head and noise; the intervals of a panel hold "
            f"simultaneously at {1 - FAMILY:.0%}; right of 0 LP first saves quality"
        )
    return notes
