"""dp_sgld: epsilon against steps by every accounting."""

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.dp_sgld.records.privacy_loss import Metrics, Spec
from dpatlas.records import Record
from dpatlas.show.draw import draw_curves, frame
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, NOTE_SIZE, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import label_decades, legend
from dpatlas.show.series import BLUE, GREEN, ORANGE, PINK, RED, handle, only

EPSILON_LABEL = r"privacy loss $\epsilon$ at $\delta$"
# What a curve of a `privacy_loss` record is called and how it is drawn.
CURVES = {
    "claimed, steps": Look("claimed, K = steps", "black", "", "-"),
    "claimed, epochs": Look("claimed, K = epochs", "black", "", ":"),
    "every iterate": Look("all iterates, RDP", RED, "s", "-"),
    "given the batches": Look("last iterate, batches known", PINK, "D", "--"),
    "cyclic, hidden state": Look("last iterate, cyclic", ORANGE, "v", "-."),
    "full batch, hidden state": Look("last iterate, full batch", BLUE, "o", "-"),
    "full batch, every iterate": Look("all iterates, PLD", GREEN, "^", "-"),
    "full batch, every iterate, rdp": Look("all iterates, RDP", GREEN, "", ":"),
    "quadratic, fixed start": Look("exact, fixed start", "black", "x", ""),
    "quadratic, random start": Look("exact, start of Alg. 1", "0.45", "+", "--"),
    "exact": Look("exact", "0.45", "*", "-"),
}
BATCHES = (
    "claimed, steps",
    "claimed, epochs",
    "every iterate",
    "given the batches",
    "cyclic, hidden state",
    "full batch, hidden state",
)
FULL = (
    "claimed, steps",
    "full batch, every iterate",
    "full batch, every iterate, rdp",
    "full batch, hidden state",
    "quadratic, fixed start",
    "quadratic, random start",
)
SMALL = ("claimed, steps", "every iterate", "given the batches", "exact")
CALIBRATIONS = {"published": "epochs", "theorem": "steps"}


def sgld_privacy_loss(records: Records, settings: Settings) -> ShownFigure:
    """Epsilon against steps: mini-batches at two calibrations, full batches, one dimension."""
    record: Record[Spec, Metrics] = only(records, "privacy_loss")
    fields, small = record.spec, record.metrics.small
    schedules = fields.schedules
    figure = Figure(figsize=(DOUBLE_COLUMN, 4.8))
    panels = figure.subplots(2, len(schedules) + 1, squeeze=False)
    rows: list[Row] = []
    for (calibration, counted), line in zip(CALIBRATIONS.items(), panels, strict=True):
        for schedule, axes in zip(schedules, line[:-1], strict=True):
            shown = curve_rows(record, "mini-batches", calibration, schedule, BATCHES)
            _draw_panel(axes, shown, BATCHES)
            axes.set_title(f"{schedule} steps; noise by K = {counted}")
            rows += shown
        line[0].set_ylabel(EPSILON_LABEL)
    full = curve_rows(record, "full batch", "theorem", schedules[0], FULL)
    _draw_panel(panels[0, -1], full, FULL)
    _name_curves(panels[0, -1], FULL)
    panels[0, -1].set_title(f"full batch, {schedules[0]} steps")
    law = curve_rows(record, "one dimension", "one dimension", "constant", SMALL)
    _draw_panel(panels[1, -1], law, SMALL)
    _name_curves(panels[1, -1], SMALL)
    panels[1, -1].set_title(f"one dimension: {small.batch} of {small.n}")
    for line in panels:
        for axes in line[1:-1]:
            axes.sharey(line[0])
    for axes in panels.flat:
        target = small.epsilon if axes is panels[1, -1] else fields.epsilon
        axes.axhline(target, color=MUTED, linewidth=0.6, zorder=1)
    for axes in (*panels[-1], panels[0, -1]):
        axes.set_xlabel("steps")
    for axes in panels[:, -1]:
        axes.set_ylabel(r"$\epsilon$ at $\delta$")
    legend(figure, [handle(CURVES[name]) for name in BATCHES], columns=3)
    notes = [
        f"n = {fields.n}, batch {fields.batch}, {fields.epochs} epochs, record norm "
        f"{fields.feature_norm:g}, lambda {fields.lam:g}, delta {fields.delta:g}; "
        "records replaced; noise such that Thm 3.2 gives the thin line at the last step, K counted "
        "as each title says (full batch and one dimension: steps); all iterates: batches without "
        "replacement; full batch: exact for the quadratic loss; one dimension: x = 1 against -1 "
        "among -1s, lambda = beta = 1, L = 2",
    ]
    names = ("panel", "calibration", "schedule", "curve", "sigma2", "step", "value")
    return ShownFigure(figure, names, [*rows, *full, *law], notes)


def curve_rows(
    record: Record[Spec, Metrics],
    panel: str,
    calibration: str,
    schedule: str,
    names: Iterable[str],
) -> list[Row]:
    """The points of the named curves of a record, those that it has."""
    return [
        {
            "panel": panel,
            "calibration": calibration,
            "schedule": schedule,
            "curve": curve.curve,
            "sigma2": curve.sigma2,
            "step": step,
            "value": value,
            "runs": [record.id],
        }
        for curve in record.metrics.curves
        if (curve.calibration, curve.schedule) == (calibration, schedule) and curve.curve in names
        for step, value in zip(curve.steps, curve.epsilon, strict=True)
    ]


def _draw_panel(axes: Axes, rows: list[Row], names: Iterable[str]) -> None:
    """Epsilon against steps, both on log axes."""
    axes.set(xscale="log", yscale="log")
    looks = {name: CURVES[name] for name in names}
    draw_curves(axes, frame(rows), "step", looks, "curve", markersize=3)
    label_decades(axes.yaxis)


def _name_curves(axes: Axes, names: Iterable[str]) -> None:
    """A legend of the curves of a panel that the others do not have."""
    own = [handle(CURVES[name]) for name in names if name not in BATCHES]
    axes.legend(handles=own, loc="best", fontsize=NOTE_SIZE - 1, labelspacing=0.2)
