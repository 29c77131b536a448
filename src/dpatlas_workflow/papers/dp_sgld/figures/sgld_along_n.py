"""dp_sgld: the comparison of Table 1 along the number of records, by reading of its settings."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpatlas_workflow.papers.dp_sgld.figures.arms import (
    STATED,
    backbone_name,
    columns_of,
    seen_in,
)
from dpatlas_workflow.papers.dp_sgld.printed import READING, accuracies_of_table_1
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import arms
from dpatlas_workflow.show.look import BLUE, GREEN, RED, Look
from dpatlas_workflow.show.panel import (
    Axis,
    Column,
    Panel,
    PanelGrid,
    ShownFigure,
    Words,
    accuracy,
    names,
    points,
    printed,
)
from dpatlas_workflow.show.rows import (
    Records,
    Row,
    Settings,
    averaged,
    grouped,
    mean_interval,
    some,
    span,
    where,
)

METHODS = {
    "dp-sgld": Look("DP-SGLD", BLUE, "o", "-"),
    "dp-sgd": Look("DP-SGD, same L2 term", RED, "s", "--"),
    "dp-sgd, no L2 term": Look("DP-SGD without L2 term", GREEN, "^", "-."),
    "no-dp": Look("No DP, same L2 term", "black", "D", ":"),
}
OURS, PRINTED, LESS_DP_SGD = "ours", "printed", "ours less DP-SGD"
BASE = "dp-sgd"
POINTS = {name: replace(look, linestyle="") for name, look in METHODS.items()}
# The axis of differences to DP-SGD ends here; some at small n are .7.
NEAR = 0.03
LEAD = Axis("accuracy less that\nof DP-SGD, points", percent=True, ends=(-NEAR, NEAR))
# Height, of that axis, of the number of a difference beyond it.
LINE = 0.006
# What tells apart the sets of private records.
SET = ("data", "backbone")
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
    shown = some(records, "protocol")
    rows = [along_n(record, arm) for record in shown for arm in arms(record)]
    rows += [lead for record in shown for lead in _leads(record)]
    rows += _printed_rows(shown)
    numbers = {
        each: sorted({row["n_train"] for row in of_set})
        for each, of_set in grouped(where(rows, source=OURS), *SET).items()
    }
    alone = [each for each, found in numbers.items() if len(found) == 1]
    constant = grouped(where(rows, schedule="constant"), *SET)
    lines: list[list[Panel | None]] = []
    for each, found in numbers.items():
        if each not in alone:
            x = Axis("private records $n$", log=True, ticks=found, margin=0.16)
            y = accuracy(f"test accuracy, %\n{_name(each)}")
            lines += _two_lines(constant.get(each, []), x, y, "n_train")
    if alone:
        labels = [f"{_name(each)}\n$n$ = {span(numbers[each])}" for each in alone]
        x = names([label.replace(", ", ",\n") for label in labels], "set, features, records")
        of_alone = [row for each in alone for row in constant.get(each, [])]
        lines += _two_lines(of_alone, x, accuracy(), lambda row: alone.index(_set_of(row)))
    grid = PanelGrid(lines, 0.6 + 1.8 * len(lines))
    return ShownFigure([grid], COLUMNS, rows, _notes(shown))


def _two_lines(rows: Sequence[Row], x: Axis, y: Axis, column: Column) -> list[list[Panel | None]]:
    """Accuracies, and below them the leads, with a panel for each reading."""
    looks = METHODS if column == "n_train" else POINTS
    above: list[Panel | None] = []
    below: list[Panel | None] = []
    for reading in dict.fromkeys(row["reading"] for row in rows):
        ours, theirs, leads = (
            where(rows, reading=reading, source=source) for source in (OURS, PRINTED, LESS_DP_SGD)
        )
        drawn = points(ours, column, looks, "method")
        drawn += printed(theirs, column, looks, "method")
        above.append(Panel(f"settings: {reading}", x, y, drawn))
        drawn = points(leads, column, looks, "method")
        below.append(Panel("", x, LEAD, drawn, across=[0.0], words=_outside(leads, column)))
    return [above, below]


def _outside(rows: Sequence[Row], column: Column) -> list[Words]:
    """An arrow with the number, in points, of every lead beyond the axis, above each other."""
    words: list[Words] = []
    for method, look in METHODS.items():
        for row in where(rows, method=method):
            if abs(row["value"]) > NEAR:
                x = row[column] if isinstance(column, str) else column(row)
                up = row["value"] > 0
                before = sum(word.at is not None and word.at[0] == x for word in words)
                y = (1 if up else -1) * (NEAR - LINE * (before + 0.5))
                text = f"{'↑' if up else '↓'} {100 * row['value']:.3g}".replace("-", "−")
                words.append(Words(text, (x, y), look.color))
    return words


def _set_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in SET)


def _name(of_set: tuple[Any, ...]) -> str:
    data, backbone = of_set
    return f"{data}, {backbone or 'raw'}"


def along_n(record: Record[Any], arm: Row) -> Row:
    """Accuracy of an arm, with its interval."""
    return {
        **columns_of(arm, ("reading", "schedule", *COLUMNS[11:-1])),
        **_of_set(record),
        "source": OURS,
        "method": _method(arm),
        "delta": record.spec.delta,
        **mean_interval(arm["accuracy"]),
        "tuned_by": record.spec.tuning,
    }


def _leads(record: Record[Any]) -> list[Row]:
    """Accuracy of every other arm less that of DP-SGD, run by run."""
    by_settings = {
        settings: {_method(arm): arm for arm in of_settings}
        for settings, of_settings in grouped(arms(record), "reading", "schedule").items()
    }
    return [
        {
            **_of_set(record),
            "source": LESS_DP_SGD,
            "reading": reading,
            "schedule": schedule,
            "method": method,
            **mean_interval(np.subtract(arm["accuracy"], of_settings[BASE]["accuracy"])),
        }
        for (reading, schedule), of_settings in by_settings.items()
        if BASE in of_settings
        for method, arm in of_settings.items()
        if method != BASE
    ]


def _method(arm: Row) -> str:
    return arm["method"] if arm["l2"] else f"{arm['method']}, no L2 term"


def _of_set(record: Record[Any]) -> Row:
    return {
        "data": record.spec.data.name,
        "backbone": backbone_name(record.facts["backbone"]),
        "n_train": record.facts["n_train"],
        "runs": list(record.ids),
    }


def _printed_rows(records: list[Record[Any]]) -> list[Row]:
    """Table 1's accuracies of the data sets and backbones, at the paper's number of records."""
    runs: dict[tuple[str, int, str | None], list[str]] = {}
    for record in records:
        backbone = backbone_name(record.facts["backbone"])
        key = (record.spec.data.name, record.facts["classes"], backbone)
        runs.setdefault(key, []).extend(record.ids)
    return [
        {
            "source": PRINTED,
            "reading": READING,
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
        for method, (n, epsilon, accuracy) in accuracies_of_table_1(data, classes, backbone).items()
    ]


def _notes(records: list[Record[Any]]) -> list[str]:
    sets = dict.fromkeys(f"{record.spec.data.name}, {seen_in(record)}" for record in records)
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
        f"below: paired by run; differences beyond {100 * NEAR:g} points: an arrow and the number",
    ]
