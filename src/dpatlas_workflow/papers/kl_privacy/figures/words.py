"""How figures of kl_privacy name what they show: inits, networks, and runs that diverged."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpatlas_workflow.papers.kl_privacy.records import KlSpec
from dpatlas_workflow.rows import columns
from dpatlas_workflow.show.look import ANY_COLOR, INITS, THIN, Look
from dpatlas_workflow.show.mathtext import number
from dpatlas_workflow.show.panel import Column, Series, points, series
from dpatlas_workflow.show.rows import Records, Row, span, where

KL_LABEL = "KL privacy loss (nats)"
LOSS_LABEL = "training loss (nats)"
# The two readings of the KL of several runs, both with arithmetic means: the second is nowhere
# larger. How it is drawn at all points of the first, and where it has fewer: as points alone.
LARGEST, WORST = Look("mean of the runs' largest", ANY_COLOR), "largest mean of a record"
THIN_LINE = Look(WORST, ANY_COLOR, width=THIN)
FEW_POINTS = Look(WORST, ANY_COLOR, "+", "")


def inits_of(records: Records) -> list[str]:
    """Each init once, in the records' order."""
    return list(dict.fromkeys(record.spec.init for record in records))


def looks_of(records: Records) -> dict[str, Look]:
    """How each init is drawn, in the records' order; with the step sizes where they differ."""
    rates = {record.spec.init: record.spec.lr for record in records}
    if len(set(rates.values())) == 1:
        return {init: INITS[init] for init in rates}
    return {
        init: replace(INITS[init], label=rf"{INITS[init].label} ($\eta$ = {number(rate)})")
        for init, rate in rates.items()
    }


def kl_series(
    rows: Sequence[Row], x: Column, looks: Mapping[str, Look], worst: Look, **curve: Any
) -> list[Series]:
    """Both readings of KL by init, the second as `worst`; curve: of the first, not as points."""
    of_worst = {}
    for init, look in looks.items():
        line = worst.linestyle and look.linestyle
        of_worst[init] = replace(worst, label=look.label, color=look.color, linestyle=line)
    largest = series if curve else points
    means = where(rows, quantity="kl_mean")
    drawn = largest(means, x, looks, "init", told=(LARGEST.label,), **curve)
    return drawn + series(where(rows, quantity="kl_worst"), x, of_worst, "init", told=(WORST,))


def looks_in(looks: dict[str, Look], init: str) -> dict[str, Look]:
    """How quantities are drawn in the panel of an init: in its colour and with its marker."""
    color, marker = INITS[init].color, INITS[init].marker
    return {
        name: replace(look, color=color, marker=look.marker and marker)
        if look.color == ANY_COLOR
        else look
        for name, look in looks.items()
    }


def net_words(records: Records, without: str | None = None) -> str:
    """The settings that the records of a figure share, in words."""
    spec = records[0].spec
    sizes = {"depth": spec.depth, "width": spec.width}
    shown = [f"{_data_words(spec)}, n = {records[0].facts['n_train']}"]
    shown += [f"{name} {size}" for name, size in sizes.items() if name != without]
    # Where the step sizes differ they are in the legend.
    if len({record.spec.lr for record in records}) == 1:
        shown.append(f"$\\eta$ = {number(spec.lr)}")
    return ", ".join([*shown, f"$\\sigma$ = {spec.sigma:g}", runs_words(records)])


def _data_words(spec: KlSpec) -> str:
    """The data set, and its classes where these are not all."""
    classes = " and ".join(map(str, spec.data.classes or ()))
    return f"{spec.data.name} {classes}".strip()


def runs_words(records: Records) -> str:
    """How many runs the conditions of a figure have."""
    return f"{span(record.spec.runs for record in records)} runs"


def linearized_net_words(records: Records) -> str:
    """The settings of linearised networks, in words."""
    spec = records[0].spec
    return (
        f"{_data_words(spec)}, linearised network of width {spec.width}, n = {spec.n_train}, "
        f"KL budget $\\varepsilon$ = {spec.epsilon:g}, {runs_words(records)}"
    )


def divergence_notes(records: Records, field: str | None = None) -> list[str]:
    """One sentence per init that lost runs, naming the conditions by the spec's `field`."""
    notes = []
    for init, of_init in columns(records, "runs").groupby("init", sort=False):
        parts = []
        for _, runs in of_init.groupby("condition", sort=False):
            if lost := runs.diverged.count():
                where = f" at {field} {runs[field].iloc[0]}" if field else ""
                parts.append(f"{lost} of {len(runs)}{where}")
        if parts:
            notes.append(f"{INITS[init].label}, runs diverged: {', '.join(parts)}")
    if notes and field:
        notes.append("diverged runs take no part: open markers; crosses where none is left")
    elif notes:
        notes.append("diverged runs take no part")
    return notes
