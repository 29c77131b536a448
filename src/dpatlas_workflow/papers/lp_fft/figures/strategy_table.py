"""Tables of lp_fft's strategies by privacy level, with the printed tables.

The csv has a row for every accuracy, ours and printed; the tables for people have a line for every
privacy level and a column for every strategy.
"""

import math
from collections.abc import Callable, Sequence

from dpatlas.errors import InputError
from dpatlas_workflow.papers.lp_fft.figures.arms import (
    ARM_COLUMNS,
    CHOSEN_ON,
    NEIGHBOURS,
    PLACE,
    STRATEGIES,
    arms,
    level,
    reported_weights,
    series_name,
)
from dpatlas_workflow.papers.lp_fft.published import (
    BACKBONES,
    BATCH,
    EPOCHS,
    PRIVATE_DATA,
    TABLE_1,
    TABLE_2,
    N,
    PrintedAccuracy,
    contradictions,
)
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Records, Row, grouped
from dpatlas_workflow.show.tables import Cell, Measured, Part

OURS, PRINTED = "ours", "printed"
PRINTED_CHOSEN_ON = "in-distribution validation accuracy, as stated"
COLUMNS = (
    "source",
    "table",
    *(name for name in ARM_COLUMNS if name not in ("low", "high")),
    "printed_epsilon",
    "contradicted_by",
)


def strategy_table(records: Records, printed: Sequence[PrintedAccuracy], group: str) -> ShownTable:
    """Our accuracies and then the printed ones; without records the printed ones alone.

    Raises InputError for records none of which is of the group.
    """
    rows = arms(records, group)
    if records and not rows:
        raise InputError("--records", f"none of group {group}", "at least one strategies record")
    ours = [{"source": OURS, **row} for row in rows]
    for row in ours:
        del row["low"], row["high"]
    paper = _printed_rows(printed, sorted({name for row in rows for name in row["runs"]}))
    blocks = grouped(ours, *PLACE).values()
    parts = [part for block in blocks for part in _parts(block, reported_weights(records))]
    return ShownTable(COLUMNS, [*ours, *paper], [*parts, _printed_part(paper)])


def _printed_rows(cells: Sequence[PrintedAccuracy], runs: Sequence[str]) -> list[Row]:
    """A row for every printed accuracy, as a fraction, with the noise that fits its epsilon."""
    return [
        {
            "source": PRINTED,
            "table": cell.table,
            "data": PRIVATE_DATA,
            "backbone": BACKBONES[cell.backbone][0],
            "pretrained_on": BACKBONES[cell.backbone][1],
            "n_train": N,
            "batch": BATCH,
            **cell.shown,
            "printed_epsilon": None if math.isinf(cell.epsilon) else cell.epsilon,
            "noise_multiplier": cell.noise_multiplier,
            "epsilon": cell.recomputed_epsilon if cell.noise_multiplier else None,
            "delta": 1 / N if cell.noise_multiplier else None,
            "rates_chosen_on": PRINTED_CHOSEN_ON,
            "contradicted_by": "; ".join(contradictions(cell, (*TABLE_1, *TABLE_2))),
            "runs": list(runs),
        }
        for cell in cells
    ]


def _parts(rows: Sequence[Row], weights: str) -> list[Part]:
    """Accuracies of `weights` of one scenario and backbone, and the learning rates behind them."""
    first = rows[0]
    lora = f", LoRA of rank {first['lora_rank']}" if first["lora_rank"] else ""
    name = (
        f"{first['scenario']}{lora}: {first['data']} (n = {first['n_train']}, {first['classes']} "
        f"classes) from the backbone {first['backbone']} ({first['architecture']}, pre-trained on "
        f"{first['pretrained_on']})"
    )
    rates = (
        f"{name}: learning rates, of the first phase then the second, chosen on "
        f"{CHOSEN_ON}; the ledgers of the tunings count the trials"
    )
    return [
        _part(rows, f"{name}. {_accuracy_caption(rows, weights)}", _percent),
        _part(rows, rates, _rates),
    ]


