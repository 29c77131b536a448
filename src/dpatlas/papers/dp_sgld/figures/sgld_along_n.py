"""dp_sgld: the comparison of Table 1 along the number of records, by reading of its settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.dp_sgld.figures.arms import STATED, columns_of
from dpatlas.papers.dp_sgld.figures.words import backbone_name, in_words
from dpatlas.papers.dp_sgld.records.protocol import LangevinArm, Metrics, SgdArm, Spec
from dpatlas.papers.dp_sgld.table_1 import printed_accuracies
from dpatlas.records import Record
from dpatlas.show.draw import draw_points, draw_printed, frame, mark_outside, printed_handle
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, THIN, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import accuracy_axis, label_ticks, legend, percent_axis
from dpatlas.show.rows import averaged, mean_interval, span
from dpatlas.show.series import BLUE, GREEN, RED, handle, some

METHODS = {
    "dp-sgld": Look("DP-SGLD", BLUE, "o", "-"),
    "dp-sgd": Look("DP-SGD, same L2 term", RED, "s", "--"),
    "dp-sgd, no L2 term": Look("DP-SGD without L2 term", GREEN, "^", "-."),
    "no-dp": Look("No DP, same L2 term", "black", "D", ":"),
}
OURS, PRINTED, LESS_DP_SGD = "ours", "printed", "ours less DP-SGD"
BASE = "dp-sgd"
POINTS = {name: replace(look, linestyle="") for name, look in METHODS.items()}
# The axis of differences to DP-SGD ends at so many points; some at small n are 70.
NEAR = 3
SOURCES = (OURS, PRINTED, LESS_DP_SGD)
# The reading whose settings are those that the paper states.
PRINTED_READING = "paper"
# Data set and backbone.
Set = tuple[str, str | None]
COLUMNS = (
    "source",
    "reading",
    "schedule",
    "data",
    "backbone",
    "n_train",
    "method",
    "value",
    "low",
    "high",
    "runs_used",
    "epsilon",
    *STATED,
    "lambda",
    "weight_decay",
    "lr",
    "sigma",
    "max_grad_norm",
    "noise_multiplier",
    "tuned_by",
)


def sgld_along_n(records: Records, settings: Settings) -> ShownFigure:
    """Accuracy with constant steps, a panel for each reading, and below it its lead over DP-SGD.

    Along n for each set of records and backbone that has several n; those that have one stand
    together, side by side.
    """
    shown: list[Record[Spec, Metrics]] = some(records, "protocol")
    rows = [along_n(record, arm) for record in shown for arm in record.metrics.rows]
    rows += [lead for record in shown for lead in _leads(record)]
    rows += _printed_rows(shown)
    return along_n_figure(rows, _notes(shown))


def along_n_figure(rows: list[Row], notes: list[str]) -> ShownFigure:
    """The figure of these rows of its csv."""
    numbers: dict[Set, set[int]] = {}
    for row in rows:
        numbers.setdefault(_set_of(row), set()).update(
            [row["n_train"]] if row["source"] == OURS else []
        )
    along = [[each] for each, found in numbers.items() if len(found) > 1]
    alone = [each for each, found in numbers.items() if len(found) == 1]
    groups = [*along, *([alone] if alone else [])]
    readings = list(dict.fromkeys(row["reading"] for row in rows))
    figure = Figure(figsize=(DOUBLE_COLUMN, 0.6 + 3.6 * len(groups)))
    parts = figure.subfigures(len(groups), 1, squeeze=False).flat
    constant = [row for row in rows if row["schedule"] == "constant"]
    for part, group in zip(parts, groups, strict=True):
        panels = part.subplots(2, len(readings), sharex=True, sharey="row", squeeze=False)
        labels = {each: _label(each, numbers[each]) for each in group}
        of_group = [row for row in constant if _set_of(row) in group]
        for (above, below), reading in zip(panels.T, readings, strict=True):
            above.set_title(f"settings: {reading}")
            of_reading = [row for row in of_group if row["reading"] == reading]
            _draw_reading(above, below, of_reading, None if group is alone else group, labels)
        accuracy_axis(panels[0, 0])
        percent_axis(panels[1, 0].yaxis)
        panels[1, 0].set_ylabel("accuracy less that\nof DP-SGD, points")
        told = "" if group is alone else f"\n{_name(group[0])}"
        panels[0, 0].set_ylabel(f"test accuracy, %{told}")
    printed = any(row["source"] == PRINTED for row in rows)
    legend(figure, [*map(handle, METHODS.values()), *([printed_handle()] if printed else [])])
    return ShownFigure(figure, COLUMNS, rows, notes)


def _draw_reading(
    above: Axes,
    below: Axes,
    rows: Sequence[Row],
    along: Sequence[Set] | None,
    labels: Mapping[Set, str],
) -> None:
    """Accuracies of a reading and below them the leads: along n, or by set as `labels` name it."""
    data = frame(rows).assign(set=[list(labels).index(_set_of(row)) for row in rows])
    x, looks = ("n_train", METHODS) if along else ("set", POINTS)
    if along:
        above.set(xscale="log")
    by_source = {source: data[data.source == source] for source in SOURCES}
    draw_points(above, by_source[OURS], x, looks, "method")
    draw_printed(above, by_source[PRINTED], x, looks, "method")
    below.axhline(0, color=MUTED, linewidth=THIN, zorder=1)
    draw_points(below, by_source[LESS_DP_SGD], x, looks, "method")
    below.set(ylim=(-NEAR / 100, NEAR / 100))
    if along:
        label_ticks(below, by_source[OURS].n_train)
        below.set(xlabel="private records $n$")
        # Room for the numbers of what lies outside.
        below.margins(x=0.16)
    else:
        below.set(xlim=(-0.5, len(labels) - 0.5), xlabel="set, features, records")
        below.set_xticks(range(len(labels)), list(labels.values()))
    mark_outside(below, by_source[LESS_DP_SGD], x, looks, "method", unit=100)


def _set_of(row: Row) -> Set:
    return row["data"], row["backbone"]


def _name(each: Set) -> str:
    data, backbone = each
    return f"{data}, {backbone or 'raw'}"


def _label(each: Set, numbers: Iterable[int]) -> str:
    return f"{_name(each)}\n$n$ = {span(numbers)}".replace(", ", ",\n")


def along_n(record: Record[Spec, Metrics], arm: LangevinArm | SgdArm) -> Row:
    """Accuracy of an arm, with its interval."""
    return {
        **columns_of(arm, ("reading", "schedule", *COLUMNS[11:-1])),
        **_of_set(record),
        "source": OURS,
        "method": _method(arm),
        "delta": record.spec.delta,
        **mean_interval(arm.accuracy),
        "tuned_by": record.spec.tuning,
    }


def _leads(record: Record[Spec, Metrics]) -> list[Row]:
    """Accuracy of every other arm less that of DP-SGD, run by run."""
    by_settings: dict[tuple[str, str], dict[str, LangevinArm | SgdArm]] = {}
    for arm in record.metrics.rows:
        by_settings.setdefault((arm.reading, arm.schedule), {})[_method(arm)] = arm
    return [
        {
            **_of_set(record),
            "source": LESS_DP_SGD,
            "reading": reading,
            "schedule": schedule,
            "method": method,
            **mean_interval(np.subtract(arm.accuracy, arms[BASE].accuracy)),
        }
        for (reading, schedule), arms in by_settings.items()
        if BASE in arms
        for method, arm in arms.items()
        if method != BASE
    ]


def _method(arm: LangevinArm | SgdArm) -> str:
    unregularised = isinstance(arm, SgdArm) and arm.weight_decay == 0
    return f"{arm.method}, no L2 term" if unregularised else arm.method


def _of_set(record: Record[Spec, Metrics]) -> Row:
    return {
        "data": record.spec.data.name,
        "backbone": backbone_name(record.metrics.backbone),
        "n_train": record.metrics.n_train,
        "runs": list(record.ids),
    }


def _printed_rows(records: list[Record[Spec, Metrics]]) -> list[Row]:
    """Table 1's accuracies of the data sets and backbones, at the paper's number of records."""
    runs: dict[tuple[str, int, str | None], list[str]] = {}
    for record in records:
        backbone = backbone_name(record.metrics.backbone)
        key = (record.spec.data.name, record.metrics.classes, backbone)
        runs.setdefault(key, []).extend(record.ids)
    return [
        {
            "source": PRINTED,
            "reading": PRINTED_READING,
            "schedule": "constant",
            "data": data,
            "backbone": backbone,
            "n_train": n,
            "method": method,
            "value": round(accuracy / 100, 4),
            "epsilon": epsilon,
            "runs": ids,
        }
        for (data, classes, backbone), ids in runs.items()
        for method, cell in printed_accuracies(data, classes, backbone).items()
        for n, epsilon, accuracy in [cell]
    ]


def _notes(records: list[Record[Spec, Metrics]]) -> list[str]:
    sets = dict.fromkeys(
        f"{record.spec.data.name}, "
        f"{in_words(record.spec.features, backbone_name(record.metrics.backbone))}"
        for record in records
    )
    fields = records[0].spec
    readings = [
        f"{reading.name}: first step {reading.step_size:g}/beta, lambda = {reading.lam:.3g}"
        for reading in fields.readings
    ]
    return [
        f"{'; '.join(sets)}; batch {fields.batch}, {fields.epochs} epochs, $\\varepsilon$ = "
        f"{fields.epsilon:g} (DP-SGLD: by Thm 3.2 with K = epochs), $\\delta$ = {fields.delta:g}",
        f"{'; '.join(readings)}; {averaged(record.spec.runs for record in records)}, each with "
        "records of its own",
        f"below: paired by run; differences beyond {NEAR:g} points: an arrow and the number",
    ]
