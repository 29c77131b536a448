"""dp_sgld: epsilon against steps by every accounting."""

from collections.abc import Sequence
from typing import Any

from dpatlas_workflow.records import Record
from dpatlas_workflow.show.look import BLUE, GREEN, ORANGE, PINK, RED, Look
from dpatlas_workflow.show.panel import Axis, Panel, PanelGrid, ShownFigure, series
from dpatlas_workflow.show.rows import Records, Row, Settings, only, where

EPSILON = Axis(r"privacy loss $\epsilon$ at $\delta$", log=True)
# What a curve of a `privacy_loss` record is called and how it is drawn.
CURVES = {
    "claimed, steps": Look("claimed, K = steps", "black", "", "-"),
    "claimed, epochs": Look("claimed, K = epochs", "black", "", ":"),
    "every iterate": Look("all iterates", GREEN, "^", "-", size=3),
    "given the batches": Look("last iterate,\nbatches known", PINK, "D", "--", size=3),
    "cyclic, hidden state": Look("last iterate, cyclic", ORANGE, "v", "-.", size=3),
    "full batch, hidden state": Look("last iterate, full batch", BLUE, "o", "-", size=3),
    "full batch, every iterate": Look("all iterates, PLD", GREEN, "^", "-", size=3),
    "full batch, every iterate, rdp": Look("all iterates, RDP", RED, "s", "-", size=3),
    "quadratic, fixed start": Look("exact: quadratic,\nfixed start", "black", "x", "", size=3),
    "quadratic, random start": Look(
        "exact: quadratic,\nstart of Alg. 1", "0.45", "+", "--", size=3
    ),
    "exact": Look("exact law", "0.45", "*", "-", size=3),
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
    record = only(records, "privacy_loss")
    fields, small = record.spec, record.facts["small"]
    schedules = fields.schedules
    grids: list[PanelGrid] = []
    rows: list[Row] = []
    for calibration, counted in CALIBRATIONS.items():
        shown = [
            (schedule, _curves(record, "mini-batches", BATCHES, calibration, schedule))
            for schedule in schedules
        ]
        # The panel with the most curves stands where their names do.
        shown.sort(key=lambda panel: len(panel[1]))
        panels = [
            _panel(
                f"{schedule} steps; noise by K = {counted}", EPSILON, of_schedule, fields.epsilon
            )
            for schedule, of_schedule in shown
        ]
        grids.append(PanelGrid([panels], 2.2))
        rows += [row for _, of_schedule in shown for row in of_schedule]
    full = _curves(record, "full batch", FULL, "theorem", schedules[0])
    one = _curves(record, "one dimension", SMALL, "one dimension")
    in_one = Axis(r"$\varepsilon$ in one dimension", log=True)
    panels = [
        _panel(f"full batch, {schedules[0]} steps", EPSILON, full, fields.epsilon),
        _panel(
            f"one dimension: batch {small['batch']} of {small['n']}", in_one, one, small["epsilon"]
        ),
    ]
    grids.append(PanelGrid([panels], 2.2))
    notes = [
        f"n = {fields.n}, batch {fields.batch}, {fields.epochs} epochs, record norm "
        f"{fields.feature_norm:g}, lambda = {fields.lam:g}, delta = {fields.delta:g}; "
        "records replaced; noise such that Thm 3.2 gives the thin line at the last step, K counted "
        "as each title says (full batch and one dimension: steps); all iterates: batches without "
        "replacement, by PLD or RDP; one dimension: x = 1 against -1 among -1s, lambda = beta = 1, "
        "L = 2",
    ]
    names = ("panel", "calibration", "schedule", "curve", "sigma2", "step", "value")
    return ShownFigure(grids, names, [*rows, *full, *one], notes)


def _curves(
    record: Record[Any], panel: str, names: Sequence[str], of: str, schedule: str = "constant"
) -> list[Row]:
    """The points of the named curves, those that a record has; of: their calibration."""
    return [
        {
            **{name: row[name] for name in ("calibration", "schedule", "curve", "sigma2", "step")},
            "panel": panel,
            "value": row["epsilon"],
            "runs": [record.id],
        }
        for row in where(record.tables["curves"], calibration=of, schedule=schedule)
        if row["curve"] in names
    ]


def _panel(title: str, epsilon: Axis, rows: list[Row], target: float) -> Panel:
    steps = Axis("steps", log=True, of=epsilon.label)
    return Panel(
        title, steps, epsilon, series(rows, "step", CURVES, "curve"), across=[target], legend="ends"
    )