def _printed_part(rows: Sequence[Row]) -> Part:
    """The printed table with the noise that fits, and what contradicts it."""
    names = [name for name in STRATEGIES if any(row["strategy"] == name for row in rows)]
    lines = []
    for cells in grouped(rows, "backbone", "printed_epsilon").values():
        first = cells[0]
        by_strategy = {row["strategy"]: row for row in cells}
        remarks = [
            f"{STRATEGIES[name].label}: {row['contradicted_by']}"
            for name, row in by_strategy.items()
            if row["contradicted_by"]
        ]
        lines.append(
            (
                PRINTED,
                f"{first['backbone']}, from {first['pretrained_on']}",
                _or_infinity(first["printed_epsilon"]),
                first["noise_multiplier"],
                _or_infinity(first["epsilon"]),
                *(_as_printed(by_strategy.get(name)) for name in names),
                "; ".join(remarks),
            )
        )
    caption = (
        f"As printed in Table {rows[0]['table']}, on {PRIVATE_DATA}: accuracy in %, mean ± "
        "standard error; noise multiplier: of 1, 5, 10 and 20 the one whose epsilon is nearest; "
        f"recomputed by PLD for n = {N}, Poisson batches of {BATCH}, {EPOCHS} epochs, delta = 1/n, "
        "one record added or removed; rates chosen by in-distribution validation accuracy, which "
        "the printed epsilon does not cover"
    )
    before = ("source", "backbone", "eps, printed", "noise multiplier that fits", "eps, recomputed")
    labels = (STRATEGIES[name].label for name in names)
    return Part(caption, (*before, *labels, "contradicted by"), lines)


def _part(rows: Sequence[Row], caption: str, cell: Callable[[Row | None], Cell]) -> Part:
    """A line per privacy level, from none to the strongest, and a column per strategy."""
    order = list(STRATEGIES)
    series = sorted({series_name(row) for row in rows}, key=lambda at: (order.index(at[0]), at[1]))
    targets = any(row["target_epsilon"] for row in rows)
    lines = []
    for privacy in sorted({level(row) for row in rows}):
        by_series = {series_name(row): row for row in rows if level(row) == privacy}
        first = next(iter(by_series.values()))
        lines.append(
            (
                OURS,
                *((first["target_epsilon"],) if targets else ()),
                first["noise_multiplier"],
                _or_infinity(first["epsilon"]),
                *(cell(by_series.get(key)) for key in series),
            )
        )
    headings = (
        "source",
        *(("eps asked for",) if targets else ()),
        "noise multiplier",
        "eps",
        *(_heading(*key) for key in series),
    )
    return Part(caption, headings, lines)


def _accuracy_caption(rows: Sequence[Row], weights: str) -> str:
    first, runs = rows[0], sorted({row["runs_used"] for row in rows})
    private = next((row for row in rows if row["noise_multiplier"]), None)
    privacy = "no private level"
    if private:
        privacy = (
            f"eps of both phases together ({private['guaranteed_by']}), "
            f"{NEIGHBOURS[private['relation']]}, delta = {private['delta']:g}, clip "
            f"{private['max_grad_norm']:g}"
        )
    steps = first["steps_first"] + (first["steps_second"] or 0)
    return (
        f"Accuracy in % on {first['n_test']} test records, {weights}, mean ± standard "
        f"error of {' or '.join(map(str, runs))} runs; {steps} steps, expected batch "
        f"{first['batch']}; {privacy}"
    )


def _heading(strategy: str, share: float) -> str:
    phases = "" if share in (0.0, 1.0) else f", {100 * share:g}% first"
    return f"{STRATEGIES[strategy].label}{phases}"


def _percent(row: Row | None) -> Cell:
    if row is None:
        return None
    error = row["standard_error"]
    return Measured(100 * row["value"], None if error is None else 100 * error)


def _as_printed(row: Row | None) -> Cell:
    """All printed digits, which may say more than the standard error allows."""
    if row is None:
        return None
    return f"{100 * row['value']:.2f} ± {100 * row['standard_error']:.2f}"


def _rates(row: Row | None) -> Cell:
    if row is None:
        return None
    rates = [row[name] for name in ("lr_first", "lr_second") if row[name] is not None]
    return " then ".join(f"{rate:g}" for rate in rates)


def _or_infinity(epsilon: float | None) -> Cell:
    return math.inf if epsilon is None else epsilon
