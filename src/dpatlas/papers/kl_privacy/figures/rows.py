"""Records of kl_privacy as rows: one number that a figure shows, and what stands behind it.

A row holds the condition's keys, `quantity`, `value` and its interval `low` to `high`, how many
runs were used and how many diverged, and the record's id. A condition that lost runs to divergence
keeps the mean over the others; one that lost all has no value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpatlas.errors import InputError
from dpatlas.papers.kl_privacy.kinds import LinearizedRecord, TrainingRecord
from dpatlas.records import Record
from dpatlas.show.look import INITS
from dpatlas.show.output import Records, Row, Settings

COUNTS = ("runs_used", "runs_diverged")
VALUES = ("quantity", "value", "low", "high")
# May differ between inits within one figure; all else must be what the figure varies.
FREE_FIELDS = ("init", "lr")


def conditions(
    records: Records, kind: str, vary: Sequence[str] = (), free: Sequence[str] = ()
) -> list[Record[Any, Any]]:
    """The records of one kind, ordered by init and by the spec fields `vary`.

    Raises InputError where there is none, where two describe the same condition, and where they
    differ in a field that the figure does not show and that is not `free`.
    """
    of_kind = [record for record in records if record.kind == kind]
    if not of_kind:
        kinds = ", ".join(sorted({record.kind for record in records}))
        raise InputError("--records", f"kinds {kinds}", f"at least one of kind {kind}")
    for record in of_kind:
        _check_comparable(record, of_kind[0], {*FREE_FIELDS, *vary, *free})
    seen: dict[tuple[Any, ...], str] = {}
    rates: dict[Any, Any] = {}
    for record in of_kind:
        fields = dict(record.spec)
        where, condition = f"--records {record.id}", _condition(record, vary)
        if condition in seen:
            raise InputError(where, f"the condition of {seen[condition]}", "each once")
        seen[condition] = record.id
        if rates.setdefault(fields.get("init"), fields.get("lr")) != fields.get("lr"):
            raise InputError(where, f"lr {fields['lr']:g}", "one step size for each init")
    return sorted(of_kind, key=lambda record: _condition(record, vary))


def _check_comparable(record: Record[Any, Any], other: Record[Any, Any], free: set[str]) -> None:
    fields, expected = dict(record.spec), dict(other.spec)
    unlike = sorted(name for name in set(fields) - free if fields[name] != expected[name])
    if unlike:
        raise InputError(
            f"--records {record.id}",
            f"{', '.join(unlike)} unlike {other.id}",
            f"records that differ in {', '.join(sorted(free))} only",
        )


def _condition(record: Record[Any, Any], vary: Sequence[str]) -> tuple[Any, ...]:
    fields = dict(record.spec)
    order = list(INITS).index(fields["init"]) if "init" in fields else 0
    return (order, *(fields[name] for name in vary))


def training_row(record: TrainingRecord, quantity: str, step: int, **keys: Any) -> Row:
    """One number of a training record after `step` steps.

    `kl_worst` (max over records of the mean over runs, with the record's bootstrap interval),
    `kl_mean` (mean over records and runs) in nats; `training_loss` (mean over runs, from the least
    to the largest run), taken at the weights that the step started from.
    """
    metrics = record.metrics
    row = {
        "init": record.spec.init,
        **keys,
        "step": step,
        "quantity": quantity,
        "runs_used": metrics.runs_used,
        "runs_diverged": len(metrics.diverged) - metrics.runs_used,
        "runs": [record.id],
    }
    if metrics.kl is None or metrics.loss is None:
        return row
    if quantity == "kl_worst":
        value, low, high = (
            curve[step - 1] for curve in (metrics.kl.worst, metrics.kl.low, metrics.kl.high)
        )
        return row | {"value": value, "low": low, "high": high}
    if quantity == "kl_mean":
        return row | {"value": metrics.kl.mean[step - 1]}
    return row | range_of_runs(metrics.loss.runs[step - 1])


def range_of_runs(values: Sequence[float]) -> dict[str, float]:
    """Mean, least and largest of the runs' values."""
    return {"value": float(np.mean(values)), "low": min(values), "high": max(values)}


def need_steps(records: Sequence[TrainingRecord], steps: int, name: str) -> None:
    """InputError unless every training record reaches `steps`, the horizon called `name`."""
    for record in records:
        if record.spec.steps < steps:
            reached, needed = f"{record.spec.steps} steps", f"at least {steps} steps ({name})"
            raise InputError(record.id, reached, needed)


def horizon(settings: Settings, name: str) -> int:
    """The number of steps of a named horizon; InputError if the settings lack it."""
    steps = settings.get("horizons", {}).get(name)
    if type(steps) is not int or steps < 1:
        raise InputError(f"settings.horizons.{name}", repr(steps), "a whole number >= 1")
    return steps


def input_size(record: LinearizedRecord) -> int:
    """d, the number of inputs of a record's data."""
    assert record.data is not None
    return int(np.prod(record.data["shapes"]["x_train"][1:]))
