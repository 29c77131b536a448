"""dp_sgld: the comparison of Table 1 along the number of records, by reading of its settings."""

from matplotlib.figure import Figure

from dpatlas.papers.dp_sgld.figures.arms import STATED, columns_of
from dpatlas.papers.dp_sgld.figures.words import backbone_name, in_words
from dpatlas.papers.dp_sgld.records.protocol import LangevinArm, Metrics, SgdArm, Spec
from dpatlas.records import Record
from dpatlas.show.draw import draw_points, frame
from dpatlas.show.look import DOUBLE_COLUMN, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import label_ticks, legend, percent_axis
from dpatlas.show.rows import mean_interval
from dpatlas.show.series import BLUE, GREEN, RED, handle, of_kind

METHODS = {
    "dp-sgld": Look("DP-SGLD", BLUE, "o", "-"),
    "dp-sgd": Look("DP-SGD, same L2 term", RED, "s", "--"),
    "dp-sgd, no L2 term": Look("DP-SGD without L2 term", GREEN, "^", "-."),
    "no-dp": Look("No DP", "black", "D", ":"),
}
COLUMNS = (
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
    """Accuracy against n with constant steps: a panel for each reading, a row for each set."""
    shown: list[Record[Spec, Metrics]] = of_kind(records, "protocol")
    rows = [row for record in shown for arm in record.metrics.rows for row in along_n(record, arm)]
    readings = list(dict.fromkeys(row["reading"] for row in rows))
    sets = list(dict.fromkeys((row["data"], row["backbone"]) for row in rows))
    figure = Figure(figsize=(DOUBLE_COLUMN, 0.6 + 2 * len(sets)))
    panels = figure.subplots(len(sets), len(readings), sharey="row", squeeze=False)
    data = frame(rows)
    constant = data[data.schedule == "constant"]
    for (name, backbone), of_set in zip(sets, panels, strict=True):
        for axes, reading in zip(of_set, readings, strict=True):
            seen = constant.backbone.isna() if backbone is None else constant.backbone == backbone
            of_panel = constant[(constant.reading == reading) & (constant.data == name) & seen]
            axes.set(xscale="log", xlabel="private records $n$", title=f"reading: {reading}")
            draw_points(axes, of_panel, "n_train", METHODS, "method")
            label_ticks(axes, sorted(set(of_panel.n_train)))
        of_set[0].set_ylabel(f"test accuracy, %\n{name}, {backbone or 'raw'}")
        percent_axis(of_set[0].yaxis)
    legend(figure, [handle(look) for look in METHODS.values()])
    return ShownFigure(figure, COLUMNS, rows, _notes(shown))


def along_n(record: Record[Spec, Metrics], arm: LangevinArm | SgdArm) -> list[Row]:
    """Accuracy of an arm, with its interval."""
    unregularised = isinstance(arm, SgdArm) and arm.weight_decay == 0
    names = ("reading", "schedule", *COLUMNS[10:-1])
    return [
        {
            **columns_of(arm, names),
            "method": f"{arm.method}, no L2 term" if unregularised else arm.method,
            "data": record.spec.data.name,
            "backbone": backbone_name(record.metrics.backbone),
            "n_train": record.metrics.n_train,
            "delta": record.spec.delta,
            **mean_interval(arm.accuracy),
            "tuned_by": record.spec.tuning,
            "runs": list(record.ids),
        }
    ]


def _notes(records: list[Record[Spec, Metrics]]) -> list[str]:
    sets = dict.fromkeys(
        f"{record.spec.data.name}, "
        f"{in_words(record.spec.features, backbone_name(record.metrics.backbone))}"
        for record in records
    )
    fields = records[0].spec
    readings = [
        f"{reading.name}: first step {reading.step_size:g}/beta, lambda {reading.lam:.3g}"
        for reading in fields.readings
    ]
    return [
        f"{'; '.join(sets)}; batch {fields.batch}, {fields.epochs} epochs, $\\varepsilon$ = "
        f"{fields.epsilon:g} (DP-SGLD: by Thm 3.2 with K = epochs), $\\delta$ = {fields.delta:g}",
        "; ".join(readings) + "; mean and 95% t interval over runs, each with records of its own",
    ]
