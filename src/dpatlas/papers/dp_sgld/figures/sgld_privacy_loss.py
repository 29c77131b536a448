"""dp_sgld: epsilon against steps by every accounting."""

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.dp_sgld.records.privacy_loss import Metrics, Spec
from dpatlas.records import Record
from dpatlas.show.draw import draw_curves, frame
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, THIN, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import label_decades, label_ends
from dpatlas.show.series import BLUE, GREEN, ORANGE, PINK, RED, only

EPSILON_LABEL = r"privacy loss $\epsilon$ at $\delta$"
# What a curve of a `privacy_loss` record is called and how it is drawn.
CURVES = {
    "claimed, steps": Look("claimed, K = steps", "black", "", "-"),
    "claimed, epochs": Look("claimed, K = epochs", "black", "", ":"),
    "every iterate": Look("all iterates", GREEN, "^", "-"),
    "given the batches": Look("last iterate,\nbatches known", PINK, "D", "--"),
    "cyclic, hidden state": Look("last iterate, cyclic", ORANGE, "v", "-."),
    "full batch, hidden state": Look("last iterate, full batch", BLUE, "o", "-"),
    "full batch, every iterate": Look("all iterates, PLD", GREEN, "^", "-"),
    "full batch, every iterate, rdp": Look("all iterates, RDP", RED, "s", "-"),
    "quadratic, fixed start": Look("exact: quadratic,\nfixed start", "black", "x", ""),
    "quadratic, random start": Look("exact: quadratic,\nstart of Alg. 1", "0.45", "+", "--"),
    "exact": Look("exact law", "0.45", "*", "-"),
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
    figure = Figure(figsize=(DOUBLE_COLUMN, 2.2 * (len(CALIBRATIONS) + 1)))
    lines = figure.subfigures(len(CALIBRATIONS) + 1, 1, squeeze=False)[:, 0]
    drawn: list[tuple[Axes, list[Row]]] = []
    for (calibration, counted), line in zip(CALIBRATIONS.items(), lines, strict=False):
        shown = [
            (schedule, curve_rows(record, "mini-batches", calibration, schedule, BATCHES))
            for schedule in schedules
        ]
        # The panel with the most curves stands where their names do.
        shown.sort(key=lambda panel: len(panel[1]))
        panels = line.subplots(1, len(shown), squeeze=False).flat
        for axes, (schedule, rows) in zip(panels, shown, strict=True):
            axes.set_title(f"{schedule} steps; noise by K = {counted}")
            drawn.append((axes, rows))
    at_full_batch, in_one_dimension = lines[-1].subplots(1, 2)
    at_full_batch.set_title(f"full batch, {schedules[0]} steps")
    in_one_dimension.set_title(f"one dimension: batch {small.batch} of {small.n}")
    drawn += [
        (at_full_batch, curve_rows(record, "full batch", "theorem", schedules[0], FULL)),
        (
            in_one_dimension,
            curve_rows(record, "one dimension", "one dimension", "constant", SMALL),
        ),
    ]
    for axes, rows in drawn:
        target = small.epsilon if axes is in_one_dimension else fields.epsilon
        _draw_panel(axes, rows, target)
    in_one_dimension.set_ylabel(r"$\varepsilon$ in one dimension")
    for axes, rows in drawn:
        if axes not in (in_one_dimension, drawn[0][0]):
            axes.sharey(drawn[0][0])
        subplot = axes.get_subplotspec()
        assert subplot is not None
        if subplot.is_first_col():
            axes.set_ylabel(EPSILON_LABEL)
        elif axes is not in_one_dimension:
            axes.tick_params(axis="y", which="both", labelleft=False)
        if subplot.is_last_col() or axes is at_full_batch:
            ends = {row["curve"]: (row["step"], row["value"]) for row in rows}
            label_ends(axes, [CURVES[name] for name in ends], ends.values())
    notes = [
        f"n = {fields.n}, batch {fields.batch}, {fields.epochs} epochs, record norm "
        f"{fields.feature_norm:g}, lambda = {fields.lam:g}, delta = {fields.delta:g}; "
        "records replaced; noise such that Thm 3.2 gives the thin line at the last step, K counted "
        "as each title says (full batch and one dimension: steps); all iterates: batches without "
        "replacement, by PLD or RDP; one dimension: x = 1 against -1 among -1s, lambda = beta = 1, "
        "L = 2",
    ]
    names = ("panel", "calibration", "schedule", "curve", "sigma2", "step", "value")
    return ShownFigure(figure, names, [row for _, rows in drawn for row in rows], notes)


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


def _draw_panel(axes: Axes, rows: list[Row], target: float) -> None:
    """Epsilon against steps, both on log axes; a thin line at the target."""
    axes.set(xscale="log", yscale="log", xlabel="steps")
    looks = {name: look for name, look in CURVES.items() if any(r["curve"] == name for r in rows)}
    draw_curves(axes, frame(rows), "step", looks, "curve", markersize=3)
    for line, look in zip(axes.get_lines(), looks.values(), strict=True):
        line.set_label(look.label.replace("\n", " "))
    axes.axhline(target, color=MUTED, linewidth=THIN, zorder=1)
    label_decades(axes.yaxis)
