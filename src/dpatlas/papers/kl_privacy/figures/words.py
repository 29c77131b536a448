"""How figures of kl_privacy name what they show: inits, networks, and runs that diverged."""

from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D

from dpatlas.papers.kl_privacy.kinds import LinearizedRecord, TrainingRecord
from dpatlas.show.look import INITS
from dpatlas.show.output import Records
from dpatlas.show.panels import number

KL_LABEL = "KL privacy loss (nats)"
LOSS_LABEL = "training loss"


def inits_of(records: Records) -> list[str]:
    """Each init once, in the records' order."""
    return list(dict.fromkeys(record.spec.init for record in records))


def init_handles(records: Sequence[TrainingRecord]) -> list[Line2D]:
    """A legend entry per init, with the step sizes where they differ."""
    rates = {record.spec.init: record.spec.lr for record in records}
    differ = len(set(rates.values())) > 1
    return [
        Line2D(
            [],
            [],
            marker=INITS[init].marker,
            label=INITS[init].label + (f" ($\\eta$ = {number(rate)})" if differ else ""),
            **INITS[init].line,
        )
        for init, rate in rates.items()
    ]


def role_handles(looks: dict[str, tuple[str, dict[str, Any]]]) -> list[Line2D]:
    """A legend entry per role; what takes its init's colour is grey here."""
    grey: dict[str, Any] = {"color": "0.6", "linewidth": 2}
    return [Line2D([], [], label=label, **(grey | look)) for label, look in looks.values()]


def net_words(records: Sequence[TrainingRecord], without: str | None = None) -> str:
    """The settings that the records of a figure share, in words."""
    spec = records[0].spec
    sizes = {"depth": spec.depth, "width": spec.width}
    shown = [f"{name} {size}" for name, size in sizes.items() if name != without]
    # Where the step sizes differ they are in the legend.
    if len({record.spec.lr for record in records}) == 1:
        shown.append(f"$\\eta$ = {number(spec.lr)}")
    return ", ".join([*shown, f"$\\sigma$ = {spec.sigma:g}", f"{spec.runs} runs"])


def linearized_net_words(record: LinearizedRecord) -> str:
    """The settings of a linearised network, in words."""
    spec = record.spec
    return (
        f"linearised network of width {spec.width}, n = {spec.n_train}, "
        f"KL budget $\\varepsilon$ = {spec.epsilon:g}, {spec.runs} runs"
    )


def divergence_notes(records: Sequence[TrainingRecord], field: str | None = None) -> list[str]:
    """One sentence per init that lost runs, naming the conditions by the spec's `field`."""
    notes = []
    for init in inits_of(records):
        parts = []
        for record in records:
            runs, used = len(record.metrics.diverged), record.metrics.runs_used
            if record.spec.init == init and used < runs:
                where = f" at {field} {getattr(record.spec, field)}" if field else ""
                parts.append(f"{runs - used} of {runs}{where}")
        if parts:
            notes.append(f"{INITS[init].label}, runs diverged: {', '.join(parts)}")
    if notes and field:
        notes.append("diverged runs take no part: open markers; crosses where none is left")
    elif notes:
        notes.append("diverged runs take no part")
    return notes
