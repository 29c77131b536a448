"""Records of kl_privacy as rows: one number that a figure shows, and what stands behind it.

A row holds the condition's keys, `quantity`, `value` and its interval `low` to `high`, how many
runs were used and how many diverged, and the record's id. A condition that lost runs to divergence
keeps the mean over the others; one that lost all has no value.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpatlas.errors import InputError
from dpatlas_workflow.papers.kl_privacy.readings import growth, largest_means
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns
from dpatlas_workflow.show.look import INITS
from dpatlas_workflow.show.rows import (
    LEAST_RUNS,
    Records,
    Row,
    Settings,
    mean_interval,
    of_kind,
    positive_mean_interval,
    summaries,
)

COUNTS = ("runs_used", "runs_diverged")
VALUES = ("quantity", "value", "low", "high")
# May differ within one figure: between inits, by length of training, and where some conditions had
# to run more often to be decided. All else must be what the figure varies.
FREE_FIELDS = ("init", "lr", "shown_steps", "record_steps", "runs")


def conditions(
    records: Records, kind: str, vary: Sequence[str] = (), free: Sequence[str] = ()
) -> list[Record[Any]]:
    """The records of one kind, ordered by init and by the spec fields `vary`.

    Raises InputError where there is none, where two describe the same condition, and where they
    differ in a field that the figure does not show and that is not `free`.
    """
    same_kind = of_kind(records, kind)
    if not same_kind:
        kinds = ", ".join(sorted({record.kind for record in records}))
        raise InputError("--records", f"kinds {kinds}", f"at least one of kind {kind}")
    first, may_differ = same_kind[0], {*FREE_FIELDS, *vary, *free}
    expected = dict(first.spec)
    for record in same_kind:
        fields = dict(record.spec)
        unlike = sorted(name for name in set(fields) - may_differ if fields[name] != expected[name])
        if unlike:
            found = f"{', '.join(unlike)} unlike {first.id}"
            allowed = f"records that differ in {', '.join(sorted(may_differ))} only"
            raise InputError(f"--records {record.id}", found, allowed)
    seen: dict[tuple[Any, ...], str] = {}
    rates: dict[Any, Any] = {}
    for record in same_kind:
        fields = dict(record.spec)
        where, condition = f"--records {record.id}", _condition(record, vary)
        if condition in seen:
            raise InputError(where, f"the condition of {seen[condition]}", "each once")
        seen[condition] = record.id
        if rates.setdefault(fields.get("init"), fields.get("lr")) != fields.get("lr"):
            raise InputError(where, f"lr {fields['lr']:g}", "one step size for each init")
    return sorted(same_kind, key=lambda record: _condition(record, vary))


def _condition(record: Record[Any], vary: Sequence[str]) -> tuple[Any, ...]:
    fields = dict(record.spec)
    order = list(INITS).index(fields["init"]) if "init" in fields else 0
    return (order, *(fields[name] for name in vary))


def training_rows(
    trained: Records,
    quantity: str,
    step: int | None = None,
    axes: Sequence[str] = (),
    **keys: Any,
) -> list[Row]:
    """Rows of one quantity of training records, of each by its steps, or after `step` steps alone.

    axes: fields of the spec that rows have beside the init.

    In nats: `kl_mean`, arithmetic mean over runs of each run's largest KL, with the t interval of
    the mean's logarithm; `kl_worst`, the largest over records of the mean over runs, which is at
    most that, at the specs' record steps. `training_loss` (mean over runs, from the least to the
    largest run) is taken at the weights that the step started from; `growth_exponent` is over the
    second half of these steps. A record that lost all runs has a row for its last step.
    """
    if quantity == "growth_exponent":
        assert step is not None
        data = growth(trained, step // 2, step)
    else:
        data = largest_means(trained) if quantity == "kl_worst" else columns(trained, "curves")
        data = data if step is None else data[data.step == step]
    used = data.groupby("condition").kl_max.transform("count")
    data = data[(used > 0) | (data.step == (step or data.steps))]
    column, over = QUANTITIES[quantity]
    return summaries(data, ("init", *axes, "step"), column, over, quantity=quantity, **keys)


def only_value(values: np.ndarray) -> Row:
    """The value that all runs share."""
    return {"value": float(values[0])}


def geometric_interval(values: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """Geometric mean of the runs' values, and the t interval of their mean logarithm."""
    if not (np.asarray(values) > 0).all():
        return {"value": 0.0, "runs_used": len(values)}
    row = mean_interval(np.log(values))
    return row | {
        name: None if row[name] is None else float(np.exp(row[name]))
        for name in ("value", "low", "high")
    }


def range_of_runs(values: np.ndarray) -> Row:
    """Mean of the runs' values, from LEAST_RUNS on with the least and the largest."""
    value = {"value": float(np.mean(values))}
    ends = {"low": float(np.min(values)), "high": float(np.max(values))}
    return value | ends if len(values) >= LEAST_RUNS else value


# Columns of the quantities of training records, and how they are shown over runs.
QUANTITIES: dict[str, tuple[str, Callable[[np.ndarray], Row]]] = {
    "kl_mean": ("kl_max", positive_mean_interval),
    "kl_worst": ("kl_worst", only_value),
    "training_loss": ("loss", range_of_runs),
    "growth_exponent": ("growth", mean_interval),
}


def need_steps(records: Records, steps: int, name: str) -> None:
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


def input_size(record: Record[Any]) -> int:
    """d, the number of inputs of a record's data."""
    assert record.data is not None
    return int(np.prod(record.data["shapes"]["x_train"][1:]))
