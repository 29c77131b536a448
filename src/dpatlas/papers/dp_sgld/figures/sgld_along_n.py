"""dp_sgld: the comparison of Table 1 along the number of records, by reading of its settings."""

import numpy as np
from matplotlib.figure import Figure

from dpatlas.papers.dp_sgld.figures.arms import STATED, columns_of
from dpatlas.papers.dp_sgld.figures.words import backbone_name, in_words
from dpatlas.papers.dp_sgld.records.protocol import LangevinArm, Metrics, SgdArm, Spec
from dpatlas.papers.dp_sgld.table_1 import printed_accuracies
from dpatlas.records import Record
from dpatlas.show.draw import draw_points, draw_printed, frame, printed_handle
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, THIN, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import accuracy_axis, label_ticks, legend, percent_axis
from dpatlas.show.rows import averaged, mean_interval
from dpatlas.show.series import BLUE, GREEN, RED, handle, some

METHODS = {
    "dp-sgld": Look("DP-SGLD", BLUE, "o", "-"),
    "dp-sgd": Look("DP-SGD, same L2 term", RED, "s", "--"),
    "dp-sgd, no L2 term": Look("DP-SGD without L2 term", GREEN, "^", "-."),
    "no-dp": Look("No DP, same L2 term", "black", "D", ":"),
}
OURS, PRINTED, LESS_DP_SGD = "ours", "printed", "ours less DP-SGD"
BASE = "dp-sgd"
# Differences to DP-SGD are shown up to so many points; some at small n are 70.
NEAR = 2.5
SOURCES = (OURS, PRINTED, LESS_DP_SGD)
# The reading whose settings are those that the paper states.
PRINTED_READING = "paper"
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
    """Accuracy against n with constant steps, a panel for each reading, and its lead over DP-SGD.

    Both for each set of records and backbone, one below the other.
    """
    shown: list[Record[Spec, Metrics]] = some(records, "protocol")
    rows = [along_n(record, arm) for record in shown for arm in record.metrics.rows]
    rows += [lead for record in shown for lead in _leads(record)]
    readings = list(dict.fromkeys(row["reading"] for row in rows))
    sets = list(dict.fromkeys((row["data"], row["backbone"]) for row in rows))
    printed = _printed_rows(shown)
    rows += printed
    figure = Figure(figsize=(DOUBLE_COLUMN, 0.6 + 3.6 * len(sets)))
    panels = figure.subplots(2 * len(sets), len(readings), sharex=True, sharey="row", squeeze=False)
    data = frame(rows)
    constant = data[data.schedule == "constant"]
    numbers = sorted(set(data.n_train[data.source == OURS]))
    for (name, backbone), above, below in zip(sets, panels[::2], panels[1::2], strict=True):
        for axes, lead, reading in zip(above, below, readings, strict=True):
            seen = constant.backbone.isna() if backbone is None else constant.backbone == backbone
            of_panel = constant[(constant.reading == reading) & (constant.data == name) & seen]
            by_source = {key: of_panel[of_panel.source == key] for key in SOURCES}
            axes.set(xscale="log", title=f"settings: {reading}")
            draw_points(axes, by_source[OURS], "n_train", METHODS, "method")
            draw_printed(axes, by_source[PRINTED], "n_train", METHODS, "method")
            lead.axhline(0, color=MUTED, linewidth=THIN, zorder=1)
            draw_points(lead, by_source[LESS_DP_SGD], "n_train", METHODS, "method")
            lead.set(xlabel="private records $n$", ylim=(-NEAR / 100, NEAR / 100))
            # Panels share their axis: those of a set are labelled at the numbers of all sets.
            label_ticks(lead, numbers)
            lead.tick_params(labelbottom=True)
        above[0].set_ylabel(f"test accuracy, %\n{name}, {backbone or 'raw'}")
        accuracy_axis(above[0])
        below[0].set_ylabel("accuracy less that\nof DP-SGD, points")
        percent_axis(below[0].yaxis)
    legend(figure, [*map(handle, METHODS.values()), *([printed_handle()] if printed else [])])
    return ShownFigure(figure, COLUMNS, rows, _notes(shown))


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
        f"below: paired by run; differences beyond {NEAR:g} points lie outside",
    ]
