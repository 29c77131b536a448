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
from dpatlas.papers.kl_privacy.readings import at_step, growth_exponents, largest_mean
from dpatlas.records import Record
from dpatlas.show.look import INITS
from dpatlas.show.rows import (
    LEAST_RUNS,
    Records,
    Row,
    Settings,
    mean_interval,
    positive_mean_interval,
)

COUNTS = ("runs_used", "runs_diverged")
VALUES = ("quantity", "value", "low", "high")
# May differ within one figure: between inits, by length of training, and where some conditions had
# to run more often to be decided. All else must be what the figure varies.
FREE_FIELDS = ("init", "lr", "shown_steps", "record_steps", "runs")


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

    In nats: `kl_mean`, arithmetic mean over runs of each run's largest KL, with the t interval of
    the mean's logarithm; `kl_worst`, the largest over records of the mean over runs, which is at
    most that, where the record keeps it. `training_loss` (mean over runs, from the least to the
    largest run) is taken at the weights that the step started from; `growth_exponent` over the
    second half of the steps.
    """
    metrics = record.metrics
    row = {
        "init": record.spec.init,
        **keys,
        "step": step,
        "quantity": quantity,
        "runs_used": metrics.runs_used,
        "runs_diverged": len(metrics.diverged) - metrics.runs_used,
        "runs": list(record.ids),
    }
    if not metrics.runs_used:
        return row
    if quantity == "training_loss":
        return row | range_of_runs(at_step(record, "loss", step))
    if quantity == "kl_worst":
        value = largest_mean(record, step)
        return row if value is None else row | {"value": value}
    if quantity == "growth_exponent":
        return row | mean_interval(growth_exponents(record, step // 2, step))
    return row | positive_mean_interval(at_step(record, "kl_max", step))


def geometric_interval(values: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """Geometric mean of the runs' values, and the t interval of their mean logarithm."""
    if not (np.asarray(values) > 0).all():
        return {"value": 0.0, "runs_used": len(values)}
    row = mean_interval(np.log(values))
    return row | {
        name: None if row[name] is None else float(np.exp(row[name]))
        for name in ("value", "low", "high")
    }


def range_of_runs(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Mean of the runs' values, from LEAST_RUNS on with the least and the largest."""
    value = {"value": float(np.mean(values))}
    ends = {"low": float(np.min(values)), "high": float(np.max(values))}
    return value | ends if len(values) >= LEAST_RUNS else value


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
