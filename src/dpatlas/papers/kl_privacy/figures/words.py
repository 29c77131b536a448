"""How figures of kl_privacy name what they show: inits, networks, and runs that diverged."""

from typing import Any

from matplotlib.lines import Line2D

from dpatlas.show.look import INITS
from dpatlas.show.output import Records
from dpatlas.show.panels import number

KL_LABEL = "KL privacy loss (nats)"


def inits_of(records: Records) -> list[str]:
    """Each init once, in the records' order."""
    return list(dict.fromkeys(record["spec"]["init"] for record in records))


def init_handles(records: Records) -> list[Line2D]:
    """A legend entry per init, with the step sizes where they differ."""
    rates = {record["spec"]["init"]: record["spec"]["lr"] for record in records}
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


def role_handles(looks: dict[str, tuple[str, dict[str, str]]]) -> list[Line2D]:
    """A legend entry per role; what takes its init's colour is grey here."""
    return [
        Line2D([], [], label=label, **({"color": "0.6", "linewidth": 2} | look))
        for label, look in looks.values()
    ]


def net_words(records: Records, without: str | None = None) -> str:
    """The settings that the records of a figure share, in words."""
    fields = records[0]["spec"]
    shown = [f"{name} {fields[name]}" for name in ("depth", "width") if name != without]
    # Where the step sizes differ they are in the legend.
    if len({record["spec"]["lr"] for record in records}) == 1:
        shown.append(f"$\\eta$ = {number(fields['lr'])}")
    return ", ".join([*shown, f"$\\sigma$ = {fields['sigma']:g}", f"{fields['runs']} runs"])


def linearized_net_words(record: dict[str, Any]) -> str:
    """The settings of a linearised network, in words."""
    fields = record["spec"]
    return (
        f"linearised network of width {fields['width']}, n = {fields['n_train']}, "
        f"KL budget $\\varepsilon$ = {fields['epsilon']:g}, {fields['runs']} runs"
    )


def divergence_notes(records: Records, field: str | None = None) -> list[str]:
    """One sentence per init that lost runs, naming the conditions by the spec's `field`."""
    notes = []
    for init in inits_of(records):
        parts = []
        for record in records:
            runs, used = len(record["metrics"]["diverged"]), record["metrics"]["runs_used"]
            if record["spec"]["init"] == init and used < runs:
                where = f" at {field} {record['spec'][field]}" if field else ""
                parts.append(f"{runs - used} of {runs}{where}")
        if parts:
            notes.append(f"{INITS[init].label}, runs diverged: {', '.join(parts)}")
    if notes and field:
        notes.append("diverged runs take no part: open markers; crosses where none is left")
    elif notes:
        notes.append("diverged runs take no part")
    return notes
